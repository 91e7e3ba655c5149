"""Entropy-constrained adaptive levels beside an even grid, adaptive levels and DoCoFL's anchors, each with a coder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import e, log2, pi
from typing import Literal

import numpy as np

from tersor.evaluate.papers.base import SMALL, Curve, Effort, Figure, Line, Paper
from tersor.evaluate.papers.quiver import draw
from tersor.kernels.ops import get_num_threads, set_num_threads
from tersor.metrics import nmse
from tersor.quantize import adaptive
from tersor.quantize import entropy_constrained as constrained
from tersor.registry import get_codec

# Input of 512 values, levels, multiplier: error + multiplier * entries * entropy, error, entropy and number of levels
# of the optimum over all pairs of neighbours, and what the approximation reaches after its refinement.
_OPTIMA = [
    ("normal", 8, 0.02, 78.0875004695, 52.0421588038, 2.543490397, 8, 78.08750047),
    ("normal", 16, 0.01, 28.8323640263, 10.9399604625, 3.494610071, 16, 28.84145498),
    ("normal", 16, 0.1, 173.731964764, 35.5439924492, 2.698983834, 12, 175.2414769),
    ("normal", 16, 0.5, 613.120002101, 154.859350889, 1.790080669, 6, 616.0901045),
    ("lognormal", 8, 0.02, 168.403290027, 145.32369529, 2.253866674, 8, 168.40329),
    ("lognormal", 16, 0.01, 40.8117198456, 24.2906744098, 3.226766687, 16, 40.81171985),
    ("lognormal", 16, 0.1, 177.700602084, 31.1742584601, 2.861842649, 16, 177.7006305),
    ("lognormal", 16, 0.5, 664.294562827, 130.183934281, 2.086369643, 11, 667.3164166),
]
# Least error of a multiplier's optimum within a budget, 512 normal values, at most 16 levels.
_BUDGETS = {1.0: 1881.125, 1.5: 294.972, 2.0: 109.614, 2.5: 48.8759, 3.0: 23.5293, 3.5: 10.93996}
_LEAST = {"normal": 0.97147, "lognormal": 0.378748}
# Error over that of 4, 8, 16 adaptive levels whose codes have the same entropy, d=2^16; 16: more than 24 levels help.
_GAIN = {"normal": (0.922, 0.818, 0.844), "laplace": (0.576, 0.700, 0.713), "lognormal": (0.663, 0.624, 0.654)}
# DoCoFL's anchors at 2 and 4 bits, d=2^20: cells, entropy, error.
_ANCHORS = {"normal": ((2, 0.1217), (4, 0.00570)), "uniform": ((2, 0.0156), (4, 0.00098))}
_NATS = {"normal": 0.5 * log2(2 * pi * e), "laplace": log2(2 * e)}  # differential entropy, bits


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines."""
    yield from _optima()
    for budget, theirs in _BUDGETS.items():
        found = constrained.levels(draw("normal", 512), budget, max_levels=16)
        case = f"normal, {budget} bits"
        what = "error within a budget, d=512, 16 levels"
        yield Line(what, case, "notes 5", theirs, found.error, 0.05, bound="at most")
        yield Line("entropy of these levels", case, "the budget", budget, found.entropy, 0.0, bound="at most")
    for budget in (2.0, 2.5, 3.0, 3.5):
        x = draw("normal", 512)
        theirs = constrained.levels(x, budget - 1, max_levels=16, method="exact").error
        ours = constrained.levels(x, budget, max_levels=16, method="approximate").error
        what = "approximation against the optimum with one bit less"
        yield Line(what, f"normal, {budget} bits", "the paper's guarantee", theirs, ours, 0.0, bound="at most")
    for name, theirs in _LEAST.items():
        yield Line("least entropy of levels among 512 values", name, "notes 3.5", theirs, _least(name), 1e-5)
    for name in ("normal", "laplace"):
        x = draw(name, 1 << 14)
        found = constrained.levels(x, 4.0)
        law = 2 ** (2 * (_NATS[name] - found.entropy)) / 6
        case = f"{name}, 4 bits, d=2^14"
        yield Line("error a value at a high rate: 2^(2(h - H)) / 6", case, "notes 3.7", law, found.error / x.size, 0.05)
    yield from _messages(effort)
    if effort is not SMALL:
        yield from _gains()
        yield from _figures(effort)


def _optima() -> Iterator[Line]:
    for name, most, multiplier, j, error, entropy, used, refined in _OPTIMA:
        x, case = draw(name, 512), f"{name}, {most} levels, multiplier {multiplier}"
        exact, quick = (constrained.lagrangian(x, multiplier, max_levels=most, method=m) for m in _METHODS)
        for what, theirs, ours in (
            ("the optimum's error + multiplier * entries * entropy, d=512", j, _value(exact, multiplier)),
            ("the optimum's error", error, exact.error),
            ("the optimum's entropy", entropy, exact.entropy),
            ("the optimum's number of levels", used, len(exact.levels)),
        ):
            yield Line(what, case, "notes 5", theirs, ours, 1e-9)
        ours = _value(quick, multiplier)
        yield Line("the approximation's, after its refinement", case, "notes 5", refined, ours, 1e-8, bound="at most")


