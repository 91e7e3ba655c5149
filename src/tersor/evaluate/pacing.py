"""Pacing: a transfer is made to take as long as its bytes would need on the modelled link."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tersor.evaluate.bed import wire_seconds

T = TypeVar("T")


def paced(rate: float | None, nbytes: float, barrier: Callable[[], None], transfer: Callable[[], T]) -> T:
    """Run `transfer` so that it takes at least (nbytes x 1.0456) / rate, counted from a barrier.

    The barrier comes first because a real transfer cannot end before the last worker has begun it; a sleep alone is
    off by 11-24 %. Without a rate this is just `transfer()`.

    Parameters
    ----------
    rate : float | None
        Bits a second.
    nbytes : float
        Payload on this worker's link, the larger of the two directions.
    barrier, transfer : callable
        The barrier of the workers, and what moves the bytes.
    """
    if rate is None:
        return transfer()
    barrier()
    start = time.perf_counter()
    result = transfer()
    rest = start + wire_seconds(nbytes, rate) - time.perf_counter()
    if rest > 0:
        time.sleep(rest)
    return result
