"""Reproductions of papers: every line within its tolerance, and lines that are off are told."""

import csv
import io
import math

import numpy as np
import pytest

from tersor.errors import TersorError
from tersor.evaluate.papers import DEFAULT, FULL, PAPERS, SMALL, Effort, Figure, Line, get_paper
from tersor.evaluate.papers.base import line
from tersor.evaluate.papers.measure import _haar, sphere_errors, uniform_rotation_errors
from tersor.evaluate.papers.output import draw, to_csv

LEAST = {  # lines
    "drive": 25,
    "eden": 125,
    "rht": 100,
    "quantizers": 100,
    "quicfl": 60,
    "quiver": 70,
    "ecasq": 70,
    "turboquant-note": 30,
}


def check(name: str, effort: Effort) -> tuple[list[Line], list[Figure]]:
    """Run a reproduction; no line may be off, and none may be missing."""
    made = list(get_paper(name).run(effort))
    lines = [item for item in made if isinstance(item, Line)]
    assert not [item for item in lines if item.verdict != "ok"]
    assert len(lines) >= LEAST[name] and all(math.isfinite(item.ours) for item in lines)
    assert len({(item.what, item.case, item.place) for item in lines}) == len(lines), "each says what it is"
    return lines, [item for item in made if isinstance(item, Figure)]


@pytest.mark.parametrize("name", PAPERS)
def test_small(name: str) -> None:
    for figure in check(name, SMALL)[1]:
        assert all(len(curve.x) == len(curve.y) for curve in figure.curves)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("effort", [DEFAULT, FULL], ids=["default", "full"])
def test_more(name: str, effort: Effort) -> None:
    check(name, effort)


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_names_its_source(name: str) -> None:
    paper = get_paper(name)
    assert paper.id == name and paper.title and paper.authors and paper.venue and paper.shows
    for number in paper.arxiv.split(", "):
        year_month, dot, serial = number.partition(".")
        assert (len(year_month), dot, len(serial)) == (4, ".", 5)
    assert 0 < paper.seconds <= 60


def test_unknown_paper() -> None:
    with pytest.raises(TersorError, match="eden"):
        get_paper("nope")


@pytest.mark.parametrize(
    "bound, ours, verdict",
    [
        ("", 1.02, "ok"),
        ("", 0.98, "ok"),
        ("", 1.03, "off"),
        ("", 0.97, "off"),
        ("", math.nan, "off"),
        ("at most", 0.1, "ok"),
        ("at most", 1.03, "off"),
        ("at least", 3.0, "ok"),
        ("at least", 0.97, "off"),
    ],
)
def test_verdicts(bound: str, ours: float, verdict: str) -> None:
    assert Line("w", "c", "p", 1.0, ours, tolerance=0.021, bound=bound).verdict == verdict


def test_a_wrong_codec_is_off() -> None:
    """The measurement decides, not the reference: a biased codec in place of an unbiased one is told."""
    right, wrong = (
        [line("error", "law", 0.5708, lambda c: c.expected_error() or 0.0, spec)]
        for spec in ("eden:1", "eden:1,scale=biased")
    )
    assert (right[0].verdict, wrong[0].verdict) == ("ok", "off")


def test_csv_and_png() -> None:
    lines, figures = check("rht", SMALL)
    rows = list(csv.DictReader(io.StringIO(to_csv(lines))))
    assert len(rows) == len(lines) and {row["verdict"] for row in rows} == {"ok"}
    pytest.importorskip("matplotlib")
    for figure in figures:
        assert draw(figure, "source").startswith(b"\x89PNG")


def test_dense_rotations_are_orthogonal() -> None:
    q = _haar(np.random.default_rng(0), 3, 64)
    assert np.allclose(q @ np.swapaxes(q, 1, 2), np.eye(64), atol=1e-10)
    # The same errors as of points on the sphere, up to chance.
    dense, sphere = uniform_rotation_errors(64, 2, 2048), sphere_errors(64, 2, 2048)
    assert dense == pytest.approx(sphere, rel=0.02)
