"""The DDP hook with schemes, with codecs by parameter, divided gradients, health checks: on four processes."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from test_hook import DDP, batch, bits, make_model, run_identical, run_resume, train  # noqa: E402

import tersor  # noqa: E402
import tersor.torch  # noqa: E402
from tersor.collectives.schemes import PowerSGD  # noqa: E402
from tersor.torch import CommHook, check_identical, register_comm_hook  # noqa: E402

SCHEMES = ["dynamiq:5", "topkc:0.25", "omnireduce:0.5", "powersgd:2"]


def sgd(ddp):
    return torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)


@pytest.mark.parametrize("spec", SCHEMES)
@pytest.mark.parametrize("bucket_mb", [0.02, 25])
def test_ranks_stay_identical(pool, spec, bucket_mb):
    results = pool.run(run_identical, spec, {"error_feedback": spec != "dynamiq:5"}, bucket_mb)
    assert len({b for b, _ in results}) == 1
    stats = results[0][1]
    assert stats.steps == 6 and stats.bytes_sent > 0 and stats.nonfinite == 0
    assert (stats.vnmse is not None) == (spec == "dynamiq:5")


@pytest.mark.parametrize("topology", ["ring", "butterfly", "transpose", "server"])
def test_dynamiq_over_every_topology(pool, topology):
    results = pool.run(run_identical, "dynamiq:5", {"topology": topology}, 0.02)
    assert len({b for b, _ in results}) == 1


@pytest.mark.parametrize("before", [2, 5])
@pytest.mark.parametrize("spec", ["powersgd:2", "topkc:0.25", "dynamiq:5", "thc:4"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(pool, spec, before):
    options = {} if spec == "dynamiq:5" else {"error_feedback": True}
    assert all(pool.run(run_resume, spec, options, before))


def run_failing(rank):
    ddp = DDP(make_model(), bucket_cap_mb=0.02)
    hook = register_comm_hook(ddp, "powersgd:2", error_feedback=True)
    optimizer = sgd(ddp)
    train(rank, ddp, optimizer, 3)
    before = bits(ddp), copy.deepcopy(hook._memory.states), copy.deepcopy(hook._feedback.residuals)
    original, calls = PowerSGD._orthonormal, iter(range(100))

    def fail(self, *args):
        if next(calls) == 1 and rank == 0:
            raise MemoryError("no room")
        return original(self, *args)

    PowerSGD._orthonormal = fail
    try:
        with pytest.raises(Exception) as caught:
            train(rank, ddp, optimizer, 1, first=3)
    finally:
        PowerSGD._orthonormal = original
    same = bits(ddp) == before[0]
    for position, memory in before[1].items():
        same &= all(np.array_equal(memory[k], hook._memory.states[position][k]) for k in memory)
    same &= all(np.array_equal(r, hook._feedback.residuals[k]) for k, r in before[2].items())
    return type(caught.value).__name__, same


def test_what_one_rank_alone_notices_leaves_the_state_of_all_as_it_was(pool):
    results = pool.run(run_failing)
    assert results[0][0] == "MemoryError" and all(name in ("LinkError", "MemoryError") for name, _ in results)
    assert all(same for _, same in results)


POLICY = {"*.bias": "none", "0.*": "int8"}


def by_shape(name, parameter):
    return "none" if parameter.ndim == 1 else "int8" if name.startswith("0.") else None


def run_policy(rank, policy):
    ddp = DDP(make_model(), bucket_cap_mb=25)
    hook = register_comm_hook(ddp, "eden:2", policy=policy)
    exact = DDP(make_model())
    for each in (ddp, exact):
        x, y = batch(rank, 0)
        torch.nn.functional.cross_entropy(each(x), y).backward()
    errors = {
        name: tersor.nmse(q.grad.numpy(), p.grad.numpy())
        for (name, p), q in zip(ddp.module.named_parameters(), exact.module.parameters(), strict=True)
    }
    train(rank, ddp, sgd(ddp), 3, first=1)
    check_identical(ddp.parameters())
    return errors, hook.stats.bytes_sent


@pytest.mark.parametrize("policy", [POLICY, by_shape])
def test_parameters_travel_by_the_codec_that_the_policy_gives_them(pool, policy):
    errors, _ = pool.run(run_policy, policy)[1]
    assert all(e < 1e-12 for name, e in errors.items() if name.endswith("bias"))
    assert errors["0.weight"] < 1e-3 and errors["2.weight"] > 0.02


def run_other_policy(rank):
    ddp = DDP(make_model())
    register_comm_hook(ddp, "eden:4", policy={"*.bias": "none" if rank else "bf16"})
    with pytest.raises(tersor.IncompatibleError, match="differ"):
        train(rank, ddp, sgd(ddp), 1)


def test_ranks_with_other_policies_are_told(pool):
    pool.run(run_other_policy)


def run_predivide(rank, value, predivide):
    parameter = torch.nn.Parameter(torch.zeros(5000))

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = parameter

        def forward(self, scale):
            return (self.p * scale).sum()

    ddp = DDP(One())
    register_comm_hook(ddp, "fp16", topology="ring", predivide=predivide, nonfinite="propagate")
    ddp(torch.tensor(value)).backward()
    return float(parameter.grad[0]), bool(parameter.grad.isfinite().all())


@pytest.mark.parametrize("predivide", [None, 1.0, 2.0, 4.0])
def test_divided_gradients_neither_overflow_nor_vanish(pool, predivide):
    # Threads 5 and 6: sums of fp16 overflow, quotients underflow.
    for value in (6e4 if predivide in (None, 4.0) else 1.5e4 * (predivide or 1), 1.0, 6e-7):
        for got, finite in pool.run(run_predivide, value, predivide):
            assert finite and got == pytest.approx(value, rel=0.2)


def run_health(rank, spec, options):
    ddp = DDP(make_model())
    register_comm_hook(ddp, spec, health_every=2, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(rank, ddp, sgd(ddp), 4)
    return [str(w.message) for w in caught if "norm of what arrived" in str(w.message)]


def test_health_warns_on_all_ranks_when_little_arrives(pool):
    results = pool.run(run_health, "topk:0.0001", {"error_feedback": False})
    assert all(len(found) >= 1 for found in results) and "step 1" in results[2][0]
    assert not any(pool.run(run_health, "eden:4", {}))


def test_error_feedback_that_would_diverge_is_refused():
    for spec in ("thc:1", "randk:0.1", "turboquant:1,kind=prod"):
        with pytest.raises(ValueError, match="grow without bound"):
            CommHook(spec, error_feedback=True)
    with pytest.raises(ValueError, match="biased"):
        CommHook("topkc:0.1")
    with pytest.raises(ValueError, match="biased"):
        CommHook("thc:4")
    with pytest.raises(ValueError, match="predivide"):
        CommHook("fp16", predivide=0)
    CommHook("thc:4", error_feedback=True)
    CommHook("dynamiq:5")


def run_all_reduce(rank, spec):
    x = torch.full((40, 50), float(rank + 1))
    tersor.torch.all_reduce(x, spec, dist.ReduceOp.AVG)
    return x.numpy().tobytes(), float(x.mean())


@pytest.mark.parametrize("spec", ["dynamiq:6", "powersgd:1", "omnireduce", "thc:6"])
def test_all_reduce_takes_schemes(pool, spec):
    results = pool.run(run_all_reduce, spec)
    assert len({raw for raw, _ in results}) == 1 and results[0][1] == pytest.approx(2.5, rel=0.02)
