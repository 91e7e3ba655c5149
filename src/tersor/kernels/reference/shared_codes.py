"""Codes of levels of each unit's own with shared randomness: rounding and looking values up, in NumPy.

The estimator of "Better than Optimal: Improving Adaptive Stochastic Quantization Using Shared Randomness", Ben Basat
et al., SIGMETRICS 2026, as `tersor.quantize.shared_levels` says it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.microscaling import clamped
from tersor.kernels.reference.sums import lane_sum, ordered_sum
from tersor.kernels.reference.uniform import each_unit

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def means(v: NDArray[Any], shared: int) -> F64:
    """Return t_0, t_1, ...: the means of the windows of `shared` values along the last axis of `v`, in float64."""
    count = v.shape[-1] - shared + 1
    first = v[..., :count].astype(np.float64)
    total = np.zeros(first.shape)
    for i in range(1, shared):
        total += v[..., i : i + count] - first
    made: F64 = first + total / shared  # equal values have just their mean
    return made


def symbols(key: int, start: int, by_rows: bool, unit: int, size: int, shared: int, turn: int) -> NDArray[np.int64]:
    """Return the shared h of each coordinate: (floor(word * shared / 2**32) + turn) mod shared."""
    drawn = rng.words(key, rng.DITHER, 0, 0 if by_rows else start, unit if by_rows else size).astype(np.uint64)
    h = ((drawn * np.uint64(shared)) >> np.uint64(32)).astype(np.int64) + turn
    h = np.where(h >= shared, h - shared, h)
    return np.tile(h, size // unit) if by_rows and unit else h


def shared_encode(
    x: F32,
    unit: int,
    levels: F32,
    bits: int,
    shared: int,
    key: int,
    start: int,
    by_rows: bool,
    turn: int,
    private: int,
    first: int,
    codes: NDArray[np.uint8],
) -> tuple[float, float]:
    """Round each coordinate to a level of its codebook, without bias over the shared and the private draws.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Values within the means of the first and of the last `shared` levels of their unit; others count as these.
    unit : int
        Coordinates of a unit; each unit of `codes` starts on a byte.
    levels : ndarray of float32, shape (units * shared * 2**bits,)
        The sequence v of each unit, finite and ascending; level j of codebook h is number j * shared + h.
    bits, shared : int
        Width of a code, 1 to 8; number of codebooks, 2 to 8.
    key, start, by_rows, turn
        Key of the shared draws; word of coordinate 0; or every unit uses the words 0 .. unit - 1; what is added to h.
    private, first : int
        Key of the private stream; word of coordinate 0.
    codes : ndarray of uint8
        The packed codes.

    Returns
    -------
    error, energy : float
        Sum of the squared errors that were made, and of the squares of `x`.
    """
    n_levels = shared << bits
    made = np.empty(len(x), np.uint8)
    shared_draws = symbols(key, start, by_rows, unit, len(x), shared, turn)
    u = rng.uniform(private, rng.ROUNDING, first, len(x))
    errors, energies = [np.zeros(0)], [np.zeros(0)]
    count = len(x) // unit if unit else 0
    for begin, m, n in ((0, count, unit), (count * unit, int(len(x) > count * unit), len(x) - count * unit)):
        if not m * n:
            continue
        rows, drawn = (a[begin : begin + m * n].reshape(m, n) for a in (x, u))
        h = shared_draws[begin : begin + m * n].reshape(m, n)
        k = begin // unit
        tables = levels[k * n_levels : (k + m) * n_levels].reshape(m, n_levels)
        # Differences of values below 2**126: they cannot overflow, and denormals become normal.
        e = np.frexp(np.max(np.abs(tables), axis=1).astype(np.float64))[1].astype(np.int64)
        up, t = np.clip(126 - e, -2, 127), np.clip(-e, -126, 127)
        factor = np.ldexp(1.0, up)[:, None]
        with np.errstate(over="ignore", under="ignore"):
            thresholds = (means(tables, shared) * factor).astype(np.float32)
        scaled = np.where(np.isnan(rows), np.float32(-np.inf), rows) * factor.astype(np.float32)
        scaled = np.where(scaled > thresholds[:, :1], scaled, thresholds[:, :1])
        scaled = np.where(scaled < thresholds[:, -1:], scaled, thresholds[:, -1:])
        code = np.zeros(rows.shape, np.int64)
        for step in (1 << b for b in reversed(range(bits))):
            code += (scaled > np.take_along_axis(thresholds, (code + (step - 1)) * shared + h, 1)) * step
        code = np.maximum(code, 1)
        low = np.take_along_axis(thresholds, (code - 1) * shared + h, 1)
        high = np.take_along_axis(thresholds, (code - 1) * shared + h + 1, 1)
        code -= drawn * (high - low) < high - scaled
        made[begin : begin + m * n] = code.reshape(-1)
        smaller = np.ldexp(1.0, t - up)[:, None].astype(np.float32)  # what is squared is about 1
        values = (tables * factor.astype(np.float32)) * smaller
        scaled = scaled * smaller
        error = np.take_along_axis(values, code * shared + h, 1) - scaled
        power = np.ldexp(1.0, t)
        errors.append(lane_sum(error * error) / power / power)
        energies.append(lane_sum(scaled * scaled) / power / power)
    each_unit(made, unit, bits, codes, pack)
    return ordered_sum(np.concatenate(errors)), ordered_sum(np.concatenate(energies))


def shared_decode(
    codes: NDArray[np.uint8],
    unit: int,
    levels: F32,
    bits: int,
    shared: int,
    key: int,
    start: int,
    by_rows: bool,
    turn: int,
    weight: float,
    add: bool,
    present: NDArray[np.uint8],
    out: F32,
) -> None:
    """Decode to ``float32(level * weight)``, into `out`, shape (d,), or added to it; see `shared_encode`.

    Products stay within the finite floats unless the level is NaN; zeros are +0.

    Parameters
    ----------
    present : ndarray of uint8
        One flag a unit, or empty for all: the others count as zeros.
    """
    plain: NDArray[Any] = np.empty(len(out), np.uint8)
    each_unit(plain, unit, bits, codes, lambda rows, width, packed: unpack(packed, width, rows))
    with np.errstate(over="ignore", invalid="ignore"):
        table = (clamped(levels.astype(np.float64) * weight) + np.float32(0)).reshape(-1, shared << bits)
    if len(present):
        table[present == 0] = 0
    owner = np.arange(len(out)) // max(unit, 1)
    h = symbols(key, start, by_rows, unit, len(out), shared, turn)
    values = table[owner, plain.astype(np.int64) * shared + h]
    with np.errstate(over="ignore", invalid="ignore"):
        if add:
            out += values
        else:
            out[:] = values
