"""EDEN at fractional bits and DRIVE+: closed forms, sizes, spec strings, the boundary between the two widths."""

import numpy as np
import pytest
from test_eden import LAW, MSE, SPREAD, sparse, vector

import tersor
from tersor.kernels import ops
from tersor.kernels.lengths import code_bytes, high_count, padded_length
from tersor.quantize import lloyd_max

BITS = (0.1, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 8)


def mixed(bits):
    """The mean error of the two quantizers; what is not sent has error 1."""
    low = int(bits)
    m = {0: 1.0, **MSE}
    return m[low] + (bits - low) * (m[min(low + 1, 8)] - m[low])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_closed_forms(kind, bits):
    """d = 2**14, 12 draws, two rotations: within 2 % of the limits, but for the noise of 8 bits (check 3)."""
    draws = 12 if ops.backend_name() == "native" else 3
    noise = 4 * SPREAD.get(bits, 4) / np.sqrt(draws * 2**14)
    for scale in ("unbiased", "biased"):
        codec = tersor.Eden(bits=bits, scale=scale, rotations=2)
        law = LAW[scale](mixed(bits))
        assert codec.expected_error() == pytest.approx(law, rel=1e-12)
        made = []
        for seed in range(draws):
            x = vector(kind, 2**14, seed)
            made.append(tersor.nmse(x, codec.decode(codec.encode(x, seed=seed))))
        allowed = 0.02 + (noise if bits > 4 or draws < 12 else 0)
        assert np.mean(made) == pytest.approx(law, rel=allowed), scale


def test_limits_of_the_papers():
    for bits, value in ((0.5, 2.1416), (0.1, 14.708), (1.5, 0.31654), (2.5, 0.08227), (3.5, 0.02252)):
        assert tersor.Eden(bits=bits).expected_error() == pytest.approx(value, rel=1e-4)


def test_bits_are_canonical():
    assert tersor.Eden(bits=4.0) == tersor.Eden(bits=4) and type(tersor.Eden(bits=4.0).bits) is int
    assert tersor.get_codec("eden:4.0").spec == "eden:4" and tersor.get_codec("eden:2.50").spec == "eden:2.5"
    assert repr(tersor.get_codec("eden:.5")).startswith("Eden(bits=0.5,") and tersor.get_codec("eden:.5").bits == 0.5
    assert tersor.get_codec("eden:2.5").config["bits"] == 2.5
    for bits in (0, -1, 8.5, 9, float("nan"), float("inf"), True, "4", None):
        with pytest.raises(ValueError, match="bits"):
            tersor.Eden(bits=bits)
    codec = tersor.Eden(bits=2.5)
    assert len(codec.levels) == 8 and np.array_equal(codec.levels_of(2), lloyd_max.levels(2))
    assert tersor.Eden(bits=0.5).levels_of(0).tolist() == [0.0]


