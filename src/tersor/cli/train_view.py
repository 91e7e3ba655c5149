"""What a person sees of a race: a live display in a terminal, plain lines elsewhere, one table at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tersor.evaluate.bed import format_rate
from tersor.evaluate.results import Race, Run, headline
from tersor.evaluate.table import SHORT, remarks, table

PLAIN_WIDTH = 140  # where no terminal says how wide it is
BAR = 24  # letters of the bar towards the target
MAX_LINES = 24  # runs shown live; with more, the ones around the running one
STATES = {
    "waiting": ("dim", "waiting"),
    "running": ("bold cyan", "running"),
    "reached": ("green", "reached"),
    "missed": ("yellow", "not reached"),
    "stopped": ("red", "stopped"),
}


def fold(text: str) -> str:
    """Break a heading into two lines at the space nearest to its middle."""
    spaces = [at for at, letter in enumerate(text) if letter == " "]
    if not spaces:
        return text
    at = min(spaces, key=lambda at: abs(2 * at + 1 - len(text)))
    return f"{text[:at]}\n{text[at + 1 :]}"


def bar(share: float) -> str:
    """How far towards the target, drawn so that it is told without colours too."""
    done = round(BAR * min(1.0, max(0.0, share)))
    return "█" * done + "░" * (BAR - done)


class View:
    """Plain lines; the base of the live display."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextlib.contextmanager
    def live(self, race: Race) -> Iterator[None]:
        """Show the race while it runs."""
        yield

    def listen(self, race: Race, text: str) -> None:
        """Take an event of the race."""
        if text:
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, markup=False)

    def error(self, text: str) -> None:
        """Print what went wrong."""
        self.console.print(Text(f"tersor train: {text}", style="bold red"))

    def table(self, race: Race) -> None:
        """Print the outcome and the table."""
        self.console.print()
        self.console.print(Text(headline(race), style="bold"))
        wide = self._wide(race)
        needed = Measurement.get(self.console, self.console.options.update(max_width=1000), wide).maximum
        self.console.print(wide if needed <= self.console.width else self._narrow(race))
        self.say(" ".join(["The parts of a step are in milliseconds.", *remarks(race)]))

    @staticmethod
    def _wide(race: Race) -> Table:
        """A line a codec."""
        head, body = table(race)
        shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for index, name in enumerate(head):
            shown.add_column(fold(SHORT.get(name, name)), justify="left" if index == 0 else "right", no_wrap=True)
        for line in body:
            shown.add_row(*line)
        return shown

    @staticmethod
    def _narrow(race: Race) -> Table:
        """A column a codec."""
        head, body = table(race)
        shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        shown.add_column(head[0])
        for line in body:
            shown.add_column(line[0], justify="right")
        for index, name in enumerate(head[1:], 1):
            shown.add_row(name, *(line[index] for line in body))
        return shown

    def files(self, files: list[Path]) -> None:
        """Name the files that were written."""
        self.say(f"Report: {files[0]}   beside it: {', '.join(path.name for path in files[1:])}")


class LiveView(View):
    """A display that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._race: Race | None = None
        self._line = ""
        self._begun = 0.0

    @contextlib.contextmanager
    def live(self, race: Race) -> Iterator[None]:
        """Show the race while it runs; the display goes when it ends, the table takes its place."""
        self._race, self._begun = race, time.monotonic()
        self.say(race.bed.describe())
        with Live(get_renderable=self._draw, console=self.console, refresh_per_second=5, transient=True) as live:
            self._live = live
            yield
        self._live = None

    def listen(self, race: Race, text: str) -> None:
        """Keep the latest line; the display draws itself."""
        self._line = text or self._line

    def _draw(self) -> RenderableType:
        race = self._race
        assert race is not None
        title = (
            f"{race.workload}, {race.workers} workers, {format_rate(race.bed.rate)}, target {100 * race.target:g} %, "
            f"{time.monotonic() - self._begun:.0f} s"
        )
        shown = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("codec", "seed"):
            shown.add_column(name)
        for name in ("step", "seconds", "accuracy"):
            shown.add_column(name, justify="right")
        shown.add_column("", no_wrap=True)
        shown.add_column("state")
        for run in self._window(race.runs):
            shown.add_row(*self._row(run, race.target))
        return Group(shown, Text(self._line.splitlines()[0][: self.console.width] if self._line else "", style="dim"))

    @staticmethod
    def _window(runs: list[Run]) -> list[Run]:
        """The runs that fit, around the one that runs."""
        at = next((i for i, run in enumerate(runs) if run.state == "running"), 0)
        start = max(0, min(at - MAX_LINES // 2, len(runs) - MAX_LINES))
        return runs[start : start + MAX_LINES]

    @staticmethod
    def _row(run: Run, target: float) -> list[RenderableType]:
        style, word = STATES[run.state]
        if run.reached_seconds is not None:
            word = f"target at {run.reached_seconds:.1f} s" + (", goes on" if run.state == "running" else "")
        last = run.points[-1].accuracy if run.points else 0.0
        return [
            run.codec,
            str(run.seed),
            str(run.steps) if run.steps else "",
            f"{run.seconds:.1f}" if run.steps else "",
            f"{100 * last:.1f} %" if run.points else "",
            bar(last / target),
            Text(word, style=style),
        ]


def open_view() -> View:
    """The display that suits where standard output goes."""
    console = Console()
    if console.is_terminal:
        return LiveView(console)
    return View(Console(width=PLAIN_WIDTH))
