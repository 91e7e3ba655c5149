"""Entropy-constrained levels: published figures, brute force over all subsets, guarantees, budgets, edges."""

import itertools

import numpy as np
import pytest
from entropy_cases import costs

import tersor
from tersor.errors import NonFiniteError
from tersor.kernels import reference
from tersor.quantize import adaptive
from tersor.quantize import entropy_constrained as ec
from tersor.quantize.candidates import exact
from tersor.quantize.entropy_paths import Problem, log2

G = np.random.default_rng

# input, levels, multiplier: J*, error, entropy and levels of the optimum, J of the approximation, J refined
OPTIMA = [
    ("normal", 8, 0.02, 78.0875004695, 52.0421588038, 2.543490397, 8, 78.10032593, 78.08750047),
    ("normal", 16, 0.01, 28.8323640263, 10.9399604625, 3.494610071, 16, 28.86604643, 28.84145498),
    ("normal", 16, 0.1, 173.731964764, 35.5439924492, 2.698983834, 12, 205.4719095, 175.2414769),
    ("normal", 16, 0.5, 613.120002101, 154.859350889, 1.790080669, 6, 749.7091774, 616.0901045),
    ("lognormal", 8, 0.02, 168.403290027, 145.32369529, 2.253866674, 8, 168.4345579, 168.40329),
    ("lognormal", 16, 0.01, 40.8117198456, 24.2906744098, 3.226766687, 16, 40.82054552, 40.81171985),
    ("lognormal", 16, 0.1, 177.700602084, 31.1742584601, 2.861842649, 16, 179.5290019, 177.7006305),
    ("lognormal", 16, 0.5, 664.294562827, 130.183934281, 2.086369643, 11, 724.7552553, 667.3164166),
]
BUDGETS = {1.0: 1881.125, 1.5: 294.972, 2.0: 109.614, 2.5: 48.8759, 3.0: 23.5293, 3.5: 10.93996}


def data(name, d=512):
    return G(0).standard_normal(d) if name == "normal" else G(0).lognormal(0, 1, d)


def expected(x, q):
    """Return error, entropy and entropy of (level, side) from every entry's own probabilities."""
    q = np.asarray(q, np.float64)
    i = np.clip(np.searchsorted(q, x), 1, max(len(q) - 1, 1))
    if len(q) == 1:
        return 0.0, 0.0, 0.0
    low, high = q[i - 1], q[i]
    p = (x - low) / (high - low)
    mass = np.zeros((2, len(q)))
    # An entry on the first level comes from above, as the others below the second level.
    np.add.at(mass[0], i, p)
    np.add.at(mass[1], i - 1, 1 - p)

    def bits(w):
        w = w[w > 0] / len(x)
        return float(-(w * np.log2(w)).sum())

    return float(((high - x) * (x - low)).sum()), bits(mass.sum(axis=0)), bits(mass.reshape(-1))


