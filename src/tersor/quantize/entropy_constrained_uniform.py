"""How many evenly spaced levels an array may have so that the entropy of their indices stays within a budget.

Ron Dorfman, Shay Vargaftik, Yaniv Ben-Itzhak, Kfir Y. Levy: "DoCoFL: Downlink Compression for Cross-Device Federated
Learning", ICML 2023, arXiv 2302.00543: entropy-constrained uniform quantization (ECUQ). FORMAT.md section 6.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import ops

MOST_LEVELS = 1 << 16
MAX_BITS = 10
SAMPLE = 1 << 16  # coordinates on which the search begins

_POINT = 40  # bits behind the point of logarithms
_SMALL = 1 << 16  # totals whose logarithms are kept; n log2(n) 2**_POINT is then below 2**60
_LN2 = 0.6931471805599453
_ENOUGH = 2.0**-10  # bits of the budget that may stay unused
_TRIES, _STEPS = 24, 8  # on all coordinates; those that follow the slope


def scaled_log2(counts: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return log2 of integers from 1 to 2**53, times 2**40, from basic operations: the same on every machine.

    Exact for powers of two; ``scaled_log2(2 * c) - scaled_log2(c)`` is 2**40 for every c.

    Examples
    --------
    >>> (scaled_log2(np.array([1, 2, 3, 6], np.uint64)) / 2**40).round(6).tolist()
    [0.0, 1.0, 1.584963, 2.584963]
    """
    m, e = np.frexp(counts.astype(np.float64))
    below = m < 0.7071067811865476
    m, e = np.where(below, 2 * m, m), e.astype(np.int64) - below
    t = (m - 1) / (m + 1)
    square, series = t * t, np.zeros_like(t)
    for k in range(23, 0, -2):  # 2 atanh(t) = log m; |t| < 0.172
        series = series * square + 1 / k
    part: NDArray[np.int64] = np.rint(series * t * (2 / _LN2 * 2.0**_POINT)).astype(np.int64)
    return part + (e << _POINT)


def entropy(counts: NDArray[np.uint64]) -> float:
    """Return the empirical entropy in bits a symbol, 0 if there are none; summed in integers, the same everywhere.

    Examples
    --------
    >>> entropy(np.array([2, 0, 1, 1], np.uint64))
    1.5
    """
    used = counts[counts > 0]
    if len(used) < 2:
        return 0.0
    total = int(used.sum())
    if total < _SMALL:
        table = _small_logs()
        return (total * int(table[total]) - int((used.astype(np.int64) * table[used]).sum())) / (total << _POINT)
    logs = scaled_log2(np.append(used, np.uint64(total))).astype(np.uint64)
    # In two parts, so that no sum passes 2**64.
    high, low = logs >> np.uint64(20), logs & np.uint64((1 << 20) - 1)
    taken = (int((used * high[:-1]).sum()) << 20) + int((used * low[:-1]).sum())
    return (total * int(logs[-1]) - taken) / (total << _POINT)


@lru_cache(maxsize=1)
def _small_logs() -> NDArray[np.int64]:
    """Return `scaled_log2` of 1 .. 2**16 - 1; element 0 is unused."""
    return np.append(np.int64(0), scaled_log2(np.arange(1, _SMALL, dtype=np.uint64)))


def most_levels(n: int, bits: float) -> int:
    """Return the levels that n coordinates have at most: as many as coordinates, 2**floor(bits) to 65,536.

    Examples
    --------
    >>> most_levels(10, 4.5), most_levels(1000, 4.5), most_levels(1 << 20, 4.5)
    (16, 1000, 65536)
    """
    return min(max(1 << int(bits), n), MOST_LEVELS)


def scale_of(low: float, high: float, levels: int) -> float:
    """Return what turns ``x - low`` into an index, before it is rounded down."""
    return levels / (high - low)


def levels_for(x: NDArray[np.float32], bits: float, low: float, high: float) -> int:
    """Return how many evenly spaced levels on [low, high] keep the entropy of the indices of `x` within `bits`.

    Parameters
    ----------
    x : float32 array, shape (n,)
        Finite.
    bits : float
        The budget in bits a coordinate, above 0.
    low, high : float
        The least and largest of `x`.

    Returns
    -------
    int
        K from 1 to `most_levels`, at least 2**floor(bits) unless x is constant, with an entropy of at most `bits`. With
        K + 1 levels it is above, or less than 2**-10 of the budget is left. The search begins on a sample; the
        entropies that decide are those of all coordinates.

    Examples
    --------
    >>> x = np.linspace(0, 1, 4096, dtype=np.float32)
    >>> levels_for(x, 3, 0.0, 1.0)
    8
    """
    if not low < high:
        return 1
    cap = most_levels(len(x), bits)
    whole = _measure(x, low, high)
    if len(x) <= SAMPLE:
        return _search(whole, bits, cap)
    return _settle(whole, bits, cap, _search(_measure(_sample(x), low, high), bits, cap))


def _measure(x: NDArray[np.float32], low: float, high: float) -> Callable[[int], float]:
    """Return the entropy as a function of the number of levels."""
    known: dict[int, float] = {1: 0.0}

    def measure(levels: int) -> float:
        if levels not in known:
            counts = np.empty(levels, np.uint64)
            ops.current().uniform_counts(x, low, scale_of(low, high, levels), counts)
            known[levels] = entropy(counts)
        return known[levels]

    return measure


def _sample(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 2**16 coordinates, one from each equal part, at places without a period."""
    step = len(x) // SAMPLE
    i: NDArray[Any] = np.arange(SAMPLE, dtype=np.uint64)
    spread = ((i * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) * np.uint64(step)) >> np.uint64(32)
    return x[i * np.uint64(step) + spread]


def _search(entropy_of: Callable[[int], float], bits: float, cap: int) -> int:
    """Return the number of levels by doubling and bisection; where levels are few, all numbers are tried."""
    if entropy_of(cap) <= bits:  # sparse or discrete: more levels cost nothing
        return cap
    low, high = 1 << int(bits), cap
    while low * 2 < cap:
        if entropy_of(low * 2) > bits:
            high = low * 2
            break
        low *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if entropy_of(middle) <= bits:
            low = middle
        else:
            high = middle
    # The entropy need not rise from an odd number of levels to the even one that follows, nor back.
    few = 4 << int(bits) if bits <= 2 else 0
    for levels in range(min(max(low + 2, few), cap), low, -1):
        if entropy_of(levels) <= bits:
            return levels
    return low


def _settle(entropy_of: Callable[[int], float], bits: float, cap: int, levels: int) -> int:
    """Return the number of levels near a first guess: a few entropies along the slope 1 / (K ln 2), then bisection."""
    low, high = 1 << int(bits), cap + 1
    for k in range(_TRIES):
        found = entropy_of(levels)
        if found <= bits:
            low = levels
            if bits - found <= _ENOUGH:
                break
        else:
            high = levels
        if high - low <= 1:
            break
        step = levels + round(levels * (bits - found) * _LN2) if k < _STEPS else (low + high) // 2
        levels = min(max(step, low + 1), high - 1)
    return low
