"""The entropy coder: sizes against the entropy and against constriction, bytes against exact integers, damage."""

import builtins
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import rans_exact
from rans_cases import drawn, gaussian, tables

import tersor
from tersor.coding import frequencies, rans
from tersor.coding.rans_stream import CHUNK
from tersor.errors import FormatError, TersorError

N = 1 << 20


def length(counts, freqs):
    """The code length of the counts in bits, in float64."""
    counts, freqs = np.asarray(counts, float), np.asarray(freqs, float)
    used = counts > 0
    return float((counts[used] * np.log2(freqs.sum() / freqs[used])).sum())


# --- sizes


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_within_a_thousandth_of_a_bit_of_the_entropy(bits):
    """Everything counted: states, directory, and the table where it is sent."""
    x = gaussian(N, bits)
    counts = rans.count(x)[: 1 << bits]
    entropy = rans.entropy(counts)
    freqs = rans.normalise(counts)
    data, alone = rans.encode(x, freqs), rans.compress(x)
    assert np.array_equal(rans.decode(data, N, freqs), x)
    assert np.array_equal(rans.decompress(alone), x)
    assert 8 * len(data) / N < entropy + 0.001
    assert 8 * len(alone) / N < entropy + 0.001
    assert 8 * len(data) / N > entropy  # no coder of independent symbols can

    constriction = pytest.importorskip("constriction")
    stream = constriction.stream
    model = stream.model.Categorical(counts / N, perfect=False)
    coder = stream.stack.AnsCoder()
    coder.encode_reverse(x.astype(np.int32), model)
    theirs = coder.get_compressed().nbytes
    assert len(data) <= 1.001 * theirs
    assert len(alone) <= 1.001 * theirs


def test_tables_of_blocks_pay_where_the_distribution_moves():
    x = np.concatenate([gaussian(1 << 16, 2), np.zeros(1 << 16, np.uint8), gaussian(1 << 16, 6)])
    one, own = rans.compress(x), rans.compress(x, block=1 << 16)
    assert np.array_equal(rans.decompress(own), x)
    parts = sum(rans.entropy(rans.count(x[i : i + (1 << 16)])) for i in range(0, len(x), 1 << 16)) * (1 << 16) / 8
    assert len(own) < 1.006 * parts < 0.8 * len(one)


def test_rare_symbols_get_a_finer_table():
    counts = np.full(256, 1)
    counts[0] = N - 255
    x = np.repeat(np.arange(256, dtype=np.uint8), counts)
    data = rans.compress(x)
    assert np.array_equal(rans.decompress(data), x)
    fine = length(counts, rans.normalise(counts, 15))
    assert fine < 0.2 * length(counts, rans.normalise(counts, 12))
    assert 8 * len(data) < fine + 3000


@pytest.mark.parametrize("x", [np.arange(256), np.arange(4096) % 16, np.random.default_rng(0).integers(0, 256, 5000)])
def test_plain_bits_where_coding_does_not_pay(x):
    x = x.astype(np.uint8)
    data = rans.compress(x)
    assert len(data) <= len(x) * int(x.max()).bit_length() / 8 + 8
    assert np.array_equal(rans.decompress(data), x)


def test_few_or_equal_symbols():
    assert rans.decompress(rans.compress(np.zeros(0, np.uint8))).shape == (0,)
    assert len(rans.encode(np.zeros(0, np.uint8), [1, 1])) == 0
    assert rans.decode(b"", 0, [1, 1]).shape == (0,)
    for value in (0, 7, 255):
        x = np.full(3 * N + 5, value, np.uint8)
        data = rans.compress(x)
        assert len(data) < 10
        assert np.array_equal(rans.decompress(data), x)
        freqs = rans.normalise(rans.count(x))
        coded = rans.encode(x[:N], freqs)
        assert len(coded) == 68
        assert np.array_equal(rans.decode(coded, N, freqs), x[:N])


def test_max_nbytes_is_a_bound():
    for freqs in tables():
        here = np.flatnonzero(freqs)
        rarest = here[np.argmin(freqs[here])]
        for n in (0, 1, 100, 5000):
            worst = len(rans.encode(np.full(n, rarest, np.uint8), freqs))
            assert worst <= rans.max_nbytes(n, freqs) <= rans.max_nbytes(n, int(freqs.sum()).bit_length() - 1)
    assert rans.max_nbytes(5000, [1, 4095]) < 5000 * 12.2 / 8
    for wrong in (0, 16):
        with pytest.raises(ValueError, match="scale_bits"):
            rans.max_nbytes(1, wrong)
    with pytest.raises(ValueError, match="negative"):
        rans.max_nbytes(-1)


