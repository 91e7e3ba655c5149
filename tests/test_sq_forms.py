"""SQ with a subtractive dither and on rotated vectors: the codes of FORMAT.md, the error laws, every refusal."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from baseline_rows import agrees, draw, errors
from test_sq import codes

import tersor
from tersor import rng
from tersor.rotation import Hadamard

SUBTRACTIVE = "sq:{},dither=subtractive"


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("axis", [None, -1])
def test_dithered_codes_are_what_format_md_says(bits, axis):
    codec = tersor.get_codec(SUBTRACTIVE.format(bits))
    x = draw("normal", 6000, np.random.default_rng(0))
    x = x.reshape(30, 200) if axis else x
    start = 4096 if axis is None else 7
    enc = codec.encode(x, seed=3, sender=2, axis=axis, start=start)
    low, high, top = float(x.min()), float(x.max()), (1 << bits) - 1
    if axis is None:
        u = rng.uniform(enc.key, rng.DITHER, start, x.size).astype(np.float64)
    else:
        u = np.tile(rng.uniform(enc.key, rng.DITHER, 0, 200), 30).astype(np.float64)
    t = (x.reshape(-1).astype(np.float64) - low) * (top / (high - low))
    expected = np.clip(np.floor(t + u), 0, top)
    assert np.array_equal(codes(enc), expected)
    step = (high - low) / top
    estimate = (low + ((expected - u) + 0.5) * step).astype(np.float32)
    assert np.array_equal(codec.decode(enc).reshape(-1), estimate)
    assert (np.floor(t + u) == expected).all(), "no coordinate needs a level beyond the range"


def test_the_dithered_error_is_uniform_and_independent_of_x():
    """Gray and Stockham, theorem 1: e is uniform on +-step/2 whatever x is; private rounding has f (1 - f) instead."""
    x = np.array([-1, -0.93, -0.5, 0, 0.1, 1 / 3, 0.9, 1], np.float32)
    step = 2 / 3
    codec = tersor.get_codec(SUBTRACTIVE.format(2))
    e = np.stack([codec.decode(codec.encode(x, seed=s)) for s in range(6000)]).astype(np.float64) - x
    assert np.abs(e).max() <= step / 2 * (1 + 1e-6)
    n = np.sqrt(len(e))
    assert np.mean(e, axis=0) == pytest.approx(np.zeros(8), abs=4.5 * step / np.sqrt(12) / n)
    assert np.mean(e**2, axis=0) == pytest.approx(np.full(8, step**2 / 12), rel=4.5 * np.sqrt(0.8) / n)
    assert np.mean(e**4, axis=0) == pytest.approx(np.full(8, step**4 / 80), rel=0.1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_law_of_a_message(bits, kind):
    """||x_hat - x||**2 is d step**2 / 12 with a subtractive dither, for any x; SQ's own is sum of step**2 f (1 - f)."""
    x = draw(kind, 2**15, np.random.default_rng(bits))
    step = (float(x.max()) - float(x.min())) / ((1 << bits) - 1)
    energy = float(np.sum(x.astype(np.float64) ** 2))
    codec = tersor.get_codec(SUBTRACTIVE.format(bits))
    law = len(x) * step**2 / 12 / energy
    assert tersor.nmse(x, codec.decode(codec.encode(x, seed=1))) == pytest.approx(law, rel=4.5 * np.sqrt(0.8 / len(x)))
    f = (x.astype(np.float64) - float(x.min())) / step % 1
    law = float(np.sum(step**2 * f * (1 - f))) / energy
    assert tersor.nmse(x, tersor.roundtrip(x, f"sq:{bits}", seed=2)) == pytest.approx(law, rel=0.1)


@pytest.mark.parametrize("rotations", [1, 2, 3])
@pytest.mark.parametrize("dither", ["private", "subtractive"])
def test_rotated_is_the_quantizer_on_the_rotated_vector(rotations, dither):
    codec = tersor.get_codec(f"sq:3,dither={dither},rotations={rotations}")
    for n, axis in ((4096, None), (1000, None), (9000, None), (100, -1)):
        x = draw("lognormal", 9000 if axis else n, np.random.default_rng(n))
        x = x.reshape(-1, n) if axis else x
        enc = codec.encode(x, seed=5, axis=axis)
        blocks = list(x) if axis else [x[i : i + 4096] for i in range(0, n, 4096)]
        turns = [Hadamard(len(b), enc.key, rotations, 0 if axis else 4096 * k) for k, b in enumerate(blocks)]
        y = [h.apply(b).astype(np.float64) for h, b in zip(turns, blocks, strict=True)]
        low, high = min(v.min() for v in y), max(v.max() for v in y)
        assert struct.unpack("<ddB", enc.fields) == pytest.approx((low, high, 3), rel=1e-5)
        back = np.concatenate([h.apply(b) for h, b in zip(turns, split(codec.decode(enc), blocks), strict=True)])
        width = (high - low) / 7 * (1 if dither == "private" else 0.5) * (1 + 1e-4)
        if all(h.padded == len(b) for h, b in zip(turns, blocks, strict=True)):
            assert np.abs(back - np.concatenate(y)).max() <= width
        # R is orthogonal, so the error is that of SQ of the rotated vector
        assert tersor.nmse(x, codec.decode(enc)) <= len(np.concatenate(y)) * width**2 / float((x**2).sum())


