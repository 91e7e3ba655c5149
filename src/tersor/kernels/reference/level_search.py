"""The best levels for given data: cheapest paths of a set number of edges over candidates, in NumPy (FORMAT.md, 11).

Nodes are candidates in ascending order, an edge (k, j) costs what the data between two candidates cost. Costs obey the
quadrangle inequality, so the least cost is convex in the number of edges, and a price on every edge takes the place of
the number (A. Aggarwal, B. Schieber, T. Tokuyama: "Finding a Minimum-Weight k-Link Path in Graphs with the Concave
Monge Property", Discrete & Computational Geometry 12, 1994); a priced search is a search for row minima of a matrix
that becomes known from left to right, solved by halving. Optimal stochastic levels so: "Optimal and Approximate
Adaptive Stochastic Quantization", NeurIPS 2024, arXiv 2402.03158, whose layered search gives the same cost.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_LEAST = 256  # nodes of the coarser problem that the first price comes from, and at least so many an edge:
_PER_EDGE = 16
_STEP = 8  # but no coarser than this at once
_FEW = 256  # nodes up to which every candidate is tried
NOISE = 2.0**-48  # costs below this share of their terms are rounding


@dataclass(frozen=True)
class Problem:
    """Candidates, and mass, first and second moment of the data up to each of them, counted from any origin.

    An edge costs, with `clusters`, the data's squared distance from their mean, else the variance of stochastic
    rounding to the two ends.
    """

    points: F64
    counts: F64
    sums: F64
    squares: F64
    clusters: bool

    def coarser(self, step: int) -> "Problem":
        """Keep every `step`-th node and the last: a problem over fewer candidates, exact for the same data."""
        keep = np.append(np.arange(0, len(self.points) - 1, step), len(self.points) - 1)
        return Problem(self.points[keep], self.counts[keep], self.sums[keep], self.squares[keep], self.clusters)

    def cost(self, path: I64) -> float:
        """Return the cost of a path, without prices: its edges' costs, added in order."""
        x, total = self.points, 0.0
        for k, j in zip(path[:-1].tolist(), path[1:].tolist(), strict=True):
            n, b = float(self.counts[j] - self.counts[k]), float(self.sums[j] - self.sums[k])
            g = float(self.squares[j] - self.squares[k])
            if self.clusters:
                p, q = 0.0, b * b / (n if n > 0 else 1.0)
                cost = g - q
            else:
                p, q = float(x[k] + x[j]) * b, float(x[k] * x[j]) * n
                cost = (p - q) - g
            if cost > NOISE * (abs(p) + abs(q) + abs(g)):
                total += cost
        return total


def optimal_path(points: F64, counts: F64, sums: F64, squares: F64, edges: int, clusters: bool, path: I64) -> int:
    """Write the nodes of a cheapest path from the first to the last with at most `edges` edges; return how many it has.

    It has fewer only where there are too few nodes, or where fewer cost nothing. `path` has ``edges + 1`` elements; all
    other arrays one a node (at least one): `points` within [-1, 1], or close to it.
    """
    found, _ = _search(Problem(points, counts, sums, squares, clusters), edges)
    path[: len(found)] = found
    return len(found) - 1


def _search(problem: Problem, edges: int) -> tuple[I64, float]:
    """Return a cheapest path and a price that gives its number of edges, or one near it."""
    last = len(problem.points) - 1
    if last <= edges:
        return np.arange(last + 1), 0.0
    few, many = np.array([0, last]), np.arange(last + 1)  # of too few and of too many edges
    few_cost, many_cost = problem.cost(few), problem.cost(many)
    few_price, many_price = np.inf, 0.0
    step = (last + 1) // max(_LEAST, _PER_EDGE * edges)
    price = _search(problem.coarser(min(step, _STEP)), edges)[1] if step >= 4 else _first_price(problem, edges)
    turn = 0
    while len(few) - 1 != edges and few_cost > 0:
        turn += 1
        # A guess, with costs as 1 / edges**2; or, last or where guesses help no more, the price at which both paths are
        # equally good: if it gives no path between them, none is better by more than rounding.
        inside = many_price < price < few_price
        tied = not inside or (turn > 6 and turn % 2 == 0) or (many_price > 0 and len(many) - len(few) < 4)
        if tied:
            price = (few_cost - many_cost) / (len(many) - len(few))
        path = priced_path(problem, price)
        n = len(path) - 1
        if n == edges:
            return path, price
        if tied and not len(few) < len(path) < len(many):
            return _spliced(few, many, edges), price
        if n < edges and len(path) > len(few):
            few, few_cost, few_price = path, problem.cost(path), price
        elif n > edges and len(path) < len(many):
            many, many_cost, many_price = path, problem.cost(path), price
        ratio = n / edges
        price *= ratio * ratio * ratio
    return few, price


