"""Pictures of a race as PNG bytes: accuracy against time, accuracy against bytes, the split of a step."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tersor.evaluate.results import BASELINE, WINDOW, Race, Run, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by colour-blind readers too; the baseline is grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
PARTS = (("compute_s", "compute", "#9ecae1"), ("codec_s", "encode + decode", "#e6550d"), ("wire_s", "wire", "#756bb1"))


def colour(race: Race, codec: str) -> str:
    """One colour a codec, the same in every picture."""
    if codec == BASELINE:
        return GREY
    others = [name for name in race.codecs if name != BASELINE]
    return COLOURS[others.index(codec) % len(COLOURS)]


def draw_all(race: Race) -> dict[str, bytes]:
    """Draw every picture of a race that has data.

    Returns
    -------
    dict[str, bytes]
        File name to PNG.
    """
    if not any(run.points for run in race.runs):
        return {}
    return {
        "accuracy-time.png": _curves(race, "time"),
        "accuracy-bytes.png": _curves(race, "bytes"),
        "step-time.png": _split(race),
    }


def _figure(height: float) -> tuple[Figure, Axes]:
    """An empty picture that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def smooth(run: Run) -> list[float]:
    """Mean of the last three evaluations at each one, in percent: what the target is compared with."""
    values = [100 * point.accuracy for point in run.points]
    return [sum(values[max(0, i + 1 - WINDOW) : i + 1]) / min(WINDOW, i + 1) for i in range(len(values))]


def _curves(race: Race, against: str) -> bytes:
    """Accuracy against time or bytes: dots are evaluations, lines their running mean."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure, axes = _figure(4.6)
    low = 100.0
    for run in race.runs:
        if not run.points:
            continue
        shade = colour(race, run.codec)
        x = [point.seconds if against == "time" else point.sent / 1e6 for point in run.points]
        y = smooth(run)
        low = min(low, *y)
        first = run.seed == race.seeds[0]
        axes.plot(x, [100 * point.accuracy for point in run.points], ".", color=shade, alpha=0.35, markersize=4)
        axes.plot(x, y, color=shade, linewidth=2, alpha=0.9, label=run.codec if first else None)
        at = next((i for i, point in enumerate(run.points) if point.step == run.reached_step), None)
        if at is not None:
            axes.plot(x[at], y[at], "o", color=shade, markersize=8, markeredgecolor="white", zorder=5)
    axes.axhline(100 * race.target, color="black", linewidth=0.8, linestyle="--")
    axes.annotate(
        f"target {100 * race.target:g} %",
        (1.0, 100 * race.target),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=9,
    )
    axes.set_ylim(max(0.0, min(low, 80.0) - 3), 101)
    axes.set_ylabel("test accuracy, %")
    if against == "time":
        axes.set_xlim(left=0)
        axes.set_xlabel(f"seconds of training ({race.workers} workers, link {race.link})")
    else:
        axes.set_xlabel("megabytes that one worker has sent (log scale)")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.02))
    axes.set_title(f"Accuracy against {'time' if against == 'time' else 'bytes sent'}", loc="left", fontsize=12)
    axes.set_title(f"dots: evaluations; lines: mean of the last {WINDOW}", loc="right", fontsize=9, color=GREY)
    return _png(figure)


def _split(race: Race) -> bytes:
    """One bar a codec: milliseconds of a step, split."""
    table = [row for row in rows(race) if row.step_s is not None]
    figure, axes = _figure(1.3 + 0.55 * len(table))
    widest = max(row.step_s or 0.0 for row in table) * 1e3
    left = [0.0] * len(table)
    for name, label, shade in PARTS:
        width = [1e3 * (getattr(row, name) or 0.0) for row in table]
        axes.barh(range(len(table)), width, left=left, color=shade, label=label, height=0.62)
        left = [a + b for a, b in zip(left, width, strict=True)]
    for index, row in enumerate(table):
        text = f"{1e3 * (row.step_s or 0.0):.0f} ms"
        axes.text(left[index] + widest * 0.01, index, text, va="center", fontsize=9)
    axes.set_yticks(range(len(table)), [row.codec for row in table])
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.12)
    axes.set_xlabel("milliseconds a step")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=9)
    axes.set_title("Where the time of a step goes", loc="left", fontsize=12)
    return _png(figure)
