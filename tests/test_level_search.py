"""The search for levels against dynamic programming, and the native one against NumPy on every SIMD level."""

import inspect

import numpy as np
import pytest
from level_cases import case_key_gather, case_key_histogram, case_optimal_path, case_optimal_rows

from tersor.kernels import reference
from tersor.kernels.reference.level_search import Problem
from tersor.quantize import adaptive, candidates


def cost_matrix(x, weights, clusters):
    """C[k, j] of all pairs of distinct values (or of bounds of clusters) by direct summation, O(d^3)."""
    values = np.unique(x)
    w = np.array([weights[x == v].sum() for v in values])
    m = len(values)
    size = m + 1 if clusters else m
    costs = np.full((size, size), np.inf)
    for k in range(size):
        for j in range(k + 1, size):
            if clusters:
                inner, mass = values[k:j], w[k:j]
                mean = (mass * inner).sum() / mass.sum() if mass.sum() else 0.0
                costs[k, j] = (mass * (inner - mean) ** 2).sum()
            else:
                inner, mass = values[k : j + 1], w[k : j + 1]
                costs[k, j] = (mass * (values[j] - inner) * (inner - values[k])).sum()
    return costs


def optima(costs, most):
    """Least cost of a path with at most 1, 2, ... edges: the O(s d^2) dynamic programme."""
    best, found = np.where(np.arange(len(costs)) == 0, 0.0, np.inf), []
    for _ in range(most):
        best = np.minimum(best, (best[:, None] + costs).min(axis=0))
        found.append(best[-1])
    return found


def tiny(seed, count, size=10):
    """Small inputs of many kinds, most with ties or equal steps."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        d = int(rng.integers(1, size))
        kinds = (
            rng.integers(0, 6, d),
            rng.standard_normal(d),
            rng.integers(0, 30, d),
            np.arange(d),
            np.round(rng.standard_normal(d), 1),
            rng.integers(0, 2, d) * 1e6 + rng.integers(0, 3, d),
        )
        yield i, kinds[i % len(kinds)].astype(np.float64), rng.integers(1, 4, d).astype(np.float64)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_dynamic_programme(unbiased, weighted):
    for i, x, w in tiny(1, 1200):
        w = w if weighted else np.ones(len(x))
        best = optima(cost_matrix(x, w, not unbiased), max(len(x), 1))
        for s in range(2, len(x) + 2):
            edges = s - 1 if unbiased else s
            expected = best[min(edges, len(best)) - 1] if len(np.unique(x)) > 1 else 0.0
            found = adaptive.solve(x, s, weights=w if weighted else None, method="exact", unbiased=unbiased)
            real = adaptive.expected_error(x, found.levels, weights=w, unbiased=unbiased)
            scale = max(float((w * (x - x.mean()) ** 2).sum()), 1e-300)
            assert abs(real - expected) <= 1e-13 * scale, (i, x, w, s)
            assert abs(found.error - expected) <= 1e-13 * scale
            assert len(found.levels) <= s


@pytest.mark.parametrize("unbiased", [True, False])
def test_rows_equal_the_dynamic_programme(unbiased):
    for i, x, _ in tiny(2, 900):
        costs = cost_matrix(x, np.ones(len(x)), not unbiased)
        for s in range(2, len(x) + 2):
            (levels,) = adaptive.levels(x.astype(np.float32)[None], s, unbiased=unbiased, axis=-1)
            best = optima(costs, s)[s - 2 if unbiased else s - 1] if len(np.unique(x)) > 1 else 0.0
            real = adaptive.expected_error(x.astype(np.float32), levels, unbiased=unbiased)
            assert real <= best + 1e-6 * ((x - x.mean()) ** 2).sum(), (i, x, s)


@pytest.mark.slow
def test_equals_the_dynamic_programme_on_longer_inputs():
    rng = np.random.default_rng(3)
    for i in range(60):
        x = [rng.standard_normal(150), rng.integers(0, 60, 150).astype(float), np.exp(2 * rng.standard_normal(150))][
            i % 3
        ]
        for unbiased in (True, False):
            best = optima(cost_matrix(x, np.ones(150), not unbiased), 40)
            for s in (2, 3, 5, 8, 17, 40):
                found = adaptive.solve(x, s, method="exact", unbiased=unbiased)
                assert found.error == pytest.approx(best[s - 2 if unbiased else s - 1], rel=1e-10, abs=1e-12 * (x @ x))


def test_equal_gains_are_spliced():
    """Integers 0..12, 8 values: no price gives 7 intervals, the best path has cost 5."""
    x = np.arange(13.0)
    assert adaptive.solve(x, 8).error == pytest.approx(5.0, abs=1e-12)
    assert len(adaptive.levels(x, 8)) == 8


def test_coarser_problems_are_exact_for_the_same_data():
    c = candidates.exact(np.random.default_rng(4).standard_normal(500))
    problem = Problem(c.points, c.counts[1:], c.sums[1:], c.squares[1:], False)
    coarse = problem.coarser(7)
    path = np.array([0, 10, 30, len(coarse.points) - 1])
    same = np.append(path[:-1] * 7, len(problem.points) - 1)
    assert coarse.cost(path) == pytest.approx(problem.cost(same), rel=1e-12)


@pytest.mark.parametrize("case", [case_optimal_path, case_optimal_rows, case_key_histogram, case_key_gather])
def test_every_level_gives_the_bytes_of_the_reference(case):
    native = pytest.importorskip("tersor.kernels._native")
    from kernel_cases import everywhere

    with np.errstate(all="ignore"):
        expected = list(case(reference))
        for where in everywhere(1, 2):
            for i, (a, b) in enumerate(zip(expected, case(native), strict=True)):
                assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (where, i)
    assert inspect.isgeneratorfunction(case)


def test_native_refuses_wrong_sizes():
    native = pytest.importorskip("tersor.kernels._native")
    one, two = np.zeros(1), np.zeros(2)
    for arrays, edges, path in (
        ((one[:0],) * 4, 1, 2),
        ((two, one, two, two), 1, 2),
        ((two, two, two, one), 1, 2),
        ((two,) * 4, 0, 1),
        ((two,) * 4, 3, 3),
    ):
        with pytest.raises(ValueError):
            native.optimal_path(*arrays, edges, False, np.zeros(path, np.int64))
    x = np.zeros(6, np.float32)
    for row, levels, size in ((0, 2, 0), (4, 2, 4), (3, 1, 2), (3, 257, 514), (3, 2, 3)):
        with pytest.raises(ValueError):
            native.optimal_rows(x, row, levels, False, np.zeros(size, np.float32))
    cells, ends = np.zeros(65536, np.uint64), np.zeros(3)
    with pytest.raises(ValueError):
        native.key_histogram(x, 0.0, cells[1:], cells, ends)
    with pytest.raises(ValueError):
        native.key_histogram(x, 0.0, cells, cells.copy(), ends[1:])
    with pytest.raises(ValueError):
        native.key_gather(x, 0.0, np.zeros(9, np.uint8), x)
