"""One rank fails, wherever that may be: all ranks get an error soon, state is as before, the next step may go on."""

import copy
import pickle
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from test_hook import DDP, batch, make_model, train  # noqa: E402
from test_hook_hosts import digest, loss_of, sgd  # noqa: E402

import tersor  # noqa: E402
import tersor.torch  # noqa: E402
from tersor.collectives import LocalLink, all_reduce  # noqa: E402
from tersor.collectives.frames import RemoteError  # noqa: E402
from tersor.torch import LinkError, register_comm_hook  # noqa: E402
from tersor.torch.buckets import Layout  # noqa: E402
from tersor.torch.feedback import Feedback  # noqa: E402

FAILING = 2
SQ = type(tersor.get_codec("sq:4"))
TOPOLOGIES = ("gather", "transpose", "ring", "butterfly", "server")


def broken_at(kind, method, at):
    """Let `method` raise MemoryError in its call number `at`."""
    original, calls = getattr(kind, method), iter(range(10**6))

    def call(*args, **options):
        if next(calls) == at:
            raise MemoryError("no room for it")
        return original(*args, **options)

    return mock.patch.object(kind, method, call)


def run_failure(rank, spec, kind, method, at, topology):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, spec, error_feedback=True, topology=topology)
    optimizer = sgd(ddp)
    train(rank, ddp, optimizer, 2)
    before = digest(ddp), hook.stats.steps, copy.deepcopy(hook._feedback.residuals)

    def unchanged():
        same = [np.array_equal(r, before[2][k]) for k, r in hook._feedback.residuals.items()]
        return (digest(ddp), hook.stats.steps) == before[:2] and all(same)

    with broken_at(kind, method, at) if rank == FAILING else mock.MagicMock():
        for step in range(2, 7):  # what fails after the last exchange is known to the others in the next step
            try:
                train(rank, ddp, optimizer, 1, first=step)
            except Exception as error:
                caught = error
                break
            before = digest(ddp), hook.stats.steps, copy.deepcopy(hook._feedback.residuals)
        else:
            return "no error"
    kept = unchanged()
    if isinstance(caught, LinkError) or hook._link.closed:
        return type(caught).__name__, kept
    train(rank, ddp, optimizer, 2, first=7)
    return type(caught).__name__, kept, digest(ddp)


@pytest.mark.parametrize(
    ("spec", "kind", "method", "topology"),
    [
        *(("eden:4", tersor.Eden, "encode", topology) for topology in TOPOLOGIES),
        *(("sq:4", SQ, "measure", topology) for topology in ("gather", "sharded", "ring")),
    ],
)
def test_what_fails_before_an_exchange_is_known_to_all_and_training_goes_on(pool, spec, kind, method, topology):
    results = pool.run(run_failure, spec, kind, method, 0, topology)
    names = [r[0] for r in results]
    assert names == ["MemoryError" if rank == FAILING else "RemoteError" for rank in range(4)]
    assert all(r[1] for r in results) and len({r[2] for r in results}) == 1


@pytest.mark.parametrize(
    ("kind", "method", "at", "spec", "topology"),
    [
        *(
            (*case, "eden:4", topology)
            for topology in TOPOLOGIES
            for case in (
                (tersor.Eden, "decode", 3),
                (tersor.Eden, "decode", 5),
                (Feedback, "add_to", 1),
                (Feedback, "keep", 1),
                (Layout, "ready", 1),
            )
        ),
        *((SQ, "merge", 0, "sq:4", topology) for topology in ("gather", "sharded", "ring")),
    ],
)
def test_what_one_rank_alone_notices_closes_its_link(pool, spec, kind, method, at, topology):
    results = pool.run(run_failure, spec, kind, method, at, topology)
    assert all(r != "no error" and r[1] for r in results)
    assert results[FAILING][0] in ("MemoryError", "RemoteError")
    assert all(r[0] in ("LinkError", "RemoteError", "MemoryError") for r in results)


def run_nonfinite(rank, options):
    ddp = DDP(make_model(), bucket_cap_mb=0.02, **options)
    hook = register_comm_hook(ddp, "eden:4", nonfinite="raise", error_feedback=True)
    optimizer = sgd(ddp)
    for step in range(5):
        x, y = batch(rank, step)
        if step in (0, 3) and rank == 1:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        try:
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
        except tersor.NonFiniteError:
            assert step in (0, 3)
        else:
            assert step not in (0, 3)
            optimizer.step()
    return digest(ddp), hook.stats.steps


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}])
def test_training_goes_on_after_a_nonfinite_error(pool, options):
    results = pool.run(run_nonfinite, options)
    assert len(set(results)) == 1 and results[0][1] == 3


def run_other_codec(rank):
    ddp = DDP(make_model())
    register_comm_hook(ddp, "eden:4" if rank != 1 else "eden:3")
    with pytest.raises(tersor.IncompatibleError, match=r"ranks \[1\] differ"):
        loss_of(ddp, rank, 0).backward()


def test_ranks_with_other_hooks_are_told(pool):
    """Messages of unequal sizes would abort the processes."""
    pool.run(run_other_codec)


def run_state_on_one_rank(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, "eden:4")
    train(rank, ddp, sgd(ddp), 3)
    again = DDP(make_model(), bucket_cap_mb=0.02)
    fresh = register_comm_hook(again, "eden:4")
    if rank == 0:
        fresh.load_state_dict(hook.state_dict())
    with pytest.raises(tersor.IncompatibleError, match="loaded state"):
        loss_of(again, rank, 0).backward()


def test_a_state_that_only_one_rank_loaded_is_refused(pool):
    pool.run(run_state_on_one_rank)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_sum_that_overflows_is_nonfinite_on_all(pool, topology):
    results = pool.run(run_overflow, topology)
    assert results == [("overflows", True)] * 4


def run_overflow(rank, topology):
    x = torch.full((20_000,), 3e38)
    with pytest.raises(tersor.NonFiniteError, match="overflows") as caught:
        tersor.torch.all_reduce(x, "none", topology=topology)
    x = torch.full((20_000,), 3e38)
    tersor.torch.all_reduce(x, "none", topology=topology, nonfinite="propagate")
    dist.barrier()
    return "overflows" if "overflows" in str(caught.value) else str(caught.value), bool(x.isnan().all())


def test_a_closed_link_ends_the_wait_of_others():
    links = LocalLink.group(2, timeout=60)
    links[0].close()
    with pytest.raises(RuntimeError):
        all_reduce(links[1], np.ones(10, np.float32), "none", seed=1)
    assert links[0].closed and links[1].closed


def test_remote_errors_can_be_sent_to_other_processes():
    error = pickle.loads(pickle.dumps(RemoteError("bucket 3", 2)))
    assert error.rank == 2 and "bucket 3: rank 2 failed" in str(error)


def test_a_given_link_needs_no_process_group():
    x = torch.ones(3)
    tersor.torch.all_reduce(x, "none", link=LocalLink.group(1)[0])
    assert x.tolist() == [1.0] * 3
