"""Levels among candidates: least squared error plus a multiplier times entropy, and the search for a budget of entropy.

A reconstruction of "Entropy-Constrained Adaptive Stochastic Quantization" (Ben Basat, Ben-Itzhak, Mitzenmacher,
Vargaftik, 2026, arXiv 2608.18147) from its abstract; the recurrences are in `tersor.kernels.reference.entropy`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import ops
from tersor.quantize.candidates import Candidates, in_order

F64 = NDArray[np.float64]
Index = NDArray[np.int64]

_STEPS = 14  # of the search for a multiplier
_ROUNDS = 12  # of the refinement
_STALLED = 1e-12
MOST_PAIRS = 1 << 24  # numbers that an exact search may keep


class Found(NamedTuple):
    """Levels as indices of candidates, their squared error in squares of points, and bits an entry."""

    path: Index
    cost: float
    entropy: float
    multiplier: float = 0.0


def log2(x: F64) -> F64:
    """Return binary logarithms, the same on every machine; 0 for 0."""
    x = np.ascontiguousarray(x)
    out = np.empty_like(x)
    ops.current().log2(x, out)
    return out


def measure(c: Candidates, path: Index, multiplier: float = 0.0) -> tuple[Found, F64]:
    """Return what levels at candidates `path` cost, and the share of the data that is sent as each."""
    t = c.points[path]
    counts, sums, squares = (a[path + 1] for a in (c.counts, c.sums, c.squares))
    n, b, g = counts[1:] - counts[:-1], sums[1:] - sums[:-1], squares[1:] - squares[:-1]
    below = counts[:1] - c.counts[0]
    low, high = t[:-1], t[1:]
    costs = np.maximum((low + high) * b - low * high * n - g, 0.0)
    up = np.minimum(np.maximum((b - low * n) / (high - low), 0.0), n)
    shares: F64 = (np.concatenate([below, up]) + np.concatenate([n - up, [0.0]])) / c.mass
    cost = max(in_order(costs) - c.within, 0.0)
    return Found(path, cost, max(in_order(-(shares * log2(shares))), 0.0), multiplier), shares


@dataclass
class Problem:
    """Some of the candidates, with the matrices of all intervals between them."""

    all: Candidates
    kept: Index
    most: int
    exact: bool
    n: F64 = field(init=False)
    cost: F64 = field(init=False)
    up: F64 = field(init=False)
    joint: F64 = field(init=False)

    def __post_init__(self) -> None:
        c, m = self.all, len(self.kept)
        self.n = c.counts[self.kept + 1] - c.counts[0]
        self.cost, self.up, self.joint = (np.empty((m, m)) for _ in range(3))
        b, g = (np.ascontiguousarray(a[self.kept + 1]) for a in (c.sums, c.squares))
        ops.current().entropy_costs(
            np.ascontiguousarray(c.points[self.kept]), self.n, b, g, self.cost, self.up, self.joint
        )

    def _path(self, name: str, *arguments: object) -> Index:
        room = np.zeros(len(self.kept), np.int32)
        count, _ = getattr(ops.current(), name)(*arguments, 1, 1, room)
        return room[:count].astype(np.int64)

    def _bounded(self, name: str, *arguments: object) -> Index:
        """Search without a bound on the number of levels, which is much faster; with one if there are too many."""
        path = self._path(name, *arguments, 0)
        return path if len(path) <= self.most else self._path(name, *arguments, self.most)

    def found(self, path: Index, multiplier: float) -> Found:
        """Return what a path through the kept candidates costs."""
        return measure(self.all, self.kept[path], multiplier)[0]

    def exactly(self, multiplier: float) -> Index:
        """Return the optimum."""
        return self._bounded("pair_path", self.cost, self.up, self.n, multiplier)

    def jointly(self, multiplier: float) -> Index:
        """Return the levels that are best for the entropy of level and side, an upper bound by at most one bit."""
        return self._bounded("joint_path", self.cost, self.up, self.joint, self.n, multiplier)

    def refined(self, path: Index, multiplier: float) -> Iterator[Found]:
        """Yield better and better levels: best for the code lengths of the levels before, until that stalls."""
        found, shares = measure(self.all, self.kept[path])
        value = found.cost + multiplier * self.n[-1] * found.entropy
        for _ in range(_ROUNDS):
            if len(path) < 3:
                return
            lengths = np.maximum(np.where(shares > 0, -log2(shares), 1100.0), 0.0)
            ends = np.concatenate([path[:1], path[:1], path, path[-1:], path[-1:]]).astype(np.int32)
            low, high = ends[:-4].copy(), ends[4:].copy()
            path = self._path("coded_path", self.cost, self.up, self.n, lengths, low, high, multiplier)
            found, shares = measure(self.all, self.kept[path], multiplier)
            better = found.cost + multiplier * self.n[-1] * found.entropy
            if better >= value - _STALLED * abs(value):
                return
            value = better
            yield found

    def solve(self, multiplier: float) -> list[Found]:
        """Return the optimum, or the approximation and its refinements, the last the best."""
        if self.exact:
            return [self.found(self.exactly(multiplier), multiplier)]
        path = self.jointly(multiplier)
        return [self.found(path, multiplier), *self.refined(path, multiplier)]

    def least_entropy(self) -> Found:
        """Return the levels of least entropy among the kept candidates."""
        return self.found(self._bounded("pair_path", np.zeros_like(self.cost), self.up, self.n, 1.0), np.inf)


class Search:
    """The best levels within a budget that any try has met."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.best: Found | None = None

    def consider(self, found: Found) -> bool:
        """Keep `found` if it is within the budget and the best so far; return whether it is within."""
        fits = found.entropy <= self.budget
        if fits and (self.best is None or (found.cost, found.entropy) < (self.best.cost, self.best.entropy)):
            self.best = found
        return fits

    def try_all(self, problem: Problem, multiplier: float) -> Found:
        """Consider all that `problem` makes of a multiplier; return the last."""
        tries = problem.solve(multiplier)
        for found in tries:
            self.consider(found)
        return tries[-1]

    def multipliers(self, problem: Problem, guess: float, reach: float, steps: int = _STEPS) -> None:
        """Look for the multiplier whose levels just meet the budget: bracket, halve, then chords of the convex hull."""
        low = high = None  # beyond the budget, within it
        multiplier, factor = guess, reach
        for _ in range(40):
            found = self.try_all(problem, multiplier)
            if found.entropy <= self.budget:
                high = found
                if low is not None or multiplier < guess * 1e-30 or multiplier == 0.0:
                    break
                multiplier = multiplier / factor
            else:
                low = found
                if high is not None or multiplier > guess * 1e30:
                    break
                multiplier = multiplier * factor
            factor *= factor if factor < 1e6 else 1.0
        if low is None or high is None:
            return
        mass = problem.all.mass
        for _ in range(steps):
            ratio = high.multiplier / low.multiplier
            chord = (high.cost - low.cost) / (mass * max(low.entropy - high.entropy, 1e-300))
            inside = low.multiplier * 1.0001 < chord < high.multiplier / 1.0001
            multiplier = (
                chord if inside and ratio < 8 else float(np.sqrt(low.multiplier)) * float(np.sqrt(high.multiplier))
            )
            found = self.try_all(problem, multiplier)
            same = any(np.array_equal(found.path, end.path) for end in (low, high))
            if found.entropy <= self.budget:
                high = found
            else:
                low = found
            if (same and multiplier == chord) or high.multiplier <= low.multiplier * 1.0005:
                return