def split(value, blocks):
    flat, at = value.reshape(-1), 0
    for b in blocks:
        yield flat[at : at + len(b)]
        at += len(b)


def test_the_range_of_a_rotated_vector_may_pass_float32():
    top = np.finfo(np.float32).max
    x = np.full(4096, top, np.float32)
    for spec in ("sq:8,rotations=1", "sq:8,rotations=2", "sq:8,dither=subtractive,rotations=2"):
        enc = tersor.get_codec(spec).encode(x, seed=1)
        value = tersor.decode(tersor.from_bytes(enc.to_bytes()))
        assert np.isfinite(value).all() and tersor.nmse(x, value) < 1e-2
        assert struct.unpack("<ddB", enc.fields)[1] > float(top)


FIGURES = [
    # spec, N 2**10, N 2**14, LogN 2**14 (quantizers.md, section 7)
    ("sq:1", 9.7, 14.4, 10.9),
    ("sq:4", 0.0318, 0.0457, 0.277),
    ("sq:1,dither=subtractive", 3.61, 5.16, 33.3),
    ("sq:2,dither=subtractive", 0.397, 0.571, 3.70),
    ("sq:4,dither=subtractive", 0.0159, 0.0230, 0.148),
    ("sq:1,rotations=2", 9.6, 14.9, 14.5),
    ("sq:4,rotations=2", 0.0313, 0.0472, 0.0459),
]


@pytest.mark.parametrize("figures", FIGURES, ids=[f[0] for f in FIGURES])
def test_table_small(figures):
    assert agrees(errors(figures[0], "normal", 2**10, 60), figures[1], 60)


@pytest.mark.slow
@pytest.mark.parametrize("figures", FIGURES, ids=[f[0] for f in FIGURES])
def test_table(figures):
    assert agrees(errors(figures[0], "normal", 2**14, 100), figures[2], 12)
    assert agrees(errors(figures[0], "lognormal", 2**14, 100), figures[3], 12)


def test_what_the_rotation_and_the_dither_buy():
    """On lognormal input the range of R x is far smaller; the dither halves (2 bits and more) what rounding costs."""
    plain, turned = (errors(s, "lognormal", 2**14, 10).mean() for s in ("sq:4", "sq:4,rotations=2"))
    assert turned < plain / 3
    private, dithered = (errors(s, "normal", 2**14, 10).mean() for s in ("sq:6", "sq:6,dither=subtractive"))
    assert dithered == pytest.approx(private / 2, rel=0.02)


@pytest.mark.parametrize("spec", ["sq:3,dither=subtractive", "sq:3,rotations=1", "sq:3,dither=subtractive,rotations=2"])
def test_forged_fields(spec):
    """Ranges and widths that no encoder writes, and sums of what does not add."""
    codec = tersor.get_codec(spec)
    raw = codec.encode(np.linspace(-1, 1, 20, dtype=np.float32), seed=1).to_bytes()
    form = "<ddB" if codec.rotations else "<ffB"
    at = raw.index(spec.encode()) + len(spec)

    def forged(low, high, width, count=1):
        made = bytearray(raw)
        struct.pack_into("<I", made, 40, count)
        struct.pack_into(form, made, at, low, high, width)
        struct.pack_into("<I", made, 8, zlib.crc32(made[12:], zlib.crc32(made[:8])))
        return bytes(made)

    assert np.isfinite(tersor.decode(tersor.from_bytes(forged(-1, 2, 3)))).all()
    nan, inf = float("nan"), float("inf")
    cases = [(1, -1, 3), (-inf, 1, 3), (0, inf, 3), (nan, 1, 3), (0, nan, 3), (0, 1, 8), (0, 1, 1), (0, 1, 3, 2)]
    for fields in cases + [(0, 1e300, 3)] * bool(codec.rotations):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(forged(*fields))


def test_what_does_not_add():
    x = draw("normal", 100, np.random.default_rng(0))
    for spec in ("sq:3,dither=subtractive", "sq:3,rotations=1"):
        codec = tersor.get_codec(spec)
        stats = codec.measure(x)
        shared = codec.merge(None if stats is None else stats[None], key=4)
        a, b = (codec.encode(x, seed=1, sender=k, shared=shared) for k in (0, 1))
        with pytest.raises(tersor.TersorError, match="additive"):
            codec.add(a, b)
        assert tersor.nmse(x, tersor.mean([a, b])) < 1
    assert tersor.get_codec("sq:3,rotations=1").measure(x) is None


def test_senders_that_share_a_dither_share_its_error():
    """Why shared_rotation is not claimed: equal vectors and one key give one message."""
    codec, x = tersor.get_codec("sq:2,dither=subtractive"), draw("normal", 500, np.random.default_rng(0))
    shared = codec.merge(codec.measure(x)[None], key=4)
    a, b = (codec.encode(x, seed=1, sender=k, shared=shared) for k in (0, 1))
    assert a.to_bytes() == b.to_bytes()
    assert replace(a, received=np.array([True])).to_bytes() != b.to_bytes()


@pytest.mark.parametrize("options", [{"dither": "none"}, {"dither": 1}, {"rotations": 4}, {"rotations": True}])
def test_wrong_fields(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        tersor.StochasticQuantization(4, **options)
