"""A rank that dies in the middle of training becomes an error on the others, in bounded time and by name."""

import multiprocessing
import os

import pytest

pytest.importorskip("torch")


def train_until_death(rank, store, pipe):
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from tersor.torch import LinkError, register_comm_hook

    torch.set_num_threads(1)
    files = dist.FileStore(store, 3)
    dist.init_process_group("gloo", store=files, rank=rank, world_size=3, timeout=timedelta(seconds=20))
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    hook = register_comm_hook(ddp, "eden:4", error_feedback=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    try:
        for step in range(10):
            if rank == 1 and step == 3:
                os._exit(1)
            before = hook.state_dict(), [p.detach().clone() for p in ddp.parameters()]
            optimizer.zero_grad()
            ddp(torch.randn(4, 100)).sum().backward()
            optimizer.step()
    except LinkError as error:
        same = all(torch.equal(a, b) for a, b in zip(before[1], ddp.parameters(), strict=True))
        kept = before[0]["residuals"].items()
        same &= all(torch.equal(r, hook.state_dict()["residuals"][k]) for k, r in kept)
        pipe.send((str(error), step, same and hook.state_dict()["step"] == 3))
        os._exit(0)
    pipe.send(("no error", step, False))


def test_the_other_ranks_get_an_error_and_keep_their_state(tmp_path):
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(3)]
    processes = [
        context.Process(target=train_until_death, args=(rank, str(tmp_path / "store"), theirs), daemon=True)
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        for rank in (0, 2):
            assert pipes[rank][0].poll(90), "a surviving rank hangs"
            message, step, unchanged = pipes[rank][0].recv()
            assert "did not complete" in message and "died" in message
            assert step == 3 and unchanged
    finally:
        for process in processes:
            process.kill()
