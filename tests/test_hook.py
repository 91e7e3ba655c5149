"""The DDP communication hook on gloo: replicas stay bit-identical, resume is exact, and what users hit elsewhere."""

import copy
import io
import pickle
import tempfile
import tracemalloc
import warnings
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

import tersor  # noqa: E402
import tersor.torch  # noqa: E402
from tersor.torch import CommHook, check_identical, register_comm_hook  # noqa: E402

DDP = torch.nn.parallel.DistributedDataParallel


def make_model(sizes=(20, 300, 130, 3), seed=0):
    torch.manual_seed(seed)
    layers = []
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def batch(rank, step, n=16):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(n, 20, generator=g), torch.randint(0, 3, (n,), generator=g)


def train(rank, ddp, optimizer, steps, first=0):
    for step in range(first, first + steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()


def bits(model):
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


# Every function below with a rank runs on all four processes.


def run_identical(rank, spec, options, bucket_mb):
    ddp = DDP(make_model(), bucket_cap_mb=bucket_mb)
    hook = register_comm_hook(ddp, spec, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    train(rank, ddp, optimizer, 6)
    check_identical(ddp.parameters())
    return bits(ddp), hook.stats


@pytest.mark.parametrize("topology", ["gather", "transpose", "sharded", "ring", "butterfly", "server", "auto"])
@pytest.mark.parametrize("spec", ["eden:4", "drive", "sq:8", "thc:4", "int8", "bf16", "ecasq:4", "none"])
def test_ranks_stay_identical_with_several_buckets(pool, spec, topology):
    results = pool.run(run_identical, spec, {"topology": topology, "error_feedback": spec == "thc:4"}, 0.02)
    assert len({b for b, _ in results}) == 1
    stats = results[0][1]
    assert stats.steps == 6 and stats.buckets > 6 and stats.bytes_sent > 0 and stats.nonfinite == 0
    assert (stats.vnmse is not None) == (spec in ("eden:4", "drive", "thc:4", "ecasq:4"))


def run_none_equals_plain(rank):
    plain, hooked = DDP(make_model()), DDP(make_model())
    register_comm_hook(hooked, "none", topology="gather")
    for ddp in (plain, hooked):
        train(rank, ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), 4)
    return max(float((a - b).abs().max()) for a, b in zip(plain.parameters(), hooked.parameters(), strict=True))


def test_without_compression_training_is_as_plain_ddp(pool):
    assert max(pool.run(run_none_equals_plain)) < 1e-6


def run_subgroup(rank, size):
    group = dist.new_group(list(range(size)))
    if rank >= size:
        return None
    ddp = DDP(make_model(), process_group=group)
    hook = register_comm_hook(ddp, "eden:4")
    train(rank, ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), 3)
    clone = pickle.loads(pickle.dumps(hook))
    clone.bind(group)
    assert clone.stats == hook.stats and clone._current_link().size == size
    return bits(ddp)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_other_groups_and_sizes(pool, size):
    """Thread 2: a group of one's own; it is not in the pickle and is bound again explicitly."""
    results = pool.run(run_subgroup, size)
    assert len({b for b in results if b is not None}) == 1


def run_resume(rank, spec, options, before):
    def fresh():
        ddp = DDP(make_model(), bucket_cap_mb=0.02)
        return ddp, torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9), register_comm_hook(ddp, spec, **options)

    ddp, optimizer, hook = fresh()
    train(rank, ddp, optimizer, before)
    file = io.BytesIO()
    torch.save([ddp.module.state_dict(), optimizer.state_dict(), hook.state_dict()], file)
    train(rank, ddp, optimizer, 4, first=before)

    file.seek(0)
    model_state, optimizer_state, hook_state = torch.load(file, weights_only=True)
    again, optimizer, hook2 = fresh()
    again.module.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
    hook2.load_state_dict(hook_state)  # thread 3: the hook is registered already
    train(rank, again, optimizer, 4, first=before)
    assert hook2.stats.steps == before + 4 == hook.stats.steps
    return bits(ddp) == bits(again)


