"""int4 and the OCP Microscaling formats by hand: every element, ties, saturation, signs, scales, NaN, sizes, rows."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import tersor

MX = ("mxfp8", "mxfp8:e5m2", "mxfp6", "mxfp6:e3m2", "mxfp4", "mxint8")
# Of the specification: the element's bits, its largest value and that value's power of two, its least positive value.
LIMITS = {
    "mxfp8": (8, 448, 8, 2.0**-9),
    "mxfp8:e5m2": (8, 57344, 15, 2.0**-16),
    "mxfp6": (6, 7.5, 2, 0.125),
    "mxfp6:e3m2": (6, 28, 4, 0.0625),
    "mxfp4": (4, 6, 2, 0.5),
    "mxint8": (8, 127 / 64, 0, 1 / 64),
}
# Independent of tersor: the magnitudes as sign-free fractions, by exponent field and mantissa.
SHAPES = {"mxfp8": (4, 3, 7), "mxfp8:e5m2": (5, 2, 15), "mxfp6": (2, 3, 1), "mxfp6:e3m2": (3, 2, 3), "mxfp4": (2, 1, 1)}


def elements(spec):
    """The finite magnitudes of an element format by code, as exact fractions."""
    if spec == "mxint8":
        return [Fraction(k, 64) for k in range(128)]
    exponent, mantissa, bias = SHAPES[spec]
    made = []
    for field in range(1 << exponent):
        for m in range(1 << mantissa):
            nan = (exponent == 5 and field == 31) or (exponent == 4 and (field, m) == (15, 7))
            whole = (1 << mantissa) + m if field else m
            if not nan:
                made.append(Fraction(whole) * Fraction(2) ** (max(field, 1) - bias - mantissa))
    return made


def nearest(value, grid):
    """The magnitude of `grid` nearest to that of `value`; a tie goes to the even code."""
    v = min(abs(Fraction(float(value))), grid[-1])
    code = min(range(len(grid)), key=lambda k: (abs(grid[k] - v), k % 2))
    return math.copysign(float(grid[code]), value)


def planes(enc):
    return {name: plane.data for name, plane in enc.planes.items()}


def beside_top(spec, values):
    """Blocks of 32 whose first coordinate is the largest element, so that their scale is 1."""
    values = np.asarray(values, np.float32)
    blocks = np.zeros((-(-len(values) // 31), 32), np.float32)
    blocks[:, 0] = LIMITS[spec][1]
    blocks[:, 1:].reshape(-1)[:] = 0
    padded = np.zeros(len(blocks) * 31, np.float32)
    padded[: len(values)] = values
    blocks[:, 1:] = padded.reshape(-1, 31)
    enc = tersor.get_codec(spec).encode(blocks.reshape(-1))
    assert (planes(enc)["scales"] == 127).all()
    return tersor.decode(enc).reshape(-1, 32)[:, 1:].reshape(-1)[: len(values)]


@pytest.mark.parametrize("spec", MX)
def test_every_element_and_every_tie(spec):
    grid = elements(spec)
    _, top, emax, least = LIMITS[spec]
    assert float(grid[-1]) == top and float(grid[1]) == least and 2**emax <= top < 2 ** (emax + 1)
    exact = np.array([float(v) for v in grid], np.float32)
    assert beside_top(spec, exact).tolist() == exact.tolist()
    assert np.array_equal(beside_top(spec, -exact), -exact)
    between = [float((a + b) / 2) for a, b in itertools.pairwise(grid)]
    near = [np.nextafter(np.float32(v), np.float32(s)) for v in between for s in (0, np.inf)]
    values = np.array(between + near, np.float32)
    values = np.concatenate([values, -values, np.random.default_rng(0).uniform(-top, top, 2000).astype(np.float32)])
    assert beside_top(spec, values).tolist() == [nearest(v, grid) for v in values]


@pytest.mark.parametrize("spec", MX)
def test_codes_are_those_of_the_specification(spec):
    """Code i of a row of all codes is i, whatever the width: the bit stream of FORMAT.md section 5."""
    bits, top, *_ = LIMITS[spec]
    grid = elements(spec)
    values = np.array([float(v) for v in grid], np.float32)
    rows = np.zeros((len(values), 4), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2] = top, values, -values
    got = planes(tersor.get_codec(spec).encode(rows, axis=-1))["codes"].reshape(len(values), -1)
    for code, raw in enumerate(got):
        word = int.from_bytes(raw.tobytes(), "little")
        made = [word >> (bits * k) & ((1 << bits) - 1) for k in range(4)]
        sign = 1 << (bits - 1)
        minus = (256 - code) % 256 if spec == "mxint8" else code | sign
        assert made == [len(grid) - 1, code, minus, 0]


@pytest.mark.parametrize("spec", MX)
def test_saturation_scale_and_signs(spec):
    _, top, emax, least = LIMITS[spec]
    codec = tersor.get_codec(spec)
    for k in (-100, -1, 0, 1, 100):
        unit = 2.0**k
        beyond = np.float32(np.nextafter(np.float32(2.0 ** (emax + 1)), np.float32(0)) * unit)
        for v in (beyond, -beyond):
            enc = codec.encode(np.array([v, least * unit, -0.0], np.float32))
            assert planes(enc)["scales"].tolist() == [127 + k]
            value = tersor.decode(enc)
            assert value.tolist() == [math.copysign(top * unit, v), least * unit, 0]
            assert np.signbit(value[2]) == (spec != "mxint8")
        # one step of the exponent further, the scale follows
        assert planes(codec.encode(np.array([2.0 ** (emax + 1) * unit], np.float32)))["scales"].tolist() == [128 + k]


@pytest.mark.parametrize("spec", MX)
def test_powers_of_two_change_the_scale_alone(spec):
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    codec = tersor.get_codec(spec)
    usual = planes(codec.encode(x))
    for k in (-96, -3, 5, 96):
        made = planes(codec.encode(x * np.float32(2.0**k)))
        assert made["codes"].tobytes() == usual["codes"].tobytes()
        assert (made["scales"] == usual["scales"].astype(int) + k).all()


@pytest.mark.parametrize("spec", MX)
def test_ends_of_the_range(spec):
    codec, (_, top, emax, _) = tersor.get_codec(spec), LIMITS[spec]
    largest = np.finfo(np.float32).max
    assert planes(codec.encode(np.array([largest]).astype(np.float32)))["scales"].tolist() == [254 - emax]
    assert tersor.roundtrip(np.array([-largest], np.float32), spec).tolist() == [-math.ldexp(top, 127 - emax)]
    # E8M0 ends at 2^-127: blocks below keep that scale, and round to its elements.
    x = np.array([1.1e-38, -1e-40, 1e-45, 0], np.float32)
    enc = codec.encode(x)
    k = max(-127 - emax, -127)
    assert planes(enc)["scales"].tolist() == [k + 127]
    grid = elements(spec)
    assert tersor.decode(enc).tolist() == [math.ldexp(nearest(math.ldexp(float(v), -k), grid), k) for v in x]
    assert tersor.roundtrip(np.array([1e-45], np.float32), spec).tolist() == [0]


@pytest.mark.parametrize("spec", MX)
@pytest.mark.parametrize("factor", [1e-30, 1e30, 3e38])
def test_against_exact_arithmetic(spec, factor):
    """Blocks of any scale, each coordinate by fractions."""
    x = (np.random.default_rng(1).uniform(-1, 1, 70) * factor).astype(np.float32)
    enc = tersor.get_codec(spec).encode(x)
    value, grid = tersor.decode(enc), elements(spec)
    for i in range(0, 70, 32):
        k = math.frexp(float(np.max(np.abs(x[i : i + 32]))))[1] - 1 - LIMITS[spec][2]
        assert planes(enc)["scales"][i // 32] == k + 127
        for v, got in zip(x[i : i + 32], value[i : i + 32], strict=True):
            assert float(got) == math.ldexp(nearest(math.ldexp(float(v), -k), grid), k)


@pytest.mark.parametrize("spec", [*MX, "int4"])
def test_zero_and_nan_blocks(spec):
    x = np.ones(96, np.float32)
    x[:32], x[70] = -0.0, np.nan
    enc = tersor.get_codec(spec).encode(x, nonfinite="propagate")
    made = planes(enc)
    per_block = len(made["codes"]) // 3
    assert not made["codes"][:per_block].any() and not made["codes"][2 * per_block :].any()
    if spec != "int4":
        assert made["scales"][[0, 2]].tolist() == [0, 255]
    value = tersor.decode(enc)
    assert (value[:32] == 0).all() and not np.signbit(value[:32]).any() and np.isnan(value[64:]).all()
    with pytest.raises(tersor.NonFiniteError) as caught:
        tersor.get_codec(spec).encode(x)
    assert caught.value.index == 70


@pytest.mark.parametrize("spec", [*MX, "int4", "int4:64,scale_dtype=float32"])
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 1000])
def test_sizes_and_rows(spec, n):
    codec = tersor.get_codec(spec)
    bits, scale_bytes = (4, 4 if "float32" in spec else 2) if spec.startswith("int4") else (LIMITS[spec][0], 1)
    block = codec.unit
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    sizes = {k: len(v) for k, v in planes(codec.encode(x, axis=-1)).items()}
    assert sizes == {"codes": 3 * -(-n * bits // 8), "scales": 3 * -(-n // block) * scale_bytes}
    rows = codec.decode(codec.encode(x, axis=-1))
    for row, value in zip(x, rows, strict=True):
        assert np.array_equal(codec.decode(codec.encode(row)), value), "a row is a vector of its own"


def test_bits_a_coordinate():
    for spec, bits in {
        "mxfp8": 8.25,
        "mxfp6": 6.25,
        "mxfp4": 4.25,
        "mxint8": 8.25,
        "int4": 4.5,
        "int4:64": 4.25,
    }.items():
        enc = tersor.get_codec(spec).encode(np.ones(1 << 12, np.float32))
        assert sum(p.data.nbytes for p in enc.planes.values()) * 8 / 2**12 == bits


def test_elements_agree_with_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
    for spec, name in zip(MX, kinds, strict=False):
        top = LIMITS[spec][1]
        x = np.random.default_rng(0).uniform(-top, top, 5000) * 2.0 ** np.random.default_rng(1).integers(-20, 1, 5000)
        x = x.astype(np.float32)
        theirs = x.astype(getattr(ml_dtypes, name)).astype(np.float32)
        assert np.array_equal(beside_top(spec, x), theirs), spec


def test_wrong_elements():
    for make in (tersor.MXFP8, tersor.MXFP6):
        for element in ("e2m1", "", 4, None):
            with pytest.raises(ValueError, match="element"):
                make(element)


def test_int4_rounds_ties_to_even():
    """max |x| = 7, so that the codes are the numbers themselves, in two's complement."""
    x = np.array([7, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 6.5, -7, 0.499, -0.0, 1], np.float32)
    enc = tersor.Int4().encode(x)
    assert tersor.decode(enc).tolist() == [7, 0, 2, 2, 0, -2, -2, 6, -7, 0, 0, 1]
    assert planes(enc)["codes"].tolist() == [0x07, 0x22, 0xE0, 0x6E, 0x09, 0x10]
    assert enc.planes["scales"].values().tolist() == [0x3F80]


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_int4_rounds_to_the_scale_that_is_sent(kind):
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    codec = tersor.Int4(scale_dtype=kind)
    value = codec.decode(codec.encode(x))
    for part, got in ((x[:32], value[:32]), (x[32:], value[32:])):
        steps = np.rint(got / (np.abs(got).max() / 7))
        scale = np.abs(got).max() / 7
        assert abs(scale * 7 / np.abs(part).max() - 1) <= 2**-8
        assert np.array_equal(steps, np.clip(np.rint(part.astype(np.float64) / scale), -7, 7))


