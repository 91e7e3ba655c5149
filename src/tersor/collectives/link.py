"""Link: what a collective asks of a network - three exchanges of bytes - and an in-process one made of threads."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Link(ABC):
    """One rank's end of a group. Every rank calls the same exchanges in the same order.

    Attributes
    ----------
    rank, size : int
        This rank and the number of ranks.
    bytes_sent : int
        Payload bytes that this rank handed to the transport so far.
    closed : bool
        Whether `close` was called.
    """

    rank: int
    size: int
    bytes_sent: int = 0
    closed: bool = False

    @abstractmethod
    def all_gather(self, data: Bytes) -> list[Bytes]:
        """Send `data`, of equal size on all ranks, to all; return everybody's, by rank."""

    @abstractmethod
    def all_to_all(self, parts: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        """Send ``parts[j]`` to rank j; return what came, by rank. ``sizes[i]`` bytes are expected from rank i."""

    def exchange(self, data: Bytes, to: int, source: int, size: int) -> Bytes:
        """Send `data` to rank `to`; return the `size` bytes that rank `source` sends here in the same exchange."""
        nothing = np.zeros(0, np.uint8)
        parts = [data if i == to else nothing for i in range(self.size)]
        return self.all_to_all(parts, [size if i == source else 0 for i in range(self.size)])[source]

    @abstractmethod
    def broadcast(self, data: Bytes, root: int) -> Bytes:
        """Return the `data` of rank `root`; every rank passes an array of that size."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def close(self) -> None:
        """Use the link no more; where the transport allows it, exchanges that other ranks wait in fail at once."""
        self.closed = True

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Close the link if the block fails: nobody else knows of it, and the others must not wait for this rank."""
        try:
            yield
        except BaseException:
            self.close()
            raise


class LocalLink(Link):
    """Ranks that are threads of one process: for tests, simulations and teaching.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> links = LocalLink.group(3)
    >>> with ThreadPoolExecutor(3) as pool:
    ...     got = list(pool.map(lambda link: link.all_gather(np.array([link.rank], np.uint8)), links))
    >>> [int(a[0]) for a in got[2]]
    [0, 1, 2]
    """

    def __init__(self, rank: int, size: int, board: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._board, self._barrier = board, barrier

    @classmethod
    def group(cls, size: int, timeout: float = 60.0) -> list[Self]:
        """Return the ends of a new group; an exchange that lasts longer than `timeout` seconds breaks it."""
        board: list[Any] = [None] * size
        barrier = threading.Barrier(size, timeout=timeout)
        return [cls(rank, size, board, barrier) for rank in range(size)]

    def all_gather(self, data: Bytes) -> list[Bytes]:
        self.bytes_sent += len(data) * (self.size - 1)
        return [np.array(theirs) for theirs in self._exchange(data)]

    def all_to_all(self, parts: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        self.bytes_sent += sum(len(part) for j, part in enumerate(parts) if j != self.rank)
        got = [np.array(theirs[self.rank]) for theirs in self._exchange(list(parts))]
        if [len(part) for part in got] != list(sizes):
            raise ValueError(f"expected parts of {list(sizes)} bytes, got {[len(part) for part in got]}")
        return got

    def broadcast(self, data: Bytes, root: int) -> Bytes:
        if self.rank == root:
            self.bytes_sent += len(data) * (self.size - 1)
        return np.array(self._exchange(data)[root])

    def barrier(self) -> None:
        self._barrier.wait()

    def close(self) -> None:
        super().close()
        self._barrier.abort()

    def _exchange(self, mine: Any) -> list[Any]:
        self._board[self.rank] = mine
        self._barrier.wait()
        everyone = list(self._board)
        self._barrier.wait()
        return everyone
