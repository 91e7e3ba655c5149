"""Checkpoints as a stream: the bytes of `tersor.save`, whatever the pieces; what is kept; memory; damaged inputs."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from compress_inputs import safetensors

import tersor
from tersor import pieces
from tersor.arrays import float32_to_bfloat16
from tersor.checksum import combine
from tersor.evaluate.compress import compress_file
from tersor.evaluate.encoded_file import open_encoded
from tersor.evaluate.readers import open_tensors
from tersor.evaluate.writers import write_decoded
from tersor.kernels import ops

SPECS = ["eden:4", "drive", "eden:3,store_norm=true,block=256", "int8", "int8:100", "int4", "mxfp4", "mxfp6", "none"]
SPECS += ["bf16", "fp16", "sq:4", "eden:2,block=full", "eden:5,rotations=2,scale_dtype=bfloat16"]
needs_native = pytest.mark.skipif(ops.backend_name() != "native", reason="slow on the reference backend")


def some(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((37, 1301)).astype(np.float32),
        "w16": rng.standard_normal((64, 640)).astype(np.float16),
        "w64": rng.standard_normal((1053, 19)),
        "bias": rng.standard_normal(50).astype(np.float32),
        "scalar": np.float32(2).reshape(()),
        "empty": np.zeros((0, 4), np.float32),
    }


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 10_000)


@pytest.mark.parametrize("axis", [None, -1])
@pytest.mark.parametrize("spec", SPECS)
def test_pieces_give_the_bytes_of_save(tmp_path, small_pieces, spec, axis):
    data = some()
    source = open_tensors(safetensors(tmp_path / "in.safetensors", data))
    summary = compress_file(source, tmp_path / "a", tersor.get_codec(spec), seed=7, axis=axis, keep_below=0)
    tersor.save(tmp_path / "b", data, spec, seed=7, axis=axis)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    whole = spec.startswith("sq") or ("full" in spec and axis is None)
    assert bool(summary.whole) == whole
    with tersor.open(tmp_path / "a") as file:
        assert whole or len(list(file.stored("w").pieces())) > 2
        for t in summary.tensors:
            got = file.decode(t.name)
            assert t.errors.vnmse == pytest.approx(tersor.nmse(data[t.name], got), rel=1e-9)
            parts = [p.codec.decode(p).reshape(-1) for p in file.stored(t.name).pieces()]
            assert np.array_equal(np.concatenate(parts), got.reshape(-1)), "pieces decode to the values of the whole"


def test_bfloat16_in_pieces(tmp_path, small_pieces):
    bits = float32_to_bfloat16(np.random.default_rng(0).standard_normal(50_000).astype(np.float32))
    source = safetensors(tmp_path / "in.safetensors", {"w": bits}, bf16=("w",))
    compress_file(open_tensors(source), tmp_path / "a.safetensors", tersor.get_codec("eden:8"), seed=1)
    whole = tersor.get_codec("eden:8").encode(tersor.arrays.Host(bits, "bfloat16"), seed=tersor.rng.mix64(1, tensor=0))
    with tersor.open(tmp_path / "a.safetensors") as file:
        assert file["w"].to_bytes() == whole.to_bytes()
    compress_file(open_tensors(source), tmp_path / "n.safetensors", tersor.get_codec("none"), seed=1)
    with open_encoded(tmp_path / "n.safetensors") as encoded:
        write_decoded(tmp_path / "back.safetensors", encoded)
    back = open_tensors(tmp_path / "back.safetensors").tensors["w"]
    with back.values() as read:
        assert back.dtype == "bfloat16" and np.array_equal(read(50_000), bits)


@pytest.mark.parametrize("kind", ["npy", "npz", "pt", "fortran", "big-endian"])
def test_every_input(tmp_path, small_pieces, kind):
    x = np.random.default_rng(0).standard_normal((300, 101)).astype(np.float32)
    path = tmp_path / f"x.{kind if kind in ('npz', 'pt') else 'npy'}"
    if kind == "npz":
        np.savez_compressed(path, x=x)
    elif kind == "pt":
        torch = pytest.importorskip("torch")
        torch.save({"x": torch.from_numpy(x)}, path)
    else:
        np.save(path, np.asfortranarray(x) if kind == "fortran" else x.astype(">f4") if kind == "big-endian" else x)
    compress_file(open_tensors(path), tmp_path / "a", tersor.get_codec("eden:4"), seed=3)
    tersor.save(tmp_path / "b", {"x": x}, "eden:4", seed=3)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_policy_keep_and_small_tensors(tmp_path):
    data = some() | {"big.bias": np.ones(5000, np.float32)}
    source = open_tensors(safetensors(tmp_path / "in.safetensors", data))
    bf16 = tersor.get_codec("bf16")
    options = {"policy": {"w6*": bf16, "bias": bf16, "w": bf16}, "keep": ["*.bias", "w"]}
    summary = compress_file(source, tmp_path / "a", tersor.get_codec("eden:4"), seed=1, **options)
    specs = {t.name: t.spec for t in summary.tensors}
    assert specs == dict.fromkeys(("w", "big.bias", "scalar", "empty"), "none") | dict.fromkeys(
        ("bias", "w64"), "bf16"
    ) | {"w16": "eden:4"}


def test_what_is_exact_keeps_every_bit(tmp_path):
    """Masks with infinities, NaN with a payload, -0: stored exactly, they are."""
    odd = np.array([np.inf, -np.inf, -0.0, 1], np.float32)
    odd[3:].view(np.uint32)[:] = 0x7F800123
    data = {"w": some()["w"], "mask": odd, "half": odd[:3].astype(np.float16)}
    compress_file(
        open_tensors(safetensors(tmp_path / "in.safetensors", data)), tmp_path / "a.safetensors", tersor.Eden(bits=4)
    )
    with open_encoded(tmp_path / "a.safetensors") as encoded:
        write_decoded(tmp_path / "b.safetensors", encoded)
    back = open_tensors(tmp_path / "b.safetensors")
    for name in ("mask", "half"):
        assert back[name].tobytes() == data[name].tobytes()


def test_other_tensors_are_kept_behind_the_messages(tmp_path):
    data = {"ids": np.arange(7), "m": np.ones(3, bool), "u": np.arange(5, dtype=np.uint8)} | some()
    source = open_tensors(safetensors(tmp_path / "in.safetensors", data))
    out = tmp_path / "a.safetensors"
    compress_file(source, out, tersor.get_codec("eden:4"), seed=1)
    with tersor.open(out) as file:
        assert set(file.kept) == {"ids", "m", "u"} and "ids" not in file
        for name in file.kept:
            got = file.decode(name)
            assert got.dtype == data[name].dtype and np.array_equal(got, data[name])
    library = pytest.importorskip("safetensors.numpy")
    assert np.array_equal(library.load_file(out)["ids"], data["ids"])
    raw = bytearray(out.read_bytes())
    raw[-1] ^= 1
    out.write_bytes(raw)
    with tersor.open(out) as file, pytest.raises(tersor.FormatError, match="checksum"):
        file.decode("u")
    with open_encoded(out) as encoded, pytest.raises(tersor.FormatError, match="checksum"):
        write_decoded(tmp_path / "b.safetensors", encoded)
    assert not (tmp_path / "b.safetensors").exists()


def test_nonfinite_is_named_by_its_place_in_the_whole(tmp_path, small_pieces):
    x = np.ones((300, 100), np.float32)
    x[250, 7] = np.nan
    source = open_tensors(safetensors(tmp_path / "in.safetensors", {"w": x}))
    with pytest.raises(tersor.TersorError, match=r"'w': x\[250, 7\] is nan"):
        compress_file(source, tmp_path / "a", tersor.get_codec("eden:4"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.safetensors"]


def test_the_check_finds_a_wrong_file(tmp_path, monkeypatch):
    """What reads back damaged, or far from its law, never takes the place of the old file."""
    out = tmp_path / "a"
    out.write_text("old")
    source = open_tensors(safetensors(tmp_path / "in.safetensors", {"w": some()["w"]}))
    real = pieces.write_at

    def flip(file, data, at):
        real(file, bytes(data[:-1]) + bytes([data[-1] ^ 1]) if len(data) > 9000 else data, at)

    with monkeypatch.context() as patch:
        patch.setattr(pieces, "write_at", flip)
        with pytest.raises(tersor.TersorError, match="the check of the tensor 'w' failed: the checksum is wrong"):
            compress_file(source, out, tersor.get_codec("eden:4"))
    with monkeypatch.context() as patch:
        patch.setattr(tersor.Eden, "expected_error", lambda self, received=1.0: 1e-4)
        with pytest.raises(tersor.TersorError, match=r"law says 0\.0001"):
            compress_file(source, out, tersor.get_codec("eden:4"))
    assert out.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["a", "in.safetensors"]


def test_crc_of_parts():
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 63, 64, 65, 70_001):
        a, b = rng.bytes(100), rng.bytes(n)
        assert combine(zlib.crc32(a), zlib.crc32(b), n) == zlib.crc32(a + b)


W = np.ones(4, np.float32)
HEAD = {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
BAD = {
    "nothing": b"",
    "truncated": (40).to_bytes(8, "little") + b"{",
    "header too large": (100_000_001).to_bytes(8, "little") + b" " * 64,
    "larger than the file": (1 << 62).to_bytes(8, "little") + b"{}",
    "dtype": {"w": HEAD["w"] | {"dtype": "F33"}},
    "dtype of no text": {"w": HEAD["w"] | {"dtype": 5}},
    "shape": {"w": HEAD["w"] | {"shape": [5]}},
    "negative shape": {"w": HEAD["w"] | {"shape": [-2, -2]}},
    "shape of text": {"w": HEAD["w"] | {"shape": "4x"}},
    "outside": {"w": HEAD["w"] | {"data_offsets": [4, 20]}},
    "half a byte": {"w": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}},
    "metadata": HEAD | {"__metadata__": []},
    "a list": [1],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_damaged_inputs(tmp_path, bad):
    path = tmp_path / "in.safetensors"
    text = json.dumps(bad).encode() if not isinstance(bad, bytes) else b""
    path.write_bytes(bad if isinstance(bad, bytes) else len(text).to_bytes(8, "little") + text + W.tobytes())
    with pytest.raises(tersor.FormatError, match=r"in\.safetensors"):
        open_tensors(path)


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = safetensors(tmp_path / "in.safetensors", {"w": some()["w"]})
    source = open_tensors(path)
    os.truncate(path, 5000)
    with pytest.raises(tersor.FormatError, match="ends within a tensor"):
        compress_file(source, tmp_path / "a", tersor.get_codec("eden:4"))
    assert not (tmp_path / "a").exists()


def test_a_changed_input_is_noticed(tmp_path):
    path = safetensors(tmp_path / "in.safetensors", {"w": some()["w"], "v": some()["w"]})

    def touch(name, n):
        os.utime(path, ns=(0, 0))

    with pytest.raises(tersor.TersorError, match="changed while it was read"):
        compress_file(open_tensors(path), tmp_path / "a", tersor.get_codec("eden:4"), progress=touch)
    assert not (tmp_path / "a").exists()


def hollow(path: Path, sizes: dict[str, int], random: int) -> Path:
    """Write a file of float32 tensors that are holes, each with `random` random coordinates at its start."""
    header, at = {}, 0
    for name, n in sizes.items():
        header[name] = {"dtype": "F32", "shape": [n], "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        base = file.tell()
        file.truncate(base + at)
        for i, name in enumerate(sizes):
            file.seek(base + header[name]["data_offsets"][0])
            file.write(np.random.default_rng(i).standard_normal(random).astype(np.float32).tobytes())
    return path


MEASURE = """
import resource, sys
if {work}:
    from pathlib import Path
    import tersor
    from tersor.evaluate.compress import compress_file
    from tersor.evaluate.encoded_file import open_encoded
    from tersor.evaluate.readers import open_tensors
    from tersor.evaluate.writers import write_decoded
    compress_file(open_tensors({source!r}), Path({out!r}), tersor.get_codec("eden:4"), seed=1)
    if {decompress}:
        with open_encoded(Path({out!r})) as file:
            write_decoded(Path({back!r}), file)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(work: bool, source: Path, out: Path, back: Path, decompress: bool = True) -> int:
    """Return the peak of memory of a process, in KiB."""
    code = MEASURE.format(work=work, source=str(source), out=str(out), back=str(back), decompress=decompress)
    env = dict(os.environ, TERSOR_BACKEND=ops.backend_name())
    # A fork of this large process counts its pages as its own until exec: a small one in between does not.
    command = [
        sys.executable,
        "-c",
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {code!r}]))",
    ]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)


