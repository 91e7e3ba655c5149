"""EncodedDict: 600 small tensors at 40 bytes each, policies, keys, every entry option on the wire, what it refuses."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

import tersor


def tensors(n, size, seed=0):
    rng = np.random.default_rng(seed)
    return {f"layers.{i // 6}.block.{i % 6}.bias": rng.standard_normal(size).astype(np.float32) for i in range(n)}


def repaired(raw):
    raw = bytearray(raw)
    struct.pack_into("<Q", raw, 16, len(raw))
    struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))
    return bytes(raw)


@pytest.mark.parametrize("spec", ["eden:4", "eden:1", "eden:8", "drive", "fp16", "int8", "sq:4"])
def test_600_tensors_of_10_coordinates(spec):
    """At most 40 bytes a tensor, names of 20 letters included, besides the names' own letters beyond those."""
    arrays = tensors(600, 10)
    enc = tersor.encode_dict(arrays, spec, seed=1)
    raw = enc.to_bytes()
    names = sum(len(name) for name in arrays)
    assert len(raw) == enc.nbytes
    assert (len(raw) - names) / 600 <= 40 - 10, "without its name a tensor of 10 coordinates costs 30 bytes at most"
    plain = {f"t{i}": x for i, x in enumerate(arrays.values())}
    assert len(tersor.encode_dict(plain, spec, seed=1).to_bytes()) <= 40 * 600
    assert enc.bits_per_coordinate == 8 * len(raw) / 6000
    twin = tersor.EncodedDict.from_bytes(raw)
    assert list(twin) == list(arrays) and twin.to_bytes() == raw


@pytest.mark.parametrize("spec", ["none", "eden:4", "eden:2,block=64,store_norm=true", "int8:32", "sq:5", "bf16"])
def test_everything_comes_back(spec):
    rng = np.random.default_rng(2)
    arrays = {
        "scalar": np.float32(3).reshape(()),
        "": np.zeros(0, np.float32),
        "empty rows": np.zeros((3, 0), np.float32),
        "näme/☃": rng.standard_normal((3, 50)).astype(np.float16),
        "double": rng.standard_normal(5000),
        "a" * 300: np.ones((1, 2, 1, 2), np.float32),
    }
    enc = tersor.encode_dict(arrays, spec, seed=3)
    twin = tersor.EncodedDict.from_bytes(memoryview(b"__" + enc.to_bytes())[2:])
    assert list(twin) == list(arrays) and len(twin) == 6 and twin.key == enc.key == 3
    decoded = enc.decode()
    for name, value in twin.decode().items():
        assert value.shape == arrays[name].shape and value.dtype == arrays[name].dtype
        assert value.tobytes() == decoded[name].tobytes()
        assert twin[name].to_bytes() == enc[name].to_bytes()
        assert tersor.nmse(arrays[name], value) < 0.14


def test_every_entry_option_on_the_wire():
    """Own keys, starts, counts, digests and rows of single messages put together by hand."""
    x = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    sq = tersor.get_codec("sq:4")
    shared = sq.merge(sq.measure(x)[None], key=2**63 + 5)
    a, b = (sq.encode(x, seed=s, sender=s, shared=shared) for s in (1, 2))
    entries = {
        "sum": sq.add(a, b),
        "rows": tersor.Eden(bits=3).encode(x, seed=5, axis=-1, start=2**40),
        "block": tersor.Eden(bits=3, block=32).encode(x, seed=5, start=64),
        "sender": tersor.Eden(bits=3).encode(x, seed=5, sender=9),
    }
    made = tersor.EncodedDict(entries, key=77)
    twin = tersor.EncodedDict.from_bytes(made.to_bytes())
    for name, enc in entries.items():
        for field in ("spec", "key", "start", "count", "digest", "axis", "fields", "shape", "dtype"):
            assert getattr(twin[name], field) == getattr(enc, field), (name, field)
        assert np.array_equal(tersor.decode(twin[name]), tersor.decode(enc))
    assert tersor.decode(twin["sum"]) == pytest.approx((tersor.decode(a) + tersor.decode(b)) / 2, abs=1e-6)


