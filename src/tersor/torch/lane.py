"""Lane: one thread on which a hook's buckets are reduced in order, while backward goes on."""

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tersor.collectives.round import Trace

_PATIENCE_S = 3.0
_Jobs = queue.SimpleQueue["tuple[Callable[[], None], Future[None]] | None"]


class Worker:
    """One thread that runs jobs in order.

    It does not keep the interpreter from ending, as ThreadPoolExecutor does: a job may wait for a process that never
    comes, and is left alone after a few seconds.
    """

    def __init__(self) -> None:
        self._jobs: _Jobs = queue.SimpleQueue()
        thread = threading.Thread(target=_serve, args=(self._jobs,), name="tersor", daemon=True)
        thread.start()
        weakref.finalize(self, _stop, self._jobs, thread)

    def submit(self, job: Callable[[], None]) -> "Future[None]":
        """Queue a job; returns the future of its end."""
        future: Future[None] = Future()
        self._jobs.put((job, future))
        return future


def _serve(jobs: _Jobs) -> None:
    while (item := jobs.get()) is not None:
        job, future = item
        try:
            job()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del item, job, future  # keep nothing alive while idle


def _stop(jobs: _Jobs, thread: threading.Thread) -> None:
    jobs.put(None)
    if thread is not threading.current_thread():
        thread.join(_PATIENCE_S)


class Lane:
    """Runs jobs one after the other on a thread of its own, and tells what of their time backward did not hide.

    Attributes
    ----------
    trace : Trace
        Of the step in progress.
    exposed_codec_s, exposed_wire_s : float
        Seconds of the last step in encoding and decoding, and in exchanges, after backward had nothing more to do.
    """

    def __init__(self) -> None:
        self.trace = Trace()
        self.exposed_codec_s = 0.0
        self.exposed_wire_s = 0.0
        self._idle_since = 0.0
        self._worker: Worker | None = None

    def submit(self, job: Callable[[], None], last: bool) -> None:
        """Queue a job, which must not raise.

        The `last` one of a step is waited for: backward has nothing more to do, and what ended a bucket can then be
        raised as it is (DDP turns the exception of a future into a failed cast to a tensor).
        """
        if last:
            self._idle_since = time.perf_counter()
        if self._worker is None:
            self._worker = Worker()
        future = self._worker.submit(job)
        if last:
            future.result()

    def end_step(self) -> Trace:
        """Close the books of a step; returns its trace."""
        trace, self.trace = self.trace, Trace()
        self.exposed_codec_s = trace.seconds(wire=False, since=self._idle_since)
        self.exposed_wire_s = trace.seconds(wire=True, since=self._idle_since)
        return trace

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None}
