"""The launcher's half of a crew of workers: start, order, listen, and leave nothing behind."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from tersor.errors import TersorError
from tersor.evaluate.bed import Bed

GRACE_SECONDS = 5.0  # for the bed to end by itself when told to
BLAME_SECONDS = 1.5  # between the first complaint and the verdict: a killed worker makes its peers complain first


class CrewError(TersorError):
    """The workers cannot go on: one was killed, failed, or is silent."""


class Interrupted(TersorError):
    """A signal asked the race to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted within the block; only the first one counts."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C gives up the report too
        raise Interrupted(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        old = [signal.signal(number, raise_it) for number in numbers]
    except ValueError:  # not in the main thread: signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, old, strict=True):
            signal.signal(number, handler)


class Crew:
    """Workers behind a bed, alive until `close`; use it in a `with` block.

    Parameters
    ----------
    bed : Bed
        The link that each worker gets.
    workers : int
        How many.
    workload : str
        What they will train; loaded once.
    timeout : float
        Seconds that a collective may take. A crew that reports nothing for a little longer is given up.
    """

    def __init__(self, bed: Bed, workers: int, workload: str, timeout: float = 60.0) -> None:
        self.pids: list[int] = []
        self.patience = timeout + 20.0
        self._pending = b""
        self._closed = False
        self._noise: collections.deque[str] = collections.deque(maxlen=30)
        self._reader, writer = os.pipe()
        config = {
            "workers": workers,
            "workload": workload,
            "tier": bed.tier,
            "real": bed.real,
            "rate": bed.rate,
            "timeout": timeout,
            "events": writer,
        }
        try:
            self._process = subprocess.Popen(
                [*bed.enter, sys.executable, "-P", "-m", "tersor.evaluate.warden", json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C reaches the launcher alone
            )
        except BaseException:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        assert self._process.stderr is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._selector.register(self._process.stderr, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """Process id of the bed: of `unshare`, or of the warden itself."""
        return self._process.pid

    def order(self, **fields: Any) -> None:
        """Tell every worker what to do next."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone: the next event says why
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what the workers report, for as long as they live; CrewError when they cannot go on."""
        while True:
            for event in self._read(self.patience):
                if event["kind"] in ("error", "died"):
                    raise CrewError(self._verdict(event))
                if event["kind"] == "started":
                    self.pids = list(event["pids"])
                yield event

    def expect(self, kind: str, count: int) -> list[dict[str, Any]]:
        """Wait for `count` events of one kind and return them; others are dropped."""
        found: list[dict[str, Any]] = []
        for event in self.events():
            if event["kind"] == kind:
                found.append(event)
                if len(found) == count:
                    break
        return found

    def _read(self, patience: float) -> list[dict[str, Any]]:
        """Wait for events; CrewError if none comes or none can come any more."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for key, _ in self._selector.select(timeout=0.25):
                data = os.read(key.fd, 65536)
                if key.fd != self._reader:
                    if data:
                        self._noise.extend(data.decode(errors="replace").splitlines())
                    else:
                        self._selector.unregister(key.fileobj)
                    continue
                if not data:
                    raise CrewError("the workers ended without a word" + self._tail())
                *lines, self._pending = (self._pending + data).split(b"\n")
                if lines:
                    return [json.loads(line) for line in lines]
        raise CrewError(f"no sign of life from the workers for {patience:.0f} s" + self._tail())

    def _verdict(self, first: dict[str, Any]) -> str:
        """Say what ended the crew: a death by signal is the cause, the complaints of the others are not."""
        complaints = [first] if first["kind"] == "error" else []
        deaths = [first] if first["kind"] == "died" else []
        with contextlib.suppress(CrewError):
            end = time.monotonic() + BLAME_SECONDS
            while time.monotonic() < end and not any((death["status"] or 0) < 0 for death in deaths):
                for event in self._read(max(0.01, end - time.monotonic())):
                    complaints += [event] if event["kind"] == "error" else []
                    deaths += [event] if event["kind"] == "died" else []
        for death in deaths:
            if (death["status"] or 0) < 0:
                return f"worker {death['rank']} was killed by {signal.Signals(-death['status']).name}"
        if complaints:
            cause = complaints[0]
            who = f"worker {cause['rank']}" if cause["rank"] >= 0 else "the bed"
            return f"{who} failed: {cause['message']}" + (f"\n{cause['trace']}" if cause["trace"] else "")
        return f"worker {first['rank']} ended with status {first['status']}" + self._tail()

    def _tail(self) -> str:
        """The last of what the workers wrote to stderr."""
        return "".join(f"\n  {line}" for line in self._noise)

    def close(self) -> None:
        """End every process and free the bed; safe to call twice."""
        if self._closed:
            return
        assert self._process.stdin is not None and self._process.stderr is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # the warden ends at the end of this pipe
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        finally:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._closed = True
            self._selector.close()
            self._process.stderr.close()
            os.close(self._reader)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
