"""Speeds of the native kernels as ratios taken in one run: to a copy of the same bytes, and to PyPI's fht-cpu.

Every timing of an operation stands between a copy and the peer's bare transform over the same 4,096-point blocks, and
the medians are of such ratios: what else runs on the machine slows all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tersor.errors import TersorError
from tersor.kernels import ops
from tersor.quantize import lloyd_max

UNIT = 4096
# The OCP Microscaling formats by number, and their bits.
MX = {"mxfp8": 8, "mxfp8:e5m2": 8, "mxfp6": 6, "mxfp6:e3m2": 6, "mxfp4": 4, "mxint8": 8}
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes
    ----------
    operation, level : str
        What was timed, and the SIMD level.
    speed : float
        Coordinates a second.
    of_copy : float
        Its time over that of a copy of the same floats.
    of_peer : float or None
        Its time over that of the peer's transform; None without the peer.
    """

    operation: str
    level: str
    speed: float
    of_copy: float
    of_peer: float | None


def native() -> Any:
    """Return the native module.

    Raises
    ------
    TersorError
        If it is not installed.
    """
    return ops.load("native")


def peer() -> Callable[[Any], object] | None:
    """Return fht-cpu's transform of the rows of an array in place, on one thread, or None if it is not installed."""
    try:
        fht = import_module("fht_cpu").fht
    except ImportError:
        return None
    return lambda rows: fht(rows, num_threads=1)


