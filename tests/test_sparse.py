"""Top-k, random-k and perm-k: what is kept, the exact error laws, shared keys, sizes, and forged indices."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import tersor
from tersor.coding import bits


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 5000])
@pytest.mark.parametrize("fraction", [0.01, 0.3, 1.0])
def test_topk_keeps_the_largest(n, fraction):
    x = normal(n)
    enc = tersor.TopK(fraction).encode(x)
    value = tersor.decode(enc)
    k = min(max(int(np.ceil(fraction * n)), 1), n)
    order = np.argsort(-np.abs(x), kind="stable")
    expected = np.zeros(n, np.float32)
    expected[order[:k]] = x[order[:k]]
    assert np.array_equal(value, expected)
    assert enc.error == pytest.approx(tersor.nmse(x, value), abs=1e-12)
    assert tersor.nmse(x, value) <= 1 - k / n + 1e-12
    assert enc.planes["indices"].data.nbytes == -(-k * max((n - 1).bit_length(), 1) // 8)


def test_topk_ties_go_by_the_lower_index_and_rows_on_their_own():
    x = np.array([[1, -1, 1, 1], [0, 0, 0, 0], [2, 3, -3, 3]], np.float32)
    got = tersor.roundtrip(x, "topk:0.5", axis=-1)
    assert got.tolist() == [[1, -1, 0, 0], [0, 0, 0, 0], [0, 3, -3, 0]]


@pytest.mark.parametrize("places", [[2, 2], [3, 1], [1, 5]])
def test_topk_refuses_forged_indices(places):
    enc = tersor.TopK(0.4).encode(normal(5))
    packed = bits.pack(np.array([places], np.uint32), 3).reshape(-1)
    forged = replace(enc, planes={**enc.planes, "indices": replace(enc.planes["indices"], data=packed)})
    with pytest.raises(tersor.FormatError, match="ascend"):
        tersor.from_bytes(forged.to_bytes())


def test_permk_refuses_a_worker_that_is_not_there():
    enc = tersor.PermK(workers=3).encode(normal(5))
    with pytest.raises(tersor.FormatError, match="worker 3"):
        tersor.from_bytes(replace(enc, fields=b"\3\0\0\0").to_bytes())


def test_randk_takes_every_subset_equally_often():
    """Exact by enumeration: 6 subsets of 2 out of 4, chi-squared of 3,000 draws below the 99.99 % point."""
    x = np.arange(1, 5, dtype=np.float32)
    counts = dict.fromkeys(combinations(range(4), 2), 0)
    for seed in range(3000):
        value = tersor.decode(tersor.RandK(0.5).encode(x, seed=seed))
        chosen = tuple(np.flatnonzero(value).tolist())
        assert value[list(chosen)].tolist() == (2 * x[list(chosen)]).tolist()
        counts[chosen] += 1
    assert sum((c - 500) ** 2 / 500 for c in counts.values()) < 25.7


@pytest.mark.parametrize(("spec", "law"), [("randk:0.25", 3), ("randk:0.01", 98.9), ("permk:5", 4), ("permk:1", 0)])
def test_the_error_law_of_random_choices(spec, law):
    """E vNMSE = n / k - 1 (k = ceil(fraction n)) and workers - 1, for normal and for one-hot input."""
    codec = tersor.get_codec(spec)
    x = normal(4096)
    errors = [codec.encode(x, seed=s).error for s in range(200)]
    expected = codec.expected_error()
    assert expected == pytest.approx(law, rel=0.02)
    assert np.mean(errors) == pytest.approx(expected, abs=4 * np.std(errors) / np.sqrt(200) + 1e-9)
    one_hot = np.zeros(4096, np.float32)
    one_hot[77] = 2
    values = np.array([codec.decode(codec.encode(one_hot, seed=s)) for s in range(400)])
    assert set(np.unique(values)) <= {0, np.float32(2 * (1 + expected))}
    p = 1 / (1 + expected)
    assert np.mean(values[:, 77] > 0) == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 400) + 1e-9)


@pytest.mark.parametrize("n", [1, 3, 4, 10, 4096, 4100, 9000])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_permk_workers_of_one_vector_have_it_exactly(n, workers):
    codec, shared = tersor.PermK(workers), tersor.Shared(key=7)
    x = normal(n)
    sent = [codec.encode(x, seed=1, sender=w, shared=shared) for w in range(workers)]
    values = np.stack([codec.decode(enc) for enc in sent])
    assert ((values != 0).sum(0) == 1).all(), "every coordinate has one worker"
    assert np.allclose(values.mean(0), x, rtol=1e-6)
    assert len({enc.nbytes for enc in sent}) == 1
    rows = normal(5, n)
    sent = [codec.encode(rows, seed=1, sender=w, shared=shared, axis=-1) for w in range(workers)]
    assert np.allclose(tersor.mean(sent), rows, rtol=1e-6)


def test_permk_deals_shorter_shares_to_each_in_turn():
    """With n = 4 and 3 workers one worker has two coordinates; over keys each is that one equally often."""
    codec, x = tersor.PermK(3), np.ones(4, np.float32)
    two = np.zeros(3)
    for key in range(450):
        shares = [
            np.count_nonzero(codec.decode(codec.encode(x, seed=1, sender=w, shared=tersor.Shared(key))))
            for w in range(3)
        ]
        assert sorted(shares) == [1, 1, 2]
        two[shares.index(2)] += 1
    assert sum((two - 150) ** 2 / 150) < 18.4  # 99.99 % point at 2 degrees of freedom


def test_large_and_split_vectors_draw_by_position():
    x = normal(1_200_000)
    for spec in ("randk:0.1", "permk:4"):
        codec = tersor.get_codec(spec)
        whole = codec.decode(codec.encode(x, seed=3))
        parts = [
            codec.decode(codec.encode(x[a:b], seed=3, start=a)) for a, b in ((0, 4096 * 100), (4096 * 100, x.size))
        ]
        assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize(
    "spec", ["topk:0", "topk:1.5", "topk:-1", "topk:nan", "randk:0.1,values=int8", "permk:0", "permk:2.5"]
)
def test_bad_options(spec):
    with pytest.raises(ValueError, match=spec.split(":")[0]):
        tersor.get_codec(spec)
