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
    """The columns of a table after the codec's name, and how long a line of a name may be."""

    columns: tuple[_Column, ...]
    room: int

    def table(self, rows: Sequence[Row]) -> Table:
        """Return the table."""
        made = show.table("codec", *(column.head for column in self.columns))
        for row in rows:
            name = broken(row.codec, self.room)
            if row.problem:
                made.add_row(name, "cannot", style="yellow")
            else:
                made.add_row(name, *(column.cell(row) for column in self.columns))
        if any(row.copy_s for row in rows):
            copy = _copy(rows)
            made.add_row("memcpy", "32.000", *[""] * (len(self.columns) - 3), copy, copy, style="dim")
        return made

    def legend(self) -> str:
        """Say what the columns are."""
        return " ".join(dict.fromkeys(column.words for column in self.columns if column.words))


def layout(tables: Sequence[Sequence[Row]], seeds: int, width: int) -> Layout:
    """Choose the columns for several tables: the most that fit beside whole names.

    Names are broken, where a field begins, only in a narrow terminal where leaving out columns does not help.
    """
    names = [row.codec for rows in tables for row in rows]
    whole = max(map(len, [*names, "memcpy"]))
    parts = max([len(line) for name in names for line in broken(name, 0).split("\n")] + [len("memcpy")])
    choices = [(columns, width - _taken(columns, tables)) for columns in _choices(seeds)]
    for least in (whole,) if width >= _NARROW else (whole, parts):
        for columns, room in choices:
            if room >= least:
                return Layout(columns, room)
    return Layout(*choices[-1])


def broken(spec: str, room: int) -> str:
    """Break a spec at commas into lines that are no longer than `room` if their fields allow it.

    Examples
    --------
    >>> broken("eden:4,scale=biased", 19), broken("eden:4,scale=biased", 18)
    ('eden:4,scale=biased', 'eden:4,\\n  scale=biased')
    """
    first, *rest = spec.split(",")
    lines = [first]
    for field in rest:
        lines[-1] += ","
        if len(lines[-1]) + len(field) + (field is not rest[-1]) <= room:
            lines[-1] += field
        else:
            lines.append(f"  {field}")
    return "\n".join(lines)


def _taken(columns: Sequence[_Column], tables: Sequence[Sequence[Row]]) -> int:
    """Return the width of all columns but the first, with the gaps before them."""
    rows = [row for table in tables for row in table if not row.problem]
    copies = max((len(_copy(table)) for table in tables if any(row.copy_s for row in table)), default=0)
    widths = [max([len(column.head), *(len(column.cell(row)) for row in rows)]) for column in columns]
    widths[0] = max(widths[0], len("cannot"), len("32.000"))
    return sum(widths[:-2]) + sum(max(width, copies) for width in widths[-2:]) + _GAP * len(columns)


def _choices(seeds: int) -> Iterator[tuple[_Column, ...]]:
    """Sets of columns, fullest first: what is left out first is what the others tell too."""
    several = f", mean over {seeds} seeds" if seeds > 1 else ""
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
        "error": _Column(
            "error", lambda row: show.number(row.vnmse), f"error: vNMSE, ||x_hat - x||^2 / ||x||^2{several}."
        ),
        "spread": _Column(
            "+-", lambda row: "0" if not row.spread else f"{row.spread:.0e}", "+-: its standard deviation over seeds."
        ),
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
    for change in ({}, {"chance": ""}, {"law": "predicted", "sender": ""}, {"max": ""}, {"mean": ""},
                   {"enc": "enc, short", "dec": "dec, short"}, {"spread": ""}):  # fmt: skip
        kept = [change.get(name, name) for name in kept]
        kept = [name for name in kept if name]
        yield tuple(every[name] for name in kept)


def _bias(row: Row) -> str:
    if row.verdict == "biased" and row.bias_share is not None:
        share = 100 * row.bias_share
        return f"{min(share, 100):.0f} %" if share >= 1 else "< 1 %"
    return row.verdict or "-"


def _speed(row: Row, seconds: float) -> str:
    speed = row.speed(seconds)
    return "-" if speed is None else f"{speed:.2f}" if speed >= 0.1 else f"{speed:.1g}"


def _copy(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if row.copy_s]
    return _speed(timed[0], statistics.median(row.copy_s for row in timed))
