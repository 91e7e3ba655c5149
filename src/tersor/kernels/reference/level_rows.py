"""The best levels of many rows: three and four in closed form, others by the search over candidates, in NumPy."""

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.reference.level_search import F64, I64, from_middle, optimal_path

F32 = NDArray[np.float32]


def optimal_rows(x: F32, row: int, levels: int, clusters: bool, out: F32) -> None:
    """Write the best levels of each row of sorted values, ascending, the last repeated where fewer are as good.

    clusters: the means of the best clusters, else levels among the values for stochastic rounding, the ends included.
    """
    for values, made in zip(x.reshape(-1, row), out.reshape(-1, levels), strict=True):
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) > levels:
            if clusters or levels > 4:
                distinct = _searched(distinct.astype(np.float64), counts.astype(np.float64), levels, clusters)
            else:
                distinct = np.unique(values[[0, *_places(values.astype(np.float64), levels), row - 1]])
        made[: len(distinct)] = distinct
        made[len(distinct) :] = distinct[-1]


def scale_of(magnitude: float) -> float:
    """Return the power of two, at most 2**1000, that brings a magnitude into [1/2, 1); 1 for 0."""
    return float(np.ldexp(1.0, min(-int(np.frexp(magnitude)[1]), 1000)))


def _searched(values: F64, counts: F64, levels: int, clusters: bool) -> F32:
    centre = values[len(values) // 2]
    scale = scale_of(max(abs(values[0] - centre), abs(values[-1] - centre)))
    points = (values - centre) * scale
    sums = counts * points
    mass, moment, square = (from_middle(cells, clusters) for cells in (counts, sums, sums * points))
    nodes = np.concatenate([points[:1], points]) if clusters else points
    edges = levels if clusters else levels - 1
    path = np.zeros(edges + 1, np.int64)
    path = path[: 1 + optimal_path(nodes, mass, moment, square, edges, clusters, path)]
    if not clusters:
        return values[path].astype(np.float32)
    made: F64 = centre + np.diff(moment[path]) / np.diff(mass[path]) / scale
    return made.astype(np.float32)


def _places(values: F64, levels: int) -> I64:
    """Return the places of the levels inside, for two to four levels.

    Between two levels, the third stands at the first value with as many at or below it as the slope of the cost asks
    for ("Optimal and Approximate Adaptive Stochastic Quantization", arXiv 2402.03158, Section 5).
    """
    if levels == 2:
        return np.zeros(0, np.int64)
    last = len(values) - 1
    centre = values[len(values) // 2]
    x = (values - centre) * scale_of(max(abs(values[0] - centre), abs(values[-1] - centre)))
    sums = np.concatenate([[0.0], np.cumsum(x[1:])])
    k = np.arange(last + 1 if levels == 4 else 1)
    xk, bk, xj, bj = x[k], sums[k], x[last], sums[last]
    gap, left = xj - xk, (last - k).astype(np.float64)
    up = np.ceil((left * xj - (bj - bk)) / np.where(gap > 0, gap, 1.0))
    up = np.minimum(np.maximum(up, 0.0), left)
    at = k + up.astype(np.int64)
    xb, bb = x[at], sums[at]
    if levels == 3:
        return np.asarray(at)
    inner = ((xk + xb) * (bb - bk) - xk * xb * up) + ((xb + xj) * (bj - bb) - xb * xj * (left - up))
    best = int(np.argmin(((x[0] + xk) * bk - x[0] * xk * k) + inner))
    return np.array([best, at[best]])
