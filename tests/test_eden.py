"""EDEN against its mathematics: closed forms, identities, known failures of one rotation (quantizers.md section 8)."""

from math import sqrt

import numpy as np
import pytest

import tersor
from tersor.kernels import ops
from tersor.quantize import lloyd_max
from tersor.rotation import Hadamard

# quantizers.md section 1: the error of the Lloyd-Max quantizer of N(0, 1).
MSE = {
    1: 0.3633802276324187,
    2: 0.1174818478293293,
    3: 0.03454776078850373,
    4: 0.009501008008191886,
    5: 0.002504668355674799,
    6: 0.0006442396653172623,
    7: 0.0001634782299802368,
    8: 4.118508286711749e-5,
}
# Standard deviation over mean of the squared error of one coordinate (by quadrature): how much noise an average has.
SPREAD = {1: 1.7, 2: 2.1, 3: 2.6, 4: 3.3, 5: 4.3, 6: 5.5, 7: 7.2, 8: 9.5}
LAW = {
    "unbiased": lambda m: m / (1 - m),
    "biased": lambda m: m,
    "norm": lambda m: 2 * (1 - sqrt(1 - m)),
    "one": lambda m: m,
}


def vector(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        x = rng.standard_normal(n)
    elif kind == "lognormal":
        x = rng.lognormal(0, 1, n)
    else:  # "sparse": one coordinate in a hundred
        x = rng.standard_normal(n) * (rng.random(n) < 0.01)
    return x.astype(np.float32)


def error(x, codec, **options):
    return tersor.nmse(x, codec.decode(codec.encode(x, **options)))


def sparse(n, *values):
    x = np.zeros(n, np.float32)
    x[: len(values)] = values
    return x


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("kind", ["normal", "lognormal", "sparse"])
def test_closed_forms(kind, bits):
    """vNMSE within 2 % of the limits; unbiased and biased differ as tan**2 and sin**2 of one angle (check 3)."""
    n = 2**18 if ops.backend_name() == "native" else 2**15
    x = vector(kind, n, seed=bits)
    noise = 4 * SPREAD[bits] / sqrt(n)
    for scale in ("unbiased", "biased", "norm", "one"):
        expected = LAW[scale](MSE[bits])
        codec = tersor.Eden(bits=bits, scale=scale)
        assert codec.expected_error() == pytest.approx(expected, rel=1e-12)
        assert error(x, codec, seed=bits) == pytest.approx(expected, rel=0.02 + noise), scale


@pytest.mark.slow
@pytest.mark.parametrize("bits", range(1, 9))
def test_closed_forms_without_allowance(bits):
    """The same on 2**23 coordinates, where the noise is small enough for a bare 2 %."""
    x = vector("normal", 2**23, seed=bits)
    for scale in ("unbiased", "biased", "norm"):
        expected = LAW[scale](MSE[bits])
        assert error(x, tersor.Eden(bits=bits, scale=scale), seed=1) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("block", [64, 4096])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["normal", "sparse"])
def test_angle_identities(kind, bits, block):
    """Per vector, on its P coordinates, to 1e-5: what each scale makes exact (check 2)."""
    x = vector(kind, block, seed=2) + np.float32(1e-6)
    estimates, scales = {}, {}
    for scale in LAW:
        codec = tersor.Eden(bits=bits, scale=scale, block=block)
        enc = codec.encode(x, seed=3)
        estimates[scale], scales[scale] = codec.decode(enc).astype(np.float64), float(enc.planes["scales"].values()[0])
    y = x.astype(np.float64)
    energy = y @ y
    assert estimates["unbiased"] @ y == pytest.approx(energy, rel=1e-5)
    biased = estimates["biased"]
    assert np.sum((biased - y) ** 2) + biased @ biased == pytest.approx(energy, rel=1e-5)
    assert np.linalg.norm(estimates["norm"]) == pytest.approx(np.linalg.norm(y), rel=1e-5)
    assert scales["norm"] ** 2 == pytest.approx(scales["unbiased"] * scales["biased"], rel=1e-5)
    sin2 = np.sum((biased - y) ** 2) / energy
    tan2 = np.sum((estimates["unbiased"] - y) ** 2) / energy
    assert tan2 == pytest.approx(sin2 / (1 - sin2), rel=2e-3 if bits == 8 else 1e-4)
    for other in LAW:
        assert np.sum((estimates[other] - y) ** 2) >= np.sum((biased - y) ** 2) * (1 - 1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 33, 80, 100, 1000, 1025, 2100, 5000])
