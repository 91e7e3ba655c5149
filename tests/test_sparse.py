"""Top-K, Rand-K and Perm-K: which coordinates are sent, the exact laws, forged indices, exact means of all workers."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from unrotated import check_law, check_unbiased, vector

import tersor
from tersor import rng


def forged(enc, name, data):
    return replace(enc, planes={**enc.planes, name: replace(enc.planes[name], data=data)}).to_bytes()


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4097, 90_000])
@pytest.mark.parametrize("fraction", [1e-6, 0.01, 0.3, 1.0])
def test_topk_is_a_stable_sort(n, fraction):
    """The k largest magnitudes, ties by lowest index, with half of the values tied."""
    g = np.random.default_rng(n)
    x = g.standard_normal(n).astype(np.float32)
    x[::2] = np.round(x[::2])
    k = max(1, int(np.ceil(fraction * n)))
    enc = tersor.TopK(fraction).encode(x, seed=1)
    chosen = np.sort(np.argsort(-np.abs(x), kind="stable")[:k])
    expected = np.zeros_like(x)
    expected[chosen] = x[chosen]
    assert np.array_equal(tersor.decode(tersor.from_bytes(enc.to_bytes())), expected)
    width = int(np.ceil(np.log2(n)))
    plane = enc.planes["indices"]
    assert len(plane.data) == (k * width + 7) // 8 and len(enc.planes["values"].data) == 4 * k
    bits = np.unpackbits(plane.data, bitorder="little")[: k * width].reshape(k, width).astype(np.int64)
    assert np.array_equal(bits @ (1 << np.arange(width)), chosen)
    assert enc.error == pytest.approx(tersor.nmse(x, expected) if np.any(x) else 0, rel=1e-6, abs=1e-12)
    assert enc.error <= 1 - k / n + 1e-9


def test_topk_rows_and_values():
    x = np.stack([vector("LogN", 9, s) for s in range(30)])
    for values, precision in (("float32", 0), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        codec = tersor.TopK(0.05, values)
        enc = codec.encode(x, axis=-1)
        value = codec.decode(enc)
        for row, made in zip(x, value, strict=True):
            chosen = np.sort(np.argsort(-row, kind="stable")[:26])
            assert np.array_equal(np.flatnonzero(made), chosen)
            assert np.allclose(made[chosen], row[chosen], rtol=precision, atol=0)
        assert enc.error == pytest.approx(tersor.nmse(x, value), rel=1e-5)
    with pytest.raises(tersor.RangeError, match="float16"):
        tersor.TopK(0.5, "float16").encode(np.full(9, 1e5, np.float32))


@pytest.mark.parametrize("wrong", [[5, 5, 7], [7, 5, 9], [5, 7, 10], [5, 7, 15], [0, 0, 0]])
def test_forged_indices(wrong):
    enc = tersor.TopK(0.3).encode(np.arange(10, dtype=np.float32), seed=1)

    def pack(indices):
        return np.frombuffer(sum(v << 4 * i for i, v in enumerate(indices)).to_bytes(2, "little"), np.uint8)

    assert enc.planes["indices"].data.tobytes() == pack([7, 8, 9]).tobytes()
    assert np.flatnonzero(tersor.decode(tersor.from_bytes(forged(enc, "indices", pack([1, 4, 9]))))).tolist() == [
        1,
        4,
        9,
    ]
    with pytest.raises(tersor.FormatError, match="indices"):
        tersor.from_bytes(forged(enc, "indices", pack(wrong)))


def test_forged_indices_across_pieces():
    """A long unit is checked part by part: the seam between two parts too."""
    n = 1 << 17
    enc = tersor.TopK(0.5).encode(np.ones(n, np.float32), seed=1)
    indices = np.arange(n // 2)
    for at in (40960, 40961, n // 2 - 1):
        bad = indices.copy()
        bad[at] = bad[at - 1]
        stream = ((bad[:, None] >> np.arange(17)) & 1).astype(np.uint8).reshape(-1)
        with pytest.raises(tersor.FormatError, match="indices"):
            tersor.from_bytes(forged(enc, "indices", np.packbits(stream, bitorder="little")))


def test_randk_is_what_format_md_says():
    """The last k places of the keyed permutation, at the block's position; values as they are, times n / k."""
    x = np.random.default_rng(0).standard_normal(2 * 4096 + 77).astype(np.float32)
    codec = tersor.RandK(0.01)
    enc = codec.encode(x, seed=5)
    values, at = enc.planes["values"].values(), 0
    value = codec.decode(enc)
    for begin in range(0, len(x), 4096):
        n = min(4096, len(x) - begin)
        k = int(np.ceil(0.01 * n))
        chosen = rng.permutation(5, 0, begin, n)[::-1][:k]
        assert np.array_equal(values[at : at + k], x[begin + chosen])
        expected = np.zeros(n, np.float32)
        expected[chosen] = x[begin + chosen] * np.float32(n / k)
        assert np.array_equal(value[begin : begin + n], expected)
        at += k
    rows = codec.encode(x[:8000].reshape(80, 100), seed=5, axis=-1)
    assert ((codec.decode(rows) != 0) == (codec.decode(rows)[0] != 0)).all(), "all rows send the same coordinates"


