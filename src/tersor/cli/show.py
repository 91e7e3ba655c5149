"""What a person sees: consoles, tables and numbers, the same in every command."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

PLAIN_WIDTH = 120  # where no terminal says how wide it is


def console(stderr: bool = False) -> Console:
    """Return a console for stdout or stderr, wide enough for tables when it is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False)


def table(*columns: str, left: int = 1, **options: Any) -> Table:
    """Return a table; the first `left` columns are aligned left, the others right."""
    made = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False, **options
    )
    for i, name in enumerate(columns):
        made.add_column(name, justify="left" if i < left else "right", overflow="fold", no_wrap=i >= left)
    return made


def print_json(value: Any) -> None:
    """Print JSON, with null for what JSON has no number for."""
    print(json.dumps(_finite(value), indent=2))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | None, digits: int = 3) -> str:
    """Write a number in a few digits; a dash for None.

    Examples
    --------
    >>> number(0.0095866), number(None), number(0.0), number(1.9e-8)
    ('0.00959', '-', '0', '1.90e-08')
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:#.{digits}g}".rstrip(".") if 1e-4 <= abs(value) < 1e4 else f"{value:.{digits - 1}e}"


def count(n: int) -> str:
    """Write a whole number with commas."""
    return f"{n:,}"


def shape(sizes: tuple[int, ...]) -> str:
    """Write a shape; a scalar has none."""
    return " x ".join(map(str, sizes)) or "scalar"


def size(nbytes: int) -> str:
    """Write a number of bytes in three digits.

    Examples
    --------
    >>> size(999), size(4_100), size(5 * 2**30)
    ('999 B', '4.00 KiB', '5.00 GiB')
    """
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{nbytes} B" if unit == "B" else f"{value:.3g} {unit}" if value >= 100 else f"{value:#.3g} {unit}"


def bits(nbytes: int, size: int) -> float | None:
    """Return the bits a coordinate; None where there is none."""
    return 8 * nbytes / size if size else None


def plural(n: int, word: str) -> str:
    """Write a count with its word.

    Examples
    --------
    >>> plural(1, "tensor"), plural(2_000, "tensor")
    ('1 tensor', '2,000 tensors')
    """
    return f"{n:,} {word}{'' if n == 1 else 's'}"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on stderr while tensors are worked through, if it is a terminal; yields the function to call at each.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        Coordinates in all.
    """
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[at]}", style="dim", markup=False),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(label, total=max(total, 1), at="")
        waiting = 0

        def begin(name: str, size: int) -> None:
            # What was begun before is done now.
            nonlocal waiting
            bar.update(task, advance=waiting, at=name)
            waiting = size

        yield begin


@contextmanager
def transfer(label: str, total: int, then: str = "") -> Iterator[Callable[[str, int], None]]:
    """Show a bar with speed and time left on stderr, if it is a terminal; yields the function that advances it.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        Coordinates in all.
    then : str, optional
        What is being done from the half on.
    """
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[at]}", style="dim", markup=False),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(label, total=max(total, 1), at="", speed="")

        def advance(name: str, n: int) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            text = "" if not speed else f"{speed / 1e6:,.0f} M coord/s"
            doing = then if then and 2 * bar.tasks[0].completed >= total else label
            bar.update(task, advance=n, at=name, speed=text, description=doing)

        yield advance
