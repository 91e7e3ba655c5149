"""Lane: one thread on which a hook's buckets are reduced in order, while backward goes on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tersor.collectives.reduce import Trace


class Lane:
    """Runs jobs one after the other on a thread of its own, and tells what of their time backward did not hide.

    Attributes
    ----------
    trace : Trace
        Of the step in progress.
    exposed_codec_s, exposed_wire_s : float
        Seconds in encoding and decoding, and in exchanges, after backward had nothing more to do.
    """

    def __init__(self) -> None:
        self.trace = Trace()
        self.exposed_codec_s = 0.0
        self.exposed_wire_s = 0.0
        self._idle_since = 0.0
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, job: Callable[[], None], last: bool) -> None:
        """Queue a job, which must not raise.

        The `last` one of a step is waited for: backward has nothing more to do, and what ended a bucket can then be
        raised as it is (DDP turns the exception of a future into a failed cast to a tensor).
        """
        if last:
            self._idle_since = time.perf_counter()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="tersor")
        future = self._executor.submit(job)
        if last:
            future.result()

    def end_step(self) -> Trace:
        """Close the books of a step; returns its trace."""
        trace, self.trace = self.trace, Trace()
        self.exposed_codec_s += trace.seconds(wire=False, since=self._idle_since)
        self.exposed_wire_s += trace.seconds(wire=True, since=self._idle_since)
        return trace

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_executor": None}