@pytest.mark.parametrize(
    ("spec", "options"),
    [("eden:4", {}), ("eden:1,scale=biased", {"error_feedback": True}), ("sq:4", {"error_feedback": True, "seed": 3})],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(pool, spec, options):
    """Threads 1 and 7: state with residuals, step and layout; buckets are rebuilt after the first step of a process."""
    assert pool.run(run_resume, spec, options, 5) == [True] * 4


def run_rebuild(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, "eden:2", error_feedback=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    train(rank, ddp, optimizer, 1)
    first = hook._layout.state()
    train(rank, ddp, optimizer, 3, first=1)
    return first != hook._layout.state(), len(hook._feedback.residuals), bits(ddp)


def test_feedback_survives_the_bucket_rebuild(pool):
    """Thread 7: residuals belong to parameters, not to buckets."""
    results = pool.run(run_rebuild)
    assert all(rebuilt and kept == 6 for rebuilt, kept, _ in results)
    assert len({b for _, _, b in results}) == 1


def run_feedback_identity(rank):
    """Sum of applied updates + mean residual = sum of gradients."""
    model = torch.nn.Linear(64, 64, bias=False)
    torch.nn.init.zeros_(model.weight)
    ddp = DDP(model)
    hook = register_comm_hook(ddp, "eden:1,scale=biased", error_feedback=True, topology="gather")
    applied, true = torch.zeros(64, 64), torch.zeros(64, 64)
    for step in range(5):
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(10 * step + rank))
        ddp.zero_grad()
        (ddp(x) ** 2).sum().backward() if False else ddp(x).mul(torch.linspace(-1, 1, 64)).sum().backward()
        local = torch.linspace(-1, 1, 64)[:, None] * x.sum(0)
        dist.all_reduce(local)
        true += local / 4
        applied += model.weight.grad
    left = torch.from_numpy(hook._feedback.residuals[0].copy()).reshape(64, 64)
    dist.all_reduce(left)
    return float((applied + left / 4 - true).norm() / true.norm())


def test_applied_updates_and_residuals_sum_to_the_gradients(pool):
    assert max(pool.run(run_feedback_identity)) < 1e-5


def run_no_sync(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, "eden:4")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(4):
        with ddp.no_sync():
            x, y = batch(rank, step)
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
        assert hook.stats.steps == step
        x, y = batch(rank, step + 100)
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        assert hook.stats.steps == step + 1
        optimizer.step()
        optimizer.zero_grad()
    return bits(ddp)


def test_no_sync_leaves_the_hook_alone(pool):
    assert len(set(pool.run(run_no_sync))) == 1


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.never = (torch.nn.Linear(20, 3) for _ in range(3))

    def forward(self, x, use_a):
        return self.a(x) if use_a else self.b(x)


def run_unused(rank):
    ddp = DDP(Branches(), find_unused_parameters=True)
    hook = register_comm_hook(ddp, "eden:2,scale=biased", error_feedback=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(4):
        x, y = batch(rank, step)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(ddp(x, rank % 2 == 0), y).backward()
        assert ddp.module.never.weight.grad is None
        optimizer.step()
    used = {0, 1} if rank % 2 == 0 else {2, 3}
    assert set(hook._feedback.residuals) == used
    return bits(ddp)


def test_unused_parameters_keep_their_residuals_out(pool):
    assert len(set(pool.run(run_unused))) == 1


def run_inf(rank, spec):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, spec, error_feedback=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        x, y = batch(rank, step)
        if step == 2 and rank == 1:
            x[0, 0] = float("inf")
        before, residuals = bits(ddp), copy.deepcopy(hook._feedback.residuals)
        optimizer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(ddp(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 2:
            assert bits(ddp) == before and scaler.get_scale() == 512.0
            same = [np.array_equal(residuals[k], hook._feedback.residuals[k]) for k in residuals]
            assert all(same) and hook.stats.nonfinite > 0
        else:
            assert bits(ddp) != before
    return bits(ddp)


@pytest.mark.parametrize("spec", ["eden:4", "sq:8", "fp16"])
def test_gradscaler_sees_the_inf_of_any_rank_and_feedback_is_untouched(pool, spec):
    """Thread 12: a skipped step is skipped on all ranks and changes nothing."""
    assert len(set(pool.run(run_inf, spec))) == 1


def run_raise(rank):
    ddp = DDP(make_model())
    register_comm_hook(ddp, "eden:4", nonfinite="raise")
    x, y = batch(rank, 0)
    if rank == 3:
        x[0, 0] = float("nan")
    try:
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
    except tersor.NonFiniteError as error:
        return str(error)
    return "no error"


def test_nonfinite_can_raise_on_all_ranks(pool):
    results = pool.run(run_raise)
    assert all("[3]" in message and "bucket 0 of step 0" in message for message in results)


def run_extreme_half(rank, value):
    model = torch.nn.Linear(32, 8, bias=False).half()
    ddp = DDP(model)
    register_comm_hook(ddp, "eden:4")
    torch.nn.init.zeros_(model.weight)
    (ddp(torch.full((1, 32), value, dtype=torch.float16)).sum()).backward()
    grad = model.weight.grad.float()
    return grad.dtype, bool(torch.isfinite(grad).all()), float((grad / value - 1).abs().max())


@pytest.mark.parametrize("value", [6e4, 6e-5])
def test_half_precision_neither_overflows_nor_underflows(pool, value):
    """Threads 5 and 6: sums are made in float32 and divided there."""
    for _, finite, error in pool.run(run_extreme_half, value):
        assert finite and error < 0.6


def run_mixed(rank):
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(20, 30), "b": torch.nn.Linear(30, 3).bfloat16()})
    torch.manual_seed(1)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1)
    ddp = DDP(Both(model))
    hook = register_comm_hook(ddp, "eden:8")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    train(rank, ddp, optimizer, 3)
    return bits_any(ddp), hook.stats.buckets


class Both(torch.nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        return self.parts["b"](torch.relu(self.parts["a"](x)).bfloat16()).float()


def bits_any(model):
    return b"".join(p.detach().float().numpy().tobytes() for p in model.parameters())


def test_buckets_of_two_dtypes(pool):
    results = pool.run(run_mixed)
    assert len({b for b, _ in results}) == 1 and results[0][1] >= 6


def run_memory(rank):
    ddp = DDP(torch.nn.Linear(1000, 1000, bias=False))
    register_comm_hook(ddp, "eden:4")
    x = torch.ones(2, 1000)
    ddp(x).sum().backward()
    ddp.zero_grad()
    loss = ddp(x).sum()
    tracemalloc.start()
    loss.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_peak_memory_is_the_messages_and_one_work_buffer(pool):
    """Thread 8: NumPy reports its buffers to tracemalloc; the gradient itself, 4 MB, is decoded in place."""
    d = 1_000_000
    message = d // 2
    assert max(pool.run(run_memory)) < 4 * message + 4 * d / 4 + 2**20


def run_warmup(rank):
    plain, warm = DDP(make_model()), DDP(make_model())
    hook = register_comm_hook(warm, "eden:1", warmup_steps=3, topology="gather")
    for ddp in (plain, warm):
        train(rank, ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), 3)
    close = max(float((a - b).abs().max()) for a, b in zip(plain.parameters(), warm.parameters(), strict=True))
    train(rank, warm, torch.optim.SGD(warm.parameters(), lr=0.05), 1, first=3)
    return close, bits(warm), hook.stats.vnmse


def test_warmup_steps_are_not_compressed(pool):
    """Thread 9."""
    results = pool.run(run_warmup)
    assert all(close < 1e-6 and vnmse > 0.3 for close, _, vnmse in results)
    assert len({b for _, b, _ in results}) == 1


def test_biased_codecs_refuse_to_run_without_feedback_unless_told():
    """Thread 16."""
    with pytest.raises(ValueError, match="biased"):
        CommHook("eden:1,scale=biased")
    for spec in ("eden:1", "bf16", "fp16", "int8", "none"):
        CommHook(spec)
    CommHook("eden:1,scale=biased", error_feedback=False)


def run_drift(rank):
    ddp = DDP(make_model())
    register_comm_hook(ddp, "eden:4", check_every=2)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    train(rank, ddp, optimizer, 2)
    if rank == 2:
        with torch.no_grad():
            next(ddp.parameters())[0, 0] += 1e-7
    try:
        train(rank, ddp, optimizer, 2, first=2)
    except tersor.TersorError as error:
        return str(error)
    return "no error"


def test_drifting_replicas_are_found_on_all_ranks(pool):
    """Thread 23."""
    assert all("ranks [2] differ" in message for message in pool.run(run_drift))


def run_plain_registration(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = CommHook("eden:4")
    ddp.register_comm_hook(hook.state, hook)
    train(rank, ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), 3)
    return bits(ddp)


def test_the_plain_call_of_ddp_works(pool):
    assert len(set(pool.run(run_plain_registration))) == 1


def test_errors_before_training():
    with pytest.raises(TypeError, match="DistributedDataParallel"):
        register_comm_hook(torch.nn.Linear(2, 2), "eden:4")
    with pytest.raises(ValueError, match="topology"):
        CommHook("eden:4", topology="ring of fire")
    hook = CommHook("eden:4")
    with pytest.raises(ValueError, match="eden:2"):
        hook.load_state_dict(CommHook("eden:2").state_dict())
    with pytest.raises(ValueError, match="error_feedback"):
        hook.load_state_dict(CommHook("eden:4", error_feedback=True).state_dict())
    with pytest.raises(tersor.TersorError, match="init_process_group"):
        tersor.torch.TorchLink()
    with pytest.raises(TypeError, match="GradBucket"):
        hook(None, (torch.zeros(2), torch.zeros(2)))


def test_a_saved_layout_of_another_model_is_ignored_with_a_warning():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/s", 1), rank=0, world_size=1)
        try:
            hook = CommHook("eden:4")
            ddp = DDP(make_model())
            ddp.register_comm_hook(hook.state, hook)
            state = hook.state_dict()
            state["layout"] = [[0, 1], [2]]
            hook.load_state_dict(state)
            x, y = batch(0, 0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.nn.functional.cross_entropy(ddp(x), y).backward()
            assert any("layout" in str(w.message) for w in caught)
            assert next(ddp.parameters()).grad.abs().sum() > 0
        finally:
            dist.destroy_process_group()


def test_a_residual_that_cancels_the_gradient_is_used_up():
    feedback = tersor.torch.hook.Feedback()
    feedback.residuals = {0: np.array([1.0, -2.0], np.float32), 1: np.array([3.0], np.float32)}
    x = np.array([-1.0, 2.0, 0.0], np.float32)
    feedback.add_to(x, [0, 1], [2, 1])
    feedback.keep(x, np.zeros(3, np.float32), [0, 1], [2, 1])
    feedback.commit()
    assert not feedback.residuals[0].any() and feedback.residuals[1].tolist() == [3.0]
