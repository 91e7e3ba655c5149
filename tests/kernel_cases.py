"""Edge inputs for the kernels, and their comparison on every level and thread count with the NumPy reference."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tersor.kernels import reference
from tersor.kernels.lengths import padded_length
from tersor.quantize import lloyd_max

native = pytest.importorskip("tersor.kernels._native")

LENGTHS = (0, 1, 2, 3, 5, 15, 16, 17, 31, 33, 80, 128, 255, 256, 257, 1000, 2100, 4095, 4096, 4097, 10000)
EMPTY_F32 = np.zeros(0, np.float32)
EMPTY_U8 = np.zeros(0, np.uint8)
KEY, START = 0x9E3779B97F4A7C15, 8192
LEVELS = native.cpu_levels().split()


def everywhere(*threads: int) -> Iterator[str]:
    """Go through all levels with each number of threads; the reference is slow and runs once, outside the loop."""
    before = native.cpu_level()
    for level in LEVELS:
        for n in threads or (1,):
            native.set_cpu_level(level)
            native.set_num_threads(n)
            yield f"{level}, {n} threads"
    native.set_cpu_level(before)
    native.set_num_threads(0)


def equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Bytes are equal; any NaN equals any other."""
    if a.dtype.kind == "f":
        both = np.isnan(a) & np.isnan(b)
        a, b = np.where(both, 0, a).astype(a.dtype), np.where(both, 0, b).astype(b.dtype)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def inputs(d: int, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Vectors of d coordinates: the usual ones and those at the edges of float32."""
    g = np.random.default_rng([d, seed])
    normal = g.standard_normal(d)
    made = {
        "normal": normal,
        "tiny": normal * 1e-30,
        "huge": normal * 1e30,
        "denormal": normal * 1e-41,
        "mixed": normal * 10.0 ** g.uniform(-44, 37, d),
        "sparse": normal * (g.random(d) < 3 / max(d, 1)),
        "zeros": np.copysign(np.zeros(d), normal),
        "max": np.copysign(float(np.finfo(np.float32).max), normal),
        "constant": np.full(d, 0.1),
        "lognormal": np.exp(3 * normal),
    }
    if d:
        made["one_hot"] = np.eye(1, d, d // 2)[0]
        for name, value in (("nan", np.nan), ("inf", -np.inf)):
            made[name] = normal.copy()
            made[name][[d // 3, d - 1]] = value
    with np.errstate(over="ignore", under="ignore"):
        return {name: x.astype(np.float32) for name, x in made.items()}


def units_of(d: int, unit: int) -> int:
    return -(-d // unit) if d else 0


def code_bytes(d: int, unit: int, bits: int, full: bool) -> int:
    sizes = [min(unit, d - k * unit) for k in range(units_of(d, unit))]
    return sum((padded_length(n, full) * bits + 7) // 8 for n in sizes)


def encode(
    backend: Any,
    x: NDArray[np.float32],
    bits: int = 4,
    unit: int = 4096,
    by_rows: bool = False,
    kind: int = 0,
    dtype: int = 0,
    rotations: int = 0,
    full: bool = False,
    key: int = KEY,
    start: int = START,
) -> tuple[NDArray[Any], ...]:
    n = units_of(len(x), unit)
    codes = np.full(code_bytes(len(x), unit, bits, full), 0xAA, np.uint8)
    scales, norms = np.full(n, 7, np.float32), np.full(n, 7, np.float32)
    rounds = np.full(n, 9, np.uint8)
    levels, thresholds = lloyd_max.levels(bits), lloyd_max.thresholds(bits)
    head = (x, unit, key, start, by_rows, bits, levels, thresholds, kind, dtype, rotations, full)
    with np.errstate(all="ignore"):
        result = backend.eden_encode(*head, codes, scales, rounds, norms)
    return codes, scales, rounds, norms, np.array(result, np.float64)


def decode(
    backend: Any,
    encoded: tuple[NDArray[Any], ...],
    out: NDArray[np.float32],
    bits: int = 4,
    unit: int = 4096,
    by_rows: bool = False,
    full: bool = False,
    weight: float = 1.0,
    add: bool = False,
    present: NDArray[np.uint8] = EMPTY_U8,
    key: int = KEY,
    start: int = START,
) -> NDArray[np.float32]:
    codes, scales, rounds = encoded[:3]
    out = out.copy()
    levels = lloyd_max.levels(bits)
    tail = (unit, key, start, by_rows, bits, levels, weight, add, present, full, out)
    with np.errstate(all="ignore"):
        backend.eden_decode(codes, scales, rounds, *tail)
    return out


def assert_same_eden(
    x: NDArray[np.float32], bits: int, unit: int, by_rows: bool, full: bool, *threads: int, **options: Any
) -> None:
    shape: dict[str, Any] = {"bits": bits, "unit": unit, "by_rows": by_rows, "full": full}
    wanted = encode(reference, x, **shape, **options)
    there = np.random.default_rng(1).standard_normal(len(x)).astype(np.float32)
    present = np.random.default_rng(2).integers(0, 2, len(wanted[1])).astype(np.uint8)
    hows: list[dict[str, Any]] = [
        {"add": False, "weight": 2.5, "present": EMPTY_U8},
        {"add": True, "weight": -0.3, "present": present},
        {"add": True, "weight": 0.0, "present": EMPTY_U8},
    ]
    if "start" in options:
        shape["start"] = options["start"]
    decoded = [decode(reference, wanted, there, **shape, **how) for how in hows[: 2 if by_rows else 3]]
    for where in everywhere(*threads):
        made = encode(native, x, **(shape | options))
        for name, a, b in zip(("codes", "scales", "rounds", "norms", "result"), made, wanted, strict=True):
            assert equal(a, b), (where, name, a, b)
        for how, expected in zip(hows, decoded, strict=False):
            assert equal(decode(native, wanted, there, **shape, **how), expected), (where, how)
