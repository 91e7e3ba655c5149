"""Microscaling with stochastic rounding and scales rounded up: grids and saturation by hand, exact variance, claims."""

import numpy as np
import pytest
from test_blocks import LIMITS, MX, elements
from unrotated import check_unbiased, vector

import tersor

BOTH = "rounding=stochastic,scale_rounding=up"


def variant(spec, more):
    return tersor.get_codec(f"{spec},{more}")


@pytest.mark.parametrize("spec", MX)
def test_up_and_nearest_by_hand(spec):
    """The least power of two under which max|x| does not saturate, then the nearest element, ties to the even code."""
    grid = np.array([float(v) for v in elements(spec)])
    x = np.concatenate([vector("LogN", 12, 3) * 3, vector("N", 12, 1), np.repeat(grid[1:33], 32)]).astype(np.float32)
    x[::3] *= -1
    enc = variant(spec, "scale_rounding=up").encode(x)
    blocks, value = x.reshape(-1, 32).astype(np.float64), tersor.decode(enc).reshape(-1, 32)
    k = enc.planes["scales"].data.astype(int) - 127
    amax = np.abs(blocks).max(1)
    assert (amax <= grid[-1] * 2.0**k).all()
    floor = np.floor(np.log2(amax)) - LIMITS[spec][2]
    assert np.array_equal(k, floor + (amax > grid[-1] * 2.0**floor)) and (k > floor).any() and (k == floor).any()
    y = np.abs(blocks) / 2.0 ** k[:, None]
    code = np.abs(y[..., None] - grid).argmin(-1)
    above = np.minimum(code + 1, len(grid) - 1)
    tie = (np.abs(grid[above] - y) == np.abs(grid[code] - y)) & (code % 2 == 1)
    expected = np.where(tie, grid[above], grid[code]) * 2.0 ** k[:, None]
    assert np.array_equal(np.abs(value), expected.astype(np.float32))
    assert np.array_equal(np.signbit(value), np.signbit(x.reshape(-1, 32)) & ((value != 0) | (spec != "mxint8")))


@pytest.mark.parametrize("spec", MX)
def test_stochastic_variance_is_exact(spec):
    """Between neighbours a and b of the grid the mean is x and the variance (b - x)(x - a)."""
    codec = variant(spec, BOTH)
    assert codec.claims.unbiased and not codec.claims.rounds_to_nearest
    assert not variant(spec, "rounding=stochastic").claims.unbiased
    grid = np.array([float(v) for v in elements(spec)])
    x = np.concatenate([vector("N", 5, 1), vector("LogN", 5, 2), vector("LogN", 4, 3) * 1e-4])
    made = np.stack([codec.decode(codec.encode(x, seed=s)) for s in range(1000)]).astype(np.float64)
    scale = np.repeat(2.0 ** (codec.encode(x, seed=1).planes["scales"].data.astype(int) - 127), 32)[: len(x)]
    y = np.abs(x.astype(np.float64)) / scale
    a = np.minimum(np.searchsorted(grid, y, side="right") - 1, len(grid) - 2)
    law = (grid[a + 1] - y) * (y - grid[a]) * scale**2
    assert (np.isin(np.abs(made) / scale, grid)).all()
    check_unbiased(made, x)
    errors = np.sum((made - x) ** 2, axis=1)
    assert abs(errors.mean() - law.sum()) <= 4 * errors.std() / np.sqrt(len(made))


def test_floor_and_stochastic_saturates():
    x = np.full(32, 7.9, np.float32)  # between 6 and 8: the floor scale of mxfp4 is 1
    assert (tersor.roundtrip(x, "mxfp4,rounding=stochastic", seed=1) == 6).all()
    assert set(tersor.roundtrip(x, f"mxfp4,{BOTH}", seed=1).tolist()) <= {6.0, 8.0}


@pytest.mark.parametrize("spec", MX)
def test_elements_and_zeros_are_exact(spec):
    grid = np.array([float(v) for v in elements(spec)], np.float32)
    x = np.concatenate([grid, -grid, np.zeros(64, np.float32)])
    x = np.concatenate([np.full((len(x), 1), grid[-1]), x[:, None]], axis=1).reshape(-1)
    for more in ("rounding=stochastic", "scale_rounding=up", BOTH):
        assert np.array_equal(tersor.decode(variant(spec, more).encode(x, seed=1)), x)


@pytest.mark.parametrize("spec", MX)
def test_extremes(spec):
    top = np.finfo(np.float32).max
    for x in ([top, -top], [top, 1e-45], [1e-45, -1e-45, 1e-40], [1.5 * 2.0**127] * 40, [2.0**-126, 3.0]):
        x = np.array(x, np.float32)
        value = tersor.decode(variant(spec, BOTH).encode(x, seed=1))
        assert np.isfinite(value).all() and np.max(np.abs(value - x)) <= np.max(np.abs(x)) / 4 + 2.0**-127
    x = np.ones((3, 40), np.float32)
    x[1, 35] = np.nan
    value = tersor.decode(variant(spec, BOTH).encode(x, seed=1, axis=-1, nonfinite="propagate"))
    assert np.isnan(value[1, 32:]).all() and np.isfinite(value[1, :32]).all() and np.isfinite(value[[0, 2]]).all()


def test_pieces_agree():
    """Rows longer and shorter than a piece of work, of odd lengths: each as if alone."""
    for n in (1, 33, 700, 40960, 100_001):
        x = np.stack([vector("N", 17, s)[:n] for s in range(3)])
        codec = variant("mxfp6", BOTH)
        whole = codec.decode(codec.encode(x, seed=1, axis=-1))
        for r in range(3):
            assert np.array_equal(whole[r], codec.decode(codec.encode(x[r : r + 1], seed=1, axis=-1, start=r))[0])


def test_refusals():
    for more in ("rounding=up", "scale_rounding=nearest", "rounding=true"):
        with pytest.raises(ValueError, match="rounding"):
            variant("mxfp4", more)
