"""DynamiQ's super-groups: statistics, rounding of sums on two scales, and looking values up, in NumPy.

A super-group is 256 coordinates, 16 groups of 16. Its record of b = 2, 4 or 8 bits: 32 b bytes of codes, 16 bytes of
group scales, 2 bytes of the super scale (bfloat16).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.sums import lane_sum, ordered_sum

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
SUPER, GROUP = 256, 16
_WIDTHS = (2, 4, 8)
_EPSILON = {2: 0.27, 4: 0.20, 8: 0.08}
_ONE, _HALF = np.float32(1), np.float32(0.5)


@lru_cache(maxsize=3)
def levels(bits: int) -> tuple[F32, F32]:
    """Return the magnitudes in [0, 1] that levels 0 .. 2**(bits - 1) - 1 stand for, and the values of all codes.

    Level r is (q**r - 1) / (q**R - 1), q = 1 + 2 epsilon**2; code c is level |c - R| with the sign of c - R. No encoder
    writes the last code; it counts as the one before.
    """
    top, q = (1 << (bits - 1)) - 1, 1 + 2 * _EPSILON[bits] ** 2
    powers = [1.0]
    for _ in range(top):
        powers.append(powers[-1] * q)
    made = (np.array(powers) - 1) / (powers[-1] - 1)
    values = np.concatenate([-made[:0:-1], made, made[-1:]])
    return made.astype(np.float32), values.astype(np.float32)


def record_size(bits: int) -> int:
    """Return the bytes of a super-group's record."""
    return 32 * bits + GROUP + 2


