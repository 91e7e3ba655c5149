"""Blocks of 4-bit integers with a shared scale, in NumPy."""

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.microscaling import clamped

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2


def _to_wire(scales: NDArray[np.float32], kind: int) -> NDArray[np.uint8]:
    with np.errstate(over="ignore"):
        wire = scales if kind == FLOAT32 else scales.astype(np.float16) if kind == FLOAT16 else None
    return (float32_to_bfloat16(scales) if wire is None else wire).view(np.uint8)


def _from_wire(scales: NDArray[np.uint8], kind: int) -> NDArray[np.float32]:
    if kind == BFLOAT16:
        return bfloat16_to_float32(scales.copy().view(np.uint16))
    return scales.copy().view(np.float32 if kind == FLOAT32 else np.float16).astype(np.float32)


def int4_encode(
    x: NDArray[np.float32],
    row: int,
    block: int,
    scale_kind: int,
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
) -> int:
    """Round each block to multiples of its scale, max|x| / 7 as the wire holds it: nearest, ties to even, -7 .. 7.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Rows of length `row`; each is cut in blocks, the last one of a row may be shorter.
    row, block : int
        Length of a row and of a block, a multiple of 8.
    scale_kind : int
        Type of the scales: FLOAT32, FLOAT16, BFLOAT16.
    codes : ndarray of uint8
        Filled with the packed codes, two's complement; every row starts on a byte.
    scales : ndarray of uint8
        Filled with the bytes of one scale a block; NaN for a block with NaN or infinity. A scale may become infinite
        (float16); its codes are 0.

    Returns
    -------
    int
        Index of the first NaN or infinity, -1 if there is none.
    """
    if not len(x):
        return -1
    rows, per_row = len(x) // row, -(-row // block)
    blocks = np.zeros((rows, per_row * block), np.float32)
    blocks[:, :row] = x.reshape(rows, row)
    blocks = blocks.reshape(-1, block)
    amax = np.max(np.abs(blocks), axis=1)
    finite = np.isfinite(amax)
    scale = np.where(finite, np.where(finite, amax, 0).astype(np.float64) / 7, np.nan).astype(np.float32)
    scales[:] = _to_wire(scale, scale_kind)
    held = _from_wire(scales, scale_kind)
    usual = np.isfinite(held) & (held > 0)
    exponent = np.clip(-np.frexp(np.where(usual, amax, 1))[1], -126, 127)
    s = np.ldexp(1.0, exponent)
    t = (1 / (np.where(usual, held, 1).astype(np.float64) * s)).astype(np.float32)
    steps = np.where(usual[:, None], blocks, 0) * s.astype(np.float32)[:, None] * t[:, None]
    made = np.clip(np.rint(steps), -7, 7).astype(np.int8).view(np.uint8) & 15
    pack(np.ascontiguousarray(made.reshape(rows, -1)[:, :row]), 4, codes.reshape(rows, -1))
    bad = np.flatnonzero(~np.isfinite(x))
    return int(bad[0]) if len(bad) else -1


def int4_decode(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    row: int,
    block: int,
    scale_kind: int,
    weight: float,
    add: bool,
    out: NDArray[np.float32],
) -> None:
    """Decode to ``code * float32(scale * weight)``, into `out`, shape (d,), or added to it; zeros are +0.

    The factor stays within the finite floats unless the scale is NaN.
    """
    if not len(out):
        return
    rows, per_row = len(out) // row, -(-row // block)
    plain = np.empty((rows, row), np.uint8)
    unpack(codes.reshape(rows, -1), 4, plain)
    signed = (plain.astype(np.int16) ^ 8) - 8
    with np.errstate(over="ignore", invalid="ignore"):
        factors = clamped(_from_wire(scales, scale_kind).astype(np.float64) * weight)
        spread = np.repeat(factors.reshape(rows, per_row), block, axis=1)[:, :row]
        values = (signed.astype(np.float32) * spread).reshape(-1)
        values[values == 0] = 0
        if add:
            out += values
        else:
            out[:] = values
