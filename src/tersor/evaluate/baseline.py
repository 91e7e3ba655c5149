"""The baseline of the race: the backend's own all-reduce in bfloat16, as a DDP hook with the same statistics.

No `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from tersor.evaluate.pacing import paced
from tersor.torch.hook import HookStats
from tersor.torch.lane import Lane


class BaselineHook:
    """Cast the bucket to bfloat16, all-reduce, cast back and divide.

    Parameters
    ----------
    rate : float | None
        Bits a second of the modelled link; None where the link is real or has no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.stats = HookStats()
        self.lane = Lane()
        self.error: Exception | None = None
        self.__name__ = self.__qualname__ = "bf16_all_reduce"  # DDP asks for both

    def __call__(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradient, last = bucket.buffer(), bucket.is_last()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self.lane.submit(partial(self.reduce, gradient, last, future), last)
        if last and self.error is not None:
            raise self.error
        return future

    def reduce(self, gradient: torch.Tensor, last: bool, future: "torch.futures.Future[torch.Tensor]") -> None:
        """Reduce one bucket, on the hook's lane, while backward goes on."""
        try:
            size, trace = dist.get_world_size(), self.lane.trace
            with trace.coding():
                half = gradient.to(torch.bfloat16)
            # A ring, or anything else that is optimal, sends 2 (N-1)/N of the bytes from every rank.
            nbytes = 2 * (size - 1) * half.numel() * half.element_size() // size
            with trace.wiring():
                paced(self.rate, nbytes, dist.barrier, lambda: dist.all_reduce(half))
            with trace.coding():
                gradient.copy_(half).div_(size)
            self.stats.bytes_sent += nbytes
            if last:
                trace = self.lane.end_step()
                self.stats.codec_s += trace.seconds(wire=False)
                self.stats.wire_s += trace.seconds(wire=True)
                self.stats.exposed_codec_s += self.lane.exposed_codec_s
                self.stats.exposed_wire_s += self.lane.exposed_wire_s
                self.stats.steps += 1
            future.set_result(gradient)
        except Exception as error:
            self.error = error


def register_baseline(model: DistributedDataParallel, rate: float | None) -> BaselineHook:
    """Register the baseline on a DDP model."""
    hook = BaselineHook(rate)
    model.register_comm_hook(None, hook)
    return hook


def cast_error(gradients: Sequence[torch.Tensor]) -> float:
    """vNMSE of casting a gradient, given in parts, to bfloat16."""
    whole = torch.cat([part.flatten() for part in gradients])
    norm = float(whole.double().square().sum())
    error = float((whole.to(torch.bfloat16).double() - whole.double()).square().sum())
    return error / norm if norm else 0.0