def operations(size: int) -> dict[str, Call]:
    """Return the operations over `size` coordinates, a multiple of 4,096."""
    lib = native()
    units = size // UNIT
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    out, rows = np.zeros_like(x), np.zeros((units, UNIT), np.float32)
    made: dict[str, Call] = {"transform 4096": lambda: lib.fwht(rows)}
    none, everything = np.zeros(0, np.float32), np.zeros(0, np.uint8)

    def eden(bits: int, rotations: int) -> tuple[Call, Call]:
        codes, scales = np.zeros(size * bits // 8, np.uint8), np.zeros(units, np.float32)
        rounds = np.zeros(units, np.uint8)
        head = (UNIT, 7, 0, False, bits, lloyd_max.levels(bits))
        tail = (lloyd_max.thresholds(bits), 0, 0, rotations, False, codes, scales, rounds, none)
        lib.eden_encode(x, *head, *tail)
        return (
            lambda: lib.eden_encode(x, *head, *tail),
            lambda: lib.eden_decode(codes, scales, rounds, *head, 1.0, False, everything, False, out),
        )

    for bits in range(1, 9):
        made[f"eden:{bits},rotations=1 encode"], made[f"eden:{bits},rotations=1 decode"] = eden(bits, 1)
    made["eden:4,rotations=2 encode"], made["eden:4,rotations=2 decode"] = eden(4, 2)
    whole, few = np.zeros(size, np.int8), np.zeros(-(-size // 256), np.float32)
    made["int8 encode"] = lambda: lib.int8_encode(x, size, 256, whole, few)
    made["int8 decode"] = lambda: lib.int8_decode(whole, few, size, 256, 1.0, False, out)
    packed, scales = np.zeros(size // 2, np.uint8), np.zeros(size // 16, np.uint8)
    made["int4 encode"] = lambda: lib.int4_encode(x, size, 32, 2, packed, scales)
    made["int4 decode"] = lambda: lib.int4_decode(packed, scales, size, 32, 2, 1.0, False, out)
    for number, (name, bits) in enumerate(MX.items()):
        made[f"{name} encode"], made[f"{name} decode"] = _microscaling(lib, x, out, number, bits)
    half = np.zeros(size, np.uint16)
    made["bf16 encode"] = lambda: lib.half_encode(x, 1, half)
    made["bf16 decode"] = lambda: lib.half_decode(half, 1, 1.0, False, out)
    made["fp16 encode"] = lambda: lib.half_encode(x, 0, half)
    made["finite check"] = lambda: lib.first_nonfinite(x)
    nibbles = np.zeros(size // 2, np.uint8)
    made["sq:4 encode"] = lambda: lib.sq_encode(x, UNIT, -6.0, 6.0, 4, 7, 0, nibbles)
    total = np.zeros(size, np.uint8)
    made["sq:4 add to 8 bits"] = lambda: lib.sq_add(total, 8, nibbles, 4, size, UNIT, total, 8)
    return made


def _microscaling(lib: Any, x: Any, out: Any, element: int, bits: int) -> tuple[Call, Call]:
    size = len(x)
    codes, scales = np.zeros(size * bits // 8, np.uint8), np.zeros(size // 32, np.uint8)
    return (
        lambda: lib.mx_encode(x, size, element, codes, scales),
        lambda: lib.mx_decode(codes, scales, size, element, 1.0, False, out),
    )


def bench(
    size: int, *, threads: int = 1, rounds: int = 7, clock: str = "wall", levels: bool = False, only: str = ""
) -> Iterator[Row]:
    """Time the operations whose names contain `only`; yields a row each.

    Parameters
    ----------
    size : int
        Coordinates, a multiple of 4,096.
    threads, rounds : int
        Threads of the kernels (copy and peer have one); timings of each operation.
    clock : {"wall", "cpu"}
        What is measured; "cpu" adds up all threads and does not count waiting for other processes.
    levels : bool, default False
        At each SIMD level of this CPU, not only at the one in force.
    """
    lib, now, transform = native(), CLOCKS[clock], peer()
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    blocks = np.zeros((size // UNIT, UNIT), np.float32)

    def seconds(call: Call) -> float:
        begun = now()
        call()
        return max(now() - begun, 1e-9)

    with _settings(lib, threads):
        for level in lib.cpu_levels().split()[::-1] if levels else [lib.cpu_level()]:
            lib.set_cpu_level(level)
            for name, call in operations(size).items():
                if only not in name:
                    continue
                call()
                of_copy, of_peer, times = [], [], []
                for _ in range(rounds):
                    copy = seconds(lambda: np.copyto(target, source))
                    own = seconds(call)
                    times.append(own)
                    of_copy.append(own / copy)
                    if transform is not None:
                        of_peer.append(own / seconds(lambda: transform(blocks)))
                speed = size / statistics.median(times)
                yield Row(
                    name, level, speed, statistics.median(of_copy), statistics.median(of_peer) if of_peer else None
                )


@dataclass(frozen=True)
class Transform:
    """A batch of bare transforms of `points` each: coordinates a second, and its time over the peer's."""

    points: int
    speed: float
    of_peer: float | None


def transforms(
    low: int = 6, high: int = 25, *, total: int = 1 << 22, rounds: int = 7, clock: str = "wall"
) -> Iterator[Transform]:
    """Time batches of bare transforms of 2**low .. 2**high points, of about `total` coordinates, on one thread."""
    lib, now, transform = native(), CLOCKS[clock], peer()

    def seconds(call: Call) -> float:
        begun = now()
        call()
        return max(now() - begun, 1e-9)

    with _settings(lib, 1):
        for log in range(low, high + 1):
            rows = np.zeros((max(1, total >> log), 1 << log), np.float32)
            own, ratios = [], []
            lib.fwht(rows)
            for _ in range(rounds):
                own.append(seconds(lambda rows=rows: lib.fwht(rows)))  # type: ignore[misc]
                if transform is not None:
                    ratios.append(own[-1] / seconds(lambda rows=rows: transform(rows)))  # type: ignore[misc]
            yield Transform(1 << log, rows.size / statistics.median(own), statistics.median(ratios) if ratios else None)


@contextmanager
def _settings(lib: Any, threads: int) -> Iterator[None]:
    """Use `threads` threads; put that and the level back afterwards."""
    if threads < 1:
        raise TersorError(f"threads must be at least 1, got {threads}")
    before, level = lib.get_num_threads(), lib.cpu_level()
    lib.set_num_threads(threads)
    try:
        yield
    finally:
        lib.set_num_threads(before)
        lib.set_cpu_level(level)
