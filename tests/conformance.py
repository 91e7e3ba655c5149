"""The contract of codecs as checks: each function takes a codec and fails where it breaks a rule or a claim of its own.

Whoever adds a codec gives it a table in claims.toml; test_conformance.py then runs all of this on it.
"""

import copy
import json
import pickle
import threading
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

import tersor

SHAPES = [(), (0,), (1,), (7,), (64,), (333,), (4096,), (4097,), (3, 80), (2, 3, 5), (4, 0), (0, 4)]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def shared_for(codec, arrays, key=99, axis=None):
    """Statistics that senders of `arrays` agree on, or None for codecs that have none."""
    stats = [codec.measure(x, axis=axis) for x in arrays]
    return None if stats[0] is None else codec.merge(np.stack(stats), key=key)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def same_message(a, b):
    """Equal in all that travels."""
    return a.to_bytes() == b.to_bytes()


def axes(shape):
    return (None, -1) if shape else (None,)


def check_identity(codec):
    """Spec, config and repr give the codec back; it is a value."""
    names = vars(tersor)
    for twin in (
        tersor.get_codec(codec.spec),
        tersor.get_codec(codec.config),
        tersor.get_codec(json.loads(json.dumps(codec.config))),
        eval(repr(codec), dict(names)),
        pickle.loads(pickle.dumps(codec)),
        copy.deepcopy(codec),
        replace(codec),
    ):
        assert twin == codec and hash(twin) == hash(codec) and type(twin) is type(codec)
        assert twin.claims == codec.claims and twin.spec == codec.spec
    assert len(codec.spec) <= 255 and codec.spec.isascii()
    for field in fields(codec):
        with pytest.raises(FrozenInstanceError):
            setattr(codec, field.name, None)


def check_sizes(codec):
    """nbytes before encoding, nbytes after it, len(to_bytes()) and bits_per_coordinate are one number."""
    for shape in SHAPES:
        for axis in axes(shape):
            for dtype in ("float32", "float64", "float16"):
                enc = codec.encode(normal(*shape).astype(dtype), seed=1, axis=axis)
                raw = enc.to_bytes()
                assert enc.nbytes == len(raw), (shape, axis)
                promised = codec.nbytes(shape, dtype, axis)
                assert promised == len(raw) if codec.claims.fixed_size else promised >= len(raw), (shape, axis, dtype)
                size = int(np.prod(shape))
                assert enc.bits_per_coordinate == (8 * len(raw) / size if size else np.inf)
                assert enc.size == size and enc.shape == shape and enc.dtype == dtype and enc.axis == axis


def check_bytes(codec):
    """to_bytes and from_bytes lose nothing, at any alignment and any address."""
    for shape in SHAPES:
        for axis in axes(shape):
            enc = codec.encode(normal(*shape), seed=3, sender=2, axis=axis)
            raw = enc.to_bytes()
            value = codec.decode(enc)
            for align in (8, 64, 256):
                moved = b"x" + enc.to_bytes(align=align)
                for view in (moved[1:], memoryview(moved)[1:], bytearray(moved[1:])):
                    twin = tersor.from_bytes(view)
                    assert twin.to_bytes() == raw, (shape, axis, align)
                    assert same_bits(tersor.decode(twin), value), (shape, axis, align)
            for name in ("spec", "shape", "dtype", "axis", "key", "start", "count", "digest", "fields"):
                assert getattr(twin, name) == getattr(enc, name), name
            assert twin.received is None
            assert list(twin.planes) == list(enc.planes)
            for a, b in zip(twin.planes.values(), enc.planes.values(), strict=True):
                assert (a.bits, a.rows, a.stride, a.layout) == (b.bits, b.rows, b.stride, b.layout)
                assert a.data.tobytes() == b.data.tobytes()
                assert a.layout == "lsb" or a.values().tobytes() == b.values().tobytes()
            copied = pickle.loads(pickle.dumps(enc))
            assert copied.to_bytes() == raw and same_bits(codec.decode(copied), value)


