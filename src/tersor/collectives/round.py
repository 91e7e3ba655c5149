"""Round: one all_reduce in progress - what every topology needs of it - and Trace, what it cost."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tersor.collectives.frames import STATUS_SIZE, check, make_frame, nonfinite_ranks, payload
from tersor.collectives.link import Bytes, Link
from tersor.errors import NonFiniteError

F32 = NDArray[np.float32]


@dataclass
class Trace:
    """What all_reduces cost on this rank.

    Attributes
    ----------
    spans : list of (bool, float, float)
        Whether it was an exchange (else encoding or decoding), begin and end, by time.perf_counter.
    error, energy : float
        ||x_hat - x||**2 and ||x||**2 of this rank's own messages.
    saturated : int
        Coordinates that saturating sums clamped on this rank.
    """

    spans: list[tuple[bool, float, float]] = field(default_factory=list)
    error: float = 0.0
    energy: float = 0.0
    saturated: int = 0
    _open: list[tuple[bool, float]] = field(default_factory=list)

    def seconds(self, wire: bool, since: float = 0.0) -> float:
        """Return the time in exchanges (`wire`) or in encoding and decoding, from `since` on."""
        return sum(max(end - max(begin, since), 0.0) for kind, begin, end in self.spans if kind == wire)

    @property
    def vnmse(self) -> float | None:
        """The vNMSE of this rank's own messages, or None if the codec knows none."""
        return self.error / self.energy if self.energy > 0 else None

    @contextmanager
    def span(self, wire: bool) -> Iterator[None]:
        """Count the time of a block; what is counted inside it does not count twice."""
        begin = time.perf_counter()
        if self._open:
            outer, since = self._open[-1]
            self.spans.append((outer, since, begin))
        self._open.append((wire, begin))
        try:
            yield
        finally:
            end = time.perf_counter()
            _, since = self._open.pop()
            self.spans.append((wire, since, end))
            if self._open:
                self._open[-1] = (self._open[-1][0], end)

    def coding(self) -> AbstractContextManager[None]:
        """Count the time of a block as encoding or decoding."""
        return self.span(wire=False)

    def wiring(self) -> AbstractContextManager[None]:
        """Count the time of a block as exchange."""
        return self.span(wire=True)


@dataclass
class Round:
    """One all_reduce in progress: what the topologies share.

    Attributes
    ----------
    link, seed
        As given to `all_reduce`.
    weight : float
        Factor of every rank's estimate: 1, or 1 / size for a mean.
    what : str
        Names the collective in errors.
    own : ndarray of float32 or None
        Receives the estimate of this rank's own input.
    agreed : bool
        Whether a failure was found that all ranks know of.
    """

    link: Link
    seed: int
    weight: float
    what: str
    own: F32 | None = None
    trace: Trace = field(default_factory=Trace)
    agreed: bool = False

    @property
    def rank(self) -> int:
        """This rank."""
        return self.link.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.link.size

    def check(self, frames: Sequence[Bytes], mine: Exception | None) -> None:
        """Raise what `frames.check` raises, and note that all ranks do."""
        try:
            check(frames, mine, self.what)
        except Exception:
            self.agreed = True
            raise

    def opened(self, frame: Bytes) -> Bytes:
        """Return the message in a frame that another rank made.

        Raises
        ------
        RemoteError, NonFiniteError
            If it holds a failure instead: the caller's own frame then passes it on.
        """
        check([frame], None, self.what)
        if nonfinite_ranks([frame]):
            raise NonFiniteError(f"{self.what}: the sum overflows float32", 0)
        return payload(frame, len(frame) - STATUS_SIZE)

    def status(self, bad: NonFiniteError | None) -> list[Bytes] | None:
        """Tell all ranks whether this one's vector is fit; returns the frames if one is not, else None."""
        data, failed = make_frame(lambda: b"", STATUS_SIZE, self.rank, bad)
        with self.trace.wiring():
            frames = self.link.all_gather(data)
        self.check(frames, failed)
        return frames if nonfinite_ranks(frames) else None

    # Exchanges of frames. Where messages vary in size (`size` is None), their lengths go ahead.

    def all_gather(self, frame: Bytes, size: int | None) -> list[Bytes]:
        """Send a frame to all; return everybody's."""
        with self.trace.wiring():
            if size is not None:
                return self.link.all_gather(frame)
            lengths = [_length_in(raw) for raw in self.link.all_gather(_length_of(frame))]
            room = np.zeros(max(lengths), np.uint8)
            room[: len(frame)] = frame
            return [raw[:n] for raw, n in zip(self.link.all_gather(room), lengths, strict=True)]

    def all_to_all(self, frames: Sequence[Bytes], sizes: Sequence[int] | None) -> list[Bytes]:
        """Send ``frames[j]`` to rank j; return what came. ``sizes[i]`` bytes come from rank i."""
        with self.trace.wiring():
            if sizes is None:
                lengths = self.link.all_to_all([_length_of(f) for f in frames], [8] * self.size)
                sizes = [_length_in(raw) for raw in lengths]
            return self.link.all_to_all(frames, sizes)

    def exchange(self, frame: Bytes, to: int, source: int, size: int | None) -> Bytes:
        """Send a frame to rank `to`; return the one that rank `source` sends here. With itself: take part only."""
        with self.trace.wiring():
            if size is None:
                size = _length_in(self.link.exchange(_length_of(frame), to, source, 8))
            return self.link.exchange(frame, to, source, size)

    def broadcast(self, frame: Bytes, root: int, size: int | None) -> Bytes:
        """Return the frame of rank `root`."""
        with self.trace.wiring():
            if size is None:
                size = _length_in(self.link.broadcast(_length_of(frame), root))
            return self.link.broadcast(frame if self.rank == root else np.zeros(size, np.uint8), root)


def _length_of(frame: Bytes) -> Bytes:
    return np.array([len(frame)], "<u8").view(np.uint8)


def _length_in(raw: Bytes) -> int:
    return int(np.ascontiguousarray(raw).view("<u8")[0])