def test_inner_product_survives_trimming(n):
    """<x_hat, x> = ||x||**2 for the unbiased scale, at any length and for every draw."""
    x = vector("lognormal", n, seed=n)
    for bits in (1, 3, 8):
        for seed in range(3):
            x_hat = tersor.roundtrip(x, tersor.Eden(bits=bits), seed=seed).astype(np.float64)
            assert x_hat @ x == pytest.approx(float(x.astype(np.float64) @ x), rel=1e-5)


@pytest.mark.parametrize("axis", [None, -1])
def test_reported_error_is_the_error(axis):
    """enc.error equals nmse, at lengths without padding and for every scale and scale_dtype."""
    for shape in ((2, 4096), (3, 80), (20, 64), (5, 1)):
        x = np.random.default_rng(5).lognormal(0, 2, shape).astype(np.float32)
        for scale in LAW:
            for dtype in ("float32", "float16", "bfloat16"):
                codec = tersor.Eden(bits=2, scale=scale, scale_dtype=dtype)
                enc = codec.encode(x, seed=1, axis=axis)
                assert enc.error >= 0
                padded = [Hadamard(n, 0).padded - n for n in {enc.units.length, enc.units.last}]
                measured = tersor.nmse(x, codec.decode(enc))
                if padded in ([0], [0, 0]):
                    assert enc.error == pytest.approx(measured, rel=1e-4, abs=1e-7), (shape, scale, dtype)


def test_reported_error_with_padding_is_the_expectation():
    """With padding the sender reports the share of the error that is expected on the n coordinates."""
    x = vector("normal", 1000, seed=4)  # padded to 1024
    codec = tersor.Eden(bits=2)
    sent = [codec.encode(x, seed=s) for s in range(100)]
    measured = np.mean([tersor.nmse(x, codec.decode(enc)) for enc in sent])
    assert np.mean([enc.error for enc in sent]) == pytest.approx(measured, rel=0.02)


def test_overhead_at_2_17():
    """All that is not codes - header, scales, rounds - costs less than 0.02 bit a coordinate."""
    x = vector("normal", 2**17)
    for bits in range(1, 9):
        enc = tersor.Eden(bits=bits).encode(x, seed=1)
        assert bits < enc.bits_per_coordinate < bits + 0.02
        assert enc.bits_per_coordinate == 8 * len(enc.to_bytes()) / x.size


def test_one_rotation_keeps_a_floor_and_two_do_not():
    """n = 100 senders of (2, 1, 0, ...), d = 1024, 1 bit: .25 for one round, .0057 for two (check 4)."""
    x = sparse(1024, 2, 1)
    one, two = (
        tersor.mean([tersor.Eden(bits=1, rotations=k).encode(x, seed=1, sender=s) for s in range(100)]) for k in (1, 2)
    )
    assert tersor.nmse(x, one) == pytest.approx(0.25, abs=1e-3)
    assert tersor.nmse(x, two) == pytest.approx(0.0057, rel=0.15)


def test_auto_sees_what_needs_two():
    """(2, 1, 0, ...), d = 1024, gets two rounds, N(0, 1), d = 4096, one; each block decides for itself (check 4)."""
    codec = tersor.Eden(bits=4)

    def rounds(x):
        return codec._rounds(codec.encode(x, seed=1), codec.units(x.shape, None)).tolist()

    assert rounds(sparse(1024, 2, 1)) == [2]
    assert rounds(vector("normal", 4096)) == [1]
    assert rounds(np.concatenate([sparse(4096, 2, 1), vector("normal", 4096)])) == [2, 1]
    assert rounds(np.ones(4096, np.float32)) == [1]
    # the threshold itself: k equal coordinates have a fourth moment of 1/k
    assert rounds(sparse(4096, *[1.0] * 1024)) == [1] and rounds(sparse(4096, *[1.0] * 1023)) == [2]
    shared = codec.merge(None, key=1)
    enc = codec.encode(vector("normal", 4096), seed=1, shared=shared)
    assert codec._rounds(enc, enc.units).tolist() == [2], "senders that share the rotation must agree: always two"
    forced = tersor.Eden(bits=4, rotations=2)
    assert forced._rounds(forced.encode(np.ones(4096, np.float32)), forced.units((4096,), None)).tolist() == [2]


