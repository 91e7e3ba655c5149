"""Topologies: errors against the measured table of the notes, sums as integers, saturation, the switch's losses."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_collectives import on_all, reduced, vectors

import tersor
from tersor.collectives import Switch, SwitchLink, Trace, all_reduce

D = 2**17
HOPPING = ("ring", "butterfly")


def vnmse(xs, spec, topology):
    """Of the mean, gradients divided by n first as in the notes: the scale changes nothing."""
    result = reduced(xs, spec, topology=topology, average=True)[0]
    return tersor.nmse(xs.mean(0, dtype=np.float64), result)


# i.i.d. normal vectors, training.md 3.2; n = 2, 4, 8.
TABLE = {
    ("mxfp8", "ring"): (0.00136, 0.00236, 0.00413),
    ("mxfp8", "butterfly"): (0.00135, 0.0018, 0.0023),
    ("mxfp8", "transpose"): (0.00185, 0.00175, 0.0018),
    ("mxfp6:e2m3", "ring"): (0.0012, 0.0020, 0.0036),
    ("mxfp6:e3m2", "ring"): (0.0044, 0.0074, 0.013),
    ("mxfp4", "ring"): (0.0198, 0.034, 0.057),
    ("mxfp4", "butterfly"): (0.0198, 0.026, 0.033),
    ("mxfp4", "transpose"): (0.028, 0.028, 0.027),
    ("int8", "transpose"): (9.7e-5, 9.7e-5, 9.7e-5),
    ("bf16", "ring"): (4.1e-6, 6.9e-6, 1.2e-5),
    ("fp16", "ring"): (6.4e-8, 1.1e-7, 1.9e-7),
}


@pytest.mark.parametrize(("spec", "topology"), TABLE)
def test_errors_on_normal_vectors_are_those_of_the_notes(spec, topology):
    for n, expected in zip((2, 4, 8), TABLE[spec, topology], strict=True):
        tolerance = 0.1 if spec in ("bf16", "fp16") else 0.06
        assert vnmse(vectors(n, D, seed=n), spec, topology) == pytest.approx(expected, rel=tolerance), n


def test_more_hops_err_more_and_one_hop_does_not_grow():
    for spec in ("mxfp8", "mxfp4", "mxfp6:e2m3"):
        ring, butterfly, transpose = (vnmse(vectors(8, D), spec, t) for t in ("ring", "butterfly", "transpose"))
        assert ring > butterfly > transpose
    assert vnmse(vectors(16, D), "mxfp8", "transpose") == pytest.approx(0.00175, rel=0.06)
    assert vnmse(vectors(16, D), "bf16", "ring") < 3e-6 * 16
    assert vnmse(vectors(16, D), "none", "ring") < 1e-13


def test_rounding_to_nearest_stalls_in_a_long_ring_and_stochastic_rounding_does_not():
    xs = vectors(64, 2**14) + vectors(1, 2**14, seed=1)
    expected = {"mxfp8": 0.221, "mxfp8:scale_rounding=up": 0.123, "mxfp8:rounding=stochastic,scale_rounding=up": 0.030}
    for spec, value in expected.items():
        assert vnmse(xs, spec, "ring") == pytest.approx(value, rel=0.1)


@pytest.mark.parametrize("topology", ["sharded", "ring", "butterfly", "server"])
@pytest.mark.parametrize("spec", ["thc:4", "sq:6"])
def test_additive_codecs_give_one_sum_whatever_the_topology(spec, topology):
    for n in (2, 3, 5, 16, 17, 64):
        xs = vectors(n, 5 * 4096 + 9)
        codec = tersor.get_codec(spec)
        shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=tersor.rng.mix64(5, tensor=1))
        total = codec.add_all([codec.encode(x, seed=5, sender=k, shared=shared) for k, x in enumerate(xs)])
        expected = codec.decode(total, weight=1 / n * n)
        assert np.array_equal(reduced(xs, spec, topology=topology, average=True)[0], expected)


@pytest.mark.parametrize("topology", ["gather", "transpose", "sharded", "ring", "butterfly", "server"])
@pytest.mark.parametrize("spec", ["eden:4", "thc:4", "eden:2,grid=uniform"])
def test_any_number_of_ranks(topology, spec):
    for n in (6, 7, 16, 64):
        results = reduced(vectors(n, 3 * 4096), spec, topology=topology)
        assert all(r.tobytes() == results[0].tobytes() for r in results)


@pytest.mark.parametrize("topology", ["transpose", "sharded", "ring", "butterfly", "server"])
@pytest.mark.parametrize("spec", ["none", "eden:2", "thc:4", "thc:4,sum_bits=6"])
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_own_holds_all_that_was_lost_before_the_last_encoding(n, topology, spec):
    # The sum is the sum of all own, but for the last rounding: none where integers are added.
    xs = vectors(n, 2 * 4096 * n)

    def call(link):
        x, own, trace = xs[link.rank].copy(), np.empty(xs.shape[1], np.float32), Trace()
        all_reduce(link, x, spec, seed=5, own=own, topology=topology, trace=trace)
        return x, own, trace

    results = on_all(n, call)
    kept = np.sum([own for _, own, _ in results], axis=0, dtype=np.float64)
    last = tersor.get_codec(spec).expected_error() if spec == "eden:2" or topology == "transpose" else 0
    assert tersor.nmse(kept, results[0][0]) == pytest.approx(last or 0, rel=0.1, abs=1e-9)
    if spec.endswith("sum_bits=6") and topology != "transpose":
        assert (sum(trace.saturated for *_, trace in results) > 0) == (n > 4)


def bytes_sent(n, d, spec, topology):
    def call(link):
        all_reduce(link, vectors(n, d)[link.rank].copy(), spec, seed=5, topology=topology)
        return link.bytes_sent * 8 / d

    return on_all(n, call)


def test_bits_on_the_wire():
    d, n = 2**17, 4
    for topology, expected in {
        "sharded": [3 / 4 * (4 + 8)] * 4,
        "ring": [(4 + 8 + 8 + 3 * 8) / 4] * 4,
        "butterfly": [(2 * 4 + 8 + 3 * 8) / 4] * 4,
        "server": [3 * 8, 4, 4, 4],
    }.items():
        sent = bytes_sent(n, d, "thc:4", topology)
        # Statistics: every block's range to all, and from rank 0 to all.
        assert sent == pytest.approx(expected, rel=0.02), topology
    assert bytes_sent(n, d, "int8", "ring") == pytest.approx([2 * 3 / 4 * 8.125] * 4, rel=0.01)


def switched(xs, spec, **options):
    links = SwitchLink.around(Switch(**options), len(xs), timeout=30)

    def call(link):
        x, own = xs[link.rank].copy(), np.empty(xs.shape[1], np.float32)
        all_reduce(link, x, spec, seed=5, topology="switch", average=True, own=own)
        return x, own

    with ThreadPoolExecutor(len(xs)) as pool:
        return list(pool.map(call, links)), links[0].switch


def test_a_switch_that_loses_nothing_sums_like_a_server():
    xs = vectors(5, 10 * 1024 + 3)
    for spec, packet in (("thc:4,block=1024", 1024), ("sq:4", 4096)):
        results, model = switched(xs, spec, packet=packet)
        expected = reduced(xs, spec, topology="server", average=True)[0]
        assert all(np.array_equal(x, expected) for x, _ in results)
        assert model.timeouts == 0 and model.lost == 0


def test_a_lossy_switch_leaves_ranks_identical_and_errors_accounted_for():
    xs = vectors(6, 64 * 1024)
    results, model = switched(xs, "thc:4,block=1024", loss=0.02, late=0.05, slots=16, seed=3)
    first = results[0][0].reshape(64, 1024)
    assert all(np.array_equal(x, results[0][0]) for x, _ in results)
    assert model.timeouts > 0 and model.lost > 0 and model.packets == 6 * 64
    owns = np.stack([own.reshape(64, 1024) for _, own in results]).astype(np.float64)
    delivered = owns.any(axis=2)
    missing = ~delivered.any(axis=0)
    assert 0 < missing.sum() < 32 and (first[missing] == 0).all()
    # What arrived is the mean of those that count, and only they have it in `own`.
    counts = np.maximum(delivered.sum(axis=0), 1)
    assert set(counts.tolist()) > {6}
    assert np.allclose(owns.sum(axis=0) / counts[:, None], first, atol=1e-5)


def test_a_switch_refuses_what_it_cannot_add():
    xs = vectors(2, 4096)
    for spec, match in (("eden:4", "additive"), ("thc:4", "block=1024")):

        def call(link, spec=spec, match=match):
            with pytest.raises(ValueError, match=match):
                all_reduce(link, xs[link.rank].copy(), spec, seed=1, topology="switch")
            return True

        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(call, SwitchLink.around(Switch(), 2)))
    for error in on_all(2, lambda link: all_reduce(link, xs[link.rank].copy(), "thc:4", seed=1, topology="switch")):
        assert isinstance(error, ValueError) and "SwitchLink" in str(error)
