"""Forged bytes: fields changed and the checksum repaired give FormatError or a tensor of the header's shape.

Never another exception, a crash, or memory beyond twice the output and 1 MiB.
"""

import contextlib
import math
import os
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
import samples

import tersor
from tersor.kernels import ops

MESSAGES = samples.messages()
BUNDLES = samples.bundles()
DEFAULT, MANY = 4_000, 100_000
MIB = 1 << 20

# Offset and struct code of the fields of FORMAT.md sections 6 and 7, without magic and checksum.
MESSAGE_FIELDS = [
    (4, "B"),
    (5, "B"),
    (6, "B"),
    (7, "B"),
    (12, "I"),
    (16, "Q"),
    (24, "Q"),
    (32, "Q"),
    (40, "I"),
    (44, "I"),
]
MESSAGE_FIELDS += [(48, "B"), (49, "B"), (50, "B"), (51, "B"), (52, "H"), (54, "H")]
BUNDLE_FIELDS = [(4, "B"), (5, "B"), (12, "I"), (16, "Q"), (24, "Q"), (32, "I"), (36, "I")]
WIDTH = {"B": 1, "H": 2, "I": 4, "Q": 8}


def interesting(rng, width, old):
    bits = 8 * width
    near = [old + d for d in (-2, -1, 1, 2)] + [old * 2, old // 2]
    edges = [0, 1, 2, 3, 7, 8, 255, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 4096, 1 << 31, 1 << 32]
    return rng.choice([*near, *edges, rng.getrandbits(bits), 1 << rng.randrange(bits)]) % (1 << bits)


def set_field(rng, raw, offset, kind):
    if offset + WIDTH[kind] <= len(raw):
        (old,) = struct.unpack_from("<" + kind, raw, offset)
        struct.pack_into("<" + kind, raw, offset, interesting(rng, WIDTH[kind], old))


def header_field(rng, raw):
    set_field(rng, raw, *rng.choice(MESSAGE_FIELDS if raw[:4] == b"TERS" else BUNDLE_FIELDS))


def shape_or_size(rng, raw):
    if raw[:4] == b"TERS":
        set_field(rng, raw, 56 + 8 * rng.randrange(max(raw[48] + raw[50], 1)), "Q")
    else:
        manifest(rng, raw)


def manifest(rng, raw):
    begin = 40 if raw[:4] == b"TERD" else 56
    end = min(begin + (struct.unpack_from("<I", raw, 36)[0] if begin == 40 else 80), len(raw))
    if end > begin:
        raw[rng.randrange(begin, end)] = rng.choice((0, 1, 2, 127, 128, 129, 255, rng.randrange(256)))


def new_spec(rng, raw):
    """Another spec of the same length, or a near miss, so that sizes agree."""
    spec = rng.choice([*samples.SPECS, "eden:0", "eden:9", "sq:9", "int8:7", "eden:4,block=4096", "drive:one"]).encode()
    begin = 56 + 8 * (raw[48] + raw[50]) if raw[:4] == b"TERS" else 41
    length = raw[49] if raw[:4] == b"TERS" else (raw[40] if len(raw) > 40 else 0)
    if begin + length <= len(raw):
        raw[begin : begin + length] = spec[:length].ljust(length)


def payload(rng, raw):
    """Scales, norms, ranges, counts and codes at random, with the floats that hurt."""
    at = rng.randrange(len(raw))
    words = (0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF, 1, 0x80000000, 0xFFFFFFFF, 0)
    if len(raw) - at >= 4:
        struct.pack_into("<I", raw, at // 4 * 4 if at % 4 and len(raw) >= at // 4 * 4 + 4 else at, rng.choice(words))
    for _ in range(rng.randrange(4)):
        raw[rng.randrange(8, len(raw))] = rng.randrange(256)


def consistent(rng, raw):
    """Grow or shrink an axis and the planes together: sizes that agree with one another but not with the rest."""
    if raw[:4] != b"TERS" or not raw[48]:
        return
    ndim, n_planes = raw[48], raw[50]
    if 56 + 8 * (ndim + n_planes) > len(raw):
        return
    axis = 56 + 8 * rng.randrange(ndim)
    (n,) = struct.unpack_from("<Q", raw, axis)
    struct.pack_into("<Q", raw, axis, rng.choice((n + 1, max(n - 1, 0), n * 2, 0, n + 4096, 1 << 31)) % 2**64)
    if n_planes and rng.random() < 0.7:
        size = 56 + 8 * (ndim + rng.randrange(n_planes))
        (m,) = struct.unpack_from("<Q", raw, size)
        more = rng.choice((8, 16, 64, 4096))
        if rng.random() < 0.5:
            struct.pack_into("<Q", raw, size, (m + more) % 2**64)
            raw += bytes(more)
        struct.pack_into("<Q", raw, 16, len(raw))


FORGERIES = (header_field, header_field, shape_or_size, manifest, new_spec, payload, payload, consistent)


def forge(rng, raw):
    raw = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        rng.choice(FORGERIES)(rng, raw)
    if rng.random() < 0.2:
        raw = raw[: rng.randrange(12, len(raw) + 1)] if rng.random() < 0.5 else raw + rng.randbytes(rng.randrange(1, 9))
    if rng.random() < 0.9:  # the size field too
        struct.pack_into("<Q", raw, 16, len(raw)) if len(raw) >= 24 else None
    struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))
    return bytes(raw)


