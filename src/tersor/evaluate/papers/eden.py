"""EDEN: its limits at every width and scale, means of senders, lost parts, short vectors, entropy-coded codes."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi, sqrt

import numpy as np

from tersor.codec import Codec
from tersor.evaluate.demo import normal
from tersor.evaluate.papers.base import Curve, Effort, Figure, Line, Paper, line
from tersor.evaluate.papers.measure import (
    mean_errors,
    one_sided_lognormal,
    sphere_errors,
    vnmse,
)
from tersor.metrics import nmse
from tersor.quantize import lloyd_max

_SIZE = 1 << 14
# Uniform rotations, finite d: b, d, and the errors with the biased scale, the unbiased one and S = 1.
_SHORT = [
    (2, 8, 0.0834, 0.0927, 0.0965),
    (2, 32, 0.1085, 0.1229, 0.1117),
    (2, 64, 0.1129, 0.1279, 0.1145),
    (2, 128, 0.1154, 0.1308, 0.1161),
    (4, 8, 0.00674, 0.00680, 0.00849),
    (4, 64, 0.00886, 0.00895, 0.00918),
    (4, 128, 0.00916, 0.00925, 0.00933),
]
# b, share of the rotated coordinates that is lost, and the errors with the unbiased and with the biased scale.
_LOSS = [
    (1, 0.1, 0.742, 0.425),
    (2, 0.01, 0.144, 0.126),
    (2, 0.1, 0.2585, 0.205),
    (2, 0.2, 0.416, 0.293),
    (2, 0.5, 1.267, 0.556),
    (4, 0.1, 0.121, 0.108),
    (4, 0.5, 1.02, 0.50),
]
_ENTROPY = {0.5: 1.6133, 1: 0.53470, 2: 0.09764, 3: 0.02274, 4: 0.00559}


def mixed(bits: float) -> float:
    """Return the mean squared error of Lloyd-Max codes of two widths whose mean is `bits`; no code has the error 1."""
    low = int(bits)
    share = bits - low
    errors = [1.0 if b == 0 else lloyd_max.mse(b) for b in (low, min(low + 1, lloyd_max.MAX_BITS))]
    return (1 - share) * errors[0] + share * errors[1]


def run(effort: Effort) -> Iterator[Line | Figure]:
    """Yield the lines."""
    yield from _limits(effort)
    yield from _fractions(effort)
    yield from _means(effort)
    yield from _lost(effort)
    yield from _short(effort)
    yield from _entropy(effort)


def _limits(effort: Effort) -> Iterator[Line | Figure]:
    trials, slack = effort.draws(12), 0.02 * effort.loose
    columns = [("N(0,1)", normal), ("LogNormal", one_sided_lognormal)]
    found: dict[str, list[float]] = {"unbiased": [], "biased": []}
    for bits in range(1, 9):
        m = lloyd_max.mse(bits)
        laws = {"unbiased": m / (1 - m), "biased": m, "norm": 2 * (1 - sqrt(1 - m)), "one": m}
        for scale, law in laws.items():
            for name, draw in columns if scale in found else columns[:1]:
                made = line(
                    f"{name}, d=2^14", "closed form", law, lambda c, d=draw: vnmse(c, d, _SIZE, trials),  # type: ignore[misc]
                    f"eden:{bits}" + (f",scale={scale}" if scale != "unbiased" else ""), tolerance=slack,
                )  # fmt: skip
                yield made
                if name == "N(0,1)" and scale in found:
                    found[scale].append(made.ours)
    widths = list(range(1, 9))
    yield Figure(
        "eden-limits", "EDEN, N(0,1), d=2^14", "bits a coordinate", "vNMSE",
        [
            Curve("unbiased, measured", widths, found["unbiased"]),
            Curve("biased, measured", widths, found["biased"]),
            Curve("m / (1 - m)", widths, [lloyd_max.mse(b) / (1 - lloyd_max.mse(b)) for b in widths], reference=True),
            Curve("rate-distortion bound", widths, [4.0**-b for b in widths], reference=True),
        ],
    )  # fmt: skip


def _fractions(effort: Effort) -> Iterator[Line]:
    trials = effort.draws(12)
    for bits in (0.1, 0.5, 1.5, 2.5, 3.5):
        m = mixed(bits)
        law = pi / (2 * bits) - 1 if bits < 1 else m / (1 - m)
        yield line(
            "N(0,1), d=2^14", "closed form", law, lambda c: vnmse(c, normal, _SIZE, trials), f"eden:{bits}",
            tolerance=(0.05 if bits < 0.5 else 0.02) * effort.loose,
        )  # fmt: skip


def _means(effort: Effort) -> Iterator[Line]:
    trials, slack = effort.draws(12), 0.03 * effort.loose
    for bits in (1, 2, 4):
        m = lloyd_max.mse(bits)
        for same, words in ((True, "of one vector"), (False, "of independent vectors")):
            yield line(
                f"mean of 10 senders {words}, LogNormal, d=2^14", "closed form / 10", m / (1 - m) / 10,
                lambda c, same=same: mean_errors(c, one_sided_lognormal, _SIZE, 10, trials, same=same),  # type: ignore[misc]
                f"eden:{bits}", tolerance=slack,
            )  # fmt: skip
    for bits, theirs in ((1, 0.0801), (2, 0.0164)):
        yield line(
            "mean of 10 senders, LogNormal, d=2^14", "notes 7", theirs,
            lambda c: mean_errors(c, one_sided_lognormal, _SIZE, 10, trials), f"eden:{bits},scale=biased",
            tolerance=0.05 * effort.loose,
        )  # fmt: skip
    draws = effort.draws(40)
    for same, theirs in ((True, 0.577), (False, 0.0577)):
        words = "the same vector at all" if same else "independent vectors"
        yield line(
            f"10 senders with one rotation, {words}, d=1024", "notes 2.5", theirs,
            lambda c, same=same: mean_errors(c, normal, 1024, 10, draws, same=same, shared=True), "eden:1",  # type: ignore[misc]
            tolerance=slack,
        )  # fmt: skip


def lost_error(codec: Codec, share: float, trials: int, *, runs: bool = False) -> float:
    """Return the mean vNMSE where a share of the rotated coordinates of every unit is lost, d = 2^16.

    Parameters
    ----------
    codec : Codec
        With units of 4,096 coordinates.
    share : float
        Lost, of 256 pieces a unit.
    trials : int
        Draws.
    runs : bool, default False
        One run of pieces is lost in each unit, not random ones.
    """
    size, pieces, found = 1 << 16, 256, []
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        x, units = normal(rng, size), codec.units((size,), None).count
        lost = round(share * units * pieces)
        if runs:
            each = -(-lost // units)
            order = (np.arange(pieces) - rng.integers(0, pieces, (units, 1))) % pieces
            received = order >= each
        else:
            received = rng.permutation(units * pieces).reshape(units, pieces) >= lost
        found.append(nmse(x, codec.decode(codec.encode(x, seed=trial), received=received)))
    return float(np.mean(found))


def lost_law(bits: float, scale: str, share: float) -> float:
    """Return the expected error of a receiver whom a share of the rotated coordinates does not reach."""
    m, p = mixed(bits), 1 - share
    return 1 / (p * (1 - m)) - 1 if scale == "unbiased" else 1 - p * (1 - m)


def _lost(effort: Effort) -> Iterator[Line]:
    trials = effort.draws(3, 1)
    for bits, share, *errors in _LOSS:
        for scale, theirs in zip(("unbiased", "biased"), errors, strict=True):
            spec = f"eden:{bits}" + ",scale=biased" * (scale == "biased")
            yield line(
                f"{100 * share:g} % of the rotated coordinates lost", "notes 4", theirs,
                lambda c, q=share: lost_error(c, q, trials), spec, tolerance=0.03,  # type: ignore[misc]
            )  # fmt: skip
            yield line(
                f"{100 * share:g} % lost, as the codec predicts", "closed form", lost_law(bits, scale, share),
                lambda c, q=share: c.expected_error(received=1 - q) or 0.0, spec, tolerance=1e-5,  # type: ignore[misc]
            )  # fmt: skip
    for width in (1, 2.5, 4):
        for runs, words in ((False, "lost at random"), (True, "lost in one run a unit")):
            yield line(
                f"25 % {words}", "closed form", lost_law(width, "unbiased", 0.25),
                lambda c, runs=runs: lost_error(c, 0.25, trials, runs=runs), f"eden:{width}", tolerance=0.03,  # type: ignore[misc]
            )  # fmt: skip


def _short(effort: Effort) -> Iterator[Line]:
    for bits, d, biased, unbiased, one in _SHORT:
        found = sphere_errors(d, bits, effort.draws(12_000))
        for scale, theirs in (("biased", biased), ("unbiased", unbiased), ("one", one)):
            yield Line(
                f"uniform rotation, short vectors, scale={scale}",
                f"{bits} bits, d={d}",
                "notes 4",
                theirs,
                found[scale],
                0.02 * effort.loose,
            )


def _entropy(effort: Effort) -> Iterator[Line]:
    trials = effort.draws(2, 1)
    for bits, theirs in _ENTROPY.items():
        spec = f"eden:{bits},grid=uniform"
        yield line(
            "entropy-coded grid, N(0,1), d=2^18", "notes 4", theirs, lambda c: vnmse(c, normal, 1 << 18, trials), spec,
            tolerance=0.02 * effort.loose,
        )  # fmt: skip
        # Beyond the entropy: a scale a unit (0.008), the coder's states and lengths, the header.
        yield line(
            "bits a coordinate of its messages, N(0,1), d=2^18", "notes 4, average rate", bits,
            lambda c: c.encode(normal(np.random.default_rng(0), 1 << 18), seed=0).bits_per_coordinate, spec,
            tolerance=0, absolute=0.02, bound="at most",
        )  # fmt: skip


PAPER = Paper(
    id="eden",
    title="EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning",
    authors="S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher",
    venue="ICML 2022",
    arxiv="2108.08842",
    shows="any rate, an error that no input can worsen, 1/n of it for n senders, and a closed law of lost parts",
    seconds=5,
    full_seconds=15,
    run=run,
)
