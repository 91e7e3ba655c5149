"""Frames: a message with a status in front, so that one rank's failure is known to all in the same exchange."""

from collections.abc import Sequence

import numpy as np

from tersor.collectives.link import Bytes
from tersor.errors import NonFiniteError, TersorError

OK, NONFINITE, FAILED = 0, 1, 2
STATUS_SIZE = 8


class RemoteError(TersorError):
    """Another rank failed in a collective; every rank gets this error in the same exchange."""


def frame(message: bytes, status: int = OK) -> Bytes:
    """Return the status (8 bytes, so that the message stays aligned) and the message."""
    data = np.zeros(STATUS_SIZE + len(message), np.uint8)
    data[0] = status
    data[STATUS_SIZE:] = np.frombuffer(message, np.uint8)
    return data


def failed_frame(size: int, status: int) -> Bytes:
    """Return a frame of `size` bytes that says only that this rank failed."""
    data = np.zeros(size, np.uint8)
    data[0] = status
    return data


def payload(data: Bytes, size: int) -> Bytes:
    """Return the `size` bytes of a frame's message."""
    return data[STATUS_SIZE : STATUS_SIZE + size]


def agree(frames: Sequence[Bytes], mine: BaseException | None, what: str) -> bool:
    """Return True if all ranks are well, False if some rank has NaN or infinity.

    Raises
    ------
    BaseException
        `mine`, if this rank failed.
    RemoteError
        If another rank failed.
    """
    statuses = [int(data[0]) for data in frames]
    if isinstance(mine, NonFiniteError):
        return False
    if mine is not None:
        raise mine
    failed = [rank for rank, status in enumerate(statuses) if status not in (OK, NONFINITE)]
    if failed:
        raise RemoteError(f"{what}: rank {failed[0]} failed; its own error says why. Nothing was changed here")
    return NONFINITE not in statuses


def nonfinite_ranks(frames: Sequence[Bytes]) -> list[int]:
    """Return the ranks whose frames say that their input holds NaN or infinity."""
    return [rank for rank, data in enumerate(frames) if int(data[0]) == NONFINITE]
