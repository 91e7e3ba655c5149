"""Blocks of 8-bit integers with a shared float32 scale, in NumPy."""

import numpy as np
from numpy.typing import NDArray


def int8_encode(
    x: NDArray[np.float32], row: int, block: int, codes: NDArray[np.int8], scales: NDArray[np.float32]
) -> int:
    """Round each block to multiples of max|x| / 127, nearest, ties to even.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Rows of length `row`; each is cut in blocks, the last one of a row may be shorter.
    row, block : int
        Length of a row and of a block.
    codes : ndarray of int8, shape (d,)
        Filled with the integers.
    scales : ndarray of float32
        Filled with one scale a block: float32(max|x| / 127); NaN for a block with NaN or infinity.

    Returns
    -------
    int
        Index of the first NaN or infinity, -1 if there is none.
    """
    k = 0
    for begin in range(0, len(x), max(row, 1)):
        for i in range(begin, begin + row, block):
            values = x[i : min(i + block, begin + row)]
            amax = np.max(np.abs(values))
            target = codes[i : i + len(values)]
            if not np.isfinite(amax) or amax == 0:
                target[:] = 0
                scales[k] = np.nan if amax != 0 else 0
            else:
                s = np.float32(np.ldexp(np.float64(1), int(np.clip(-np.frexp(amax)[1], -126, 127))))
                steps = values * s * (np.float32(127) / (amax * s))
                target[:] = np.clip(np.rint(steps), -127, 127)
                scales[k] = np.float32(np.float64(amax) / 127)
            k += 1
    bad = np.flatnonzero(~np.isfinite(x))
    return int(bad[0]) if len(bad) else -1


def int8_decode(
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    row: int,
    block: int,
    weight: float,
    add: bool,
    out: NDArray[np.float32],
) -> None:
    """Decode to ``code * float32(scale * weight)``, into `out` or added to it; a factor of 0 gives +0."""
    per_row = -(-row // block) if row else 0
    with np.errstate(over="ignore", invalid="ignore"):
        factors = (scales.astype(np.float64) * weight).astype(np.float32)
        spread = np.repeat(factors.reshape(-1, per_row), block, axis=1)[:, :row] if row else factors
        values = codes.astype(np.float32) * spread.reshape(-1)
    values[values == 0] = 0
    if add:
        out += values
    else:
        out[:] = values
