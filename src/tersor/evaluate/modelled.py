"""The modelled link: a transfer over loopback that takes as long as the slow link would need for its bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tersor.collectives.link import Link
from tersor.evaluate.pacing import paced


class ModelledLink(Link):
    """A link that wraps another and sleeps for the wire time that the other did not take.

    Parameters
    ----------
    inner : Link
        Moves the bytes.
    rate : float
        Bits a second, each way, of every rank's own link.
    """

    def __init__(self, inner: Link, rate: float) -> None:
        self.inner = inner
        self.rate = rate

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This process's number."""
        return self.inner.rank

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of processes."""
        return self.inner.size

    @property
    def bytes_sent(self) -> int:  # type: ignore[override]
        """Payload bytes handed to the transport so far."""
        return self.inner.bytes_sent

    def all_gather(self, data: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Gather; every rank sends its bytes to each other rank."""
        nbytes = (self.size - 1) * data.nbytes
        return paced(self.rate, nbytes, self.inner.barrier, lambda: self.inner.all_gather(data))

    def all_to_all(self, parts: Sequence[NDArray[np.uint8]], sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
        """Exchange parts; a rank's own part does not travel."""
        sent = sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank)
        received = sum(size for rank, size in enumerate(sizes) if rank != self.rank)
        nbytes = max(sent, received)
        return paced(self.rate, nbytes, self.inner.barrier, lambda: self.inner.all_to_all(parts, sizes))

    def broadcast(self, data: NDArray[np.uint8], root: int) -> NDArray[np.uint8]:
        """Send the root's bytes to all, charged as a binary tree of ceil(log2(size)) hops."""
        nbytes = math.ceil(math.log2(self.size)) * data.nbytes
        return paced(self.rate, nbytes, self.inner.barrier, lambda: self.inner.broadcast(data, root))

    def barrier(self) -> None:
        """Wait for all; costs no modelled time."""
        self.inner.barrier()
