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

# Okabe and Ito's palette, told apart by colour-blind readers too; markers tell apart what shares a colour.
_COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MAIN, _MAIN_COLOUR = "eden", "#0072B2"
_FLOOR = 1e-10


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
    shown = [row for row in rows if not row.problem and row.vnmse > _FLOOR]
    figure = Figure(figsize=(9, 5.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    families: dict[str, list[Row]] = {}
    for row in sorted(shown, key=lambda row: row.bits):
        families.setdefault(_family(row.codec), []).append(row)
    left, right = _limits(shown)
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    low = min([row.vnmse for row in shown], default=1e-5)
    axes.set_ylim(low / 3, max([row.vnmse for row in shown], default=1.0) * 3)
    _bound(axes, left, right, low / 3)
    labels: list[tuple[float, float, str, str]] = []
    others = 0
    for name, members in sorted(families.items(), key=lambda item: (item[0] != _MAIN, -len(item[1]))):
        main = name == _MAIN
        colour = _MAIN_COLOUR if main else _COLOURS[others % len(_COLOURS)]
        marker = "o" if main else _MARKERS[others % len(_MARKERS)]
        others += not main
        axes.plot(
            [r.bits for r in members],
            [r.vnmse for r in members],
            marker=marker,
            color=colour,
            label=name,
            lw=2.4 if main else 1.2,
            ms=7 if main else 5.5,
            zorder=5 if main else 3,
            alpha=1.0 if main else 0.85,
        )
        labels += [(r.bits, r.vnmse, _short(r.codec, len(members)), colour) for r in members]
    axes.set_xlabel("bits a coordinate, everything counted")
    axes.set_ylabel(r"vNMSE  $\|\hat{x} - x\|^2 / \|x\|^2$")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if families:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)
    figure.draw_without_rendering()  # the layout decides where labels collide
    _label(axes, labels)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    bits = [row.bits for row in rows] or [1.0, 8.0]
    return max(0.0, min(bits) - 0.6), max(bits) * 1.04 + 0.6


def _bound(axes: Axes, left: float, right: float, floor: float) -> None:
    """The rate-distortion function of N(0, 1), named on the line."""
    grid = np.linspace(left, right, 200)
    axes.plot(grid, 4.0**-grid, "--", color="black", lw=1.1, zorder=2)
    at = min(left + 0.42 * (right - left), -np.log(floor) / np.log(4) * 0.62)
    axes.annotate(
        "no code for normal values\nlies below $2^{-2R}$",
        (at, 4.0**-at),
        xytext=(-12, -26),
        textcoords="offset points",
        fontsize=8.5,
        ha="right",
    )


def _label(axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Name the points, above or below, or not at all where names would overlap."""
    from matplotlib.patheffects import withStroke

    taken: list[tuple[float, float, float]] = []
    point = axes.figure.dpi / 72
    for bits, error, text, colour in labels:
        x, y = axes.transData.transform((bits, error))
        for dx, dy in ((7, 3), (7, -11)):
            begin, end, height = x + dx * point, x + (dx + 5.2 * len(text)) * point, y + dy * point
            if all(begin > e or end < b or abs(height - h) > 10 * point for b, e, h in taken):
                taken.append((begin, end, height))
                made = axes.annotate(
                    text,
                    (bits, error),
                    xytext=(dx, dy),
                    textcoords="offset points",
                    fontsize=8.5,
                    color=colour,
                    zorder=6,
                )
                made.set_path_effects([withStroke(linewidth=2, foreground="white")])
                break


def _short(spec: str, members: int) -> str:
    """The whole spec for a point by itself; on a line the first value is enough."""
    return spec if members == 1 else spec.partition(":")[2].partition(",")[0] or spec


def _family(spec: str) -> str:
    """The spec without its first value, so that widths of one codec are joined by a line."""
    name, colon, rest = spec.partition(":")
    _, comma, more = rest.partition(",")
    return name + (comma + more if colon else "")
