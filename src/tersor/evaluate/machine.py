"""Facts about this machine and its software, for results that others are to repeat."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

PACKAGES = ("tersor", "torch", "numpy", "mlxtend", "matplotlib")


def _lines(path: str) -> list[str]:
    """Lines of one of the kernel's tables; none if it is not there."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _value(path: str, label: str) -> str:
    """First value under a label."""
    return next((x.partition(":")[2].strip() for x in _lines(path) if x.lower().startswith(label)), "")


def machine() -> dict[str, str | int | float]:
    """Processor, cores, memory and system of this machine."""
    memory = _value("/proc/meminfo", "memtotal").split()
    congestion = _lines("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "processor": _value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[0]) / 2**20, 1) if memory else 0.0,
        "system": f"{platform.system()} {platform.release()}",
        "tcp": congestion[0] if congestion else "unknown",
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, without importing them."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
