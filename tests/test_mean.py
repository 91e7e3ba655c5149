"""tersor.mean and tersor.Mean: weights, counts, lost units, mixed codecs and dtypes, sums while encoded, refusals."""

from dataclasses import replace

import numpy as np
import pytest

import tersor


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def none(x, **fields):
    return replace(tersor.get_codec("none").encode(x, **({"axis": -1} if np.ndim(x) > 1 else {})), **fields)


def test_plain_and_weighted():
    xs = [normal(7, 5, seed=k) for k in range(4)]
    sent = [none(x) for x in xs]
    assert tersor.mean(sent) == pytest.approx(np.mean(xs, axis=0), abs=1e-6)
    weights = [1, 0, 2.5, 3]
    assert tersor.mean(sent, weights) == pytest.approx(np.average(xs, axis=0, weights=weights), abs=1e-6)
    assert tersor.mean(iter(sent)) == pytest.approx(np.mean(xs, axis=0), abs=1e-6)
    assert np.array_equal(tersor.mean(sent[:1]), xs[0])
    # only the ratios of weights matter
    for factor in (1e-60, 1e-9, 1e9, 1e60):
        assert tersor.mean(sent, [w * factor for w in weights]) == pytest.approx(tersor.mean(sent, weights), abs=1e-5)


def test_streaming_is_the_same_as_at_once():
    sent = [tersor.Eden(bits=3).encode(normal(5000), seed=1, sender=k) for k in range(5)]
    acc = tersor.Mean()
    for k, enc in enumerate(sent):
        acc.add(enc, weight=k + 1)
        partial = acc.value()
    assert np.array_equal(partial, tersor.mean(sent, [1, 2, 3, 4, 5])) and np.array_equal(acc.value(), partial)


def test_each_unit_divides_by_what_arrived():
    """Per unit: sum of weight * count over those who sent it; nobody: 0."""
    xs = [normal(5, 6, seed=k) for k in range(3)]
    flags = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 0, 0, 0]], bool)
    weights = np.array([1.0, 2.0, 4.0])
    sent = [none(x, received=f) for x, f in zip(xs, flags, strict=True)]
    share = weights[:, None] * flags
    total = share.sum(0)
    expected = sum(s[:, None] * x for s, x in zip(share, xs, strict=True)) / np.where(total, total, 1)[:, None]
    assert tersor.mean(sent, weights.tolist()) == pytest.approx(expected, abs=1e-6)
    assert not tersor.mean(sent, weights.tolist())[3].any()
    # the same for blocks of a vector, where the last is shorter
    x = normal(4096 * 2 + 10)
    lossy = none(x, received=np.array([True, False, True]))
    got = tersor.mean([lossy, none(3 * x)])
    assert got[4096:8192] == pytest.approx(3 * x[4096:8192], abs=1e-6)
    assert np.delete(got, np.s_[4096:8192]) == pytest.approx(2 * np.delete(x, np.s_[4096:8192]), abs=1e-5)


def test_a_sum_of_k_counts_k_times():
    x, y = normal(40, seed=1), normal(40, seed=2)
    codec = tersor.get_codec("sq:8")
    shared = codec.merge(np.stack([codec.measure(x), codec.measure(y)]), key=1)
    a, b = (codec.encode(v, seed=1, sender=i, shared=shared) for i, v in enumerate((x, y)))
    twice = codec.add(codec.add(a, a), a)
    assert tersor.mean([twice, b]) == pytest.approx((3 * x + y) / 4, abs=0.02)
    assert tersor.mean([twice, b], [2, 2]) == pytest.approx((3 * x + y) / 4, abs=0.02)
    assert tersor.mean([none(x, count=3), none(y)]) == pytest.approx((3 * x + y) / 4, abs=1e-6)
    by_unit = none(np.stack([x, x]), count=np.array([3, 1], np.uint32))
    got = tersor.mean([by_unit, none(np.stack([y, y]))])
    assert got == pytest.approx(np.stack([(3 * x + y) / 4, (x + y) / 2]), abs=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_codecs_may_differ(order, dtype):
    x = normal(4100, seed=3).astype(dtype)
    specs = ["none", "eden:8", "bf16", "int8"]
    sent = [tersor.get_codec(specs[i]).encode(x, seed=1) for i in order]
    got = tersor.mean(sent)
    assert got.dtype == dtype and tersor.nmse(x, got) < 1e-4
    flags = np.array([True, False])
    lossy = [replace(enc, received=flags if enc.units.count == 2 else None) for enc in sent]
    assert tersor.nmse(x, tersor.mean(lossy)) < 1e-4


def test_float64_is_kept_where_the_codec_keeps_it():
    x = np.random.default_rng(0).standard_normal(10) * 1e200
    assert tersor.mean([none(x), none(x)]) == pytest.approx(x, rel=1e-15)


def test_additive_messages_are_added_while_encoded():
    """With shared statistics the mean is that of the integer sum, bit for bit; without, messages are decoded."""
    xs = [normal(100, seed=k) for k in range(3)]
    codec = tersor.get_codec("sq:4")
    shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=1)
    sent = [codec.encode(x, seed=1, sender=k, shared=shared) for k, x in enumerate(xs)]
    total = codec.add(codec.add(sent[0], sent[1]), sent[2])
    assert np.array_equal(tersor.mean(sent), codec.decode(total))
    alone = [codec.encode(x, seed=1, sender=k) for k, x in enumerate(xs)]
    assert tersor.mean(alone) == pytest.approx(np.mean([codec.decode(e) for e in alone], axis=0), abs=1e-6)
    mixed = [sent[0], alone[1]]
    assert tersor.mean(mixed) == pytest.approx(np.mean([codec.decode(e) for e in mixed], axis=0), abs=1e-6)
    lost = [replace(enc, received=np.array([k == 0])) for k, enc in enumerate(sent)]
    assert np.array_equal(tersor.mean(lost), codec.decode(sent[0]))
    nobody = [replace(enc, received=np.array([False])) for enc in sent]
    assert not tersor.mean(nobody).any()


