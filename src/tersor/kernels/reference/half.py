"""16-bit floats and finite checks, in NumPy."""

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16

FLOAT16, BFLOAT16 = 0, 1


def first_nonfinite(x: NDArray[np.float32]) -> int:
    """Return the index of the first NaN or infinity of `x`, shape (d,), or -1."""
    finite = np.isfinite(x)
    return -1 if finite.all() else int(np.argmin(finite))


def half_encode(x: NDArray[np.float32], kind: int, out: NDArray[np.uint16]) -> tuple[int, int]:
    """Round float32 to float16 or bfloat16 bit patterns: nearest, ties to even, NaN quiet.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        The values.
    kind : int
        FLOAT16: finite values from 65,520 on become infinite. BFLOAT16: finite values saturate.
    out : ndarray of uint16, shape (d,)
        The bit patterns.

    Returns
    -------
    first_bad, first_lost : int
        Index of the first NaN or infinity, and of the first finite value that became infinite; -1 if there is none.
    """
    lost = np.zeros(len(x), np.bool_)
    if kind == BFLOAT16:
        out[:] = float32_to_bfloat16(x)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = x.astype(np.float16)
        lost = np.isinf(rounded) & np.isfinite(x)
        bits = np.ascontiguousarray(x).view(np.uint32)
        quiet = ((bits >> 16) & 0x8000) | 0x7E00 | ((bits >> 13) & 0x3FF)
        out[:] = np.where(np.isnan(x), quiet, rounded.view(np.uint16))
    return first_nonfinite(x), int(np.argmax(lost)) if lost.any() else -1


def half_decode(codes: NDArray[np.uint16], kind: int, weight: float, add: bool, out: NDArray[np.float32]) -> None:
    """Decode to ``value * float32(weight)``, into `out`, shape (d,), or added to it."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = bfloat16_to_float32(codes) if kind == BFLOAT16 else codes.view(np.float16).astype(np.float32)
        values = values * np.float32(weight)
        if add:
            out += values
        else:
            out[:] = values
