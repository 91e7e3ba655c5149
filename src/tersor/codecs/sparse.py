"""What the sparsifiers share: runs of units, values in 16 or 32 bits, and draws that rank coordinates."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16
from tersor.errors import RangeError
from tersor.kernels import ops
from tersor.units import Units

VALUE_DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
AT_ONCE = 1 << 14  # coordinates or indices that are treated together, which bounds the memory


def groups(units: Units, most: int = AT_ONCE) -> Iterator[tuple[int, int, int]]:
    """Yield (first unit, units, length of each) for runs of units of one length, of about `most` coordinates."""
    full = units.count if units.last == units.length else units.count - 1
    step = max(most // units.length, 1)
    for first in range(0, full, step):
        yield first, min(step, full - first), units.length
    if 0 <= full < units.count:
        yield full, 1, units.last


def narrow(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of values rounded to nearest; infinity where there was none raises RangeError."""
    if dtype == "float32":
        return values.astype("<f4").reshape(-1).view(np.uint8)
    with np.errstate(over="ignore"):
        small: NDArray[Any] = float32_to_bfloat16(values) if dtype == "bfloat16" else values.astype(np.float16)
    if np.isinf(widen(small, dtype)[~np.isnan(values)]).any():
        raise RangeError(f"a value does not fit in {dtype}; values=float32 holds more")
    return small.astype(VALUE_DTYPES[dtype]).reshape(-1).view(np.uint8)


def widen(values: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Undo `narrow` for what a plane's `values()` gives."""
    return bfloat16_to_float32(values) if dtype == "bfloat16" else values.astype(np.float32)


def ranked(key: int, units: Units, start: int, first: int, rows: int, length: int, k: int) -> NDArray[np.int64]:
    """Return the `k` coordinates of each unit with the smallest draws, in the order of their draws, shape (rows, k).

    One word a coordinate, at its random position; equal words go by the coordinate. Rows share their draws.
    """
    at = 0 if units.by_rows else start + first * units.length
    words = np.empty(length if units.by_rows else rows * length, np.uint32)
    ops.current().philox(key, rng.SELECTION, 0, at, words)
    drawn = words.astype(np.uint64).reshape(-1, length) << np.uint64(32) | np.arange(length, dtype=np.uint64)
    if k < length:
        drawn = np.partition(drawn, k - 1, axis=1)[:, :k]
    chosen = (np.sort(drawn, axis=1) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return np.broadcast_to(chosen, (rows, k))


def spoil(values: NDArray[np.float32], x: NDArray[np.float32]) -> None:
    """Turn the values of units of `x`, shape (units, length), that hold NaN or infinity into NaN."""
    values[~np.isfinite(x).all(axis=1)] = np.nan
