"""all_reduce over in-process links: every topology and codec, any number of ranks, failures known to all."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tersor
from tersor.collectives import LocalLink, Trace, all_reduce
from tersor.collectives.frames import RemoteError
from tersor.collectives.transpose import shards

TOPOLOGIES = ["gather", "transpose", "sharded", "ring", "butterfly", "server"]
BOUNDS = {
    "none": 1e-13,
    "bf16": 3e-5,
    "int8": 1e-3,
    "eden:4": 0.025,
    "eden:1": 1.8,
    "drive": 1.8,
    "sq:8": 1e-3,
    "thc:4": 0.06,
    "ecasq:4": 0.06,
}
SPECS = list(BOUNDS)


def on_all(size, call):
    links = LocalLink.group(size, timeout=30)
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(call, link) for link in links]
        return [f.result() if f.exception() is None else f.exception() for f in futures]


def vectors(size, d, seed=0):
    return np.random.default_rng(seed).standard_normal((size, d)).astype(np.float32)


def reduced(xs, spec, **options):
    def call(link):
        x = xs[link.rank].copy()
        all_reduce(link, x, spec, seed=5, **options)
        return x

    return on_all(len(xs), call)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_all_ranks_end_with_the_same_bits_near_the_mean(size, spec, topology):
    xs = vectors(size, 3 * 4096 + 77)
    results = reduced(xs, spec, topology=topology, average=True)
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    mean = xs.astype(np.float64).mean(0)
    if size == 1:
        assert results[0].tobytes() == xs[0].tobytes()
    else:
        # A ring rounds the sum of k vectors at the k-th rank: n / 2 times the error of one rounding and one more.
        assert tersor.nmse(mean, results[0]) < BOUNDS[spec] * (size if topology in ("ring", "butterfly") else 1)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("d", [0, 1, 2, 3, 31, 33, 255, 4095, 4096, 4097, 8193])
def test_any_length(d, topology):
    xs = vectors(3, d)
    results = reduced(xs, "eden:8", topology=topology)
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    assert tersor.nmse(xs.astype(np.float64).sum(0), results[0]) < 2e-3


def test_the_error_follows_the_law():
    # One encoding a sender, averaged, and one more at the owner: for n equal vectors m / n + m (1 + m / n).
    size, m = 4, tersor.Eden(bits=2).expected_error()
    x = vectors(1, 2**16)[0]
    result = reduced(np.stack([x] * size), "eden:2", topology="transpose", average=True)[0]
    assert tersor.nmse(x, result) == pytest.approx(m / size + m * (1 + m / size), rel=0.04)
    result = reduced(np.stack([x] * size), "eden:2", topology="gather", average=True)[0]
    assert tersor.nmse(x, result) == pytest.approx(m / size, rel=0.04)
    # In a ring the sum of k vectors is encoded at the k-th rank.
    error = 0.0
    for k in range(1, size + 1):
        error += m * (k**2 + error)
    result = reduced(np.stack([x] * size), "eden:2", topology="ring", average=True)[0]
    assert tersor.nmse(x, result) == pytest.approx(error / size**2, rel=0.04)


def test_own_is_what_the_others_decode():
    xs = vectors(3, 10_000)

    def call(link):
        x, own = xs[link.rank].copy(), np.empty(10_000, np.float32)
        all_reduce(link, x, "eden:2", seed=5, own=own, topology="gather")
        return x, own

    results = on_all(3, call)
    total = results[0][1] + results[1][1] + results[2][1]
    assert np.allclose(total, results[0][0], atol=1e-5)


@pytest.mark.parametrize("average", [False, True])
def test_own_of_a_ring_holds_all_that_was_lost_before_the_owner_encodes(average):
    # x_hat is the sum of all own, but for the owners' last rounding.
    xs = vectors(4, 2**16)

    def call(link):
        x, own = xs[link.rank].copy(), np.empty(2**16, np.float32)
        all_reduce(link, x, "eden:4", seed=5, own=own, topology="ring", average=average)
        return x, own

    results = on_all(4, call)
    kept = np.sum([own for _, own in results], axis=0, dtype=np.float64) / (4 if average else 1)
    assert tersor.nmse(kept, results[0][0]) == pytest.approx(tersor.Eden(bits=4).expected_error(), rel=0.04)
    assert tersor.nmse(xs.sum(0, dtype=np.float64) / (4 if average else 1), kept) > 0.01


def test_a_ring_whose_sum_overflows_on_the_way_says_so_on_all_ranks():
    big = np.full((3, 9000), 2e38, np.float32)
    for error in reduced(big, "none", topology="ring"):
        assert isinstance(error, tersor.NonFiniteError) and "overflows" in str(error)


def test_trace_counts_time_and_error():
    xs = vectors(4, 50_000)

    def call(link):
        trace = Trace()
        all_reduce(link, xs[link.rank].copy(), "eden:2", seed=5, trace=trace)
        return trace, link.bytes_sent

    for trace, sent in on_all(4, call):
        assert trace.vnmse == pytest.approx(0.133, rel=0.1)
        assert trace.seconds(wire=False) > 0 and trace.seconds(wire=True) > 0
        assert sent == pytest.approx(2 * 3 / 4 * 50_000 * 2 / 8, rel=0.2)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("spec", ["eden:4", "sq:4", "thc:4", "none"])
def test_nonfinite_on_one_rank_is_known_to_all(spec, topology):
    xs = vectors(4, 9000)
    xs[2, 4321] = np.inf
    for result in reduced(xs, spec, topology=topology, nonfinite="propagate"):
        assert np.isnan(result).all()

    def call(link):
        x = xs[link.rank].copy()
        with pytest.raises(tersor.NonFiniteError, match=r"\[2\]"):
            all_reduce(link, x, spec, seed=5, topology=topology)
        return x.tobytes() == xs[link.rank].tobytes()

    assert on_all(4, call) == [True] * 4


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_failure_on_one_rank_is_an_error_on_all(topology):
    xs = vectors(3, 9000)
    xs[1, 5] = 3e38  # does not fit in a float16 scale
    codec = tersor.Eden(bits=4, scale_dtype="float16")

    def call(link):
        x = xs[link.rank].copy()
        with pytest.raises(tersor.TersorError) as caught:
            all_reduce(link, x, codec, seed=5, topology=topology)
        return type(caught.value), x.tobytes() == xs[link.rank].tobytes()

    expected = [(RemoteError, True), (tersor.RangeError, True), (RemoteError, True)]
    assert on_all(3, call) == expected


def test_different_codecs_are_refused():
    xs = vectors(2, 9000)

    def call(link):
        all_reduce(link, xs[link.rank].copy(), "eden:4" if link.rank else "eden:4,scale=norm", seed=5)

    assert all(isinstance(error, Exception) for error in on_all(2, call))


def test_zeros_stay_zeros_and_large_values_stay_finite():
    assert all((r == 0).all() for r in reduced(np.zeros((3, 5000), np.float32), "eden:4"))
    big = np.full((3, 5000), 2e38, np.float32)
    for result in reduced(big, "eden:4", topology="transpose", average=True):
        assert np.isfinite(result).all() and tersor.nmse(big[0], result) < 0.03


def test_shards_cover_the_vector_in_whole_units():
    for size in (0, 1, 4096, 4097, 100_000):
        for ranks in (1, 2, 3, 7):
            ranges = shards(size, ranks, 4096)
            assert ranges[0][0] == 0 and ranges[-1][1] == size and len(ranges) == ranks
            assert all(a % 4096 == 0 and a <= b for a, b in ranges)


def test_bad_arguments():
    link = LocalLink.group(1)[0]
    with pytest.raises(ValueError, match="topology"):
        all_reduce(link, np.zeros(3, np.float32), "none", seed=1, topology="star")
    with pytest.raises(ValueError, match="contiguous float32"):
        all_reduce(link, np.zeros(3), "none", seed=1)


@pytest.mark.parametrize("topology", ["transpose", "ring"])
def test_a_late_failure_of_encoding_is_an_error_on_all(topology):
    # Rank 1 fails on its last shard, when its other parts may be gone: the last exchange tells everybody.
    xs = vectors(3, 5 * 4096)
    xs[1, -5] = 3e38
    codec = tersor.Eden(bits=4, scale_dtype="float16")

    def call(link):
        x = xs[link.rank].copy()
        with pytest.raises(tersor.TersorError) as caught:
            all_reduce(link, x, codec, seed=5, topology=topology)
        assert link.rank == 1 or caught.value.rank == 1
        return type(caught.value), x.tobytes() == xs[link.rank].tobytes()

    assert on_all(3, call) == [(RemoteError, True), (tersor.RangeError, True), (RemoteError, True)]
