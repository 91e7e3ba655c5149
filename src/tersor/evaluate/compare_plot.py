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
_MARKERS = ("s", "^", "D", "v", "P", "X", "o")
_MAIN, _MAIN_COLOUR = "eden", "#0072B2"
_FLOOR = 1e-10
_FEW = 16  # up to so many points every one is named, else the best of each size and what stands alone
_CLEAR = 0.95
_FAR = 10.0  # bits: plain formats beyond are told in a corner where many others would be squeezed for them


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
    drawn = [row for row in rows if not row.problem and row.vnmse > _FLOOR]
    near = [row for row in drawn if row.bits <= _FAR]
    shown = near if len(near) > _FEW else drawn
    figure = Figure(figsize=(10, 5.8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    families: dict[str, dict[str, list[Row]]] = {}  # a line each: what differs by its first value only
    for row in sorted(shown, key=lambda row: row.bits):
        families.setdefault(row.codec.split(":")[0].split(",")[0], {}).setdefault(_line(row.codec), []).append(row)
    left, right = _limits(shown)
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    low, high = (pick([row.vnmse for row in shown] or [1e-5, 1.0]) for pick in (min, max))
    axes.set_ylim(low / 3, max(high, 1.0) * 3)
    _bound(axes, left, right, low / 3)
    labels: list[tuple[bool, Row, str, str]] = []  # first the important ones
    best = _best(shown)
    others = 0
    for name, lines in sorted(families.items(), key=lambda item: (item[0] != _MAIN, -sum(map(len, item[1].values())))):
        main = name == _MAIN
        colour = _MAIN_COLOUR if main else _COLOURS[others % len(_COLOURS)]
        marker = "o" if main else _MARKERS[others % len(_MARKERS)]
        others += not main
        plain = name if name in lines else next(iter(lines))
        for line, members in sorted(lines.items(), key=lambda item: item[0] != plain):
            axes.plot(
                [r.bits for r in members],
                [r.vnmse for r in members],
                "-" if line == plain else "--",
                marker=marker,
                markerfacecolor=colour if line == plain else "white",
                color=colour,
                label=name if line == plain else f"_{line}",
                lw=2.4 if main and line == plain else 1.1,
                ms=7 if main else 5.5,
                zorder=5 if main else 3,
                alpha=1.0 if main else 0.85,
            )
            for row in members:
                alone = sum(map(len, lines.values())) == 1
                if row.codec in best or alone or len(shown) <= _FEW or (main and line == plain):
                    labels.append((row.codec not in best, row, row.codec, colour))
    axes.set_xlabel("bits a coordinate, everything counted")
    axes.set_ylabel(r"vNMSE  $\|\hat{x} - x\|^2 / \|x\|^2$")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if families:
        hollow = any(len(lines) > 1 for lines in families.values())
        axes.legend(
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            fontsize=8.5,
            title="hollow, dashed:\nother settings" if hollow else None,
            title_fontsize=8,
        )
    far = [f"{row.codec}: {row.bits:.3g} bits, {row.vnmse:.1e}" for row in drawn if row not in shown]
    if far:
        axes.text(0.99, 0.99, "beyond:\n" + "\n".join(far), transform=axes.transAxes, ha="right", va="top", fontsize=8)
    figure.draw_without_rendering()  # the layout decides where labels collide
    _label(axes, sorted(labels, key=lambda item: (item[0], item[1].bits)), shown)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _best(rows: Sequence[Row]) -> set[str]:
    """Return the codecs that err clearly less than all smaller ones, and less than sending nothing."""
    found: set[str] = set()
    least = 1.0
    for row in sorted(rows, key=lambda row: (round(row.bits, 2), row.codec.split(":")[0] != _MAIN, row.vnmse)):
        if row.vnmse < _CLEAR * least:
            found.add(row.codec)
            least = row.vnmse
    return found


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    bits = [row.bits for row in rows] or [1.0, 8.0]
    return max(0.0, min(bits) - 0.6), max(bits) * 1.04 + 0.6


def _bound(axes: Axes, left: float, right: float, floor: float) -> None:
    """The rate-distortion function of N(0, 1), named on the line, and the error of an estimate of 0."""
    grid = np.linspace(left, right, 200)
    axes.plot(grid, 4.0**-grid, "--", color="black", lw=1.1, zorder=2)
    at = min(left + 0.42 * (right - left), -np.log(floor) / np.log(4) * 0.62)
    axes.annotate(
        "rate-distortion bound: no code\nfor normal values lies below $2^{-2R}$",
        (at, 4.0**-at),
        xytext=(-12, -26),
        textcoords="offset points",
        fontsize=8.5,
        ha="right",
    )
    axes.axhline(1.0, color="black", lw=0.8, ls=":", zorder=2)
    axes.annotate("sending nothing", (right, 1.0), xytext=(-2, 3), textcoords="offset points", fontsize=8.5, ha="right")


def _label(axes: Axes, labels: Sequence[tuple[bool, Row, str, str]], rows: Sequence[Row]) -> None:
    """Name points in order, to the right or left, or not at all where a name would hide another or a point."""
    from matplotlib.patheffects import withStroke

    point = axes.figure.dpi / 72
    taken: list[tuple[float, float, float, float]] = []  # boxes: left, right, bottom, top
    for row in rows:
        x, y = axes.transData.transform((row.bits, row.vnmse))
        taken.append((x - 3 * point, x + 3 * point, y - 3 * point, y + 3 * point))
    for _, row, text, colour in labels:
        x, y = axes.transData.transform((row.bits, row.vnmse))
        width = 5.0 * len(text)
        for dx, dy in ((7, 3), (7, -9), (-7 - width, -9), (-7 - width, 3), (-7 - width, -18), (7, -18)):
            box = (x + dx * point, x + (dx + width) * point, y + (dy - 1) * point, y + (dy + 7) * point)
            inside = box[0] >= axes.bbox.x0 and box[1] <= axes.bbox.x1 + 60 and box[2] >= axes.bbox.y0
            if inside and all(box[0] > b or box[1] < a or box[2] > d or box[3] < c for a, b, c, d in taken):
                taken.append(box)
                made = axes.annotate(
                    text,
                    (row.bits, row.vnmse),
                    xytext=(dx, dy),
                    textcoords="offset points",
                    fontsize=8,
                    color=colour,
                    zorder=6,
                )
                made.set_path_effects([withStroke(linewidth=2, foreground="white")])
                break


def _line(spec: str) -> str:
    """The spec without its first value, so that widths of one codec are joined by a line."""
    name, colon, rest = spec.partition(":")
    first, comma, more = rest.partition(",")
    if "=" in first or not first[:1].isdigit():  # a first value that is a word is a setting
        return spec
    return name + (comma + more if colon else "")