def test_error_falls_with_the_number_of_senders():
    x = normal(4096)
    for bits, law in ((1, 0.5708), (4, 0.00959)):
        sent = [tersor.Eden(bits=bits).encode(x, seed=1, sender=k) for k in range(30)]
        assert tersor.nmse(x, tersor.mean(sent)) == pytest.approx(law / 30, rel=0.15)


def test_frameworks():
    torch = pytest.importorskip("torch")
    x = torch.ones(5, dtype=torch.bfloat16)
    codec = tersor.get_codec("none")
    got = tersor.mean([codec.encode(x), codec.encode(3 * x)])
    assert got.dtype == torch.bfloat16 and got.tolist() == [2] * 5
    assert isinstance(tersor.mean([codec.encode(x)], like=np.zeros(1)), np.ndarray)
    assert isinstance(tersor.mean([none(np.ones(2, np.float32))], like=x), torch.Tensor)


def test_shapes_without_coordinates():
    for shape in ((0,), (0, 3), ()):
        assert tersor.mean([none(np.ones(shape, np.float32))] * 2).shape == shape


def test_refusals():
    a = none(normal(4))
    for wrong in (none(normal(5)), none(normal(4).astype(np.float64)), none(normal(2, 2))):
        acc = tersor.Mean()
        acc.add(a)
        with pytest.raises(tersor.IncompatibleError):
            acc.add(wrong)
        assert np.array_equal(acc.value(), tersor.decode(a)), "a refused message changes nothing"
        with pytest.raises(tersor.IncompatibleError):
            tersor.mean([a, wrong])
    for weight in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight"):
            tersor.Mean().add(a, weight)
    for nothing in (lambda: tersor.mean([]), lambda: tersor.Mean().value(), lambda: tersor.mean([a], [0.0])):
        with pytest.raises(ValueError, match="nothing"):
            nothing()
    with pytest.raises(ValueError, match="weights"):
        tersor.mean([a, a], [1.0])
    acc = tersor.Mean()
    acc.add(a, 0.0)
    acc.add(none(normal(4, seed=9)), 2.0)
    assert np.array_equal(acc.value(), normal(4, seed=9))


def test_nan_stays_where_it_is():
    x = normal(3, 8)
    x[1, 2] = np.nan
    sent = tersor.Eden(bits=4).encode(x, seed=1, axis=-1, nonfinite="propagate")
    got = tersor.mean([sent, tersor.Eden(bits=4).encode(normal(3, 8), seed=2, axis=-1)])
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()


def test_largest_values():
    """Two estimates near the largest float: the mean is finite if each is weighted below one half."""
    x = np.full(8, 3e38, np.float32)
    acc = tersor.Mean()
    for _ in range(2):
        acc.add(none(x), weight=0.25)
    assert acc.value() == pytest.approx(x, rel=1e-6)
    assert tersor.mean([none(x)] * 2, [7, 7]) == pytest.approx(x, rel=1e-6)


@pytest.mark.parametrize("axis", [None, -1])
@pytest.mark.parametrize(
    "spec", ["eden:1", "eden:4", "eden:3,block=32", "eden:2,scale_dtype=float16", "eden:5,block=full"]
)
def test_one_pass_has_the_bytes_of_one_after_the_other(spec, axis):
    """EDEN messages are added unit by unit: with the sums of a `Mean`, weights, counts, starts, overflow included."""
    codec = tersor.get_codec(spec)
    sent = [codec.encode(normal(70, 100, seed=k) - 3 * (k == 2), seed=1, sender=k, axis=axis) for k in range(70)]
    sent[1] = replace(sent[1], count=2)
    lossy = replace(sent[5], received=np.arange(sent[5].units.count) % 2 == 0)
    moved = codec.encode(normal(70, 100), seed=1, axis=axis, start=(codec.unit or 7000) if axis is None else 70)
    shared = [codec.encode(normal(70, 100, seed=k), axis=axis, shared=codec.merge(None, key=3)) for k in range(3)]
    cases = [sent, sent[:1], [*sent[:3], lossy], [moved, *sent[:2]], shared]
    if "float16" not in spec:
        huge = codec.encode(np.full((70, 100), 1e33, np.float32), seed=1, axis=axis)
        cases.append([huge, *sent[:2], huge])
    for messages in cases:
        for weights in (None, [0.3 * k for k in range(1, len(messages) + 1)]):
            acc = tersor.Mean()
            unit = 1.0 if weights is None else 2.0 ** np.frexp(sum(weights))[1]
            for k, enc in enumerate(messages):
                acc.add(enc, 1.0 if weights is None else weights[k] / unit)
            assert tersor.mean(messages, weights).tobytes() == acc.value().tobytes()
