"""Picture of a comparison: error against bits a coordinate, with the bound that no coder of normal values passes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tersor.errors import TersorError
from tersor.evaluate.compare import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by colour-blind readers too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")


def draw(rows: Sequence[Row], title: str) -> bytes:
    """Draw codecs' errors against their bits.

    Parameters
    ----------
    rows : sequence of Row
        Those with an error above zero are drawn.
    title : str
        Of the picture: what was compressed.

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
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TersorError("pictures need matplotlib: pip install 'tersor[plot]'") from error
    shown = [row for row in rows if not row.problem and row.vnmse > 0]
    figure = Figure(figsize=(8, 5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    families: dict[str, list[Row]] = {}
    for row in shown:
        families.setdefault(_family(row.codec), []).append(row)
    for i, (name, members) in enumerate(families.items()):
        members.sort(key=lambda row: row.bits)
        colour = _COLOURS[i % len(_COLOURS)]
        axes.plot([r.bits for r in members], [r.vnmse for r in members], "o-", color=colour, label=name, lw=1.6, ms=5)
    right = max([row.bits for row in shown], default=8.0) * 1.12
    left = min([row.bits for row in shown], default=0.0)
    grid = np.linspace(max(0.0, left - 1), right, 200)
    axes.plot(grid, 4.0**-grid, "--", color="black", lw=1, label=r"bound for normal values, $4^{-b}$")
    axes.set_yscale("log")
    axes.set_xlim(max(0.0, left - 1), right)
    axes.set_xlabel("bits a coordinate, everything counted")
    axes.set_ylabel(r"vNMSE  $\|\hat{x} - x\|^2 / \|x\|^2$")
    axes.set_title(title, loc="left", fontsize=11)
    _label(axes, families)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _label(axes: Axes, families: dict[str, list[Row]]) -> None:
    """Name the points, above or below, or not at all where names would overlap; on a line the first value is enough."""
    taken: list[tuple[float, float, float]] = []
    point = axes.figure.dpi / 72
    for i, members in enumerate(families.values()):
        for row in members:
            text = row.codec if len(members) == 1 else row.codec.partition(":")[2].partition(",")[0] or row.codec
            x, y = axes.transData.transform((row.bits, row.vnmse))
            for dy in (4, -11):
                begin, end, height = x, x + (6 + 5.2 * len(text)) * point, y + dy * point
                if all(begin > e or end < b or abs(height - h) > 10 * point for b, e, h in taken):
                    taken.append((begin, end, height))
                    axes.annotate(
                        text,
                        (row.bits, row.vnmse),
                        xytext=(6, dy),
                        textcoords="offset points",
                        fontsize=8.5,
                        color=_COLOURS[i % len(_COLOURS)],
                    )
                    break


def _family(spec: str) -> str:
    """The spec without its first value, so that widths of one codec are joined by a line."""
    name, colon, rest = spec.partition(":")
    _, comma, more = rest.partition(",")
    return name + (comma + more if colon else "")