@pytest.mark.parametrize("row", OPTIMA, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_the_figures_of_the_exact_search_and_of_the_approximation(row):
    name, most, multiplier, j, error, entropy, used, approximate, refined = row
    x = data(name)
    s = ec.lagrangian(x, multiplier, max_levels=most, method="exact")
    assert s.error + multiplier * 512 * s.entropy == pytest.approx(j, rel=1e-9)
    assert s.error == pytest.approx(error, rel=1e-9)
    assert s.entropy == pytest.approx(entropy, rel=1e-9)
    assert len(s.levels) == used
    c = exact(x)
    problem = Problem(c, np.arange(512), most, False)
    scaled = multiplier * (c.down * c.up) ** 2
    values = [c.error_of(f.cost) + multiplier * 512 * f.entropy for f in problem.solve(scaled)]
    assert values[0] == pytest.approx(approximate, rel=1e-9)
    assert values == sorted(values, reverse=True)
    assert j * (1 - 1e-10) <= values[-1] <= refined * (1 + 1e-8)


def tiny(g):
    """Return 2 to 8 values, often with ties and even gaps."""
    d = int(g.integers(2, 9))
    kind = g.integers(0, 4)
    if kind == 0:
        return g.standard_normal(d)
    if kind == 1:
        return g.integers(0, 5, d).astype(np.float64)
    return g.lognormal(0, 2, d) if kind == 2 else g.choice([-1.0, 0.0, 0.5, 3.0, 3.25], d)


def every_subset(x):
    values = np.unique(x)
    inner = values[1:-1]
    for size in range(len(inner) + 1):
        for chosen in itertools.combinations(inner, size):
            yield np.array([values[0], *chosen, values[-1]])


def against_brute_force(count, seed):
    g = G(seed)
    budgets = better = 0
    for _ in range(count):
        x = tiny(g)
        if len(np.unique(x)) < 2:
            continue
        multiplier = float(np.exp(g.uniform(-6, 2)))
        most = int(g.integers(2, 7))
        d = len(x)
        table = np.array([(len(q), *expected(x, q)) for q in every_subset(x)])
        few = table[table[:, 0] <= most]
        best = (few[:, 1] + multiplier * d * few[:, 2]).min()
        c = exact(x)
        problem = Problem(c, np.arange(len(c.points)), most, False)
        scaled = multiplier * (c.down * c.up) ** 2

        def j(path, x=x, c=c, multiplier=multiplier, d=d):
            error, entropy, both = expected(x, c.values[path])
            return error + multiplier * d * entropy, error + multiplier * d * both

        path = problem.exactly(scaled)
        assert len(path) <= most
        assert j(path)[0] == pytest.approx(best, rel=1e-11, abs=1e-12)
        path = problem.jointly(scaled)
        assert j(path)[1] == pytest.approx((few[:, 1] + multiplier * d * few[:, 3]).min(), rel=1e-11, abs=1e-12)
        assert len(path) <= most and j(path)[0] <= best + multiplier * d + 1e-9
        refined = [path, *(f.path for f in problem.refined(path, scaled))]
        assert best - 1e-9 * abs(best) <= j(refined[-1])[0] <= j(path)[0] * (1 + 1e-12)
        gap = table[:, 3] - table[:, 2]
        assert gap.min() >= -1e-12 and gap.max() <= 1 + 1e-12
        for budget in (1.0, 1.5, float(g.uniform(1, 3.5))):
            joint, own = few[few[:, 3] <= budget], few[few[:, 2] <= budget - 1]
            if len(own):
                budgets += 1
                assert joint[:, 1].min() <= own[:, 1].min() + 1e-12
        budget = float(g.uniform(table[:, 2].min() * 1.000001 + 1e-9, 3))
        allowed = few[few[:, 2] <= budget]
        if len(allowed):
            s = ec.levels(x, budget, max_levels=most)
            error, entropy, _ = expected(x, s.levels)
            assert entropy <= budget + 1e-12 and len(s.levels) <= most
            assert s.error == pytest.approx(error, rel=1e-9, abs=1e-12) and s.entropy == pytest.approx(
                entropy, abs=1e-12
            )
            if np.isin(s.levels, x).all():
                assert error >= allowed[:, 1].min() - 1e-9
            better += error <= allowed[:, 1].min() + 1e-9
    return budgets, better


def test_brute_force_over_all_subsets():
    budgets, better = against_brute_force(700, 1)
    assert budgets > 300
    assert better > 400  # of the budgets, the best subset of all is found for most


@pytest.mark.slow
def test_the_guarantees_on_ten_thousand_inputs():
    budgets, _ = against_brute_force(18000, 2)
    assert budgets > 10000


@pytest.mark.parametrize("method", ["auto", "exact", "approximate"])
def test_budgets(method):
    x = data("normal")
    for budget, hull in BUDGETS.items():
        s = ec.levels(x, budget, max_levels=16, method=method)
        error, entropy, _ = expected(x, s.levels)
        assert s.entropy <= budget and entropy <= budget + 1e-12
        assert s.error == pytest.approx(error, rel=1e-9)
        assert s.error <= 1.05 * hull
        assert len(s.levels) <= 16 and s.levels[0] == x.min() and s.levels[-1] == x.max()
        assert s.probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_a_budget_that_no_levels_meet_names_the_least_entropy():
    for name, least in (("normal", 0.97147), ("lognormal", 0.378748)):
        with pytest.raises(ec.InfeasibleError, match="the least is") as caught:
            ec.levels(data(name), least - 0.01)
        assert caught.value.least == pytest.approx(least, abs=1e-5)
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, tersor.errors.TersorError)
        assert ec.levels(data(name), caught.value.least).entropy <= caught.value.least


