"""The warden: first process of the bed. It builds the links, starts the workers, and takes all down with itself.

Run by the launcher as `python -m tersor.evaluate.warden`; standard library only, so that it starts at once. It holds
the other end of the launcher's pipe: when that closes, for whatever reason, it ends. In namespaces it is pid 1, and
the kernel then ends every process in there and frees the interfaces and mounts; elsewhere it kills its workers, who
also die by themselves when their parent does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

from tersor.evaluate.bed import build_commands, enter_rank, interface

POLL_SECONDS = 0.1


def tell(events: int, **fields: Any) -> None:
    """Write one event to the launcher: one line of JSON, shorter than a pipe's atomic write."""
    os.write(events, json.dumps(fields).encode()[:4000] + b"\n")


def build(workers: int, rate: float) -> None:
    """Build the links; the first command that fails is the error."""
    for command in build_commands(workers, rate):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def start(rank: int, config: dict[str, Any], events: int, store: int) -> subprocess.Popen[bytes]:
    """Start one worker, in its own namespace if there are namespaces."""
    own = {**config, "rank": rank, "events": events, "store": store, "parent": os.getpid()}
    own["interface"] = interface(rank) if config["real"] else None
    # -P: a file called torch.py in the current folder must not be imported in place of torch.
    command = [sys.executable, "-P", "-m", "tersor.evaluate.worker", json.dumps(own)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # Importing torch's compiler makes its cache folder in TMPDIR. Nothing is compiled here: a folder that is there and
    # takes nothing will do, and no file is left behind.
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", "/proc")
    environment["GLOO_SOCKET_IFNAME"] = interface(rank) if config["real"] else "lo"
    return subprocess.Popen(
        [*enter_rank(rank), *command] if config["real"] else command,
        stdin=subprocess.PIPE,
        pass_fds=(events, store),
        env=environment,
    )


def watch(crew: list[subprocess.Popen[bytes]], events: int) -> None:
    """Hand the launcher's lines on to every worker until the launcher goes or a worker dies."""
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], POLL_SECONDS)
        if ready:
            data = os.read(0, 65536)
            if not data:
                return  # the launcher is gone, or wants no more
            *lines, pending = (pending + data).split(b"\n")
            for worker in crew:
                assert worker.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # it died: told below
                    worker.stdin.write(b"".join(line + b"\n" for line in lines))
                    worker.stdin.flush()
        dead = [(rank, worker.poll()) for rank, worker in enumerate(crew) if worker.poll() is not None]
        if dead:
            for rank, status in dead:
                tell(events, kind="died", rank=rank, status=status)
            return
        reap_orphans(crew)


def reap_orphans(crew: list[subprocess.Popen[bytes]]) -> None:
    """Reap what pid 1 inherits; our own workers are left to `poll`, which needs their status."""
    if os.getpid() != 1:
        return
    info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is not None and info.si_pid not in [worker.pid for worker in crew]:
        os.waitpid(info.si_pid, os.WNOHANG)


def main() -> None:
    """Build, start, watch, end."""
    config = json.loads(sys.argv[1])
    events = int(config.pop("events"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's business
    crew: list[subprocess.Popen[bytes]] = []
    try:
        if config["real"]:
            build(config["workers"], config["rate"])
        store = os.memfd_create("tersor-store", 0)  # the rendezvous file: in memory, gone with the last process
        for rank in range(config["workers"]):
            crew.append(start(rank, config, events, store))
        tell(events, kind="started", pids=[worker.pid for worker in crew])
        watch(crew, events)
    except Exception as error:
        with contextlib.suppress(BrokenPipeError):
            tell(events, kind="error", rank=-1, message=f"the bed could not be built: {error}", trace="")
    finally:
        for worker in crew:
            worker.kill()
        for worker in crew:
            worker.wait()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