def check_seeds(codec):
    """The same seed gives the same bytes; without a seed they come from the system; senders and seeds differ."""
    x = normal(500)
    assert same_message(codec.encode(x, seed=5), codec.encode(x.copy(), seed=5))
    assert same_message(codec.encode(x, seed=5, sender=4), codec.encode(x, seed=5, sender=4))
    assert same_message(codec.encode(x, seed=5), codec.encode(x, seed=np.int64(5), sender=np.int64(0)))
    assert same_message(codec.encode(x, seed=5), codec.encode(x, seed=5 + 2**64))
    assert codec.encode(x).key != codec.encode(x).key
    if codec.claims.unbiased and not np.array_equal(codec.decode(codec.encode(x, seed=5)), x):
        planes = [codec.encode(x, seed=s, sender=k).planes for s, k in ((5, 0), (6, 0), (5, 1), (5, 2))]
        first = next(iter(planes[0]))
        assert len({p[first].data.tobytes() for p in planes}) == 4, "seeds and senders must draw differently"


def estimates(codec, x, n, **options):
    return np.stack([codec.decode(codec.encode(x, seed=s, **options)) for s in range(n)]).astype(np.float64)


def bias_in_sigmas(codec, x, n):
    """How far the squared bias of the mean of n estimates is above chance, in standard deviations; the worst z."""
    made = estimates(codec, x, n)
    off = made.mean(0) - x
    chance = made.var(0, ddof=1) / n
    excess = (off**2).sum() - chance.sum()
    # A coordinate whose draws all agree may have another outcome too rare to be seen, within the range of estimates.
    alone = np.where(chance > 0, chance, np.abs(off) * np.ptp(made) / n)
    z = np.abs(off) / np.sqrt(np.maximum(alone, 1e-30 * float(np.max(x**2))))
    return excess / max(np.sqrt(2 * (chance**2).sum()), 1e-30 * float((x**2).sum())), z.max()


def check_unbiased(codec, n=2000):
    """2,000 estimates of 64 coordinates: neither the whole nor a coordinate is off by more than chance allows."""
    for x in (normal(64), np.random.default_rng(1).lognormal(0, 1, 64).astype(np.float32)):
        whole, worst = bias_in_sigmas(codec, x, n)
        assert whole < 4, f"the squared bias is {whole:.1f} sigma above chance"
        assert worst < 5, f"a coordinate is {worst:.1f} sigma off"


def check_senders_are_independent(codec, n=60):
    """The mean of n senders of one vector has 1/n of the error of one (unbiased codecs)."""
    x = normal(1000)
    made = np.stack([codec.decode(codec.encode(x, seed=8, sender=k)) for k in range(n)]).astype(np.float64)
    single = np.mean([tersor.nmse(x, e) for e in made])
    assert tersor.nmse(x, made.mean(0)) <= 1.25 * single / n


def check_shared_key(codec, n=60):
    """`shared_rotation`: agreeing on one key costs nothing against keys of their own; without the claim it does."""
    x = normal(1000)
    shared = shared_for(codec, [x]) or tersor.Shared(99)
    own, common = tersor.Mean(), tersor.Mean()
    for k in range(n):
        own.add(codec.encode(x, seed=8, sender=k))
        enc = codec.encode(x, seed=8, sender=k, shared=shared)
        assert enc.key == shared.key and enc.digest == shared.digest != 0
        common.add(enc)
    a, b = tersor.nmse(x, own.value()), tersor.nmse(x, common.value())
    if codec.claims.shared_rotation:
        assert b <= 1.25 * a
    elif codec.claims.unbiased:
        assert b > 5 * a, "sharing the key did no harm: claim shared_rotation"