def test_enough_bits_for_any_levels_give_the_adaptive_optimum():
    x = data("lognormal")
    for s in (2, 4, 8):
        assert ec.levels(x, np.log2(s), max_levels=s).error <= 1.02 * adaptive.solve(x, s).error
        assert ec.levels(x, np.log2(s), max_levels=s, method="exact").error == pytest.approx(
            adaptive.solve(x, s).error, rel=1e-9
        )


def test_the_uniform_baseline_is_the_worse_one():
    for name in ("normal", "lognormal"):
        x = data(name, 4096)
        for budget in (2.0, 3.0):
            grid = ec.uniform(x, budget)
            error, entropy, _ = expected(x, grid.levels)
            assert grid.entropy <= budget and entropy == pytest.approx(grid.entropy, abs=1e-9)
            assert grid.error == pytest.approx(error, rel=1e-9)
            assert np.ptp(np.diff(grid.levels)) < 1e-9 * np.ptp(x)
            assert ec.levels(x, budget).error < grid.error
    among_few = G(3).integers(0, 9, 30).astype(np.float64)  # where an even grid may be better than any values
    for budget in (1.5, 1.8, 2.2):
        assert ec.levels(among_few, budget).error <= ec.uniform(among_few, budget, max_levels=256).error


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_dtypes_strides_and_shapes(dtype):
    x = G(0).standard_normal((40, 50))
    if dtype == "bfloat16":
        torch = pytest.importorskip("torch")
        given = torch.from_numpy(x).to(torch.bfloat16)
        same = given.float().numpy()
    else:
        given = same = x.astype(dtype)
    s = ec.levels(given.T if dtype != "bfloat16" else given.t(), 2.0)
    flat = np.ascontiguousarray(same).reshape(-1).astype(np.float64)
    error, entropy, _ = expected(flat, s.levels)
    assert s.levels.dtype == (np.float64 if dtype == "float64" else np.float32)
    assert s.error == pytest.approx(error, rel=1e-9) and s.entropy == pytest.approx(entropy, abs=1e-9)
    assert s.entropy <= 2.0


def test_edges():
    for size in (0, 1, 5):
        s = ec.levels(np.full(size, 0.3), 0.0)
        assert (len(s.levels), s.error, s.entropy) == (min(size, 1), 0.0, 0.0)
    assert ec.levels(np.array([1.0, 2.0]), 1.0).error == 0
    few = ec.levels(np.array([1.0, 2.0, 2.0, 4.0]), 2.0)
    assert few.levels.tolist() == [1.0, 2.0, 4.0] and few.error == 0
    for bad in (np.nan, np.inf):
        with pytest.raises(NonFiniteError) as caught:
            ec.levels(np.array([1.0, bad]), 1.0)
        assert caught.value.index == 1
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError):
            ec.levels(np.ones(3), wrong)
    for wrong in ({"max_levels": 1}, {"max_levels": 257}, {"method": "x"}, {"candidates": 3}, {"weights": np.ones(2)}):
        with pytest.raises(ValueError):
            ec.levels(np.ones(3), 1.0, **wrong)


def test_offsets_scales_and_outliers():
    x = np.round(G(0).standard_normal(500) * 2**20) / 2**20  # exact beside 1e8
    s = ec.levels(x, 2.0)
    assert np.array_equal(ec.levels(x + 1e8, 2.0).levels, s.levels + 1e8)
    for power in (531, -531, -1040):
        moved = ec.levels(np.ldexp(x, power), 2.0)
        assert np.isfinite(moved.levels).all() and moved.entropy <= 2.0
        if power != -1040:
            assert np.array_equal(moved.levels, np.ldexp(s.levels, power))
    for outlier in (1e9, -1e9):
        far = ec.levels(np.append(x, outlier), 3.0)
        assert far.error < 1.5 * ec.levels(x, 3.0).error and len(far.levels) > 4
    denormal = ec.levels(x.astype(np.float32) * np.float32(1e-41), 2.0)
    assert denormal.entropy <= 2.0 and len(denormal.levels) > 3