# --- bytes


def test_bytes_of_exact_integers():
    for k, freqs in enumerate(tables()):
        x = drawn(freqs, (1, 33, 700, 2000, 9001)[k % 5])
        assert rans.encode(x, freqs).tobytes() == rans_exact.coded(x.tolist(), freqs.tolist())


def test_the_size_is_that_of_one_big_integer():
    """One lane of 4,000 symbols: words and state hold the integer that the paper's unbounded coder makes, within a word."""
    freqs = rans.normalise(rans.count(gaussian(4000, 4))[:16])
    x = gaussian(4000, 4, seed=5)
    whole = math.log2(rans_exact.one_number(x.tolist(), freqs.tolist()))
    assert abs(8 * (len(rans.encode(x, freqs)) - 4) - whole) < 40


def test_bytes_that_are_kept():
    """The format: these bytes may not change."""
    x = np.array([0, 1, 0, 0, 2, 1, 0, 3] * 4, np.uint8)
    freqs = rans.normalise(rans.count(x)[:4])
    assert freqs.tolist() == [2048, 1024, 512, 512]
    assert rans.encode(x, freqs).tobytes().hex() == KEPT
    assert rans.decode(bytes.fromhex(KEPT), 32, freqs).tolist() == x.tolist()


KEPT = "0a000000b3300901d9165b8e0030"


def test_chunks_and_threads():
    x = gaussian(2 * CHUNK + 70_000, 4)
    freqs = rans.normalise(rans.count(x)[:16])
    data = rans.encode(x, freqs)
    before = tersor.get_num_threads()
    try:
        for threads in (1, 3):
            tersor.set_num_threads(threads)
            assert np.array_equal(rans.encode(x, freqs), data)
            assert np.array_equal(rans.decode(data, len(x), freqs), x)
    finally:
        tersor.set_num_threads(before)
    sizes = data[:12].view("<u4")
    assert int(sizes.sum()) + 12 == len(data)
    # Chunks stand alone: each is the message of its own symbols, but for the directory.
    at = 12
    for i, size in enumerate(sizes):
        alone = rans.encode(x[i * CHUNK : (i + 1) * CHUNK], freqs)
        assert np.array_equal(alone[4:], data[at : at + size])
        at += int(size)


# --- tables


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=4).filter(any), st.integers(2, 5))
def test_normalise_is_optimal(counts, bits):
    """Against all tables that there are."""
    made = rans.normalise(counts, bits)
    assert made.dtype == np.uint32 and made.sum() == 1 << bits
    assert [c > 0 for c in counts] == [f > 0 for f in made]
    used = [c for c in counts if c]

    def least(k, left):
        if k == len(used) - 1:
            return -used[k] * math.log2(left)
        rest = len(used) - 1 - k
        return min(-used[k] * math.log2(f) + least(k + 1, left - f) for f in range(1, left - rest + 1))

    best = least(0, 1 << bits) + sum(used) * bits
    assert length(counts, made) == pytest.approx(best, rel=1e-6, abs=1e-6)


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=256).filter(any), st.integers(8, 15))
@settings(max_examples=60)
def test_normalise_keeps_every_symbol(counts, bits):
    made = rans.normalise(counts, bits)
    assert int(made.sum()) == 1 << bits
    assert [c > 0 for c in counts] == [f > 0 for f in made.tolist()]
    data = frequencies.table_to_bytes(np.trim_zeros(made, "b"))
    again, used = frequencies.table_from_bytes(data + b"more")
    assert used == len(data)
    assert np.array_equal(again, np.trim_zeros(made, "b"))


