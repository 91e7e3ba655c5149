"""The Lloyd-Max table: symmetric, centroids to 11 digits, the errors of quantizers.md, midpoints, frozen."""

import itertools
import json
import math
import zlib
from importlib.resources import files

import mpmath
import numpy as np
import pytest

from tersor.quantize import lloyd_max

# quantizers.md section 1.
MSE = {
    1: "0.3633802276324187",
    2: "0.1174818478293293",
    3: "0.03454776078850373",
    4: "0.009501008008191886",
    5: "0.002504668355674799",
    6: "0.0006442396653172623",
    7: "0.0001634782299802368",
    8: "4.118508286711749e-5",
}
# CRC-32 of the float32 bytes: shipped tables are frozen, a change needs a new version of the format.
FROZEN = {
    1: 0x6236ABB5,
    2: 0xFBC452FE,
    3: 0xA18761B2,
    4: 0xDE50B4CB,
    5: 0x96A0347D,
    6: 0xAD2A3EB6,
    7: 0x5881D222,
    8: 0xF5D1A5FF,
}


def table(bits):
    text = files("tersor.quantize").joinpath("lloyd_max.json").read_text("ascii")
    return [mpmath.mpf(v) for v in json.loads(text)[str(bits)]["positive_levels"]]


def phi(t):
    return mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi) if t != mpmath.inf else mpmath.mpf(0)


def tail(t):
    return mpmath.erfc(t / mpmath.sqrt(2)) / 2 if t != mpmath.inf else mpmath.mpf(0)


@pytest.mark.parametrize("bits", range(1, 9))
def test_centroids_and_error(bits):
    """Each level is the mean of its cell to 1e-11 (the table has 12 digits), the error that of the spec (check 1)."""
    with mpmath.workdps(40):
        levels = table(bits)
        bounds = [mpmath.mpf(0), *[(a + b) / 2 for a, b in itertools.pairwise(levels)], mpmath.inf]
        mse = mpmath.mpf(1)
        for level, low, high in zip(levels, bounds, bounds[1:], strict=False):
            mass, moment = tail(low) - tail(high), phi(low) - phi(high)
            assert abs(moment / mass - level) < 1e-11
            # E (z - c)**2 over the cell = E z**2 - 2 c E z + c**2 P, both halves of the line
            mse += 2 * (level * level * mass - 2 * level * moment)
        assert abs(mse - mpmath.mpf(MSE[bits])) < (1e-12 if bits <= 6 else 1e-13)
    assert lloyd_max.mse(bits) == float(MSE[bits])


@pytest.mark.parametrize("bits", range(1, 9))
def test_levels_are_the_table_in_float32(bits):
    levels = lloyd_max.levels(bits)
    assert levels.dtype == np.float32 and len(levels) == 2**bits
    assert np.array_equal(levels, -levels[::-1]), "symmetric"
    assert (np.diff(levels) > 0).all() and (levels[2 ** (bits - 1) :] > 0).all()
    assert np.array_equal(levels[2 ** (bits - 1) :], np.array([float(v) for v in table(bits)], np.float32))
    with pytest.raises(ValueError):
        levels[0] = 0


@pytest.mark.parametrize("bits", range(1, 9))
def test_thresholds_are_midpoints(bits):
    levels, thresholds = lloyd_max.levels(bits).astype(np.float64), lloyd_max.thresholds(bits)
    assert thresholds.dtype == np.float32 and len(thresholds) == 2**bits - 1
    assert np.array_equal(thresholds, ((levels[1:] + levels[:-1]) / 2).astype(np.float32))
    assert thresholds[2 ** (bits - 1) - 1] == 0 and not math.copysign(1, thresholds[2 ** (bits - 1) - 1]) < 0


def test_rounding_of_known_levels():
    """Printed in quantizers.md section 1."""
    assert lloyd_max.levels(2)[2:].tolist() == pytest.approx([0.45278003463, 1.51041760849], rel=1e-7)
    assert lloyd_max.levels(4)[-1] == pytest.approx(2.73258957099, rel=1e-7)
    assert lloyd_max.levels(8)[-1] == pytest.approx(4.60353561243, rel=1e-7)
    assert np.sum(lloyd_max.levels(7).astype(float)[64:] ** 2) == pytest.approx(179.700388231, rel=1e-7)


@pytest.mark.parametrize("bits", range(1, 9))
def test_table_is_frozen(bits):
    assert zlib.crc32(lloyd_max.levels(bits).astype("<f4").tobytes()) == FROZEN[bits]


def test_no_bits_are_the_mean():
    assert lloyd_max.levels(0).tolist() == [0.0] and not len(lloyd_max.thresholds(0)) and lloyd_max.mse(0) == 1


@pytest.mark.parametrize("bits", [9, -1])
def test_no_other_table(bits):
    with pytest.raises(KeyError):
        lloyd_max.levels(bits)
