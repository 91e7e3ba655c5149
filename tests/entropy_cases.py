"""Arguments for the searches for entropy-constrained levels, and their cases for test_backends.py."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import reference


def inputs() -> Iterator[NDArray[np.float64]]:
    g = np.random.default_rng(5)
    for m in (2, 3, 4, 9, 17, 40):
        yield g.standard_normal(m)
        yield g.integers(0, max(m // 2, 2), 3 * m).astype(np.float64)
        yield g.lognormal(0, 2, m) * 1e-160
    yield np.array([0.0] * 9 + [1.0])
    yield np.array([0.0, 1.0, 1.0 + 2**-50, 2.0])


def sums(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    t, counts = np.unique(x, return_counts=True)
    return t, np.cumsum(counts).astype(np.float64), np.cumsum(counts * t), np.cumsum(counts * t * t)


def costs(backend: Any, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    arguments = sums(x)
    m = len(arguments[0])
    made = np.full((3, m, m), 7.0)
    backend.entropy_costs(*arguments, *made)
    return arguments[1], *made


def case_log2(backend: Any) -> Iterator[Any]:
    g = np.random.default_rng(1)
    for n in (*range(36), 1001):
        x = np.ldexp(g.uniform(0.5, 1, n), g.integers(-1000, 1000, n))
        x[: n // 9] = 0
        x[n // 9 : n // 7] = 5e-324
        out = np.full(n, 7.0)
        backend.log2(x, out)
        yield out


def case_entropy_costs(backend: Any) -> Iterator[Any]:
    for x in inputs():
        yield from costs(backend, x)


def _searches(backend: Any, name: str) -> Iterator[Any]:
    for x in inputs():
        n, cost, up, joint = costs(reference, x)
        matrices = (cost, up, joint) if name == "joint_path" else (cost, up)
        m = len(n)
        for most in (0, 2, 3, 8):
            for multiplier in (0.0, 0.05, 1.0, 100.0):
                for starts, ends in ((1, 1), (2, 1), (1, m // 2)):
                    if starts + ends <= m and ends:
                        path = np.full(m, -1, np.int32)
                        count, value = getattr(backend, name)(*matrices, n, multiplier, most, starts, ends, path)
                        yield path[:count]
                        yield np.array([count, value])


def case_joint_path(backend: Any) -> Iterator[Any]:
    yield from _searches(backend, "joint_path")


def case_pair_path(backend: Any) -> Iterator[Any]:
    yield from _searches(backend, "pair_path")


def case_coded_path(backend: Any) -> Iterator[Any]:
    g = np.random.default_rng(2)
    for x in inputs():
        n, cost, up, _ = costs(reference, x)
        m = len(n)
        for levels in (2, 3, 7):
            for lengths in (g.uniform(0, 4, levels), np.arange(levels) * 1.0, np.full(levels, 2.0)):
                middle = np.linspace(0, m - 1, levels).astype(np.int32)
                for wide in (1, 3, m):
                    low, high = np.maximum(middle - wide, 0), np.minimum(middle + wide, m - 1)
                    for multiplier in (0.0, 0.3, 10.0):
                        path = np.full(m, -1, np.int32)
                        count, value = backend.coded_path(cost, up, n, lengths, low, high, multiplier, 1, 1, path)
                        yield path[:count]
                        yield np.array([count, value])
