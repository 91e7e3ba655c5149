"""Levels for rounding with shared randomness: less error than the best levels without it, at as many bits an index.

"Better than Optimal: Improving Adaptive Stochastic Quantization Using Shared Randomness", ACM SIGMETRICS 2026; the
estimator is that of its authors' code (github.com/ranbenbasat/Simba); the paper was not read. The error in closed
form, its convexity and the search are derived here.

Sender and receiver share a uniform h in 0 .. l-1 for every entry, which nobody sends, and l codebooks of s values. In
order these are one ascending sequence v: codebook h is v[h], v[h+l], v[h+2l], ... Let t_k and S_k be the means of v_m
and of v_m**2 over the window m = k .. k+l-1, which has one value of every codebook. For x in segment k, between t_k and
t_(k+1), the receiver gets the window's value of its codebook; but if h = k mod l, whose v_k is the next to leave the
window, the sender moves on to v_(k+l) with the probability p = (x - t_k) / (t_(k+1) - t_k).

Unbiased: t_(k+1) - t_k = (v_(k+l) - v_k) / l, so the mean over h and the sender's coin is t_k + p (v_(k+l) - v_k) / l,
which is x.

Error: E[value**2] = S_k + p (S_(k+1) - S_k) = S_k + (v_k + v_(k+l)) (x - t_k) =: L_k(x), so it is L_k(x) - x**2. Over
the data of a segment that takes their number, sum and sum of squares, O(1) with prefix sums.

As v ascends, so do the slopes of L_k, and the error is max_k L_k(x) - x**2. In one value of v each L_k is linear, or
quadratic with the curvature 2/l: so the error is convex and piecewise quadratic in each one, and the search goes
through them and moves each towards its minimum between its neighbours. Of the first l values, whose mean is the least
entry, v_0 moves against the others, and v_(ls-1) does so at the other end. l = 1 is the problem of
`tersor.quantize.adaptive`. Levels that are many and locally even have (l**2 + 1) / (2 l**2) of its error, few less.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor.kernels import ops
from tersor.kernels.reference.shared_codes import means
from tersor.quantize import adaptive
from tersor.quantize.adaptive import _check_finite, _data, _weights

F64 = NDArray[np.float64]
MAX_SHARED = 8

_EXACT_BELOW = 4096  # "auto", as for `adaptive.levels`
_SWEEPS = 60  # at most; some ten are enough
_SHORT, _FEW_SWEEPS = 256, 6  # up to this length: within 0.3 % of the error after many, in half the time
_PIECE = 1 << 15
_NONE = np.zeros(0)


def levels(
    x: ArrayLike,
    s: int,
    *,
    shared: int = 2,
    weights: ArrayLike | None = None,
    method: adaptive.Method = "auto",
    axis: int | None = None,
) -> NDArray[Any]:
    """Return `shared` codebooks of `s` values, of low expected error for the input.

    Parameters
    ----------
    x : array
        NumPy array or torch tensor of any shape; float32, float64, float16 or bfloat16. Not modified.
    s : int
        Values of a codebook, 2 to 256.
    shared : int, default 2
        Number of codebooks, 1 to 8: values of the shared randomness. 1: the levels of `adaptive.levels`.
    weights : array, optional
        Weight of each entry's squared error, of the shape of `x`, not negative.
    method : {"auto", "exact", "histogram"}, default "auto"
        Over all entries, or over the cells of a histogram, as for `adaptive.levels`.
    axis : None or -1
        None: codebooks for the whole input. -1: for every row, over all its entries; no weights.

    Returns
    -------
    ndarray of float64 if x is, else float32
        Shape (shared, k), k <= s, every codebook ascending; k < s where k values have no error. With ``axis=-1`` shape
        (..., shared, s), the last value repeated. ``made.T.reshape(-1)`` ascends, too. The mean over the codebooks of
        their first values is the least entry, of their last ones the greatest, or outside these by rounding; so single
        values may be outside.

    Raises
    ------
    ValueError
        If `s`, `shared`, `method`, `axis` or `weights` are out of range.
    NonFiniteError
        If x holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from tersor.quantize import adaptive, shared_levels
    >>> x = np.random.default_rng(0).standard_normal(4096)
    >>> made = shared_levels.levels(x, 4, shared=2)
    >>> made.round(2).tolist()
    [[-5.53, -1.21, 0.28, 2.06], [-2.27, -0.43, 1.07, 4.46]]
    >>> alone = adaptive.expected_error(x, adaptive.levels(x, 4))
    >>> round(shared_levels.expected_error(x, made) / alone, 3)
    0.518
    """
    if type(shared) is not int or not 1 <= shared <= MAX_SHARED:
        raise ValueError(f"shared must be an integer from 1 to {MAX_SHARED}, got {shared!r}")
    data, shape = _data(x, s, method, True)
    if axis is not None and (axis != -1 or not shape):
        raise ValueError(f"axis must be None, or -1 for an array with rows, got {axis!r} for shape {shape}")
    if axis == -1:
        if weights is not None:
            raise ValueError("weights: not with axis=-1")
        start = adaptive.levels(data, s, axis=-1)
        rows = data.reshape(-1, shape[-1]) if data.size else np.zeros((start[..., 0].size, 0), data.dtype)
        made = _of_rows(rows, start.reshape(len(rows), start.shape[-1]), shared)
        return np.ascontiguousarray(_codebooks(made, shared).reshape(*shape[:-1], shared, start.shape[-1]))
    flat = data.reshape(-1)
    w = None if weights is None else _weights(weights, shape).reshape(-1)
    if method == "histogram" or (method == "auto" and len(flat) > _EXACT_BELOW):
        made = _of_histogram(flat, s, w, shared) if len(flat) else flat
    else:
        start = adaptive.levels(flat, s, weights=w, method="exact")
        made = _of_rows(flat[None], start[None], shared, w)[0]
    return np.ascontiguousarray(_codebooks(made, shared))


def _codebooks(v: NDArray[Any], shared: int) -> NDArray[Any]:
    """View ascending sequences, along the last axis, as codebooks."""
    made: NDArray[Any] = v.reshape(*v.shape[:-1], v.shape[-1] // shared, shared).swapaxes(-1, -2)
    return made


def _of_rows(rows: NDArray[Any], start: NDArray[Any], shared: int, weights: F64 | None = None) -> NDArray[Any]:
    """Return the sequence v of every row, from its best levels alone; `weights`: of the only row."""
    begin = np.repeat(start, shared, axis=1)
    if shared == 1 or start.shape[1] < 2 or not rows.size:
        return begin
    if weights is None:
        ordered, w = np.sort(rows, axis=1).astype(np.float64), _NONE
    else:
        order = np.argsort(rows[0], kind="stable")
        ordered, w = rows[:, order].astype(np.float64), weights[order]
    magnitude = np.maximum(np.abs(ordered[:, :1]), np.abs(ordered[:, -1:]))
    scale = np.ldexp(1.0, np.minimum(-np.frexp(magnitude)[1], 1000))  # a power of two: 1/2 <= magnitude < 1
    first = np.ascontiguousarray(begin, np.float64) * scale
    v = first.copy()
    sweeps = _FEW_SWEEPS if rows.shape[1] <= _SHORT else _SWEEPS
    ops.current().shared_search(
        (ordered * scale).reshape(-1), w, rows.shape[1], v.reshape(-1), v.shape[1], shared, sweeps
    )
    return _rounded(np.where(v == first, begin, v / scale), begin, shared)


def _of_histogram(x: NDArray[Any], s: int, weights: F64 | None, shared: int) -> NDArray[Any]:
    near = adaptive.search_near(x, s, weights, True, exact=shared == 1)
    begin = np.repeat(near.levels, shared)
    if shared == 1 or len(near.levels) < 2:
        return begin
    c = near.candidates
    mass = np.diff(c.counts)
    full = mass > 0
    points = np.maximum.accumulate(np.diff(c.sums)[full] / mass[full])  # ascend but for rounding
    first = np.repeat((near.places * c.down - c.centre) * c.up, shared)
    v = first.copy()
    ops.current().shared_search(points, mass[full], len(points), v, len(v), shared, _SWEEPS)
    if (v == first).all():  # perhaps without error, if levels are the values themselves
        return np.repeat(adaptive.search_near(x, s, weights, True).levels, shared)
    made = np.where(v == first, begin, (c.value_of(v) + near.moved) / near.scale)
    rounded: NDArray[Any] = _rounded(made[None], begin[None], shared)[0]
    return rounded


def _rounded(v: F64, begin: NDArray[Any], shared: int) -> NDArray[Any]:
    """Round sequences to the type of `begin`, where they started: the first values down, the last ones up.

    So means of values keep x between them. A sequence that overflows is `begin`.
    """
    first, last, kind = np.s_[:, :shared], np.s_[:, -shared:], begin.dtype.type
    moved = (v != begin).any(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for part, end in ((first, begin[:, :1]), (last, begin[:, -1:])):
            v[part] += np.where(moved[:, None], end - means(v[part], shared), 0.0)
        made: NDArray[Any] = v.astype(kind)
        made[first] = np.where(made[first] > v[first], np.nextafter(made[first], kind(-np.inf)), made[first])
        made[last] = np.where(made[last] < v[last], np.nextafter(made[last], kind(np.inf)), made[last])
        made = np.maximum.accumulate(made, axis=1)
        for _ in range(4):  # the means are rounded, too
            above = means(made[first], shared)[:, 0] - begin[:, 0]
            below = begin[:, -1] - means(made[last], shared)[:, 0]
            lower, upper = made[:, 0] - 2 * shared * above, made[:, -1] + 2 * shared * below
            lower = np.minimum(lower, np.nextafter(made[:, 0], kind(-np.inf)))
            upper = np.maximum(upper, np.nextafter(made[:, -1], kind(np.inf)))
            made[:, 0] = np.where(above > 0, lower, made[:, 0])
            made[:, -1] = np.where(below > 0, upper, made[:, -1])
        lost = ~np.isfinite(made).all(axis=1)
    made[lost] = begin[lost]
    return made


def expected_error(x: ArrayLike, levels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the sum of the expected squared errors of rounding the input with given codebooks.

    Parameters
    ----------
    x : array
        As for `levels`, of any shape.
    levels : array, shape (shared, k)
        Codebooks as `levels` returns them.
    weights : array, optional
        Weight of each entry's squared error, of the shape of `x`.

    Raises
    ------
    ValueError
        If a codebook is empty, not finite or not ascending, or if x is not between the means of first and last values.
    NonFiniteError
        If x holds NaN or infinity.

    Examples
    --------
    >>> from tersor.quantize import shared_levels
    >>> shared_levels.expected_error([0.0, 0.25, 0.5], [[-0.25, 0.5], [0.25, 0.75]])
    0.15625
    """
    data, shape = _data(x, 2, "auto", True)
    q = np.asarray(levels, np.float64)
    if q.ndim != 2 or not q.size or not np.isfinite(q).all() or (np.diff(q, axis=1) < 0).any():
        raise ValueError("levels must be codebooks, shape (shared, k), of finite ascending values")
    w = None if weights is None else _weights(weights, shape).reshape(-1)
    flat = data.reshape(-1)
    _check_finite(flat)
    shared, v = len(q), q.T.reshape(-1)
    t = means(v, shared)
    if len(flat) and not t[0] <= flat.min() <= flat.max() <= t[-1]:
        raise ValueError(f"means of levels from {t[0]} to {t[-1]} do not span x, from {flat.min()} to {flat.max()}")
    total = 0.0
    for begin in range(0, len(flat), _PIECE):
        values = flat[begin : begin + _PIECE].astype(np.float64)
        k = np.clip(np.searchsorted(t, values, "right") - 1, 0, max(len(t) - 2, 0))
        apart = [np.square(v[np.minimum(k + m, len(v) - 1)] - values) for m in range(shared + 1)]
        width = t[np.minimum(k + 1, len(t) - 1)] - t[k]
        p = np.clip(np.where(width > 0, (values - t[k]) / np.where(width > 0, width, 1.0), 0.0), 0.0, 1.0)
        errors = (sum(apart[:shared]) + p * (apart[shared] - apart[0])) / shared
        total += float(np.sum(errors if w is None else errors * w[begin : begin + _PIECE]))
    return total
