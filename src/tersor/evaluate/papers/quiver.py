"""QUIVER and Simba: the levels of least error for the very input, exact, by a histogram, and with shared randomness."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tersor.evaluate.papers.base import SMALL, Curve, Effort, Figure, Line, Paper
from tersor.kernels.ops import get_num_threads, set_num_threads
from tersor.metrics import nmse
from tersor.quantize import adaptive, shared_levels
from tersor.registry import get_codec

F64 = NDArray[np.float64]

# Sums of squared errors of the best levels, default_rng(0), found by a dynamic program over all pairs of values.
_LEVELS = (2, 3, 4, 8, 16, 32, 64)
_BEST = {
    "normal": (47989.4467107, 7568.70833253, 2795.16371937, 424.838312293, 88.0445569313, 19.6896909924, 4.56314875527),
    "lognormal": (
        143212.957687, 23107.3495797, 9271.81209211, 1491.65886548, 309.694423179, 65.3858598495, 13.4050003618,
    ),
    "exponential": (
        27772.505658, 4921.0968302, 1966.56915105, 351.157165093, 71.3256569403, 16.3143310452, 3.55718717872,
    ),
    "uniform": (
        682.860783762, 170.487216432, 75.493611885, 13.6661451325, 2.98684263503, 0.694807357188, 0.163272344318,
    ),
    "laplace": (
        219149.300888, 22218.9991801, 8300.08104737, 1221.00522057, 250.189407665, 57.7534887226, 13.1429560598,
    ),
}  # fmt: skip
_BEST_2_16 = {
    "normal": (59822.98735080, 1643.43443024, 87.7407311256),
    "lognormal": (329668.521773, 9413.24427873, 444.207978773),
    "exponential": (35480.8528171, 1247.48540368, 67.800640994),
}
_EVEN = {("normal", 4): 3954.9746, ("normal", 16): 154.63504, ("lognormal", 4): 33986.005, ("lognormal", 16): 2139.2949}
_NEAREST = {4: 462.9626413, 8: 135.047403, 16: 36.63842953}
# What a histogram of 16-bit float keys with heavy cells loses at d=2^18.
_EXCESS = {
    ("normal", 4): 3.1e-6, ("normal", 16): 4.3e-5, ("normal", 64): 1.2e-3,
    ("lognormal", 16): 2.9e-4, ("lognormal", 64): 2.4e-3,
    ("lognormal(0,3)", 16): 2.4e-3, ("lognormal(0,3)", 64): 1.2e-2,
    ("normal and one 1e9", 16): 7.5e-4, ("Cauchy", 64): 4.9e-3,
}  # fmt: skip
# The authors' code for shared randomness: error over that of the best levels, for 2, 4 and 6 codebooks.
_SIMBA = {
    ("normal", 2): (0.355, 0.206, 0.171), ("normal", 4): (0.534, 0.399, 0.367), ("normal", 16): (0.625, 0.527, 0.508),
    ("lognormal", 2): (0.373, 0.239, 0.209), ("lognormal", 4): (0.570, 0.444, 0.420),
    ("lognormal", 16): (0.637, 0.543, 0.530),
}  # fmt: skip
# Seconds in the paper, s=16, on its machine: exact at most 1 s at 2^20; approximate 6 ms at 2^20 and 70 ms at 2^24.
_PAPER_EXACT, _PAPER_APPROXIMATE = ((1 << 20,), (1.0,)), ((1 << 20, 1 << 24), (0.006, 0.070))


def draw(name: str, size: int) -> F64:
    """Return the values of default_rng(0) that the references are for."""
    rng = np.random.default_rng(0)
    draws: dict[str, Callable[[], F64]] = {
        "normal": lambda: rng.standard_normal(size),
        "lognormal": lambda: rng.lognormal(0, 1, size),
        "exponential": lambda: rng.exponential(1.0, size),
        "uniform": lambda: rng.random(size),
        "laplace": lambda: rng.laplace(0, 1, size),
        "lognormal(0,3)": lambda: rng.lognormal(0, 3, size),
        "normal and one 1e9": lambda: np.append(rng.standard_normal(size - 1), 1e9),
        "Cauchy": lambda: rng.standard_cauchy(size),
    }
    return draws[name]()


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines."""
    for name, best in _BEST.items():
        x = draw(name, 4096)
        for s, theirs in zip(_LEVELS, best, strict=True):
            ours = adaptive.solve(x, s).error
            what = "sum of squared errors of the best levels, d=4096"
            yield Line(what, f"{name}, s={s}", "notes 5", theirs, ours, 1e-9)
    for (name, s), theirs in _EVEN.items():
        even = np.linspace((x := draw(name, 4096)).min(), x.max(), s)
        ours = adaptive.expected_error(x, even)
        yield Line("the same of an even grid from least to greatest", f"{name}, s={s}", "notes 5", theirs, ours, 1e-7)
    for s in (2, 4, 7, 16):
        n, d = 120 // (s - 1), 121
        law, ours = (s - 1) * (n**3 - n) / 6 / (d - 1) ** 2, adaptive.solve(np.arange(d) / (d - 1), s).error
        yield Line("evenly spaced values, d=121", f"s={s}", "closed form", law, ours, 1e-9)
    for s, theirs in _NEAREST.items():
        ours = adaptive.solve(draw("normal", 4096), s, unbiased=False).error
        yield Line("rounding to the nearest (k-means), d=4096", f"normal, s={s}", "notes 8", theirs, ours, 1e-8)
    yield from _messages(effort)
    yield from _shared()
    if effort is not SMALL:
        for name, values in _BEST_2_16.items():
            x = draw(name, 1 << 16)
            for s, theirs in zip((4, 16, 64), values, strict=True):
                ours = adaptive.solve(x, s, method="exact").error
                what = "sum of squared errors of the best levels, d=2^16"
                yield Line(what, f"{name}, s={s}", "notes 5", theirs, ours, 1e-9)
        yield from _histogram()
        yield from _growth(effort)


