"""Loss inside blocks: the formulas of quantizers.md section 4, contiguous and random loss, and what flags mean."""

import numpy as np
import pytest
from test_eden import LAW, MSE, vector

import tersor
from tersor.codecs.arrived import divide_by_share


def law(scale, m, p):
    return {
        "unbiased": 1 / (p * (1 - m)) - 1,
        "biased": 1 - p * (1 - m),
        "norm": p - 2 * p * np.sqrt(1 - m) + 1,
        "one": 1 - p * (1 - m),
    }[scale]


def pieces(how, units, n, lost, seed):
    if how == "contiguous":
        return np.tile(np.arange(n) >= lost, (units, 1))
    return np.argsort(np.random.default_rng(seed).random((units, n))) >= lost


@pytest.mark.parametrize("scale", list(LAW))
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_formulas(bits, scale):
    """d = 2**14, two rotations: within 3 % of the formulas; lost in one run or at random, within 5 % (check 6)."""
    codec = tersor.Eden(bits=bits, scale=scale, rotations=2)
    sent = [(x, codec.encode(x, seed=k)) for k in range(12) for x in [vector("normal", 2**14, k)]]
    for q in (0.125, 0.25, 0.5):
        expected = law(scale, MSE[bits], 1 - q)
        assert codec.expected_error(1 - q) == pytest.approx(expected, rel=1e-12)
        made = []
        for how in ("random", "contiguous"):
            flags = [pieces(how, 4, 64, int(64 * q), k) for k in range(12)]
            errors = [tersor.nmse(x, codec.decode(e, received=f)) for (x, e), f in zip(sent, flags, strict=True)]
            made.append(np.mean(errors))
            assert made[-1] == pytest.approx(expected, rel=0.03), (q, how)
        assert made[0] == pytest.approx(made[1], rel=0.05)
    assert codec.expected_error(0.0) == 1.0


def test_figures_of_the_spec():
    """quantizers.md section 4, d = 2**14: (bits, lost) to unbiased and biased error."""
    for bits, q, unbiased, biased in ((2, 0.1, 0.2585, 0.205), (2, 0.5, 1.267, 0.556), (4, 0.5, 1.02, 0.5)):
        assert tersor.Eden(bits=bits).expected_error(1 - q) == pytest.approx(unbiased, rel=0.01)
        assert tersor.Eden(bits=bits, scale="biased").expected_error(1 - q) == pytest.approx(biased, rel=0.02)


@pytest.mark.parametrize("spec", ["eden:4", "eden:2.5", "eden:0.5", "drive,plus=true"])
def test_the_share_that_arrived_counts(spec):
    """Fixed pieces lost, whichever: the mean over keys is the input, scaled by neither share nor width."""
    codec = tersor.get_codec(spec)
    x = vector("normal", 64, 3)
    for keep in ([0], [3], [0, 1, 2]):
        flags = np.zeros((1, 4), bool)
        flags[0, keep] = True
        made = np.zeros(64)
        n = 3000
        for seed in range(n):
            made += codec.decode(codec.encode(x, seed=seed, axis=-1), received=flags)
        gain = made @ x / n / float(x @ x)
        if spec == "eden:0.5" and 0 not in keep and 1 not in keep:
            assert gain == 0, "nothing that was sent arrived"
        else:
            assert gain == pytest.approx(1, abs=0.06), keep


def test_whole_units_and_empty_ones():
    """One piece a unit is flags of units, all pieces is no loss, none is zeros: bit for bit."""
    for spec in ("eden:3", "eden:1.5", "eden:3,block=64", "eden:2,scale=biased", "eden:2,block=full"):
        codec = tersor.get_codec(spec)
        for x, axis in ((vector("normal", 9001), None), (vector("normal", 720).reshape(9, 80), -1)):
            enc = codec.encode(x, seed=1, axis=axis)
            n = enc.units.count
            whole = codec.decode(enc)
            flags = np.arange(n) % 2 == 0
            by_unit = codec.decode(enc, received=flags)
            for k in (1, 7, 5000):  # more pieces than coordinates too
                assert codec.decode(enc, received=np.ones((n, k), bool)).tobytes() == whole.tobytes()
                wide = np.repeat(flags[:, None], k, axis=1)
                assert codec.decode(enc, received=wide).tobytes() == by_unit.tobytes()
            assert not codec.decode(enc, received=np.zeros((n, 3), bool)).any()
            out = np.ones_like(x)
            codec.decode(enc, received=wide, out=out, add=True)
            assert np.array_equal(out, 1 + by_unit)


def test_flags_that_do_not_fit():
    enc = tersor.Eden(bits=2).encode(vector("normal", 9000), seed=1)
    for flags in (np.ones((2, 4), bool), np.ones((3, 0), bool), np.ones((3, 4, 1), bool)):
        with pytest.raises((ValueError, TypeError), match="received"):
            enc.codec.decode(enc, received=flags)
    enc = tersor.get_codec("int8").encode(vector("normal", 1024), seed=1)
    with pytest.raises(ValueError, match="pieces"):
        enc.codec.decode(enc, received=np.ones((4, 2), bool))


def test_huge_scales_stay_finite():
    x = np.full(4096, 1e37, np.float32)
    enc = tersor.Eden(bits=4).encode(x, seed=1)
    flags = np.arange(64)[None, :] == 5
    assert np.isfinite(enc.codec.decode(enc, received=flags)).all()
    units = tersor.Eden(bits=4).units((4096,), None)
    huge = divide_by_share(np.full(1, 3e38, np.float32), flags, units, False, 0.0, (1.0, 1.0))
    assert np.isfinite(huge).all()
