"""Messages as bytes: the header field by field, every kind of wrong byte, limits before allocation, versions."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

import tersor

# FORMAT.md section 6, written down a second time: offset, type and name of every header field.
HEADER = {
    "magic": (0, "4s"),
    "version": (4, "B"),
    "dtype": (5, "B"),
    "axis": (6, "B"),
    "flags": (7, "B"),
    "crc": (8, "I"),
    "header_size": (12, "I"),
    "size": (16, "Q"),
    "key": (24, "Q"),
    "start": (32, "Q"),
    "count": (40, "I"),
    "digest": (44, "I"),
    "ndim": (48, "B"),
    "spec_len": (49, "B"),
    "n_planes": (50, "B"),
    "align": (51, "B"),
    "n_fields": (52, "H"),
    "zero": (54, "H"),
}


def get(raw, name):
    offset, kind = HEADER[name]
    return struct.unpack_from("<" + kind, raw, offset)[0]


def repaired(raw):
    """The bytes with the checksum that they would have."""
    raw = bytearray(raw)
    struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))
    return bytes(raw)


def forged(raw, **fields):
    raw = bytearray(raw)
    for name, value in fields.items():
        offset, kind = HEADER[name]
        struct.pack_into("<" + kind, raw, offset, value)
    return repaired(raw)


def message(spec="eden:4", shape=(3, 80), axis=-1, **options):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return tersor.get_codec(spec).encode(x, axis=axis, **{"seed": 77, **options})


def test_header_is_what_format_md_says():
    enc = message(start=5)
    raw = enc.to_bytes()
    spec_at = 56 + 8 * 2 + 8 * 2
    expected = {
        "magic": b"TERS",
        "version": 0,
        "dtype": 0,
        "axis": 1,
        "flags": 0,
        "crc": zlib.crc32(raw[12:], zlib.crc32(raw[:8])),
        "header_size": spec_at + 6,
        "size": len(raw),
        "key": 77,
        "start": 5,
        "count": 1,
        "digest": 0,
        "ndim": 2,
        "spec_len": 6,
        "n_planes": 2,
        "align": 3,
        "n_fields": 0,
        "zero": 0,
    }
    assert {name: get(raw, name) for name in HEADER} == expected
    assert struct.unpack_from("<4Q", raw, 56) == (3, 80, 3 * 40, 3 * 4)
    assert raw[spec_at : spec_at + 6] == b"eden:4"
    codes_at = -(-(spec_at + 6) // 8) * 8
    assert raw[codes_at : codes_at + 120] == enc.planes["codes"].data.tobytes()
    assert raw[codes_at + 120 :] == enc.planes["scales"].data.tobytes()
    assert not any(raw[spec_at + 6 : codes_at]), "padding is zeros"


@pytest.mark.parametrize(("name", "code"), [("float32", 0), ("float64", 1), ("float16", 2)])
def test_dtype_codes(name, code):
    raw = tersor.get_codec("none").encode(np.ones(3, name)).to_bytes()
    assert get(raw, "dtype") == code and tersor.from_bytes(raw).dtype == name


def test_keys_and_senders():
    """The header's key: shared.key, else the seed for sender 0, else mix64(seed, 0, sender, 0)."""
    x = np.ones(64, np.float32)
    codec = tersor.Eden(bits=2)
    assert get(codec.encode(x, seed=9).to_bytes(), "key") == 9
    assert get(codec.encode(x, seed=9, sender=3).to_bytes(), "key") == tersor.rng.mix64(9, 0, 3, 0)
    shared = codec.merge(None, key=1234)
    raw = codec.encode(x, seed=9, sender=3, shared=shared).to_bytes()
    assert get(raw, "key") == 1234 and get(raw, "digest") == zlib.crc32((1234).to_bytes(8, "little"))
    assert get(codec.encode(x, seed=-1).to_bytes(), "key") == 2**64 - 1


