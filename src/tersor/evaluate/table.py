"""The table of a race as text, and the words that explain it; shared by the terminal and the report."""

from __future__ import annotations

from tersor.evaluate.bed import HEADERS, format_rate
from tersor.evaluate.results import BASELINE, Race, Row, rows
from tersor.evaluate.workloads import get_workload

AGREE = 1.1  # the interface's count may exceed ours by this: headers and acknowledgements take 4 to 8 %
INTERFACE = "kB by the interface"
SHORT = {
    f"times sooner than {BASELINE}": "times sooner",
    "encode + decode": "encode+ decode",
    "kB a rank a step": "kB a step",
    INTERFACE: "kB by iface",
    "final accuracy, %": "final %",
}


def columns(race: Race) -> list[str]:
    """Headings of the table; SHORT has those that are to be shorter in a terminal."""
    return [
        "codec",
        f"s to {100 * race.target:g} %",
        f"times sooner than {BASELINE}",
        "steps",
        "ms a step",
        "compute",
        "encode + decode",
        "wire",
        "kB a rank a step",
        INTERFACE,
        "vNMSE",
        "final accuracy, %",
    ]


def show(value: float | None, form: str, factor: float = 1.0) -> str:
    """A number as text; a dash where nothing was measured."""
    return "-" if value is None else format(value * factor, form)


def cells(row: Row) -> list[str]:
    """A row as text, one string a column."""
    seconds = show(row.seconds, ".1f")
    if 0 < row.reached < row.runs:
        seconds += f" ({row.reached} of {row.runs})"
    elif row.reached == 0 and row.runs:
        seconds = {"missed": "not reached", "stopped": "stopped"}.get(row.state, "...")
    return [
        row.codec,
        seconds,
        show(row.ratio, ".2f"),
        show(row.steps, ".0f"),
        show(row.step_s, ".0f", 1e3),
        show(row.compute_s, ".0f", 1e3),
        show(row.codec_s, ".0f", 1e3),
        show(row.wire_s, ".0f", 1e3),
        show(row.sent, ",.0f", 1e-3),
        show(row.wired, ",.0f", 1e-3),
        show(row.vnmse, ".2g"),
        show(row.accuracy, ".2f", 100),
    ]


def table(race: Race) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; without interfaces of their own the ranks have no such column."""
    head, body = columns(race), [cells(row) for row in rows(race)]
    if not race.bed.real:
        at = head.index(INTERFACE)
        head, body = head[:at] + head[at + 1 :], [line[:at] + line[at + 1 :] for line in body]
    return head, body


def run_table(race: Race) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the single runs."""
    head = [
        "codec",
        "seed",
        "outcome",
        "s to target",
        "steps to target",
        "steps in all",
        "final accuracy, %",
        "hash of the parameters",
    ]
    body = []
    for run in race.runs:
        accuracy = run.accuracy(race.common_step(run.seed))
        outcome = {"missed": "not reached", "waiting": "not run"}.get(run.state, run.state)
        body.append(
            [
                run.codec,
                str(run.seed),
                outcome,
                show(run.reached_seconds, ".1f"),
                str(run.reached_step or "-"),
                str(run.steps),
                show(accuracy, ".2f", 100),
                run.hash or "-",
            ]
        )
    return head, body


def describe_check(race: Race) -> str:
    """The check of the link in one line; empty without a limit."""
    check = race.link_check
    if check is None:
        return ""
    rate = format_rate(float(format(check["payload_rate"], ".3g")))
    return (
        f"{check['bytes'] / 1e3:,.0f} kB a worker took {1e3 * check['seconds']:.0f} ms ({rate} of payload); "
        f"the formula, bytes x {HEADERS} / rate, says {1e3 * check['formula_seconds']:.0f} ms"
    )


def remarks(race: Race) -> list[str]:
    """What a reader of the table should know beside it, a sentence each."""
    found = []
    ratios = [row.wired / row.sent for row in rows(race) if row.wired and row.sent]
    if ratios:
        low, high = min(ratios), max(ratios)
        text = f"The interfaces counted {low:.3f} to {high:.3f} times the bytes that were handed to the transport"
        found.append(text + ("." if high <= AGREE else f": more than {AGREE}, so what a codec saves is partly lost."))
    checked = sum(len(run.points) for run in race.runs)
    found.append(f"The workers compared their parameters by hash {checked} times; they were the same every time.")
    if race.kernels == "reference":
        found.append("No compiled kernels were found: encode + decode ran in the slow reference backend.")
    bad = {run.codec: run.nonfinite for run in race.runs if run.nonfinite}
    if bad:
        found.append(
            "Buckets with NaN or infinity: " + ", ".join(f"{n} with {codec}" for codec, n in bad.items()) + "."
        )
    return found


def explain(race: Race) -> list[tuple[str, str]]:
    """What each thing in the table is."""
    every = get_workload(race.workload).eval_every
    bytes_text = "Bytes handed to the transport by one worker, with all headers, scales and padding."
    if race.bed.real:
        bytes_text += (
            " Beside it the count of the worker's own network interface, which has TCP/IP headers and"
            " acknowledgements too."
        )
    return [
        (
            "The training",
            f"{race.title}; {race.parameters:,} parameters. {race.workers} workers, each with {race.batch} "
            "samples a step; SGD with momentum. Every codec starts from the same weights and sees the same "
            "batches.",
        ),
        ("The link", race.bed.describe()),
        (
            "Time to target",
            "Seconds of training until the mean of the last 3 evaluations stood at the target. There is an "
            f"evaluation every {every} steps; the clock stands still for it and goes on after a barrier.",
        ),
        (
            BASELINE,
            "The baseline: the backend's own all-reduce (torch.distributed, gloo) of the gradient cast to bfloat16.",
        ),
        (
            "The codecs",
            "tersor's DDP hook with the codec's defaults, topology auto; biased codecs run with error feedback.",
        ),
        (
            "A step",
            "Compute, encode + decode and wire add up to the step; they are means over the workers. Encoding, "
            "decoding and the wire count from the moment when backward had nothing more to do: what goes on beside "
            "it is hidden. Wire is the time in calls of the transport, waiting for the slowest worker included; "
            "compute is what is left, and grows where more workers than cores have work to do at the same time.",
        ),
        ("kB a rank a step", bytes_text),
        (
            "vNMSE",
            "Squared error of a worker's own message over its squared norm, ||x' - x||^2 / ||x||^2; mean over "
            "the evaluations.",
        ),
        (
            "Final accuracy",
            f"Mean of 3 evaluations up to the step at which {BASELINE} ended, {3 * every} steps beyond its target: "
            "all codecs are compared after the same number of steps.",
        ),
        (
            "Equal replicas",
            "At every evaluation the workers compared 64-bit hashes of all parameters; a difference would "
            "have ended the race with an error.",
        ),
    ]


def facts(race: Race) -> list[tuple[str, str]]:
    """The machine, the software, the circumstances."""
    about = race.machine
    found = [
        ("Machine", f"{about['processor']}; {about['cores']} cores, {about['memory_gib']} GiB of memory"),
        ("System", f"{about['system']}, TCP congestion control {about['tcp']}"),
        ("Load at the start", str(about["load_at_start"])),
        ("Software", ", ".join(f"{name} {version}" for name, version in race.versions.items())),
        ("Kernels", race.kernels),
        ("Started", race.started),
        ("Took", f"{race.wall_seconds:.0f} s, {race.startup_seconds:.0f} of them to start the workers"),
    ]
    if race.link_check is not None:
        found.insert(0, ("Check of the link", describe_check(race)))
    return found
