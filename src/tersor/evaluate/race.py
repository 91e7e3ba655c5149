"""The race: every codec trains the same model from the same seeds to the same target, over the same slow link."""

from __future__ import annotations

import datetime
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tersor.collectives.schemes.scheme import Scheme, resolve
from tersor.collectives.topologies import choose_topology
from tersor.errors import TersorError
from tersor.evaluate.bed import HEADERS, MAX_WORKERS, find_bed, parse_rate, wire_seconds
from tersor.evaluate.launcher import Crew, CrewError, Interrupted
from tersor.evaluate.machine import machine, versions
from tersor.evaluate.results import BASELINE, Point, Race, Run
from tersor.evaluate.table import describe_check
from tersor.evaluate.workloads import digits_path, get_workload

Listener = Callable[[Race, str], None]
CHECK_SECONDS = 0.3  # the transfer that checks the link should take about this long


@dataclass(frozen=True)
class Plan:
    """What to race; `target` None is the workload's own."""

    codecs: tuple[str, ...] = (BASELINE, "eden:4", "eden:2")
    workers: int = 4
    link: str = "50mbit"
    workload: str = "digits-cnn"
    target: float | None = None
    seeds: int = 1
    max_steps: int = 200
    bed: str = "auto"
    topology: str = "auto"
    straggler: float = 0.0
    command: str = ""


def with_baseline(codecs: Sequence[str]) -> list[str]:
    """The codecs, each once, the baseline first."""
    return list(dict.fromkeys([BASELINE, *codecs]))


def check_route(spec: str, topology: str) -> None:
    """Raise ValueError unless there is such a codec or scheme, and the topology is one that it takes over sockets."""
    chosen = resolve(spec)
    choose_topology(topology, 2)
    if topology == "switch":
        raise ValueError("a switch is modelled in one process only: tersor.collectives.SwitchLink")
    if isinstance(chosen, Scheme) and topology not in ("auto", *chosen.claims.topologies):
        raise ValueError(f"{spec} runs over {', '.join(chosen.claims.topologies)}")


def prepare(plan: Plan) -> Race:
    """Check the plan and this machine, before anything is started, and lay out the race."""
    workload = get_workload(plan.workload)
    if workload.data == "digits":
        digits_path()
    if importlib.util.find_spec("torch") is None:
        raise TersorError("training needs PyTorch: pip install 'tersor[torch]'")
    if not 2 <= plan.workers <= MAX_WORKERS:
        raise TersorError(f"--workers must be 2 ... {MAX_WORKERS}, not {plan.workers}")
    target = workload.target if plan.target is None else plan.target
    if not 0 < target <= 1:
        raise TersorError(f"--target is an accuracy between 0 and 1, not {target}")
    if not 0 <= plan.straggler < 60:
        raise TersorError(f"--straggler is a number of seconds from 0 to 60, not {plan.straggler}")
    if plan.seeds < 1 or plan.max_steps < 1:
        raise TersorError("--seeds and --max-steps must be at least 1")
    codecs = with_baseline(plan.codecs)
    for spec in codecs[1:]:
        try:
            check_route(spec, plan.topology)
        except (KeyError, TypeError, ValueError) as error:
            raise TersorError(f"--codecs: {spec!r}: {error}") from error
    bed = find_bed(parse_rate(plan.link), plan.bed)
    seeds = list(range(plan.seeds))
    return Race(
        workload=workload.name,
        title=workload.title,
        target=target,
        workers=plan.workers,
        batch=workload.batch,
        link=plan.link,
        topology=plan.topology,
        straggler=plan.straggler,
        seeds=seeds,
        codecs=codecs,
        bed=bed,
        command=plan.command,
        machine=machine(),
        versions=versions(),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        runs=[Run(codec, seed) for seed in seeds for codec in codecs],
    )


def run_race(race: Race, max_steps: int, listen: Listener | None = None) -> Race:
    """Run a prepared race to its end, or to what ends it; what was measured is in `race` either way.

    Parameters
    ----------
    race : Race
        From `prepare`; filled in as events come.
    max_steps : int
        Where a run that does not reach the target is given up.
    listen : callable, optional
        Called with the race and a line of text (or "") after each event.
    """
    say = listen or (lambda race, text: None)
    begun = time.perf_counter()
    # A step must fit several times into a collective's time-out, or a slow link would look like a hang.
    timeout = max(60.0, 5.0 * wire_seconds(8e6, race.bed.rate), 5 * race.straggler)
    try:
        say(race, f"starting {race.workers} workers. {race.bed.describe()}")
        with Crew(race.bed, race.workers, race.workload, timeout) as crew:
            ready = crew.expect("ready", race.workers)
            race.parameters = int(ready[0]["parameters"])
            race.versions["torch"] = str(ready[0]["torch"])
            race.kernels = str(ready[0]["kernels"])
            race.startup_seconds = time.perf_counter() - begun
            check_link(race, crew)
            if race.link_check:
                say(race, f"check of the link: {describe_check(race)}")
            for run in race.runs:
                follow(race, run, crew, max_steps, say)
    except CrewError as error:
        race.problem = str(error)
    except Interrupted as error:
        race.problem, race.signal = str(error), error.number
    except KeyboardInterrupt:
        race.problem, race.signal = "interrupted", 2
    for run in race.runs:
        if run.state == "running":
            run.state = "stopped"
            if run.points:  # the parts of the time are known up to there
                run.steps, run.seconds = run.points[-1].step, run.points[-1].seconds
    race.wall_seconds = time.perf_counter() - begun
    return race