def test_policies():
    arrays = {"w": np.ones((8, 8), np.float32), "w.bias": np.ones(8, np.float32), "norm": np.ones(8, np.float32)}
    by_pattern = tersor.encode_dict(arrays, "eden:4", {"*.bias": "fp16", "*": "int8"}, seed=1)
    assert [by_pattern[n].spec for n in arrays] == ["int8", "fp16", "int8"], "the first match wins"
    by_call = tersor.encode_dict(arrays, "eden:4", lambda name, x: "none" if x.ndim == 1 else None, seed=1)
    assert [by_call[n].spec for n in arrays] == ["eden:4", "none", "none"]
    with pytest.raises(ValueError, match="nope"):
        tersor.encode_dict(arrays, "eden:4", {"w": "nope"}, seed=1)


def test_keys():
    """Tensors and senders draw apart; the same seed gives the same bytes, of any integer type."""
    arrays = {"a": np.ones(64, np.float32), "b": np.ones(64, np.float32)}
    enc = tersor.encode_dict(arrays, "eden:4", seed=1)
    assert enc["a"].key == tersor.rng.mix64(1, tensor=0) and enc["b"].key == tersor.rng.mix64(1, tensor=1)
    assert enc["a"].planes["codes"].data.tobytes() != enc["b"].planes["codes"].data.tobytes()
    assert tersor.encode_dict(arrays, "eden:4", seed=np.int64(1)).to_bytes() == enc.to_bytes()
    others = [tersor.encode_dict(arrays, "eden:4", seed=1, sender=s)["a"].key for s in range(4)]
    assert len(set(others)) == 4
    assert tersor.encode_dict(arrays, "eden:4").key != tersor.encode_dict(arrays, "eden:4").key


def test_framework_of_like():
    torch = pytest.importorskip("torch")
    arrays = {"a": torch.ones(5, dtype=torch.bfloat16), "b": torch.ones(2, 2)}
    enc = tersor.encode_dict(arrays, "eden:8", seed=1)
    assert all(isinstance(v, torch.Tensor) and v.dtype == arrays[k].dtype for k, v in enc.decode().items())
    twin = tersor.EncodedDict.from_bytes(enc.to_bytes())
    assert all(isinstance(v, np.ndarray) for v in twin.decode().values())
    mixed = twin.decode(like={"a": arrays["a"]})
    assert isinstance(mixed["a"], torch.Tensor) and isinstance(mixed["b"], np.ndarray)


def test_what_a_bundle_does_not_keep():
    enc = tersor.get_codec("none").encode(np.ones((4, 2), np.float32), axis=-1)
    lossy = tersor.EncodedDict({"x": replace(enc, received=np.ones(4, bool))})
    with pytest.raises(ValueError, match="x"):
        lossy.to_bytes()
    assert "x" in repr(lossy) and lossy["x"].received.all()


def test_nonfinite_is_named():
    arrays = {"good": np.ones(3, np.float32), "bad": np.array([1, np.nan], np.float32)}
    with pytest.raises(tersor.NonFiniteError, match=r"x\[1\]"):
        tersor.encode_dict(arrays, "eden:4", seed=1)
    assert np.isnan(tersor.encode_dict(arrays, "eden:4", seed=1, nonfinite="propagate").decode()["bad"]).all()


def varint(n):
    raw = b""
    while n >= 128:
        raw, n = raw + bytes([n & 127 | 128]), n >> 7
    return raw + bytes([n])


def bundle(entries, blob=b"", specs=(b"none",), count=None):
    """A bundle by hand, from FORMAT.md section 7."""
    manifest = b"".join(bytes([len(s)]) + s for s in specs) + b"".join(entries)
    header = struct.pack(
        "<4sB3xIIQQII", b"TERD", 0, 0, len(specs), 0, 5, len(entries) if count is None else count, len(manifest)
    )
    return repaired(header + manifest + blob)


