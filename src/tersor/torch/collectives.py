"""all_reduce for torch tensors: the call of torch.distributed, with an encoding on the way."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tersor import arrays, rng
from tersor.codec import Codec
from tersor.collectives.link import Link
from tersor.collectives.reduce import all_reduce as reduce_vector
from tersor.collectives.round import Trace
from tersor.collectives.schemes.scheme import Scheme, Tensors, resolve
from tersor.collectives.topologies import choose_topology
from tersor.torch.lane import Worker
from tersor.torch.link import TorchLink

_lock = threading.Lock()
_calls: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_links: "weakref.WeakKeyDictionary[Any, TorchLink]" = weakref.WeakKeyDictionary()
_queues: "weakref.WeakKeyDictionary[Link, Worker]" = weakref.WeakKeyDictionary()


class Work:
    """Handle of an asynchronous collective, like those of torch.distributed."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the result; raises what the collective raised, or TimeoutError after `timeout` seconds."""
        self._future.result(timeout)
        return True

    def is_completed(self) -> bool:
        """Say whether the collective has ended."""
        return self._future.done()

    def exception(self) -> BaseException | None:
        """Return what an ended collective raised, or None."""
        return self._future.exception() if self._future.done() else None


def all_reduce(
    tensor: torch.Tensor,
    codec: "Codec | Scheme | str",
    op: Any = dist.ReduceOp.SUM,
    topology: str = "auto",
    group: "dist.ProcessGroup | None" = None,
    async_op: bool = False,
    *,
    seed: int | None = None,
    nonfinite: str = "raise",
    link: Link | None = None,
) -> Work | None:
    """Replace `tensor` on every rank by the estimated sum or mean over the ranks; all ranks get the same bits.

    Parameters
    ----------
    tensor : Tensor
        Float, dense, on any device (others than the CPU are staged through host memory); written in place.
    codec : Codec, Scheme or str
        The same on all ranks.
    op : ReduceOp, default SUM
        SUM or AVG.
    topology : str, default "auto"
        See `tersor.collectives.all_reduce`.
    group : ProcessGroup, optional
        Default: the default group.
    async_op : bool, default False
        Return a handle at once; the first such call on a group opens connections of its own. Asynchronous calls of one
        group run in order, and need no order with other collectives.
    seed : int, optional
        The same on all ranks; default: the number of this call on the group.
    nonfinite : {"raise", "propagate"}
        With NaN or infinity on any rank: raise on all, or return NaN on all.
    link : Link, optional
        Use this link in place of the group.

    Returns
    -------
    Work or None
        A handle if `async_op`.

    Examples
    --------
    >>> import tempfile, torch, torch.distributed as dist, tersor.torch
    >>> store = dist.FileStore(tempfile.mktemp(), 1)
    >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> x = torch.ones(3)
    >>> tersor.torch.all_reduce(x, "eden:4")
    >>> x.tolist()
    [1.0, 1.0, 1.0]
    >>> dist.destroy_process_group()
    """
    chosen = resolve(codec)
    average = _is_average(op)
    if not tensor.is_floating_point() or tensor.layout is not torch.strided:
        raise TypeError(f"all_reduce wants a dense float tensor, got {tensor.dtype} ({tensor.layout})")
    choose_topology(topology, 2)
    given, known = link, link or (group if group is not None else dist.group.WORLD)
    if given is None:
        given = _link_of_queue(group) if async_op else TorchLink(group)
    # Asynchronous calls need no order with others, so they are counted apart.
    number = _next_call(given if async_op else known) if seed is None else seed

    def run() -> None:
        shape = tuple(tensor.shape)
        reduce_tensor(
            tensor,
            given,
            chosen,
            seed=number,
            topology=topology,
            average=average,
            nonfinite=nonfinite,
            tensors=Tensors([shape], [chosen.init(shape)]) if isinstance(chosen, Scheme) else None,
        )

    if not async_op:
        run()
        return None
    return Work(_queue(given).submit(run))


def reduce_tensor(
    tensor: torch.Tensor,
    link: Link,
    codec: Codec | Scheme,
    *,
    seed: int,
    topology: str,
    average: bool,
    nonfinite: str,
    own: np.ndarray[Any, np.dtype[np.float32]] | None = None,
    trace: Trace | None = None,
    what: str = "all_reduce",
    before: Callable[[Any], None] | None = None,
    tensors: Tensors | None = None,
) -> bool:
    """Run `tersor.collectives.all_reduce` on a tensor, in place; returns False if it became NaN.

    `before` may change the float32 vector that is sent; the tensor itself is only written at the end.
    """
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        shares = flat.device.type == "cpu" and flat.dtype == torch.float32 and flat.data_ptr() == tensor.data_ptr()
        if shares and before is None and flat.is_contiguous():
            return _reduce(flat.numpy(), link, codec, seed, topology, average, nonfinite, own, trace, what, tensors)
        with link.guard():
            work = flat.to(device="cpu", dtype=torch.float32, copy=True).numpy()
            if before is not None:
                before(work)
        finite = _reduce(work, link, codec, seed, topology, average, nonfinite, own, trace, what, tensors)
        with link.guard():
            origin = arrays.origin_of(tensor)
            tensor.copy_(arrays.from_host(work, tuple(tensor.shape), arrays.dtype_name(tensor), origin))
        return finite


def _reduce(
    x: Any,
    link: Link,
    codec: Codec | Scheme,
    seed: int,
    topology: str,
    average: bool,
    nonfinite: str,
    own: Any,
    trace: Trace | None,
    what: str,
    tensors: Tensors | None,
) -> bool:
    return reduce_vector(
        link,
        x,
        codec,
        seed=seed,
        topology=topology,
        average=average,
        nonfinite=nonfinite,
        own=own,
        trace=trace,
        what=what,
        tensors=tensors,
    )


def _is_average(op: Any) -> bool:
    if op == dist.ReduceOp.AVG:
        return True
    if op == dist.ReduceOp.SUM:
        return False
    raise ValueError(f"all_reduce estimates SUM and AVG, got {op}")


def _next_call(key: Any) -> int:
    with _lock:
        _calls[key] = _calls.get(key, -1) + 1
        return rng.mix64(_calls[key])


def _link_of_queue(group: "dist.ProcessGroup | None") -> TorchLink:
    key = group if group is not None else dist.group.WORLD
    link = None if key is None else _links.get(key)
    if link is None:
        link = TorchLink.beside(group)  # says so if nothing is initialised
        _links[key] = link
    return link


def _queue(link: Link) -> Worker:
    with _lock:
        if link not in _queues:
            _queues[link] = Worker()
        return _queues[link]
