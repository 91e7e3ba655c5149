"""Arrays of more than 2^31 coordinates and positions beyond 2^32: 64-bit indices everywhere.

The arrays are zeros that nothing ever wrote, which take no memory, but for a few windows.
"""

import numpy as np
import pytest

import tersor
from tersor.kernels import ops

BLOCK = 4096
SIZE = (1 << 31) + 5 * BLOCK + 77
# Whole blocks at the start, around 2^31, and the last ones with the short end.
WINDOWS = [slice(0, 2 * BLOCK), slice((1 << 31) - 2 * BLOCK, (1 << 31) + 2 * BLOCK), slice((1 << 31) + 4 * BLOCK, SIZE)]

needs_native = pytest.mark.skipif(ops.backend_name() != "native", reason="hours on the reference backend")


def normal(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.fixture(scope="module")
def big():
    x = np.zeros(SIZE, np.float32)
    for i, w in enumerate(WINDOWS):
        x[w] = normal(w.stop - w.start, seed=i)
    return x


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("spec", ["eden:1", "eden:2,rotations=2,store_norm=true"])
def test_eden(big, spec):
    """Each window has the bytes of the part encoded by itself, and decodes to the part's values, at its place."""
    codec = tersor.get_codec(spec)
    enc = codec.encode(big, seed=3)
    enc = tersor.from_bytes(enc.to_bytes(), max_elements=SIZE)
    out = np.zeros(SIZE, np.float32)
    codec.decode(enc, out=out, add=True)
    scales = enc.planes["scales"].values().copy()
    for w in WINDOWS:
        part = codec.encode(big[w], seed=3, start=w.start)
        for name, plane in part.planes.items():
            begin = w.start // BLOCK * plane.stride
            if plane.stride:
                assert np.array_equal(enc.planes[name].data[begin : begin + len(plane.data)], plane.data), name
        assert np.array_equal(out[w], codec.decode(part))
        scales[w.start // BLOCK : -(-w.stop // BLOCK)] = 0
        out[w] = 0
    assert not scales.any() and not out.any()
    with np.errstate(all="raise"):
        assert enc.size == SIZE and enc.units.count == -(-SIZE // BLOCK)


@pytest.mark.slow
@needs_native
def test_rows():
    rows = (1 << 19) + 9
    x = np.zeros((rows, BLOCK), np.float32)
    x[-12:] = normal(12 * BLOCK).reshape(12, BLOCK)
    codec = tersor.get_codec("eden:1")
    enc = codec.encode(x, seed=3, axis=-1)
    part = codec.encode(x[-12:], seed=3, axis=-1, start=rows - 12)
    assert np.array_equal(enc[rows - 12 :].planes["codes"].data, part.planes["codes"].data)
    assert np.array_equal(
        codec.decode(enc.take([rows - 1, 5, rows - 12])), codec.decode(part)[[11, 0, 0]] * [[1], [0], [1]]
    )


@pytest.mark.slow
@needs_native
def test_the_first_bad_value(big):
    for at in ((1 << 31) + 3 * BLOCK + 1, SIZE - 1):
        before = big[at]
        big[at] = np.inf
        try:
            with pytest.raises(tersor.NonFiniteError) as error:
                tersor.get_codec("eden:1").encode(big, seed=1)
            assert error.value.index == at
            assert ops.current().first_nonfinite(big) == at
        finally:
            big[at] = before


@pytest.mark.slow
@needs_native
def test_other_kernels(big):
    """Packing and int8 (2 GiB of codes)."""
    lib = ops.current()
    codes = np.zeros((1, SIZE), np.uint8)
    codes[0, -9:] = 1
    packed = np.empty((1, (SIZE + 7) // 8), np.uint8)
    lib.pack(codes, 1, packed)
    assert not packed[0, :-3].any()
    lib.unpack(packed, 1, codes)
    assert codes[0, -9:].all() and not codes[0, :-9].any()
    whole, scales = codes[0].view(np.int8), np.empty(-(-SIZE // 256), np.float32)
    assert lib.int8_encode(big, SIZE, 256, whole, scales) == -1
    for w in WINDOWS:
        n = w.stop - w.start
        part, few = np.empty(n, np.int8), np.empty(-(-n // 256), np.float32)
        lib.int8_encode(big[w], n, 256, part, few)
        assert np.array_equal(whole[w], part)
        assert np.array_equal(scales[w.start // 256 : -(-w.stop // 256)], few)


@pytest.mark.parametrize("start", [(1 << 32) - BLOCK, 1 << 32, (1 << 40) + 3 * BLOCK, (1 << 63) - 2 * BLOCK])
def test_positions_beyond_2_to_the_32(start):
    """Both backends draw there what no lower position draws, across the edge too."""
    codec = tersor.get_codec("eden:3,rotations=1")
    x = normal(2 * BLOCK)
    enc = codec.encode(x, seed=3, start=start)
    with tersor.backend("reference"):
        assert codec.encode(x, seed=3, start=start).to_bytes() == enc.to_bytes()
        assert np.array_equal(codec.decode(enc), tersor.decode(enc))
    low = codec.encode(x, seed=3, start=start % (1 << 32)).planes["codes"].data
    same = np.array_equal(enc.planes["codes"].data, low)
    assert same == (start < 1 << 32)
    if start + 2 * BLOCK < 1 << 63:
        later = codec.encode(x[BLOCK:], seed=3, start=start + BLOCK)
        assert np.array_equal(later.planes["codes"].data, enc.planes["codes"].data[len(later.planes["codes"].data) :])
    assert tersor.nmse(x, tersor.decode(enc)) < 0.05
