"""`tersor train`: race codecs to a target accuracy over a slow link; prints a table, writes a report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tersor.cli.train_view import open_view
from tersor.errors import TersorError
from tersor.evaluate.launcher import interruptible
from tersor.evaluate.race import Plan, prepare, run_race
from tersor.evaluate.report import check_out, write_all
from tersor.specs import split_list


def command_line(plan: Plan, target: float, out: Path) -> str:
    """The command that repeats a race, with every setting written out."""
    words = ["tersor", "train", "--codecs", ",".join(plan.codecs), "--workers", str(plan.workers)]
    words += ["--link", plan.link, "--bed", plan.bed, "--workload", plan.workload, "--target", f"{target:g}"]
    words += ["--topology", plan.topology] if plan.topology != "auto" else []
    words += ["--straggler", f"{plan.straggler:g}"] if plan.straggler else []
    words += ["--seeds", str(plan.seeds), "--max-steps", str(plan.max_steps), "--out", str(out)]
    return shlex.join(words)


def train(
    codecs: Annotated[
        str,
        typer.Option(help="Specs of codecs and schemes, comma-separated; bf16, the baseline, always runs, and first."),
    ] = "bf16,eden:4,eden:2",
    workers: Annotated[int, typer.Option(help="Local workers.")] = 4,
    link: Annotated[
        str, typer.Option(help="Rate of each worker's own link, each way: 50mbit, 1gbit, ...; none for no limit.")
    ] = "50mbit",
    target: Annotated[
        float | None,
        typer.Option(help="Test accuracy to reach, by the mean of 3 evaluations.", show_default="by workload"),
    ] = None,
    workload: Annotated[
        str, typer.Option(help="digits-cnn, digits-mlp or text-lm (a small language model).")
    ] = "digits-cnn",
    seeds: Annotated[int, typer.Option(help="Run every codec from this many seeds: 0, 1, ...")] = 1,
    max_steps: Annotated[int, typer.Option(help="Give a run up after this many steps.")] = 200,
    bed: Annotated[
        str, typer.Option(help="How the link is made: auto, or insist on root, user (namespaces) or model.")
    ] = "auto",
    topology: Annotated[
        str, typer.Option(help="How sums are made: auto, gather, transpose, sharded, ring, butterfly or server.")
    ] = "auto",
    straggler: Annotated[float, typer.Option(help="Seconds that the last worker is late in every step.")] = 0.0,
    out: Annotated[Path, typer.Option(help="Folder for report.html, results.json and the pictures.")] = Path(
        "tersor-race"
    ),
) -> None:
    """Race codecs to a target accuracy over a slow link, against bf16.

    Starts local workers, gives each a link of its own of the given rate, and trains the same model from the same
    seeds with each codec. Ctrl-C ends it with what was measured until then.
    """
    view = open_view()
    plan = Plan(tuple(split_list(codecs)), workers, link, workload, target, seeds, max_steps, bed, topology, straggler)
    try:
        check_out(out)
        race = prepare(plan)
    except TersorError as error:
        view.error(str(error))
        raise typer.Exit(2) from None
    race.command = command_line(plan, race.target, out)
    with interruptible(), view.live(race):
        run_race(race, max_steps, view.listen)
    if race.problem:
        view.error(race.problem)
    if any(run.points for run in race.runs):
        if race.problem:
            view.say("This is what was measured until then.")
        view.table(race)
        view.files(write_all(race, out))
    elif race.problem:
        view.say("Nothing had been measured yet; no files were written.")
    if race.problem:
        raise typer.Exit(128 + race.signal if race.signal else 1)
