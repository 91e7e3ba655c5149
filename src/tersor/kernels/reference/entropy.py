"""Shortest paths through candidate levels: squared error plus a multiplier times the entropy of the level that is sent.

After "Entropy-Constrained Adaptive Stochastic Quantization" (Ben Basat, Ben-Itzhak, Mitzenmacher, Vargaftik, 2026,
arXiv 2608.18147), of which only the abstract is public. Candidates t_0 < ... < t_(m-1) have prefix sums n, b, g of 1, x
and x**2 over the data x <= t. Data in (t_k, t_j] between neighbouring levels t_k < t_j add

    cost[k, j] = (t_k + t_j) B - t_k t_j N - G      to the expected squared error,
    up[k, j]   = (B - t_k N) / (t_j - t_k)          to the mass of t_j, and N - up[k, j] to that of t_k,

with N, B, G the differences of the prefix sums. phi(w) = w log2(total / w) adds up to the entropy, times the total. A
path begins at one of the first `starts` candidates, where the data up to there are sent as that level, and ends at
one of the last `ends`. Ties go to the end first, to the fewest levels, to the lowest candidate before.
"""

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.reference.logarithm import log2

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]


def _phi(mass: F64, total: float) -> F64:
    """Return mass * log2(total / mass)."""
    logs, whole = np.empty_like(mass), np.empty(1)
    log2(mass, logs)
    log2(np.array([total]), whole)
    value: F64 = mass * (whole[0] - logs)
    return value


def entropy_costs(t: F64, n: F64, b: F64, g: F64, cost: F64, up: F64, joint: F64) -> None:
    """Fill the (m, m) matrices cost, up and joint = phi(up) + phi(N - up) for k < j, and 0 elsewhere."""
    k, j = np.triu_indices(len(t), 1)
    low, high = t[k], t[j]
    count, first, second = n[j] - n[k], b[j] - b[k], g[j] - g[k]
    for matrix in (cost, up, joint):
        matrix[...] = 0
    cost[k, j] = np.maximum((low + high) * first - (low * high) * count - second, 0.0)
    mass = np.minimum(np.maximum((first - low * count) / (high - low), 0.0), count)
    up[k, j] = mass
    joint[k, j] = _phi(mass, n[-1]) + _phi(count - mass, n[-1])


def _back(value: F64, sums: F64) -> int:
    return int(np.argmax(sums == value))


def joint_path(
    cost: F64, up: F64, joint: F64, n: F64, multiplier: float, most: int, starts: int, ends: int, path: I32
) -> tuple[int, float]:
    """Minimise the sum of cost + multiplier * joint over paths of two to `most` levels (0: of any number).

    The entropy of (level, side that the value came from) bounds that of the level from above, by at most one bit.
    Returns the number of levels, which are in `path`, and the minimum.
    """
    m, total = len(n), float(n[-1])
    rows = max(most - 1, 1)
    begin = np.full((starts, m), np.inf)  # the first step: its lower mass takes in what lies below
    for k in range(starts):
        masses = _phi(up[k, k + 1 :], total) + _phi(n[k + 1 :] - up[k, k + 1 :], total)
        begin[k, k + 1 :] = cost[k, k + 1 :] + multiplier * masses
    best = np.full((rows, m), np.inf)  # [i, j]: paths of i + 2 levels that end at j, or of any number
    best[0] = begin.min(axis=0)
    for k in range(m - 1):
        step = cost[k, k + 1 :] + multiplier * joint[k, k + 1 :]
        before, after = (best[:-1, k], best[1:, k + 1 :]) if most else (best[:, k], best[:, k + 1 :])
        np.minimum(after, before[:, None] + step, out=after)
    i, j, value = _end(best, ends)
    found = [j]
    while True:
        if i == 0 and (begin[:, j] == best[0, j]).any():
            found.append(_back(best[0, j], begin[:, j]))
            break
        row = i - 1 if most else 0
        j, i = _back(best[i, j], best[row, :j] + (cost[:j, j] + multiplier * joint[:j, j])), row
        found.append(j)
    path[: len(found)] = found[::-1]
    return len(found), value


def _end(best: F64, ends: int) -> tuple[int, int, float]:
    """Return the row and column of the least value among the last `ends` columns; the last column and first row win."""
    tail = best[:, len(best[0]) - ends :][:, ::-1]
    value = float(tail.min())
    column = int(np.argmax((tail == value).any(axis=0)))
    row = int(np.argmax(tail[:, column] == value))
    return row, len(best[0]) - 1 - column, value