@needs_native
def test_memory_is_bounded(tmp_path):
    """One tensor of 300 MiB and a small one: 128 MiB beside the bare interpreter, there and back."""
    source = hollow(tmp_path / "in.safetensors", {"w": 75 << 20, "v": 1 << 16}, 1 << 16)
    files = (source, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    used = peak(True, *files) - peak(False, *files)
    assert used < 128 << 10, f"{used >> 10} MiB"
    assert files[2].stat().st_size >= 300 << 20


@pytest.mark.slow
@needs_native
def test_memory_is_bounded_for_a_tensor_of_4_gib(tmp_path):
    source = hollow(tmp_path / "in.safetensors", {"w": 1 << 30, "v": 1 << 20}, 1 << 24)
    files = (source, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    used = peak(True, *files, decompress=False) - peak(False, *files)
    assert used < 512 << 10, f"{used >> 10} MiB"
    with tersor.open(files[1]) as file:
        part = next(iter(file.stored("w").pieces()))
        x = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32)
        assert tersor.nmse(x, tersor.decode(part)) == pytest.approx(0.0096, rel=0.05)


@pytest.mark.parametrize("crc", ['"-1"', '"0x5"', '"1_0"', '"' + "9" * 5000 + '"', '"zz"', '""', "5", "null", "[]"])
def test_forged_checksums_of_kept_tensors(tmp_path, crc):
    """Eight hexadecimal digits, and nothing else that `int` would take."""
    metadata = {"format": "tersor", "version": "0", "kept": f'{{"a": {crc}}}'}
    header = {"__metadata__": metadata, "a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(tersor.FormatError, match="damaged list of kept tensors"):
        tersor.open(tmp_path / "x.safetensors")