def _rows(x: F32, scale: float) -> F32:
    """Return the super-groups of `x` times `scale`, the last one filled with zeros."""
    count = -(-len(x) // SUPER)
    rows = np.zeros(count * SUPER, np.float32)
    rows[: len(x)] = x * np.float32(scale)
    return rows.reshape(count, SUPER)


def dynamiq_stats(x: F32, scale: float, means: F32, energies: F32) -> None:
    """Write the mean of every super-group of ``x * scale``, and the sum of its squares around it."""
    rows = _rows(x, scale)
    if not len(rows):
        return
    mean = (lane_sum(rows) / SUPER).astype(np.float32)
    rest = rows - mean[:, None]
    means[:] = mean
    energies[:] = lane_sum(rest * rest).astype(np.float32)


def _offsets(widths: U8) -> NDArray[np.int64]:
    return np.cumsum([0, *(record_size(int(b)) for b in widths)])


def _records(data: U8, at: NDArray[np.int64], bits: int) -> U8:
    """Return the records of one width that begin at `at`, shape (m, record_size)."""
    made: U8 = data[at[:, None] + np.arange(record_size(bits))]
    return made


def _super_scale(raw: U8) -> F32:
    return (raw.copy().view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(-1)


def _decoded(records: U8, bits: int) -> F32:
    codes = np.empty((len(records), SUPER), np.uint8)
    unpack(records[:, : 32 * bits], bits, codes)
    step = _super_scale(records[:, -2:]) / np.float32(255)
    scales = records[:, 32 * bits : 32 * bits + GROUP].astype(np.float32) * step[:, None]
    values = levels(bits)[1][codes]
    made: F32 = values * np.repeat(scales, GROUP, axis=1)
    return made


def dynamiq_decode(data: U8, widths: U8, means: F32, times: float, factor: float, add: bool, out: F32) -> None:
    """Write ``(decoded + times * mean) * factor``, or add it to `out`; without means only the decoded values count.

    Parameters
    ----------
    data : ndarray of uint8
        The records, one after the other.
    widths : ndarray of uint8, shape (super-groups,)
        2, 4 or 8 each.
    means : ndarray of float32
        One a super-group, or none.
    out : ndarray of float32, shape (d,)
        The result.
    """
    rows = np.zeros((len(widths), SUPER), np.float32)
    at = _offsets(widths)[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        for bits in _WIDTHS:
            which = np.flatnonzero(widths == bits)
            if len(which):
                rows[which] = _decoded(_records(data, at[which], bits), bits)
        rows += (means * np.float32(times))[:, None] if len(means) else np.float32(0)
        values = (rows * np.float32(factor)).reshape(-1)[: len(out)]
        if add:
            out += values
        else:
            out[:] = values


def _strata(rank: int, size: int, shared: int, private: int, first: int, count: int) -> F32:
    """Return correlated uniform numbers, shape (count, 256): of `size` ranks each has one in every 1/size of [0, 1].

    Which rank has which part changes from group to group.
    """
    halves = SUPER // 2
    words = rng.words(shared, rng.DITHER, 0, first * GROUP, count * GROUP).astype(np.uint64)
    turn = (words * np.uint64(size)) >> np.uint64(32)
    stratum = ((turn + np.uint64(rank)) % np.uint64(size)).reshape(count, GROUP)
    own = rng.words(private, rng.ROUNDING, 0, first * halves, count * halves).reshape(count, halves)
    sixteen = np.concatenate([own & np.uint32(0xFFFF), own >> np.uint32(16)], axis=1)
    inside = (sixteen.astype(np.float32) + _HALF) * np.float32(2.0**-16)
    made: F32 = (np.repeat(stratum.astype(np.float32), GROUP, axis=1) + inside) * np.float32(1 / size)
    return made


def _encoded(v: F32, bits: int, u: F32) -> tuple[U8, F32]:
    """Return the records of super-groups, and the values they decode to."""
    m, (f, _) = len(v), levels(bits)
    top = len(f) - 1
    groups = np.abs(v).reshape(m, GROUP, GROUP).max(axis=2)
    largest = groups.max(axis=1)
    # Rounded up to bfloat16, so that no group's scale passes 255 steps of it.
    raw = ((largest.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)).astype("<u2")
    raw[largest < np.float32(2.0**-100)] = 0
    step = _super_scale(raw.view(np.uint8)) / np.float32(255)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(step[:, None] > 0, np.ceil(groups / step[:, None]), np.float32(0))
        steps = np.minimum(steps, np.float32(255))
        scales = steps.astype(np.float32) * step[:, None]
        inverse = np.where(scales > 0, _ONE / scales, np.float32(0))
    t = np.minimum(np.abs(v) * np.repeat(inverse, GROUP, axis=1), _ONE)
    below = np.minimum(np.searchsorted(f, t, side="right") - 1, top - 1)
    low = f[below]
    width = f[below + 1] - low
    # What rounds a value up rounds a magnitude with a minus down: ranks of either sign then balance one another.
    u = np.where(np.signbit(v), _ONE - u, u)
    up = u * width < t - low
    level = below + up
    codes = np.where(np.signbit(v), top - level, top + level).astype(np.uint8)
    records = np.empty((m, record_size(bits)), np.uint8)
    pack(codes, bits, records[:, : 32 * bits])
    records[:, 32 * bits : -2] = steps.astype(np.uint8)
    records[:, -2:] = raw.view(np.uint8).reshape(m, 2)
    values = (low + np.where(up, width, np.float32(0))) * np.repeat(scales, GROUP, axis=1)
    return records, np.where(np.signbit(v), -values, values)


def dynamiq_hop(
    x: F32,
    scale: float,
    means: F32,
    widths: U8,
    received: U8,
    rank: int,
    size: int,
    shared: int,
    private: int,
    first: int,
    out: U8,
) -> tuple[float, float]:
    """Add ``x * scale`` less the means to received records, and encode the sums anew with fresh scales.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        This rank's values.
    means, received : ndarrays
        One mean a super-group, or none; records of the same widths, or none.
    rank, size : int
        Which of the correlated draws are this rank's.
    shared, private : int
        Keys of the ranks' common stream and of this rank's own.
    first : int
        Number of the first super-group.
    out : ndarray of uint8
        The new records.

    Returns
    -------
    error, energy : float
        Sums of the squared errors of this rounding, and of what was rounded; infinite or NaN if a sum is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        v = _rows(x, scale)
        if len(means):
            v -= means[:, None]
        at = _offsets(widths)[:-1]
        sums = np.zeros((2, len(widths)))
        if len(received):
            for bits in _WIDTHS:
                which = np.flatnonzero(widths == bits)
                if len(which):
                    v[which] += _decoded(_records(received, at[which], bits), bits)
        u = _strata(rank, size, shared, private, first, len(widths))
        for bits in _WIDTHS:
            which = np.flatnonzero(widths == bits)
            if not len(which):
                continue
            finite = np.where(np.isfinite(v[which]), v[which], np.float32(0))
            records, values = _encoded(finite, bits, u[which])
            out[at[which][:, None] + np.arange(record_size(bits))] = records
            rest = values - v[which]
            sums[0, which] = lane_sum(rest * rest)
            sums[1, which] = lane_sum(v[which] * v[which])
    return ordered_sum(sums[0]), ordered_sum(sums[1])
