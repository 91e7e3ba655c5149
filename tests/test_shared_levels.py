"""Levels with shared randomness: the error in closed form against enumeration, the figures to reach, hard inputs."""

import itertools

import numpy as np
import pytest

import tersor
from tersor.errors import NonFiniteError
from tersor.quantize import adaptive, shared_levels

# Error over that of the best levels alone, default_rng(0), 4,096 values: what the authors' code reaches, by s and l.
REACHED = {
    ("normal", 2): {2: 0.355, 4: 0.206, 6: 0.171},
    ("normal", 4): {2: 0.534, 4: 0.399, 6: 0.367},
    ("normal", 16): {2: 0.625, 4: 0.527, 6: 0.508},
    ("lognormal", 2): {2: 0.373, 4: 0.239, 6: 0.209},
    ("lognormal", 4): {2: 0.570, 4: 0.444, 6: 0.420},
    ("lognormal", 16): {2: 0.637, 4: 0.543, 6: 0.530},
}


def draw(name, d=4096):
    rng = np.random.default_rng(0)
    return rng.standard_normal(d) if name == "normal" else rng.lognormal(0, 1, d)


def outcomes(x, q):
    """Yield (probability, value) of all that a receiver may get for x, as the definition says, index by index."""
    shared, s = q.shape
    upper = [[(i + shared - h) // shared for h in range(shared)] for i in range(shared * (s - 1))]
    thresholds = [np.mean([q[h][upper[i][h]] for h in range(shared)]) for i in range(len(upper))]
    begins = [np.mean(q[:, 0]), *thresholds[:-1]]
    i = next((i for i, t in enumerate(thresholds) if x <= t), len(thresholds) - 1)
    for h in range(shared):
        value = q[h][upper[i][h]]
        if h == i % shared:
            lower = q[h][upper[i][h] - 1]
            p = 0.0 if value == lower else (x - begins[i]) * shared / (value - lower)
            yield from (((1 - p) / shared, lower), (p / shared, value))
        else:
            yield 1 / shared, value


@pytest.mark.parametrize(("shared", "s"), [(1, 2), (1, 4), (2, 2), (2, 4), (3, 3), (4, 2), (5, 4), (8, 3)])
def test_unbiased_and_error_in_closed_form(shared, s):
    for x in (draw("normal", 300), draw("lognormal", 300), np.rint(3 * draw("normal", 300))):
        q = shared_levels.levels(x, s, shared=shared)
        mean = np.array([sum(p * value for p, value in outcomes(v, q)) for v in x])
        assert np.abs(mean - x).max() < 1e-12 * np.abs(q).max()
        error = sum(p * (value - v) ** 2 for v in x for p, value in outcomes(v, q))
        assert shared_levels.expected_error(x, q) == pytest.approx(error, rel=1e-9)
        weights = np.arange(len(x)) / len(x)
        error = sum(w * p * (value - v) ** 2 for v, w in zip(x, weights, strict=True) for p, value in outcomes(v, q))
        assert shared_levels.expected_error(x, q, weights=weights) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(("name", "s"), REACHED)
def test_error_is_at_most_what_the_authors_reach(name, s):
    x = draw(name)
    alone = adaptive.solve(x, s).error
    for shared, reached in REACHED[name, s].items():
        q = shared_levels.levels(x, s, shared=shared)
        assert shared_levels.expected_error(x, q) / alone < reached
        assert q.shape == (shared, s) and (np.diff(q.T.reshape(-1)) >= 0).all()
        assert abs(q[:, 0].mean() - x.min()) < 1e-12 and abs(q[:, -1].mean() - x.max()) < 1e-12


def test_one_codebook_is_the_adaptive_optimum():
    for s in (2, 4, 16):
        x = draw("normal")
        q = shared_levels.levels(x, s, shared=1)
        assert np.array_equal(q[0], adaptive.levels(x, s))
        assert shared_levels.expected_error(x, q) == pytest.approx(adaptive.solve(x, s).error, rel=1e-9)


def test_no_small_move_of_any_value_lowers_the_error():
    x = draw("normal", 1000)
    for shared, s in ((2, 3), (4, 2), (3, 4)):
        q = shared_levels.levels(x, s, shared=shared)
        best = shared_levels.expected_error(x, q)
        for h, j, step in itertools.product(range(shared), range(1, s - 1), (-0.01, 0.01)):
            moved = q.copy()
            moved[h, j] += step
            assert shared_levels.expected_error(x, moved) > best * (1 - 1e-3)


def test_many_even_levels_have_the_law_of_the_docstring():
    x = np.random.default_rng(1).random(20_000)
    for shared in (2, 4, 8):
        step = 1 / 63
        v = (np.arange(64 * shared) - (shared - 1) / 2) * step / shared
        error = shared_levels.expected_error(x, v.reshape(64, shared).T) / len(x)
        assert error == pytest.approx(step**2 / 6 * (shared**2 + 1) / (2 * shared**2), rel=0.01)


def test_histogram_is_as_good():
    for name, d in (("normal", 2**16), ("lognormal", 2**16)):
        x = draw(name, d)
        for shared, s in ((2, 4), (4, 16)):
            exact = shared_levels.levels(x, s, shared=shared, method="exact")
            near = shared_levels.levels(x, s, shared=shared)
            errors = [shared_levels.expected_error(x, q) for q in (near, exact)]
            assert errors[0] < 1.01 * errors[1]
            single = shared_levels.levels(x.astype(np.float32), s, shared=shared)
            assert single.dtype == np.float32
            assert shared_levels.expected_error(x.astype(np.float32), single) < 1.01 * errors[1]


def test_weights():
    x = draw("normal", 5000)
    w = np.random.default_rng(1).integers(0, 4, len(x)).astype(float)
    w[[x.argmin(), x.argmax()]] = 1.0  # the levels span all entries, those without weight, too
    repeated = np.repeat(x, w.astype(int))
    for method in ("exact", "histogram"):
        q = shared_levels.levels(x, 4, shared=3, weights=w, method=method)
        wanted = shared_levels.expected_error(repeated, shared_levels.levels(repeated, 4, shared=3, method="exact"))
        assert shared_levels.expected_error(x, q, weights=w) == pytest.approx(wanted, rel=2e-3)


def test_rows_are_as_each_alone():
    rows = np.random.default_rng(2).lognormal(0, 1, (5, 200)).astype(np.float32)
    rows[1] = 0.7
    rows[2] = np.arange(200) % 3
    made = shared_levels.levels(rows, 4, shared=3, axis=-1)
    assert made.shape == (5, 3, 4) and made.dtype == np.float32
    for row, q in zip(rows, made, strict=True):
        alone = shared_levels.levels(row, 4, shared=3)
        assert np.array_equal(q[:, : alone.shape[1]], alone) and (q[:, alone.shape[1] :] == alone[:, -1:]).all()
    assert shared_levels.levels(np.zeros((2, 0, 3)), 4, shared=2, axis=-1).shape == (2, 0, 2, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shared", [1, 2, 3, 7])
def test_hard_inputs(dtype, shared):
    g = np.random.default_rng(3)
    normal = g.standard_normal(500)
    outlier = normal.copy()
    outlier[7] = 1e9
    for x in (
        normal * 1e-30,
        normal * 1e30,
        outlier,
        normal + 1e5,
        np.rint(normal),
        normal[:1],
        normal[:2],
        normal[:3],
    ):
        data = x.astype(dtype)
        before = data.copy()
        for s in (2, 4, 16):
            for method in ("exact", "histogram"):
                alone = adaptive.expected_error(data, adaptive.levels(data, s, method=method))
                q = shared_levels.levels(data, s, shared=shared, method=method)
                error = shared_levels.expected_error(data, q)  # raises if the input is not spanned
                assert np.isfinite(q).all() and error <= alone * (1 + 1e-6)
        assert np.array_equal(data, before)
    for x in (np.full(9, 0.1), np.zeros(5), np.array([-0.0]), np.repeat([1.1, 2.2, 3.3], 4)):
        q = shared_levels.levels(x.astype(dtype), 4, shared=shared)
        assert shared_levels.expected_error(x.astype(dtype), q) == 0
        assert set(q.reshape(-1)) <= set(x.astype(dtype))
    assert shared_levels.levels(np.zeros(0, dtype), 4, shared=shared).shape == (shared, 0)
    largest = np.array([-1, -0.3, 0.3, 1.0]) * np.finfo(np.float32).max
    assert np.isfinite(shared_levels.levels(largest.astype(dtype), 2, shared=shared)).all()


def test_float64_of_any_scale():
    x = draw("normal", 500)
    for scale in (2.0**530, 2.0**-900):
        q = shared_levels.levels(x * scale, 4, shared=3)
        assert np.allclose(q / scale, shared_levels.levels(x, 4, shared=3), rtol=1e-9, atol=0)


def test_backends_agree():
    x = np.random.default_rng(5).lognormal(0, 1, 3000).astype(np.float32)
    made = []
    for name in ("reference", "native"):
        with tersor.backend(name):
            made.append([shared_levels.levels(x, 4, shared=3, method=m).tobytes() for m in ("exact", "histogram")])
    assert made[0] == made[1]


def test_errors():
    x = draw("normal", 50)
    for shared in (0, 9, 2.0, True):
        with pytest.raises(ValueError, match="shared must be"):
            shared_levels.levels(x, 4, shared=shared)
    with pytest.raises(ValueError, match="s must be"):
        shared_levels.levels(x, 1)
    with pytest.raises(ValueError, match="axis"):
        shared_levels.levels(x, 4, axis=0)
    with pytest.raises(ValueError, match="weights"):
        shared_levels.levels(x, 4, axis=-1, weights=x)
    for method in ("exact", "histogram"):
        with pytest.raises(NonFiniteError):
            shared_levels.levels(np.array([0.0, np.nan, 1.0]), 4, method=method)
    with pytest.raises(ValueError, match="span"):
        shared_levels.expected_error([0.0, 1.0], [[0.0, 0.9], [0.0, 1.0]])
    for q in ([[1.0, 0.0]], [0.0, 1.0], np.zeros((2, 0)), [[0.0, np.inf]]):
        with pytest.raises(ValueError, match="codebooks"):
            shared_levels.expected_error([0.5], q)
