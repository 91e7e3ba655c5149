"""Reproductions of papers: their numbers, ours, the ratio; one file a paper."""

from __future__ import annotations

from tersor.errors import TersorError
from tersor.evaluate.papers import drive, ecasq, eden, quantizers, quicfl, quiver, rht, turboquant_note
from tersor.evaluate.papers.base import DEFAULT, FULL, SMALL, Curve, Effort, Figure, Line, Paper

__all__ = ["DEFAULT", "FULL", "PAPERS", "SMALL", "Curve", "Effort", "Figure", "Line", "Paper", "get_paper"]

PAPERS: dict[str, Paper] = {
    module.PAPER.id: module.PAPER for module in (drive, eden, quantizers, quicfl, quiver, ecasq, rht, turboquant_note)
}


def get_paper(name: str) -> Paper:
    """Return a reproduction by its id.

    Examples
    --------
    >>> get_paper("drive").arxiv
    '2105.08339'
    """
    if name not in PAPERS:
        raise TersorError(f"no paper {name!r}; there are {', '.join(PAPERS)}")
    return PAPERS[name]
