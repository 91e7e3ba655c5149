"""Levels with shared randomness: their error over that of the best levels alone, and the time of the search.

python benchmarks/shared_levels.py --log2 12,16,20    # with --authors DIR: a checkout of github.com/ranbenbasat/Simba

The authors' C++ is compiled as their Makefile does it (-O2) and called with the defaults of their Python evaluation, on
sorted float64, the sort not counted; tersor gets the unsorted floats. Both errors are those of tersor's closed form.
"""

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import compiled

import tersor
from tersor.quantize import adaptive, shared_levels

# Their first step, Apx-QUIVER on 1,000 points, then Simba with its defaults.
CALLER = """
#include "Simba.h"
#include "ApproxQUIVER.h"
extern "C" void simba(double *x, int d, int s, int l, double *out) {
  ApproxQUIVER<false> first(x, static_cast<unsigned>(d), nullptr, 1000);
  auto start = first.calcQuantizationValues(s);
  Simba solver;
  const auto q = solver.calcQuantizationValues(x, d, s, l, 100000, 2, 0.99, 0.999, false, start.data(), "");
  for (int h = 0; h < l; ++h)
    for (int j = 0; j < s; ++j) out[h * s + j] = q[h][j];
}
"""


def timed(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the least time of a call in ms."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return min(taken) * 1e3


def outward(q: np.ndarray) -> np.ndarray:
    """Move the first and last level by their rounding, so that means span the data to the last bit."""
    q = q.copy()
    q[0, 0] -= 1e-12 * abs(q[0, 0])
    q[-1, -1] += 1e-12 * abs(q[-1, -1])
    return q


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--log2", default="12,20")
    options = parser.parse_args()
    tersor.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sources = options.authors
        files = [sources / "Simba.cpp", sources / "defs.cpp"] if sources else []
        peer = compiled(CALLER, files, sources, Path(folder)) if sources else None
        print("data       log2 d    s  l   tersor: error    ms" + ("   authors: error    ms" if peer else ""))
        for name in ("normal", "lognormal"):
            for log2 in map(int, options.log2.split(",")):
                g = np.random.default_rng(0)
                x = g.standard_normal(2**log2) if name == "normal" else g.lognormal(0, 1, 2**log2)
                ordered = np.sort(x)
                for s in (2, 4, 16, 64):
                    alone = adaptive.solve(x, s).error
                    for count in (2, 4, 6):
                        ours = shared_levels.levels(x, s, shared=count)
                        error = shared_levels.expected_error(x, ours) / alone
                        ms = timed(lambda s=s, count=count, x=x: shared_levels.levels(x, s, shared=count))
                        line = f"{name:10} {log2:6} {s:4} {count:2} {error:15.4f} {ms:5.2f}"
                        if peer:
                            q = np.zeros((count, s))
                            ms = timed(
                                lambda s=s, count=count, q=q, v=ordered: peer.simba(
                                    v.ctypes.data_as(ctypes.c_void_p),
                                    len(v),
                                    s,
                                    count,
                                    q.ctypes.data_as(ctypes.c_void_p),
                                )
                            )
                            line += f" {shared_levels.expected_error(x, outward(q)) / alone:16.4f} {ms:5.2f}"
                        print(line, flush=True)


if __name__ == "__main__":
    main()
