"""The hook in the hosts that people have: DDP's options, several models, torch.compile, join, resume in all of them."""

import copy
import hashlib
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from test_hook import DDP, batch, make_model, train  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tersor  # noqa: E402
import tersor.torch  # noqa: E402
from tersor.collectives import LocalLink  # noqa: E402
from tersor.torch import register_comm_hook  # noqa: E402

FEEDBACK = {"error_feedback": True}


def digest(model):
    parts = (p.detach().float().numpy().tobytes() for p in model.parameters())
    return hashlib.blake2b(b"".join(parts)).hexdigest()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(ddp, rank, step):
    x, y = batch(rank, step)
    return torch.nn.functional.cross_entropy(ddp(x), y)


class Mixed(torch.nn.Module):
    """Two dtypes, a frozen layer, a weight in two layers, no elements, a checkpointed layer, buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.out = torch.nn.Linear(20, 100), torch.nn.Linear(100, 3)
        self.frozen, self.c, self.tied = (torch.nn.Linear(100, 100) for _ in range(3))
        self.narrow = torch.nn.Linear(100, 100).bfloat16()
        self.frozen.requires_grad_(False)
        self.tied.weight = self.c.weight
        self.empty = torch.nn.Parameter(torch.zeros(0, 5))
        self.norm = torch.nn.BatchNorm1d(100)

    def forward(self, x):
        x = torch.relu(self.frozen(torch.relu(self.a(x))))
        x = torch.relu(self.narrow(x.bfloat16())).float()
        x = checkpoint(self.c, x, use_reentrant=False)
        return self.out(self.tied(self.norm(x))) + self.empty.sum()


def accumulate(rank, ddp, optimizer, steps, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        with ddp.no_sync():
            loss_of(ddp, rank, step + 50).backward()
        loss_of(ddp, rank, step).backward()
        optimizer.step()


def two_passes(rank, ddp, optimizer, steps, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(ddp, rank, step).backward()
        loss_of(ddp, rank, step + 50).backward()
        optimizer.step()


def run_resume(rank, make, steps, options):
    def fresh():
        ddp = DDP(make(), bucket_cap_mb=0.02, **options)
        return ddp, sgd(ddp), register_comm_hook(ddp, "eden:2", **FEEDBACK)

    ddp, optimizer, hook = fresh()
    steps(rank, ddp, optimizer, 3)
    file = io.BytesIO()
    torch.save([ddp.module.state_dict(), optimizer.state_dict(), hook.state_dict()], file)
    steps(rank, ddp, optimizer, 3, first=3)
    file.seek(0)
    states = torch.load(file, weights_only=True)
    again, optimizer, hook = fresh()
    for target, state in zip((again.module, optimizer, hook), states, strict=True):
        target.load_state_dict(state)
    steps(rank, again, optimizer, 3, first=3)
    return digest(ddp), digest(again)


@pytest.mark.parametrize(
    ("make", "steps", "options"),
    [
        (make_model, train, {"gradient_as_bucket_view": True}),
        (make_model, train, {"static_graph": True}),  # DDP rebuilds its buckets one step later
        (make_model, train, {"static_graph": True, "gradient_as_bucket_view": True}),
        (make_model, train, {"find_unused_parameters": True}),
        (make_model, accumulate, {"gradient_as_bucket_view": True}),
        (make_model, accumulate, {}),
        (make_model, two_passes, {"gradient_as_bucket_view": True}),
        (Mixed, train, {}),
        (Mixed, train, {"gradient_as_bucket_view": True}),
    ],
)
def test_resume_is_exact_under_the_options_of_ddp(pool, make, steps, options):
    results = pool.run(run_resume, make, steps, options)
    assert len({b for pair in results for b in pair}) == 1


def run_static_mixed(rank):
    ddp = DDP(Mixed(), bucket_cap_mb=0.02, static_graph=True)
    register_comm_hook(ddp, "eden:2")
    with pytest.raises(tersor.TersorError, match="static_graph"):
        loss_of(ddp, rank, 0).backward()


def test_static_graph_with_two_dtypes_is_refused(pool):
    """DDP numbers all buckets of its first step 0 then, and none is the last."""
    pool.run(run_static_mixed)


def run_join(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, "eden:4", **FEEDBACK)
    with ddp.join():
        train(rank, ddp, sgd(ddp), 2 + rank)
    return digest(ddp), hook.stats.steps


def test_join_with_uneven_inputs(pool):
    results = pool.run(run_join)
    assert len(set(results)) == 1 and results[0][1] == 5


def run_compiled(rank):
    ddp = DDP(make_model())
    register_comm_hook(ddp, "eden:2", **FEEDBACK)
    train(rank, torch.compile(ddp, backend="eager"), sgd(ddp), 3)
    return digest(ddp)


def test_a_compiled_model(pool):
    assert len(set(pool.run(run_compiled))) == 1


def run_two_models(rank):
    models = [DDP(make_model(seed=s), bucket_cap_mb=0.02) for s in (1, 2)]
    hooks = [register_comm_hook(m, spec) for m, spec in zip(models, ("eden:2", "sq:4"), strict=True)]
    optimizers = [sgd(m) for m in models]
    for step in range(3):
        sum(loss_of(m, rank, step) for m in models).backward()
        other = torch.ones(3)
        dist.all_reduce(other)  # on the group whose buckets may be under way
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [digest(m) for m in models], [h.stats.steps for h in hooks]


def test_two_models_in_one_backward(pool):
    results = pool.run(run_two_models)
    assert all(r == results[0] for r in results) and results[0][1] == [3, 3]


def run_wrapped_again(rank):
    model = make_model()
    first = DDP(model, bucket_cap_mb=0.02)
    hook = register_comm_hook(first, "eden:2", **FEEDBACK)
    train(rank, first, sgd(model), 3)
    clone, copied = pickle.loads(pickle.dumps(hook)), copy.deepcopy(hook)
    del first
    second = DDP(model, bucket_cap_mb=0.02)
    second.register_comm_hook(hook.state, hook)
    train(rank, second, sgd(model), 3, first=3)
    return digest(model), hook.stats.steps, len(hook._feedback.residuals), clone.stats.steps, copied.stats.steps


def test_a_model_wrapped_twice_and_copies_of_its_hook(pool):
    results = pool.run(run_wrapped_again)
    assert len(set(results)) == 1 and results[0][1:] == (6, 6, 3, 3)


def run_group_again(rank, folder):
    results = []
    for _ in range(2):
        group = dist.new_group([0, 1, 2])
        if rank < 3:
            ddp = DDP(make_model(), process_group=group)
            register_comm_hook(ddp, "eden:4")
            train(rank, ddp, sgd(ddp), 2)
            results.append(digest(ddp))
            dist.destroy_process_group(group)
    return results


def test_a_group_destroyed_and_made_again(pool, tmp_path):
    results = pool.run(run_group_again, str(tmp_path))[:3]
    assert len({b for pair in results for b in pair}) == 1


def run_queues(rank):
    groups = [dist.new_group([0, 1, 2, 3]) for _ in range(2)]
    tensors = [torch.randn(20_000, generator=torch.Generator().manual_seed(10 * i + rank)) for i in range(6)]
    works = []
    for i in range(3):
        for j in (0, 1) if rank % 2 else (1, 0):
            options = {"group": groups[j], "async_op": True}
            works.append(tersor.torch.all_reduce(tensors[2 * i + j], "sq:4", **options))
        dist.barrier()
    now = torch.ones(4000)
    tersor.torch.all_reduce(now, "sq:4")
    assert all(work.wait(30) for work in works)
    return b"".join(t.numpy().tobytes() for t in (*tensors, now))


def test_asynchronous_calls_of_several_groups_need_no_common_order(pool):
    assert len(set(pool.run(run_queues))) == 1


def test_asynchronous_calls_on_a_given_link_keep_their_order():
    links = LocalLink.group(2)
    tensors = [[torch.full((5000,), float(i)) for i in range(8)] for _ in links]
    works = [
        [tersor.torch.all_reduce(t, "none", link=link, async_op=True) for t in mine]
        for link, mine in zip(links, tensors, strict=True)
    ]
    assert all(w.wait(30) for mine in works for w in mine)
    assert all(bool((t == 2 * i).all()) for mine in tensors for i, t in enumerate(mine))


@pytest.mark.parametrize("topology", ["gather", "transpose", "sharded", "ring", "butterfly", "server"])
@pytest.mark.parametrize("spec", ["eden:4", "sq:4", "thc:4", "int8", "none"])
def test_the_mean_of_the_largest_halves_is_finite(pool, spec, topology):
    assert all(pool.run(run_largest_half, spec, topology))


def run_largest_half(rank, spec, topology):
    x = torch.full((5000,), 65504.0, dtype=torch.float16)
    tersor.torch.all_reduce(x, spec, dist.ReduceOp.AVG, topology=topology)
    return bool(x.isfinite().all())
