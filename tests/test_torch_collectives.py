"""tersor.torch.all_reduce on gloo: dtypes, shapes, operations, groups, asynchronous calls, errors."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

import tersor  # noqa: E402
import tersor.torch  # noqa: E402


def tensor_of(rank, shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def raw(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def run_all(rank, spec, shape, dtype, op, options):
    x = tensor_of(rank, shape, dtype)
    assert tersor.torch.all_reduce(x, spec, op, **options) is None
    total = sum(tensor_of(i, shape, dtype).double() for i in range(4))
    if op == dist.ReduceOp.AVG:
        total = total / 4
    return raw(x.reshape(-1)) if x.numel() else b"", tersor.nmse(total.float(), x.float()), x.dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (33, 129), (70_000,)])
def test_shapes_and_dtypes(pool, shape, dtype):
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        results = pool.run(run_all, "eden:8", shape, dtype, op, {})
        assert len({r[0] for r in results}) == 1
        assert all(error < 1e-3 and out == dtype for _, error, out in results)


def run_strided(rank):
    base = tensor_of(rank, (64, 50))
    kept = base.clone()
    tersor.torch.all_reduce(base.t()[::2], "none")
    total = sum(tensor_of(i, (64, 50)) for i in range(4))
    return float((base[:, ::2] - total[:, ::2]).abs().max()), bool((base[:, 1::2] == kept[:, 1::2]).all())


def test_strided_tensors_are_written_in_place(pool):
    assert all(error < 1e-5 and rest for error, rest in pool.run(run_strided))


def run_async(rank):
    xs = [tensor_of(10 * i + rank, (5000,)) for i in range(3)]
    works = [tersor.torch.all_reduce(x, "eden:8", async_op=True) for x in xs]
    assert all(work.wait(30) and work.is_completed() and work.exception() is None for work in works)
    errors = [tersor.nmse(sum(tensor_of(10 * i + r, (5000,)) for r in range(4)), x) for i, x in enumerate(xs)]
    return max(errors), b"".join(raw(x) for x in xs)


def test_asynchronous_calls_run_in_order(pool):
    results = pool.run(run_async)
    assert all(error < 1e-3 for error, _ in results) and len({b for _, b in results}) == 1


def run_group(rank):
    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        return None
    x = tensor_of(rank, (9000,))
    tersor.torch.all_reduce(x, "eden:8", group=group)
    return raw(x), tersor.nmse(tensor_of(1, (9000,)) + tensor_of(3, (9000,)), x)


def test_a_group_of_some_ranks(pool):
    results = [r for r in pool.run(run_group) if r]
    assert results[0][0] == results[1][0] and results[0][1] < 1e-3


def run_nan(rank):
    x = tensor_of(rank, (9000,))
    if rank == 1:
        x[17] = float("nan")
    before = x.clone()
    with pytest.raises(tersor.NonFiniteError, match=r"\[1\]"):
        tersor.torch.all_reduce(x, "eden:4")
    unchanged = bool(torch.equal(x[:17], before[:17]))
    tersor.torch.all_reduce(x, "eden:4", nonfinite="propagate")
    return unchanged and bool(x.isnan().all())


def test_nan_on_one_rank(pool):
    assert pool.run(run_nan) == [True] * 4


def run_errors(rank):
    with pytest.raises(TypeError, match="float"):
        tersor.torch.all_reduce(torch.ones(3, dtype=torch.int32), "eden:4")
    with pytest.raises(ValueError, match="SUM and AVG"):
        tersor.torch.all_reduce(torch.ones(3), "eden:4", dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="no codec"):
        tersor.torch.all_reduce(torch.ones(3), "edem:4")
    x = torch.ones(3, requires_grad=True)
    tersor.torch.all_reduce(x, "none")
    return x.tolist()


def test_errors_and_leaves(pool):
    assert pool.run(run_errors) == [[4.0] * 3] * 4
