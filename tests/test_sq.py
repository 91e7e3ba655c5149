"""Stochastic quantization: unbiased rounding on a shared range, integer sums with a proven range, every refusal."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

import tersor
from tersor import rng


def setup(bits=4, n=1000, senders=3, seed=0):
    codec = tersor.get_codec(f"sq:{bits}")
    xs = np.random.default_rng(seed).standard_normal((senders, n)).astype(np.float32)
    shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=5)
    return codec, xs, shared, [codec.encode(x, seed=1, sender=k, shared=shared) for k, x in enumerate(xs)]


def codes(enc):
    """The integers of a message, by hand."""
    plane, out = enc.planes["codes"], []
    for k in range(plane.rows):
        n = min(enc.units.length, enc.size - k * enc.units.length)
        number = int.from_bytes(plane.data[k * plane.stride :][: (n * plane.bits + 7) // 8].tobytes(), "little")
        out += [number >> (i * plane.bits) & ((1 << plane.bits) - 1) for i in range(n)]
    return np.array(out, np.int64)


def test_codes_are_what_format_md_says():
    for bits in (1, 3, 8):
        codec, xs, shared, sent = setup(bits, n=5000)
        low, high = (float(v) for v in shared.stats)
        for k, enc in enumerate(sent):
            t = (xs[k].astype(np.float64) - low) * (((1 << bits) - 1) / (high - low))
            u = rng.uniform(rng.mix64(1, sender=k), rng.ROUNDING, 0, 5000)
            expected = np.clip(np.floor(t) + (u < t - np.floor(t)), 0, (1 << bits) - 1)
            assert np.array_equal(codes(enc), expected)
            step = (high - low) / ((1 << bits) - 1)
            assert np.array_equal(codec.decode(enc), (low + step * expected).astype(np.float32))
            assert np.max(np.abs(codec.decode(enc) - xs[k])) <= step * (1 + 1e-6)


def test_law():
    """The error of a coordinate is step**2 f (1 - f)."""
    codec = tersor.get_codec("sq:2")
    x = np.array([-1, -0.9, -0.5, 0, 0.1, 1 / 3, 0.9, 1], np.float32)
    made = np.stack([codec.decode(codec.encode(x, seed=s)) for s in range(4000)]).astype(np.float64)
    step = 2 / 3
    f = ((x.astype(np.float64) + 1) / step) % 1
    law = step**2 * f * (1 - f)
    assert np.mean((made - x) ** 2, axis=0) == pytest.approx(law, rel=0.12, abs=1e-6)
    assert np.mean(made, axis=0) == pytest.approx(x, abs=4 * step / 2 / np.sqrt(4000))
    assert (made[:, [0, 7]] == x[[0, 7]]).all(), "the ends of the range are exact"


def test_measure():
    codec = tersor.get_codec("sq:4")
    x = np.array([3, -2, 0.5], np.float64)
    assert codec.measure(x).tolist() == [1, 0, 3, -2, 3] and codec.measure(x).dtype == np.float32
    assert codec.measure(np.array([1, np.nan])).tolist()[0] == 0
    assert codec.measure(np.zeros(0, np.float32)).tolist() == [1, 0, 0, 0, 0]
    big = np.broadcast_to(np.float32(1), (2**24 + 5,))
    assert codec.measure(big).tolist() == [1, 1, 5, 1, 1]


def test_merge():
    codec = tersor.get_codec("sq:4")
    stats = np.array([[1, 0, 3, -2, 3], [1, 0, 3, -5, 1]], np.float32)
    shared = codec.merge(stats, key=8)
    assert shared.key == 8 and shared.stats.tolist() == [-5, 3]
    again = tersor.Shared.from_bytes(shared.to_bytes())
    assert again.key == 8 and again.digest == shared.digest and again.stats.tolist() == [-5, 3]
    assert codec.merge(stats[::-1], key=8).to_bytes() == shared.to_bytes(), "the same for any order of senders"
    assert codec.merge(stats).key != codec.merge(stats).key
    bad = stats.copy()
    bad[1, 0] = 0
    with pytest.raises(tersor.NonFiniteError, match="1") as caught:
        codec.merge(bad)
    assert caught.value.index == 1
    bad = stats.copy()
    bad[1, 2] = 4
    with pytest.raises(tersor.IncompatibleError, match="size"):
        codec.merge(bad)
    for wrong in (None, np.zeros((0, 5)), np.zeros((2, 4)), np.zeros(5)):
        with pytest.raises(ValueError):
            codec.merge(wrong)
    for raw in (b"", b"1234567", b"123456789"):
        with pytest.raises(tersor.FormatError):
            tersor.Shared.from_bytes(raw)


@pytest.mark.parametrize("bits", range(1, 9))
def test_sums_are_exact_integers(bits):
    codec, _, _, sent = setup(bits, n=300, senders=40)
    total, expected = sent[0], codes(sent[0])
    for count, enc in enumerate(sent[1:], start=2):
        total, expected = codec.add(total, enc), expected + codes(enc)
        assert total.count == count and np.array_equal(codes(total), expected)
        largest = count * ((1 << bits) - 1)
        assert total.planes["codes"].bits == next(w for w in (8, 16, 32) if largest < 1 << w)
        assert expected.max() <= largest
        if count % 8 == 0:
            assert tersor.from_bytes(total.to_bytes()).to_bytes() == total.to_bytes()
    # a tree gives the bytes of the chain
    level = sent
    while len(level) > 1:
        pairs = [codec.add(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) // 2 * 2 :]
    assert level[0].to_bytes() == total.to_bytes()


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_the_proven_range_is_used_to_its_end_and_not_beyond(bits):
    """Doubling the largest code: sums are right up to (2**bits - 1) * count < 2**32, and RangeError comes after."""
    codec = tersor.get_codec(f"sq:{bits}")
    x = np.array([0, 1, 1, 0, 1], np.float32)
    shared = codec.merge(codec.measure(x)[None], key=1)
    total = one = codec.encode(x, seed=1, shared=shared)
    top = (1 << bits) - 1
    while 2 * total.count * top < 2**32:
        total = codec.add(total, total)
    assert codes(total).max() == total.count * top and np.array_equal(codec.decode(total), x)
    assert tersor.from_bytes(total.to_bytes()).count == total.count
    with pytest.raises(tersor.RangeError, match="2\\*\\*32"):
        codec.add(total, total)
    # up to the last count that fits
    room = (2**32 - 1) // top - total.count
    part = one
    while room:
        if room & 1:
            total = codec.add(total, part)
        part, room = (codec.add(part, part) if room > 1 else part), room >> 1
    assert total.count == (2**32 - 1) // top and codes(total).max() == total.count * top
    with pytest.raises(tersor.RangeError):
        codec.add(total, one)
    empty = replace(
        one, shape=(0,), planes={"codes": replace(one.planes["codes"], data=one.planes["codes"].data[:0], rows=0)}
    )
    sums = codec.add(codec.add(empty, empty), replace(empty, count=40))
    assert tersor.from_bytes(sums.to_bytes()).count == sums.count == 42


def test_sums_with_lost_units():
    """Counts by unit; units that nobody sent decode to 0; every such sum can be sent, read and added again."""
    codec = tersor.get_codec("sq:4")
    x = np.random.default_rng(0).standard_normal((4, 10)).astype(np.float32)
    shared = codec.merge(codec.measure(x)[None], key=1)
    a, b = (codec.encode(x, seed=1, sender=k, shared=shared, axis=-1) for k in (0, 1))
    for fa, fb in (
        ([1, 1, 0, 0], [1, 0, 1, 0]),
        ([1, 1, 0, 0], [0, 0, 1, 1]),
        ([0] * 4, [0] * 4),
        ([1, 0, 0, 0], [0] * 4),
        ([1] * 4, [1, 0, 1, 1]),
    ):
        total = codec.add(replace(a, received=np.array(fa, bool)), replace(b, received=np.array(fb, bool)))
        counts = np.array(fa) + np.array(fb)
        assert np.broadcast_to(total.count, 4).tolist() == counts.tolist()
        expected = np.outer(fa, np.ones(10)) * codec.decode(a) + np.outer(fb, np.ones(10)) * codec.decode(b)
        expected /= np.maximum(counts, 1)[:, None]
        twin = tersor.from_bytes(total.to_bytes())
        assert codec.decode(twin) == pytest.approx(expected, abs=1e-6)
        more = codec.add(twin, b)
        assert np.broadcast_to(more.count, 4).tolist() == (counts + 1).tolist()
        assert tersor.from_bytes(more.to_bytes()).to_bytes() == more.to_bytes()
        if codec.claims.row_addressable:
            assert np.array_equal(codec.decode(total[1:3]), codec.decode(total)[1:3])


def test_what_does_not_add():
    codec, xs, shared, (a, b, _) = setup()
    x = xs[0]
    others = {
        "spec": tersor.get_codec("sq:5").encode(x, seed=1, shared=shared),
        "key": codec.encode(x, seed=1, shared=replace(shared, key=6)),
        "shared": codec.encode(x, seed=1, shared=replace(shared, stats=shared.stats * 2)),
        "shape": codec.encode(x[:999], seed=1, shared=shared),
        "axis": codec.encode(x, seed=1, shared=shared, axis=-1),
        "dtype": codec.encode(x.astype(np.float64), seed=1, shared=shared),
    }
    for name, other in others.items():
        for pair in ((a, other), (other, a)):
            with pytest.raises(tersor.IncompatibleError, match=name):
                codec.add(*pair)
    alone = codec.encode(x, seed=1)
    with pytest.raises(tersor.IncompatibleError, match="shared"):
        codec.add(alone, alone)
    with pytest.raises(tersor.IncompatibleError):
        tersor.get_codec("sq:5").add(a, b)
    with pytest.raises(tersor.IncompatibleError):
        codec.add(replace(a, digest=1, fields=b"\0" * 9), replace(b, digest=1))


def test_forged_fields():
    """Width, range and count must be what an adder writes for this count."""
    codec, _, _, sent = setup(bits=4, n=8)
    raw = codec.add(sent[0], sent[1]).to_bytes()
    at = raw.index(b"sq:4") + 4
    assert struct.unpack_from("<ffB", raw, at)[2] == 8

    def forged(count, low, high, width):
        made = bytearray(raw)
        struct.pack_into("<I", made, 40, count)
        struct.pack_into("<ffB", made, at, low, high, width)
        struct.pack_into("<I", made, 8, zlib.crc32(made[12:], zlib.crc32(made[:8])))
        return bytes(made)

    assert tersor.from_bytes(forged(17, -1, 1, 8)).count == 17
    nan, inf = float("nan"), float("inf")
    for fields in (
        (18, -1, 1, 8),  # 18 * 15 does not fit in 8 bits
        (1, -1, 1, 8),
        (2, -1, 1, 4),
        (2, -1, 1, 16),
        (2, -1, 1, 0),
        (2, -1, 1, 7),
        (2, 1, -1, 8),
        (2, -inf, 1, 8),
        (2, -1, inf, 8),
        (2, nan, 1, 8),
        (2, -1, nan, 8),
    ):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(forged(*fields))


def test_arrays_outside_the_shared_range():
    codec, xs, shared, _ = setup()
    with pytest.raises(tersor.IncompatibleError, match="range"):
        codec.encode(xs[0] * 3, seed=1, shared=shared)
    for stats in ([], [1.0], [0.0, np.inf], [np.nan, np.nan], [-np.inf, np.inf]):
        with pytest.raises(tersor.IncompatibleError):
            codec.encode(xs[0], seed=1, shared=tersor.Shared(1, np.array(stats, np.float32)))


def test_a_range_of_no_width_and_of_all_floats():
    codec = tersor.get_codec("sq:3")
    x = np.full(10, 0.1, np.float32)
    assert np.array_equal(codec.decode(codec.encode(x, seed=1)), x)
    top = np.finfo(np.float32).max
    wide = np.array([-top, top, 0, 1], np.float32)
    got = codec.decode(codec.encode(wide, seed=1))
    assert np.isfinite(got).all() and np.array_equal(got[:2], wide[:2])


@pytest.mark.parametrize("bits", [0, 9, 2.0, True, "4"])
def test_wrong_bits(bits):
    with pytest.raises(ValueError, match="bits"):
        tersor.StochasticQuantization(bits)
