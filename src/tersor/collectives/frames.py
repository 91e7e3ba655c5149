"""Frames: a message with a status in front, so that one rank's failure is known to all in the same exchange."""

from collections.abc import Callable, Sequence

import numpy as np

from tersor.collectives.link import Bytes
from tersor.errors import NonFiniteError, TersorError

OK, NONFINITE, FAILED = 0, 1, 2
STATUS_SIZE = 8


class RemoteError(TersorError):
    """Another rank failed in a collective; every rank gets this error in the same call.

    Attributes
    ----------
    rank : int
        The rank that failed first.
    """

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(f"{what}: rank {rank} failed; its own error says why. Nothing was changed here")
        self.what, self.rank = what, rank

    def __reduce__(self) -> tuple[type["RemoteError"], tuple[str, int]]:
        return RemoteError, (self.what, self.rank)


def make_frame(
    make: Callable[[], bytes], size: int | None, rank: int, bad: NonFiniteError | None = None
) -> tuple[Bytes, Exception | None]:
    """Return a frame of `size` bytes: a status (8 bytes, so that the message stays aligned) and a message.

    None: a frame of the message's size. If this rank's input is `bad`, or `make` fails, the frame says only that; the
    error is returned beside it.
    """
    data = np.zeros(size or STATUS_SIZE, np.uint8)
    error: Exception | None = bad
    if bad is None:
        try:
            message = make()
            if size is None:
                data = np.zeros(STATUS_SIZE + len(message), np.uint8)
            data[STATUS_SIZE : STATUS_SIZE + len(message)] = np.frombuffer(message, np.uint8)
        except Exception as raised:
            error = raised
    if error is not None:
        data[0] = NONFINITE if isinstance(error, NonFiniteError) else FAILED
        data[4:8] = np.array([error.rank if isinstance(error, RemoteError) else rank], "<u4").view(np.uint8)
    return data, error


def payload(data: Bytes, size: int) -> Bytes:
    """Return the `size` bytes of a frame's message."""
    return data[STATUS_SIZE : STATUS_SIZE + size]


def nonfinite_ranks(frames: Sequence[Bytes]) -> list[int]:
    """Return the ranks whose frames say that their input holds NaN or infinity."""
    return [rank for rank, data in enumerate(frames) if int(data[0]) == NONFINITE]


def check(frames: Sequence[Bytes], mine: Exception | None, what: str) -> None:
    """Raise this rank's own error, or RemoteError if another rank failed; NaN and infinity are no failure here."""
    if mine is not None and not isinstance(mine, NonFiniteError):
        raise mine
    for data in frames:
        if int(data[0]) not in (OK, NONFINITE):
            raise RemoteError(what, int(data[4:8].view("<u4")[0]))
