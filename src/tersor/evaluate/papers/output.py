"""A reproduction on disk: its lines as CSV, its figures as PNG."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Sequence

from tersor.errors import TersorError
from tersor.evaluate.papers.base import Figure, Line

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def to_csv(lines: Sequence[Line]) -> str:
    """Return lines as CSV with a header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(Line("", "", "", 1.0, 1.0).to_dict()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(line.to_dict() for line in lines)
    return buffer.getvalue()


def draw(figure: Figure, source: str) -> bytes:
    """Draw a figure: measurements as points on a line, references dashed.

    Returns
    -------
    bytes
        A PNG.

    Raises
    ------
    TersorError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.ticker import FuncFormatter, NullFormatter
    except ImportError as error:
        raise TersorError("pictures need matplotlib: pip install 'tersor[plot]'") from error
    canvas = Canvas(figsize=(7.5, 4.8), dpi=130, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    measured = references = 0
    for curve in figure.curves:
        if curve.reference:
            shade = _COLOURS[references % len(_COLOURS)] if all(c.reference for c in figure.curves) else "#555555"
            style = ("--", ":", "-.")[references % 3] if shade == "#555555" else "-"
            mark = ("*" if len(curve.x) == 1 else "") if shade == "#555555" else _MARKERS[references % len(_MARKERS)]
            axes.plot(curve.x, curve.y, style, marker=mark, color=shade, lw=1.2, label=curve.label, zorder=2)
            references += 1
        else:
            colour, marker = _COLOURS[measured % len(_COLOURS)], _MARKERS[measured % len(_MARKERS)]
            axes.plot(curve.x, curve.y, marker=marker, color=colour, lw=1.6, ms=6, label=curve.label, zorder=3)
            measured += 1
    if figure.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        ticks = sorted({x for curve in figure.curves for x in curve.x})
        axes.set_xticks(ticks, minor=False)
        axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    if figure.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(figure.x)
    axes.set_ylabel(figure.y)
    axes.set_title(figure.title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9, ncols=2 if len(figure.curves) > 5 else 1)
    canvas.supxlabel("\n".join(textwrap.wrap(source, 125)), x=0.01, ha="left", fontsize=7, color="#555555")
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png")
    return buffer.getvalue()


def _tick(x: float, _: int) -> str:
    power = math.log2(x)
    return f"$2^{{{power:.0f}}}$" if x >= 1024 and power == round(power) else f"{x:g}"