_METHODS: tuple[Literal["exact"], Literal["approximate"]] = ("exact", "approximate")


def _value(found: constrained.Solution, multiplier: float) -> float:
    return found.error + multiplier * 512 * found.entropy


def _least(name: str) -> float:
    try:
        constrained.levels(draw(name, 512), 0.1)
    except constrained.InfeasibleError as refused:
        return refused.least
    return float("nan")


def _messages(effort: Effort) -> Iterator[Line]:
    """What messages do: their size and error, and that of a mean of many."""
    size = 1 << 14
    for name in ("normal", "laplace"):
        x = draw(name, size).astype(np.float32)
        for budget in (1.5, 2.0, 3.0):
            codec, found = get_codec(f"ecasq:entropy={budget}"), constrained.levels(x, budget, max_levels=64)
            messages = [codec.encode(x, seed=seed) for seed in range(effort.draws(16, 8))]
            case, law = f"ecasq:entropy={budget}, {name}", found.error / float(np.square(x, dtype=np.float64).sum())
            bits = float(np.mean([8 * m.planes["codes"].data.nbytes / size for m in messages]))
            yield Line("coded bits a value, d=2^14", case, "the budget", budget, bits, 0.0, 0.03, bound="at most")
            estimates = [codec.decode(m) for m in messages]
            ours = float(np.mean([nmse(x, v) for v in estimates]))
            yield Line("error of messages, d=2^14", case, "the levels' own", law, ours, 0.05 * effort.loose)
    for name, rows in _ANCHORS.items():
        x = draw(name, min(effort.largest * 4, 1 << 20)).astype(np.float32)
        for width, theirs in rows:
            spec = f"ecuq:{width}"
            codec = get_codec(spec)
            ours = nmse(x, codec.decode(codec.encode(x, seed=0)))
            # Fewer values have a narrower range, so their cells are finer.
            what, place = "DoCoFL's anchors: error, biased, for d=2^20", "federated notes 2.3"
            yield Line(what, f"{spec}, {name}", place, theirs, ours, 0.03, bound="at most")


def _gains() -> Iterator[Line]:
    for name, ratios in _GAIN.items():
        x = draw(name, 1 << 16)
        for s, theirs in zip((4, 8, 16), ratios, strict=True):
            other = constrained.evaluate(x, adaptive.levels(x, s))
            ours = constrained.levels(x, other.entropy, max_levels=64).error / other.error
            case = f"{name}, {s} adaptive levels, {other.entropy:.2f} bits"
            what = "error over that of adaptive levels with a coder, d=2^16"
            yield Line(what, case, "notes 3.7", theirs, ours, 0.01, bound="at most")


def _figures(effort: Effort) -> Iterator[Figure]:
    for name in ("normal", "lognormal"):
        x = draw(name, 1 << 14)
        found, grids, asq = [], [], []
        for budget in (1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0):
            found.append(constrained.levels(x, budget))
            grids.append(constrained.uniform(x, budget))
        for s in (3, 4, 6, 8, 12, 16, 24):
            asq.append(constrained.evaluate(x, adaptive.levels(x, s)))
        curves = [
            Curve(label, [p.entropy for p in points], [p.error / x.size * 4**p.entropy for p in points])
            for label, points in (("ECASQ", found), ("even grid + coder", grids), ("adaptive levels + coder", asq))
        ]
        if name == "normal":
            for label, law in (("even, high rate: 2^(2h) / 6", pi * e / 3), ("adaptive, high rate", 3.533)):
                curves.append(Curve(label, [1.25, 4.0], [law, law], reference=True))
        yield Figure(
            f"ecasq-{name}", f"Unbiased, entropy-coded: {name}, d=2^14", "bits a value (entropy)",
            "squared error a value x 4^bits", curves, log_y=False,
        )  # fmt: skip
    threads = get_num_threads()
    set_num_threads(1)
    try:
        sizes = [1 << k for k in range(8, 21 if effort.largest > 1 << 14 else 17, 2)]
        curves = [Curve(f"{b} bits", sizes, [_seconds(d, b) for d in sizes]) for b in (2.0, 4.0)]
    finally:
        set_num_threads(threads)
    yield Figure("ecasq-time", "Time to find levels for a budget, normal", "values", "seconds", curves, log_x=True)


def _seconds(d: int, budget: float) -> float:
    x, taken = draw("normal", d), []
    for _ in range(2):
        begun = time.thread_time()
        constrained.levels(x, budget)
        taken.append(time.thread_time() - begun)
    return min(taken)


PAPER = Paper(
    id="ecasq",
    title="Entropy-Constrained Adaptive Stochastic Quantization",
    authors="R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik",
    venue="2026; with DoCoFL's anchors, ICML 2023",
    arxiv="2608.18147",
    shows="when a coder follows, levels found for an entropy have less error than even or adaptive ones",
    seconds=8,
    full_seconds=15,
    run=run,
)
