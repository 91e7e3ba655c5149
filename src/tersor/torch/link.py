"""TorchLink: a Link over a torch.distributed process group that moves CPU bytes (gloo, MPI)."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, _get_default_store

from tersor.collectives.link import Bytes, Link
from tersor.errors import TersorError

_TAG = 0x7E
_TIMEOUT = timedelta(minutes=5)
_lock = threading.Lock()
_opened: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()


class TorchLink(Link):
    """This rank's end of a process group.

    Parameters
    ----------
    group : ProcessGroup, optional
        Default: the default group. It must move CPU tensors.

    Raises
    ------
    TersorError
        If torch.distributed is not initialised, or the group has no CPU backend.
    """

    def __init__(self, group: "dist.ProcessGroup | None" = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise TersorError("torch.distributed is not initialised; call torch.distributed.init_process_group first")
        chosen = group if group is not None else dist.group.WORLD
        assert chosen is not None
        try:
            chosen._get_backend(torch.device("cpu"))
        except RuntimeError as error:
            raise TersorError(
                "this process group moves no CPU tensors; pass group=torch.distributed.new_group(backend='gloo')"
            ) from error
        if dist.get_rank(chosen) < 0:
            raise TersorError("this process is not in the group")
        self._group: Any = chosen
        self._open: Callable[[], Any] | None = None
        self.rank, self.size = chosen.rank(), chosen.size()

    @classmethod
    def beside(cls, group: "dist.ProcessGroup | None" = None) -> "TorchLink":
        """Return a link with connections of its own, so that its exchanges need no order with those of `group`.

        Every rank of `group` must call this, in the same order; the connections are made in the first exchange, which
        may be on another thread. (new_group is no help: every process of the default group would have to
        call it, and its local form hangs when ranks were in different numbers of groups before.)
        """
        link = cls(group)
        parent = link._group
        with _lock:
            _opened[parent] = _opened.get(parent, 0) + 1
            number = _opened[parent]
        store = PrefixStore(f"tersor/{parent.group_name}/{number}", _get_default_store())
        options = getattr(parent._get_backend(torch.device("cpu")), "options", None)
        timeout = getattr(options, "_timeout", _TIMEOUT)
        link._group, link._open = None, partial(ProcessGroupGloo, store, link.rank, link.size, timeout)
        return link

    def close(self) -> None:
        super().close()
        group, self._group = self._group, None
        if self._open is not None and group is not None:  # connections of its own
            group.abort()

    def _connect(self) -> None:
        # Nobody keeps the group in a local variable: an error's traceback would keep the connections open.
        if self.closed:
            raise LinkError("this link was closed after an error. End all processes, and start again from a checkpoint")
        if self._group is None:
            assert self._open is not None
            with _named("opening connections"):
                self._group = self._open()

    def all_gather(self, data: Bytes) -> list[Bytes]:
        self.bytes_sent += len(data) * (self.size - 1)
        room = [torch.empty(len(data), dtype=torch.uint8) for _ in range(self.size)]
        self._connect()
        with _named("all_gather"):
            self._group.allgather([room], [_tensor(data)]).wait()
        return [t.numpy() for t in room]

    def all_to_all(self, parts: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        # Point to point: gloo's own all_to_all takes 1.4 to 2 times as long on a slow link. All receives are posted
        # first; one send per peer and round keeps every link busy in both directions.
        room = [torch.empty(n, dtype=torch.uint8) for n in sizes]
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        self._connect()
        with _named("all_to_all"):
            receives = [self._group.recv([room[i]], i, _TAG) for i in reversed(peers) if sizes[i]]
            sending = None
            for i in peers:
                part = _tensor(parts[i])  # parts may be made here, while the one before is on its way
                if sending is not None:
                    sending.wait()
                sending = self._group.send([part], i, _TAG) if len(part) else None
            own = _tensor(parts[self.rank])
            for work in [sending, *receives]:
                if work is not None:
                    work.wait()
        self.bytes_sent += sum(len(parts[i]) for i in peers)
        room[self.rank] = own
        return [t.numpy() for t in room]

    def broadcast(self, data: Bytes, root: int) -> Bytes:
        if self.rank == root:
            self.bytes_sent += len(data) * (self.size - 1)
        tensor = _tensor(data).clone()
        self._connect()
        with _named("broadcast"):
            self._group.broadcast(tensor, root).wait()
        received: Bytes = tensor.numpy()
        return received

    def barrier(self) -> None:
        self._connect()
        with _named("barrier"):
            self._group.barrier().wait()


class LinkError(TersorError):
    """An exchange did not complete: another process has died, or did not come within the group's time-out."""


@contextmanager
def _named(exchange: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LinkError(
            f"{exchange} did not complete: another process has died, or did not come within the group's time-out "
            f"({error}). End the other processes, and start again from the last checkpoint"
        ) from error


def _tensor(data: Bytes) -> torch.Tensor:
    return torch.from_numpy(np.require(data, np.uint8, ["C", "W"]))
