"""QUIC-FL: unbiased in every coordinate, so that senders share one rotation and the server rotates once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tersor.codec import Codec
from tersor.evaluate.demo import normal
from tersor.evaluate.papers.base import SMALL, Curve, Effort, Figure, Line, Paper, line
from tersor.evaluate.papers.measure import mean_errors, one_sided_lognormal, vnmse
from tersor.mean import Mean
from tersor.registry import get_codec

# J by bits and shared bits 0, 1, 2, ...: the least error of a quantizer that is unbiased in every coordinate.
_BEST = {
    1: (8.59670, 3.29670, 2.05160, 1.67677, 1.54078, 1.48719, 1.46540),
    2: (0.573270, 0.310845, 0.243039, 0.222715, 0.215943, 0.213502),
    3: (0.0925888, 0.0555356, 0.0460257, 0.0434108, 0.0426376),
    4: (0.0194675, 0.0120295, 0.0101418, 0.00964781, 0.00951938),
}
_PUBLISHED = {1: 1.46701, 2: 0.214915, 3: 0.0431163, 4: 0.00968425}
_SCRIPT = {1: (1.493, 0.1463), 2: (0.2181, 0.02159), 4: (0.00973, 0.000967)}
_SIZE = 1 << 14


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines."""
    trials, slack = effort.draws(12), 0.03 * effort.loose
    curves = []
    for bits, best in _BEST.items():
        for shared, theirs in enumerate(best):
            spec = f"quicfl:{bits},shared_bits={shared}"
            yield line(
                "least error of a quantizer, by its law", "notes 5", theirs, _law, spec, tolerance=1e-5, bound="at most"
            )
            # Where little is shared, rare large errors dominate and scatter.
            yield line(
                "N(0,1), d=2^14",
                "notes 5",
                theirs,
                lambda c: vnmse(c, normal, _SIZE, trials),
                spec,
                tolerance=1.5 * slack,
            )
        yield line(
            "error against the authors' published table", "notes 5", _PUBLISHED[bits], _law, f"quicfl:{bits}",
            tolerance=0, bound="at most",
        )  # fmt: skip
        curves.append(Curve(f"{bits} bit{'s' * (bits > 1)}", list(range(len(best))), list(best), reference=True))
    yield Figure(
        "quicfl-shared", "QUIC-FL: what shared randomness is worth", "shared bits a coordinate", "vNMSE", curves
    )
    for bits, (one, ten) in _SCRIPT.items():
        spec = f"quicfl:{bits}"
        yield line(
            "LogNormal, d=2^14, against the authors' script", "notes 5", one,
            lambda c: vnmse(c, one_sided_lognormal, _SIZE, trials), spec, tolerance=0.02 * effort.loose,
            bound="at most",
        )  # fmt: skip
        for same in (True, False):
            words = "the same vector at all" if same else "independent vectors"
            yield line(
                f"10 senders with one rotation, {words}, LogNormal, d=2^14", "notes 5", ten,
                lambda c, same=same: mean_errors(  # type: ignore[misc]
                    c, one_sided_lognormal, _SIZE, 10, trials, same=same, shared=True
                ),
                spec, tolerance=0.05 * effort.loose,
            )  # fmt: skip
        yield line(
            "bits a coordinate beyond the codes, exact entries included, d=2^18", "notes 5, for d=2^20", 0.102,
            lambda c, b=bits: _bits(c) - b, spec, tolerance=0.15, bound="at most",  # type: ignore[misc]
        )  # fmt: skip
    yield line(
        "10 senders with one rotation, the same vector at all, d=1024: nothing gained", "notes 2.5", 0.577,
        lambda c: mean_errors(c, normal, 1024, 10, effort.draws(40), same=True, shared=True), "eden:1", tolerance=slack,
    )  # fmt: skip
    if effort is not SMALL:
        yield _cost()


def _law(codec: Codec) -> float:
    error = codec.expected_error()
    return float("nan") if error is None else error


def _bits(codec: Codec) -> float:
    return codec.encode(normal(np.random.default_rng(0), 1 << 18), seed=0).bits_per_coordinate


def _cost() -> Figure:
    """Time means of many senders; a picture only, since no verdict hangs on a clock."""
    counts, curves = [1, 2, 4, 8, 16, 32], []
    x = normal(np.random.default_rng(0), 1 << 18)
    for name in ("quicfl:2", "eden:2"):
        codec = get_codec(name)
        shared = codec.merge(None, key=1) if name.startswith("quicfl") else None
        messages = [codec.encode(x, seed=1, sender=i, shared=shared) for i in range(counts[-1])]
        seconds = []
        for n in counts:
            times = []
            for _ in range(5):
                begun = time.perf_counter()
                total = Mean()
                for message in messages[:n]:
                    total.add(message)
                total.value()
                times.append(time.perf_counter() - begun)
            seconds.append(min(times))
        curves.append(Curve(name, counts, seconds))
    return Figure("quicfl-cost", "Mean of n senders, d=2^18", "senders", "seconds", curves, log_x=True)


PAPER = Paper(
    id="quicfl",
    title="Accelerating Federated Learning with Quick Distributed Mean Estimation",
    authors="R. Ben-Basat, S. Vargaftik, A. Portnoy, G. Einziger, Y. Ben-Itzhak, M. Mitzenmacher",
    venue="ICML 2024",
    arxiv="2205.13341",
    shows="every coordinate unbiased by itself: with one rotation for all, the mean of n still has 1/n of the error",
    seconds=5,
    full_seconds=10,
    run=run,
)