@pytest.mark.parametrize("bits", [0.1, 0.5, 1.3, 2.6, 7.9, 4])
def test_size_is_bits_times_coordinates(bits):
    """ceil(b P / 8) bytes a unit wherever P is a multiple of 8; below, all coordinates have the higher width."""
    codec = tersor.Eden(bits=bits)
    low, fraction = int(bits), bits - int(bits)
    for n in (8, 64, 80, 576, 1000, 4096):
        padded = padded_length(n)
        exact = round(bits * 10) * padded  # tenths of bits
        assert code_bytes(padded, low, fraction) == -(-exact // 80), n
        enc = codec.encode(vector("normal", 3 * n).reshape(3, n), seed=1, axis=-1)
        assert enc.planes["codes"].data.nbytes == 3 * code_bytes(padded, low, fraction)
    if fraction:
        assert [high_count(p, fraction) for p in (0, 1, 4, 8)] == [0, 1, 4, 8]
        assert tersor.roundtrip(np.array([3.0], np.float32), codec)[0] == pytest.approx(3)


def test_the_boundary_of_the_widths():
    """Decoding by hand: the first rotated coordinates have the higher width, and b < 1 leaves the others at 0."""
    from tersor.coding.bits import unpack
    from tersor.rotation import Hadamard

    x = vector("normal", 80).reshape(1, 80)
    for bits in (0.5, 2.6):
        codec = tersor.Eden(bits=bits)
        enc = codec.encode(x, seed=9, axis=-1)
        low, high = int(bits), high_count(80, bits - int(bits))
        assert high == (40 if bits == 0.5 else 48)
        data = enc.planes["codes"].data
        cut = high * (low + 1) // 8
        q = np.zeros((1, 80), np.float32)
        q[:, :high] = codec.levels_of(low + 1)[unpack(data[None, :cut], low + 1, high)]
        if low:
            q[:, high:] = codec.levels_of(low)[unpack(data[None, cut:], low, 80 - high)]
        expected = Hadamard(80, enc.key).inverse(q) * enc.planes["scales"].values()
        assert np.allclose(codec.decode(enc), expected, atol=1e-5)


def test_nothing_to_send():
    """Where all sent coordinates are 0 the estimate is 0, and never NaN."""
    codec = tersor.Eden(bits=0.5, rotations=1)
    x = np.zeros((64, 64), np.float32)
    x[:, 1] = x[:, 33] = 1  # one round: the first 32 coordinates are sums of pairs (j, j + 32), here 2 or 0
    zero = 0
    for seed in range(4):
        enc = codec.encode(x, seed=seed, axis=-1)
        value = codec.decode(enc)
        assert np.isfinite(value).all() and np.isfinite(enc.error)
        zero += not value.any()
        if not value.any():
            assert enc.error == pytest.approx(1)
    assert 0 < zero < 4


def test_drive_plus():
    """Two means never do worse than DRIVE with the biased scale, two values are exact, and what is equal is DRIVE's."""
    plus, plain = (tersor.Drive(scale="biased", rotations=2, plus=plus) for plus in (True, False))
    for kind in ("normal", "lognormal", "sparse"):
        x = vector(kind, 2**14)
        a, b = (tersor.nmse(x, c.decode(c.encode(x, seed=3))) for c in (plus, plain))
        assert a <= b * (1 + 1e-6)
    x = vector("normal", 2**16)
    unbiased = tersor.get_codec("drive,plus=true")
    enc = unbiased.encode(x, seed=1)
    assert tersor.nmse(x, unbiased.decode(enc)) == pytest.approx(np.pi / 2 - 1, rel=0.02)
    assert enc.planes["values"].data.nbytes == 8 * enc.units.count
    # one coordinate: rotated by one round, all are of one size, and of one sign if it is the first
    for at in (0, 1, 7):
        for value in (5.0, -1e-30, 1e30):
            x = sparse(64, *[0.0] * at, value)
            for rotations in (1, 2, 3):
                codec = tersor.Drive(plus=True, rotations=rotations)
                made = codec.decode(codec.encode(x, seed=at))
                assert np.isfinite(made).all()
                if rotations == 1:
                    assert np.allclose(made, x, rtol=1e-5, atol=1e-5 * abs(value))
    for x in (np.zeros(100, np.float32), np.ones(1, np.float32), np.full(4096, 1e38, np.float32)):
        assert np.isfinite(tersor.roundtrip(x, "drive,plus=true")).all()
    with pytest.raises(ValueError, match="float32"):
        tersor.Drive(plus=True, scale_dtype="bfloat16")
    assert tersor.get_codec("drive:plus=true").spec == "drive,plus=true"


def test_means_of_fractional_messages():
    """One pass over the messages gives what adding their estimates gives; rows and blocks; DRIVE+ too."""
    for spec in ("eden:2.5", "eden:0.5", "eden:1.3,block=64", "drive,plus=true"):
        codec = tersor.get_codec(spec)
        for x, axis in ((vector("normal", 9000), None), (vector("normal", 800).reshape(10, 80), -1)):
            sent = [codec.encode(x, seed=4, sender=k, axis=axis) for k in range(5)]
            total = np.zeros(x.shape, np.float32)
            for enc in sent:
                codec.decode(enc, out=total, add=True)
            assert np.array_equal(tersor.mean(sent), total / np.float32(5))
            error = tersor.nmse(x, tersor.mean(sent))
            assert error == pytest.approx(codec.expected_error() / 5, rel=0.3)