@pytest.mark.parametrize("spec", ["randk:0.25", "randk:0.01", "permk:3", "permk:100"])
def test_variance_is_exact(spec):
    codec = tersor.get_codec(spec)
    for x in (vector("N", 6, 1), np.array([1, -1, 0, 0.5, 7], np.float32)):
        n = x.size
        law = codec.workers - 1 if codec.name == "permk" else n / max(1, np.ceil(codec.fraction * n)) - 1
        check_unbiased(check_law(codec, x, law), x)
    assert tersor.get_codec("randk:0.25").expected_error() == 3 and tersor.get_codec("permk:4").expected_error() == 3


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 4099])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 11])
def test_all_workers_together_are_exact(n, workers):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    codec = tersor.PermK(workers)
    sent = [codec.encode(x, seed=1, sender=10 * workers + i, shared=tersor.Shared(9)) for i in range(workers)]
    assert [struct.unpack("<H", m.fields)[0] for m in sent] == list(range(workers))
    parts = np.stack([codec.decode(m) for m in sent])
    assert ((parts != 0).sum(0) == (x != 0)).all(), "every coordinate is sent once"
    assert np.allclose(tersor.mean(sent), x, rtol=3e-7, atol=0)
    assert len({m.nbytes for m in sent}) == 1
    y = np.tile(x, (3, 1))
    rows = [codec.encode(y, seed=1, sender=i, shared=tersor.Shared(9), axis=-1) for i in range(workers)]
    assert np.allclose(tersor.mean(rows), y, rtol=3e-7, atol=0)


def test_a_forged_worker():
    raw = bytearray(tersor.PermK(3).encode(np.ones(8, np.float32), seed=1, sender=2).to_bytes())
    at = raw.index(b"permk:3") + 7
    assert raw[at : at + 2] == b"\x02\x00"
    for worker in (3, 65535):
        struct.pack_into("<H", raw, at, worker)
        struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))
        with pytest.raises(tersor.FormatError, match="worker"):
            tersor.from_bytes(bytes(raw))


@pytest.mark.parametrize("spec", ["topk:0.1", "randk:0.1", "permk:3", "permk:200"])
def test_nan_marks_its_unit(spec):
    x = np.ones((3, 50), np.float32)
    x[1, 49] = np.nan
    codec = tersor.get_codec(spec)
    for sender in range(3):
        value = codec.decode(codec.encode(x, seed=1, sender=sender, axis=-1, nonfinite="propagate"))
        assert np.isnan(value[1]).all() and np.isfinite(value[[0, 2]]).all()


def test_refusals():
    for spec in (
        "topk:0",
        "topk:1.5",
        "topk:true",
        "randk:-1",
        "randk:0.5,values=int8",
        "permk:0",
        "permk:2.5",
        "permk:4097",
    ):
        with pytest.raises(ValueError, match=spec[:4]):
            tersor.get_codec(spec)
