"""Microscaling blocks rounded otherwise than the OCP specification says: stochastically, or with scales rounded up.

Vectorised NumPy; the decoder is that of all Microscaling messages (`kernels/reference/microscaling.py`).
"""

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Job
from tersor.codecs.pieces import Piece, pieces, rounding_uniform
from tersor.coding import bits as bit_stream
from tersor.units import Units

_BLOCK = 32
_NAN = 255
# By number (E4M3, E5M2, E2M3, E3M2, E2M1, INT8): bits, mantissa bits, exponent of the least normal, that of the largest
# power of two, the largest element and its code. INT8 is a format without exponents and with a step of 1/64.
_ELEMENTS = (
    (8, 3, -6, 8, 448.0, 126),
    (8, 2, -14, 15, 57344.0, 123),
    (6, 3, 0, 2, 7.5, 31),
    (6, 2, -2, 4, 28.0, 31),
    (4, 1, 0, 2, 6.0, 7),
    (8, 6, 0, 0, 127 / 64, 127),
)
_INT8 = 5


def encode_blocks(
    job: Job,
    x: NDArray[np.float32],
    row: int,
    element: int,
    stochastic: bool,
    up: bool,
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
) -> None:
    """Fill the planes of a Microscaling message (FORMAT.md, section 6); rows of `row` are cut in blocks of 32."""
    bits = _ELEMENTS[element][0]
    stride, per_row = bit_stream.packed_size(row, bits), -(-row // _BLOCK)
    for p in pieces(Units(len(x), row, True)):
        blocks = -(-p.width // _BLOCK)
        padded = p.of(x)
        if blocks * _BLOCK != p.width:
            padded = np.zeros((p.rows, blocks * _BLOCK), np.float32)
            padded[:, : p.width] = p.of(x)
        made, scale = _round(job, p, padded.reshape(p.rows, blocks, _BLOCK), element, stochastic, up)
        first = p.first * per_row + p.column // _BLOCK
        scales[first : first + p.rows * blocks] = scale.reshape(-1)
        packed = bit_stream.pack(np.ascontiguousarray(made.reshape(p.rows, -1)[:, : p.width]), bits)
        p.bytes_of(codes, stride, lambda n: bit_stream.packed_size(n, bits))[...] = packed


def _round(
    job: Job, p: Piece, x: NDArray[np.float32], element: int, stochastic: bool, up: bool
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the codes, shaped as `x`, (rows, blocks, 32), and the scales of blocks."""
    bits, mantissa, least, emax, largest, top = _ELEMENTS[element]
    magnitude = np.abs(x)
    amax = magnitude.max(axis=2)
    finite, zero = np.isfinite(amax), amax == 0
    usual = finite & ~zero
    held = np.where(usual, amax, np.float32(1)).astype(np.float64)
    exponent = np.maximum(np.frexp(held)[1] - 1 - emax, -127)
    if up:
        exponent = np.minimum(exponent + (np.ldexp(held, -exponent) > largest), 127)
    scale = np.where(usual, exponent + 127, np.where(zero, 0, _NAN)).astype(np.uint8)
    # In float32 exact: a product with a power of two, and what of it is denormal is far below the grid.
    y = np.where(usual[..., None], magnitude, np.float32(0)) * np.ldexp(1.0, -exponent).astype(np.float32)[..., None]
    np.minimum(y, np.float32(largest), out=y)
    base = np.int32(0)
    steps = y * np.float32(2.0 ** (mantissa - least))
    if element != _INT8:
        # In units of the grid's step at y, 2**(e - mantissa): the code of the power of two below, and what is beyond.
        e = np.maximum((y.view(np.int32) >> 23) - 127, least)
        steps = y * ((127 + mantissa - e) << 23).astype(np.int32).view(np.float32)
        base = (e - least) << mantissa
    if stochastic:
        below = np.floor(steps)
        drawn = np.zeros((p.rows, x.shape[1] * _BLOCK), np.float32)
        drawn[:, : p.width] = rounding_uniform(job, p)
        level = below.astype(np.int32) + (drawn.reshape(x.shape) < steps - below)
    else:
        level = np.rint(steps).astype(np.int32)
    code = np.minimum(base + level, top)
    negative = np.signbit(x) & usual[..., None]
    made = np.where(negative, -code, code) if element == _INT8 else code | negative.astype(np.int32) << (bits - 1)
    return made.astype(np.uint8), scale
