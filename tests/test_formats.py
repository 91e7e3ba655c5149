"""The plain formats by hand: int8's scale and rounding, float16 and bfloat16 to nearest even, `none` as it is."""

import numpy as np
import pytest

import tersor
from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16


def planes(enc):
    return {name: plane.values() for name, plane in enc.planes.items()}


def test_int8_rounds_ties_to_even():
    """max |x| = 127, so that the codes are the numbers themselves."""
    x = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -127, 0.499, -0.0], np.float32)
    made = planes(tersor.Int8().encode(x))
    assert made["codes"].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -127, 0, 0]
    assert made["scales"].tolist() == [1.0]
    assert tersor.roundtrip(x, "int8").tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -127, 0, 0]


def test_int8_has_a_scale_a_block_and_rows_have_blocks_of_their_own():
    x = np.arange(1, 41, dtype=np.float32).reshape(2, 20)
    vector = planes(tersor.Int8(block=16).encode(x))
    assert vector["scales"].tolist() == (np.array([16, 32, 40]) / 127).astype(np.float32).tolist()
    rows = planes(tersor.Int8(block=16).encode(x, axis=-1))
    assert rows["scales"].tolist() == (np.array([16, 20, 36, 40]) / 127).astype(np.float32).tolist()
    for axis in (None, -1):
        assert np.max(np.abs(tersor.roundtrip(x, "int8:16", axis=axis) - x)) <= 40 / 254 * 1.00001


def test_float16_to_nearest_even():
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519, 2**-25, 2**-24 * 1.5, -0.0], np.float32)
    expected = [1, 1 + 2**-9, 65504, 65504, 0, 2**-23, -0.0]
    got = tersor.roundtrip(x, "fp16")
    assert got.tolist() == expected and np.signbit(got[-1])
    with pytest.raises(tersor.RangeError, match=r"x\[1\]"):
        tersor.Float16().encode(np.array([1, 65520], np.float32))


def test_bfloat16_to_nearest_even():
    top = float(bfloat16_to_float32(np.array([0x7F7F], np.uint16))[0])
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, top, 3.4028235e38, -3.4028235e38, 1e-45, 2**-133, -0.0], np.float32)
    got = tersor.roundtrip(x, "bf16")
    assert got.tolist() == [1, 1 + 2**-6, top, top, -top, 0, 2**-133, -0.0] and np.signbit(got[-1])
    odd = np.array([np.inf, -np.inf, np.nan], np.float32)
    odd = np.append(odd, np.array([0x7F800001], np.uint32).view(np.float32))  # NaN whose upper half alone is infinity
    back = bfloat16_to_float32(float32_to_bfloat16(odd))
    assert back[:2].tolist() == [np.inf, -np.inf] and np.isnan(back[2:]).all()


def test_bfloat16_agrees_with_torch():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = x[np.abs(x) < 3e38]
    theirs = torch.from_numpy(x.copy()).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(float32_to_bfloat16(x), theirs)


def test_none_is_lossless():
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([0.1, -0.0, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
        enc = tersor.NoCompression().encode(x)
        assert enc.planes["values"].data.tobytes() == x.tobytes() == tersor.decode(enc).tobytes()
    x = np.array([np.nan, -np.inf, 1], np.float32)
    assert tersor.roundtrip(x, "none", nonfinite="propagate").tobytes() == x.tobytes()


@pytest.mark.parametrize("spec", ["eden:4", "int8", "eden:1,scale=biased"])
def test_largest_values_saturate_and_add(spec):
    """Estimates beyond float32 are clipped before they are added; what the caller's array holds is left alone."""
    x = np.copysign(np.float32(3e38), np.random.default_rng(0).standard_normal(64)).astype(np.float32)
    codec = tersor.get_codec(spec)
    enc = codec.encode(x, seed=1)
    value = codec.decode(enc)
    out = np.where(value > 0, np.float32(-1e38), np.float32(1e38))
    out[0], expected = np.inf, out + value
    codec.decode(enc, out=out, add=True)
    assert np.isfinite(value).all() and np.array_equal(out[1:], expected[1:]) and out[0] == np.inf


@pytest.mark.parametrize("block", [7, 2**20 + 1, 8.0, True, "8"])
def test_wrong_blocks(block):
    with pytest.raises(ValueError, match="block"):
        tersor.Int8(block)
