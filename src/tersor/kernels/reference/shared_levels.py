"""The search of levels for rounding with shared randomness, one level at a time, in the native order of operations.

`tersor.quantize.shared_levels` says what is minimised, and why it is convex in every single level.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_PROBES = 2
_FIRST_PROBE, _INSIDE = 0.25, 0.05
_NARROW = 1e-9  # room for a level, over the range of all, that is not worth a search
_TOLERANCE = 1e-4  # a sweep that gains less is the last one
_NOISE = 1e-12  # of the sum of squares: no error


def shared_search(points: F64, weights: F64, size: int, levels: F64, count: int, shared: int, sweeps: int) -> None:
    """Lower the expected error of every unit's levels, in place.

    Parameters
    ----------
    points : ndarray of float64, shape (units * size,)
        Ascending in each unit, finite; squares and their sums must not overflow.
    weights : ndarray of float64
        Of the points, or empty: 1.
    size : int
        Points of a unit.
    levels : ndarray of float64, shape (units * count,)
        Ascending in each unit, finite. The mean of the first `shared` and that of the last stay as they are, but for
        rounding: the least and the greatest of the data.
    count, shared : int
        Levels of a unit, at least ``2 * shared``; values of the shared randomness.
    sweeps : int
        How often all levels are gone through, at most.
    """
    for u in range(len(levels) // count):
        own = slice(u * size, (u + 1) * size)
        _Unit(points[own], weights[own] if len(weights) else np.ones(size), levels, u * count, count, shared).run(
            sweeps
        )


class _Unit:
    def __init__(self, points: F64, weights: F64, levels: F64, begin: int, count: int, shared: int) -> None:
        middle = len(points) // 2
        self.centre = float(points[middle])
        moved = points - self.centre
        self.points = moved.tolist()
        first = weights * moved
        self.counts, self.sums, self.squares = (_from(c, middle) for c in (weights, first, first * moved))
        self.to, self.begin = levels, begin
        self.n, self.l = count, shared
        self.v = (levels[begin : begin + count] - self.centre).tolist()
        self.last = count - shared - 1  # segment

    def run(self, sweeps: int) -> None:
        noise = _NOISE * (self.squares[-1] - self.squares[0])
        before, _ = self.cost(0, self.last, 0, -1)
        for sweep in range(sweeps):
            if not before > noise:
                break
            for i in range(1, self.n - 1):
                self.improve(self.n - 1 - i if sweep % 2 else i)
            error, _ = self.cost(0, self.last, 0, -1)
            enough = not before - error > _TOLERANCE * before
            before = error
            if enough:
                break
        self.to[self.begin : self.begin + self.n] = np.array(self.v) + self.centre

    def mean(self, k: int) -> float:
        total: float = self.v[k]
        for value in self.v[k + 1 : k + self.l]:
            total += value
        return total / self.l

    def below(self, t: float, k: int) -> int:
        """Return how many points are at most `t`, the mean of window `k`."""
        if k == 0:
            return 0
        return len(self.points) if k == self.n - self.l else bisect_right(self.points, t)

    def cost(self, first: int, final: int, m: int, other: int) -> tuple[float, float]:
        """Return the error of segments first .. final, and its derivative.

        The derivative is that when v[m] rises and v[other], if `other` is not -1, falls as much.
        """
        v, size = self.v, self.l
        error = slope = 0.0
        t = self.mean(first)
        begin = self.below(t, first)
        for k in range(first, final + 1):
            after = self.mean(k + 1)
            end = max(begin, self.below(after, k + 1))
            count = self.counts[end] - self.counts[begin]
            beyond = (self.sums[end] - self.sums[begin]) - t * count
            ends = v[k] + v[k + size]
            square = v[k] * v[k]
            for value in v[k + 1 : k + size]:
                square += value * value
            error += (square / size * count + ends * beyond) - (self.squares[end] - self.squares[begin])
            slope += self.slope(k, m, count, beyond, ends)
            if other >= 0:
                slope -= self.slope(k, other, count, beyond, ends)
            begin, t = end, after
        return error, slope

    def slope(self, k: int, m: int, count: float, beyond: float, ends: float) -> float:
        made = 0.0
        if k <= m < k + self.l:
            made += count * (2 * self.v[m] - ends) / self.l
        if m in (k, k + self.l):
            made += beyond
        return made

    def improve(self, m: int) -> None:
        """Move v[m] to a lower cost between its neighbours.

        One of the first or last `shared` levels takes v[0] or v[n - 1] with it the other way, so that their mean stays.
        """
        v, n, shared = self.v, self.n, self.l
        front, back = shared > 1 and m < shared, shared > 1 and m >= n - shared
        other = 0 if front else n - 1 if back else -1
        first, final = 0 if front else m - shared, self.last if back else min(m, self.last)
        low, high = v[m - 1], v[m + 1]
        if front:
            low = v[1] - (v[1] - v[0]) / 2 if m == 1 else max(low, v[m] - (v[1] - v[0]))
        if back:
            high = v[m] + (v[n - 1] - v[m]) / 2 if m == n - 2 else min(high, v[m] + (v[n - 1] - v[n - 2]))
        if not high - low > _NARROW * (v[n - 1] - v[0]):
            return
        here, there = v[m], v[other] if other >= 0 else 0.0
        least, rise = self.cost(first, final, m, other)
        end = low if rise > 0 else high
        if rise == 0 or end == here:
            return
        best, y = here, here + (end - here) * _FIRST_PROBE
        near, near_slope, far, far_slope = here, rise, end, 0.0
        between = False  # the minimum is between `near` and `far`
        for _ in range(_PROBES):
            self.move(m, y, other, there - (y - here))
            error, slope = self.cost(first, final, m, other)
            if error < least:
                least, best = error, y
            if slope == 0:
                break
            if (slope > 0) == (rise > 0):
                near, near_slope = y, slope
                if not between:
                    if y == end:
                        break
                    y = end
                    continue
            else:
                far, far_slope, between = y, slope, True
            share = near_slope / (near_slope - far_slope)
            y = near + (far - near) * min(max(share, _INSIDE), 1 - _INSIDE)
        self.move(m, best, other, there - (best - here))

    def move(self, m: int, to: float, other: int, other_to: float) -> None:
        self.v[m] = to
        if other >= 0:
            self.v[other] = other_to


def _from(values: F64, middle: int) -> list[float]:
    """Return prefix sums that count from the middle: element i is minus the sum from i on there, or the sum up to i."""
    after = np.cumsum(values[middle:])
    before = np.cumsum(values[:middle][::-1])[::-1]
    return [float(s) for s in np.concatenate([-before, [0.0], after])]
