"""What the native backend refuses, and how it lives in a process: threads, forks, denormals, its level and its stub."""

import ast
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import EMPTY_F32, EMPTY_U8, code_bytes, encode, equal, native

from tersor.quantize import lloyd_max


def test_bad_sizes_and_values() -> None:
    x = np.ones(5000, np.float32)
    levels, thresholds = lloyd_max.levels(2), lloyd_max.thresholds(2)
    good = {
        "x": x,
        "unit": 4096,
        "key": 1,
        "start": 0,
        "by_rows": False,
        "bits": 2,
        "levels": levels,
        "thresholds": thresholds,
        "scale_kind": 0,
        "scale_dtype": 0,
        "rotations": 0,
        "full": False,
        "codes": np.zeros(code_bytes(5000, 4096, 2, False), np.uint8),
        "scales": np.zeros(2, np.float32),
        "rounds": np.zeros(2, np.uint8),
        "norms": EMPTY_F32,
    }
    native.eden_encode(**good)
    bad_encode: dict[str, list[Any]] = {
        "unit": [0, -1, 5001 * 2, 2500],
        "bits": [0, 1, 3, 9, -1],
        "levels": [levels[:3], np.zeros(5, np.float32)],
        "thresholds": [thresholds[:2], thresholds[::-1].copy(), np.full(3, np.nan, np.float32)],
        "scale_kind": [-1, 4],
        "scale_dtype": [-1, 3],
        "rotations": [-1, 4],
        "by_rows": [True],
        "start": [2**64 - 5],
        "codes": [good["codes"][:-1], np.zeros(0, np.uint8)],
        "scales": [np.zeros(1, np.float32), np.zeros(3, np.float32)],
        "rounds": [np.zeros(1, np.uint8)],
        "norms": [np.zeros(1, np.float32)],
    }
    for name, values in bad_encode.items():
        for value in values:
            with pytest.raises(ValueError):
                native.eden_encode(**(good | {name: value}))
    shared = ("codes", "scales", "rounds", "unit", "key", "start", "by_rows", "bits", "levels")
    good_decode = {name: good[name] for name in shared}
    good_decode |= {"weight": 1.0, "add": False, "present": EMPTY_U8, "full": False, "out": x.copy()}
    native.eden_decode(**good_decode)
    bad_decode: dict[str, list[Any]] = {k: v for k, v in bad_encode.items() if k in good_decode}
    bad_decode |= {"rounds": [np.full(2, 4, np.uint8), np.full(2, 255, np.uint8)], "present": [np.zeros(1, np.uint8)]}
    for name, values in bad_decode.items():
        for value in values:
            with pytest.raises(ValueError):
                native.eden_decode(**(good_decode | {name: value}))
    u8, f32 = EMPTY_U8, np.zeros(8, np.float32)
    for call in (
        lambda: native.fwht(np.zeros((2, 3), np.float32)),
        lambda: native.rotate(np.zeros((2, 4), np.float32), 0, 0, 4, False),
        lambda: native.rotate(np.zeros((2, 4), np.float32), 0, 2**64 - 1, 1, False),
        lambda: native.philox(0, 0, 0, 2**64 - 1, np.zeros(2, np.uint32)),
        lambda: native.philox_blocks(0, 0, 0, 0, np.zeros((2, 3), np.uint32)),
        lambda: native.pack(np.zeros((1, 8), np.uint8), 9, np.zeros((1, 9), np.uint8)),
        lambda: native.pack(np.zeros((1, 8), np.uint8), 4, np.zeros((1, 3), np.uint8)),
        lambda: native.pack(np.zeros((2, 8), np.uint8), 4, np.zeros((1, 4), np.uint8)),
        lambda: native.unpack(np.zeros((1, 3), np.uint8), 4, np.zeros((1, 8), np.uint8)),
        lambda: native.unpack(np.zeros((1, 8), np.uint8), 0, np.zeros((1, 8), np.uint8)),
        lambda: native.sq_encode(f32, 8, 0.0, 1.0, 9, 0, 0, np.zeros(9, np.uint8)),
        lambda: native.sq_encode(f32, 8, 0.0, 1.0, 4, 0, 0, np.zeros(3, np.uint8)),
        lambda: native.sq_encode(f32, 0, 0.0, 1.0, 4, 0, 0, np.zeros(4, np.uint8)),
        lambda: native.sq_decode(u8, 8, 0.0, 1.0, 4, 33, np.ones(1, np.uint32), 1.0, False, f32),
        lambda: native.sq_decode(np.zeros(4, np.uint8), 8, 0.0, 1.0, 4, 4, np.ones(2, np.uint32), 1.0, False, f32),
        lambda: native.sq_decode(np.zeros(5, np.uint8), 8, 0.0, 1.0, 4, 4, np.ones(1, np.uint32), 1.0, False, f32),
        lambda: native.sq_add(u8, 4, u8, 4, 2**62, 8, u8, 4),
        lambda: native.sq_add(u8, 4, u8, 4, -1, 8, u8, 4),
        lambda: native.sq_add(u8, 4, u8, 4, 8, 8, u8, 4),
        lambda: native.sq_add(u8, 0, u8, 4, 0, 8, u8, 4),
        lambda: native.int8_encode(f32, 3, 4, np.zeros(8, np.int8), np.zeros(3, np.float32)),
        lambda: native.int8_encode(f32, 8, 0, np.zeros(8, np.int8), np.zeros(3, np.float32)),
        lambda: native.int8_encode(f32, 8, 3, np.zeros(8, np.int8), np.zeros(2, np.float32)),
        lambda: native.int8_decode(np.zeros(7, np.int8), np.zeros(3, np.float32), 8, 3, 1.0, False, f32),
        lambda: native.set_cpu_level("mmx"),
    ):
        with pytest.raises(ValueError):
            call()


