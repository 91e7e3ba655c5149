"""Levels with shared randomness on every SIMD level and thread count, to the bit, and what native code refuses."""

import numpy as np
import pytest
import test_backends
from kernel_cases import EMPTY_U8, equal, everywhere, native

from tersor.kernels import reference


@pytest.mark.parametrize("operation", ["shared_search", "shared_encode", "shared_decode"])
def test_every_level(operation: str) -> None:
    case = getattr(test_backends, f"case_{operation}")
    wanted = list(case(reference))
    for where in everywhere(1, 2):
        made = list(case(native))
        assert len(made) == len(wanted)
        assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), where


def test_long_arrays_with_many_tasks() -> None:
    g = np.random.default_rng(0)
    x = g.standard_normal(100_100).astype(np.float32)
    for unit, bits, shared, by_rows in (
        (100_100, 4, 2, False),
        (128, 3, 4, False),
        (77, 2, 3, True),
        (5000, 8, 8, False),
    ):
        units = -(-len(x) // unit)
        levels = np.sort(g.standard_normal((units, shared << bits)).astype(np.float32) * 3, axis=1).reshape(-1)
        size = sum((min(unit, len(x) - k) * bits + 7) // 8 for k in range(0, len(x), unit))
        codes, decoded = np.zeros(size, np.uint8), np.zeros(len(x), np.float32)
        draws = (5, 3, by_rows, 1)
        sums = reference.shared_encode(x, unit, levels, bits, shared, *draws, 9, 3, codes)
        reference.shared_decode(codes, unit, levels, bits, shared, *draws, 1.0, False, EMPTY_U8, decoded)
        for where in everywhere(1, 3):
            made, out = np.full(size, 0xAA, np.uint8), np.ones(len(x), np.float32)
            assert native.shared_encode(x, unit, levels, bits, shared, *draws, 9, 3, made) == sums, where
            native.shared_decode(made, unit, levels, bits, shared, *draws, 1.0, False, EMPTY_U8, out)
            assert equal(made, codes) and equal(out, decoded), where


def test_sizes_that_do_not_match() -> None:
    x, levels, codes = np.zeros(20, np.float32), np.zeros(36, np.float32), np.zeros(6, np.uint8)
    native.shared_encode(x, 8, levels[:24], 2, 2, 1, 0, False, 0, 1, 0, codes[:5])
    wrong = (  # unit, levels, bits, shared, start, rows, turn, codes
        (8, 24, 0, 2, 0, False, 0, 5),
        (8, 24, 9, 2, 0, False, 0, 5),
        (0, 24, 2, 2, 0, False, 0, 5),
        (8, 23, 2, 2, 0, False, 0, 5),
        (8, 24, 2, 2, 0, False, 0, 6),
        (8, 24, 2, 3, 0, False, 0, 5),
        (8, 12, 2, 1, 0, False, 0, 5),
        (8, 24, 2, 9, 0, False, 0, 5),
        (8, 24, 2, 2, 0, False, 2, 5),
        (8, 24, 2, 2, 0, False, -1, 5),
        (8, 24, 2, 2, 0, True, 0, 5),
        (8, 24, 2, 2, 2**64 - 5, False, 0, 5),
    )
    for unit, n, bits, shared, start, by_rows, turn, size in wrong:
        draws = (bits, shared, 1, start, by_rows, turn)
        with pytest.raises(ValueError):
            native.shared_encode(x, unit, levels[:n], *draws, 1, 0, codes[:size])
        with pytest.raises(ValueError):
            native.shared_decode(codes[:size], unit, levels[:n], *draws, 1.0, False, EMPTY_U8, x)
    with pytest.raises(ValueError):
        native.shared_decode(codes[:5], 8, levels[:24], 2, 2, 1, 0, False, 0, 1.0, False, np.zeros(2, np.uint8), x)
    points, v, none = np.arange(8.0), np.zeros(8), np.zeros(0)
    native.shared_search(points, none, 4, v, 4, 2, 3)
    for size, count, shared in ((3, 4, 2), (4, 3, 1), (4, 4, 3), (4, 4, 0), (0, 4, 2), (8, 4, 2)):
        with pytest.raises(ValueError):
            native.shared_search(points, none, size, v, count, shared, 3)
    with pytest.raises(ValueError):
        native.shared_search(points, np.ones(7), 4, v, 4, 2, 3)
