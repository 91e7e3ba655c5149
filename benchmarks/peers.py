"""What the benchmarks share: CPU time of this thread, and authors' C++ compiled beside a caller."""

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call on this thread: other work may run beside."""
    begun = time.thread_time()
    call()
    return time.thread_time() - begun


def compiled(caller: str, sources: list[Path], include: Path, folder: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Compile C++ text together with sources into a library and load it."""
    (folder / "caller.cpp").write_text(caller)
    library = folder / "peer.so"
    command = ["g++", "-std=c++17", "-O2", *flags, "-w", "-shared", "-fPIC", f"-I{include}", folder / "caller.cpp"]
    subprocess.run([*command, *sources, "-o", library], check=True)
    return ctypes.CDLL(str(library))