def test_weights_are_repetitions():
    x, times = G(0).standard_normal(200), G(1).integers(0, 4, 200)
    times[[x.argmin(), x.argmax()]] = 1
    a = ec.lagrangian(x, 0.1, weights=times.astype(float), method="exact")
    b = ec.lagrangian(np.repeat(x, times), 0.1, method="exact")
    assert np.array_equal(a.levels, b.levels)
    assert a.entropy == pytest.approx(b.entropy, rel=1e-12)


def test_input_through_a_histogram():
    x = G(0).standard_normal(300_000).astype(np.float32)
    s = ec.levels(x, 3.0)
    error, entropy, _ = expected(x.astype(np.float64), s.levels)
    assert s.entropy <= 3.0 and entropy == pytest.approx(s.entropy, abs=1e-9)
    assert s.error == pytest.approx(error, rel=1e-6)
    assert s.error < 1.06 * len(x) * 2.846 * 2.0**-6


def test_logarithms():
    x = np.concatenate([2.0 ** G(0).uniform(-900, 900, 1000), 1 + G(1).uniform(-0.3, 0.4, 1000), [1, 0.5, 4096]])
    assert np.abs(log2(x) - np.log2(x)).max() <= 4e-13
    near = x[1000:2000]
    assert np.abs(log2(near) / np.log2(near) - 1).max() < 1e-15 * 8
    assert log2(np.array([1.0, 0.5, 4096, 0.0])).tolist() == [0, -1, 12, 0]


def test_backends_give_the_same_levels():
    for x in (data("normal", 300), data("lognormal", 300).astype(np.float32)):
        results = []
        for name in ("reference", "native"):
            if name == "native":
                pytest.importorskip("tersor.kernels._native")
            with tersor.backend(name):
                results.append(ec.levels(x, 2.0))
        a, b = results
        assert a.levels.tobytes() == b.levels.tobytes()
        assert (a.error, a.entropy, a.multiplier) == (b.error, b.entropy, b.multiplier)


def test_every_simd_level_gives_the_same_levels():
    native = pytest.importorskip("tersor.kernels._native")
    before, found = native.cpu_level(), set()
    try:
        for level in native.cpu_levels().split():
            native.set_cpu_level(level)
            for method in ("auto", "exact", "approximate"):
                s = ec.levels(data("lognormal", 700).astype(np.float32), 2.5, method=method, candidates=150)
                found.add((method, s.levels.tobytes(), s.error, s.entropy, s.probabilities.tobytes()))
    finally:
        native.set_cpu_level(before)
    assert len(found) == 3


def test_native_searches_refuse_what_they_cannot_take():
    native = pytest.importorskip("tersor.kernels._native")
    n, cost, up, joint = costs(reference, G(0).standard_normal(9))
    path = np.zeros(9, np.int32)
    good = [cost, up, joint, n, 0.1, 4, 1, 1, path]
    native.joint_path(*good)
    wrong = {0: cost[:8, :8].copy(), 3: -n, 4: np.nan, 5: 257, 6: 9, 7: 0, 8: path[:4].copy()}
    for position, value in wrong.items():
        with pytest.raises(ValueError):
            native.joint_path(*(value if i == position else a for i, a in enumerate(good)))
    big = np.zeros((600, 600))
    with pytest.raises(ValueError, match="too many"):
        native.pair_path(big, big, np.arange(1.0, 601), 0.1, 256, 1, 1, np.zeros(600, np.int32))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "low"), [("normal", 0.75), ("laplace", 0.5), ("lognormal", 0.3)])
def test_the_gain_over_adaptive_levels_and_a_coder(name, low):
    x = getattr(G(0), name)(0, 1, 1 << 16)
    other = ec.evaluate(x, adaptive.levels(x, 16))
    s = ec.levels(x, other.entropy)
    assert low < s.error / other.error < 0.9
