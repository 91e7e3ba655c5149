"""QUIC-FL's speed: encoding against fht-cpu's bare transform, and the mean of n senders against EDEN's, on one thread.

pip install fht-cpu==1.0.1     # the peer; optional
python benchmarks/quicfl.py    # --encode or --mean for one of the two

Ratios are of CPU time, the medians of several runs; in each run both sides take turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np

import tersor

BLOCK = 4096


def cpu(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def encode(log2_size: int, rounds: int) -> None:
    """Encode 2^24 floats, in units of the peer's transform of the same floats in rows of 4,096, in place."""
    x = np.random.default_rng(0).standard_normal(2**log2_size).astype(np.float32)
    specs = ("quicfl:1", "quicfl:2", "quicfl:3", "quicfl:4", "eden:4,rotations=2")
    calls = {spec: partial(tersor.get_codec(spec).encode, x, seed=1) for spec in specs}
    rows = np.zeros((len(x) // BLOCK, BLOCK), np.float32)
    try:
        fht = import_module("fht_cpu").fht
        name, unit = "fht-cpu", lambda: fht(rows, num_threads=1)
    except ImportError:
        copy = np.empty_like(x)
        name, unit = "a copy (fht-cpu is not installed)", lambda: np.copyto(copy, x)
    taken = {spec: [] for spec in calls}
    units = []
    for call in (unit, *calls.values()):
        call()
    for _ in range(rounds):
        units.append(cpu(unit))
        for spec, call in calls.items():
            taken[spec].append(cpu(call) / units[-1])
    print(f"encode 2^{log2_size}: time over that of {name} ({len(x) / np.median(units) / 1e6:.0f} M floats/s)")
    for spec, ratios in taken.items():
        print(f"  {spec:20} {np.median(ratios):.2f}   ({min(ratios):.2f} to {max(ratios):.2f})")


def mean(log2_size: int, rounds: int, most: int) -> None:
    """The mean of n messages: nanoseconds a coordinate and sender, as n grows."""
    x = np.random.default_rng(0).standard_normal(2**log2_size).astype(np.float32)
    shared = tersor.Shared(3)
    print(f"mean of n messages of 2^{log2_size}: ns a coordinate and sender, with n = 1, 4, ...")
    for spec in ("quicfl:1", "eden:1", "quicfl:2", "eden:2", "quicfl:4", "eden:4", "eden:4,rotations=2"):
        codec = tersor.get_codec(spec)
        options = {"shared": shared} if spec.startswith("quicfl") else {}
        messages = [codec.encode(x, seed=1, sender=i, **options) for i in range(most)]
        line = []
        n = 1
        while n <= most:
            times = [cpu(partial(tersor.mean, messages[:n])) for _ in range(rounds if n < 16 else 3)]
            line.append(min(times) / n / len(x) * 1e9)
            n *= 4
        print(f"  {spec:20}" + "".join(f"{v:7.2f}" for v in line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encode", action="store_true")
    parser.add_argument("--mean", action="store_true")
    parser.add_argument("--size", type=int, default=24, help="log2 of the coordinates of a message that is encoded")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--senders", type=int, default=256)
    options = parser.parse_args()
    tersor.set_num_threads(1)
    if options.encode or not options.mean:
        encode(options.size, options.rounds)
    if options.mean or not options.encode:
        mean(min(options.size, 20), options.rounds, options.senders)
