"""`tersor compress` killed, out of room, or with changed inputs: it goes on to the same bytes, or says what to do."""

import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from compress_inputs import safetensors

import tersor
from tersor import registry
from tersor.codec import Claims, Codec, Job, Made
from tersor.encoded import PlaneSpec
from tersor.evaluate import compress
from tersor.evaluate.compress import compress_file
from tersor.evaluate.encoded_file import open_encoded
from tersor.evaluate.journal import journal, journal_of, partial_of
from tersor.evaluate.readers import open_tensors
from tersor.evaluate.writers import write_decoded
from tersor.kernels import ops

pytest.importorskip("typer")
pytest.importorskip("rich")
from tersor.cli.app import app

EDEN = tersor.Eden(bits=4)
MANY, EACH = 120, 1 << 14


def model(path: Path, many: int = MANY, each: int = EACH) -> Path:
    rng = np.random.default_rng(0)
    data = {f"layers.{i}.weight": rng.standard_normal(each).astype(np.float32) for i in range(many)}
    return safetensors(path, data | {"steps": np.arange(9)})


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tersor.cli", "compress", *words]


def child(words: list[str], **options):
    env = dict(os.environ, TERSOR_BACKEND=ops.backend_name())
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **options)


class Stop(BaseException):
    """Stands for a kill: nothing in tersor handles it."""


def stopping(after: int):
    """Return a progress that stops the work at its `after`-th call."""
    calls = 0

    def progress(name, n):
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop

    return progress


