"""DRIVE: one bit a coordinate, under uniform and under Hadamard rotations."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

from tersor.evaluate.demo import normal
from tersor.evaluate.papers.base import Curve, Effort, Figure, Line, Paper, line
from tersor.evaluate.papers.measure import (
    Draw,
    mean_errors,
    one_sided_lognormal,
    support,
    uniform_rotation_errors,
    vnmse,
    vnmse_of,
)

_UNBIASED = {2: 0.272, 3: 0.378, 4: 0.433, 8: 0.507, 16: 0.541, 32: 0.557, 64: 0.564, 128: 0.567, 1024: 0.570}
_SIZE = 1 << 14
_DRAWS: dict[str, Draw] = {"N(0,1)": normal, "LogNormal": one_sided_lognormal}


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines."""
    biased, unbiased = {}, {}
    for d, theirs in _UNBIASED.items():
        if d > 128 and effort.trials < 1:
            continue  # one such matrix alone takes a second
        draws = effort.draws(24_000 if d <= 8 else 8_000 if d < 1024 else 1024)
        found = uniform_rotation_errors(d, 1, draws)
        biased[d], unbiased[d] = found["biased"], found["unbiased"]
        # Few coordinates scatter more: about 1 / sqrt(draws) of the mean for d = 2, a tenth of it for d = 128.
        slack = (0.03 if d <= 8 else 0.015) * effort.loose
        law = (1 - 2 / pi) * (1 - 1 / d)
        yield Line("uniform rotation, biased: (1 - 2/pi)(1 - 1/d)", f"d={d}", "closed form", law, biased[d], slack)
        yield Line("uniform rotation, unbiased", f"d={d}", "notes 3", theirs, unbiased[d], slack, 0.0005)
    yield Line(
        "uniform rotation, unbiased: largest over d",
        "every d",
        "paper's bound",
        2.92,
        max(unbiased.values()),
        bound="at most",
    )
    slack, trials = 0.02 * effort.loose, effort.draws(12)
    for spec, limit in (("drive", pi / 2 - 1), ("drive:biased", 1 - 2 / pi)):
        for name, draw in _DRAWS.items():
            yield line(
                f"{name}, d=2^14", "closed form", limit,
                lambda c, d=draw: vnmse(c, d, _SIZE, trials), spec, tolerance=slack,  # type: ignore[misc]
            )  # fmt: skip
    yield line(
        "mean of 100 senders of one vector, d=1024", "closed form / 100", (pi / 2 - 1) / 100,
        lambda c: mean_errors(c, normal, 1024, 100, effort.draws(8), same=True, seed=5), "drive", tolerance=2.5 * slack,
    )  # fmt: skip
    yield line(
        "two equal coordinates, one round: the worst case, d=1024", "Khintchine's 1/2", 0.5,
        lambda c: vnmse_of(c, support([1, 1], 1024), 2), "drive:biased,rotations=1,block=full", tolerance=1e-5,
    )  # fmt: skip
    for name, draw in _DRAWS.items():
        yield line(
            f"{name}, d=2^14 (authors' code: two-means gains nothing here)", "notes 9", 0.573,
            lambda c, d=draw: vnmse(c, d, _SIZE, trials), "drive:plus=true", tolerance=slack,  # type: ignore[misc]
        )  # fmt: skip
    dims = list(unbiased)
    yield Figure(
        "drive-dimension", "DRIVE under uniform rotations", "dimension", "vNMSE",
        [
            Curve("unbiased, measured", dims, [unbiased[d] for d in dims]),
            Curve("biased, measured", dims, [biased[d] for d in dims]),
            Curve("biased, (1 - 2/pi)(1 - 1/d)", dims, [(1 - 2 / pi) * (1 - 1 / d) for d in dims], reference=True),
            Curve("unbiased, limit pi/2 - 1", [dims[0], dims[-1]], [pi / 2 - 1] * 2, reference=True),
        ],
        log_x=True, log_y=False,
    )  # fmt: skip


PAPER = Paper(
    id="drive",
    title="DRIVE: One-bit Distributed Mean Estimation",
    authors="S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher",
    venue="NeurIPS 2021",
    arxiv="2105.08339",
    shows="one bit with an error that no input can worsen: (1 - 2/pi)(1 - 1/d) biased, pi/2 - 1 unbiased",
    seconds=5,
    full_seconds=15,
    run=run,
)
