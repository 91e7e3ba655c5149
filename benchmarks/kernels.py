"""Speeds of the native kernels: millions of coordinates a second, and against a copy of the same floats.

    python benchmarks/kernels.py [--size 24] [--threads 1]

Every figure is the best of several runs in one process; the ratio is the figure to compare between machines.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from tersor.kernels import _native as native
from tersor.quantize import lloyd_max

UNIT = 4096
EMPTY = np.zeros(0, np.float32)
ALL = np.zeros(0, np.uint8)


def best(call: Callable[[], object], seconds: float = 0.6) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=24, help="log2 of the number of coordinates")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    native.set_num_threads(args.threads)
    d = 1 << args.size
    x = np.random.default_rng(0).standard_normal(d).astype(np.float32)
    out = np.empty_like(x)
    copy = d / best(lambda: np.copyto(out, x)) / 1e6
    print(f"{d} coordinates, {args.threads} threads; copy (NumPy, 1 thread): {copy:.0f} M/s\n")
    print(f"{'level':8}{'operation':22}{'M/s':>8}{'of copy':>9}")

    def report(operation: str, call: Callable[[], object]) -> None:
        speed = d / best(call) / 1e6
        print(f"{native.cpu_level():8}{operation:22}{speed:8.0f}{speed / copy:9.2f}", flush=True)

    rows = x[: d // UNIT * UNIT].reshape(-1, UNIT).copy()
    scales, rounds = np.zeros(-(-d // UNIT), np.float32), np.zeros(-(-d // UNIT), np.uint8)
    whole, few = np.zeros(d, np.int8), np.zeros(-(-d // 256), np.float32)
    for level in native.cpu_levels().split():
        native.set_cpu_level(level)
        report("fwht 4096", lambda: native.fwht(rows))
        for bits in (1, 2, 3, 4, 6, 8):
            codes = np.zeros(d * bits // 8, np.uint8)
            levels, thresholds = lloyd_max.levels(bits), lloyd_max.thresholds(bits)
            head = (UNIT, 7, 0, False, bits, levels)
            report(
                f"eden:{bits} encode",
                lambda c=codes, h=head, t=thresholds: native.eden_encode(
                    x, *h, t, 0, 0, 0, False, c, scales, rounds, EMPTY
                ),
            )
            for name, add in (("decode", False), ("decode and add", True)):
                report(
                    f"eden:{bits} {name}",
                    lambda c=codes, h=head, a=add: native.eden_decode(c, scales, rounds, *h, 1.0, a, ALL, False, out),
                )
        codes = np.zeros(d // 2, np.uint8)
        report("sq:4 encode", lambda c=codes: native.sq_encode(x, UNIT, -6.0, 6.0, 4, 7, 0, c))
        report("int8 encode", lambda: native.int8_encode(x, d, 256, whole, few))


if __name__ == "__main__":
    main()
