"""The tables of THC: integers whose grid serves all senders, the best of them by an exact search, and their error.

Minghao Li, Ran Ben Basat, Shay Vargaftik, ChonLam Lao, Kevin Xu, Michael Mitzenmacher, Minlan Yu: "THC: Accelerating
Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024, arXiv 2302.08545, section 5 (the table
T_{b,g,p}). The search is a dynamic program over (level, position), where the paper enumerates symmetric tables.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_NORMAL = NormalDist()
# Costs are compared as multiples of this: the same table on every machine, whatever its exp and erf round to.
_QUANTUM = 2.0**-44
MAX_GRANULARITY = 1023


def spread(truncation: float) -> float:
    """Return T with P(|z| > T) = `truncation` for z ~ N(0, 1): the range is [-T, T] root mean squares.

    Raises
    ------
    ValueError
        If `truncation` is not between 0 and 1.

    Examples
    --------
    >>> round(spread(1 / 32), 5)
    2.15387
    """
    if not 0 < truncation < 1:
        raise ValueError(f"truncation must be between 0 and 1, got {truncation}")
    return -_NORMAL.inv_cdf(truncation / 2)


@lru_cache(maxsize=64)
def table(bits: int, granularity: int, truncation: float) -> tuple[int, ...]:
    """Return the table of 2**bits integers from 0 to `granularity` with the least error of rounding.

    Parameters
    ----------
    bits : int
        1 to 8.
    granularity : int
        Steps of the grid, 2**bits - 1 to 1023.
    truncation : float
        The expected share of coordinates outside the range.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> table(4, 17, 1 / 32)
    (0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17)
    """
    size = 1 << bits
    if not 1 <= bits <= 8 or not size - 1 <= granularity <= MAX_GRANULARITY:
        raise ValueError(
            f"a table of {bits} bits needs a granularity of {size - 1} to {MAX_GRANULARITY}, got {granularity}"
        )
    limit = spread(truncation)
    if granularity == size - 1:
        return tuple(range(size))
    cost = np.rint(_interval_costs(granularity, limit) / _QUANTUM).astype(np.int64)
    far = np.int64(1) << 61
    cost = np.where(np.tri(granularity + 1, dtype=bool), far, cost)  # from a to c > a only
    best, came = np.full(granularity + 1, far), []
    best[0] = 0
    for _ in range(size - 1):
        total = np.minimum(best[:, None] + cost, far)
        came.append(total.argmin(axis=0))
        best = total.min(axis=0)
    made = [granularity]
    for before in reversed(came):
        made.append(int(before[made[-1]]))
    return tuple(reversed(made))


@lru_cache(maxsize=64)
def best_granularity(bits: int, most: int, truncation: float) -> int:
    """Return the granularity of at most `most` whose table has the least error; the error is not monotone in it.

    Examples
    --------
    >>> best_granularity(4, 17, 1 / 32), best_granularity(4, 16, 1 / 32)
    (17, 16)
    """
    return min(
        range((1 << bits) - 1, max(most, (1 << bits) - 1) + 1),
        key=lambda g: round(rounding_error(table(bits, g, truncation), truncation), 12),
    )


def rounding_error(levels: Sequence[int], truncation: float) -> float:
    """Return E of the squared error of rounding z ~ N(0, 1) inside the range to the levels of a table.

    Examples
    --------
    >>> round(rounding_error((0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30), 1 / 32), 6)
    0.013075
    """
    costs = _interval_costs(levels[-1], spread(truncation))
    return float(sum(costs[a, c] for a, c in pairwise(levels)))


def truncation_error(truncation: float) -> float:
    """Return E of the squared error of clamping z ~ N(0, 1) to the range: 2 ((1 + T**2) Q(T) - T phi(T)).

    Examples
    --------
    >>> round(truncation_error(1 / 32), 6)
    0.007267
    """
    return clamping_error(spread(truncation))


def clamping_error(t: float) -> float:
    """Return E of the squared error of clamping z ~ N(0, 1) to [-t, t].

    Examples
    --------
    >>> clamping_error(0.0)
    1.0
    """
    if t > 38:
        return 0.0
    return (1 + t * t) * math.erfc(t / math.sqrt(2)) - 2 * t * _NORMAL.pdf(t)


def most_senders(granularity: int, width: int) -> int:
    """Return how many senders' table values fit in `width` bits: floor((2**width - 1) / granularity).

    Examples
    --------
    >>> most_senders(30, 8), most_senders(17, 8), most_senders(30, 12)
    (8, 15, 136)
    """
    return ((1 << width) - 1) // granularity


def _interval_costs(granularity: int, limit: float) -> NDArray[np.float64]:
    """Return for grid points a < c the integral over [a, c] of (z - a)(c - z) phi(z)."""
    points = [-limit + 2 * limit * k / granularity for k in range(granularity + 1)]
    mass = np.array([math.erf(z / math.sqrt(2)) / 2 for z in points])
    density = np.array([_NORMAL.pdf(z) for z in points])
    z = np.array(points)
    a, c = z[:, None], z[None, :]
    m0 = mass[None, :] - mass[:, None]
    m1 = density[:, None] - density[None, :]
    m2 = m0 + (z * density)[:, None] - (z * density)[None, :]
    costs: NDArray[np.float64] = -m2 + (a + c) * m1 - a * c * m0
    return costs
