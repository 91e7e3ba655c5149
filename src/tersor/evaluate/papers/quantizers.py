"""One table of quantizers: EDEN, QUIC-FL, Hadamard + SQ, Kashin, SQ, QSGD, SignSGD, TernGrad, natural compression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tersor.codec import Codec
from tersor.evaluate.demo import normal, sparse
from tersor.evaluate.papers.base import Effort, Figure, Line, Paper, line
from tersor.evaluate.papers.measure import Draw, mean_errors, one_sided_lognormal, vnmse


@dataclass(frozen=True)
class _Column:
    name: str
    draw: Draw
    log2: int
    senders: int
    trials: int
    single: bool  # the reference is one draw


_COLUMNS = (
    _Column("N(0,1), d=2^10", normal, 10, 1, 60, False),
    _Column("N(0,1), d=2^14", normal, 14, 1, 12, False),
    _Column("N(0,1), d=2^20", normal, 20, 1, 1, True),
    _Column("LogNormal, d=2^14", one_sided_lognormal, 14, 1, 12, False),
    _Column("LogNormal, d=2^20", one_sided_lognormal, 20, 1, 1, True),
    _Column("1 %-sparse, d=2^14", sparse, 14, 1, 12, False),
    _Column("LogNormal, d=2^14, 10 senders", one_sided_lognormal, 14, 10, 6, False),
)


@dataclass(frozen=True)
class _Method:
    """A row of the table: errors by column, and how far averages of a few draws scatter.

    `steady`: rotated, so that the error hardly depends on the draw. That of the others follows the largest value of the
     very vector, which scatters for LogNormal by half.
    """

    spec: str
    errors: tuple[float, ...]
    steady: bool = True
    slack: float = 0.03
    tails: float = 0.0  # the slack for LogNormal and sparse vectors, where it is larger
    shared: bool = False


_METHODS = (
    _Method("eden:0.5", (2.138, 2.13, 2.139, 2.139, 2.142, 2.139, 0.2133)),
    _Method("eden:1", (0.5736, 0.5689, 0.5699, 0.5720, 0.5707, 0.5694, 0.0575)),
    _Method("eden:2", (0.1336, 0.1330, 0.1332, 0.1334, 0.1332, 0.1327, 0.0134)),
    _Method("eden:3", (0.0356, 0.0358, 0.0358, 0.0359, 0.0357, 0.0358, 0.00359)),
    _Method("eden:4", (0.00946, 0.00958, 0.00964, 0.00969, 0.00959, 0.00962, 0.00097)),
    _Method("eden:1,scale=biased", (0.3643, 0.3626, 0.3630, 0.3638, 0.3634, 0.3628, 0.0801)),
    _Method("eden:2,scale=biased", (0.1178, 0.1174, 0.1175, 0.1177, 0.1175, 0.1171, 0.0164)),
    _Method("quicfl:1", (1.51, 1.45, 1.465, 1.458, 1.479, 1.457, 0.147), slack=0.05, shared=True),
    _Method("quicfl:2", (0.216, 0.213, 0.2133, 0.2176, 0.2148, 0.2125, 0.0211), slack=0.05, shared=True),
    _Method("quicfl:3", (0.0427, 0.0427, 0.0427, 0.0432, 0.0426, 0.0426, 0.0042), slack=0.05, shared=True),
    _Method("quicfl:4", (0.00954, 0.00951, 0.00952, 0.00957, 0.00952, 0.0095, 0.00095), slack=0.05, shared=True),
    # Rotated by blocks, with one range for all: blocks of sparse vectors differ in energy, which costs a tenth more.
    _Method("sq:1,rotations=2", (9.6, 14.9, 21.5, 14.5, 24.1, 13.9, 1.45), slack=0.15, tails=0.25),
    _Method("sq:4,rotations=2", (0.0313, 0.0472, 0.0666, 0.0459, 0.0743, 0.0444, 0.0046), slack=0.15, tails=0.25),
    _Method("kashin:1", (3.16, 3.20, 3.18, 3.18, 3.18, 3.19, 0.314), slack=0.04),
    _Method("kashin:4", (0.0119, 0.0120, 0.0120, 0.0119, 0.0120, 0.0118, 0.0012), slack=0.05),
    _Method("sq:1", (9.7, 14.4, 24.8, 10.9, 32.5, 693, 1.10), steady=False),
    _Method("sq:4", (0.0318, 0.0457, 0.0766, 0.277, 1.43, 1.95, 0.0296), steady=False),
    _Method("sq:1,dither=subtractive", (3.61, 5.16, 8.6, 33.3, 259, 234, 3.7), steady=False),
    _Method("sq:2,dither=subtractive", (0.397, 0.571, 0.956, 3.70, 28.7, 26.1, 0.412), steady=False),
    _Method("sq:4,dither=subtractive", (0.0159, 0.0230, 0.0382, 0.148, 1.15, 1.04, 0.0164), steady=False),
    _Method("qsgd:2,block=full", (23.8, 97, 789, 75, 602, 9.1, 7.7), slack=0.12, tails=0.3),
    _Method("qsgd:5,block=full", (0.752, 5.8, 53, 4.3, 40, 0.127, 0.42), slack=0.08, tails=0.2),
    _Method("sign:block=full", (0.3624, 0.3634, 0.3631, 0.6289, 0.6358, 0.9875, 0.0633)),
    _Method("terngrad:block=full", (1.77, 2.23, 3.10, 11.0, 32.6, 1.35, 1.11), steady=False),
    _Method("natural", (0.0816, 0.0813, 0.0821, 0.0822, 0.0834, 0.0730, 0.0084), tails=0.2),
)


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines, a method after the other."""
    for method in _METHODS:
        for column, theirs in zip(_COLUMNS, method.errors, strict=True):
            if 1 << column.log2 > effort.largest:
                continue
            # One draw of 2^20 scatters little where the error is an average over all coordinates.
            base = method.slack if column.draw is normal else max(method.slack, method.tails)
            slack = base * (1.5 if column.log2 == 10 or column.senders > 1 else 1.0) * effort.loose
            if not method.steady:
                slack = (0.12 if column.draw is normal else 0.45 if not column.single else 0.8) * min(effort.loose, 1.3)
            yield line(
                column.name, "notes 7", theirs, lambda c, k=column, m=method: _measure(c, k, m, effort), method.spec,  # type: ignore[misc]
                tolerance=slack,
            )  # fmt: skip


def _measure(codec: Codec, column: _Column, method: _Method, effort: Effort) -> float:
    trials = 2 if column.single else effort.draws(column.trials, 3)
    size = 1 << column.log2
    if column.senders == 1:
        return vnmse(codec, column.draw, size, trials)
    return mean_errors(codec, column.draw, size, column.senders, trials, shared=method.shared)


PAPER = Paper(
    id="quantizers",
    title="The table of quantizers for distributed mean estimation, after the evaluations of DRIVE, EDEN and QUIC-FL",
    authors="S. Vargaftik, R. Ben Basat and others",
    venue="NeurIPS 2021, ICML 2022, ICML 2024",
    arxiv="2105.08339, 2108.08842, 2205.13341",
    shows="what 1 to 4 bits cost with each on normal, lognormal and sparse vectors, alone and in a mean of 10",
    seconds=15,
    full_seconds=90,
    run=run,
)
