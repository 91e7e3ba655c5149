"""Adaptive levels: the acceptance values of the papers' problem, the histogram, rows, k-means and hard inputs."""

import numpy as np
import pytest

import tersor
from tersor.errors import NonFiniteError
from tersor.quantize import adaptive

# Optimal sums of variances for default_rng(0), 4,096 values: an O(s d^2) dynamic programme, QUIVER and others agree.
OPTIMA = {
    "normal": (47989.4467107, 7568.70833253, 2795.16371937, 424.838312293, 88.0445569313, 19.6896909924, 4.56314875527),
    "lognormal": (
        143212.957687,
        23107.3495797,
        9271.81209211,
        1491.65886548,
        309.694423179,
        65.3858598495,
        13.4050003618,
    ),
    "exponential": (
        27772.505658,
        4921.0968302,
        1966.56915105,
        351.157165093,
        71.3256569403,
        16.3143310452,
        3.55718717872,
    ),
    "uniform": (
        682.860783762,
        170.487216432,
        75.493611885,
        13.6661451325,
        2.98684263503,
        0.694807357188,
        0.163272344318,
    ),
    "laplace": (
        219149.300888,
        22218.9991801,
        8300.08104737,
        1221.00522057,
        250.189407665,
        57.7534887226,
        13.1429560598,
    ),
}
LEVELS = (2, 3, 4, 8, 16, 32, 64)


def draw(name, d=4096):
    rng = np.random.default_rng(0)
    return {
        "normal": lambda: rng.standard_normal(d),
        "lognormal": lambda: rng.lognormal(0, 1, d),
        "exponential": lambda: rng.exponential(1.0, d),
        "uniform": lambda: rng.random(d),
        "laplace": lambda: rng.laplace(0, 1, d),
        "wild": lambda: rng.lognormal(0, 3, d),
        "cauchy": lambda: rng.standard_cauchy(d),
    }[name]()


@pytest.mark.parametrize("name", OPTIMA)
def test_optima(name):
    x = draw(name)
    for s, expected in zip(LEVELS, OPTIMA[name], strict=True):
        found = adaptive.solve(x, s)
        assert found.error == pytest.approx(expected, rel=1e-9)
        assert adaptive.expected_error(x, found.levels) == pytest.approx(expected, rel=1e-9)
        assert len(found.levels) == s and np.isin(found.levels, x).all()
        assert found.levels[0] == x.min() and found.levels[-1] == x.max()
        assert np.array_equal(adaptive.levels(x[::-1].reshape(64, 64).T, s), found.levels)


def test_optimal_levels():
    assert adaptive.levels(draw("normal"), 4).tolist() == pytest.approx([-3.899422, -0.910176, 0.69452, 3.257199], 1e-5)
    expected = [0.02025362, 2.353842, 8.101428, 25.97668]
    assert adaptive.levels(draw("lognormal"), 4).tolist() == pytest.approx(expected, 1e-6)
    expected = [2.625715e-4, 1.225596, 3.286428, 8.72349]
    assert adaptive.levels(draw("exponential"), 4).tolist() == pytest.approx(expected, 1e-6)


def test_weighted_optima():
    x, w = np.sort(draw("normal")), np.random.default_rng(1).random(4096)
    for s, expected in ((2, 23872.251308), (4, 1388.88222566), (8, 213.177395077), (16, 44.3308828851)):
        found = adaptive.solve(x, s, weights=w)
        assert found.error == pytest.approx(expected, rel=1e-9)
        assert adaptive.expected_error(x, found.levels, weights=w) == pytest.approx(expected, rel=1e-9)
        assert adaptive.solve(x[::-1], s, weights=w[::-1]).error == pytest.approx(expected, rel=1e-9)
    twice = adaptive.levels(np.repeat(x, 2), 8, method="exact")
    assert np.array_equal(adaptive.levels(x, 8, weights=np.full(4096, 2.0)), twice)
    near = adaptive.solve(x, 16, weights=w, method="histogram")
    assert adaptive.expected_error(x, near.levels, weights=w) <= 44.3308828851 * 1.003


def test_casts():
    x = draw("normal")
    for dtype, expected in ((np.float16, (2795.917237, 88.05418258)), (np.float32, (2795.163689, 88.04455616))):
        for s, error in zip((4, 16), expected, strict=True):
            assert adaptive.solve(x.astype(dtype), s).error == pytest.approx(error, rel=1e-9)
    torch = pytest.importorskip("torch")
    for s, error in ((4, 2793.887501), (16, 88.02705823)):
        bf16 = torch.from_numpy(x).to(torch.bfloat16)
        assert adaptive.solve(bf16, s).error == pytest.approx(error, rel=1e-9)
        # Values of 16 bits fall into cells of their own, so that the histogram is exact.
        assert adaptive.solve(bf16, s, method="histogram").error == pytest.approx(error, rel=1e-9)