def use(enc):
    """Decode in all ways; the shape must be the message's and no bigger than the bytes can hold."""
    value = tersor.decode(enc)
    assert value.shape == enc.shape and value.size == math.prod(enc.shape)
    tersor.decode(enc, received=np.arange(enc.units.count) % 2 == 0)
    acc = tersor.Mean()
    acc.add(enc, 0.5)
    acc.value()
    assert tersor.from_bytes(enc.to_bytes()).to_bytes() == enc.to_bytes()
    if enc.axis is not None and len(enc.shape) > 1 and enc.codec.claims.row_addressable:
        tersor.concat([enc[1:], enc[:1]]).to_bytes()
    if enc.digest and enc.codec.claims.additive:
        with contextlib.suppress(tersor.RangeError):
            tersor.decode(enc.codec.add(enc, enc))


def run(count, seed, originals):
    rng = random.Random(seed)
    accepted = 0
    with np.errstate(all="ignore"):
        for _ in range(count):
            raw = forge(rng, rng.choice(originals))
            try:
                parsed = samples.parse(raw)
            except tersor.FormatError:
                continue
            except BaseException as error:
                pytest.fail(f"{error!r} for {raw.hex()}")
            try:
                for enc in parsed.values() if isinstance(parsed, tersor.EncodedDict) else [parsed]:
                    use(enc)
                    accepted += 1
            except BaseException as error:
                pytest.fail(f"accepted, then {error!r} for {raw.hex()}")
    assert accepted > count // 30, "the forger must get something past the parser, or it tests nothing behind it"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("originals", [MESSAGES, BUNDLES], ids=["messages", "bundles"])
def test_forged(originals):
    run(DEFAULT, 1, originals)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("originals", [MESSAGES, BUNDLES], ids=["messages", "bundles"])
def test_many_forged(originals):
    run(MANY, 2, originals)


def peak(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def attempt(raw):
    try:
        parsed = samples.parse(raw)
        for enc in parsed.values() if isinstance(parsed, tersor.EncodedDict) else [parsed]:
            tersor.decode(enc)
    except tersor.FormatError:
        pass


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_forged_small_messages_never_take_a_mebibyte():
    """Whatever a small forgery says of its size: not more than 1 MiB, as no output of these bytes is larger."""
    rng = random.Random(4)
    for raw in (MESSAGES + BUNDLES)[:3]:
        attempt(raw)  # first use loads tables
    forgeries = [forge(rng, rng.choice(MESSAGES + BUNDLES)) for _ in range(1500)]
    with np.errstate(all="ignore"):
        assert max(peak(lambda raw=raw: attempt(raw)) for raw in forgeries) < MIB


@pytest.mark.parametrize("spec", samples.SPECS)
def test_huge_shapes_are_refused_without_allocating(spec):
    for axis, shape in ((None, (1 << 31,)), (-1, (1 << 20, 1 << 11)), (-1, (1 << 31, 1)), (-1, (1, 1 << 31))):
        original = tersor.get_codec(spec).encode(np.ones((2,) * len(shape), np.float32), seed=1, axis=axis)
        raw = bytearray(original.to_bytes())
        struct.pack_into(f"<{len(shape)}Q", raw, 56, *shape)
        struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))

        def read(raw=bytes(raw)):
            with pytest.raises(tersor.FormatError):
                tersor.from_bytes(raw)

        read()
        assert peak(read) < MIB


# Runs in a process of its own: the high-water mark of its resident memory while it decodes a message.
MEASURE = """
import sys, tersor
spec, path, backend = sys.argv[1:]
tersor.backend(backend)
def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
raw = open(path, "rb").read()
small = tersor.get_codec(spec).encode([0.5] * 5000, seed=1)
tersor.decode(tersor.from_bytes(small.to_bytes()))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
value = tersor.decode(tersor.from_bytes(raw))
print(status("VmHWM") - before, value.nbytes)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs the memory high-water mark of Linux")
@pytest.mark.parametrize("spec", samples.SPECS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_memory_of_decoding(spec, dtype, tmp_path):
    """Twice the output and 1 MiB (float32: estimates of half types are made in it), on the native backend.

    The reference, a NumPy oracle, takes up to 32 times the output for its temporaries, which is bounded too.
    """
    native = ops.backend_name() == "native"
    size = 1 << 22 if native else 1 << 16
    x = np.random.default_rng(0).standard_normal(size).astype(dtype)
    (tmp_path / "message").write_bytes(tersor.get_codec(spec).encode(x, seed=1).to_bytes())
    command = [sys.executable, "-c", MEASURE, spec, str(tmp_path / "message"), ops.backend_name()]
    taken, output = (int(v) for v in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert output == x.nbytes
    if native:
        assert taken <= 2 * 4 * size + MIB
    else:
        assert taken <= 32 * 4 * size + 8 * MIB
