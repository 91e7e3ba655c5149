"""The contract of codecs, continued: rows that move as bytes, batches, units that were lost, and sums of messages."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from conformance import normal, same_bits, same_message, shared_for

import tersor


def check_rows(codec):
    """Slices, take and concat only move bytes: their estimates are the rows of the whole's, bit for bit."""
    for shape in ((9, 80), (9, 1), (6, 3, 16), (5, 600), (9, 33)):
        enc = codec.encode(normal(*shape), seed=3, axis=-1)
        value = codec.decode(enc)
        n = shape[0]
        assert len(enc) == n
        for cut in (
            slice(2, 5),
            slice(None),
            slice(4, 4),
            slice(n, n),
            slice(None, None, -1),
            slice(-3, None, 2),
            slice(1, 99),
        ):
            part = enc[cut]
            assert part.shape == value[cut].shape and part.nbytes == len(part.to_bytes())
            assert same_bits(codec.decode(part), value[cut]), (shape, cut)
            assert same_bits(tersor.decode(tersor.from_bytes(part.to_bytes())), value[cut])
        for chosen in ([0], [n - 1, 0, 0, 2], [], [-1, -n], np.array([1, 1], np.uint8)):
            part = enc.take(chosen)
            assert same_bits(codec.decode(part), value[np.asarray(chosen, np.int64)]), (shape, chosen)
        per_entry = int(np.prod(shape[1:-1]))
        assert enc[2:5].start == 2 * per_entry and enc[2:][1:].start == 3 * per_entry
        assert enc[::-1].start == enc[::2].start == enc.take([2, 3]).start == 0, "rows that are no unbroken run"
        joined = tersor.concat([enc[:2], enc[2:3], enc[3:3], enc[3:]])
        assert same_message(joined, enc)
        assert same_bits(codec.decode(tersor.concat([enc[5:], enc[:2]])), np.concatenate([value[5:], value[:2]]))
        with pytest.raises(IndexError):
            enc.take([n])
        with pytest.raises(IndexError):
            enc.take([-n - 1])
        for wrong in (3, "a", None):
            with pytest.raises(TypeError):
                enc[wrong]
        for wrong in ([0.5], [[0]], 3):
            with pytest.raises(TypeError):
                enc.take(wrong)
    for enc in (codec.encode(normal(9, 8), seed=1), codec.encode(normal(8), seed=1, axis=-1)):
        with pytest.raises(TypeError):
            enc[0:1]
    with pytest.raises(tersor.IncompatibleError):
        tersor.concat([codec.encode(normal(2, 8), seed=1, axis=-1), codec.encode(normal(2, 8), seed=2, axis=-1)])
    with pytest.raises(tersor.IncompatibleError):
        tersor.concat([codec.encode(normal(2, 8), seed=1, axis=-1), codec.encode(normal(2, 9), seed=1, axis=-1)])
    with pytest.raises(ValueError):
        tersor.concat([])


def check_empty_rows(codec):
    """Rows of no coordinates are rows all the same."""
    for shape in ((5, 0), (0, 5), (0, 0), (3, 0, 4), (3, 4, 0)):
        enc = codec.encode(np.zeros(shape, np.float32), seed=1, axis=-1)
        assert codec.decode(enc[1:]).shape == np.zeros(shape)[1:].shape
        assert codec.decode(enc.take([0] if shape[0] else [])).shape == (min(shape[0], 1), *shape[1:])
        joined = tersor.concat([enc, enc])
        assert codec.decode(tersor.from_bytes(joined.to_bytes())).shape == (2 * shape[0], *shape[1:])


