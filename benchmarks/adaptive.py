"""Adaptive levels beside a copy, the authors' QUIVER and kmeans1d: paired runs on one thread, medians of ratios.

python benchmarks/adaptive.py [--rounds 7] [--plot growth.png]
    [--authors DIR]    a checkout of github.com/ranbenbasat/QUIVER, compiled with -O3 -march=native
    pip install kmeans1d, to time it as well

QUIVER gets sorted float64, the sort not counted, and its faster form counts; "sorted" is tersor on the same values,
"float32" on unsorted ones, with which the peer is compared.
"""

import argparse
import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from peers import compiled, seconds

import tersor
from tersor.quantize import adaptive

CALLER = """
#include "ExactQUIVER.h"
template <bool fast> double solve(double *x, unsigned d, int s, double *out) {
  ExactQUIVER<false, fast> solver(x, d);
  const auto q = solver.calcQuantizationValues(s);
  for (size_t i = 0; i < q.size(); ++i) out[i] = q[i];
  return double(q.size());
}
extern "C" double plain(double *x, unsigned d, int s, double *out) { return solve<false>(x, d, s, out); }
extern "C" double accelerated(double *x, unsigned d, int s, double *out) { return solve<true>(x, d, s, out); }
"""
Calls = dict[str, Callable[[], object]]


