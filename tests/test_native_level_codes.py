"""Levels of each unit's own on every SIMD level and thread count, to the bit, and what the native backend refuses."""

import numpy as np
import pytest
import test_backends
from kernel_cases import EMPTY_U8, equal, everywhere, native

from tersor.kernels import reference


@pytest.mark.parametrize("operation", ["levels_encode", "levels_decode"])
def test_every_level(operation: str) -> None:
    case = getattr(test_backends, f"case_{operation}")
    wanted = list(case(reference))
    for where in everywhere(1, 2):
        made = list(case(native))
        assert len(made) == len(wanted)
        assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), where


def test_long_arrays_with_many_tasks() -> None:
    g = np.random.default_rng(0)
    x = g.standard_normal(300_001).astype(np.float32)
    for unit, bits in ((300_001, 4), (128, 3), (7, 2), (5000, 8)):
        units = -(-len(x) // unit)
        levels = np.sort(g.standard_normal((units, 1 << bits)).astype(np.float32) * 3, axis=1).reshape(-1)
        size = sum((min(unit, len(x) - k) * bits + 7) // 8 for k in range(0, len(x), unit))
        for stochastic in (True, False):
            codes = np.zeros(size, np.uint8)
            sums = reference.levels_encode(x, unit, levels, bits, 9, 3, stochastic, codes)
            for where in everywhere(1, 3):
                made = np.full(size, 0xAA, np.uint8)
                assert native.levels_encode(x, unit, levels, bits, 9, 3, stochastic, made) == sums, where
                assert equal(made, codes), where


def test_sizes_that_do_not_match() -> None:
    x, levels, codes = np.zeros(20, np.float32), np.zeros(12, np.float32), np.zeros(6, np.uint8)
    native.levels_encode(x, 8, levels, 2, 1, 0, True, np.zeros(5, np.uint8))
    for unit, n, bits, size in (
        (8, 12, 0, 5),
        (8, 12, 9, 5),
        (0, 12, 2, 5),
        (8, 11, 2, 5),
        (8, 12, 2, 6),
        (8, 12, 3, 5),
    ):
        with pytest.raises(ValueError):
            native.levels_encode(x, unit, levels[:n], bits, 1, 0, True, codes[:size])
        with pytest.raises(ValueError):
            native.levels_decode(codes[:size], unit, levels[:n], bits, 1.0, False, EMPTY_U8, x)
    with pytest.raises(ValueError):
        native.levels_decode(codes[:5], 8, levels, 2, 1.0, False, np.zeros(2, np.uint8), x)