def _first_price(problem: Problem, edges: int) -> float:
    """Guess from the density of the data: with many edges they cost A / edges**2, so one more saves 2 A / edges**3.

    A = (integral of density**(1/3))**3 / 6, or / 12 for clusters (P. F. Panter, W. Dite, 1951), over 16 runs of nodes.
    """
    last, total = len(problem.points) - 1, 0.0
    for g in range(16):
        k, j = last * g // 16, last * (g + 1) // 16
        width = float(problem.points[j] - problem.points[k])
        total += cube_root(float(problem.counts[j] - problem.counts[k]) * width * width)
    return total * total * total / (6.0 if problem.clusters else 3.0) / (float(edges) * edges * edges)


def cube_root(v: float) -> float:
    """Return about the cube root of v, 0 if it is not positive: five steps of Newton's from a power of two above."""
    if not v > 0:
        return 0.0
    y = float(np.ldexp(1.0, -(-int(np.frexp(v)[1]) // 3)))
    for _ in range(5):
        y = (2.0 * y + v / (y * y)) / 3.0
    return y


def _spliced(few: I64, many: I64, edges: int) -> I64:
    """Join the start of one path and the end of another, both best for one price: as good, and with `edges` edges.

    Between two edges of which one spans the other, the ends may be swapped at no cost (the quadrangle inequality).
    """
    ahead = len(many) - 1 - edges
    i = 0
    while many[i + ahead + 1] > few[i + 1]:
        i += 1
    return np.concatenate([few[: i + 1], many[i + ahead + 1 :]])


def priced_path(problem: Problem, price: float) -> I64:
    """Return a path of least cost plus `price` an edge, which has least cost among those of its number of edges.

    Costs are counted as E[j] = (cost up to j) + squares[j]. Of C[k, j] there is left
    ``-x_j x_k (N_j - N_k) + (x_j + x_k) (B_j - B_k)``, where three numbers stand for a candidate k.
    """
    x, counts, sums = problem.points, problem.counts, problem.sums
    last = len(x) - 1
    moments = counts * x - sums
    energy, start, best = np.empty(last + 1), np.empty(last + 1), np.full(last + 1, np.inf)
    before = np.zeros(last + 1, np.int64)

    def compare(j: int, first: int, end: int) -> None:
        """Try the candidates first .. end for node j; of equal ones the earliest stays."""
        k = slice(first, end + 1)
        if problem.clusters:
            n, b = counts[j] - counts[k], sums[j] - sums[k]
            value = energy[k] - b * b / np.where(n > 0, n, 1.0)
        else:
            value = (start[k] - x[k] * moments[j]) + moments[k] * x[j]
        where = int(np.argmin(value))
        if value[where] < best[j]:
            best[j], before[j] = value[where], first + where

    def settle(j: int) -> None:
        """Node j has seen all its candidates and becomes one."""
        if problem.clusters:
            energy[j] = best[j] + price if j else problem.squares[0]
        else:
            energy[j] = best[j] + (x[j] * sums[j] + price) if j else problem.squares[0]
        start[j] = energy[j] - x[j] * sums[j]

    def offer(k: int) -> None:
        """Candidate k for all later nodes: the faster way round where nodes are few."""
        if problem.clusters:
            n, b = counts[k + 1 :] - counts[k], sums[k + 1 :] - sums[k]
            value = energy[k] - b * b / np.where(n > 0, n, 1.0)
        else:
            value = (start[k] - x[k] * moments[k + 1 :]) + moments[k] * x[k + 1 :]
        better = value < best[k + 1 :]
        best[k + 1 :][better], before[k + 1 :][better] = value[better], k

    def halve(left: int, right: int) -> None:
        """Settle the nodes between; `left` is settled, `right` has seen the candidates up to it."""
        if right - left == 1:
            return
        middle = (left + right) // 2
        compare(middle, int(before[left]), int(before[right]))
        halve(left, middle)
        settle(middle)
        compare(right, left + 1, middle)
        halve(middle, right)

    settle(0)
    if last < _FEW:
        for k in range(last):
            offer(k)
            settle(k + 1)
    else:
        compare(last, 0, 0)
        halve(0, last)
    path = [last]
    while path[-1]:
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])


def from_middle(cells: F64, front: bool) -> F64:
    """Turn what each node holds into prefix sums counted from the middle node, with `front` one before the first node.

    So what lies far out on one side does not blur the sums of the other.
    """
    middle = len(cells) // 2
    left = -np.cumsum(cells[middle::-1])[::-1]  # before node 0, 1, ..., middle
    made = np.concatenate([left, [0.0], np.cumsum(cells[middle + 1 :])])
    return made if front else made[1:]
