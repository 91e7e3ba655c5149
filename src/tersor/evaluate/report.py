"""The report of a race: one HTML page that needs nothing else, its pictures, and results.json."""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tersor.errors import TersorError
from tersor.evaluate.bed import format_rate
from tersor.evaluate.plots import draw_all
from tersor.evaluate.results import Race, headline, json_text
from tersor.evaluate.table import explain, facts, remarks, run_table, table

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem }
h2 { font-size: 1.2rem; margin-top: 2.2rem }
.lead { font-size: 1.15rem }
.note { color: #555; font-size: .9rem }
.problem { background: #fff3cd; border-left: 4px solid #e0a800; padding: .6rem 1rem; white-space: pre-wrap }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .88rem }
th, td { padding: .35rem .5rem; text-align: right; border-bottom: 1px solid #ddd }
td { white-space: nowrap }
th { vertical-align: bottom; font-weight: 600 }
th:first-child, td:first-child { text-align: left }
img { max-width: 100%; height: auto; margin: .6rem 0 }
dt { font-weight: 600 }
dd { margin: 0 0 .5rem 1rem }
pre { background: #f5f5f5; padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: .88rem }
"""

ALT = {
    "accuracy-time.png": "Test accuracy against seconds of training, one line a codec",
    "accuracy-bytes.png": "Test accuracy against megabytes sent by one worker, one line a codec",
    "step-time.png": "Milliseconds of a step, split into compute, encode and decode, and wire",
}


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(text)}</th>" for text in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>\n" for line in body)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead>\n<tbody>{lines}</tbody></table></div>'


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{html.escape(term)}</dt><dd>{html.escape(text)}</dd>\n" for term, text in pairs)
    return f"<dl>{items}</dl>"


def _image(name: str, data: bytes) -> str:
    return f'<img alt="{ALT[name]}" src="data:image/png;base64,{base64.b64encode(data).decode("ascii")}">\n'


def to_html(race: Race, pictures: dict[str, bytes]) -> str:
    """Write the page; the pictures are in it, nothing is loaded from anywhere."""
    problem = f'<p class="problem">Not complete: {html.escape(race.problem)}</p>' if race.problem else ""
    title = html.escape(f"{race.workload} over {format_rate(race.bed.rate)}: time to {100 * race.target:g} %")
    seeds = f"{len(race.seeds)} seed{'s' if len(race.seeds) > 1 else ''}"
    images = "".join(_image(name, data) for name, data in pictures.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tersor train: {title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p class="note">tersor train, {html.escape(race.started)}</p>
{problem}<p class="lead">{html.escape(headline(race))}</p>
{_table(*table(race))}
<p class="note">{race.workers} workers, {seeds}. {html.escape(race.bed.describe())}
{html.escape(" ".join(remarks(race)))}</p>
{images}<h2>What was measured</h2>{_list(explain(race))}
<h2>Each run</h2>{_table(*run_table(race))}
<h2>Where</h2>{_list(facts(race))}
<h2>To repeat it</h2><pre>{html.escape(race.command)}</pre>
<p class="note">All series are in results.json beside this page.</p>
</body></html>
"""


def check_out(out: Path) -> None:
    """Raise TersorError if results could not be written to `out`; creates nothing."""
    at = out.absolute()
    while not at.exists():
        at = at.parent
    try:
        with tempfile.TemporaryFile(dir=at):  # has no name: nothing to be left behind
            pass
    except OSError as error:
        raise TersorError(f"cannot write results to {out}: {at}: {error.strerror}") from error


def write_all(race: Race, out: Path) -> list[Path]:
    """Write results.json, the pictures and report.html; each appears whole or not at all.

    Returns
    -------
    list[Path]
        The files, the report first.
    """
    try:
        pictures = draw_all(race)
    except ModuleNotFoundError:  # matplotlib is an extra: the report is worth having without pictures
        pictures = {}
    contents = {
        "report.html": to_html(race, pictures).encode(),
        "results.json": json_text(race).encode(),
        **pictures,
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        part = out / f".{name}.part"
        try:
            part.write_bytes(data)
            part.replace(out / name)
        finally:
            part.unlink(missing_ok=True)
    return [out / name for name in contents]