@pytest.mark.parametrize("align", [8, 16, 32, 64, 128, 256])
def test_alignment(align):
    enc = message("eden:3,store_norm=true", (7, 33))
    raw = enc.to_bytes(align=align)
    assert 1 << get(raw, "align") == align
    sizes = struct.unpack_from("<3Q", raw, 56 + 16)
    offset = get(raw, "header_size")
    for name, size in zip(("codes", "scales", "norms"), sizes, strict=True):
        offset = -(-offset // align) * align
        assert raw[offset : offset + size] == enc.planes[name].data.tobytes()
        offset += size
    assert offset == len(raw)


@pytest.mark.parametrize("align", [0, 1, 4, 24, 512])
def test_no_other_alignment(align):
    with pytest.raises(ValueError, match="align"):
        message().to_bytes(align=align)


def test_counts_and_received_travel():
    """Flags 1 and 2: one u32 a unit, then one bit a unit; the header's count is 0 then."""
    enc = replace(message("sq:2", (11, 8)), received=np.arange(11) % 3 > 0)
    raw = enc.to_bytes()
    assert get(raw, "flags") == 2 and raw[-2:] == np.packbits(enc.received, bitorder="little").tobytes()
    codec, x = tersor.get_codec("sq:2"), np.ones((11, 8), np.float32)
    shared = codec.merge(codec.measure(x)[None], key=1)
    a, b = (codec.encode(x, seed=s, shared=shared, axis=-1) for s in (1, 2))
    total = codec.add(replace(a, received=np.arange(11) < 5), b)
    raw = total.to_bytes()
    assert get(raw, "flags") == 1 and get(raw, "count") == 0 and total.count.tolist() == [2] * 5 + [1] * 6
    assert tersor.from_bytes(raw).count.tolist() == total.count.tolist()
    assert get(codec.add(a, b).to_bytes(), "count") == 2
    both = replace(total, received=np.arange(11) != 7)
    twin = tersor.from_bytes(both.to_bytes())
    assert get(both.to_bytes(), "flags") == 3 and not tersor.decode(twin)[7].any()
    assert np.array_equal(tersor.decode(twin), tersor.decode(both))


FORGERIES = {
    "magic": {"magic": b"TERX"},
    "version": {"version": 1},
    "dtype": {"dtype": 4},
    "axis": {"axis": 2},
    "flags": {"flags": 4},
    "missing counts": {"flags": 1},
    "missing received": {"flags": 2},
    "count 0": {"count": 0},
    "header size": {"header_size": 93},
    "header size beyond": {"header_size": 2**32 - 1},
    "size": {"size": 2**63},
    "ndim": {"ndim": 1},
    "ndim 33": {"ndim": 33},
    "ndim 255": {"ndim": 255},
    "spec length": {"spec_len": 5},
    "no spec": {"spec_len": 0},
    "long spec": {"spec_len": 255},
    "planes": {"n_planes": 2},
    "no planes": {"n_planes": 0},
    "many planes": {"n_planes": 255},
    "align 2": {"align": 2},
    "align 9": {"align": 9},
    "align 255": {"align": 255},
    "align 64": {"align": 6},
    "fields": {"n_fields": 1},
    "many fields": {"n_fields": 65535},
    "zero": {"zero": 1},
    "start": {"start": 2**63},
    "wider dtype": {"dtype": 1},
}


@pytest.mark.parametrize("fields", FORGERIES.values(), ids=FORGERIES)
def test_forged_headers(fields):
    """Each field in turn, with the checksum repaired (`none`, whose planes depend on the dtype)."""
    raw = message("none", (3, 80)).to_bytes()
    assert tersor.from_bytes(forged(raw)).shape == (3, 80)
    with pytest.raises(tersor.FormatError):
        tersor.from_bytes(forged(raw, **fields))


def test_a_start_inside_a_block_is_no_start():
    raw = message("eden:4", (9000,), None).to_bytes()
    assert tersor.from_bytes(forged(raw, start=4096)).start == 4096
    for start in (1, 4095, 2**63, 2**64 - 4096):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(forged(raw, start=start))


@pytest.mark.parametrize(
    "spec",
    [
        b"eden:9",
        b"nope:4",
        b"eden:04",
        b"Eden:4",
        b"eden: 4",
        b"eden:\xff",
        b"\0\0\0\0\0\0",
        b"eden:,",
        b"os:sys",
        b"eden.4",
        b"drive1",
    ],
)
def test_only_canonical_specs_of_built_in_codecs(spec):
    raw = message().to_bytes()
    at = raw.index(b"eden:4")
    with pytest.raises(tersor.FormatError):
        tersor.from_bytes(repaired(raw[:at] + spec[:6].ljust(6) + raw[at + 6 :]))


@pytest.mark.parametrize(
    "shape", [(2**32, 2**32), (2**64 - 1, 1), (2**40, 0), (0, 2**63), (81, 3), (240, 1), (3, 64), (3, 81), (2, 80)]
)
def test_shapes_that_do_not_fit(shape):
    raw = bytearray(message().to_bytes())
    struct.pack_into("<2Q", raw, 56, *shape)
    with pytest.raises(tersor.FormatError):
        tersor.from_bytes(repaired(raw))


def test_max_elements():
    raw = message().to_bytes()
    assert tersor.from_bytes(raw, max_elements=240).size == 240
    with pytest.raises(tersor.FormatError, match="max_elements"):
        tersor.from_bytes(raw, max_elements=239)


def test_a_spec_in_another_order_is_not_canonical():
    raw = message("eden:4,scale=biased,store_norm=true").to_bytes()
    twin = raw.replace(b"scale=biased,store_norm=true", b"store_norm=true,scale=biased")
    assert len(twin) == len(raw) and twin != raw
    with pytest.raises(tersor.FormatError, match="canonical"):
        tersor.from_bytes(repaired(twin))


def test_versions_to_come_are_named():
    with pytest.raises(tersor.FormatError, match="version 1"):
        tersor.from_bytes(forged(message().to_bytes(), version=1))


@pytest.mark.parametrize("raw", [b"", b"T", b"TERS", bytes(56), b"TERS" + bytes(52), bytes(10**5)])
def test_no_message_at_all(raw):
    with pytest.raises(tersor.FormatError):
        tersor.from_bytes(raw)


def test_every_length_but_one_is_wrong():
    raw = message(shape=(1, 8)).to_bytes()
    for n in range(len(raw)):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(raw[:n])
    for extra in (b"\0", b"x" * 8, raw):
        for longer in (raw + extra, repaired(raw + extra)):
            with pytest.raises(tersor.FormatError):
                tersor.from_bytes(longer)


def test_rounds_that_no_encoder_writes():
    """The 2-bit plane holds 1 or 2 for blocks and the rule's number for a mixed tail."""
    raw = message("eden:4", (4096 * 2 + 80,), None).to_bytes()
    assert raw[-1] == 1 | 1 << 2 | 3 << 4
    for byte in (0 | 1 << 2 | 3 << 4, 3 | 1 << 2 | 3 << 4, 1 | 1 << 2 | 2 << 4):
        with pytest.raises(tersor.FormatError, match="rounds"):
            tersor.from_bytes(repaired(raw[:-1] + bytes([byte])))


def test_limits_of_the_format():
    with pytest.raises(ValueError, match="axes"):
        tersor.get_codec("none").encode(np.ones((1,) * 33, np.float32)).to_bytes()
    assert tersor.get_codec("none").encode(np.ones((1,) * 32, np.float32)).to_bytes()


def test_int8_has_no_minus_128():
    raw = bytearray(message("int8", (8,), None).to_bytes())
    raw[get(raw, "header_size") // 8 * 8 + 8] = 0x80
    with pytest.raises(tersor.FormatError, match="128"):
        tersor.from_bytes(repaired(raw))


def test_repr_is_one_line():
    assert repr(message()) == "Encoded('eden:4', float32[3, 80], axis=-1, 228 bytes)"
