"""Whatever ends a race early, nothing is left: no process, no namespace, no interface, no file but the report."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tersor.errors import TersorError
from tersor.evaluate.bed import find_bed
from tersor.evaluate.workloads import digits_path

pytest.importorskip("torch")
pytest.importorskip("typer")
try:
    digits_path()
except TersorError as missing:
    pytest.skip(str(missing), allow_module_level=True)

COMMAND = "import typer; from tersor.cli.train import train; app = typer.Typer(); app.command()(train); app()"
MARK = "TERSOR_TEST_MARK"
SECONDS = 15.0  # in which all must be over; it takes one to three, but these machines are busy


class Launched:
    """A `tersor train` whose every process, wherever it hides, is known by a mark in its environment."""

    def __init__(self, tier, folder):
        self.mark = uuid.uuid4().hex
        self.work, self.home = folder / "work", folder / "home"
        for path in (self.work, self.home):
            path.mkdir()
        environment = {**os.environ, MARK: self.mark, "HOME": str(self.home), "TMPDIR": str(self.home)}
        environment["MPLCONFIGDIR"] = str(folder)  # matplotlib keeps a cache of fonts: not ours to count
        command = [sys.executable, "-c", COMMAND, "--codecs", "bf16,eden:4", "--workers", "2", "--link", "50mbit"]
        self.process = subprocess.Popen(
            [*command, "--bed", tier, "--out", "out"],
            cwd=self.work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""

    def wait_for(self, text):
        """Read on until a line has `text`."""
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return
        pytest.fail(f"no line with {text!r} in:\n{self.output}")

    def processes(self):
        """Pid to command line of every process with our mark."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
                except (OSError, UnicodeDecodeError):
                    continue
        return found

    def find(self, word):
        """Pids of our processes with `word` among their arguments."""
        return [pid for pid, words in self.processes().items() if word in words]

    def end(self):
        """Wait for the end of the launcher and of all else; return what it printed."""
        rest, _ = self.process.communicate(timeout=SECONDS)
        limit = time.monotonic() + SECONDS
        while self.processes() and time.monotonic() < limit:
            time.sleep(0.05)
        assert self.processes() == {}
        self.output += rest
        return self.output

    def kill(self):
        """Whatever the test found: leave nothing."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def network_namespaces(pids=None):
    """Inodes of the network namespaces of some processes, or of all."""
    found = set()
    for pid in os.listdir("/proc") if pids is None else map(str, pids):
        if pid.isdigit():
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/net"))
            except OSError:
                continue
    return found


@pytest.fixture
def launch(tmp_path):
    started = []

    def start(tier):
        if tier != "model":
            try:
                find_bed(50e6, tier)
            except TersorError as error:
                pytest.skip(str(error))
        started.append(Launched(tier, tmp_path))
        started[-1].wait_for("step 5,")
        return started[-1]

    interfaces = set(os.listdir("/sys/class/net"))
    yield start
    for one in started:
        one.kill()
    assert set(os.listdir("/sys/class/net")) == interfaces


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("tier", "number"),
    [
        ("root", signal.SIGINT),
        slow("root", signal.SIGTERM),
        slow("user", signal.SIGINT),
        slow("user", signal.SIGHUP),
        ("model", signal.SIGTERM),
        slow("model", signal.SIGINT),
    ],
)
def test_an_interrupt_ends_all_and_keeps_what_was_measured(launch, tier, number):
    race = launch(tier)
    spaces = network_namespaces(race.processes()) - network_namespaces([os.getpid()])
    assert len(spaces) == (0 if tier == "model" else 3)  # the bed's and the two workers'; the switch has no process
    race.process.send_signal(number)
    output = race.end()
    assert race.process.returncode == 128 + number
    assert f"interrupted by {number.name}" in output and "measured until then" in output
    assert re.search(r"bf16 .*stopped", output)
    assert sorted(os.listdir(race.work)) == ["out"]
    assert {"report.html", "results.json"} <= set(os.listdir(race.work / "out"))
    assert not any(name.startswith(".") for name in os.listdir(race.work / "out"))
    assert f"interrupted by {number.name}" in (race.work / "out" / "report.html").read_text()
    assert os.listdir(race.home) == [] and not spaces & network_namespaces()


@pytest.mark.parametrize(
    ("tier", "victim"),
    [
        ("root", "tersor.evaluate.worker"),
        slow("root", "unshare"),
        slow("user", "tersor.evaluate.worker"),
        slow("user", "unshare"),
        ("model", "tersor.evaluate.worker"),
        slow("model", "tersor.evaluate.warden"),
    ],
)
def test_a_killed_part_ends_all_and_is_named(launch, tier, victim):
    race = launch(tier)
    spaces = network_namespaces(race.processes()) - network_namespaces([os.getpid()])
    os.kill(race.find(victim)[-1], signal.SIGKILL)
    begun = time.monotonic()
    output = race.end()
    assert time.monotonic() - begun < SECONDS
    assert race.process.returncode == 1
    cause = r"worker [01] was killed by SIGKILL" if victim.endswith("worker") else "ended without a word"
    assert re.search(cause, output), output
    assert {"report.html", "results.json"} <= set(os.listdir(race.work / "out"))
    assert os.listdir(race.home) == [] and not spaces & network_namespaces()


@pytest.mark.parametrize("tier", ["root", "model", slow("user")])
def test_a_killed_launcher_takes_all_with_it(launch, tier):
    race = launch(tier)
    spaces = network_namespaces(race.processes()) - network_namespaces([os.getpid()])
    race.process.kill()
    race.end()
    assert os.listdir(race.work) == os.listdir(race.home) == []
    assert not spaces & network_namespaces()