def test_normalise_of_floats_and_refusals():
    p = np.array([0.5, 0.25, 0.0, 0.25])
    for scale in (1.0, 1e-300, 1e300):
        assert rans.normalise(p * scale, 8).tolist() == [128, 64, 0, 64]
    assert rans.normalise(np.array([1e-300, 1.0], np.float64), 4).tolist() == [1, 15]
    assert rans.normalise(p.astype(np.float32), 8).tolist() == [128, 64, 0, 64]
    for counts in ([0, 0], [], [[1]], [-1, 2], [np.nan], [np.inf, 1.0], [1] * 257, ["a"]):
        with pytest.raises(ValueError):
            rans.normalise(counts)
    with pytest.raises(ValueError, match="symbols occur"):
        rans.normalise([1] * 17, 4)
    for bits in (0, 16):
        with pytest.raises(ValueError, match="scale_bits"):
            rans.normalise([1, 1], bits)


def test_logarithms():
    table = frequencies._log2_table()
    exact = np.log2(np.arange(1, len(table)))
    assert np.abs(np.array(table[1:]) / 2**28 - exact).max() < 2e-8


def test_entropy():
    assert rans.entropy([3, 3, 3, 3]) == 2.0
    assert rans.entropy([0, 9]) == 0.0
    assert rans.entropy([]) == 0.0
    with pytest.raises(ValueError):
        rans.entropy([-1, 2])


# --- what is refused


def test_bad_arguments():
    x = np.array([0, 1, 2], np.uint8)
    for wrong in ([4, 4, 0], [4, 4]):
        with pytest.raises(ValueError, match="symbol 2 at 2"):
            rans.encode(x, wrong)
    for wrong in ([], [3, 4], [2**15 + 1, 2**15 - 1], [-1, 5], [1], [0.5, 0.5], [[1, 1]], [1] * 512):
        for call in (lambda f=wrong: rans.encode(x, f), lambda f=wrong: rans.decode(b"", 0, f)):
            with pytest.raises(ValueError) as caught:
                call()
            assert not isinstance(caught.value, FormatError)
    for wrong in (x.astype(np.int64), x[None], [0, 1]):
        for call in (rans.count, rans.compress):
            with pytest.raises(ValueError, match="uint8"):
                call(wrong)
    freqs = [4, 2, 2]
    data = rans.encode(x, freqs)
    read_only = np.zeros(3, np.uint8)
    read_only.flags.writeable = False
    for out in (np.zeros(2, np.uint8), np.zeros(3, np.int8), np.zeros(6, np.uint8)[::2], read_only):
        with pytest.raises(ValueError, match="out"):
            rans.decode(data, 3, freqs, out=out)
    out = np.zeros(3, np.uint8)
    assert rans.decode(data, 3, freqs, out=out) is out
    assert out.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="negative"):
        rans.decode(data, -1, freqs)
    with pytest.raises(ValueError, match="block"):
        rans.compress(x, block=0)
    with pytest.raises(ValueError, match="coder"):
        rans.compress(x, coder="gzip")


def test_strides_and_input_stay():
    x = gaussian(9000, 3)[::3]
    before = x.copy()
    freqs = rans.normalise(rans.count(x)[:8])
    data = rans.encode(x, freqs)
    assert np.array_equal(data, rans.encode(before, freqs))
    spread = np.zeros(2 * len(data), np.uint8)
    spread[::2] = data
    for form in (data, spread[::2], data.tobytes(), bytearray(data), memoryview(data.tobytes())):
        assert np.array_equal(rans.decode(form, 3000, freqs), x)
    assert np.array_equal(x, before)


def test_more_symbols_than_the_bytes_can_hold():
    with pytest.raises(FormatError):
        rans.decode(b"\0" * 100, 1 << 50, [1, 1])
    data = rans.compress(np.zeros(1000, np.uint8))
    with pytest.raises(FormatError, match="max_symbols"):
        rans.decompress(data, max_symbols=999)
    assert len(rans.decompress(data, max_symbols=1000)) == 1000
    forged = bytes([0]) + b"\xff\xff\xff\xff\x03" + b"\x01" + bytes([1, 0])  # 2**30 - 1 blocks of one symbol
    with pytest.raises(FormatError, match="short"):
        rans.decompress(forged)


