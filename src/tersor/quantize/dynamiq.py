"""DynamiQ's bit widths: how a budget is spent on super-groups of 256 coordinates, by their shares of the energy.

Wenchen Han, Shay Vargaftik, Michael Mitzenmacher, Ran Ben Basat: "DynamiQ", 2026, arXiv 2602.08923, Appendix A. Going
from a to b bits gains (4**(b - a) - 1) / (4**b (b - a)) of the energy a bit, so 4 bits pay from an energy on that is
512/17 times less than for 8 bits.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SUPER_GROUP = 256
WIDTHS = (2, 4, 8)
SCALES = (8 * 16 + 16) / SUPER_GROUP  # bits a coordinate: a byte a group of 16, a bfloat16 a super-group
STATISTICS = 2 * 16 / SUPER_GROUP  # two bfloat16 a super-group
LEAST, MOST = WIDTHS[0] + SCALES + STATISTICS, WIDTHS[-1] + SCALES + STATISTICS

_NORMAL_ERRORS = {2: 0.70, 4: 0.0130, 8: 5.5e-5}  # of one rounding, measured
_STEPS = 1024  # of a logarithm to base 2
_APART = round(math.log2(512 / 17) * _STEPS)
_ZERO = -(1 << 20)


@lru_cache(maxsize=1)
def _mantissas() -> NDArray[np.int64]:
    # Rounded to 1/1024, whatever the last bit of log2 is on a machine.
    return np.array([round(math.log2(1 + m / 128) * _STEPS) for m in range(128)], np.int64)


def log_energies(energies: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return 1024 log2 of the energies, which are bfloat16 numbers, as the same integers on every machine."""
    bits = np.ascontiguousarray(energies, np.float32).view(np.uint32) >> np.uint32(16)
    exponent, mantissa = (bits >> np.uint32(7)).astype(np.int64), (bits & np.uint32(127)).astype(np.int64)
    logs = (exponent - 127) * _STEPS + _mantissas()[mantissa]
    return np.where(exponent == 0, _ZERO, logs)


def spread_rank(rank: int, size: int) -> int:
    """Return a rank's place in a fixed order of all in which neighbours are far apart.

    Where ranks draw from parts of [0, 1] by their place, those whose errors meet first, neighbours in a ring, would
    otherwise err alike.

    Examples
    --------
    >>> [spread_rank(r, 8) for r in range(8)]
    [0, 5, 2, 7, 4, 1, 6, 3]
    """
    keys = [(r * 0x9E3779B1) % 2**32 for r in range(size)]  # multiples of the golden section
    return sorted(keys).index(keys[rank])


def widths(energies: NDArray[np.float32], bits: float) -> NDArray[np.uint8]:
    """Return 2, 4 or 8 bits for every super-group, so that all of it takes at most `bits` a coordinate.

    Parameters
    ----------
    energies : ndarray of float32, shape (super-groups,)
        Not negative; values of bfloat16.
    bits : float
        Bits a coordinate, with scales and statistics, from 2.6875.

    Examples
    --------
    >>> widths(np.array([1, 1, 64, 4096], np.float32), 5.0).tolist()
    [2, 2, 4, 8]
    """
    budget = math.floor((bits - SCALES - STATISTICS) * len(energies) + 1e-9)
    logs = log_energies(energies)
    n = len(logs)
    # Two steps up for each: from 2 to 4 bits, and from 4 to 8 where the energy is 512/17 times as large.
    gains, costs = np.concatenate([logs, logs - _APART]), np.repeat([2, 4], n)
    order = np.argsort(-gains, kind="stable")
    taken = order[: np.searchsorted(np.cumsum(costs[order]), budget - WIDTHS[0] * n, side="right")]
    made = np.full(n, WIDTHS[0], np.uint8)
    made[taken[taken < n]] = WIDTHS[1]
    made[taken[taken >= n] - n] = WIDTHS[2]
    return made


def expected_error(bits: NDArray[np.uint8], energies: NDArray[np.float32], hops: int) -> float:
    """Return the vNMSE of the sum of `hops` independent normal vectors after as many roundings in a row.

    Ranks that draw together err less; so do super-groups that are not normal.

    Examples
    --------
    >>> round(expected_error(np.full(4, 4, np.uint8), np.ones(4, np.float32), 2), 4)
    0.0196
    """
    total = float(energies.sum(dtype=np.float64))
    if not total:
        return 0.0
    shares = {b: float(energies[bits == b].sum(dtype=np.float64)) / total for b in WIDTHS}
    once = sum(_NORMAL_ERRORS[b] * share for b, share in shares.items())
    error = 0.0
    for k in range(1, hops + 1):
        error += once * (k + error)
    return error / hops
