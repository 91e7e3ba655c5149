"""`tersor paper`: published numbers beside ours; without an id, the list of what can be reproduced."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tersor.cli import show
from tersor.errors import TersorError
from tersor.evaluate.papers import DEFAULT, FULL, PAPERS, Figure, Line, Paper, get_paper
from tersor.evaluate.papers.output import draw, to_csv
from tersor.evaluate.writers import replacing

_WIDTHS = (12, 10, 6, 8, 3)  # of the columns after the first
_STYLES = {"ok": "green", "off": "bold red"}


def paper(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Which; none prints the list.")] = None,
    full: Annotated[
        bool, typer.Option("--full", metavar="", help="More draws, and the columns of 2^20 coordinates.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write ID.csv and the pictures there; made if need be.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    """Reproduce a paper's numbers: theirs, ours, the ratio. Exit code 1 if one is off."""
    if id is None:
        if out is not None or full:
            raise TersorError(f"name a paper: {', '.join(PAPERS)}")
        _print_list(json)
        return
    chosen = get_paper(id)
    if out is not None:
        if out.exists() and not out.is_dir():
            raise TersorError(f"{out} is not a directory")
        if find_spec("matplotlib") is None:
            raise TersorError("--out draws, which needs matplotlib: pip install 'tersor[plot]'")
    lines: list[Line] = []
    figures: list[Figure] = []
    begun = time.perf_counter()
    with show.progress(f"{chosen.id}: about {chosen.full_seconds if full else chosen.seconds} s", 1) as step:
        for item in chosen.run(FULL if full else DEFAULT):
            if isinstance(item, Line):
                lines.append(item)
                step(f"{item.case} {item.what}", 0)
            else:
                figures.append(item)
    seconds = time.perf_counter() - begun
    off = [line for line in lines if line.verdict == "off"]
    if json:
        about = {"id": chosen.id, "source": chosen.source, "shows": chosen.shows, "seconds": round(seconds, 1)}
        show.print_json(about | {"ok": not off, "rows": [line.to_dict() for line in lines]})
    else:
        _print(chosen, lines, seconds)
    if out is not None:
        written = _write(out, chosen, lines, figures)
        if not json:
            show.console().print(Text(f"Written: {', '.join(map(str, written))}"))
    if off:
        typer.echo(f"tersor paper: {show.plural(len(off), 'row')} of {len(lines)} off", err=True)
        raise typer.Exit(1)


def _print_list(json: bool) -> None:
    if json:
        names = ("id", "title", "authors", "venue", "arxiv", "shows", "seconds", "full_seconds")
        show.print_json([{name: getattr(p, name) for name in names} for p in PAPERS.values()])
        return
    made = show.table("id", "what", "takes", "--full", left=2)
    for p in PAPERS.values():
        text = Text(f"{p.title} ({p.venue}, arXiv {p.arxiv})\n")
        text.append(p.shows, "dim")
        made.add_row(Text(p.id, "bold"), text, f"{p.seconds} s", f"{p.full_seconds} s")
        made.add_row("", "", "", "")
    out = show.console()
    out.print(made)
    out.print(Text("tersor paper ID runs one; --out DIR writes its table and pictures.", "dim"))


def _print(chosen: Paper, lines: Sequence[Line], seconds: float) -> None:
    out = show.console()
    out.print(Text(chosen.title, "bold"))
    out.print(Text(f"{chosen.authors}. {chosen.venue}, arXiv {chosen.arxiv}"))
    out.print(Text(f"Shows: {chosen.shows}.\n"))
    _print_table(out, lines)
    out.print()
    counts = {verdict: sum(line.verdict == verdict for line in lines) for verdict in _STYLES}
    out.print(Text(f"{counts['ok']} ok, {counts['off']} off. Took {seconds:.0f} s.", "bold"))
    out.print(
        Text(
            "notes: the section of the project's working notes on these papers with the number; PAPERS.md says what "
            "was read and what was recomputed. <=, >=: theirs is a bound. within: the difference that is accepted.",
            "dim",
        )
    )


def _print_table(out: Console, lines: Sequence[Line]) -> None:
    """Print groups of lines under their words; all groups have the same columns."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.what, line.place), []).append(line)
    first = min(max((len(line.case) for line in lines), default=0) + 2, out.width - sum(_WIDTHS) - 7)
    out.print(_table(first, ("", "theirs", "ours", "ratio", "within", "")))
    for (what, place), members in groups.items():
        title = Text(what)
        title.append(f"  [{place}]", "dim")
        out.print(title)
        made = _table(first)
        for line in members:
            case = line.case if len(line.case) <= first - 2 else line.case.replace(",scale", ",\nscale")
            made.add_row(Padding(case, (0, 0, 0, 2)), *_cells(line), Text(line.verdict, _STYLES[line.verdict]))
        out.print(made)


def _table(first: int, head: Sequence[str] = ("",) * 6) -> Table:
    made = show.table(*head)
    made.show_header = any(head)
    for column, width in zip(made.columns, (first, *_WIDTHS), strict=True):
        column.width = width
    return made


def _cells(line: Line) -> list[str]:
    sign = {"": "", "at most": "<= ", "at least": ">= "}[line.bound]
    slack = line.tolerance + (line.absolute / abs(line.theirs) if line.theirs else 0.0)
    within = f"{100 * slack:.2g} %" if line.theirs else show.number(line.absolute, 1)
    return [
        sign + show.number(line.theirs, 4),
        show.number(line.ours, 4),
        "-" if line.ratio is None else f"{line.ratio:.3f}",
        within if slack >= 1e-5 or not line.theirs else "",
    ]


def _write(out: Path, chosen: Paper, lines: Sequence[Line], figures: Sequence[Figure]) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    files = {out / f"{chosen.id}.csv": to_csv(lines).encode()}
    files |= {out / f"{figure.name}.png": draw(figure, chosen.source) for figure in figures}
    for path, data in files.items():
        with replacing(path) as partial:
            partial.write_bytes(data)
    return list(files)
