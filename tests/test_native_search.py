"""The search for codes, to the bit: values on thresholds and cell borders, zeros, quantizers other than Lloyd-Max."""

from typing import Any

import numpy as np
import pytest
from kernel_cases import EMPTY_F32, equal, everywhere, native
from numpy.typing import NDArray

from tersor.kernels import reference
from tersor.kernels.reference.sums import lane_sum
from tersor.quantize import lloyd_max

F32 = NDArray[np.float32]
N = 4096


def encode(backend: Any, x: F32, bits: int, levels: F32, thresholds: F32) -> tuple[NDArray[Any], ...]:
    codes, scales = np.full((len(x) * bits + 7) // 8, 0xAA, np.uint8), np.zeros(-(-len(x) // N), np.float32)
    rounds = np.zeros(len(scales), np.uint8)
    found = backend.eden_encode(
        x, N, 5, 0, False, bits, levels, thresholds, 1, 0, 1, False, codes, scales, rounds, EMPTY_F32
    )
    return codes, scales, np.array(found)


def normalised(x: F32) -> F32:
    """What the encoder compares with thresholds, by FORMAT.md section 4."""
    w = (x * np.float32(np.ldexp(1.0, int(-np.frexp(np.max(np.abs(x)))[1])))).reshape(1, N)
    r = np.sqrt(lane_sum(w * w)[0])
    reference.rotate(w, 5, 0, 1, False)
    return (w * np.float32(np.sqrt(np.float64(N)) / (r * np.sqrt(np.float64(N))))).reshape(-1)


def mirrored(positive: F32) -> F32:
    return np.concatenate([-positive[::-1], [np.float32(0)], positive]).astype(np.float32)


def assert_same(x: F32, bits: int, levels: F32, thresholds: F32) -> None:
    wanted = encode(reference, x, bits, levels, thresholds)
    for where in everywhere():
        made = encode(native, x, bits, levels, thresholds)
        assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), where


@pytest.mark.parametrize("bits", range(1, 9))
def test_values_on_thresholds(bits: int) -> None:
    """Thresholds are moved onto values that occur, of both signs: ties everywhere."""
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        sizes = np.unique(np.abs(normalised(x)))
        positive = lloyd_max.thresholds(bits)[1 << (bits - 1) :]
        at = np.minimum(np.searchsorted(sizes, positive), len(sizes) - 1)
        assert_same(x, bits, lloyd_max.levels(bits), mirrored(np.maximum.accumulate(sizes[at])))


@pytest.mark.parametrize("bits", range(2, 9))
def test_cell_borders_and_zeros(bits: int) -> None:
    """A few equal values rotate to few distinct ones, zeros of both signs among them; powers of two are borders."""
    for count in (1, 2, 3, 5, 16, 1024):
        x = np.zeros(N, np.float32)
        x[:: N // count][:count] = 1
        x[-1] = np.float32(1e-44) if count == 2 else 0
        quarters = np.arange(1 - (1 << (bits - 1)), 1 << (bits - 1)) / 4
        for thresholds in (lloyd_max.thresholds(bits), quarters):
            assert_same(x, bits, lloyd_max.levels(bits), thresholds.astype(np.float32))


@pytest.mark.parametrize("bits", range(1, 9))
def test_any_quantizer(bits: int) -> None:
    g = np.random.default_rng(bits)
    x = g.standard_normal(N).astype(np.float32)
    count = (1 << bits) - 1
    for thresholds in (
        np.sort(g.standard_normal(count)),  # several in a cell, not symmetric
        np.sort(g.standard_normal(count)).round(1),  # equal ones
        np.zeros(count),
        np.full(count, 1e30),
        np.linspace(-100, 100, count),
        lloyd_max.thresholds(bits) + np.float32(0.001),
    ):
        levels = np.sort(g.standard_normal(count + 1)).astype(np.float32)
        assert_same(x, bits, levels, thresholds.astype(np.float32))


@pytest.mark.parametrize("step", [4.2, 2.0, 1.0824466, 0.259, 0.0646])
def test_few_levels_in_a_byte(step: float) -> None:
    """A uniform grid, then infinities: thresholds on values that occur, on borders of cells, and far outside."""
    for seed, scale in ((0, 1.0), (1, 0.01), (2, 30.0)):
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        x[:1] *= np.float32(scale * 50)
        z = np.sort(normalised(x))
        half = min(int(5.5 / step) + 1, 85)
        grid = ((np.arange(-half, half) + 0.5) * step).astype(np.float32)
        grid[::2] = z[np.minimum(np.searchsorted(z, grid[::2]), N - 1)]
        thresholds = np.full(255, np.inf, np.float32)
        thresholds[: len(grid)] = np.maximum.accumulate(grid)
        levels = np.full(256, half * step, np.float32)
        levels[: 2 * half + 1] = np.arange(-half, half + 1) * step
        assert_same(x, 8, levels, thresholds)
