"""What codecs of a few coordinates share: how values go on the wire, and keyed choices that receivers repeat."""

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16
from tersor.errors import RangeError
from tersor.kernels import ops

WIRE = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_BEYOND = np.float32(65520)  # from here on float16 rounds to infinity
# Coordinates of the units whose choices are drawn at once.
TOGETHER = 1 << 18


def check_values(name: str, values: str) -> None:
    """Raise ValueError unless `values` is a type of values on the wire."""
    if values not in WIRE:
        raise ValueError(f"{name}: values must be {', '.join(WIRE)}, got {values!r}")


def to_wire(values: NDArray[np.float32], kind: str) -> NDArray[np.uint8]:
    """Round values to `kind`; return their bytes, flat.

    Raises
    ------
    RangeError
        If a finite value is beyond float16.
    """
    if kind == "bfloat16":
        made = float32_to_bfloat16(values).astype("<u2")
    else:
        if kind == "float16" and ((np.abs(values) >= _BEYOND) & np.isfinite(values)).any():
            raise RangeError("a value is beyond float16 (65504); use values=bfloat16 or float32, or scale the array")
        with np.errstate(over="ignore"):
            made = values.astype(WIRE[kind])
    return np.ascontiguousarray(made).reshape(-1).view(np.uint8)


def from_wire(data: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Undo `to_wire`, but for its rounding."""
    made = data.view(WIRE[kind])
    return bfloat16_to_float32(made.astype(np.uint16)) if kind == "bfloat16" else made.astype(np.float32)


def choices(key: int, starts: list[int], n: int, skip: int, count: int) -> NDArray[np.int64]:
    """Return places `skip` .. `skip + count` from the end of keyed permutations of ``range(n)``.

    Parameters
    ----------
    key : int
        Of the stream (FORMAT.md section 3, round 0).
    starts : list of int
        Random position of coordinate 0 of every permutation.
    n, skip, count : int
        Fisher-Yates fixes the last place first, so the choice takes skip + count steps and words, not n.

    Returns
    -------
    ndarray of int64, shape (len(starts), count)
        Column j is ``perm[n - 1 - skip - j]``.
    """
    steps = skip + count
    drawn = np.empty((len(starts), steps), np.uint32)
    for k, start in enumerate(starts):
        ops.current().philox(key, rng.PERMUTATION, 0, start + n - steps, drawn[k])
    perm = np.tile(np.arange(n, dtype=np.int32), (len(starts), 1))
    # Word i chooses among the places 0 .. i.
    among = np.arange(n - steps + 1, n + 1, dtype=np.uint64)
    places = ((drawn.astype(np.uint64) * among) >> np.uint64(32)).astype(np.int64)
    rows = np.arange(len(starts))
    for i in range(n - 1, n - 1 - steps, -1):
        j = places[:, i - (n - steps)]
        here = perm[:, i].copy()
        perm[:, i] = perm[rows, j]
        perm[rows, j] = here
    return perm[:, n - steps : n - skip][:, ::-1].astype(np.int64)
