"""Uniform quantization with a subtractive dither on a known range, in NumPy.

Robert M. Gray, Thomas G. Stockham: "Dithered quantizers", IEEE Transactions on Information Theory 39(3), 1993.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.uniform import each_unit


def _dither(key: int, start: int, by_rows: bool, unit: int, size: int) -> NDArray[np.float64]:
    drawn = rng.uniform(key, rng.DITHER, 0 if by_rows else start, unit if by_rows else size).astype(np.float64)
    return np.tile(drawn, size // unit) if by_rows else drawn


def dither_encode(
    x: NDArray[np.float32],
    unit: int,
    low: float,
    high: float,
    bits: int,
    key: int,
    start: int,
    by_rows: bool,
    codes: NDArray[np.uint8],
) -> None:
    """Round (x - low) / step + u - 1/2 to the nearest of 0 .. 2**bits - 1, with u from the shared stream.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Every value lies in [low, high].
    unit : int
        Coordinates of a unit; each unit of `codes` starts on a byte.
    low, high : float
        The range; step = (high - low) / (2**bits - 1).
    bits : int
        Width of a code, 1 to 8.
    key, start : int
        Key of the dither; word of coordinate 0.
    by_rows : bool
        Every unit uses the words 0 .. unit - 1.
    codes : ndarray of uint8
        The packed codes.
    """
    if not len(x):
        return
    top = (1 << bits) - 1
    inverse = top / (high - low) if high > low else 0.0
    t = (x.astype(np.float64) - low) * inverse + _dither(key, start, by_rows, unit, len(x))
    each_unit(np.clip(np.floor(t), 0, top).astype(np.uint8), unit, bits, codes, pack)


def dither_decode(
    codes: NDArray[np.uint8],
    unit: int,
    low: float,
    high: float,
    bits: int,
    key: int,
    start: int,
    by_rows: bool,
    weight: float,
    add: bool,
    present: NDArray[np.uint8],
    out: NDArray[np.float32],
) -> None:
    """Decode to ``weight * (low + (code - u + 1/2) * step)``, into `out`, shape (d,), or added to it.

    Parameters
    ----------
    codes, unit, low, high, bits, key, start, by_rows
        As for `dither_encode`.
    weight : float
        Factor of the result.
    add : bool
        Add to `out` instead of overwriting it.
    present : ndarray of uint8
        Empty, or one flag a unit; a missing unit gives zeros.
    out : ndarray of float32, shape (d,)
        Where the result goes.
    """
    if not len(out):
        return
    plain: NDArray[Any] = np.empty(len(out), np.uint8)
    each_unit(plain, unit, bits, codes, lambda rows, width, packed: unpack(packed, width, rows))
    step = (high - low) / ((1 << bits) - 1)
    at = (plain.astype(np.float64) - _dither(key, start, by_rows, unit, len(out))) + 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        values = (weight * (low + at * step)).astype(np.float32)
        if len(present):
            values[np.repeat(present, unit)[: len(out)] == 0] = 0
        if add:
            out += values
        else:
            out[:] = values
