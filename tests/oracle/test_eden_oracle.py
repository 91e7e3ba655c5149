"""EDEN against an independent float64 implementation: decoded values, codes, scales, rounds and levels agree."""

import eden64
import numpy as np
import pytest

import tersor
from tersor.quantize import lloyd_max
from tersor.rotation import Hadamard

SPECS = [
    *(f"eden:{b}" for b in range(1, 9)),
    "eden:3,scale=biased",
    "eden:3,scale=norm",
    "eden:3,scale=one",
    "eden:4,rotations=1",
    "eden:4,rotations=2",
    "eden:4,rotations=3",
    "eden:4,block=64",
    "eden:5,block=full",
    "eden:2,scale_dtype=float16",
    "eden:2,scale_dtype=bfloat16",
    "eden:6,store_norm=true",
    "eden:0.4",
    "eden:2.6",
    "eden:1.3,scale=norm,rotations=3",
    "eden:3.7,block=full",
    "drive",
]
CASES = [
    ((4096,), None, 0),
    ((4096 + 80,), None, 8192),
    ((700,), None, 0),
    ((1,), None, 0),
    ((3, 80), -1, 5),
    ((2, 2, 64), -1, 0),
    ((4, 3), -1, 0),
]


def draw(kind, shape):
    rng = np.random.default_rng(len(shape))
    x = {
        "normal": rng.standard_normal,
        "heavy": lambda s: rng.standard_t(2, s),
        "sparse": lambda s: rng.standard_normal(s) * (rng.random(s) < 0.05),
    }[kind](shape)
    x.reshape(-1)[0] = 1
    return x.astype(np.float32)


@pytest.mark.parametrize("bits", range(1, 9))
def test_levels(bits):
    """Solved here by Newton's method: the shipped table is the same to float32."""
    assert np.max(np.abs(eden64.levels(bits) - lloyd_max.levels(bits))) < 2.5e-7
    assert np.array_equal(eden64.levels(bits).astype(np.float32), lloyd_max.levels(bits))


@pytest.mark.parametrize("n", [1, 2, 3, 12, 64, 80, 100, 1000, 2100, 4096])
def test_rotation(n):
    x = draw("normal", (n,))
    for key, start in ((0, 0), (2**64 - 1, 4096), (0x123456789ABCDEF0, 2**40)):
        h = Hadamard(n, key, 2, start)
        p, b, mixing = eden64.lengths(n)
        assert (h.padded, h.rounds) == (p, mixing if b < p else 2)
        padded = np.zeros(p)
        padded[:n] = x
        y = eden64.rotate(padded, key, start, h.rounds)
        assert np.max(np.abs(h.apply(x) - y)) < 3e-6 * np.linalg.norm(x)
        assert np.allclose(eden64.unrotate(y, key, start, h.rounds), padded, atol=1e-12 * n)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["normal", "heavy", "sparse"])
def test_decoded_values(spec, kind):
    """The oracle reads our bytes and gets our estimate, to float32 rounding."""
    codec = tersor.get_codec(spec)
    for shape, axis, start in CASES:
        if axis is None and codec.unit and start % codec.unit:
            continue
        x = draw(kind, shape)
        enc = codec.encode(x, seed=0xFEDCBA9876543210, axis=axis, start=start)
        ours, theirs = codec.decode(enc), eden64.decode(enc.to_bytes())
        assert ours.shape == theirs.shape
        assert np.max(np.abs(ours - theirs)) <= 4e-6 * np.linalg.norm(x), (shape, axis)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_codes_and_scales(spec, kind):
    """Codes are equal but for coordinates within float32 rounding of a threshold; scales to 1e-5; rounds are equal."""
    codec = tersor.get_codec(spec)
    bits, more = eden64.options(spec)
    differ = total = 0
    for shape, axis, start in CASES:
        if axis is None and codec.unit and start % codec.unit:
            continue
        x = draw(kind, shape)
        enc = codec.encode(x, seed=77, axis=axis, start=start)
        rows = axis == -1
        rotations = more.get("rotations", "auto")
        rotations = int(rotations) if rotations != "auto" else 2 if rows or bits != int(bits) else "auto"
        scales, rounds = codec._scales(enc), codec._rounds(enc, enc.units)
        offset = 0
        for k, (first, n, position) in enumerate(eden64.units(shape, 1 if rows else 0, more)):
            unit = x.reshape(-1)[first : first + n].astype(np.float64)
            full = more.get("block") == "full" and not rows
            at = position + (0 if rows else start)
            expected_rounds, z, code, s = eden64.encode(
                unit, 77, at, bits, more.get("scale", "unbiased"), rotations, full
            )
            got, _, nbytes = eden64.unpack_unit(enc.planes["codes"].data[offset:].tobytes(), bits, len(z))
            offset += nbytes
            assert rounds[k] == expected_rounds
            wrong = np.flatnonzero(got != code)
            for i in wrong:
                (width,) = (w for part, w in eden64.widths(len(z), bits) if part.start <= i < part.stop)
                thresholds = (eden64.levels(width)[1:] + eden64.levels(width)[:-1]) / 2
                assert abs(int(got[i]) - int(code[i])) == 1 and np.min(np.abs(z[i] - thresholds)) < 1e-5
            differ, total = differ + len(wrong), total + len(z)
            precision = {"float32": 2e-5, "float16": 6e-4, "bfloat16": 5e-3}[codec.scale_dtype]
            # a code that differs changes the scale by its share
            assert scales[k] == pytest.approx(s, rel=precision + 0.1 * len(wrong) / len(z))
    assert differ <= 2e-4 * total, "codes must be equal almost everywhere"


def test_a_lost_sign_would_be_seen():
    """The oracle's power: another key, position or number of rounds gives another estimate."""
    x = draw("normal", (64,))
    enc = tersor.Eden(bits=4, rotations=2).encode(x, seed=3)
    raw = bytearray(enc.to_bytes())
    right = eden64.decode(bytes(raw))
    assert np.allclose(right, tersor.decode(enc), atol=1e-5)
    _, _, _, _, key, start, parts = eden64.parse(bytes(raw))
    y = float(np.frombuffer(parts[1], "<f4")[0]) * eden64.levels(4)[eden64.unpack(parts[0], 4, 64)]
    for wrong in ((key + 1, start, 2), (key, start + 32, 2), (key, start, 1), (key, start, 3)):
        assert tersor.nmse(right, eden64.unrotate(y, *wrong)) > 0.3