def entry(name=b"x", spec=0, info=0, shape=(2,), tail=b""):
    return (
        varint(len(name))
        + name
        + varint(spec)
        + bytes([info])
        + varint(len(shape))
        + b"".join(map(varint, shape))
        + tail
    )


ONES = np.ones(2, "<f4").tobytes()


def test_a_bundle_by_hand():
    made = tersor.EncodedDict.from_bytes(bundle([entry()], ONES))
    assert made["x"].key == tersor.rng.mix64(5, tensor=0) and tersor.decode(made["x"]).tolist() == [1, 1]
    assert made.to_bytes() == bundle([entry()], ONES)
    moved = tersor.EncodedDict.from_bytes(bundle([entry(info=24, tail=struct.pack("<QQII", 3, 4096, 2, 9))], ONES))["x"]
    assert (moved.key, moved.start, moved.count, moved.digest) == (3, 4096, 2, 9)


WRONG = {
    "twice": ([entry(), entry()], ONES + ONES),
    "spec": ([entry(spec=1)], ONES),
    "info": ([entry(info=32)], ONES),
    "axes": ([entry(shape=(1,) * 33)], ONES),
    "rows of a scalar": ([entry(info=4, shape=())], ONES[:4]),
    "name": ([entry(name=b"\xff")], ONES),
    "long name": ([varint(1000) + b"x"], ONES),
    "huge": ([entry(shape=(1 << 40,))], ONES),
    "huge rows": ([entry(info=4, shape=(1 << 31, 1 << 31))], ONES),
    "blob short": ([entry()], ONES[:7]),
    "blob long": ([entry()], ONES + b"\0"),
    "start": ([entry(info=16, tail=struct.pack("<QII", 5, 1, 0))], ONES),
    "count": ([entry(info=16, tail=struct.pack("<QII", 0, 0, 0))], ONES),
    "varint": ([b"\x81\x00x" + entry()[2:]], ONES),
    "endless varint": ([b"\x80" * 30], b""),
    "varint beyond 2**63": ([entry(shape=((1 << 63) + 1,))], b""),
}


@pytest.mark.parametrize(("entries", "blob"), WRONG.values(), ids=WRONG)
def test_wrong_manifests(entries, blob):
    with pytest.raises(tersor.FormatError):
        tersor.EncodedDict.from_bytes(bundle(entries, blob))


def test_wrong_headers():
    good = bundle([entry()], ONES)
    for offset, kind, value in (
        (0, "4s", b"TERX"),
        (4, "B", 1),
        (5, "B", 1),
        (12, "I", 2),
        (32, "I", 2),
        (32, "I", 0),
        (36, "I", 999),
    ):
        raw = bytearray(good)
        struct.pack_into("<" + kind, raw, offset, value)
        with pytest.raises(tersor.FormatError):
            tersor.EncodedDict.from_bytes(repaired(raw))
    with pytest.raises(tersor.FormatError, match="max_elements"):
        tersor.EncodedDict.from_bytes(bundle([entry(), entry(name=b"y")], ONES * 2), max_elements=3)
    with pytest.raises(tersor.FormatError):
        tersor.EncodedDict.from_bytes(bundle([], specs=(b"none", b"nope")))
    for other in (good[:39], b"", tersor.get_codec("none").encode(np.ones(2)).to_bytes()):
        with pytest.raises(tersor.FormatError):
            tersor.EncodedDict.from_bytes(other)


def test_the_number_of_tensors_is_limited():
    bundle = tersor.encode_dict({str(i): np.ones(1, np.float32) for i in range(20)}, "none", seed=1)
    assert len(tersor.EncodedDict.from_bytes(bundle.to_bytes(), max_tensors=20)) == 20
    with pytest.raises(tersor.FormatError, match="max_tensors=19"):
        tersor.EncodedDict.from_bytes(bundle.to_bytes(), max_tensors=19)
