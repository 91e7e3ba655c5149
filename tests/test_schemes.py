"""Schemes with consensus: what they keep, what they send, error feedback's books, failures; any number of ranks."""

import copy

import numpy as np
import pytest
from test_collectives import on_all, reduced, vectors

import tersor
from tersor.collectives import LocalLink, Tensors, all_reduce, get_scheme
from tersor.collectives.frames import RemoteError
from tersor.collectives.schemes import PowerSGD

SPECS = ["topkc:0.25", "topkc:0.1,block=32,values=none", "omnireduce", "omnireduce:0.3,values=fp16", "powersgd:2"]
SHAPES = [(40, 60), (7,), (16, 3, 5, 5), (3, 0), (2, 2), (96, 33)]
D = sum(int(np.prod(s)) for s in SHAPES)


def run(spec, xs, steps=1, average=True, feedback=False):
    """Results of the last step on all ranks, and what each rank's own, residual and memory came to."""
    scheme = get_scheme(spec)

    def call(link):
        tensors = Tensors(SHAPES, [scheme.init(s) for s in SHAPES])
        residual = np.zeros(D, np.float32)
        applied = np.zeros(D)
        for step in range(steps):
            sent = xs[link.rank] + (residual if feedback else 0)
            x, own = sent.copy(), np.empty(D, np.float32)
            all_reduce(link, x, scheme, seed=step, average=average, own=own, tensors=tensors)
            residual = sent - own
            applied += x
        return x, own, residual, applied, tensors.memory

    return on_all(len(xs), call)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("spec", SPECS)
def test_ranks_end_with_the_same_bits_and_own_adds_up(spec, size):
    xs = vectors(size, D)
    results = run(spec, xs)
    assert all(r[0].tobytes() == results[0][0].tobytes() for r in results)
    if size == 1:
        assert np.array_equal(results[0][0], xs[0])
        return
    total = np.sum([own for _, own, *_ in results], axis=0, dtype=np.float64) / size
    # Values are rounded once more at their owners.
    assert np.allclose(total, results[0][0], atol=2e-2 if "powersgd" not in spec else 1e-5)
    for memory in zip(*(r[4] for r in results), strict=True):
        assert all(m["q"].tobytes() == memory[0]["q"].tobytes() for m in memory if m)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_applied_and_what_is_left_make_the_sum_of_gradients(spec):
    xs, steps = vectors(4, D), 6
    results = run(spec, xs, steps=steps, feedback=True)
    left = np.mean([r[2] for r in results], axis=0, dtype=np.float64)
    whole = steps * xs.mean(0, dtype=np.float64)
    exact = "powersgd" in spec or "none" in spec
    assert np.allclose(results[0][3] + left, whole, atol=1e-4 if exact else 0.1)


def test_chunk_consensus_keeps_the_chunks_that_are_largest_over_all_ranks():
    xs = vectors(3, 64 * 100)
    strong = np.array([3, 17, 40, 99])
    xs.reshape(3, 100, 64)[:, strong] *= 20
    got = reduced(xs, "topkc:0.04,values=none", average=True)[0].reshape(100, 64)
    assert np.flatnonzero(got.any(axis=1)).tolist() == strong.tolist()
    assert np.allclose(got[strong], xs.mean(0).reshape(100, 64)[strong], atol=1e-5)
    # training.md 3.2: a quarter of the chunks of i.i.d. normal vectors.
    xs = vectors(4, 2**16)
    error = tersor.nmse(xs.mean(0, dtype=np.float64), reduced(xs, "topkc:0.25", average=True)[0])
    assert 0.71 < error < 0.74


def test_blocks_that_are_zero_everywhere_do_not_travel():
    d = 256 * 400
    xs = np.zeros((3, d), np.float32)
    for rank in range(3):
        xs[rank, 256 * (10 * rank) : 256 * (10 * rank + 12)] = vectors(1, 256 * 12, seed=rank)[0]

    def call(link, values):
        x = xs[link.rank].copy()
        all_reduce(link, x, f"omnireduce,values={values}", seed=1)
        return x, link.bytes_sent

    results = on_all(3, lambda link: call(link, "none"))
    assert np.allclose(results[0][0], xs.sum(0), atol=1e-6)
    assert all(sent < 2 * 2 / 3 * 4 * 256 * 33 for _, sent in results)
    assert all(sent < 2 * 2 / 3 * 2 * 256 * 33 for _, sent in on_all(3, lambda link: call(link, "bf16")))
    assert all((r == 0).all() for r in reduced(np.zeros((3, 1000), np.float32), "omnireduce"))


