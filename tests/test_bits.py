"""Bit packing against plain integers: LSB first, any width from 1 to 32, rows on bytes of their own."""

import numpy as np
import pytest

from tersor.coding.bits import pack, packed_size, unpack

DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def dtype_for(bits):
    return DTYPES[8 if bits <= 8 else 16 if bits <= 16 else 32]


def by_hand(row, bits):
    """Code i is bits [i * b, (i + 1) * b) of one big little-endian integer."""
    number = sum(int(c) << (i * bits) for i, c in enumerate(row))
    return number.to_bytes((len(row) * bits + 7) // 8, "little")


@pytest.mark.parametrize("bits", range(1, 33))
def test_pack_is_a_bit_stream(bits):
    rng = np.random.default_rng(bits)
    for m, n in ((1, 0), (0, 5), (1, 1), (3, 7), (2, 8), (5, 31), (1, 4096), (2, 129)):
        codes = rng.integers(0, 1 << bits, (m, n), dtype=np.uint64).astype(dtype_for(bits))
        packed = pack(codes, bits)
        assert packed.shape == (m, packed_size(n, bits)) and packed.dtype == np.uint8
        assert [row.tobytes() for row in packed] == [by_hand(row, bits) for row in codes]
        back = unpack(packed, bits, n)
        assert back.dtype == dtype_for(bits) and np.array_equal(back, codes)


@pytest.mark.parametrize("bits", range(1, 9))
def test_extreme_codes(bits):
    top = (1 << bits) - 1
    for code in (0, top):
        codes = np.full((2, 37), code, np.uint8)
        assert np.array_equal(unpack(pack(codes, bits), bits, 37), codes)
    # what is above the last code is zero
    last = pack(np.full((1, 37), top, np.uint8), bits)[0, -1]
    assert int(last) == (1 << ((37 * bits - 1) % 8 + 1)) - 1


def test_strided_input():
    codes = np.arange(60, dtype=np.uint8).reshape(6, 10)
    assert np.array_equal(pack(codes[::2, ::-1], 6), pack(codes[::2, ::-1].copy(), 6))
    wide = np.zeros((4, 20), np.uint8)
    wide[:, ::2] = pack(np.arange(80, dtype=np.uint8).reshape(4, 20) % 16, 4)
    assert np.array_equal(unpack(wide[:, ::2], 4, 20), np.arange(80).reshape(4, 20) % 16)


@pytest.mark.parametrize(
    ("shape", "bits", "n"), [((1, 3), 4, 5 + 3), ((1, 2), 4, 5), ((4,), 4, 8), ((1, 1, 4), 4, 8), ((2, 0), 1, 1)]
)
def test_wrong_sizes(shape, bits, n):
    with pytest.raises(ValueError, match="bytes a row"):
        unpack(np.zeros(shape, np.uint8), bits, n)


def test_sizes():
    assert [packed_size(n, b) for n, b in ((0, 3), (1, 1), (8, 1), (9, 1), (3, 3), (4096, 4))] == [0, 1, 1, 2, 2, 2048]
