"""Adaptive levels: the quantization levels of least error for this very input.

"Optimal and Approximate Adaptive Stochastic Quantization", Ran Ben Basat, Yaniv Ben-Itzhak, Michael Mitzenmacher, Shay
Vargaftik, NeurIPS 2024, arXiv 2402.03158. Where the paper fills one layer for each level, the search here puts a price
on levels, O(d log d) whatever their number (`tersor.kernels.reference.level_search`).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor import arrays
from tersor.errors import NonFiniteError
from tersor.kernels import ops
from tersor.kernels.reference.key_histogram import CELLS, F32, F64, keys_of
from tersor.kernels.reference.level_rows import scale_of
from tersor.kernels.reference.level_search import NOISE
from tersor.quantize import candidates as _candidates
from tersor.quantize.candidates import Candidates, Histogram

MAX_LEVELS = 256
Method = Literal["auto", "exact", "histogram"]

_EXACT_BELOW = 4096  # "auto": a search over all values is about as fast as a histogram up to here
_HEAVY = 0.02  # a cell's own values become candidates if it could cost this share of an interval's error
_MOST_GATHERED = 1 << 16
_PIECE = 1 << 16


@dataclass(frozen=True)
class Solution:
    """Levels and what they cost.

    Attributes
    ----------
    levels : ndarray of float32 or float64, shape (k,)
        Ascending.
    error : float
        Sum of the (expected) squared errors over the input, before `levels` were rounded to float32.
    """

    levels: NDArray[Any]
    error: float


def levels(
    x: ArrayLike,
    s: int,
    *,
    weights: ArrayLike | None = None,
    method: Method = "auto",
    unbiased: bool = True,
    axis: int | None = None,
) -> NDArray[Any]:
    """Return the `s` levels of least squared error for the input.

    With `unbiased`, a value is rounded at random to one of the two levels around it, so that its expectation is itself
    and x costs ``(b - x) (x - a)`` between levels a and b. Else it goes to the nearest level (optimal k-means in one
    dimension).

    Parameters
    ----------
    x : array
        NumPy array or torch tensor of any shape; float32, float64, float16 or bfloat16. Not modified.
    s : int
        Number of levels, 2 to 256; from 1 on if not `unbiased`.
    weights : array, optional
        Weight of each entry's squared error, of the shape of `x`, not negative.
    method : {"auto", "exact", "histogram"}, default "auto"
        "exact": a true optimum, O(d log d). "histogram": one linear pass over float32 values and a search over the
        edges of some thousand cells; up to s = 64 within 1 % of the optimum from some 2**14 entries on. "auto": exact
        up to 4,096 entries, and for rows.
    unbiased : bool, default True
        Levels for unbiased stochastic rounding, or for rounding to nearest.
    axis : None or -1
        None: one set of levels. -1: a set for every row, always exact.

    Returns
    -------
    ndarray of float64 if x is, else float32
        Ascending; shape (k,), where k < s if x has fewer than s distinct values or fewer levels have no error. Unbiased
        levels begin with the least entry and end with the greatest. With ``axis=-1`` shape (..., s), the last level
        repeated.

    Raises
    ------
    ValueError
        If `s`, `method`, `axis` or `weights` are out of range.
    NonFiniteError
        If x holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(4096)
    >>> tersor.quantize.adaptive.levels(x, 4).round(3).tolist()
    [-3.899, -0.91, 0.695, 3.257]
    >>> tersor.quantize.adaptive.levels(np.array([[1.0, 2.0, 2.0], [0.0, 1.0, 5.0]]), 2, axis=-1).tolist()
    [[1.0, 2.0], [0.0, 5.0]]
    """
    data, shape = _data(x, s, method, unbiased)
    if axis is None:
        if weights is None and data.dtype == np.float32 and data.size and _exactly(method, data.size):
            return np.unique(_of_rows(data.reshape(1, -1), s, unbiased))
        return solve(x, s, weights=weights, method=method, unbiased=unbiased).levels
    if axis != -1 or not shape:
        raise ValueError(f"axis must be None, or -1 for an array with rows, got {axis!r} for shape {shape}")
    made = np.empty((*shape[:-1], s if shape[-1] else 0), data.dtype)
    w = None if weights is None else _weights(weights, shape)
    if w is None and data.dtype == np.float32 and data.size:
        return _of_rows(data.reshape(-1, shape[-1]), s, unbiased).reshape(made.shape)
    for i, row in enumerate(data.reshape(-1, shape[-1]) if data.size else ()):
        found = _exact(row, s, None if w is None else w.reshape(-1, shape[-1])[i], unbiased).levels
        target = made.reshape(-1, s)[i]
        target[: len(found)], target[len(found) :] = found, found[-1]
    return made


def solve(
    x: ArrayLike, s: int, *, weights: ArrayLike | None = None, method: Method = "auto", unbiased: bool = True
) -> Solution:
    """Return the best levels of the whole input with their error; parameters as for `levels`.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(4096)
    >>> round(tersor.quantize.adaptive.solve(x, 4).error, 6)
    2795.163719
    """
    data, shape = _data(x, s, method, unbiased)
    flat = data.reshape(-1)
    w = None if weights is None else _weights(weights, shape).reshape(-1)
    if not len(flat):
        return Solution(flat.copy(), 0.0)
    if _exactly(method, len(flat)):
        return _exact(flat, s, w, unbiased)
    near = search_near(flat, s, w, unbiased)
    return Solution(np.unique(near.levels), near.error)


def _data(x: ArrayLike, s: int, method: str, unbiased: bool) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Check what callers pass; return the input as float64 if it is, else float32, and its shape."""
    least = 2 if unbiased else 1
    if type(s) is not int or not least <= s <= MAX_LEVELS:
        raise ValueError(f"s must be an integer from {least} to {MAX_LEVELS}, got {s!r}")
    if method not in ("auto", "exact", "histogram"):
        raise ValueError(f'method must be "auto", "exact" or "histogram", got {method!r}')
    host, shape = arrays.to_host(x)
    return (host.data if host.dtype == "float64" else host.float32()).reshape(shape), shape


