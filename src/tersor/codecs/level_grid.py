"""Levels on the wire: float32 each, or two exact float32 ends and the others in 8- or 16-bit steps between them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.encoded import Encoded, PlaneSpec
from tersor.units import Units

F32 = NDArray[np.float32]

LEVEL_DTYPES = {"float32": "<f4", "uint16": "<u2", "uint8": "|u1"}
# Steps from the first level to the last. So many divisors make small integers, and halves of a range, exact.
STEPS = {"uint16": 65520, "uint8": 240}
_AT_ONCE = 1 << 16  # levels that are widened in one step: float64 between


def layout(units: Units, n_levels: int, dtype: str) -> dict[str, PlaneSpec]:
    """Return the planes of `n_levels` levels a unit."""
    kind = np.dtype(LEVEL_DTYPES[dtype])
    stride = kind.itemsize * (n_levels - 2 * (dtype in STEPS))
    planes = {"levels": PlaneSpec(8 * kind.itemsize, units.count, stride, units.count * stride, kind.str)}
    if dtype in STEPS:
        planes["ends"] = PlaneSpec(32, units.count, 8, units.count * 8, "<f4")
    return planes


def narrow(levels: F32, dtype: str, *, outward: int = 0) -> dict[str, NDArray[Any]]:
    """Return the planes' values for rows of ascending levels, or of NaN.

    Levels between the ends go to the nearest step, ties to even; but of a row's first `outward` down and of as many
    last ones up: what lies between the means of so many then lies between those of the rounded ones.
    """
    if dtype == "float32":
        return {"levels": levels.astype("<f4").reshape(-1)}
    ends, inner = levels[:, [0, -1]], levels[:, 1:-1].astype(np.float64)
    low, width = _span(ends)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.nan_to_num((inner - low) * STEPS[dtype] / width)
    steps, most = np.rint(exact), max(outward - 1, 0)
    down, up = np.s_[:, :most], np.s_[:, inner.shape[1] - most :]
    steps[down], steps[up] = np.floor(exact[down]), np.ceil(exact[up])
    held = _between(ends, steps, dtype)  # float32 may have rounded past the level once more
    steps[down] -= held[down] > inner[down]
    steps[up] += held[up] < inner[up]
    return {"levels": steps.astype(LEVEL_DTYPES[dtype]).reshape(-1), "ends": ends.astype("<f4").reshape(-1)}


def widen(planes: dict[str, NDArray[Any]], n_levels: int, dtype: str) -> F32:
    """Return the levels that `narrow` wrote, shape (units, n_levels)."""
    if dtype == "float32":
        return planes["levels"].astype(np.float32, copy=False).reshape(-1, n_levels)
    ends = planes["ends"].astype(np.float32, copy=False).reshape(-1, 2)
    steps, made = planes["levels"].reshape(-1, n_levels - 2), np.empty((len(ends), n_levels), np.float32)
    made[:, 0], made[:, -1] = ends[:, 0], ends[:, 1]
    rows = max(_AT_ONCE // n_levels, 1)
    for i in range(0, len(ends), rows):
        made[i : i + rows, 1:-1] = _between(ends[i : i + rows], steps[i : i + rows].astype(np.float64), dtype)
    return made


def damaged(enc: Encoded, n_levels: int, dtype: str, at_once: int) -> bool:
    """Whether some unit's levels are neither finite and ascending nor all NaN, or a step is beyond the last level."""
    values = {name: enc.planes[name].values() for name in layout(enc.units, n_levels, dtype)}
    step = max(at_once // n_levels, 1)
    for first in range(0, enc.units.count, step):
        part = {
            name: plane[first * (size := len(plane) // enc.units.count) :][: step * size]
            for name, plane in values.items()
        }
        table = widen(part, n_levels, dtype)
        ascending = np.isfinite(table).all(axis=1) & (table[:, 1:] >= table[:, :-1]).all(axis=1)
        if not (ascending | np.isnan(table).all(axis=1)).all():
            return True
        if dtype in STEPS and part["levels"].max(initial=0) > STEPS[dtype]:
            return True
    return False


def _span(ends: F32) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low = ends[:, :1].astype(np.float64)
    with np.errstate(invalid="ignore"):  # forged ends
        return low, ends[:, 1:] - low


def _between(ends: F32, steps: NDArray[np.float64], dtype: str) -> F32:
    low, width = _span(ends)
    with np.errstate(invalid="ignore", over="ignore"):
        inner = (low + width * steps / STEPS[dtype]).astype(np.float32) + np.float32(0)  # no -0
        # low + width may miss the last level where that is tiny beside the first.
        return np.where(steps == STEPS[dtype], ends[:, 1:], np.minimum(inner, ends[:, 1:]))
