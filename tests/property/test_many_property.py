"""For any set of messages: bundles come back whole, means are the weighted means of what arrived, sums are exact."""

from dataclasses import replace

import numpy as np
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

import tersor


@settings(max_examples=100)
@given(st.data())
def test_bundles(data):
    names = data.draw(st.lists(st.text(max_size=6), max_size=5, unique=True))
    entries = {}
    for name in names:
        codec = data.draw(strategies.codecs)
        x, _ = data.draw(strategies.arrays(max_side=5, long=False))
        entries[name] = codec.encode(x, seed=data.draw(strategies.seeds), axis=data.draw(strategies.axes(x)))
    made = tersor.EncodedDict(entries, key=data.draw(strategies.seeds))
    raw = made.to_bytes()
    twin = tersor.EncodedDict.from_bytes(raw)
    assert list(twin) == names and twin.key == made.key and twin.to_bytes() == raw and made.nbytes == len(raw)
    for name, value in twin.decode().items():
        assert value.tobytes() == tersor.decode(entries[name]).tobytes()
        assert twin[name].to_bytes() == entries[name].to_bytes()


@settings(max_examples=60)
@given(st.data())
def test_encode_dict(data):
    arrays = {f"t{i}": data.draw(strategies.arrays(max_side=5))[0] for i in range(data.draw(st.integers(0, 5)))}
    default, other = data.draw(strategies.codecs), data.draw(strategies.codecs)
    enc = tersor.encode_dict(arrays, default, {"t1": other}, seed=data.draw(strategies.seeds))
    for name, x in arrays.items():
        chosen = other if name == "t1" else default
        assert enc[name].spec == chosen.spec
        assert enc[name].to_bytes() == chosen.encode(x, seed=enc[name].key).to_bytes()
    assert tersor.EncodedDict.from_bytes(enc.to_bytes()).to_bytes() == enc.to_bytes()


@settings(max_examples=100)
@given(st.data())
def test_means(data):
    """sum of w c x_hat over sum of w c, unit by unit, against float64."""
    shape, axis = data.draw(
        st.sampled_from((((3, 8), -1), ((100,), None), ((2, 2, 5), -1), ((0,), None), ((5000,), None)))
    )
    n = data.draw(st.integers(1, 5))
    top, bottom = np.zeros(shape), np.zeros(shape)
    sent, weights = [], []
    for k in range(n):
        codec = data.draw(strategies.codecs)
        x = np.random.default_rng(k).standard_normal(shape).astype(np.float32)
        enc = codec.encode(x, seed=k, axis=axis)
        units = enc.units
        weight = data.draw(st.sampled_from((0.0, 0.5, 1.0, 3.0, 1e-3)))
        count = data.draw(st.integers(1, 4)) if codec.name != "sq" else 1
        flags = data.draw(st.one_of(st.none(), strategies.flags(units.count)))
        share = np.full(units.count, weight * count)
        if flags is not None:
            share = share * flags
        spread = np.repeat(share, units.length)[: enc.size].reshape(shape)
        top += spread * codec.decode(enc).astype(np.float64)
        bottom += spread
        sent.append(replace(enc, count=count, received=flags))
        weights.append(weight)
    if not any(weights):
        return
    got = tersor.mean(sent, weights)
    expected = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), 0)
    assert got.shape == shape and np.allclose(got, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=100)
@given(st.data())
def test_sums_of_codes(data):
    """Any tree of additions, with lost units: counts add, integers add, and the bytes can be read again."""
    bits, rows, width = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 4)), data.draw(st.integers(0, 9))
    codec = tersor.StochasticQuantization(bits)
    xs = np.random.default_rng(bits).standard_normal((4, rows, width)).astype(np.float32)
    shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=1)
    heap = []
    for k, x in enumerate(xs):
        enc = codec.encode(x, seed=2, sender=k, shared=shared, axis=-1)
        flags = data.draw(st.one_of(st.none(), strategies.flags(enc.units.count)))
        estimate = codec.decode(enc, received=flags).astype(np.float64)
        arrived = np.ones((rows, 1)) if flags is None or not len(flags) else flags[:, None] * 1.0
        heap.append((replace(enc, received=flags), estimate * arrived, arrived))
    while len(heap) > 1:
        i, j = data.draw(st.permutations(range(len(heap))))[:2]
        (a, xa, ca), (b, xb, cb) = heap[i], heap[j]
        total = codec.add(a, b)
        twin = tersor.from_bytes(total.to_bytes())
        assert twin.to_bytes() == total.to_bytes()
        heap = [item for k, item in enumerate(heap) if k not in (i, j)] + [(twin, xa + xb, ca + cb)]
    total, x, count = heap[0]
    assert np.allclose(codec.decode(total), x / np.maximum(count, 1), atol=1e-5)
