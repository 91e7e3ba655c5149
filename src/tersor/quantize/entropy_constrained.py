"""Entropy-constrained adaptive stochastic quantization: the best unbiased levels whose codes have a given entropy.

"Entropy-Constrained Adaptive Stochastic Quantization", Ran Ben Basat, Yaniv Ben-Itzhak, Michael Mitzenmacher, Shay
Vargaftik, 2026, arXiv 2608.18147. Only the abstract is public: the exact program, the approximation whose error is at
most that of the optimum with one bit less, and the refinement are reconstructions that meet every statement of it.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor import arrays
from tersor.errors import NonFiniteError, TersorError
from tersor.quantize import candidates as _candidates
from tersor.quantize.candidates import Candidates
from tersor.quantize.entropy_paths import (
    F64,
    MOST_PAIRS,
    Found,
    Index,
    Problem,
    Search,
    around,
    log2,
    measure,
    moved,
    thinned,
)

MAX_LEVELS = 256
MAX_CANDIDATES = 2048
Method = Literal["auto", "exact", "approximate"]

_FINE, _COARSE = 512, 128
_EXACTLY = 128  # "auto": candidates up to which the exact search is as fast as the other
_ROUNDS = 2
_SORTED_BELOW = 1 << 18  # beyond it float32 input goes through a histogram
_PIECE = 1 << 16


class InfeasibleError(TersorError, ValueError):
    """No levels within the range of the input have so little entropy.

    Attributes
    ----------
    least : float
        The least entropy found, bits an entry.
    """

    def __init__(self, message: str, least: float) -> None:
        super().__init__(message)
        self.least = least


@dataclass(frozen=True)
class Solution:
    """Levels and what they cost.

    Attributes
    ----------
    levels : ndarray of float64 if the input is, else float32, shape (k,)
        Ascending; the first is the least entry of the input, the last the greatest.
    error : float
        Sum of the expected squared errors over the input.
    entropy : float
        Entropy of the expected histogram of the codes, bits an entry: what a static entropy coder sends.
    probabilities : ndarray of float64, shape (k,)
        The expected share of entries that are sent as each level.
    multiplier : float
        Squared error that a bit is worth where these levels were found; 0 if entropy was no matter.
    """

    levels: NDArray[Any]
    error: float
    entropy: float
    probabilities: F64
    multiplier: float = 0.0


def levels(
    x: ArrayLike,
    entropy: float,
    *,
    max_levels: int = MAX_LEVELS,
    weights: ArrayLike | None = None,
    method: Method = "auto",
    candidates: int | None = None,
) -> Solution:
    """Return unbiased levels of least squared error whose codes have at most `entropy` bits an entry.

    The entropy is that of the expected histogram, of the very levels that are returned. The search tries multipliers
    lambda of ``error + lambda * entries * entropy`` and keeps the best levels within the budget of all it meets; then
    it moves single levels. It is exact for a multiplier, not for a budget: budgets between two corners of the convex
    hull of (entropy, error) are met from below.

    Parameters
    ----------
    x : array
        NumPy array or torch tensor of any shape; float32, float64, float16 or bfloat16. Not modified.
    entropy : float
        The budget, bits an entry.
    max_levels : int, default 256
        2 to 256.
    weights : array, optional
        Weight of each entry, in error and in entropy, of the shape of `x`, not negative.
    method : {"auto", "exact", "approximate"}, default "auto"
        "exact": dynamic program over pairs of levels, O(m**3) for m candidates. "approximate": O(m**2), with the
        entropy of (level, side of the entry) in place of that of the level, then refined. "auto": exact among few.
    candidates : int, optional
        How many values of x are considered at once, 16 to 2048; 512 by default.

    Returns
    -------
    Solution

    Raises
    ------
    InfeasibleError
        If the budget is below what levels among the candidates, from the least to the greatest entry, can reach.
    ValueError
        If an argument is out of range.
    NonFiniteError
        If x holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from tersor.quantize import entropy_constrained
    >>> x = np.random.default_rng(0).standard_normal(512)
    >>> s = entropy_constrained.levels(x, 2.0, max_levels=16)
    >>> s.entropy <= 2.0, s.error < 110, s.error < entropy_constrained.uniform(x, 2.0).error
    (True, True, True)
    """
    _check(max_levels, method, candidates)
    budget = float(entropy)
    if not 0 <= budget < math.inf:
        raise ValueError(f"entropy must be finite and not negative, got {entropy!r}")
    data = _Data.of(x, weights)
    if data.candidates is None or len(data.candidates.points) == 1:
        return data.trivial()
    c = data.candidates
    search = Search(budget)
    for kept, exact, last in _stages(c, search, max_levels, method, candidates):
        _search(Problem(c, kept, max_levels, exact), search, last)
    best = search.best
    if best is None:
        least = Problem(c, thinned(c, _pairs(candidates, max_levels)), max_levels, True).least_entropy()
        if not search.consider(least):
            raise InfeasibleError(
                f"no unbiased levels among the values of x have an entropy of {budget:g} bits an entry; "
                f"the least is {least.entropy:.9g}",
                least.entropy,
            )
    moved(c, search)
    assert search.best is not None
    found = data.solution(search.best)
    # Levels between values can be better, among few values.
    grid = _finest(data, budget, max_levels) if data.exact else None
    return grid if grid is not None and grid.error < found.error else found


def lagrangian(
    x: ArrayLike,
    multiplier: float,
    *,
    max_levels: int = MAX_LEVELS,
    weights: ArrayLike | None = None,
    method: Method = "auto",
    candidates: int | None = None,
) -> Solution:
    """Return unbiased levels that minimise ``error + multiplier * entries * entropy``; parameters as for `levels`.

    "exact" is the optimum among the candidates: all distinct values, if there are no more than `candidates`.
    "approximate" is at most ``multiplier * entries`` above it before its refinement.

    Examples
    --------
    >>> import numpy as np
    >>> from tersor.quantize import entropy_constrained
    >>> x = np.random.default_rng(0).standard_normal(512)
    >>> s = entropy_constrained.lagrangian(x, 0.1, max_levels=16, method="exact")
    >>> len(s.levels), round(s.error, 8), round(s.entropy, 8)
    (12, 35.54399245, 2.69898383)
    """
    _check(max_levels, method, candidates)
    if not 0 <= multiplier < math.inf:
        raise ValueError(f"multiplier must be finite and not negative, got {multiplier!r}")
    data = _Data.of(x, weights)
    if data.candidates is None or len(data.candidates.points) == 1:
        return data.trivial()
    c = data.candidates
    scaled = min(float(multiplier) * c.down * c.up * c.down * c.up, 1e30)
    best: Found | None = None
    fine = candidates or _FINE
    exact = method == "exact" or (method == "auto" and len(c.points) <= _EXACTLY)
    kept = thinned(c, _pairs(candidates, max_levels) if exact else fine)
    for _ in range(_ROUNDS):
        found = Problem(c, kept, max_levels, exact).solve(scaled)[-1]
        value = found.cost + scaled * c.mass * found.entropy
        if best is None or value < best.cost + scaled * c.mass * best.entropy:
            best = found
        if len(kept) == len(c.points):
            break
        kept = around(c, best.path, kept, fine)
    assert best is not None
    return data.solution(best)


def uniform(x: ArrayLike, entropy: float, *, max_levels: int = 1 << 16, weights: ArrayLike | None = None) -> Solution:
    """Return the finest even grid whose codes have at most `entropy` bits an entry.

    It spans the entries: the baseline of entropy-constrained quantization. Parameters, errors and result as for
    `levels`.

    Examples
    --------
    >>> import numpy as np
    >>> from tersor.quantize import entropy_constrained
    >>> s = entropy_constrained.uniform(np.linspace(0, 1, 1000), 2.0)
    >>> len(s.levels), s.entropy <= 2.0
    (4, True)
    """
    if not 0 <= entropy < math.inf or max_levels < 2:
        raise ValueError("entropy must be finite and not negative, and max_levels at least 2")
    data = _Data.of(x, weights, all_values=True)
    if data.candidates is None or len(data.candidates.points) == 1:
        return data.trivial()

    two = _even(data, 2)
    if two.entropy > entropy:
        raise InfeasibleError(f"two levels have an entropy of {two.entropy:.9g} bits an entry", two.entropy)
    return _finest(data, entropy, max_levels) or two


def _even(data: "_Data", n: int) -> Solution:
    low, high = float(data.x.min()), float(data.x.max())
    share = np.arange(n) / (n - 1)
    q = (low * (1 - share) + high * share).astype(data.x.dtype)
    return data.of_levels(np.unique(np.concatenate([data.x.dtype.type([low, high]), np.clip(q, low, high)])))


def _finest(data: "_Data", entropy: float, most: int) -> Solution | None:
    """Return the finest even grid within the budget: doubled while that fits, then halved."""
    best, fits, beyond = None, 1, 2
    while beyond <= most and (s := _even(data, beyond)).entropy <= entropy:
        best, fits, beyond = s, beyond, 2 * beyond
    beyond = min(beyond, most + 1)
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if (s := _even(data, middle)).entropy <= entropy:
            best, fits = s, middle
        else:
            beyond = middle
    return best


def evaluate(x: ArrayLike, levels: ArrayLike, *, weights: ArrayLike | None = None) -> Solution:
    """Return what given levels cost: error, entropy and probabilities of stochastic rounding onto them.

    Parameters
    ----------
    x : array
        As for `tersor.quantize.entropy_constrained.levels`.
    levels : array
        At least one, ascending, distinct and finite, spanning x.
    weights : array, optional
        Of the shape of `x`.

    Raises
    ------
    ValueError
        If the levels are not as said.

    Examples
    --------
    >>> import numpy as np
    >>> from tersor.quantize import entropy_constrained
    >>> s = entropy_constrained.evaluate(np.array([0.0, 0.5, 1.0]), [0.0, 1.0])
    >>> s.error, s.entropy
    (0.25, 1.0)
    """
    data = _Data.of(x, weights, all_values=True)
    q = np.asarray(levels, np.float64).reshape(-1)
    if not len(q) or not np.isfinite(q).all() or not (q[1:] > q[:-1]).all():
        raise ValueError("levels must be at least one, distinct, finite and ascending")
    if data.candidates is None:
        return Solution(q, 0.0, 0.0, np.zeros(len(q)))
    if not q[0] <= data.x.min() <= data.x.max() <= q[-1]:
        raise ValueError("levels do not span x")
    return data.of_levels(q)


def _check(max_levels: int, method: str, candidates: int | None) -> None:
    if type(max_levels) is not int or not 2 <= max_levels <= MAX_LEVELS:
        raise ValueError(f"max_levels must be an integer from 2 to {MAX_LEVELS}, got {max_levels!r}")
    if method not in ("auto", "exact", "approximate"):
        raise ValueError(f'method must be "auto", "exact" or "approximate", got {method!r}')
    if candidates is not None and (type(candidates) is not int or not 16 <= candidates <= MAX_CANDIDATES):
        raise ValueError(f"candidates must be an integer from 16 to {MAX_CANDIDATES}, got {candidates!r}")


def _pairs(candidates: int | None, max_levels: int) -> int:
    """Return how many candidates an exact search takes: as wished, and as fit into its memory with all layers."""
    return min(candidates or _FINE, math.isqrt(2 * MOST_PAIRS // max_levels))


@dataclass(frozen=True)
class _Data:
    """The input, flat, and its candidates; None without entries."""

    x: NDArray[Any]
    weights: F64 | None
    candidates: Candidates | None
    exact: bool

    @classmethod
    def of(cls, x: ArrayLike, weights: ArrayLike | None, all_values: bool = False) -> "_Data":
        host, shape = arrays.to_host(x)
        flat = host.data.reshape(-1) if host.dtype == "float64" else host.float32()
        w = None
        if weights is not None:
            w = np.asarray(weights, np.float64)
            if w.shape != shape:
                raise ValueError(f"weights must have the shape of x, {shape}, got {w.shape}")
            w = np.ascontiguousarray(w).reshape(-1)
            if not (w >= 0).all() or not np.isfinite(total := _candidates.in_order(w)) or (len(w) and total <= 0):
                raise ValueError("weights must be finite and not negative, not all 0, and their sum must be finite")
            w = w / 2.0 ** math.frexp(total)[1] if len(w) else w
        finite = np.isfinite(flat)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise NonFiniteError(f"x[{bad}] = {flat[bad]}: levels need finite values; drop or replace it", bad)
        if not len(flat):
            return cls(flat, w, None, True)
        if flat.dtype == np.float32 and len(flat) > _SORTED_BELOW and not all_values:
            histogram = _candidates.histogram(flat, 0.0, w)
            if histogram is not None and _candidates.centre_of(flat) == 0.0:
                return cls(flat, w, histogram.candidates(), False)
        return cls(flat, w, _candidates.exact(flat, w), True)

    def trivial(self) -> Solution:
        """Return the one level of a constant input, or none."""
        return Solution(self.x[:1].copy(), 0.0, 0.0, np.ones(len(self.x[:1])))

    def solution(self, found: Found) -> Solution:
        """Return levels at candidates; their entropy and error are those of the data, as candidates are values of x."""
        assert self.candidates is not None
        shares = measure(self.candidates, found.path)[1]
        c = self.candidates
        multiplier = found.multiplier if math.isfinite(found.multiplier) else 0.0
        return Solution(
            c.values[found.path].astype(self.x.dtype),
            self._scaled(found.cost),
            found.entropy,
            shares,
            c.error_of(multiplier),
        )

    def _scaled(self, cost: float) -> float:
        assert self.candidates is not None
        with np.errstate(over="ignore"):
            return float(self.candidates.error_of(np.float64(cost)))

    def of_levels(self, q: NDArray[Any]) -> Solution:
        """Return what any levels that span the input cost."""
        c = self.candidates
        assert c is not None and self.exact
        t = (q.astype(np.float64) * c.down - c.centre) * c.up
        at = np.searchsorted(c.values, q.astype(np.float64), "right")
        n, b, g = (np.diff(a[at]) for a in (c.counts, c.sums, c.squares))
        low, high = t[:-1], t[1:]
        up = np.minimum(np.maximum((b - low * n) / (high - low), 0.0), n)
        below = c.counts[at[:1]] - c.counts[0]
        shares: F64 = (np.concatenate([below, up]) + np.concatenate([n - up, [0.0]])) / c.mass
        cost = _candidates.in_order(np.maximum((low + high) * b - low * high * n - g, 0.0))
        return Solution(q, self._scaled(cost), max(_candidates.in_order(-(shares * log2(shares))), 0.0), shares)


def _stages(c: Candidates, search: Search, most: int, method: str, candidates: int | None) -> Any:
    """Yield (candidates, exact, is it a later stage): first some of all, then those around the best so far."""
    m = len(c.points)
    fine = candidates or _FINE
    if method == "exact":
        fine = _pairs(candidates, most)
        kept = thinned(c, fine)
        yield kept, True, False
    elif method == "auto":
        kept = thinned(c, _COARSE)
        yield kept, True, False
        if len(kept) < m:
            own = search.best.path if search.best else kept[:1]
            kept = np.union1d(thinned(c, fine), own)
            yield kept, False, search.best is not None
    else:
        kept = thinned(c, fine)
        yield kept, False, False
    for _ in range(_ROUNDS if len(kept) < m else 0):
        if search.best is None:
            return
        kept = around(c, search.best.path, kept, fine if method == "exact" else fine // 2)
        yield kept, method == "exact", True


def _search(problem: Problem, search: Search, later: bool) -> None:
    if later and search.best is not None and 0 < search.best.multiplier < math.inf:
        search.multipliers(problem, search.best.multiplier, 1.3, 6)
        return
    if problem.most <= 2.0**search.budget and search.consider(problem.found(problem.jointly(0.0), 0.0)):
        return  # any such number of levels fits
    ends: Index = np.array([0, len(problem.kept) - 1])
    two = problem.found(ends, 0.0)
    search.consider(two)
    guess = (
        1.386 * max(two.cost, 1e-30) / problem.all.mass * 2.0 ** (-2 * min(max(search.budget - two.entropy, 0.0), 16))
    )
    search.multipliers(problem, guess, 4.0)