def check_threads(codec):
    """Two threads that use one codec at once get what one gets."""
    inputs = [normal(3000, seed=k) for k in range(6)]
    expected = [(codec.encode(x, seed=1).to_bytes(), codec.decode(codec.encode(x, seed=1))) for x in inputs]
    failures = []

    def work(order):
        for k in order:
            enc = codec.encode(inputs[k], seed=1)
            if enc.to_bytes() != expected[k][0] or not same_bits(codec.decode(enc), expected[k][1]):
                failures.append(k)

    threads = [
        threading.Thread(target=work, args=(order,)) for order in ([0, 1, 2, 3, 4, 5] * 3, [5, 4, 3, 2, 1, 0] * 3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def check_decode_options(codec):
    """out, add, weight and like."""
    for shape, axis in (((5, 40), None), ((5, 40), -1), ((4099,), None), ((), None), ((0,), None)):
        x = normal(*shape)
        enc = codec.encode(x, seed=1, axis=axis)
        value = codec.decode(enc)
        for out in (np.full(shape, np.nan, np.float32), np.full(shape, np.nan), np.full((*shape, 2), 7.0)[..., 0]):
            assert codec.decode(enc, out=out) is out
            assert np.array_equal(out, value.astype(out.dtype))
        base = normal(*shape, seed=2)
        for dtype in (np.float32, np.float64):
            out = base.astype(dtype)
            assert codec.decode(enc, out=out, add=True, weight=0.5) is out
            expected = base.astype(dtype) + codec.decode(enc, weight=0.5)
            assert np.allclose(out, expected, rtol=1e-6, atol=1e-6)
        assert np.allclose(codec.decode(enc, weight=-2.0), -2 * value, rtol=1e-5, atol=1e-6)
        assert np.array_equal(codec.decode(enc, weight=0.0), np.zeros(shape, np.float32))
        assert type(codec.decode(enc, like=np.zeros(1))) is np.ndarray
    enc = codec.encode(normal(10), seed=1)
    with pytest.raises(ValueError, match="out"):
        codec.decode(enc, add=True)
    for shape in ((11,), (10, 1), ()):
        with pytest.raises(tersor.IncompatibleError):
            codec.decode(enc, out=np.zeros(shape, np.float32))
    with pytest.raises(TypeError):
        codec.decode(enc, out=np.zeros(10, np.int32))
    other = tersor.get_codec("none" if codec.name != "none" else "fp16")
    with pytest.raises(tersor.IncompatibleError):
        other.decode(enc)


def check_law(codec):
    """`expected_error` is what is measured in high dimension, and `enc.error` is the error of this very message."""
    x = normal(2**15)
    expected = codec.expected_error()
    enc = codec.encode(x, seed=4)
    measured = tersor.nmse(x, codec.decode(enc))
    if expected is not None:
        # 4 sigma: the error of a coordinate has a standard deviation of at most 10 times its mean (at 8 bits).
        assert abs(measured - expected) <= 4 * 10 / np.sqrt(x.size) * expected
        if codec.loss_inside_units:  # a quarter of each unit's pieces arrives; units of 64 coordinates are a bit off
            flags = np.argsort(np.random.default_rng(1).random((enc.units.count, 64))) < 16
            lossy = tersor.nmse(x, codec.decode(enc, received=flags))
            assert lossy == pytest.approx(codec.expected_error(received=0.25), rel=0.1)
        else:
            assert codec.expected_error(received=0.25) == pytest.approx(0.25 * expected + 0.75)
    if enc.error is not None:
        assert enc.error == pytest.approx(measured, rel=1e-3)


def check_rounding(codec):
    """`rounds_to_nearest`: no chance, an error of at most 1/128 of the largest coordinate, and not lossless."""
    x = normal(400)
    value = codec.decode(codec.encode(x, seed=1))
    fine = np.max(np.abs(value - x)) <= np.max(np.abs(x)) / 128
    steady = same_bits(value, codec.decode(codec.encode(x, seed=2, sender=3)))
    nearest = fine and steady and not np.array_equal(value, x)
    assert nearest == codec.claims.rounds_to_nearest


def check_dtype_arguments(codec):
    """nbytes takes the dtype of an array as well as its name; other dtypes and axes are refused."""
    x = normal(3, 40)
    assert codec.nbytes(x.shape, x.dtype) == codec.nbytes([3, 40], "float32") == codec.nbytes(x.shape)
    assert codec.nbytes(x.shape, axis=1) == codec.nbytes(x.shape, axis=-1)
    for dtype in ("int32", np.int64, np.dtype("float128"), "f4", None):
        with pytest.raises(TypeError, match="dtype"):
            codec.nbytes(x.shape, dtype)
    with pytest.raises(ValueError, match="axis"):
        codec.nbytes(x.shape, axis=0)
