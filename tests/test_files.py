"""Files: safetensors containers written whole or not at all, read lazily, refused when damaged."""

import json
import os
import resource
import subprocess
import sys
import threading

import numpy as np
import pytest

import tersor
from tersor.kernels import ops


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((40, 130)).astype(np.float32),
        "h": rng.standard_normal(77).astype(np.float16),
        "scalar": np.float32(2).reshape(()),
        "empty": np.zeros((0, 4), np.float32),
        "näme.☃": rng.standard_normal(5),
    }


def leftovers(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("axis", [None, -1])
def test_round_trip(tmp_path, axis):
    path = tmp_path / "m.safetensors"
    data = arrays()
    written = tersor.save(path, data, "eden:6", policy={"h": "none"}, seed=1, axis=axis)
    assert written == path.stat().st_size and leftovers(tmp_path) == ["m.safetensors"]
    with tersor.open(path) as file:
        assert list(file) == list(data) and len(file) == 5 and "w" in file and "x" not in file
        assert file["h"].spec == "none" and file["w"].spec == "eden:6" and file["w"].axis == axis
        for name, x in data.items():
            got = file.decode(name)
            assert got.shape == x.shape and got.dtype == x.dtype and tersor.nmse(x, got) < 0.002
            assert np.array_equal(got, tersor.decode(file[name]))
        with pytest.raises(KeyError):
            file["x"]
    again = tmp_path / "again.safetensors"
    tersor.save(again, data, "eden:6", policy={"h": "none"}, seed=1, axis=axis)
    assert again.read_bytes() == path.read_bytes(), "same seed, same bytes"


def test_the_safetensors_library_reads_it(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    from safetensors.numpy import load_file

    path = tmp_path / "m.safetensors"
    data = arrays()
    tersor.save(path, data, "eden:4", seed=1)
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "tersor", "version": "0"}
        assert sorted(file.keys()) == sorted(data)
    with tersor.open(path) as ours:
        for name, raw in load_file(path).items():
            assert raw.dtype == np.uint8 and raw.ndim == 1 and raw.size % 64 == 0
            total = int.from_bytes(raw[16:24].tobytes(), "little")
            assert tersor.from_bytes(raw[:total].tobytes()).to_bytes() == ours[name].to_bytes()
            assert not raw[total:].any()


def test_planes_lie_on_64_bytes(tmp_path):
    path = tmp_path / "m.safetensors"
    tersor.save(path, arrays(), "eden:4,store_norm=true", seed=1)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert (8 + length) % 64 == 0
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__":
            begin = 8 + length + entry["data_offsets"][0]
            assert begin % 64 == 0 and raw[begin + 51] == 6 and raw[begin : begin + 4] == b"TERS"


def test_arrays_are_read_one_at_a_time(tmp_path):
    """A lazy mapping: the next array is asked for after the one before was written."""
    asked = []

    class Lazy(dict):
        def items(self):
            for name in ("a", "b", "c"):
                asked.append(name)
                yield name, np.full(2000, len(asked), np.float32)

    tersor.save(tmp_path / "m.safetensors", Lazy(), "eden:8", seed=1)
    with tersor.open(tmp_path / "m.safetensors") as file:
        assert asked == ["a", "b", "c"] and file.decode("c").mean() == pytest.approx(3, rel=0.01)


def test_a_large_body_is_shifted_whole(tmp_path):
    """More than one 16 MiB piece."""
    x = np.random.default_rng(0).standard_normal(9 << 20).astype(np.float16)
    tersor.save(tmp_path / "m", {"a": x, "b": x[: 1 << 20]}, "none", seed=1)
    with tersor.open(tmp_path / "m") as file:
        assert np.array_equal(file.decode("a"), x) and np.array_equal(file.decode("b"), x[: 1 << 20])


def test_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.safetensors"
    tersor.save(path, {"a": np.ones(5, np.float32)}, "none")
    old = path.read_bytes()
    for data in (
        {"a": np.zeros(3, np.float32), "b": np.array([np.inf], np.float32)},
        {"a": np.zeros(3, np.float32), "b": np.arange(3)},
        {"a": np.zeros(3, np.float32), "__metadata__": np.zeros(3, np.float32)},
    ):
        with pytest.raises((ValueError, TypeError)):
            tersor.save(path, data, "eden:4")
        assert path.read_bytes() == old and leftovers(tmp_path) == ["m.safetensors"]


def test_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files stands for the full disk: an OSError, the old file, nothing beside it."""
    path = tmp_path / "m.safetensors"
    tersor.save(path, {"a": np.ones(5, np.float32)}, "none")
    old = path.read_bytes()
    code = f"""
import numpy as np, tersor
data = {{"a": np.ones(1 << 18, np.float32), "b": np.ones(1 << 18, np.float32)}}
try:
    tersor.save({str(path)!r}, data, "none")
except OSError as error:
    print("OSError", error.errno)
"""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 19, 3 << 19))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit, env=child_env()
    )
    assert done.stdout.startswith("OSError"), done.stdout + done.stderr
    assert path.read_bytes() == old and leftovers(tmp_path) == ["m.safetensors"]


def child_env():
    return dict(os.environ, TERSOR_BACKEND=ops.backend_name())


def test_a_crash_in_the_middle_leaves_the_old_file(tmp_path):
    """The process is killed while it writes the second array: the file is the old one, and can be saved again."""
    path = tmp_path / "m.safetensors"
    tersor.save(path, {"a": np.ones(5, np.float32)}, "none")
    old = path.read_bytes()
    code = f"""
import os, signal, numpy as np, tersor
class Deadly(dict):
    def items(self):
        yield "a", np.zeros(100_000, np.float32)
        os.kill(os.getpid(), signal.SIGKILL)
tersor.save({str(path)!r}, Deadly(), "none")
"""
    assert subprocess.run([sys.executable, "-c", code], env=child_env()).returncode == -9
    assert path.read_bytes() == old
    tersor.save(path, {"a": np.zeros(5, np.float32)}, "none")
    with tersor.open(path) as file:
        assert not file.decode("a").any()


def test_two_threads_save_one_path(tmp_path):
    """Whoever is last wins; nobody fails, and the file is one of the two."""
    path = tmp_path / "m.safetensors"
    failures = []

    def work(value):
        try:
            for _ in range(10):
                tersor.save(path, {"a": np.full(3000, value, np.float32)}, "none")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(v,)) for v in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with tersor.open(path) as file:
        assert not failures and set(file.decode("a").tolist()) in ({1.0}, {2.0})
    assert leftovers(tmp_path) == ["m.safetensors"]


def test_every_damaged_message_is_refused(tmp_path):
    """Any bit of a message in a file: FormatError when it is read, the other tensors stay readable."""
    path = tmp_path / "m"
    tersor.save(path, {"a": np.ones(9, np.float32), "b": np.ones(3, np.float32)}, "eden:4", seed=1)
    raw = path.read_bytes()
    body = 8 + int.from_bytes(raw[:8], "little")
    length = int.from_bytes(raw[body + 16 : body + 24], "little")
    for bit in range(0, 8 * length, 3):
        damaged = bytearray(raw)
        damaged[body + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with tersor.open(path) as file:
            with pytest.raises(tersor.FormatError):
                file["a"]
            assert file.decode("b") == pytest.approx([1, 1, 1], rel=0.6)


def container(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


META = {"format": "tersor", "version": "0"}
BAD = {
    "nothing": b"",
    "short": b"1234567",
    "length": (1 << 63).to_bytes(8, "little") + b"{}",
    "no json": container(b"{"),
    "not utf-8": container(b'{"\xff": 1}'),
    "a list": container([1]),
    "a number": container(3),
    "no metadata": container({}),
    "metadata of another kind": container({"__metadata__": 3}),
    "another version": container({"__metadata__": {"format": "tersor", "version": "1"}}),
    "not ours": container({"__metadata__": {"format": "pt"}}),
    "outside": container({"__metadata__": META, "a": {"data_offsets": [0, 9]}}, b"12345678"),
    "backwards": container({"__metadata__": META, "a": {"data_offsets": [8, 0]}}, b"12345678"),
    "negative": container({"__metadata__": META, "a": {"data_offsets": [-1, 5]}}, b"12345678"),
    "infinite": container(b'{"__metadata__":{"format":"tersor","version":"0"},"a":{"data_offsets":[Infinity,1]}}'),
    "not a number": container(b'{"__metadata__":{"format":"tersor","version":"0"},"a":{"data_offsets":[NaN,1]}}'),
    "one offset": container({"__metadata__": META, "a": {"data_offsets": [0]}}),
    "text offsets": container({"__metadata__": META, "a": {"data_offsets": "xy"}}),
    "no offsets": container({"__metadata__": META, "a": {}}),
    "entry": container({"__metadata__": META, "a": 5}),
    "deep": container(b"[" * 100_000),
    "many digits": container(
        b'{"__metadata__":{"format":"tersor","version":"0"},"a":{"data_offsets":[0,1' + b"0" * 5000 + b"]}}"
    ),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
def test_wrong_files(tmp_path, raw):
    path = tmp_path / "m"
    path.write_bytes(raw)
    with pytest.raises(tersor.FormatError):
        tersor.open(path)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "m"
    tersor.save(path, {"a": np.ones(9, np.float32)}, "eden:4", seed=1)
    raw = path.read_bytes()
    for n in range(len(raw)):
        path.write_bytes(raw[:n])
        with pytest.raises(tersor.FormatError):
            tersor.open(path)


def test_missing_file_and_limits(tmp_path):
    with pytest.raises(FileNotFoundError):
        tersor.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        tersor.save(tmp_path / "no" / "m", {}, "none")
    tersor.save(tmp_path / "m", {}, "none")
    with tersor.open(tmp_path / "m") as file:
        assert list(file) == []
    tersor.save(tmp_path / "m", {"a": np.ones(9, np.float32)}, "none")
    with tersor.open(tmp_path / "m", max_elements=8) as file, pytest.raises(tersor.FormatError, match="max_elements"):
        file["a"]
