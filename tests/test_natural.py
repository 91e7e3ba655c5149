"""Natural compression: the exact law of every mantissa, both ends of the range, the reference table."""

import numpy as np
import pytest
from unrotated import check_law, check_unbiased, mean_vnmse, vector

import tersor
from tersor import rng

TOP = float(np.finfo(np.float32).max)


def law(x):
    m, _ = np.frexp(np.abs(x.astype(np.float64)))
    m = 2 * m[m > 0]
    y = x.astype(np.float64)
    return np.sum((m - 1) * (2 - m) / m**2 * y[y != 0] ** 2) / np.sum(y**2)


def test_codes_are_what_format_md_says():
    """Sign and exponent; up by one where 23 random bits are below the mantissa."""
    g = np.random.default_rng(0)
    x = (g.standard_normal(50_003) * 10.0 ** g.uniform(-44, 37, 50_003)).astype(np.float32)
    value = tersor.Natural().decode(tersor.Natural().encode(x, seed=3))
    draws = (rng.words(rng.mix64(3), rng.ROUNDING, 0, 0, len(x)) >> 9) / 2.0**23
    _, e = np.frexp(np.abs(x.astype(np.float64)))
    low = np.where(np.abs(x) < 2.0**-126, 0, np.ldexp(0.5, e))
    high = np.where(low > 0, 2 * low, 2.0**-126)
    share = (np.abs(x.astype(np.float64)) - low) / (high - low)
    expected = np.sign(x) * np.where(draws < share, high, low)
    assert np.array_equal(value, expected.astype(np.float32))
    assert np.sum((value - x.astype(float)) ** 2) <= np.sum(x.astype(float) ** 2)


def test_variance_is_exact():
    codec = tersor.Natural()
    for x in (vector("N", 6, 1), vector("LogN", 5, 2), np.array([4 / 3], np.float32), np.array([3, 0, 1], np.float32)):
        check_unbiased(check_law(codec, x, law(x)), x)
        assert law(x) <= 1 / 8 + 1e-12
    assert law(np.array([4 / 3], np.float32)) == pytest.approx(1 / 8, rel=1e-6)


def test_powers_of_two_and_zeros_are_exact():
    powers = np.ldexp(1.0, np.arange(-126, 128)).astype(np.float32)
    x = np.concatenate([powers, -powers, [0, -0.0]]).astype(np.float32)
    assert np.array_equal(tersor.roundtrip(x, "natural"), x)
    assert not np.signbit(tersor.roundtrip(np.array([-0.0], np.float32), "natural"))[0]


def test_both_ends_of_the_range():
    top = np.array([TOP, -TOP, 1.5 * 2.0**127], np.float32)
    for seed in range(20):
        value = tersor.decode(tersor.Natural().encode(top, seed=seed))
        assert value.tolist() == [2.0**127, -(2.0**127), 2.0**127]
    assert np.isfinite(tersor.Natural().decode(tersor.Natural().encode(top, seed=1), weight=7.0)).all()
    x = np.full(4096, 2.0**-128, np.float32)  # a quarter of the least power of two
    value = tersor.decode(tersor.Natural().encode(x, seed=1))
    assert set(value.tolist()) == {0.0, 2.0**-126}
    assert abs(np.mean(value > 0) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4096)


@pytest.mark.parametrize(
    ("name", "log2d", "vectors", "error"),
    [
        ("N", 10, 60, 0.0816),
        ("N", 14, 12, 0.0813),
        ("LogN", 14, 12, 0.0822),
        pytest.param("N", 20, 2, 0.0821, marks=pytest.mark.slow),
        pytest.param("LogN", 20, 2, 0.0834, marks=pytest.mark.slow),
    ],
)
def test_reference_table(name, log2d, vectors, error):
    assert mean_vnmse("natural", name, log2d, vectors) == pytest.approx(error, rel=0.04)


def test_nan_stays_where_it_is():
    x = np.array([1, np.nan, -np.inf, 2], np.float32)
    value = tersor.decode(tersor.Natural().encode(x, seed=1, nonfinite="propagate"))
    assert np.isnan(value).tolist() == [False, True, True, False] and value[0] == 1 and value[3] == 2