def check_link(race: Race, crew: Crew) -> None:
    """Time an all-gather whose time is known beforehand; what it says is kept with the results."""
    if race.bed.rate is None:
        return
    nbytes = int(max(4096, CHECK_SECONDS * race.bed.rate / 8 / HEADERS / (race.workers - 1)))
    crew.order(do="transfer", op="all_gather", nbytes=nbytes, repeat=3)
    found = crew.expect("transfer", race.workers)
    seconds = max(event["seconds"][len(event["seconds"]) // 2] for event in found)
    sent = found[0]["sent"]
    race.link_check = {
        "bytes": sent,
        "seconds": seconds,
        "formula_seconds": wire_seconds(sent, race.bed.rate),
        "payload_rate": sent * 8 / seconds,
    }


def follow(race: Race, run: Run, crew: Crew, max_steps: int, say: Listener) -> None:
    """Order one run and take down what the workers report until all of them have ended it."""
    workload = get_workload(race.workload)
    run.state = "running"
    crew.order(
        do="run",
        codec=run.codec,
        seed=run.seed,
        target=race.target,
        max_steps=max_steps,
        topology=race.topology,
        straggler=race.straggler,
        floor=race.common_step(run.seed) or 0,  # at least as far as the baseline: accuracies are compared there
        eval_every=workload.eval_every,
    )
    name = f"{run.codec} seed {run.seed}"
    ends: list[dict[str, Any]] = []
    for event in crew.events():
        text = ""
        if event["kind"] == "end":
            ends.append(event)
            if len(ends) == race.workers:
                break
        elif event["kind"] == "step":
            run.steps, run.seconds = int(event["step"]), float(event["seconds"])
        elif event["kind"] == "reached":
            run.reached_step, run.reached_seconds = int(event["step"]), float(event["seconds"])
            text = f"{name}: {100 * race.target:g} % after {run.reached_seconds:.1f} s, {run.reached_step} steps"
        elif event["kind"] == "eval":
            text = take_point(run, event, name)
        say(race, text)
    close_run(run, ends)
    say(race, f"{name}: {'target reached' if run.state == 'reached' else 'target not reached'}, {run.steps} steps")


def take_point(run: Run, event: dict[str, Any], name: str) -> str:
    """Keep an evaluation; the sums so far are rank 0's, until the run ends and all ranks report."""
    point = Point(*(event[key] for key in ("step", "seconds", "accuracy", "loss", "sent", "vnmse")))
    run.points.append(point)
    run.steps, run.seconds, run.sent = point.step, point.seconds, float(point.sent)
    run.codec_s, run.wire_s = float(event["codec_s"]), float(event["wire_s"])
    run.compute_s = run.seconds - run.codec_s - run.wire_s
    return f"{name}: step {point.step}, {point.seconds:.1f} s, accuracy {100 * point.accuracy:.1f} %"


def close_run(run: Run, ends: list[dict[str, Any]]) -> None:
    """Fill in the sums over the steps, as means over the ranks."""

    def over_ranks(key: str) -> float:
        return sum(float(event[key]) for event in ends) / len(ends)

    hashes = {event["hash"] for event in ends}
    if len(hashes) != 1:
        raise CrewError(f"the ranks ended with different parameters: {sorted(hashes)}")
    run.hash = hashes.pop()
    run.steps = int(ends[0]["steps"])
    run.seconds, run.codec_s, run.wire_s = over_ranks("seconds"), over_ranks("codec_s"), over_ranks("wire_s")
    run.compute_s = run.seconds - run.codec_s - run.wire_s
    run.sent = over_ranks("sent")
    run.wired = over_ranks("wired") if ends[0]["wired"] is not None else None
    run.nonfinite = sum(int(event["nonfinite"]) for event in ends)
    run.state = "reached" if run.reached_seconds is not None else "missed"
