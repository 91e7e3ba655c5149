"""The entropy coder on every SIMD level and thread count, to the bit, and what the native code refuses."""

import numpy as np
import pytest
import rans_cases
from kernel_cases import equal, everywhere, native

from tersor.kernels import reference


@pytest.mark.parametrize("operation", ["count_symbols", "rans_encode", "rans_decode"])
def test_every_level(operation: str) -> None:
    case = getattr(rans_cases, f"case_{operation}")
    wanted = list(case(reference))
    for where in everywhere(1, 2):
        made = list(case(native))
        assert len(made) == len(wanted)
        for k, (a, b) in enumerate(zip(made, wanted, strict=True)):
            assert equal(a, b), (where, k)


def test_the_reciprocals_divide_exactly() -> None:
    """Every frequency of 12 bits (some of 15), with symbols that drive the states high and low, against exact division."""
    g = np.random.default_rng(0)
    for bits, step in ((12, 13), (15, 997)):
        total = 1 << bits
        for f in [*range(1, total, step), total // 2 - 1, total // 2, total // 2 + 1, total - 1]:
            freqs = np.array([f, total - f], np.uint32)
            x = g.integers(0, 2, 600).astype(np.uint8)
            x[:300] = f < total // 2
            wanted = rans_cases.encoded(reference, x, freqs)
            assert np.array_equal(rans_cases.encoded(native, x, freqs), wanted), f


def test_sizes_and_tables_that_are_wrong() -> None:
    u8, two = np.zeros(8, np.uint8), np.array([1, 1], np.uint32)
    room = np.zeros(24, np.uint8)
    assert native.rans_encode(u8, two, room) == 4 + 4
    for freqs in ([], [1], [3], [1, 2], [2**16], [2**31, 2**31], [2**32 - 1, 2**32 - 1, 2, 2], [1] * 512):
        table = np.array(freqs, np.uint32)
        with pytest.raises(ValueError):
            native.rans_encode(u8, table, room)
        with pytest.raises(ValueError):
            native.rans_decode(u8, table, u8)
    for out in (room[:-1], np.zeros(25, np.uint8)):
        with pytest.raises(ValueError):
            native.rans_encode(u8, two, out)
    with pytest.raises(ValueError):
        native.count_symbols(u8, np.zeros(255, np.uint64))
