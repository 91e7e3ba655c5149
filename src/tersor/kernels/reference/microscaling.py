"""The OCP Microscaling formats: a power-of-two scale (E8M0) a block of 32 and small elements, in NumPy.

B. D. Rouhani et al.: "Microscaling Data Formats for Deep Learning", 2023, arXiv 2310.10537; OCP Microscaling
Formats (MX) Specification v1.0, 2023.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack

BLOCK = 32
NAN_SCALE = 255


class Element(NamedTuple):
    """An element format: its width, the exponent of its largest power of two, the value of every code."""

    bits: int
    emax: int
    values: NDArray[np.float32]


def _float_element(exponent: int, mantissa: int, emax: int) -> Element:
    """Return a sign, `exponent` bits and `mantissa` bits; the code of a value grows with its magnitude."""
    bits = 1 + exponent + mantissa
    codes = np.arange(1 << (bits - 1))
    field, fraction = codes >> mantissa, (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    bias = (1 << (exponent - 1)) - 1
    magnitudes = np.ldexp(fraction + (field > 0), np.maximum(field, 1) - bias)
    if exponent == 4:  # E4M3: the last code is NaN
        magnitudes[-1] = np.nan
    elif exponent == 5:  # E5M2: infinity and NaN as IEEE 754 has them
        magnitudes[-4:] = np.inf, np.nan, np.nan, np.nan
    return Element(bits, emax, np.concatenate([magnitudes, -magnitudes]).astype(np.float32))


_INT8 = Element(8, 0, (np.arange(256).astype(np.uint8).view(np.int8) / 64).astype(np.float32))

# By number: E4M3, E5M2, E2M3, E3M2, E2M1, INT8.
ELEMENTS = (
    _float_element(4, 3, 8),
    _float_element(5, 2, 15),
    _float_element(2, 3, 2),
    _float_element(3, 2, 4),
    _float_element(2, 1, 2),
    _INT8,
)


def _nearest(scaled: NDArray[np.float64], kind: Element) -> NDArray[np.uint8]:
    """Return the codes of the elements nearest to `scaled`: ties to the even code, saturating, signs kept."""
    if kind is _INT8:
        return np.clip(np.rint(scaled * 64), -127, 127).astype(np.int8).view(np.uint8)
    half = 1 << (kind.bits - 1)
    grid = kind.values[:half].astype(np.float64)
    grid = grid[np.isfinite(grid)]
    magnitude = np.minimum(np.abs(scaled), grid[-1])
    below = np.searchsorted(grid, magnitude, side="right") - 1
    above = np.minimum(below + 1, len(grid) - 1)
    down, up = magnitude - grid[below], grid[above] - magnitude
    code = np.where((up < down) | ((up == down) & (below % 2 == 1)), above, below)
    codes: NDArray[np.uint8] = (code + half * np.signbit(scaled)).astype(np.uint8)
    return codes


def _at_random(scaled: NDArray[np.float32], kind: Element, u: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the code of the element below |scaled|, or with probability their distance in steps the one above."""
    if kind is _INT8:
        steps = np.minimum(np.abs(scaled) * np.float32(64), np.float32(127))
        code = np.floor(steps) + (u < steps - np.floor(steps))
        return np.where(np.signbit(scaled), -code, code).astype(np.int8).view(np.uint8)
    half = 1 << (kind.bits - 1)
    grid = kind.values[:half]
    grid = grid[np.isfinite(grid)]
    magnitude = np.minimum(np.abs(scaled), grid[-1])
    below = np.searchsorted(grid, magnitude, side="right") - 1
    step = grid[np.minimum(below + 1, len(grid) - 1)] - grid[below]  # a power of two; 0 at the largest element
    above = u * step < magnitude - grid[below]
    codes: NDArray[np.uint8] = (below + above + half * np.signbit(scaled)).astype(np.uint8)
    return codes


def mx_encode(
    x: NDArray[np.float32],
    row: int,
    element: int,
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    up: bool = False,
    stochastic: bool = False,
    key: int = 0,
    first: int = 0,
) -> int:
    """Encode rows cut in blocks of 32: scale 2^(floor(log2 max|v|) - emax), elements nearest to v / scale.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Rows of length `row`; the last block of a row may be shorter.
    row, element : int
        Length of a row; number of the element format in `ELEMENTS`.
    codes : ndarray of uint8
        Filled with the packed elements; every row starts on a byte.
    scales : ndarray of uint8
        Filled with one E8M0 scale a block: its exponent + 127, at least 0; 0 for zeros; 255 where NaN or infinity is.
    up : bool, default False
        Double the scale where max |v| / scale is beyond the largest element, so that none saturates.
    stochastic : bool, default False
        Round to one of the two elements about v / scale at random, without bias where nothing saturates.
    key, first : int
        Key of the private stream; word of coordinate 0.

    Returns
    -------
    int
        Index of the first NaN or infinity, -1 if there is none.
    """
    if not len(x):
        return -1
    kind, rows, per_row = ELEMENTS[element], len(x) // row, -(-row // BLOCK)
    blocks = np.zeros((rows, per_row * BLOCK))
    blocks[:, :row] = x.reshape(rows, row)
    blocks = blocks.reshape(-1, BLOCK)
    amax = np.max(np.abs(blocks), axis=1)
    finite, zero = np.isfinite(amax), amax == 0
    usual = finite & ~zero
    exponent = np.frexp(np.where(usual, amax, 1))[1] - 1 - kind.emax
    exponent = np.maximum(exponent, -127)
    if up:
        top = np.max(kind.values, where=np.isfinite(kind.values), initial=0)
        exponent += (np.ldexp(np.where(usual, amax, 0), -exponent) > top) & (exponent < 127)
    scales[:] = np.where(usual, exponent + 127, np.where(zero, 0, NAN_SCALE))
    scaled = np.ldexp(np.where(usual[:, None], blocks, 0), -exponent[:, None])
    if stochastic:
        u = np.zeros((rows, per_row * BLOCK), np.float32)
        u[:, :row] = rng.uniform(key, rng.ROUNDING, first, len(x)).reshape(rows, row)
        made = _at_random(scaled.astype(np.float32), kind, u.reshape(-1, BLOCK))
    else:
        made = _nearest(scaled, kind)
    made = made.reshape(rows, per_row * BLOCK)[:, :row]
    pack(np.ascontiguousarray(made), kind.bits, codes.reshape(rows, -1))
    bad = np.flatnonzero(~np.isfinite(x))
    return int(bad[0]) if len(bad) else -1


def mx_decode(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    row: int,
    element: int,
    weight: float,
    add: bool,
    out: NDArray[np.float32],
) -> None:
    """Decode to ``element * float32(scale * weight)``, into `out`, shape (d,), or added to it; see `mx_encode`.

    The factor stays within the finite floats; the scale 255 gives NaN.
    """
    if not len(out):
        return
    kind, rows, per_row = ELEMENTS[element], len(out) // row, -(-row // BLOCK)
    plain = np.empty((rows, row), np.uint8)
    unpack(codes.reshape(rows, -1), kind.bits, plain)
    scale = np.where(scales == NAN_SCALE, np.nan, np.ldexp(1.0, scales.astype(np.int64) - 127))
    factors = clamped(scale * weight)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.repeat(factors.reshape(rows, per_row), BLOCK, axis=1)[:, :row]
        values = (kind.values[plain] * spread).reshape(-1)
        if add:
            out += values
        else:
            out[:] = values


def clamped(factors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32; what is beyond it becomes the largest finite float of its sign."""
    limit = np.finfo(np.float32).max
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip(factors.astype(np.float32), -limit, limit)
