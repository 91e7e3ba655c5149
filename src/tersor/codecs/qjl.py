"""QJL: the signs of a Gaussian projection, G r, and the estimate that they give of r; exact on every machine.

Amir Zandieh, Majid Daliri, Insu Han: "QJL: 1-Bit Quantized JL Transform for KV Cache Quantization with Zero Overhead",
2024, arXiv 2406.03482: r_hat = ||r|| sqrt(pi/2) / n G^T sign(G r), unbiased as E sign(g . r) g = sqrt(2/pi) r / ||r||.

Matrix products run in any order of additions, with or without fused steps. So all that is multiplied here is a whole
number: G in steps of 2**-9, |g| < 2**12, r in steps of 2**-24; every partial sum is exact, in float64 for G r and in
float32 (n <= 4096, else float64) for G^T sign(G r), and the order does not matter.
"""

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.coding import bits as bit_stream
from tersor.kernels import ops
from tersor.kernels.reference.sums import lane_sum
from tersor.quantize import sphere

LONGEST = 1 << 16  # 2214 * 2**24 * 2**16 < 2**53: the exact range of float64
EXACT32 = 4096  # 2214 * 4096 < 2**24: that of float32
_STRIP, _AT_ONCE = 1 << 16, 1 << 16
_ROOT = 1.2533141373155003  # sqrt(pi / 2)


def strip(key: int, n: int, begin: int, end: int) -> NDArray[np.float32]:
    """Return rows `begin` .. `end` of the n x n matrix G of a key, in steps of 2**-9; `begin` is even."""
    out = np.empty((end - begin) * n, np.float32)
    ops.current().draw_table(sphere.gaussian_table(), key, rng.GAUSSIAN, begin * n // 2, out)
    return out.reshape(end - begin, n)


def _strips(n: int) -> list[tuple[int, int]]:
    height = max(2, _STRIP // max(n, 1) // 2 * 2)
    return [(i, min(i + height, n)) for i in range(0, n, height)]


def _groups(count: int, n: int) -> list[slice]:
    # G is drawn anew for every group; larger arrays have room for larger ones.
    step = max(1, max(_AT_ONCE, min(count * n // 8, 16 * _AT_ONCE)) // n)
    return [slice(k, k + step) for k in range(0, count, step)]


def powers_of_two(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the s of FORMAT.md 4.2 of every row, 1 for zeros, and whether the row is finite."""
    amax = np.max(np.abs(rows), axis=1, initial=0)
    finite = np.isfinite(amax)
    exponent = np.frexp(np.where(finite, amax, 0))[1]
    return np.ldexp(np.float32(1), np.clip(-exponent, -126, 127)).astype(np.float32), finite


def encode(r: NDArray[np.float32], key: int, signs: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Fill `signs`, shape (m, bytes), with the packed signs of G r, 1 = minus; return ||r|| / sqrt(n), float64.

    `r` has shape (m, n) and finite entries.
    """
    m, n = r.shape
    gammas: NDArray[np.float64] = np.sqrt(lane_sum(r * r) / n)
    for group in _groups(m, n):
        s, _ = powers_of_two(r[group])
        whole = np.rint((r[group] * s[:, None]).astype(np.float64) * 2.0**24)
        minus = np.empty(whole.shape, np.uint8)
        for begin, end in _strips(n):
            minus[:, begin:end] = whole @ strip(key, n, begin, end).astype(np.float64).T < 0
        signs[group] = bit_stream.pack(minus, 1)
    return gammas


def add_estimate(
    signs: NDArray[np.uint8],
    gammas: NDArray[np.float32],
    flags: NDArray[np.uint8],
    key: int,
    weight: float,
    out: NDArray[np.float32],
) -> None:
    """Add ``weight * r_hat`` to the rows of `out`, shape (m, n), that have a flag and a factor that is not 0."""
    m, n = out.shape
    constant = _ROOT * sphere.GAUSSIAN_STEP / np.sqrt(np.float64(n))
    with np.errstate(over="ignore", invalid="ignore"):
        factors = (gammas.astype(np.float64) * (weight * constant)).astype(np.float32)
    for group in _groups(m, n):
        used = np.flatnonzero((flags[group] != 0) & (factors[group] != 0)) + group.start
        if not len(used):
            continue
        kind = np.float32 if n <= EXACT32 else np.float64
        plain = 1 - 2 * bit_stream.unpack(np.ascontiguousarray(signs[used]), 1, n).astype(kind)
        total = np.zeros(plain.shape, kind)
        for begin, end in _strips(n):
            total += plain[:, begin:end] @ strip(key, n, begin, end).astype(kind)
        with np.errstate(over="ignore", invalid="ignore"):
            out[used] += total.astype(np.float32) * factors[used, None]