def test_every_prefix_and_every_byte_too_many():
    x = gaussian(300, 4)
    freqs = rans.normalise(rans.count(x)[:16])
    data = rans.encode(x, freqs).tobytes()
    for k in range(len(data)):
        with pytest.raises(FormatError):
            rans.decode(data[:k], 300, freqs)
    for more in (b"\0", b"\0\0", b"\0" * 4):
        with pytest.raises(FormatError):
            rans.decode(data + more, 300, freqs)
    for n in (299, 301, 5000):
        with pytest.raises(FormatError):
            rans.decode(data, n, freqs)
    alone = rans.compress(x, block=100)
    for k in range(len(alone)):
        with pytest.raises(FormatError):
            rans.decompress(alone[:k])
    with pytest.raises(FormatError):
        rans.decompress(alone + b"\0")


@given(st.data())
@settings(max_examples=200)
def test_damage_is_found_or_is_another_message(data):
    """What is accepted is what `encode` makes of the result: there is one message for each sequence of symbols."""
    n = data.draw(st.sampled_from([1, 20, 500, 9000]))
    x = gaussian(n, 4)
    freqs = rans.normalise(np.bincount(x, minlength=16) + 1)
    coded = rans.encode(x, freqs)
    for _ in range(data.draw(st.integers(1, 3))):
        coded[data.draw(st.integers(0, len(coded) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = rans.decode(coded, n, freqs)
    except FormatError:
        return
    assert np.array_equal(rans.encode(made, freqs), coded)


@given(st.binary(max_size=300), st.integers(0, 3000))
@settings(max_examples=300)
def test_any_bytes(data, n):
    for freqs in ([1, 1], [2048, 2047, 0, 1], [30000, 2768]):
        try:
            made = rans.decode(data, n, freqs)
        except FormatError:
            continue
        assert rans.encode(made, freqs).tobytes() == data


@given(st.data())
@settings(max_examples=300)
def test_any_compressed_bytes(data):
    x = gaussian(data.draw(st.sampled_from([0, 3, 400, 5000])), data.draw(st.integers(1, 6)))
    coder = data.draw(st.sampled_from(["rans", "zstd"] if "zstandard" in sys.modules else ["rans"]))
    made = bytearray(rans.compress(x, block=data.draw(st.sampled_from([None, 100, 4096])), coder=coder))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, min(len(made) - 1, 40)))
        made[at] = data.draw(st.integers(0, 255))
    try:
        assert rans.decompress(bytes(made), max_symbols=1 << 16).dtype == np.uint8
    except FormatError:
        pass


# --- Zstandard


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_zstandard_frames(bits):
    zstandard = pytest.importorskip("zstandard")
    x = gaussian(1 << 17, bits) // 2 if bits > 2 else gaussian(1 << 17, bits) * (gaussian(1 << 17, 1, 9) * 3 // 3)
    x = x.astype(np.uint8)
    data = rans.compress(x, coder="zstd")
    assert np.array_equal(rans.decompress(data), x)
    # Any program reads it: the frame begins at its magic number.
    at = data.index(b"\x28\xb5\x2f\xfd")
    width = data[at - 4] if data[at - 4] in (1, 2, 4, 8) else data[at - 3]
    raw = np.frombuffer(zstandard.decompress(data[at:]), np.uint8)
    assert np.array_equal(tersor.coding.bits.unpack(raw[None], width, len(x))[0], x)
    n_bits = 8 * len(data) / len(x)
    assert n_bits < 1.1 * rans.entropy(rans.count(x)) + 0.1


def test_forged_zstandard_frames():
    zstandard = pytest.importorskip("zstandard")
    x = np.zeros(4000, np.uint8)
    x[::7] = 3
    good = rans.compress(x, coder="zstd")
    at = good.index(b"\x28\xb5\x2f\xfd")
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 26))
    unknown = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(1000))
    for frame in (bomb, unknown, b"", b"\x28\xb5\x2f\xfd", zstandard.compress(bytes(1000)) + b"more"):
        head = good[:at]
        size = frequencies_size(len(frame))
        head = head[: head.rindex(bytes([3, 2])) + 2]
        with pytest.raises(FormatError):
            rans.decompress(head + size + frame)


def frequencies_size(n):
    from tersor.coding.rans_blocks import _varint

    return _varint(n)


def test_without_zstandard(monkeypatch):
    x = gaussian(1000, 2)
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "zstandard":
            raise ImportError("no zstandard")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TersorError, match="pip install"):
        rans.compress(x, coder="zstd")
    with pytest.raises(TersorError, match="pip install"):
        rans.decompress(bytes([0, 8, 0, 3, 2, 1, 0]))