def _exactly(method: Method, n: int) -> bool:
    return method == "exact" or (method == "auto" and n <= _EXACT_BELOW)


def _of_rows(rows: F32, s: int, unbiased: bool) -> F32:
    """Return the best levels of every row, shape (rows, s), the last repeated."""
    _check_finite(rows)
    made = np.empty((len(rows), s), np.float32)
    ops.current().optimal_rows(np.sort(rows, axis=1).reshape(-1), rows.shape[1], s, not unbiased, made.reshape(-1))
    return made


def _check_finite(x: NDArray[Any]) -> None:
    finite = np.isfinite(x).reshape(-1)
    if not finite.all():
        bad = int(np.argmin(finite))
        value = x.reshape(-1)[bad]
        raise NonFiniteError(f"x[{bad}] = {value}: levels need finite values; drop or replace it", bad)


def _weights(weights: ArrayLike, shape: tuple[int, ...]) -> F64:
    w = np.asarray(weights, np.float64)
    if w.shape != shape:
        raise ValueError(f"weights must have the shape of x, {shape}, got {w.shape}")
    if not (w >= 0).all() or not np.isfinite(w.sum()):
        raise ValueError("weights must be finite and not negative, and so must be their sum")
    return w


def _exact(x: NDArray[Any], s: int, weights: F64 | None, unbiased: bool) -> Solution:
    _check_finite(x)
    found, error = _best(_candidates.exact(x, weights), s, unbiased)
    return Solution(found.astype(x.dtype), error)


def _best(c: Candidates, s: int, unbiased: bool) -> tuple[F64, float]:
    """Return the best levels among candidates and their error."""
    begin = 1 if unbiased else 0
    points = c.points if unbiased else np.concatenate([c.points[:1], c.points])
    counts, sums, squares = c.counts[begin:], c.sums[begin:], c.squares[begin:]
    edges = s - 1 if unbiased else s
    path = np.zeros(edges + 1, np.int64)
    used = ops.current().optimal_path(points, counts, sums, squares, edges, not unbiased, path)
    path = path[: used + 1]
    n, b, g = (np.diff(a[path]) for a in (counts, sums, squares))
    if unbiased:
        low, high = points[path[:-1]], points[path[1:]]
        p, q = (low + high) * b, low * high * n
        costs = (p - q) - g
        real = costs > NOISE * (abs(p) + abs(q) + abs(g))
        error = max(_candidates.in_order(costs[real]) - c.within, 0.0)
        return c.values[path], c.error_of(error)
    full = n > 0
    means = b[full] / n[full]
    error = _candidates.in_order(np.maximum(g[full] - b[full] * means, 0.0)) + c.within
    return np.unique(c.value_of(means)), c.error_of(error)


@dataclass(frozen=True)
class Near:
    """What a search over a histogram found: in values of the data, and as values of `candidates`.

    Attributes
    ----------
    levels : ndarray of float32 or float64, shape (k,)
        Ascending levels; some may be equal.
    candidates : Candidates
        Of ``x * scale - moved``.
    places : ndarray of float64, shape (k,)
        The levels among them.
    scale, moved, error : float
        What was done to x; the error of `levels`.
    """

    levels: NDArray[Any]
    candidates: Candidates
    places: F64
    scale: float
    moved: float
    error: float