def test_even_steps():
    """x = i / (d - 1) and (s - 1) | (d - 1): (s - 1)(n^3 - n) / 6 / (d - 1)^2 with n = (d - 1) / (s - 1)."""
    d = 121
    x = np.arange(d) / (d - 1)
    for s in (2, 3, 4, 5, 6, 7, 11, 13, 16):
        n = (d - 1) // (s - 1)
        assert adaptive.solve(x, s).error == pytest.approx((s - 1) * (n**3 - n) / 6 / (d - 1) ** 2, rel=1e-9)


LONG = {
    "normal": (59822.98735080, 1643.43443024, 87.7407311256),
    "lognormal": (329668.521773, 9413.24427873, 444.207978773),
    "exponential": (35480.8528171, 1247.48540368, 67.800640994),
}


@pytest.mark.parametrize("name", LONG)
def test_long_inputs(name):
    x = draw(name, 1 << 16)
    for s, expected, excess in zip((4, 16, 64), LONG[name], (1e-4, 1e-3, 6e-3), strict=True):
        assert adaptive.solve(x, s, method="exact").error == pytest.approx(expected, rel=1e-9)
        for y in (x, x.astype(np.float32)):
            near = adaptive.solve(y, s)
            assert expected * (1 - 1e-6) <= near.error <= expected * (1 + excess)
            assert adaptive.expected_error(y, near.levels) == pytest.approx(near.error, rel=1e-5)


@pytest.mark.parametrize(("name", "most"), [("wild", (1e-3, 3e-3, 2e-2)), ("cauchy", (1e-4, 1e-3, 6e-3))])
def test_wild_data_get_heavy_cells_of_their_own_values(name, most):
    x = draw(name, 1 << 15).astype(np.float32)
    for s, excess in zip((4, 16, 64), most, strict=True):
        best = adaptive.solve(x, s, method="exact").error
        near = adaptive.levels(x, s, method="histogram")
        assert best <= adaptive.expected_error(x, near) <= best * (1 + excess)


def test_both_edges_of_cells_are_candidates():
    """With only the right edges of full cells (and even cells) this input costs 2.695 in place of .25."""
    x = np.concatenate([[0.0], np.full(98, 0.55), [1.0]])
    assert adaptive.solve(x, 4, method="histogram").error <= 0.25
    assert adaptive.solve(x, 4, method="histogram").error == 0.0