def _messages(effort: Effort) -> Iterator[Line]:
    """What messages do: the error that was predicted, and that of a mean of many."""
    for name in ("normal", "lognormal"):
        x = draw(name, 4096).astype(np.float32)
        energy = float(np.sum(np.square(x, dtype=np.float64)))
        for bits in (2, 4):
            codec, law = get_codec(f"asq:{bits}"), adaptive.solve(x, 1 << bits).error / energy
            estimates = np.stack([codec.decode(codec.encode(x, seed=seed)) for seed in range(8 * effort.draws(64))])
            ours = float(np.mean([nmse(x, e) for e in estimates]))
            case = f"asq:{bits}, {name}"
            yield Line("error of messages, d=4096", case, "the levels' own", law, ours, 0.02 * effort.loose)
            means = estimates.reshape(-1, 8, x.size).mean(axis=1, dtype=np.float64)
            ours = 8 * float(np.mean([nmse(x, mean) for mean in means]))
            what = "8 times the error of the mean of 8 messages, d=4096"
            yield Line(what, case, "unbiased", law, ours, 0.1 * effort.loose)


def _shared() -> Iterator[Line | Figure]:
    curves = []
    for (name, s), ratios in _SIMBA.items():
        x = draw(name, 4096)
        alone = adaptive.solve(x, s).error
        ours = [
            shared_levels.expected_error(x, shared_levels.levels(x, s, shared=count)) / alone for count in (2, 4, 6)
        ]
        for count, theirs, found in zip((2, 4, 6), ratios, ours, strict=True):
            what = "shared randomness (Simba): error over that of the best levels, d=4096"
            yield Line(what, f"{name}, s={s}, l={count}", "notes 2.8", theirs, found, 0.0, 5e-4, bound="at most")
        curves.append(Curve(f"{name}, s={s}", [1, 2, 4, 6], [1.0, *ours]))
    yield Figure(
        "quiver-shared", "Shared randomness against the best levels without, d=4096", "codebooks",
        "error / error of the best levels", curves, log_y=False,
    )  # fmt: skip


def _histogram() -> Iterator[Line]:
    for (name, s), theirs in _EXCESS.items():
        x = draw(name, 1 << 18).astype(np.float32)
        best, found = (adaptive.solve(x, s, method=m) for m in ("exact", "histogram"))
        excess = adaptive.expected_error(x, found.levels) / adaptive.expected_error(x, best.levels) - 1
        what = "histogram: excess over the optimum, float32, d=2^18"
        yield Line(what, f"{name}, s={s}", "notes 2.6", theirs, excess, 0.1, bound="at most")


def _growth(effort: Effort) -> Iterator[Figure]:
    """Pictures only: no verdict hangs on a clock."""
    sizes = [1 << k for k in range(10, 25 if effort.largest > 1 << 14 else 23, 2)]
    exact_sizes = [d for d in sizes if d <= 1 << 20]
    errors = []
    for name in ("normal", "lognormal"):
        for s in (4, 16, 64):
            ours = []
            for d in exact_sizes:
                x = draw(name, d)
                ours.append(adaptive.solve(x, s).error / float(np.square(x).sum()))
            errors.append(Curve(f"{name}, s={s}", exact_sizes, ours))
    yield Figure("quiver-error", "Error of the best levels", "values", "vNMSE", errors, log_x=True)
    threads = get_num_threads()
    set_num_threads(1)
    try:
        exact = [_seconds("exact", d, 16) for d in exact_sizes]
        binned = [_seconds("histogram", d, 16) for d in sizes]
        counts = [2, 4, 8, 16, 32, 64, 128, 256]
        by_s = [_seconds("exact", 1 << 16, s) for s in counts], [_seconds("histogram", 1 << 16, s) for s in counts]
    finally:
        set_num_threads(threads)
    yield Figure(
        "quiver-time", "Time to find 16 levels, lognormal float32, one thread", "values", "seconds",
        [
            Curve(f"exact, at last as d^{_exponent(exact_sizes, exact):.2f}", exact_sizes, exact),
            Curve(f"histogram, at last as d^{_exponent(sizes, binned):.2f}", sizes, binned),
            Curve("the paper's exact, its machine", *_PAPER_EXACT, reference=True),
            Curve("the paper's approximate, its machine", *_PAPER_APPROXIMATE, reference=True),
        ],
        log_x=True,
    )  # fmt: skip
    yield Figure(
        "quiver-levels", "Time to find s levels of 2^16 lognormal float32, one thread", "levels", "seconds",
        [Curve("exact", counts, by_s[0]), Curve("histogram", counts, by_s[1])], log_x=True,
    )  # fmt: skip


def _seconds(method: adaptive.Method, d: int, s: int) -> float:
    x, taken = draw("lognormal", d).astype(np.float32), []
    for _ in range(3):
        begun = time.thread_time()
        adaptive.levels(x, s, method=method)
        taken.append(time.thread_time() - begun)
    return min(taken)


def _exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes[-3:]), np.log(seconds[-3:]), 1)[0])  # the longest: short ones pay for the call


PAPER = Paper(
    id="quiver",
    title="Optimal and Approximate Adaptive Stochastic Quantization",
    authors="R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik",
    venue="NeurIPS 2024; and Better than Optimal (Simba), SIGMETRICS 2026",
    arxiv="2402.03158",
    shows="the levels of least error for the very input, in time that hardly depends on how many there are",
    seconds=2,
    full_seconds=5,
    run=run,
)
