"""ECASQ: budget, size against entropy, error against its expectation, units, infeasible budgets, forgeries."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tersor
from tersor.quantize import adaptive

D = 1 << 18
DENSITIES = ("normal", "lognormal", "laplace")


@cache
def made(name, n=D):
    g = np.random.default_rng(0)
    draw = {
        "normal": g.standard_normal,
        "lognormal": lambda n: g.lognormal(0, 1, n),
        "laplace": lambda n: g.laplace(0, 1, n),
    }
    return draw[name](n).astype(np.float32)


def levels_of(enc):
    """Levels of each unit."""
    numbers = enc.planes["numbers"].values().astype(int) + 1
    return np.split(enc.planes["levels"].values(), np.cumsum(numbers)[:-1])


def expected_counts(x, levels):
    """How many of x are expected at each level, by definition, in float64."""
    x, q = x.astype(np.float64), levels.astype(np.float64)
    k = np.clip(np.searchsorted(q, x, side="right") - 1, 0, len(q) - 2)
    up = (x - q[k]) / (q[k + 1] - q[k])
    return np.bincount(k, 1 - up, len(q)) + np.bincount(k + 1, up, len(q))


def entropy(counts):
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log2(p)).sum())


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("budget", [1.5, 3])
def test_budget_size_and_error(name, budget):
    x = made(name)
    codec = tersor.ECASQ(entropy=budget)
    enc = codec.encode(x, seed=1)
    (levels,) = levels_of(enc)
    value = codec.decode(enc)
    assert np.isin(value, levels).all() and levels[0] <= x.min() and levels[-1] >= x.max()
    h = entropy(expected_counts(x, levels))
    assert 0.9 * budget < h <= budget + 1e-6
    drawn = entropy(np.unique(value, return_counts=True)[1].astype(float))
    assert drawn == pytest.approx(h, abs=0.01)
    coded = 8 * enc.planes["codes"].data.nbytes
    assert D * drawn <= coded <= 1.01 * D * drawn + 16 * len(levels)
    assert 8 * len(enc.to_bytes()) <= 1.01 * D * budget + 48 * len(levels) + 8 * 256
    # Of this message, and near what the levels let expect.
    energy = float(np.sum(x.astype(np.float64) ** 2))
    assert enc.error == pytest.approx(tersor.nmse(x, value), rel=1e-4)
    assert enc.error == pytest.approx(adaptive.expected_error(x, levels) / energy, rel=0.03)


def test_better_than_an_even_grid_of_that_entropy():
    """What an unbiased even grid with an entropy coder has is the thing to beat (adaptive.md 3.7)."""
    for name in DENSITIES:
        x = made(name, 1 << 14)
        low, high = float(x.min()), float(x.max())
        grids = [np.linspace(low, high, s, dtype=np.float32) for s in range(2, 200)]
        grid = max((g for g in grids if entropy(expected_counts(x, g)) <= 2), key=len)
        even = adaptive.expected_error(x, grid)
        (levels,) = levels_of(tersor.ECASQ(entropy=2).encode(x, seed=1))
        assert adaptive.expected_error(x, levels) < even


def test_means_of_senders():
    x = made("lognormal", 5000)
    codec = tersor.ECASQ(entropy=2)
    sent = [codec.encode(x, seed=7, sender=k) for k in range(20)]
    single = np.mean([tersor.nmse(x, codec.decode(enc)) for enc in sent])
    assert tersor.nmse(x, tersor.mean(sent)) == pytest.approx(single / 20, rel=0.2)


def test_units_do_not_depend_on_one_another():
    x = made("normal", 1100)
    codec = tersor.ECASQ(entropy=2.5, block=512)
    whole = codec.encode(x, seed=3)
    parts = [codec.encode(x[a : a + 512], seed=3, start=a) for a in range(0, 1100, 512)]
    assert np.array_equal(codec.decode(whole), np.concatenate([codec.decode(p) for p in parts]))
    assert whole.planes["codes"].data.tobytes() == b"".join(p.planes["codes"].data.tobytes() for p in parts)
    rows = codec.encode(x.reshape(11, 100), seed=3, axis=-1)
    assert len(levels_of(rows)) == 11 and rows.units.count == 11


def test_exact_inputs():
    """No more distinct values than levels, and a budget for all of them: exact. Constant: no bits."""
    for v in (0.0, -2.5, 1e-45, 3e38):
        x = np.full(1000, v, np.float32)
        enc = tersor.ECASQ(entropy=1).encode(x, seed=1)
        assert np.array_equal(tersor.decode(enc), x) and enc.planes["codes"].data.nbytes == 0 and enc.error == 0
    x = np.random.default_rng(0).choice([-3.0, 0.25, 7.0], 3000).astype(np.float32)
    enc = tersor.ECASQ(entropy=1.6).encode(x, seed=1)
    assert np.array_equal(tersor.decode(enc), x) and enc.error == 0 and enc.bits_per_coordinate < 2.2


def test_infeasible_budget_names_the_least():
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    x[:2] = 1
    with pytest.raises(ValueError, match=r"0\.9\d"):
        tersor.ECASQ(entropy=0.2).encode(x[2], seed=1)
    with pytest.raises(ValueError, match="unit 2"):
        tersor.ECASQ(entropy=0.2).encode(x, seed=1, axis=-1)


def test_nonfinite():
    x = made("normal", 60).reshape(3, 20).copy()
    x[1, 4] = np.nan
    with pytest.raises(tersor.NonFiniteError, match=r"x\[1, 4\]"):
        tersor.ECASQ(entropy=2).encode(x)
    enc = tersor.ECASQ(entropy=2).encode(x, axis=-1, seed=1, nonfinite="propagate")
    value = tersor.decode(tersor.from_bytes(enc.to_bytes()))
    assert np.isnan(value[1]).all() and np.isfinite(value[[0, 2]]).all() and enc.error is None


def test_settings():
    assert tersor.get_codec("ecasq:entropy=2.0").spec == "ecasq:2"
    for wrong in (
        {"entropy": 0},
        {"entropy": 9},
        {"entropy": True},
        {"entropy": 2, "block": 8},
        {"entropy": 2, "max_levels": 1},
        {"entropy": 2, "max_levels": 257},
    ):
        with pytest.raises(ValueError, match="ecasq"):
            tersor.ECASQ(**wrong)


def test_forged_planes():
    enc = tersor.ECASQ(entropy=2).encode(made("normal", 1200).reshape(4, 300), seed=1, axis=-1)
    assert tersor.from_bytes(enc.to_bytes()).nbytes == enc.nbytes

    def forged(name, k, value):
        plane = enc.planes[name]
        values = plane.values().copy() if plane.layout != "lsb" else plane.data.copy()
        values[k] = value
        return replace(enc, planes={**enc.planes, name: replace(plane, data=values.view(np.uint8))})

    first = enc.planes["levels"].values()
    for bad in (
        forged("sizes", 0, 0),
        forged("sizes", 1, 0xFFFFFFFF),
        forged("numbers", 0, 255),
        forged("numbers", 1, 0),
        forged("levels", 1, np.nan),
        forged("levels", 0, np.nan),
        forged("levels", 2, np.inf),
        forged("levels", 1, first[0]),
        forged("codes", 0, 3),
    ):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(bad.to_bytes())
