"""The native backend against the NumPy reference, to the bit: random words, transforms, packing and integer codecs."""

from typing import Any

import numpy as np
import pytest
from kernel_cases import LENGTHS, equal, everywhere, inputs, native, units_of
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels import reference
from tersor.kernels.lengths import padded_length

# Random123's kat_vectors for philox4x32-10: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: str, key: str, result: str) -> None:
    c, k = ([int(word, 16) for word in text.split()] for text in (counter, key))
    for where in everywhere():
        out = np.zeros((1, 4), np.uint32)
        native.philox_blocks(k[0] | k[1] << 32, c[2], c[3], c[0] | c[1] << 32, out)
        assert out[0].tolist() == [int(word, 16) for word in result.split()], where


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 63, 64, 2**32 - 3, 2**34 - 2, 2**62 + 5])
def test_philox_words(start: int) -> None:
    for n in (0, 1, 2, 3, 63, 64, 65, 1000):
        wanted = rng.words(2**64 - 3, rng.ROUNDING, 2, start, n)
        for where in everywhere():
            out = np.zeros(n, np.uint32)
            native.philox(2**64 - 3, rng.ROUNDING, 2, start, out)
            assert equal(out, wanted), where


@pytest.mark.parametrize("n", [2**k for k in range(14)] + [2**16, 2**18, 2**19])
def test_fwht(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((1 + 100 // n, n)).astype(np.float32)
    wanted = x.copy()
    reference.fwht(wanted)
    for where in everywhere(1, 2, 3):
        made = x.copy()
        native.fwht(made)
        assert equal(made, wanted), where


@pytest.mark.parametrize("n", LENGTHS[1:])
@pytest.mark.parametrize("start", [0, 7, 4096, 2**33 + 31])
def test_rotate(n: int, start: int) -> None:
    padded = padded_length(n)
    x = np.random.default_rng(n).standard_normal((3, padded)).astype(np.float32)
    for rounds in (1, 2, 3):
        for inverse in (False, True):
            wanted = x.copy()
            reference.rotate(wanted, 99, start, rounds, inverse)
            for where in everywhere(2):
                made = x.copy()
                native.rotate(made, 99, start, rounds, inverse)
                assert equal(made, wanted), where


@pytest.mark.parametrize("bits", range(1, 33))
def test_pack(bits: int) -> None:
    g = np.random.default_rng(bits)
    for dtype in (np.uint8, np.uint16, np.uint32):
        if bits > 8 * np.dtype(dtype).itemsize:
            continue
        for m, n in [(1, n) for n in LENGTHS] + [(5, 3), (5, 63), (3, 200), (0, 8), (4, 0)]:
            codes = g.integers(0, 2**32, (m, n)).astype(dtype)  # bits above the width are dropped
            wanted = np.full((m, (n * bits + 7) // 8), 0xAA, np.uint8)
            reference.pack(codes, bits, wanted)
            for where in everywhere():
                packed, back = np.full_like(wanted, 0x55), np.full((m, n), 0xAA, dtype)
                native.pack(codes, bits, packed)
                native.unpack(packed, bits, back)
                assert equal(packed, wanted), (where, dtype, m, n)
                assert equal(back, codes & dtype(2**bits - 1)), (where, dtype, m, n)


@pytest.mark.parametrize(("bits", "unit"), [(1, 4096), (2, 100), (4, 4096), (5, 33), (8, 5000)])
def test_sq(bits: int, unit: int) -> None:
    def room(width: int) -> NDArray[np.uint8]:
        return np.full(sum((min(unit, d - k) * width + 7) // 8 for k in range(0, d, unit)), 0xAA, np.uint8)

    for d in LENGTHS:
        g = np.random.default_rng([d, bits])
        x = g.uniform(-1, 3, d).astype(np.float32)
        low, high = (float(x.min()), float(x.max())) if d else (0.0, 0.0)
        counts = g.integers(0, 3, units_of(d, unit)).astype(np.uint32)
        codes, first = room(bits), 2**35 + 3
        reference.sq_encode(x, unit, low, high, bits, 77, first, codes)
        for where in everywhere(1, 2):
            made = room(bits)
            native.sq_encode(x, unit, low, high, bits, 77, first, made)
            assert equal(made, codes), where
        for width in (bits + 1, 9, 17, 32):
            total = room(width)
            reference.sq_add(codes, bits, codes, bits, d, unit, total, width)
            for add in (False, True):
                decoded = x.copy()
                reference.sq_decode(total, unit, low, high, bits, width, counts, -1.7, add, decoded)
                for where in everywhere(1, 2):
                    made, out = room(width), x.copy()
                    native.sq_add(codes, bits, codes, bits, d, unit, made, width)
                    native.sq_decode(total, unit, low, high, bits, width, counts, -1.7, add, out)
                    assert equal(made, total), where
                    assert equal(out, decoded), where


def test_sq_range_of_no_width_and_values_outside() -> None:
    x = np.array([-5, -0.0, 0.0, 0.5, 1, 7, 1e30, np.inf, -np.inf], np.float32)
    for low, high in ((0.0, 0.0), (0.0, 1.0), (1.0, -1.0)):
        wanted = np.zeros(9, np.uint8)
        with np.errstate(all="ignore"):
            reference.sq_encode(x, 4096, low, high, 8, 1, 0, wanted)
        for where in everywhere():
            made = np.zeros(9, np.uint8)
            native.sq_encode(x, 4096, low, high, 8, 1, 0, made)
            assert equal(made[:7], wanted[:7]), where  # infinities are refused above the kernels


def int8_both_ways(backend: Any, x: NDArray[np.float32], row: int, block: int) -> list[NDArray[Any]]:
    codes = np.full(len(x), 99, np.int8)
    scales = np.full(len(x) // row * -(-row // block), 7, np.float32)
    out, added = np.full(len(x), 0.25, np.float32), np.full(len(x), 0.25, np.float32)
    with np.errstate(all="ignore"):
        bad = backend.int8_encode(x, row, block, codes, scales)
        backend.int8_decode(codes, scales, row, block, -1.5, False, out)
        backend.int8_decode(codes, scales, row, block, -1.5, True, added)
    return [codes, scales, out, added, np.array([bad])]


@pytest.mark.parametrize("block", [1, 5, 64, 4096])
def test_int8(block: int) -> None:
    for d in LENGTHS if block > 5 else LENGTHS[:14]:
        for name, x in inputs(d).items():
            row = 10 if d % 10 == 0 and name != "normal" else max(d, 1)
            wanted = int8_both_ways(reference, x, row, block)
            for where in everywhere(1, 2):
                made = int8_both_ways(native, x, row, block)
                assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), (where, name, d, row)
