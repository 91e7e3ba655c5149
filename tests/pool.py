"""A pool of gloo processes that lives for a whole test run, since starting one takes seconds."""

import multiprocessing
import os
import tempfile
import traceback
from datetime import timedelta

SIZE = 4
TIMEOUT = 90.0


class Pool:
    """`SIZE` processes, each one rank of a gloo group; `run` calls a module-level function on every one of them."""

    def __init__(self, size=SIZE):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        store = os.path.join(self._folder.name, "store")
        pairs = [context.Pipe() for _ in range(size)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(rank, size, store, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()

    def run(self, function, *args, ranks=None):
        """Return `function(rank, *args)` of every rank (of `ranks`), by rank; a failure raises with its traceback."""
        ranks = range(len(self._pipes)) if ranks is None else ranks
        for rank in ranks:
            self._pipes[rank].send((function, args))
        results = []
        for rank in ranks:
            if not self._pipes[rank].poll(TIMEOUT):
                self.close()
                raise TimeoutError(f"rank {rank} did not answer within {TIMEOUT} s")
            failed, value = self._pipes[rank].recv()
            results.append((failed, value))
        for rank, (failed, value) in zip(ranks, results, strict=True):
            if failed:
                raise AssertionError(f"rank {rank} failed:\n{value}")
        return [value for _, value in results]

    def close(self):
        for process in self._processes:
            process.kill()
        self._folder.cleanup()


def _serve(rank, size, store, pipe):
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timedelta(seconds=30)
    )
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            pipe.send((False, function(rank, *args)))
        except BaseException:
            pipe.send((True, traceback.format_exc()))