def coded_path(
    cost: F64,
    up: F64,
    n: F64,
    lengths: F64,
    low: I32,
    high: I32,
    multiplier: float,
    starts: int,
    ends: int,
    path: I32,
) -> tuple[int, float]:
    """Minimise squared error + multiplier * (bits of a code with `lengths` for the first, second, ... level).

    Level i is one of the candidates low[i] .. high[i]. Levels may coincide; the data below one then pay its code, those
    above the next one's. Returns the number of distinct levels, which are in `path`, and the minimum; (0, inf) if there
    is no such path.
    """
    m, s = len(n), len(lengths)
    best = np.full((s, m), np.inf)
    scaled = multiplier * lengths
    first = slice(int(low[0]), min(int(high[0]) + 1, starts))
    best[0, first] = n[first] * scaled[0]
    for i in range(1, s):
        window = slice(int(low[i]), int(high[i]) + 1)
        best[i, window] = best[i - 1, window]
        for k in range(int(low[i - 1]), min(int(high[i - 1]), int(high[i]) - 1) + 1):
            to = slice(max(k + 1, int(low[i])), int(high[i]) + 1)
            step = _coded(cost[k, to], up[k, to], n[to] - n[k], scaled[i - 1], scaled[i])
            np.minimum(best[i, to], best[i - 1, k] + step, out=best[i, to])
    _, j, value = _end(best[-1:], ends)
    if value == np.inf:
        return 0, value
    found = [j]
    for i in range(s - 1, 0, -1):
        if best[i, j] == best[i - 1, j]:
            continue
        sums = best[i - 1, :j] + _coded(cost[:j, j], up[:j, j], n[j] - n[:j], scaled[i - 1], scaled[i])
        j = _back(best[i, j], sums)
        found.append(j)
    path[: len(found)] = found[::-1]
    return len(found), value


def _coded(cost: F64, up: F64, count: F64, low: np.float64, high: np.float64) -> F64:
    value: F64 = cost + (up * high + (count - up) * low)
    return value


def pair_path(
    cost: F64, up: F64, n: F64, multiplier: float, most: int, starts: int, ends: int, path: I32
) -> tuple[int, float]:
    """Minimise squared error + multiplier * sum of phi(mass of a level), exactly, over two to `most` levels (0: any).

    The state is the last two levels: the least sum of paths of i + 2 levels that end with k, j, without phi of the last
    mass. All candidates before a pair are tried, O(m**3 (log + most)): phi is shared by all numbers of levels. Returns
    as `joint_path`.
    """
    m, total = len(n), float(n[-1])
    rows = max(most - 1, 1)
    best = np.full((rows, m, m), np.inf)  # [i, j, k]: the last level first
    for k in range(starts):
        best[0, k + 1 :, k] = cost[k, k + 1 :] + multiplier * _phi(n[k + 1 :] - up[k, k + 1 :], total)
    for j in range(1, m - 1):
        bits = multiplier * _phi(up[:j, j][:, None] + (n[j + 1 :] - n[j] - up[j, j + 1 :])[None], total)
        for i in range(rows - 1 if most else 1):
            least = cost[j, j + 1 :] + (best[i, j, :j][:, None] + bits).min(axis=0)
            after = best[i + 1 if most else 0, j + 1 :, j]
            np.minimum(after, least, out=after)
    last = np.full((rows, ends), np.inf)
    for e in range(ends):
        j = m - ends + e
        if j:
            last[:, e] = (best[:, j, :j] + multiplier * _phi(up[:j, j], total)).min(axis=1)
    i, e, value = _end(last, ends)
    j = m - ends + e
    k = _back(last[i, e], best[i, j, :j] + multiplier * _phi(up[:j, j], total))
    found = [j, k]
    while True:
        if i == 0 and k < starts:
            begin = cost[k, j] + multiplier * _phi(n[j : j + 1] - up[k, j : j + 1], total)[0]
            if best[0, j, k] == begin:
                break
        bits = multiplier * _phi(up[:k, k] + (n[j] - n[k] - up[k, j]), total)
        before = i - 1 if most else 0
        j, k, i = k, _back(best[i, j, k], cost[k, j] + (best[before, k, :k] + bits)), before
        found.append(k)
    path[: len(found)] = found[::-1]
    return len(found), value
