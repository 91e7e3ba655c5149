"""EDEN's native encoder and decoder against the NumPy reference, to the bit: lengths, scales, units, threads."""

import numpy as np
import pytest
from kernel_cases import (
    EMPTY_U8,
    KEY,
    LENGTHS,
    START,
    assert_same_eden,
    decode,
    encode,
    equal,
    everywhere,
    inputs,
    native,
)

from tersor.quantize import lloyd_max


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("d", LENGTHS)
def test_eden(bits: int, d: int) -> None:
    for i, x in enumerate(inputs(d, bits).values()):
        # Options walk through their values as inputs, widths and lengths do; the next tests vary them one by one.
        turn = i + bits + d
        options = {"kind": turn % 4, "dtype": turn % 3, "rotations": (0, 1, 0, 2, 3)[turn % 5]}
        full, unit = turn % 7 == 0, (4096, 4096, 300)[turn % 3]
        if turn % 2:
            assert_same_eden(x, bits, unit, False, full, **options)
        else:
            assert_same_eden(x, bits, max(d, 1), True, full, **options)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("dtype", range(3))
def test_eden_scales(kind: int, dtype: int) -> None:
    for scale in (1e-42, 1e-30, 3e-8, 1e-5, 1.0, 65519.0, 65520.0, 1e30, 3e38):
        x = (np.random.default_rng(0).standard_normal(1100).clip(-1, 1) * scale).astype(np.float32)
        assert_same_eden(x, 3, 1024, False, False, kind=kind, dtype=dtype)


@pytest.mark.parametrize("row", [1, 2, 7, 16, 64, 80, 96, 128, 2100])
def test_eden_rows(row: int) -> None:
    x = np.random.default_rng(row).standard_normal(61 * row).astype(np.float32)
    x[::37] *= 100
    for bits, rotations in ((1, 1), (4, 2), (8, 0)):
        assert_same_eden(x, bits, row, True, False, 1, 2, 3, rotations=rotations)


@pytest.mark.parametrize("unit", [1, 2, 3, 10, 33, 1000, 2048, 4096, 10000])
@pytest.mark.parametrize("start", [0, 5, 2**40 + 17])
def test_eden_units_of_a_long_vector(unit: int, start: int) -> None:
    x = np.random.default_rng(unit).standard_normal(min(12345, 100 * unit + 1)).astype(np.float32)
    assert_same_eden(x, 4, unit, False, False, 1, 3, start=start)


@pytest.mark.parametrize(("d", "full"), [(300_000, True), (2**18, False), (280_000, False), (3 * 2**18 + 4097, False)])
def test_eden_big_unit(d: int, full: bool) -> None:
    x = np.random.default_rng(d).standard_normal(d).astype(np.float32)
    assert_same_eden(x, 4, 2**18 if d > 2**19 else d, False, full, 1, 2, 3, start=0)


def test_eden_many_units() -> None:
    x = np.random.default_rng(0).standard_normal(50 * 4096 + 5).astype(np.float32)
    x[4096 * 33] = np.nan
    x[4096 * 7 + 1] = np.inf
    assert encode(native, x)[4][0] == 4096 * 7 + 1
    assert_same_eden(x, 4, 4096, False, False, 1, 2, 3)


def test_unaligned_arrays() -> None:
    x = np.random.default_rng(0).standard_normal(5001).astype(np.float32)
    wanted = encode(native, x)
    back = decode(native, wanted, x)
    transformed = back[:4096].reshape(1, -1).copy()
    native.fwht(transformed)
    view = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32)
    assert not view.flags.aligned
    for where in everywhere():
        view[:] = x
        made = encode(native, view)
        assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), where
        codes, scales, rounds = wanted[:3]
        tail = (4096, KEY, START, False, 4, lloyd_max.levels(4), 1.0, False, EMPTY_U8, False)
        native.eden_decode(codes, scales, rounds, *tail, view)
        assert equal(view.copy(), back), where
        native.fwht(view[:4096].reshape(1, -1))
        assert equal(view[:4096].copy(), transformed[0]), where