def search_near(x: NDArray[Any], s: int, weights: F64 | None, unbiased: bool, exact: bool = True) -> Near:
    """Search over the edges of a histogram, and over the very values in cells that could cost much.

    exact: levels on float64 values are these, not their rounding; one pass a level.
    """
    y, scale, shift = x, 1.0, 0.0
    if x.dtype == np.float64:  # cells are those of float32
        _check_finite(x)
        scale = scale_of(float(max(abs(x.min()), abs(x.max()))))
        shift = _candidates.centre_of(x) * scale
        y = (x * scale - shift).astype(np.float32)
    centre = _candidates.centre_of(y)
    found = _candidates.histogram(y, centre, weights)
    if found is None:
        _check_finite(x)
        centre = 0.0  # a difference overflowed
        found = _candidates.histogram(y, centre, weights)
        assert found is not None, "x is finite"
    candidates = found.candidates()
    best, error = _best(candidates, s, unbiased)
    exactly = _heavy_values(y, centre, found, error / s * _HEAVY, weights)
    if exactly is not None:
        candidates = found.candidates(exactly)
        best, error = _best(candidates, s, unbiased)
    made = ((best + centre + shift) / scale).astype(x.dtype)
    if unbiased:
        made[0], made[-1] = found.ends if y is x else (x.min(), x.max())
        if exact and y is not x:  # a level on a float64 value stands for it, not for its rounding
            moved = y - np.float32(centre)
            for i in range(1, len(best) - 1):
                same = x[moved == best[i]]
                if len(same):
                    made[i] = same.max()
        made = np.clip(made, made[0], made[-1])
    return Near(made, candidates, best, scale, centre + shift, error / scale / scale)


def _heavy_values(
    y: F32, centre: float, found: Histogram, limit: float, weights: F64 | None
) -> tuple[NDArray[np.int64], F32, F64] | None:
    """Return the cells whose width costs more than `limit`, their distinct values and the mass of each."""
    width = found.high - found.low
    excess = found.counts * width * width / 4.0
    heavy = np.flatnonzero(excess > limit)
    if not len(heavy) or limit <= 0.0:
        return None
    # The heaviest first, as many as there is room for.
    heavy = heavy[np.argsort(-excess[heavy], kind="stable")]
    heavy = np.sort(heavy[np.cumsum(found.entries[heavy]) <= _MOST_GATHERED])
    if not len(heavy):
        return None
    wanted = np.zeros(CELLS, np.uint8)
    wanted[found.cells[heavy]] = 1
    values = np.empty(int(found.entries[heavy].sum()), np.float32)
    ops.current().key_gather(y, centre, wanted, values)
    if weights is None:
        distinct, counts = np.unique(values, return_counts=True)
        return heavy, distinct, counts.astype(np.float64)
    keys = keys_of(y - np.float32(centre))
    distinct, where = np.unique(values, return_inverse=True)
    return heavy, distinct, np.bincount(where, weights[wanted[keys >> 16] != 0]).astype(np.float64)


def expected_error(
    x: ArrayLike, levels: ArrayLike, *, weights: ArrayLike | None = None, unbiased: bool = True
) -> float:
    """Return the sum of the (expected) squared errors of rounding the input onto given levels.

    Parameters
    ----------
    x : array
        As for `levels`, of any shape.
    levels : array
        Ascending and finite, at least one; if `unbiased` they must span x.
    weights : array, optional
        Weight of each entry's squared error, of the shape of `x`.
    unbiased : bool, default True
        Stochastic rounding to the two levels around an entry, or rounding to the nearest.

    Raises
    ------
    ValueError
        If `levels` are none, do not ascend, are not finite, or do not span x where they must.
    NonFiniteError
        If x holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.array([0.0, 0.5, 1.0])
    >>> tersor.quantize.adaptive.expected_error(x, [0.0, 1.0])
    0.25
    """
    data, shape = _data(x, MAX_LEVELS, "auto", unbiased)
    q = np.asarray(levels, np.float64).reshape(-1)
    if not len(q) or not np.isfinite(q).all() or (np.diff(q) < 0).any():
        raise ValueError("levels must be at least one, finite and ascending")
    w = None if weights is None else _weights(weights, shape).reshape(-1)
    flat = data.reshape(-1)
    _check_finite(flat)
    if unbiased and len(flat) and not q[0] <= flat.min() <= flat.max() <= q[-1]:
        raise ValueError(f"levels from {q[0]} to {q[-1]} do not span x, from {flat.min()} to {flat.max()}")
    total = 0.0
    for begin in range(0, len(flat), _PIECE):
        v = flat[begin : begin + _PIECE].astype(np.float64)
        high = q[np.minimum(np.searchsorted(q, v), len(q) - 1)]
        low = q[np.maximum(np.searchsorted(q, v, "right") - 1, 0)]
        errors = (high - v) * (v - low) if unbiased else np.minimum((high - v) ** 2, (v - low) ** 2)
        total += float(np.sum(errors if w is None else errors * w[begin : begin + _PIECE]))
    return total
