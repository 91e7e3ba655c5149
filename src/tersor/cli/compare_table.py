"""The table of `tersor compare`: as many columns as the terminal has room for, and whole names before numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from tersor.cli import show
from tersor.evaluate.compare import Row

_GAP = 2  # between columns
_NARROW = 100  # from this width on, names are never broken


@dataclass(frozen=True)
class _Column:
    head: str
    cell: Callable[[Row], str]
    words: str  # for the legend


@dataclass(frozen=True)
class Layout:
    """The columns of a table after the codec's name, and how names are written."""

    columns: tuple[_Column, ...]
    name: Callable[[str], str]

    def table(self, rows: Sequence[Row]) -> Table:
        """Return the table."""
        made = show.table("codec", *(column.head for column in self.columns))
        for row in rows:
            name = self.name(row.codec)
            if row.problem:
                made.add_row(name, "cannot", style="yellow")
            else:
                made.add_row(name, *(column.cell(row) for column in self.columns))
        timed = [row.copy_s for row in rows if row.copy_s]
        if timed:
            copy = _speed(next(row for row in rows if row.copy_s), statistics.median(timed))
            made.add_row("memcpy", "32.000", *[""] * (len(self.columns) - 3), copy, copy, style="dim")
        return made

    def width(self, rows: Sequence[Row]) -> int:
        """Return the columns of a terminal that the table takes."""
        names = [len(part) for row in rows for part in self.name(row.codec).split("\n")]
        cells = [
            max([len(column.head), *(len(column.cell(row)) for row in rows if not row.problem)])
            for column in self.columns
        ]
        return max([len("memcpy"), *names]) + sum(cells) + _GAP * len(cells)

    def legend(self) -> str:
        """Say what the columns are."""
        return " ".join(dict.fromkeys(column.words for column in self.columns if column.words))


def layout(rows: Sequence[Row], seeds: int, width: int) -> Layout:
    """Choose the fullest layout that fits; names are broken only in a narrow terminal, where nothing else helps."""
    writers = (_whole,) if width >= _NARROW else (_whole, _at_commas, _at_colon)
    made = [Layout(columns, write) for write in writers for columns in _choices(seeds)]
    return next((choice for choice in made if choice.width(rows) <= width), made[-1])


def _choices(seeds: int) -> Iterator[tuple[_Column, ...]]:
    """Sets of columns, fullest first: what is left out first is what the others tell too."""
    several = f"mean and standard deviation (+-) over {show.plural(seeds, 'seed')}" if seeds > 1 else "of one seed"
    error = "error: vNMSE, ||x_hat - x||^2 / ||x||^2, "
    every = {
        "bits": _Column(
            "bits",
            lambda row: f"{row.bits:.3f}" if row.size else "-",
            "bits: a coordinate, from the bytes of the message, header included.",
        ),
        "law": _Column("law", lambda row: show.number(row.expected), "law: error that the codec's law predicts."),
        "sender": _Column(
            "sender", lambda row: show.number(row.vnmse_told), "sender: error that it knew of (enc.error)."
        ),
        "predicted": _Column(
            "predicted",
            lambda row: show.number(row.vnmse_told if row.expected is None else row.expected),
            "predicted: by the codec's law, else by the sender for this very message.",
        ),
        "error": _Column("error", lambda row: show.number(row.vnmse), error + several + "."),
        "spread": _Column("+-", lambda row: "0" if not row.spread else f"{row.spread:.0e}", ""),
        "mean": _Column(
            f"mean of {seeds}",
            lambda row: show.number(row.vnmse_of_mean),
            f"mean of {seeds}: error of the mean of all estimates.",
        ),
        "chance": _Column(
            "by chance", lambda row: show.number(row.vnmse / seeds), "by chance: what that would be without bias."
        ),
        "bias": _Column("bias", _bias, "bias: the share of the error that no averaging removes, or that none shows."),
        "max": _Column("max", lambda row: show.number(row.largest), "max: largest error of a coordinate."),
        "enc": _Column(
            "enc GB/s", lambda row: _speed(row, row.encode_s), "GB/s: of float32 values, median of several."
        ),
        "dec": _Column("dec GB/s", lambda row: _speed(row, row.decode_s), ""),
        "enc, short": _Column(
            "enc", lambda row: _speed(row, row.encode_s), "enc, dec: GB/s of float32 values, median of several."
        ),
        "dec, short": _Column("dec", lambda row: _speed(row, row.decode_s), ""),
    }
    kept = ["bits", "law", "sender", "error", "spread", "mean", "chance", "bias", "max", "enc", "dec"]
    if seeds == 1:
        kept = [name for name in kept if name not in ("spread", "mean", "chance", "bias")]
        every["error"] = _Column("error", every["error"].cell, error + several + ".")
    for change in ({}, {"chance": ""}, {"law": "predicted", "sender": ""}, {"max": ""}, {"mean": ""},
                   {"enc": "enc, short", "dec": "dec, short"}, {"spread": ""}):  # fmt: skip
        kept = [change.get(name, name) for name in kept]
        kept = [name for name in kept if name]
        yield tuple(every[name] for name in kept)


def _whole(spec: str) -> str:
    return spec


def _at_commas(spec: str) -> str:
    return spec.replace(",", ",\n  ")


def _at_colon(spec: str) -> str:
    return _at_commas(spec.replace(":", ":\n  ")) if "," in spec else spec


def _bias(row: Row) -> str:
    if row.verdict == "biased" and row.bias_share is not None:
        share = 100 * row.bias_share
        return f"{min(share, 100):.0f} %" if share >= 1 else "< 1 %"
    return row.verdict or "-"


def _speed(row: Row, seconds: float) -> str:
    speed = row.speed(seconds)
    return "-" if speed is None else f"{speed:.2f}" if speed >= 0.1 else f"{speed:.1g}"