def test_int4_limits_of_float16_scales():
    codec = tersor.Int4(scale_dtype="float16")
    assert np.isfinite(tersor.roundtrip(np.array([458_639.0], np.float32), codec)).all()
    x = np.ones(64, np.float32)
    x[40] = 458_640
    with pytest.raises(tersor.RangeError, match="block 1"):
        codec.encode(x)
    assert tersor.roundtrip(np.array([1e-8], np.float32), codec).tolist() == [0]
    assert tersor.roundtrip(x, "int4")[40] == pytest.approx(458_640, rel=2**-8)


def test_int4_has_no_minus_8():
    raw = bytearray(tersor.Int4().encode(np.ones(8, np.float32)).planes["codes"].data.tobytes())
    assert raw == bytes([0x77] * 4)
    enc = tersor.Int4().encode(np.ones(8, np.float32))
    for byte in (0x87, 0x78):
        enc.planes["codes"].data[1] = byte
        with pytest.raises(tersor.FormatError, match="-8"):
            tersor.from_bytes(enc.to_bytes())


@pytest.mark.parametrize("block", [7, 12, 4104, 8.0, True, "8"])
def test_wrong_blocks(block):
    with pytest.raises(ValueError, match="block"):
        tersor.Int4(block)
    with pytest.raises(ValueError, match="scale_dtype"):
        tersor.Int4(scale_dtype="float64")