def check_batches(codec):
    """Any split of rows, or of a vector at its blocks, gives the bytes of the whole if parts say where they start."""
    x = normal(12, 24)
    shared = shared_for(codec, [x], axis=-1)
    whole = codec.encode(x, seed=6, axis=-1, shared=shared)
    for cuts in ([6], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [5, 5, 11], [0, 12]):
        bounds = [0, *cuts, 12]
        parts = [codec.encode(x[a:b], seed=6, axis=-1, shared=shared, start=a) for a, b in itertools.pairwise(bounds)]
        assert same_message(tersor.concat(parts), whole), cuts
    y = normal(4, 3, 24)
    shared = shared_for(codec, [y], axis=-1)
    whole = codec.encode(y, seed=6, axis=-1, shared=shared)
    parts = [codec.encode(y[i : i + 1], seed=6, axis=-1, shared=shared, start=3 * i) for i in range(4)]
    assert same_message(tersor.concat(parts), whole)
    if codec.unit is None:
        return
    block = codec.unit
    v = normal(2 * block + block // 2 + 3)
    shared = shared_for(codec, [v])
    whole = codec.encode(v, seed=6, shared=shared)
    parts = [codec.encode(v[a : a + block], seed=6, shared=shared, start=a) for a in range(0, len(v), block)]
    for name, plane in whole.planes.items():
        if plane.stride:
            assert b"".join(p.planes[name].data.tobytes() for p in parts) == plane.data.tobytes(), name
    assert same_bits(np.concatenate([codec.decode(p) for p in parts]), codec.decode(whole))
    with pytest.raises(ValueError, match="start"):
        codec.encode(v, seed=6, start=block // 2)
    for start in (-block, 2**64):
        with pytest.raises(ValueError, match="start"):
            codec.encode(v, seed=6, start=start)


def check_loss(codec):
    """What did not arrive is 0, the rest is bit for bit what it was; flags and ranges say the same."""
    unit = codec.unit or 50
    for x, axis in ((normal(3 * unit + 5), None), (normal(7, 40), -1)):
        enc = codec.encode(x, seed=2, axis=axis)
        value, n = codec.decode(enc), enc.units.count
        length = x.shape[-1] if axis == -1 else min(codec.unit or x.size, x.size)
        rng = np.random.default_rng(n)
        for flags in (rng.random(n) < 0.5, np.zeros(n, bool), np.ones(n, bool), np.arange(n) == n - 1):
            expected = np.where(np.repeat(flags, length)[: x.size].reshape(x.shape), value, np.float32(0))
            ranges = [(int(k), int(k) + 1) for k in np.flatnonzero(flags)]
            assert same_bits(codec.decode(enc, received=flags), expected)
            assert same_bits(codec.decode(enc, received=flags.tolist()), expected)
            assert same_bits(codec.decode(enc, received=ranges), expected)
            base = np.full(x.shape, 3, np.float32)
            assert np.allclose(codec.decode(enc, received=flags, out=base, add=True), 3 + expected, rtol=1e-6)
            lossy = replace(enc, received=flags)
            twin = tersor.from_bytes(lossy.to_bytes())
            assert len(lossy.to_bytes()) == lossy.nbytes and np.array_equal(twin.received, flags)
            assert same_bits(tersor.decode(twin), expected)
            both = flags & (np.arange(n) % 2 == 0)
            again = codec.decode(twin, received=np.arange(n) % 2 == 0)
            assert same_bits(again, np.where(np.repeat(both, length)[: x.size].reshape(x.shape), value, np.float32(0)))
        for wrong in (np.ones(n + 1, bool), [(0, n + 1)], [(-1, 1)], [(2, 1)]):
            with pytest.raises(ValueError):
                codec.decode(enc, received=wrong)
    if codec.claims.row_addressable:
        enc = replace(codec.encode(normal(4, 8), seed=1, axis=-1), received=np.array([True, False, True, False]))
        assert enc[1:].received.tolist() == [False, True, False] and enc.take([1, 0]).received.tolist() == [False, True]
        joined = tersor.concat([enc, codec.encode(normal(4, 8), seed=1, axis=-1)]) if codec.name != "sq" else enc
        assert joined.received.tolist()[:4] == [True, False, True, False] and joined.received[4:].all()


def check_sums(codec):
    """Additive codecs add without decoding and count; all others refuse."""
    xs = [normal(700, seed=k) for k in range(5)]
    shared = shared_for(codec, xs)
    sent = [codec.encode(x, seed=1, sender=k, shared=shared) for k, x in enumerate(xs)]
    if not codec.claims.additive:
        with pytest.raises(tersor.TersorError):
            codec.add(sent[0], sent[1])
        return
    total = sent[0]
    for enc in sent[1:]:
        total = codec.add(total, enc)
    exact = np.mean([codec.decode(enc).astype(np.float64) for enc in sent], axis=0)
    span = max(float(np.abs(x).max()) for x in xs)
    assert total.count == 5
    for form in (total, tersor.from_bytes(total.to_bytes())):
        assert np.allclose(codec.decode(form), exact, atol=1e-6 * span)
        assert form.nbytes == len(form.to_bytes())
    assert np.allclose(tersor.mean(sent), exact, atol=1e-6 * span)
    reversed_total = sent[4]
    for enc in sent[3::-1]:
        reversed_total = codec.add(reversed_total, enc)
    assert same_message(reversed_total, total), "the order of a sum must not matter"
    with pytest.raises(tersor.IncompatibleError):
        codec.add(sent[0], codec.encode(xs[0], seed=1))
    with pytest.raises(tersor.IncompatibleError):
        codec.add(sent[0], codec.encode(xs[0], seed=1, shared=replace(shared, key=1)))
    short = xs[0][:-1]
    with pytest.raises(tersor.IncompatibleError):
        codec.add(sent[0], codec.encode(short, seed=1, shared=shared))
