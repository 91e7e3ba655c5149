"""The race: the table's arithmetic, the report, what is refused before the start, and one short real race."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from tersor.errors import TersorError
from tersor.evaluate.bed import Bed
from tersor.evaluate.race import Plan, prepare, run_race, with_baseline
from tersor.evaluate.report import check_out, to_html, write_all
from tersor.evaluate.results import Point, Race, Run, headline, json_text, make_row, rows
from tersor.evaluate.table import table
from tersor.evaluate.workloads import digits_path

try:
    digits_path()
except TersorError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def make_run(codec, seed, step_s, sent, reached, steps, accuracies, state="reached"):
    """A run of evaluations every 5 steps; `sent` bytes a step, of which the interface saw 5 % more."""
    points = [
        Point(5 * (i + 1), 5 * (i + 1) * step_s, accuracy, 1 - accuracy, 5 * (i + 1) * sent, 0.01)
        for i, accuracy in enumerate(accuracies)
    ]
    at = None if reached is None else reached * step_s
    run = Run(codec, seed, state, points, steps, steps * step_s, reached, at)
    run.codec_s, run.wire_s, run.sent, run.wired = (
        0.1 * run.seconds,
        0.6 * run.seconds,
        steps * sent,
        1.05 * steps * sent,
    )
    run.compute_s = run.seconds - run.codec_s - run.wire_s
    return run


@pytest.fixture
def race():
    runs = [
        make_run("bf16", 0, 0.5, 2000, 20, 35, [0.5, 0.9, 0.96, 0.96, 0.97, 0.98, 0.99]),
        make_run("eden:4", 0, 0.2, 500, 20, 40, [0.5, 0.9, 0.95, 0.95, 0.97, 0.97, 0.97, 0.1]),
        make_run("bf16", 1, 0.5, 2000, 30, 45, [0.5, 0.9, 0.9, 0.9, 0.96, 0.96, 0.97, 0.97, 0.97]),
        make_run("eden:4", 1, 0.1, 500, 30, 45, [0.5, 0.9, 0.9, 0.9, 0.96, 0.96, 0.96, 0.96, 0.96]),
    ]
    return Race(
        workload="digits-cnn",
        title="digits",
        target=0.95,
        workers=4,
        batch=32,
        link="50mbit",
        seeds=[0, 1],
        codecs=["bf16", "eden:4"],
        bed=Bed("root", 50e6),
        command="tersor train --codecs 'bf16,eden:4' <&>",
        machine={
            "processor": "x",
            "cores": 2,
            "memory_gib": 1.0,
            "system": "Linux",
            "tcp": "cubic",
            "load_at_start": 0.0,
        },
        versions={"python": "3.11"},
        started="2030-01-01T00:00:00+00:00",
        runs=runs,
        parameters=1000,
        link_check={"bytes": 1e6, "seconds": 0.17, "formula_seconds": 0.167, "payload_rate": 47e6},
    )


def test_row_arithmetic(race):
    row = make_row(race, "eden:4")
    assert (row.runs, row.reached, row.state) == (2, 2, "reached")
    assert row.seconds == pytest.approx((20 * 0.2 + 30 * 0.1) / 2)
    assert row.ratio == pytest.approx((2.5 * 5.0) ** 0.5)  # geometric mean over seeds
    assert row.steps == 25
    assert row.step_s == pytest.approx((40 * 0.2 + 45 * 0.1) / 85)  # total over total
    assert row.compute_s + row.codec_s + row.wire_s == pytest.approx(row.step_s)
    assert row.wire_s == pytest.approx(0.6 * row.step_s)
    assert row.sent == pytest.approx(500) and row.wired == pytest.approx(525)
    assert row.vnmse == pytest.approx(0.01)
    assert make_row(race, "bf16").ratio == pytest.approx(1)


def test_final_accuracy_is_compared_at_the_baselines_last_step(race):
    assert race.common_step(0) == 35
    assert make_row(race, "eden:4").accuracy == pytest.approx((0.97 + 0.96) / 2)  # the 0.1 at step 40 is beyond
    assert make_row(race, "bf16").accuracy == pytest.approx(((0.97 + 0.98 + 0.99) / 3 + 0.97) / 2)


def test_a_miss_counts_neither_in_time_nor_in_ratio(race):
    race.runs[3] = dataclasses.replace(race.runs[3], state="missed", reached_step=None, reached_seconds=None)
    row = make_row(race, "eden:4")
    assert (row.runs, row.reached, row.state) == (2, 1, "missed")
    assert row.ratio == pytest.approx(2.5) and row.seconds == pytest.approx(4.0)
    assert table(race)[1][1][1] == "4.0 (1 of 2)"


def test_headline(race):
    assert headline(race) == "bf16 needed 12.5 s to 95 %; eden:4 3.5 s (3.54x sooner)."
    race.runs[1::2] = [Run("eden:4", 0), Run("eden:4", 1)]
    assert headline(race).endswith("eden:4 was not run.")
    race.runs.clear()
    assert "nothing to compare" in headline(race)


def test_only_real_links_have_an_interface_column(race):
    assert "kB by the interface" in table(race)[0]
    race.bed = Bed("model", 50e6)
    head, body = table(race)
    assert "kB by the interface" not in head and all(len(line) == len(head) for line in body)


def test_json_has_everything(race):
    data = json.loads(json_text(race))
    assert data["rows"][1]["codec"] == "eden:4" and len(data["runs"]) == 4
    assert data["runs"][0]["points"][2]["accuracy"] == 0.96
    assert data["command"] == race.command and data["bed"]["tier"] == "root" and "tbf" in data["bed"]["description"]


def test_report_needs_nothing_else(race):
    race.codecs[1] = race.runs[1].codec = race.runs[3].codec = "<script>alert(1)</script>"
    page = to_html(race, {"step-time.png": b"\x89PNG"})
    assert "http:" not in page and "https:" not in page and "<script" not in page and "<link" not in page
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', page))
    assert "tersor train --codecs &#x27;bf16,eden:4&#x27; &lt;&amp;&gt;" in page
    assert "tc tbf" in page and "Check of the link" in page


def test_files_are_written_whole(race, tmp_path):
    pytest.importorskip("matplotlib")
    race.problem = "worker 2 was killed by SIGKILL"
    files = write_all(race, tmp_path / "new" / "out")
    assert [path.name for path in files] == [
        "report.html",
        "results.json",
        "accuracy-time.png",
        "accuracy-bytes.png",
        "step-time.png",
    ]
    assert set(os.listdir(tmp_path / "new" / "out")) == {path.name for path in files}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files[2:])
    page = files[0].read_text()
    assert page.count("data:image/png") == 3 and "Not complete: worker 2 was killed" in page


def test_unwritable_out_is_refused_before_the_race(tmp_path):
    (tmp_path / "file").touch()
    for bad in (tmp_path / "file" / "out", Path("/proc/out")):
        with pytest.raises(TersorError, match="cannot write results"):
            check_out(bad)
    check_out(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codecs": ("edn:4",)}, "edn"),
        ({"codecs": ("eden:99",)}, "eden"),
        ({"workers": 1}, "--workers"),
        ({"workers": 1000}, "--workers"),
        ({"link": "5 parsecs"}, "link rate"),
        ({"target": 95.0}, "--target"),
        ({"seeds": 0}, "--seeds"),
        ({"workload": "imagenet"}, "digits-cnn"),
        ({"bed": "cloud"}, "unknown bed"),
    ],
)
def test_a_bad_plan_is_refused_before_the_race(change, message):
    pytest.importorskip("torch")
    with pytest.raises(TersorError, match=message):
        prepare(dataclasses.replace(Plan(bed="model"), **change))


def test_the_baseline_runs_first_and_once():
    assert with_baseline(["eden:4", "bf16", "eden:4"]) == ["bf16", "eden:4"]


@pytest.mark.parametrize("bed", ["auto", "model"])
def test_a_short_race(bed):
    pytest.importorskip("torch")
    lines = []
    race = prepare(Plan(codecs=("eden:4",), workers=2, link="400mbit", target=0.4, bed=bed))
    run_race(race, 20, lambda race, text: lines.append(text))
    assert not race.problem
    assert [run.state for run in race.runs] == ["reached", "reached"]
    base, eden = race.runs
    assert eden.steps >= base.steps == base.reached_step + 15 or base.steps == 20
    assert base.sent == 2 * race.parameters * base.steps  # 2 (N-1)/N of 2 bytes, N = 2
    assert 0.9 < eden.sent / eden.steps / (2 * race.parameters * 0.25) < 1.1
    assert len(base.hash) == 16 and base.hash != eden.hash
    for run, row in zip(race.runs, rows(race), strict=True):
        assert [point.step for point in run.points] == list(range(5, run.steps + 1, 5))
        assert run.compute_s > 0 and run.codec_s > 0 and run.wire_s > 0
        assert run.points[-1].sent == pytest.approx(run.sent, rel=0.01)
        if race.bed.real:
            assert 1.0 < row.wired / row.sent < 1.1
        else:
            assert row.wired is None
    assert 0 < base.points[0].vnmse < 1e-4 < eden.points[0].vnmse < 0.03
    assert any("check of the link" in line for line in lines) and any("target reached" in line for line in lines)
    json_text(race)


def drift(rank, events):
    """On a rank of the pool: train with a hook that gives every rank another gradient."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from tersor.evaluate.baseline import BaselineHook
    from tersor.evaluate.models import build_model
    from tersor.evaluate.worker import Training, Worker

    class Drifting(BaselineHook):
        def reduce(self, gradient, last, future):
            reduced = torch.futures.Future()
            super().reduce(gradient, last, reduced)
            if self.stats.steps == 7 and rank == 2:
                gradient[0] += 1e-3
            future.set_result(reduced.wait())

    config = {"rank": rank, "workers": 4, "rate": None, "tier": "none", "workload": "digits-mlp", "interface": None}
    worker = Worker({**config, "events": os.open(events, os.O_WRONLY | os.O_APPEND)})
    ddp = DistributedDataParallel(build_model("mlp", 0), init_sync=False)
    hook = Drifting(None)
    ddp.register_comm_hook(None, hook)
    order = {"codec": "bf16", "seed": 0, "target": 1.0, "max_steps": 20, "floor": 0, "eval_every": 5, "straggler": 0.0}
    try:
        Training(worker, order, ddp, hook).go()
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_replicas_that_differ_are_an_error(pool, tmp_path):
    (tmp_path / "events").touch()
    said = pool.run(drift, str(tmp_path / "events"))
    assert said == ["after step 10 the parameters of ranks [2] differ from those of rank 0"] * 4
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events").read_text().splitlines()]
    assert kinds.count("eval") == 1 and kinds.count("end") == 0


def baseline_books(rank):
    """On a rank of the pool: three steps of the baseline over a modelled link; its statistics."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from tersor.evaluate.baseline import register_baseline

    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(50, 50))
    hook = register_baseline(ddp, 10e6)
    for _ in range(3):
        ddp(torch.ones(2, 50)).sum().backward()
    return hook.stats


def test_the_baselines_books_add_up_over_steps(pool):
    for stats in pool.run(baseline_books):
        # One bucket a step: nothing of it is hidden behind backward.
        assert stats.steps == 3
        assert stats.exposed_wire_s == pytest.approx(stats.wire_s) and stats.wire_s > 0
        assert stats.exposed_codec_s == pytest.approx(stats.codec_s) and stats.codec_s > 0