def test_exact_values_of_one_rotation():
    """(1, 1) under one round, columns 1 and 2: .5, 1.0, .08245, .03219; one coordinate alone: 0 (check 5)."""
    expected = {1: (0.5, 1.0), 2: (0.08245, 0.08986), 3: (0.03219, 0.03326), 4: (0.01034, 0.01045)}
    x = np.zeros(1024, np.float32)
    x[1] = x[2] = 1
    for bits, (biased, unbiased) in expected.items():
        for seed in range(4):
            for scale, value in (("biased", biased), ("unbiased", unbiased)):
                got = error(x, tersor.Eden(bits=bits, scale=scale, rotations=1), seed=seed)
                assert got == pytest.approx(value, abs=1.5e-5 if bits > 1 else 1e-6)
    one_hot = np.zeros(1024, np.float32)
    one_hot[5] = -3
    for bits in range(1, 9):
        for scale in ("unbiased", "biased", "norm"):
            assert error(one_hot, tersor.Eden(bits=bits, scale=scale, rotations=1), seed=1) < 1e-11
    assert error(one_hot, tersor.Eden(bits=2, scale="one", rotations=1), seed=1) == pytest.approx(0.26053, abs=1e-5)


@pytest.mark.parametrize("make", [lambda: sparse(4096, 2, 1), lambda: vector("lognormal", 4096, 3) ** 3])
@pytest.mark.parametrize("bits", [1, 4])
def test_no_floor_over_100_senders(make, bits):
    """One heavy-tailed or 2-sparse vector at 100 senders: the error falls as 1/100."""
    x = make()
    acc = tersor.Mean()
    for s in range(100):
        acc.add(tersor.Eden(bits=bits).encode(x, seed=3, sender=s))
    law = LAW["unbiased"](MSE[bits])
    assert tersor.nmse(x, acc.value()) < 1.15 * law / 100


def test_loss_of_units():
    """Lost units are zeros: 1 - (1 - q)(1 - error); divided by what arrived: (1 + error) / (1 - q) - 1."""
    x = vector("normal", 64 * 4096)
    rng = np.random.default_rng(0)
    for bits in (1, 4):
        codec = tersor.Eden(bits=bits)
        enc = codec.encode(x, seed=2)
        m = LAW["unbiased"](MSE[bits])
        for q in (0.125, 0.5):
            lost = int(64 * q)
            scattered = np.ones(64, bool)
            scattered[rng.permutation(64)[:lost]] = False
            contiguous = np.arange(64) >= lost
            made = []
            for flags in (scattered, contiguous):
                plain = tersor.nmse(x, codec.decode(enc, received=flags))
                scaled = tersor.nmse(x, codec.decode(enc, received=flags, weight=1 / (1 - q)))
                assert plain == pytest.approx(q + (1 - q) * m, rel=0.03)
                # of the units that arrived: (w - 1)**2 + w**2 m with w = 1 / (1 - q)
                assert scaled == pytest.approx((1 + m) / (1 - q) - 1, rel=0.03)
                made.append(scaled)
            assert made[0] == pytest.approx(made[1], rel=0.05)


def test_uniform_rotation_gives_drives_law():
    """A uniform rotation and signs: (1 - 2/pi)(1 - 1/d) (check 9); EDEN's Hadamard rotation at d = 1024 likewise."""
    from tersor.rotation import uniform

    for d, n in ((8, 1000), (128, 20)):
        # each column is the image of another basis vector
        made = [1 - np.sum(np.abs(uniform(d, key)), axis=0) ** 2 / d for key in range(n)]
        assert np.mean(made) == pytest.approx((1 - 2 / np.pi) * (1 - 1 / d), rel=0.01)
    x = sparse(1024, 1)
    made = [error(x, tersor.Eden(bits=1, scale="biased", rotations=2), seed=s) for s in range(60)]
    assert np.mean(made) == pytest.approx((1 - 2 / np.pi) * (1 - 1 / 1024), rel=0.01)


def test_levels_agree_with_the_law():
    for bits, value in MSE.items():
        assert lloyd_max.mse(bits) == pytest.approx(value, rel=1e-12)
