"""`tersor bench`: speeds on this machine, against a copy of the same bytes and against PyPI's fht-cpu."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tersor.cli import show


def bench(
    size: Annotated[int, typer.Option(metavar="K", min=12, max=30, help="2**K coordinates.")] = 24,
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Threads of the kernels.")] = 1,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Timings of each operation.")] = 7,
    clock: Annotated[str, typer.Option(metavar="NAME", help="wall, or cpu: not what other processes take.")] = "wall",
    only: Annotated[str, typer.Option(metavar="TEXT", help="Operations whose names hold this.")] = "",
    levels: Annotated[bool, typer.Option("--levels", help="Each SIMD level of this CPU.")] = False,
    transforms: Annotated[bool, typer.Option("--transforms", help="Bare transforms of 2**6 to 2**25 points.")] = False,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    """Time the native kernels: ratios to a copy and to fht-cpu's bare transform, taken in one run; medians."""
    from tersor.evaluate import bench as timing

    if clock not in timing.CLOCKS:
        raise ValueError(f"--clock must be one of {', '.join(timing.CLOCKS)}, got {clock!r}")
    out = show.console()
    if transforms:
        found = list(timing.transforms(high=min(25, size + 1), rounds=rounds, clock=clock))
        if json:
            show.print_json([asdict(row) for row in found])
            return
        made = show.table("points", "M/s", "time of fht-cpu's")
        for one in found:
            made.add_row(show.count(one.points), f"{one.speed / 1e6:.0f}", show.number(one.of_peer))
    else:
        options = {"threads": threads, "rounds": rounds, "clock": clock, "levels": levels, "only": only}
        rows = list(timing.bench(1 << size, **options))  # type: ignore[arg-type]
        if json:
            show.print_json([asdict(row) for row in rows])
            return
        made = show.table("operation", "level", "M/s", "time of a copy's", "of fht-cpu's transform", left=2)
        for row in rows:
            ratios = (show.number(row.of_copy), show.number(row.of_peer))
            made.add_row(row.operation, row.level, f"{row.speed / 1e6:.0f}", *ratios)
    out.print(made)
    threads_ = show.plural(1 if transforms else threads, "thread")
    out.print(f"2**{size} coordinates, {threads_}, {clock} clock, medians of {rounds}; less is better but for M/s.")
    if timing.peer() is None:
        out.print("fht-cpu is not installed: pip install fht-cpu adds the last column.")