def test_clusters():
    x = draw("normal")
    for k, expected in ((4, 462.9626413), (8, 135.047403), (16, 36.63842953)):
        found = adaptive.solve(x, k, unbiased=False)
        assert found.error == pytest.approx(expected, rel=1e-9)
        assert adaptive.expected_error(x, found.levels, unbiased=False) == pytest.approx(expected, rel=1e-9)
        near = adaptive.solve(x, k, unbiased=False, method="histogram")
        assert adaptive.expected_error(x, near.levels, unbiased=False) <= expected * 1.002
    assert adaptive.levels(x, 1, unbiased=False).tolist() == pytest.approx([x.mean()])


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("s", [2, 3, 4, 5, 16])
def test_rows_are_solved_one_by_one(s, unbiased):
    x = np.stack([draw(name, 130) for name in ("normal", "lognormal", "uniform", "laplace", "cauchy")])
    for y in (x.astype(np.float32), x):
        made = adaptive.levels(y, s, axis=-1, unbiased=unbiased)
        assert made.shape == (5, s) and made.dtype == y.dtype
        for row, levels in zip(y, made, strict=True):
            best = adaptive.solve(row, s, method="exact", unbiased=unbiased)
            assert adaptive.expected_error(row, levels, unbiased=unbiased) == pytest.approx(best.error, rel=1e-6)
            assert np.array_equal(adaptive.levels(row[None], s, axis=-1, unbiased=unbiased)[0], levels)
    weighted = adaptive.levels(x, s, axis=-1, unbiased=unbiased, weights=np.ones_like(x))
    assert np.array_equal(weighted, adaptive.levels(x, s, axis=-1, unbiased=unbiased))


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("method", ["exact", "histogram"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_hard_inputs(dtype, method, unbiased):
    """What makes other implementations crash or go wrong: here the answer is right."""
    rng = np.random.default_rng(9)
    for values in (
        [],
        [3.0],
        [3.0, 3.0],
        [1.0, 2.0],
        [-0.0, 0.0],
        [5.0] * 4000,
        [1.0, 2.0, 3.0] * 50,
        [0.0] * 99 + [1],
    ):
        x = np.array(values, dtype)
        for s in (2, 3, 5, 256):
            levels = adaptive.levels(x, s, method=method, unbiased=unbiased)
            if len(np.unique(x)) <= s:
                assert np.array_equal(levels, np.unique(x)), (values, s)
                assert not len(x) or adaptive.solve(x, s, method=method, unbiased=unbiased).error == 0
            assert len(levels) <= s
    strided = np.zeros((50, 7), dtype)[:, ::3]
    strided[...] = rng.standard_normal(strided.shape)
    before = strided.copy()
    adaptive.levels(strided, 4, method=method, unbiased=unbiased)
    assert np.array_equal(strided, before)


@pytest.mark.parametrize("method", ["exact", "histogram"])
def test_scales_and_offsets(method):
    x = draw("normal")
    for s in (4, 16):
        plain = adaptive.solve(x, s, method=method)
        for scale in (1e160, 1e-160, 1e-30, 1e30, 1e307):
            scaled = adaptive.solve(x * scale, s, method=method)
            again = np.concatenate([[x.min()], scaled.levels[1:-1] / scale, [x.max()]])
            real = adaptive.expected_error(x, again)
            assert real == pytest.approx(plain.error, rel=1e-9 if method == "exact" else 0.02)
            if 1e-100 < scale < 1e100:
                assert scaled.error / scale / scale == pytest.approx(real, rel=1e-6)
        # The same problem, but for the rounding of the sum to float64.
        moved = adaptive.solve(x + 1e8, s, method=method)
        assert adaptive.expected_error(x + 1e8, moved.levels) <= 88.045 * 1.001 if s == 16 else 2795.17 * 1.001
        outlier = np.append(x[:-1], 1e9)
        for far in (outlier, -outlier, np.append(x[:-2], [-1e9, 1e9])):
            best = adaptive.solve(x[:-2], s - (2 if far[-2] == -1e9 else 1)).error
            for y in (far, far.astype(np.float32)):
                found = adaptive.solve(y, s, method=method)
                assert adaptive.expected_error(y, found.levels) <= 1.01 * best
                assert (np.diff(found.levels) > 0).all()
    tiny = (x * 1e-42).astype(np.float32)  # denormals
    assert (
        adaptive.expected_error(tiny, adaptive.levels(tiny, 16, method=method))
        <= 0.03 * (tiny.astype(float) ** 2).sum()
    )
    huge = np.array([-3e38, 3e38, 1e38, 2e38, 1.5e38], np.float32)
    assert np.isfinite(adaptive.levels(huge, 3, method=method)).all()
    huge = np.array([-1.7e308, 1.7e308, 1e307, 2e307, 1.5e307])
    for unbiased in (True, False):
        assert np.isfinite(adaptive.levels(huge, 3, method=method, unbiased=unbiased)).all()


def test_bad_arguments():
    x = np.ones(5)
    for s in (1, 257, 2.5, True, "4"):
        with pytest.raises(ValueError, match="s must be"):
            adaptive.levels(x, s)
    with pytest.raises(ValueError, match="method"):
        adaptive.levels(x, 4, method="fast")
    for axis in (0, 1, -2):
        with pytest.raises(ValueError, match="axis"):
            adaptive.levels(x, 4, axis=axis)
    for w in (np.ones(4), -x, np.full(5, np.nan), np.full(5, 1e308)):
        with pytest.raises(ValueError, match="weights"):
            adaptive.levels(x, 4, weights=w)
    with pytest.raises(TypeError):
        adaptive.levels(np.arange(5), 4)
    for bad in (np.nan, np.inf, -np.inf):
        for dtype in (np.float16, np.float32, np.float64):
            y = np.zeros(9000, dtype)
            y[8000] = bad
            for kw in ({}, {"method": "exact"}, {"method": "histogram"}, {"unbiased": False}):
                with pytest.raises(NonFiniteError, match="8000") as e:
                    adaptive.levels(y, 4, **kw)
                assert e.value.index == 8000
            with pytest.raises(NonFiniteError):
                adaptive.levels(y.reshape(90, 100), 4, axis=-1)
    for q in ([], [1.0, 0.0], [np.nan], [2.0, 3.0]):
        with pytest.raises(ValueError, match="levels"):
            adaptive.expected_error(x, q)


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_backends_agree(backend):
    x = draw("wild", 9000).astype(np.float32)
    cases = [(x, {}), (x, {"unbiased": False}), (x[:900], {}), (x.reshape(-1, 60), {"axis": -1}), (x.astype(float), {})]
    expected = [adaptive.levels(y, 8, **kw) for y, kw in cases]
    try:
        with tersor.backend(backend):
            for (y, kw), levels in zip(cases, expected, strict=True):
                assert np.array_equal(adaptive.levels(y, 8, **kw), levels)
    except tersor.TersorError:
        pytest.skip("not installed")