def thinned(c: Candidates, most: int) -> Index:
    """Return at most `most` candidates: even in mass, in range, and in the logarithm of the distance to the middle.

    Quantiles alone miss tails, an even grid misses all but an outlier.
    """
    m = len(c.points)
    if m <= most:
        return np.arange(m)
    third = (most - 6) // 3
    mass = (np.arange(third) + 0.5) / third * c.mass + c.counts[0]
    grid = c.points[0] + (np.arange(third) + 0.5) / third * (c.points[-1] - c.points[0])
    steps = np.arange(third // 2)
    fall = np.ldexp(1.0 - (steps % 2) * 0.25, -(steps // 2))  # 1, 3/4, 1/2, 3/8, ...
    logs = np.concatenate([fall * c.points[0], fall * c.points[-1]])
    kept = np.concatenate(
        [
            np.searchsorted(c.counts[1:], mass),
            np.searchsorted(c.points, grid),
            np.searchsorted(c.points, logs),
            [0, 1, 2, m - 3, m - 2, m - 1],
        ]
    )
    return np.unique(np.clip(kept, 0, m - 1))


def around(c: Candidates, path: Index, before: Index, most: int) -> Index:
    """Return about `most` candidates: those of `path`, and more between their neighbours in `before`."""
    room = max((most - len(path)) // max(2 * len(path) - 2, 1), 1)
    at = np.searchsorted(before, path)
    kept = [path]
    for i, p in zip(at, path, strict=True):
        for other in (before[max(i - 1, 0)], before[min(i + 1, len(before) - 1)]):
            steps = np.arange(1, room + 1) / room
            kept.append(p + np.rint((other - p) * steps).astype(np.int64))
    return np.unique(np.concatenate(kept))


def moved(c: Candidates, search: Search, rounds: int = 4, places: int = 32) -> None:
    """Use up what the budget still allows: move, or put in, one level at a time to where the error is least."""
    assert search.best is not None
    for _ in range(rounds):
        before = search.best
        path = before.path
        for i in range(1, len(path) - 1):
            ends = search.best.path
            if len(ends) != len(path):
                break
            low, high = int(ends[i - 1]), int(ends[i + 1])
            for _ in range(3):
                tries = np.unique(np.linspace(low, high, places).astype(np.int64))
                tries = tries[(tries > ends[i - 1]) & (tries < ends[i + 1])]
                if not len(tries):
                    break
                _consider_at(c, search, ends, i, tries)
                step = max((high - low) // (places - 1), 1)
                centre = int(search.best.path[i])
                if step == 1:
                    break
                low, high = max(centre - step, int(ends[i - 1])), min(centre + step, int(ends[i + 1]))
        if search.best is before:
            return


def _consider_at(c: Candidates, search: Search, path: Index, i: int, tries: Index) -> None:
    """Consider `path` with level i at each of `tries`; only the best of them is measured in full."""
    a, z = path[i - 1], path[i + 1]
    t, ta, tz = c.points[tries], c.points[a], c.points[z]

    def interval(low: Index, high: Index, tl: F64, th: F64) -> tuple[F64, F64, F64]:
        n, b, g = (s[high + 1] - s[low + 1] for s in (c.counts, c.sums, c.squares))
        up = np.minimum(np.maximum((b - tl * n) / (th - tl), 0.0), n)
        return np.maximum((tl + th) * b - tl * th * n - g, 0.0), up, n - up

    first, second = interval(a, tries, ta, t), interval(tries, z, t, tz)
    now, shares = measure(c, path)
    here = interval(a, path[i], ta, c.points[path[i]]), interval(path[i], z, c.points[path[i]], tz)
    masses = shares[i - 1 : i + 2] * c.mass
    rest = (masses[0] - here[0][2], masses[2] - here[1][1])
    new = np.stack([rest[0] + first[2], first[1] + second[2], rest[1] + second[1]]) / c.mass
    new = np.maximum(new, 0.0)
    old = np.maximum(shares[i - 1 : i + 2], 0.0)
    entropy = (
        now.entropy
        + in_order(old * log2(old))
        - (new[0] * log2(new[0]) + new[1] * log2(new[1]) + new[2] * log2(new[2]))
    )
    cost = first[0] + second[0]
    fits = np.flatnonzero(entropy <= search.budget)
    if len(fits):
        best = fits[np.argmin(cost[fits])]
        changed = path.copy()
        changed[i] = tries[best]
        search.consider(measure(c, changed, search.best.multiplier if search.best else 0.0)[0])
