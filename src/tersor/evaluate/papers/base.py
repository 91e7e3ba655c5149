"""What a reproduction is: a paper, lines that hold its number beside ours, and the curves behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tersor.codec import Codec
from tersor.registry import get_codec


@dataclass(frozen=True)
class Line:
    """One number of a paper beside ours.

    Attributes
    ----------
    what : str
        What was measured, in words; lines of the same words belong together.
    case : str
        Which codec or setting, mostly a spec.
    place : str
        Where the reference number stands: "closed form", or a section of the project's notes on the papers.
    theirs : float
        The reference number.
    ours : float
        Measured here.
    tolerance : float
        Largest relative difference.
    absolute : float
        Difference that is accepted besides, for references of 0 and rounded ones.
    bound : {"", "at most", "at least"}
        Empty: both must agree. Else the reference bounds ours.
    """

    what: str
    case: str
    place: str
    theirs: float
    ours: float
    tolerance: float = 0.02
    absolute: float = 0.0
    bound: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over theirs; None of 0."""
        return self.ours / self.theirs if self.theirs else None

    @property
    def verdict(self) -> str:
        """ "ok" or "off"."""
        slack = self.tolerance * abs(self.theirs) + self.absolute
        over = self.ours - self.theirs
        off = {"": abs(over), "at most": over, "at least": -over}[self.bound]
        return "ok" if math.isfinite(self.ours) and off <= slack else "off"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self) | {"ratio": self.ratio, "verdict": self.verdict}


@dataclass(frozen=True)
class Curve:
    """A line of a picture; a reference is drawn dashed, measurements as points."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    reference: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture of a reproduction.

    Attributes
    ----------
    name : str
        Of the file, without suffix.
    title, x, y : str
        Words on it.
    curves : list of Curve
    log_x, log_y : bool
        Scales.
    """

    name: str
    title: str
    x: str
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = True


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    trials : float
        Factor on the number of draws.
    largest : int
        Longest vector; columns of longer ones are left out.
    loose : float
        Factor on the tolerances of averages over fewer draws.
    """

    trials: float = 1.0
    largest: int = 1 << 14
    loose: float = 1.0

    def draws(self, n: int, least: int = 2) -> int:
        """Scale a number of draws."""
        return max(least, round(n * self.trials))


SMALL = Effort(0.25, 1 << 14, 2.0)
DEFAULT = Effort()
FULL = Effort(3.0, 1 << 20)


@dataclass(frozen=True)
class Paper:
    """A source and how to reproduce it.

    Attributes
    ----------
    id : str
        What `tersor paper` takes.
    title, authors, venue, arxiv : str
        The source.
    shows : str
        What the reproduction shows, in a sentence.
    seconds, full_seconds : int
        About how long it takes on two cores, by default and with everything.
    run : callable
        Yields lines and figures, given an `Effort`.
    """

    id: str
    title: str
    authors: str
    venue: str
    arxiv: str
    shows: str
    seconds: int
    full_seconds: int
    run: Callable[[Effort], Iterator[Line | Figure]] = field(repr=False)

    @property
    def source(self) -> str:
        """The source in one line."""
        return f"{self.authors}: {self.title}. {self.venue}" + (f", arXiv {self.arxiv}" if self.arxiv else "")


def line(
    what: str,
    place: str,
    theirs: float,
    measure: Callable[[Codec], float],
    spec: str,
    *,
    tolerance: float = 0.02,
    absolute: float = 0.0,
    bound: str = "",
) -> Line:
    """Measure with a codec."""
    return Line(what, spec, place, theirs, measure(get_codec(spec)), tolerance, absolute, bound)
