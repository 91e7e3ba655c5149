"""Evenly spaced levels of one range: indices, how often each occurs, and 16-bit symbols as two streams of bytes."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]

_PIECE = 1 << 16


def uniform_indices(x: F32, low: float, scale: float, levels: int, out: U16) -> None:
    """Fill `out` with ``floor((x - low) * scale)`` in float64, clamped to ``0 .. levels - 1``; NaN gives 0."""
    for i in range(0, len(x), _PIECE):
        t = (x[i : i + _PIECE].astype(np.float64) - low) * scale
        out[i : i + _PIECE] = np.where(t > 0, np.minimum(t, levels - 1), 0).astype(np.uint16)


def uniform_counts(x: F32, low: float, scale: float, counts: NDArray[np.uint64]) -> None:
    """Fill `counts` with how often each index of `uniform_indices` occurs; its length is the number of levels."""
    indices = np.empty(len(x), np.uint16)
    uniform_indices(x, low, scale, len(counts), indices)
    counts[:] = np.bincount(indices, minlength=len(counts)).astype(np.uint64)


def split_symbols(symbols: U16, high: U8, low: U8) -> None:
    """Fill `high` with the upper bytes, in order, and `low` with the lower ones, those of upper byte 0 first."""
    high[:] = (symbols >> np.uint16(8)).astype(np.uint8)
    low[:] = symbols[np.argsort(high, kind="stable")].astype(np.uint8)


def join_symbols(high: U8, low: U8, out: U16) -> None:
    """Undo `split_symbols`."""
    joined = high.astype(np.uint16) << np.uint16(8)
    order = np.argsort(high, kind="stable")
    joined[order] |= low
    out[:] = joined