@pytest.mark.parametrize("moments", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_kill_and_go_on(tmp_path, moments):
    """kill -9 once so many tensors are in the journal, at a random moment of the next; again; then to the end."""
    source, out = model(tmp_path / "in.safetensors"), tmp_path / "out.safetensors"
    words = command(str(source), str(out), "--json")
    draw, resumed = random.Random(moments), 0
    for wanted in sorted(draw.randrange(1, MANY) for _ in range(moments)):
        process = child(words)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if journal_of(out).exists() and journal_of(out).read_bytes().count(b"\n") > wanted:
                time.sleep(draw.random() * 0.01)
                process.kill()
                break
            time.sleep(0.001)
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            break  # it was quicker than we are
        if not out.exists():
            assert set(names(tmp_path)) == {"in.safetensors", partial_of(out).name, journal_of(out).name}
            resumed = 1
    if out.exists():
        pytest.skip("the machine let it finish before it was killed")
    done = child(words)
    text, problem = done.communicate()
    found = json.loads(text)
    assert done.returncode == 0 and resumed and found["resumed"] >= 1 and "going on" in problem
    assert names(tmp_path) == ["in.safetensors", "out.safetensors"]
    compress_file(open_tensors(source), tmp_path / "whole", EDEN, seed=found["seed"])
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("after", [0, 1, 3, 11, 12, 17, 24])
def test_stop_anywhere_and_go_on(tmp_path, after):
    """Also while the file is checked: everything is there by then, and is not written again."""
    source, out = model(tmp_path / "in.safetensors", 12, 5000), tmp_path / "out"
    options = {"policy": {"*.3.*": tersor.get_codec("fp16")}}
    with pytest.raises(Stop):
        compress_file(open_tensors(source), out, EDEN, progress=stopping(after), **options) if after < 24 else _stop()
    summary = compress_file(open_tensors(source), out, EDEN, **options)
    assert summary.resumed == {12: 13, 17: 13, 24: 0}.get(after, after)
    compress_file(open_tensors(source), tmp_path / "whole", EDEN, seed=summary.seed, **options)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def _stop():
    raise Stop


def interrupted(tmp_path, **options):
    source, out = model(tmp_path / "in.safetensors", 12, 5000), tmp_path / "out"
    with pytest.raises(Stop):
        compress_file(open_tensors(source), out, EDEN, progress=stopping(6), seed=3, **options)
    return source, out


@pytest.mark.parametrize("change", ["seed", "codec", "policy", "input", "no resume", "axis"])
def test_anew_after_a_change(tmp_path, change):
    source, out = interrupted(tmp_path)
    options = {"seed": 3, "codec": EDEN}
    options |= {
        "seed": {"seed": 4},
        "codec": {"codec": tersor.Eden(bits=5)},
        "policy": {"policy": {"*.2.*": tersor.get_codec("none")}},
        "no resume": {"resume": False},
        "axis": {"axis": -1},
        "input": {},
    }[change]
    if change == "input":
        os.utime(source, ns=(5, 5))
    notes: list[str] = []
    codec = options.pop("codec")
    summary = compress_file(open_tensors(source), out, codec, note=notes.append, **options)
    assert summary.resumed == 0 and "starting anew" in notes[0]
    options.pop("resume", None)
    compress_file(open_tensors(source), tmp_path / "whole", codec, **options)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("harm", ["a tensor", "its header", "the journal's end", "the journal", "no partial file"])
def test_damaged_leftovers(tmp_path, harm):
    """What a crash of the machine may leave: it is found, and written again."""
    source, out = interrupted(tmp_path)
    book, partial = journal_of(out), partial_of(out)
    if harm in ("a tensor", "its header"):
        begin = json.loads(book.read_bytes().splitlines()[3].partition(b" ")[2])["begin"]
        raw = bytearray(partial.read_bytes())
        raw[begin + (300 if harm == "a tensor" else 9)] ^= 1
        partial.write_bytes(raw)
    elif harm == "the journal's end":
        book.write_bytes(book.read_bytes()[:-5])
    elif harm == "the journal":
        book.write_bytes(b"nonsense\n" + book.read_bytes())
    else:
        partial.unlink()
    summary = compress_file(open_tensors(source), out, EDEN, seed=3)
    assert summary.resumed == {"a tensor": 2, "its header": 2, "the journal's end": 5}.get(harm, 0)
    compress_file(open_tensors(source), tmp_path / "whole", EDEN, seed=3)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert names(tmp_path) == ["in.safetensors", "out", "whole"]


def test_two_at_once(tmp_path):
    source, out = model(tmp_path / "in.safetensors", 2, 5000), tmp_path / "out"
    with journal(out), pytest.raises(tersor.TersorError, match="another process"):
        compress_file(open_tensors(source), out, EDEN)
    compress_file(open_tensors(source), out, EDEN)


@dataclass(frozen=True)
class Zlibbed(Codec):
    """A codec whose messages vary in size: float32 through zlib. Only these tests know it."""

    name: ClassVar[str] = "zlibbed"
    fields_size: ClassVar[int] = 8
    claims: ClassVar[Claims] = Claims(fixed_size=False)

    def layout(self, units, dtype, fields):
        n = int.from_bytes(fields, "little")
        return {"data": PlaneSpec(8, 1, n, n)}

    def largest_fields(self, units):
        return (units.size * 5 + 64).to_bytes(8, "little")

    def _encode(self, job: Job) -> Made:
        data = zlib.compress(job.host.float32().tobytes(), 1)
        return Made({"data": np.frombuffer(data, np.uint8)}, len(data).to_bytes(8, "little"))

    def _decode(self, enc, units, out, add, weight, present):
        out[:] = np.frombuffer(zlib.decompress(enc.planes["data"].data), np.float32)


@pytest.fixture
def zlibbed(monkeypatch):
    monkeypatch.setitem(registry._REGISTRY, "zlibbed", Zlibbed)


@pytest.mark.parametrize("after", [None, 0, 5, 12])
def test_messages_of_variable_size(tmp_path, zlibbed, after):
    source, out = model(tmp_path / "in.safetensors", 12, 5000), tmp_path / "out"
    codec = tersor.get_codec("zlibbed")
    if after is not None:
        with pytest.raises(Stop):
            compress_file(open_tensors(source), out, codec, seed=3, progress=stopping(after))
    summary = compress_file(open_tensors(source), out, codec, seed=3, skip_other=after is None)
    assert summary.total.vnmse == 0 and summary.resumed == (after or 0) + (after == 12)
    if after is None:
        tersor.save(tmp_path / "b", {n: open_tensors(source)[n] for n in open_tensors(source)}, codec, seed=3)
    else:
        compress_file(open_tensors(source), tmp_path / "b", codec, seed=3)
    assert out.read_bytes() == (tmp_path / "b").read_bytes()


# No room.


def test_no_room_is_known_before_the_work(tmp_path):
    """A limit on the size of files stands for a full disk."""
    source, out = model(tmp_path / "in.safetensors"), tmp_path / "out.safetensors"
    out.write_text("old")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))

    done = child(command(str(source), str(out), "--force"), preexec_fn=limit)
    _, problem = done.communicate()
    assert done.returncode == 2 and problem.count("\n") == 1 and "nothing was written; it takes up to" in problem
    assert out.read_text() == "old" and names(tmp_path) == ["in.safetensors", "out.safetensors"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_on_the_way(tmp_path, monkeypatch, number):
    """File systems that cannot reserve: what is there is kept, and the same call goes on."""
    source, out = model(tmp_path / "in.safetensors", 12, 5000), tmp_path / "out"
    out.write_text("old")
    real, room = os.pwrite, 9000

    def pwrite(file, data, at):
        if at + len(data) > room:
            raise OSError(number, os.strerror(number))
        return real(file, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(compress, "_allocate", lambda file, total: None)
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(tersor.TersorError, match=r"2 of 13 tensors are kept in .* run the same command again"):
            compress_file(open_tensors(source), out, EDEN, seed=3)
    assert out.read_text() == "old"
    assert compress_file(open_tensors(source), out, EDEN, seed=3).resumed == 2
    compress_file(open_tensors(source), tmp_path / "whole", EDEN, seed=3)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 1 MiB; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("codec", ["eden:8", "zlibbed"])
def test_a_full_disk(tmp_path, tiny_disk, zlibbed, codec):
    source, out = model(tmp_path / "in.safetensors", 100), tiny_disk / "out"
    out.write_text("old")
    with pytest.raises(tersor.TersorError, match="No space left on device") as caught:
        compress_file(open_tensors(source), out, tersor.get_codec(codec), seed=3)
    assert out.read_text() == "old"
    if codec == "eden:8":  # known before: nothing stays
        assert names(tiny_disk) == ["out"]
        return
    assert "are kept in" in str(caught.value)
    subprocess.run(["mount", "-o", "remount,size=64m", tiny_disk], check=True)
    assert compress_file(open_tensors(source), out, tersor.get_codec(codec), seed=3).resumed > 2
    assert names(tiny_disk) == ["out"]


def test_decompress_to_a_full_disk(tmp_path, tiny_disk):
    compress_file(open_tensors(model(tmp_path / "in.safetensors", 100)), tmp_path / "a.safetensors", EDEN)
    for kind in ("safetensors", "npz"):
        out = tiny_disk / f"out.{kind}"
        out.write_text("old")
        with (
            pytest.raises(tersor.TersorError, match="No space left on device; nothing was written"),
            open_encoded(tmp_path / "a.safetensors") as encoded,
        ):
            write_decoded(out, encoded)
        assert out.read_text() == "old" and names(tiny_disk) == [out.name]
        out.unlink()


# In place.


def run(*words: str, code: int = 0) -> str:
    result = pytest.importorskip("typer.testing").CliRunner().invoke(app, ["compress", *words])
    assert result.exit_code == code, result.output
    return result.output


def test_in_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model(Path("m.safetensors"), 3, 5000)
    old = Path("m.safetensors").read_bytes()
    for extra, saying in (("--force", "input itself"), ("--replace-input --no-verify", "needs --verify")):
        assert saying in run("m.safetensors", "m.safetensors", *extra.split(), code=2)
        assert Path("m.safetensors").read_bytes() == old
    run("m.safetensors", "m.safetensors", "--replace-input")
    with tersor.open("m.safetensors") as file:
        assert len(file) == 3 and list(file.kept) == ["steps"]
    assert names(tmp_path) == ["m.safetensors"]


def test_the_name_of_the_output_follows_from_the_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model(Path("m.safetensors"), 1, 5000)
    run("m.safetensors", "-c", "eden:2")
    assert names(tmp_path) == ["m.safetensors", "m.tersor.safetensors"]
    assert "--force replaces it" in run("m.safetensors", "-c", "eden:2", code=2)


def test_control_c_tells_how_to_go_on(tmp_path):
    source, out = model(tmp_path / "in.safetensors"), tmp_path / "out.safetensors"
    process = child(command(str(source), str(out), "--seed", "1"))
    while process.poll() is None and not (journal_of(out).exists() and journal_of(out).read_bytes().count(b"\n") > 1):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, problem = process.communicate()
    if process.returncode == 0:
        pytest.skip("the machine let it finish before it was interrupted")
    assert process.returncode == 130 and "the same command goes on" in problem and "Traceback" not in problem
    assert partial_of(out).exists() and not out.exists()