def test_wrong_types_and_layouts() -> None:
    f32 = np.zeros((4, 8), np.float32)
    read_only = f32.copy()
    read_only.flags.writeable = False
    for x in (f32.astype(np.float64), f32.T, f32[:, ::2], f32[0], read_only, [1.0], None):
        with pytest.raises(TypeError):
            native.fwht(x)


def test_thread_count() -> None:
    assert native.get_num_threads() >= 1
    native.set_num_threads(3)
    assert native.get_num_threads() == 3
    native.set_num_threads(0)
    env = dict(os.environ, OMP_NUM_THREADS="1")
    code = "from tersor.kernels import _native; print(_native.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "1"


def test_calls_from_several_threads() -> None:
    x = np.random.default_rng(0).standard_normal(40 * 4096).astype(np.float32)
    wanted = encode(native, x)
    native.set_num_threads(2)
    good: list[bool] = []

    def work() -> None:
        for _ in range(10):
            made = encode(native, x)
            good.append(all(equal(a, b) for a, b in zip(made, wanted, strict=True)))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    native.set_num_threads(0)
    assert len(good) == 40
    assert all(good)


FORKED = """
import os, sys, threading
import numpy as np
from tersor.kernels import _native
_native.set_num_threads(2)
x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
def run():
    y = x.copy(); _native.rotate(y, 1, 0, 2, False); return y.tobytes()
wanted = run()
busy = True
def keep_busy():
    while busy: run()
other = threading.Thread(target=keep_busy)
other.start()
codes = []
for _ in range(5):  # forks while the pool works
    child = os.fork()
    if child == 0:
        os._exit(0 if run() == wanted else 1)
    codes.append(os.waitpid(child, 0)[1])
busy = False
other.join()
print(codes, run() == wanted)
"""


def test_forked_child_works() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[0, 0, 0, 0, 0] True", done.stdout + done.stderr


FLUSHING = """
import numpy as np, torch
from tersor.kernels import _native
assert torch.set_flush_denormal(True)
x = np.full((8, 4096), 7, np.uint32).view(np.float32)  # 7 times the smallest denormal; every other one 21 times
x.view(np.uint32)[:, 1::2] = 21
_native.fwht(x)
wanted = np.zeros((8, 4096), np.uint32)
wanted[:, 0], wanted[:, 1] = 2048 * 28, 2048 * 14 + 2**31
bits = x.view(np.uint32)
bits[bits == 2**31] = 0  # -0
print(np.array_equal(bits, wanted))
print((torch.tensor([1e-44]) * 1.0).item() == 0)
"""


def test_denormals_kept_though_the_host_flushes() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", FLUSHING], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"], done.stdout


def test_level_from_environment() -> None:
    code = "from tersor.kernels import _native; print(_native.cpu_level())"
    for level in native.cpu_levels().split():
        env = dict(os.environ, TERSOR_SIMD=level)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
        assert done.stdout.strip() == level
    env = dict(os.environ, TERSOR_SIMD="fast")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert "ValueError: no SIMD level 'fast'" in done.stderr


def test_stub_is_fresh() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    committed = Path(str(importlib.util.find_spec("tersor.kernels").origin)).with_name("_native.pyi")  # type: ignore[union-attr]
    made = stubgen.StubGen(native)
    made.put(native)
    assert ast.dump(ast.parse(made.get())) == ast.dump(ast.parse(committed.read_text())), (
        "run: python -m nanobind.stubgen -m tersor.kernels._native -o src/tersor/kernels/_native.pyi"
    )