def paired(calls: Calls, rounds: int) -> dict[str, list[float]]:
    """Time all calls in turn, `rounds` times after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            spent = seconds(call)
            if turn:
                taken[name].append(spent)
    return taken


def ratio(taken: dict[str, list[float]], name: str, other: str) -> float:
    return median(a / b for a, b in zip(taken[name], taken[other], strict=True))


def long_vectors(rounds: int) -> None:
    x = np.random.default_rng(0).lognormal(0, 1, 1 << 24).astype(np.float32)
    out = np.empty_like(x)
    calls: Calls = {"copy": lambda: np.copyto(out, x)}
    for s in (4, 16, 64):
        calls[f"levels, histogram, s={s}"] = lambda s=s: adaptive.levels(x, s, method="histogram")  # type: ignore[misc]
    for spec in ("asq:2", "asq:4", "asq:6", "kmeans:4"):
        codec = tersor.get_codec(spec)
        message = codec.encode(x, seed=0)
        calls[f"{spec} encode"] = lambda c=codec: c.encode(x, seed=0)  # type: ignore[misc]
        calls[f"{spec} decode"] = lambda c=codec, m=message: c.decode(m, out=out)  # type: ignore[misc]
    taken = paired(calls, rounds)
    print("2^24 lognormal float32, times as long as a copy of them")
    for name in list(calls)[1:]:
        print(f"  {name:28} {ratio(taken, name, 'copy'):6.2f}   {median(taken[name]) * 1e3:8.1f} ms")


def rows(rounds: int) -> None:
    x = np.random.default_rng(0).standard_normal((8192, 128)).astype(np.float32)
    calls: Calls = {}
    for s in (2, 4, 8, 16):
        calls[f"levels of rows, s={s}"] = lambda s=s: adaptive.levels(x, s, axis=-1)  # type: ignore[misc]
    for spec in ("asq:2", "asq:4"):
        codec = tersor.get_codec(spec)
        calls[f"{spec} encode of rows"] = lambda c=codec: c.encode(x, seed=0, axis=-1)  # type: ignore[misc]
    taken = paired(calls, rounds)
    print("8,192 rows of 128 normal float32, M entries/s")
    for name in calls:
        print(f"  {name:28} {x.size / median(taken[name]) / 1e6:6.0f}")


def exact(rounds: int, authors: Path | None) -> None:
    try:
        import kmeans1d
    except ImportError:
        kmeans1d = None
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        if authors is not None:
            sources = authors / "QUIVER"
            peer = compiled(CALLER, [sources / "defs.cpp"], sources, Path(folder), ("-O3", "-march=native"))
            peer.plain.restype = peer.accelerated.restype = ctypes.c_double
        print("exact levels, lognormal: ms, and how many times as long peers take (float32; error theirs / ours)")
        print(" log2 d    s   float32    sorted    QUIVER  times  error   kmeans:  ours  kmeans1d  times")
        for log2 in (10, 12, 14, 16, 18, 20):
            ordered = np.sort(np.random.default_rng(0).lognormal(0, 1, 1 << log2))
            shuffled = np.random.default_rng(1).permutation(ordered).astype(np.float32)
            for s in (4, 16, 64):
                line(ordered, shuffled, s, peer, kmeans1d, rounds if log2 < 17 else 3 if log2 < 20 else 1)


def line(ordered: np.ndarray, shuffled: np.ndarray, s: int, peer: object, kmeans1d: object, rounds: int) -> None:
    size, q = len(ordered), np.empty(s + 1)
    calls: Calls = {
        "float32": lambda: adaptive.levels(shuffled, s, method="exact"),
        "sorted": lambda: adaptive.levels(ordered, s, method="exact"),
        "nearest": lambda: adaptive.levels(ordered, s, method="exact", unbiased=False),
    }
    if peer is not None:
        for name in ("plain", "accelerated"):
            solve = getattr(peer, name)
            calls[name] = lambda f=solve: f(  # type: ignore[misc]
                ordered.ctypes.data_as(ctypes.c_void_p), size, s, q.ctypes.data_as(ctypes.c_void_p)
            )
    if kmeans1d is not None and size <= 1 << 18:
        as_list = ordered.tolist()
        calls["kmeans1d"] = lambda: kmeans1d.cluster(as_list, s)  # type: ignore[attr-defined]
    taken = paired(calls, rounds)
    ms = {name: median(t) * 1e3 for name, t in taken.items()}
    text = f"{size.bit_length() - 1:7} {s:4} {ms['float32']:9.2f} {ms['sorted']:9.2f}"
    if "plain" in ms:
        best = min(("plain", "accelerated"), key=lambda name: ms[name])
        calls[best]()
        error = adaptive.expected_error(ordered, q[:s]) / adaptive.solve(ordered, s, method="exact").error
        text += f" {ms[best]:9.2f} {ratio(taken, best, 'float32'):6.1f} {error:6.3f}"
    else:
        text += " " * 24
    text += f" {ms['nearest']:15.2f}"
    if "kmeans1d" in ms:
        text += f" {ms['kmeans1d']:9.2f} {ratio(taken, 'kmeans1d', 'nearest'):6.1f}"
    print(text, flush=True)


def plot(path: str) -> None:
    """Draw time against d and against s, with the exponents fitted to the last three points."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(10, 4.2), layout="constrained").subplots(1, 2)
    fig = axes[0].figure
    for s in (4, 16, 64):
        for method, most, style in (("exact", 22, "o-"), ("histogram", 26, "s--")):
            sizes = [1 << k for k in range(10, most + 1, 2)]
            taken = []
            for d in sizes:
                x = np.random.default_rng(0).lognormal(0, 1, d).astype(np.float32)
                call = lambda x=x, s=s, m=method: adaptive.levels(x, s, method=m)  # noqa: E731
                taken.append(median(seconds(call) for _ in range(3)))
            slope = np.polyfit(np.log(sizes[-3:]), np.log(taken[-3:]), 1)[0]
            axes[0].loglog(sizes, taken, style, label=f"{method}, s={s}: d^{slope:.2f}", ms=4)
            print(f"{method}, s={s}: grows as d^{slope:.2f}")
    x = np.random.default_rng(0).lognormal(0, 1, 1 << 18).astype(np.float32)
    counts = [2, 4, 8, 16, 32, 64, 128, 256]
    for method, style in (("exact", "o-"), ("histogram", "s--")):
        taken = [
            median(seconds(lambda s=s, m=method: adaptive.levels(x, s, method=m)) for _ in range(3)) for s in counts
        ]
        slope = np.polyfit(np.log(counts), np.log(taken), 1)[0]
        axes[1].loglog(counts, taken, style, label=f"{method}: s^{slope:.2f}", ms=4)
        print(f"{method}, 2^18 values: grows as s^{slope:.2f}")
    for axis, word, title in zip(axes, ("values", "levels"), ("Time against d", "2^18 values"), strict=True):
        axis.set(xlabel=word, ylabel="seconds", title=title)
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--authors", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--plot", help="write a picture of the growth there")
    options = parser.parse_args()
    tersor.set_num_threads(1)
    long_vectors(options.rounds)
    rows(options.rounds)
    exact(options.rounds, options.authors)
    if options.plot:
        plot(options.plot)


if __name__ == "__main__":
    main()
