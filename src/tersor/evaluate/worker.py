"""One rank of the race, `python -m tersor.evaluate.worker CONFIG`: obeys lines on stdin, reports through a pipe.

It never ends by itself except on an error: the warden ends it.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

import numpy as np

from tersor.evaluate.models import build_model, build_optimizer
from tersor.evaluate.results import BASELINE, WINDOW
from tersor.evaluate.workloads import Data, Workload, batches, get_workload, load_data
from tersor.kernels.ops import backend_name


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (namespaces do that anyway; a model has none)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1 = PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def interface_bytes(name: str | None) -> int | None:
    """Bytes that the interface has sent, by the kernel's count; None if there is no own interface."""
    if name is None:
        return None
    with open("/proc/net/dev", encoding="ascii") as lines:
        for line in lines:
            label, _, counts = line.partition(":")
            if label.strip() == name:
                return int(counts.split()[8])
    return None


def fingerprint(model: Any) -> int:
    """64-bit hash of all parameters, bit for bit."""
    digest = hashlib.blake2b(digest_size=8)
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


class Worker:
    """A rank with its process group, its data and its link; lives through all runs of a race."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.rank, self.size = int(config["rank"]), int(config["workers"])
        self.modelled_rate: float | None = config["rate"] if config["tier"] == "model" else None
        self.workload: Workload = get_workload(config["workload"])
        self.data: Data = load_data(self.workload)
        share = np.array_split(np.arange(len(self.data.test_y)), self.size)[self.rank]
        self.test = (self.data.test_x[share], self.data.test_y[share])

    def tell(self, **fields: Any) -> None:
        """Report an event: one line, one atomic write."""
        os.write(self.config["events"], json.dumps({**fields, "rank": self.rank}).encode() + b"\n")

    def join(self) -> None:
        """Import torch, join the group, and run the first, slow, passes of the model off the clock."""
        import torch
        import torch.distributed as dist
        from torch._C._distributed_c10d import FileStore

        torch.set_num_threads(1)
        limit = datetime.timedelta(seconds=self.config["timeout"])
        store = FileStore(f"/proc/self/fd/{self.config['store']}", self.size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=limit)
        model = build_model(self.workload.model, 0, self.data.classes)
        for index in (next(batches(len(self.data.train_y), self.workload.batch, 0, 1, 0)) for _ in range(2)):
            torch.nn.functional.cross_entropy(
                model(torch.from_numpy(self.data.train_x[index])), torch.from_numpy(self.data.train_y[index])
            ).backward()  # type: ignore[no-untyped-call]
        dist.barrier()
        parameters = sum(p.numel() for p in model.parameters())
        self.tell(kind="ready", parameters=parameters, torch=torch.__version__, kernels=backend_name())

    def transfer(self, order: dict[str, Any]) -> None:
        """Time one kind of transfer of `nbytes` a rank, to check the link; the first one is not told."""
        import torch
        import torch.distributed as dist

        from tersor.evaluate.pacing import paced

        nbytes, size = int(order["nbytes"]), self.size
        data = torch.zeros(nbytes, dtype=torch.uint8)
        room = [torch.empty_like(data) for _ in range(size)]
        half = torch.zeros(nbytes // 2, dtype=torch.bfloat16)
        reduce = order["op"] == "all_reduce"
        sent = 2 * (size - 1) * nbytes // size if reduce else (size - 1) * nbytes
        times = []
        for _ in range(int(order["repeat"]) + 1):
            dist.barrier()
            start = time.perf_counter()
            if reduce:
                paced(self.modelled_rate, sent, dist.barrier, lambda: dist.all_reduce(half))
            else:
                paced(self.modelled_rate, sent, dist.barrier, lambda: dist.all_gather(room, data))
            times.append(time.perf_counter() - start)
        self.tell(kind="transfer", op=order["op"], sent=sent, seconds=sorted(times[1:]))

    def run(self, order: dict[str, Any]) -> None:
        """Train with one codec from one seed until the target, and as far beyond as ordered."""
        from torch.nn.parallel import DistributedDataParallel

        model = build_model(self.workload.model, int(order["seed"]), self.data.classes)
        # The same seed gives the same weights: nothing needs to be sent, and the hashes are compared anyway.
        ddp = DistributedDataParallel(model, init_sync=False)
        hook: Any
        if order["codec"] == BASELINE:
            from tersor.evaluate.baseline import register_baseline

            hook = register_baseline(ddp, self.modelled_rate)
        else:
            from tersor.collectives.link import Link
            from tersor.collectives.schemes.scheme import resolve
            from tersor.evaluate.modelled import ModelledLink
            from tersor.torch import TorchLink, register_comm_hook

            link: Link = TorchLink()
            if self.modelled_rate is not None:
                link = ModelledLink(link, self.modelled_rate)
            # A biased codec needs to be told; error feedback is what makes it a fair competitor.
            claims = resolve(order["codec"]).claims
            feedback = None if claims.unbiased or claims.rounds_to_nearest else True
            options: dict[str, Any] = {"seed": int(order["seed"]), "link": link, "error_feedback": feedback}
            hook = register_comm_hook(ddp, order["codec"], topology=order["topology"], **options)
        try:
            Training(self, order, ddp, hook).go()
        finally:
            del ddp, hook
            gc.collect()  # the hook keeps the model alive in a cycle


class Training:
    """One run: the steps on the clock, the evaluations off it."""

    def __init__(self, worker: Worker, order: dict[str, Any], ddp: Any, hook: Any) -> None:
        self.worker, self.order, self.ddp, self.hook = worker, order, ddp, hook
        load = worker.workload
        self.optimizer = build_optimizer(load, ddp.parameters())
        self.stream = batches(len(worker.data.train_y), load.batch, worker.rank, worker.size, int(order["seed"]))
        self.batch: Any = None
        self.step = 0
        self.seconds = 0.0
        self.wired = 0  # bytes by the interface's own count, on the clock
        self.accuracies: list[float] = []
        self.errors: list[float] = []
        self.reached: tuple[int, float] | None = None

    def go(self) -> None:
        """Train and evaluate by turns until the orders are fulfilled; then report the sums."""
        import torch.distributed as dist

        name = self.worker.config["interface"]
        every, finished = int(self.order["eval_every"]), False
        while not finished:
            dist.barrier()
            before = interface_bytes(name)
            for _ in range(every):
                self.train_step()
            after = interface_bytes(name)
            self.wired += (after or 0) - (before or 0)
            finished = self.evaluate()
        stats = self.hook.stats
        self.worker.tell(
            kind="end",
            steps=self.step,
            seconds=self.seconds,
            codec_s=stats.exposed_codec_s,
            wire_s=stats.exposed_wire_s,
            sent=stats.bytes_sent,
            wired=self.wired if name else None,
            nonfinite=stats.nonfinite,
            hash=f"{fingerprint(self.ddp.module) & (2**64 - 1):016x}",
        )

    def train_step(self) -> None:
        """One step, on the clock."""
        import torch

        start = time.perf_counter()
        if self.worker.rank == self.worker.size - 1:
            time.sleep(float(self.order["straggler"]))
        data, index = self.worker.data, next(self.stream)
        x, y = self.batch = torch.from_numpy(data.train_x[index]), torch.from_numpy(data.train_y[index])
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.ddp(x), y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.seconds += time.perf_counter() - start
        self.step += 1
        if self.worker.rank == 0:
            self.worker.tell(kind="step", step=self.step, seconds=self.seconds)

    def evaluate(self) -> bool:
        """Evaluate this rank's share of the test set, compare the ranks' parameters; True when the run is over."""
        import torch
        import torch.distributed as dist

        x, y = (torch.from_numpy(part) for part in self.worker.test)
        with torch.no_grad():
            logits = self.ddp.module(x)
            right = int((logits.argmax(1) == y).sum())
            loss = float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
        finite = bool(np.isfinite(loss))
        mine = [right, int(loss * 1e6) if finite else 0, int(finite), fingerprint(self.ddp.module)]
        room = [torch.zeros(4, dtype=torch.int64) for _ in range(self.worker.size)]
        dist.all_gather(room, torch.tensor(mine))
        rights, losses, finites, hashes = zip(*(row.tolist() for row in room), strict=True)
        if len(set(hashes)) > 1:
            odd = [rank for rank, value in enumerate(hashes) if value != hashes[0]]
            raise RuntimeError(f"after step {self.step} the parameters of ranks {odd} differ from those of rank 0")
        total = self.worker.data.test_y.size
        self.accuracies.append(sum(rights) / total)
        if self.worker.rank == 0:
            self.worker.tell(
                kind="eval",
                step=self.step,
                seconds=self.seconds,
                accuracy=self.accuracies[-1],
                loss=sum(losses) / 1e6 / total if all(finites) else None,
                sent=self.hook.stats.bytes_sent,
                codec_s=self.hook.stats.exposed_codec_s,
                wire_s=self.hook.stats.exposed_wire_s,
                vnmse=self.gradient_error(),
            )
        return self.finished(all(finites))

    def gradient_error(self) -> float | None:
        """vNMSE of this rank's own message in the last step, if the hook knows it."""
        if self.order["codec"] == BASELINE:
            import torch

            from tersor.evaluate.baseline import cast_error

            # The hook keeps nothing on the clock; here, off it, the same batch gives a gradient of this rank again.
            x, y = self.batch
            loss = torch.nn.functional.cross_entropy(self.ddp.module(x), y)
            return cast_error(torch.autograd.grad(loss, list(self.ddp.module.parameters())))
        return None if self.hook.stats.vnmse is None else float(self.hook.stats.vnmse)

    def finished(self, finite: bool) -> bool:
        """Decide, equally on every rank, whether this run is over."""
        window = self.accuracies[-WINDOW:]
        if self.reached is None and len(window) == WINDOW and sum(window) / WINDOW >= self.order["target"]:
            self.reached = (self.step, self.seconds)
            if self.worker.rank == 0:
                self.worker.tell(kind="reached", step=self.step, seconds=self.seconds)
        if not finite or self.step >= int(self.order["max_steps"]):
            return True
        beyond = WINDOW * int(self.order["eval_every"])
        floor = max(int(self.order["floor"]), self.reached[0] + beyond if self.reached else 0)
        return self.reached is not None and self.step >= floor


def main() -> None:
    """Join, then obey; any error is reported, and ends this rank."""
    config = json.loads(sys.argv[1])
    die_with(int(config["parent"]))
    os.dup2(2, 1)  # nothing that a library prints may get lost between the events
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = None
    try:
        worker = Worker(config)
        worker.join()
        for line in sys.stdin:
            order = json.loads(line)
            {"run": worker.run, "transfer": worker.transfer}[order["do"]](order)
    except BrokenPipeError:
        pass  # nobody listens any more
    except Exception as error:
        message, trace = f"{type(error).__name__}: {error}"[:1000], traceback.format_exc()[-2500:]
        event = {"kind": "error", "rank": config["rank"], "message": message, "trace": trace}
        os.write(config["events"], json.dumps(event).encode() + b"\n")
    # About 3 % of the workers abort in the interpreter's exit, even after destroy_process_group.
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
