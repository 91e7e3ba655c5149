"""Distributed Lion: votes counted right with ties and zeros, replicas identical, accuracy, state after failures."""

import io
import threading

import numpy as np
import pytest
from test_collectives import on_all

import tersor
from tersor.collectives import LocalLink, vote
from tersor.collectives import votes as votes_module
from tersor.collectives.frames import RemoteError

torch = pytest.importorskip("torch")
from test_hook import batch, bits, make_model  # noqa: E402

import tersor.torch  # noqa: E402
from tersor.torch import DistributedLion, check_identical  # noqa: E402


def voted(votes, **options):
    return on_all(len(votes), lambda link: vote(link, votes[link.rank], **options))


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("d", [0, 1, 7, 8, 9, 100])
def test_sums_of_packed_votes_are_exact(d, zeros):
    for n in [*range(1, 10), 16, 33, 64]:
        g = np.random.default_rng(n * d)
        votes = g.choice([-1, 0, 1] if zeros else [-1, 1], (n, d)).astype(np.int8)
        total = votes.astype(int).sum(0)
        for rule, expected in (("average", total), ("majority", np.sign(total))):
            results = voted(votes, rule=rule)
            assert all(np.array_equal(r, expected) for r in results), (n, rule)


def test_a_coin_breaks_ties_alike_on_all_ranks_and_without_bias():
    votes = np.ones((4, 4000), np.int8)
    votes[:2] = -1
    results = voted(votes, ties="coin", seed=3)
    assert all(np.array_equal(r, results[0]) for r in results)
    assert set(results[0].tolist()) == {-1, 1} and abs(results[0].mean()) < 4 / np.sqrt(4000)
    votes[0, :100] = 1
    assert (voted(votes, ties="coin", seed=3)[0][:100] == 1).all()


def test_bits_on_the_wire():
    d = 80_000

    def sent(votes, **options):
        def call(link):
            vote(link, votes[link.rank], **options)
            return link.bytes_sent * 8 / d

        return on_all(len(votes), call)

    for n, down in ((3, 1), (4, 2)):
        votes = np.where(np.random.default_rng(0).random((n, d)) < 0.5, 1, -1).astype(np.int8)
        assert sent(votes) == pytest.approx([(n - 1) / n * (1 + down)] * n, rel=0.01)
        assert sent(votes, ties="coin") == pytest.approx([(n - 1) / n * 2] * n, rel=0.01)
        assert sent(votes, rule="average") == pytest.approx([(n - 1) / n * (1 + n.bit_length())] * n, rel=0.01)


def test_bad_votes_and_failures_are_known_to_all(monkeypatch):
    votes = np.ones((3, 50), np.int8)

    def call(link):
        bad = tersor.NonFiniteError("no", 0) if link.rank == 1 else None
        return vote(link, votes[link.rank], bad=bad)

    assert all(isinstance(e, tersor.NonFiniteError) and "[1]" in str(e) for e in on_all(3, call))
    original, here = votes_module._packed, threading.local()

    def packed(*args):
        if here.rank == 1:
            raise MemoryError("no room")
        return original(*args)

    def failing(link):
        here.rank = link.rank
        return vote(link, votes[link.rank])

    monkeypatch.setattr(votes_module, "_packed", packed)

    assert [type(e) for e in on_all(3, failing)] == [RemoteError, MemoryError, RemoteError]
    with pytest.raises(ValueError, match="rule"):
        vote(LocalLink.group(1)[0], votes[0], rule="loudest")


def lion_step(model, momenta, grads, lr=3e-4):
    """The update of a single Lion, by the book."""
    for p, m, g in zip(model, momenta, grads, strict=True):
        p -= lr * np.sign(0.9 * m + 0.1 * g)
        m *= 0.99
        m += 0.01 * g


def test_one_worker_is_lion():
    g = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.zeros(50, dtype=torch.float64))
    optimizer = DistributedLion([parameter], lr=3e-4, link=LocalLink.group(1)[0])
    x, m = np.zeros(50), np.zeros(50)
    for _ in range(5):
        grad = g.standard_normal(50)
        parameter.grad = torch.from_numpy(grad.copy())
        optimizer.step()
        lion_step([x], [m], [grad])
    assert np.allclose(parameter.detach().numpy(), x, atol=1e-9)


def run_lion(rank, options):
    model = make_model()
    optimizer = DistributedLion(model.parameters(), lr=1e-3, weight_decay=0.01, **options)
    losses = []
    for step in range(20):
        x, y = batch(rank, step % 4)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    check_identical(model.parameters())
    momenta = b"".join(s["momentum"].numpy().tobytes() for s in optimizer.state.values())
    return bits(model), momenta, losses, optimizer.bytes_sent


@pytest.mark.parametrize("options", [{}, {"vote": "average"}, {"ties": "coin"}])
def test_replicas_stay_identical_and_momenta_do_not(pool, options):
    results = pool.run(run_lion, options)
    assert len({r[0] for r in results}) == 1 and len({r[1] for r in results}) == 4
    assert all(r[2][-1] < r[2][0] and r[3] > 0 for r in results)


def run_resume(rank):
    def fresh():
        model = make_model()
        return model, DistributedLion(model.parameters(), lr=1e-3, ties="coin")

    def go(model, optimizer, first, steps):
        for step in range(first, first + steps):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    model, optimizer = fresh()
    go(model, optimizer, 0, 3)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    go(model, optimizer, 3, 3)
    again, other = fresh()
    file.seek(0)
    model_state, state = torch.load(file, weights_only=True)
    again.load_state_dict(model_state)
    other.load_state_dict(state)
    go(again, other, 3, 3)
    return bits(model) == bits(again)


def test_a_resumed_run_equals_an_uninterrupted_one(pool):
    assert all(pool.run(run_resume))


def run_nan(rank):
    model = make_model()
    optimizer = DistributedLion(model.parameters(), lr=1e-3)
    for step in range(3):
        x, y = batch(rank, step)
        if step == 1 and rank == 2:
            x[0, 0] = float("nan")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        before = bits(model), [s["momentum"].clone() for s in optimizer.state.values()]
        if step == 1:
            with pytest.raises(tersor.NonFiniteError, match=r"\[2\]"):
                optimizer.step()
            same = all(torch.equal(a, s["momentum"]) for a, s in zip(before[1], optimizer.state.values(), strict=True))
            assert bits(model) == before[0] and same
        else:
            optimizer.step()
    return bits(model)


def test_nan_on_one_rank_raises_on_all_and_changes_nothing(pool):
    assert len(set(pool.run(run_nan))) == 1


def test_bad_arguments():
    p = [torch.nn.Parameter(torch.zeros(2))]
    for options in ({"lr": -1}, {"betas": (1.0, 0.9)}, {"vote": "most"}, {"ties": "never"}, {"weight_decay": -1}):
        with pytest.raises(ValueError):
            DistributedLion(p, **options)
