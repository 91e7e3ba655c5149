"""What a race measured: runs and their series, the table's rows, and the JSON file."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

from tersor.evaluate.bed import Bed

BASELINE = "bf16"
WINDOW = 3  # evaluations that are averaged: to decide that the target is reached, and for the final accuracy


@dataclass(frozen=True)
class Point:
    """One evaluation; times and bytes are those of the steps before it."""

    step: int
    seconds: float
    accuracy: float
    loss: float | None
    sent: int
    vnmse: float | None


@dataclass
class Run:
    """One codec from one seed; `state` is waiting, running, reached, missed or stopped.

    Attributes
    ----------
    reached_step, reached_seconds : int, float, or None
        Where the mean of the last three evaluations first stood at the target.
    compute_s, codec_s, wire_s : float
        The time on the clock, split; mean over the ranks.
    sent, wired : int
        Bytes a rank handed to the transport, and bytes by the interface's own count; mean over the ranks.
    hash : str
        64-bit hash of the final parameters, equal on all ranks.
    """

    codec: str
    seed: int
    state: str = "waiting"
    points: list[Point] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    reached_step: int | None = None
    reached_seconds: float | None = None
    compute_s: float = 0.0
    codec_s: float = 0.0
    wire_s: float = 0.0
    sent: float = 0.0
    wired: float | None = None
    nonfinite: int = 0
    hash: str = ""

    def accuracy(self, step: int | None = None) -> float | None:
        """Mean of the last three evaluations up to `step` (default: the end)."""
        values = [point.accuracy for point in self.points if step is None or point.step <= step]
        return sum(values[-WINDOW:]) / WINDOW if len(values) >= WINDOW else None


@dataclass
class Race:
    """A whole race: what was asked, where it ran, and what came out."""

    workload: str
    title: str
    target: float
    workers: int
    batch: int
    link: str
    seeds: list[int]
    codecs: list[str]
    bed: Bed
    command: str
    machine: dict[str, Any]
    versions: dict[str, str]
    started: str
    runs: list[Run] = field(default_factory=list)
    parameters: int = 0
    kernels: str = ""
    link_check: dict[str, float] | None = None
    wall_seconds: float = 0.0
    startup_seconds: float = 0.0
    problem: str = ""
    signal: int = 0
    topology: str = "auto"
    straggler: float = 0.0

    def run(self, codec: str, seed: int) -> Run | None:
        """The run of one codec from one seed."""
        return next((run for run in self.runs if (run.codec, run.seed) == (codec, seed)), None)

    def common_step(self, seed: int) -> int | None:
        """The step at which final accuracies of this seed are compared: the baseline's last one."""
        base = self.run(BASELINE, seed)
        return base.steps if base is not None and base.state in ("reached", "missed") else None


@dataclass(frozen=True)
class Row:
    """One line of the table: a codec, its seeds taken together; None where nothing was measured."""

    codec: str
    runs: int
    reached: int
    seconds: float | None
    ratio: float | None
    steps: float | None
    step_s: float | None
    compute_s: float | None
    codec_s: float | None
    wire_s: float | None
    sent: float | None
    wired: float | None
    vnmse: float | None
    accuracy: float | None
    state: str


def mean(values: list[float]) -> float | None:
    """Arithmetic mean, None of nothing."""
    return sum(values) / len(values) if values else None


def make_row(race: Race, codec: str) -> Row:
    """Sum up the runs of one codec.

    Times, steps and accuracies are means over seeds; the ratio is the geometric mean over the seeds where both this
    codec and the baseline reached the target; what is given a step is total over total.
    """
    runs = [run for run in race.runs if run.codec == codec and run.steps > 0]
    ratios = []
    for run in runs:
        base = race.run(BASELINE, run.seed)
        if run.reached_seconds and base is not None and base.reached_seconds:
            ratios.append(math.log(base.reached_seconds / run.reached_seconds))
    log_ratio = mean(ratios)
    steps = sum(run.steps for run in runs)

    def per_step(name: str) -> float | None:
        return sum(getattr(run, name) for run in runs) / steps if steps else None

    wired = [run.wired for run in runs if run.wired is not None]
    accuracies = [run.accuracy(race.common_step(run.seed)) for run in runs]
    states = {run.state for run in race.runs if run.codec == codec}
    order = ("running", "stopped", "missed", "reached", "waiting")
    return Row(
        codec=codec,
        runs=len(runs),
        reached=sum(run.reached_seconds is not None for run in runs),
        seconds=mean([run.reached_seconds for run in runs if run.reached_seconds is not None]),
        ratio=None if log_ratio is None else math.exp(log_ratio),
        steps=mean([float(run.reached_step) for run in runs if run.reached_step is not None]),
        step_s=per_step("seconds"),
        compute_s=per_step("compute_s"),
        codec_s=per_step("codec_s"),
        wire_s=per_step("wire_s"),
        sent=per_step("sent"),
        wired=sum(wired) / steps if wired and len(wired) == len(runs) else None,
        vnmse=mean([point.vnmse for run in runs for point in run.points if point.vnmse is not None]),
        accuracy=mean([value for value in accuracies if value is not None]),
        state=next((state for state in order if state in states), "waiting"),
    )


def rows(race: Race) -> list[Row]:
    """The table of a race, in the order in which it ran."""
    return [make_row(race, codec) for codec in race.codecs]


def headline(race: Race) -> str:
    """The outcome in a sentence or two."""
    table = rows(race)
    base = next((row for row in table if row.codec == BASELINE), None)
    goal = f"{100 * race.target:.4g} %"
    if base is None or base.seconds is None:
        return f"{BASELINE} has not reached {goal}: there is nothing to compare with."
    parts = [f"{BASELINE} needed {base.seconds:.1f} s to {goal}"]
    for row in table:
        if row.codec == BASELINE:
            continue
        if row.ratio is not None and row.seconds is not None:
            word = f"{row.ratio:.2f}x sooner" if row.ratio >= 1 else f"{1 / row.ratio:.2f}x later"
            parts.append(f"{row.codec} {row.seconds:.1f} s ({word})")
        else:
            missing = {"waiting": "was not run", "stopped": "was stopped on its way"}
            parts.append(f"{row.codec} {missing.get(row.state, 'did not get there')}")
    return "; ".join(parts) + "."


def to_json(race: Race) -> dict[str, Any]:
    """The race as plain data, with the table's rows beside the runs they were made of."""
    data = dataclasses.asdict(race)
    data["bed"]["description"] = race.bed.describe()
    return {"schema": 1, "headline": headline(race), "rows": [dataclasses.asdict(r) for r in rows(race)], **data}


def json_text(race: Race) -> str:
    """The text of results.json; NaN and infinity, which JSON has not, are an error."""
    return json.dumps(to_json(race), indent=1, allow_nan=False) + "\n"