def test_powersgd_finds_matrices_of_its_rank_exactly_and_warms_up():
    g = np.random.default_rng(0)
    low = (g.standard_normal((40, 2)) @ g.standard_normal((2, 60))).astype(np.float32)
    xs = np.zeros((4, D), np.float32)
    xs[:, :2400] = low.reshape(-1) * np.arange(1, 5)[:, None]
    results = run("powersgd:2", xs)
    assert tersor.nmse(xs.mean(0), results[0][0]) < 1e-9
    noisy = vectors(4, D) * 0.2 + xs
    errors = [tersor.nmse(noisy.mean(0)[:2400], run("powersgd:1", noisy, steps=s)[0][0][:2400]) for s in (1, 4)]
    best = np.linalg.svd(noisy.mean(0)[:2400].reshape(40, 60), compute_uv=False)
    least = 1 - best[0] ** 2 / (best**2).sum()
    assert errors[1] < errors[0] and errors[1] == pytest.approx(least, rel=0.05)


def test_powersgd_sends_factors():
    xs, shape = vectors(4, 512 * 512), (512, 512)
    scheme = PowerSGD(rank=4)

    def call(link):
        x = xs[link.rank].copy()
        all_reduce(link, x, scheme, seed=1, tensors=Tensors([shape], [scheme.init(shape)]))
        return link.bytes_sent

    assert all(sent < 2 * 3 / 4 * 4 * 1024 * 4 * 1.3 for sent in on_all(4, call))


def test_zero_matrices_and_huge_ones():
    assert all((r[0] == 0).all() for r in run("powersgd:2", np.zeros((3, D), np.float32), steps=2))
    big = np.full((3, D), 1e37, np.float32)
    assert tersor.nmse(big[0].astype(np.float64), run("powersgd:1", big)[0][0]) < 1e-6
    tiny = vectors(3, D) * np.float32(1e-30)
    assert np.isfinite(run("powersgd:2", tiny)[0][0]).all()
    for spec in ("topkc:0.5", "omnireduce"):
        assert np.isfinite(run(spec, np.full((3, D), 3e38, np.float32))[0][0]).all()


@pytest.mark.parametrize("spec", SPECS)
def test_nonfinite_and_failures_leave_everything_as_it_was(spec, monkeypatch):
    scheme, xs = get_scheme(spec), vectors(3, D)
    xs[1, 5] = np.inf

    def call(link):
        tensors = Tensors(SHAPES, [scheme.init(s) for s in SHAPES])
        before, x = copy.deepcopy(tensors.memory), xs[link.rank].copy()
        with pytest.raises((tersor.NonFiniteError, RemoteError, MemoryError)) as caught:
            all_reduce(link, x, scheme, seed=1, tensors=tensors)
        same = all(np.array_equal(m.get("q"), b.get("q")) for m, b in zip(tensors.memory, before, strict=True) if m)
        return type(caught.value), same and x.tobytes() == xs[link.rank].tobytes()

    assert on_all(3, call) == [(tersor.NonFiniteError, True)] * 3
    xs[1, 5] = 0
    original = tersor.get_codec("none").encode.__func__

    def encode(self, x, **options):
        if options.get("sender") == 1:
            raise MemoryError("no room")
        return original(self, x, **options)

    values = "none" if "none" in spec or "powersgd" in spec else "fp16" if "fp16" in spec else "bf16"
    kind = type(tersor.get_codec(values))
    monkeypatch.setattr(kind, "encode", encode)
    results = on_all(3, call)
    assert [r[0] for r in results] == [RemoteError, MemoryError, RemoteError] and all(r[1] for r in results)


def test_specs_and_arguments():
    for spec in SPECS:
        assert get_scheme(spec).spec == spec and not get_scheme(spec).claims.unbiased
    for bad in (
        "topkc:0",
        "topkc:1.5",
        "topkc:0.5,block=0",
        "topkc:0.5,values=int8",
        "powersgd:0",
        "powersgd:1,min_rate=0.5",
    ):
        with pytest.raises(ValueError):
            get_scheme(bad)
    with pytest.raises(ValueError, match="runs over"):
        all_reduce(LocalLink.group(2)[0], np.zeros(3, np.float32), "topkc:0.5", seed=1, topology="ring")
