"""The operations of evenly spaced levels as cases of test_backends.py."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from edge_inputs import edge_inputs
from numpy.typing import NDArray

LENGTHS = (0, 1, 3, 17, 4096, 4099, 70_001)
RANGES = ((-4.5, 4.5), (0.0, 1e-42), (-3e38, 3e38), (-0.25, 6e4), (1.0, 1.0 + 2.0**-23))


def arguments() -> Iterator[tuple[NDArray[np.float32], float, float, int]]:
    """(x, low, scale, levels), with values outside the range, NaN and infinity."""
    for i, n in enumerate(LENGTHS):
        for j, x in enumerate(edge_inputs(n).values()):
            low, high = RANGES[(i + j) % len(RANGES)]
            for levels in (1, 2, 37, 256, 257, 65_536)[(i + j) % 3 :: 3]:
                yield x, low, levels / (high - low), levels


def case_uniform_indices(backend: Any) -> Iterator[NDArray[Any]]:
    for x, low, scale, levels in arguments():
        out = np.full(len(x), 7, np.uint16)
        with np.errstate(all="ignore"):
            backend.uniform_indices(x, low, scale, levels, out)
        yield out


def case_uniform_counts(backend: Any) -> Iterator[NDArray[Any]]:
    for x, low, scale, levels in arguments():
        counts = np.full(levels, 7, np.uint64)
        with np.errstate(all="ignore"):
            backend.uniform_counts(x, low, scale, counts)
        yield counts
    wide = np.random.default_rng(0).standard_normal(1_200_000).astype(np.float32)  # more pieces than tables
    counts = np.empty(1000, np.uint64)
    backend.uniform_counts(wide, -4.0, 125.0, counts)
    assert counts.sum() == len(wide)
    yield counts


def symbols() -> Iterator[NDArray[np.uint16]]:
    for n in LENGTHS:
        g = np.random.default_rng(n)
        for top in (1, 2, 256, 300, 65_536):
            yield g.integers(0, top, n).astype(np.uint16)


def case_split_symbols(backend: Any) -> Iterator[NDArray[Any]]:
    for s in symbols():
        high, low = np.full(len(s), 7, np.uint8), np.full(len(s), 7, np.uint8)
        backend.split_symbols(s, high, low)
        yield high
        yield low


def case_join_symbols(backend: Any) -> Iterator[NDArray[Any]]:
    for s in symbols():
        high = (s >> 8).astype(np.uint8)
        low = np.concatenate([s[high == v] for v in range(256)]).astype(np.uint8)
        out = np.full(len(s), 7, np.uint16)
        backend.join_symbols(high, low, out)
        assert np.array_equal(out, s)
        yield out
