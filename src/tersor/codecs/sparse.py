"""What the sparsifiers share: values in 16 or 32 bits, and draws that rank coordinates."""

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codecs.scale_types import SCALE_DTYPES, narrow, widen
from tersor.errors import RangeError
from tersor.kernels import ops
from tersor.units import Units

AT_ONCE = 1 << 14  # coordinates or indices that are treated together, which bounds the memory


def narrow_values(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of values rounded to nearest; infinity where there was none raises RangeError."""
    with np.errstate(over="ignore"):
        raw = narrow(values.reshape(-1), dtype)
    if np.isinf(widen(raw.view(SCALE_DTYPES[dtype]), dtype)).any():
        raise RangeError(f"a value does not fit in {dtype}; values=float32 holds more")
    return raw


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
