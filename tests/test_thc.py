"""THC: tables and errors against closed forms and the acceptance figures, sums, saturation, edge cases."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import tersor
from tersor.quantize import thc

PROTOTYPE = (0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def summed(codec, xs, seed=5, key=1):
    shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=key)
    messages = [codec.encode(x, seed=seed, sender=k, shared=shared) for k, x in enumerate(xs)]
    return codec.add_all(messages), messages


@pytest.mark.parametrize(
    ("bits", "truncation", "spread", "clamped", "errors"),
    [
        (4, 1 / 16, 1.86273, 0.017157, {15: 0.009641, 30: 0.009641}),
        (4, 1 / 32, 2.15387, 0.007267, {15: 0.013319, 17: 0.012532, 30: 0.013063, 34: 0.012125}),
        (4, 1 / 64, 2.41756, 0.003151, {15: 0.017050, 17: 0.015205, 30: 0.016200, 34: 0.014975}),
        (4, 1 / 1024, 3.29719, 0.000128, {15: 0.032181, 17: 0.025795, 21: 0.021664, 30: 0.024272}),
        (2, 1 / 32, 2.15387, 0.007267, {3: 0.334702}),
        (3, 1 / 32, 2.15387, 0.007267, {7: 0.061212, 21: 0.057626}),
        (1, 1 / 2, 0.67449, 0.298794, {1: 0.156142}),
        (1, 1 / 32, 2.15387, 0.007267, {1: 3.694409}),
    ],
)
def test_the_best_tables_have_the_known_errors(bits, truncation, spread, clamped, errors):
    assert thc.spread(truncation) == pytest.approx(spread, abs=1e-5)
    assert thc.truncation_error(truncation) == pytest.approx(clamped, abs=1e-6)
    for granularity, error in errors.items():
        table = thc.table(bits, granularity, truncation)
        assert table[0] == 0 and table[-1] == granularity and list(table) == sorted(set(table))
        assert thc.rounding_error(table, truncation) == pytest.approx(error, abs=1e-6)


def test_the_search_finds_the_best_of_all_tables_and_a_better_one_than_the_prototype_s():
    for bits, granularity, truncation in ((2, 9, 1 / 32), (3, 10, 1 / 1024), (2, 21, 1 / 4)):
        size = 1 << bits
        least = min(
            thc.rounding_error((0, *inner, granularity), truncation)
            for inner in combinations(range(1, granularity), size - 2)
        )
        found = thc.rounding_error(thc.table(bits, granularity, truncation), truncation)
        assert found == pytest.approx(least, abs=1e-12)
    assert thc.rounding_error(PROTOTYPE, 1 / 32) == pytest.approx(0.013075, abs=1e-6)
    assert thc.rounding_error(thc.table(4, 30, 1 / 32), 1 / 32) < 0.013075
    symmetric = [30 - v for v in reversed(PROTOTYPE)]
    assert symmetric == list(PROTOTYPE)


def test_the_error_is_a_numerical_integral():
    z = np.linspace(-8, 8, 1_600_001)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    t = thc.spread(1 / 64)
    levels = -t + 2 * t / 17 * np.array(thc.table(4, 17, 1 / 64))
    inside = np.clip(z, -t, t)
    k = np.clip(np.searchsorted(levels, inside, side="right") - 1, 0, 14)
    error = (inside - levels[k]) * (levels[k + 1] - inside)
    assert (error * density)[np.abs(z) <= t].sum() == pytest.approx(
        thc.rounding_error(thc.table(4, 17, 1 / 64), 1 / 64), rel=1e-5
    )
    assert ((z - inside) ** 2 * density).sum() == pytest.approx(thc.truncation_error(1 / 64), rel=1e-5)


def test_ranges_are_proven():
    assert thc.most_senders(30, 8) == 8 and thc.most_senders(15, 8) == 17 and thc.most_senders(17, 8) == 15
    assert thc.most_senders(30, 12) == 136 and thc.most_senders(30, 16) == 2184 and thc.most_senders(15, 12) == 273
    codec = tersor.get_codec("thc:4,granularity=30,block=32")
    x = np.full(32, 1.0, np.float32)
    for count, width in ((2, 8), (8, 8), (9, 12), (136, 12), (137, 16)):
        total, messages = summed(codec, [x] * count)
        assert total.planes["codes"].bits == width
        assert total.nbytes == codec.nbytes(x.shape, count=count)
        exact = np.mean([codec.decode(m).astype(np.float64) for m in messages], axis=0)
        assert np.allclose(codec.decode(total), exact, atol=1e-5)
    with pytest.raises(tersor.RangeError):
        codec.nbytes((32,), count=2**32 // 30 + 1)
    one = replace(total, count=2**28)
    with pytest.raises(tersor.RangeError):
        codec.add(one, one)


@pytest.mark.parametrize("granularity", [30, 15])
def test_equal_vectors_err_by_rounding_over_n_and_clamping(granularity):
    codec = tersor.get_codec(f"thc:4,granularity={granularity}")
    rounding = thc.rounding_error(tuple(codec.table.tolist()), 1 / 32)
    x = normal(2**16)
    for n in (1, 2, 4, 8):
        total, _ = summed(codec, [x] * n)
        assert tersor.nmse(x, codec.decode(total)) == pytest.approx(
            rounding / n + thc.truncation_error(1 / 32), rel=0.04
        )


def test_independent_vectors_err_alike_for_any_number():
    for spec, low, high in (
        ("thc:4,granularity=30", 0.0193, 0.0213),
        ("thc:4,truncation=0.0009765625,granularity=15", 0.0306, 0.0340),
    ):
        for n in (2, 5, 16):
            xs = normal(n, 2**17, seed=n)
            total, _ = summed(tersor.get_codec(spec), list(xs))
            assert low < tersor.nmse(xs.mean(0, dtype=np.float64), tersor.decode(total)) < high


def test_one_hot_and_constant_vectors():
    # Every rotated coordinate of a one-hot vector is +-1: the error of each is (1 - a)(c - 1), exactly, on average.
    codec = tersor.get_codec("thc:4,granularity=30,rotations=1")
    a, c = sorted(-codec.range_in_rms + 2 * codec.range_in_rms / 30 * codec.table)[11:13]
    assert a < 1 < c
    hot = np.zeros(4096, np.float32)
    hot[77] = 3
    errors = [codec.encode(hot, seed=k).error for k in range(40)]
    assert np.mean(errors) == pytest.approx((1 - a) * (c - 1), rel=0.01)
    assert codec.encode(hot, seed=1).error == pytest.approx(
        tersor.nmse(hot, codec.decode(codec.encode(hot, seed=1))), rel=1e-4
    )
    assert (
        0.0185
        < np.mean(
            [
                tersor.get_codec("thc:4,granularity=30").encode(np.ones(2**15, np.float32), seed=k).error
                for k in range(5)
            ]
        )
        < 0.0215
    )


def test_a_single_coordinate_is_unbiased_between_two_grid_points():
    codec = tersor.get_codec("thc:4,granularity=30")
    shared = codec.merge(codec.measure(np.array([2.5]))[None], key=1)
    got = np.array([codec.decode(codec.encode(np.array([2.5]), seed=k, shared=shared))[0] for k in range(2000)])
    values = np.unique(got)
    assert len(values) == 2 and values[0] < 2.5 < values[1]
    spread = np.sqrt((2.5 - values[0]) * (values[1] - 2.5))
    assert abs(got.mean() - 2.5) < 4 * spread / np.sqrt(2000)


def test_no_bias_inside_the_range():
    # Nothing is clamped at truncation 1e-9, and 2,000 draws of the rounding average out.
    codec = tersor.get_codec("thc:4,truncation=1e-09,block=64")
    x = normal(64)
    shared = codec.merge(codec.measure(x)[None], key=3)
    got = np.array([codec.decode(codec.encode(x, seed=k, shared=shared)) for k in range(2000)])
    sigma = got.std(axis=0)
    assert (np.abs(got.mean(axis=0) - x) <= 4.5 * sigma / np.sqrt(2000)).all()


def test_clamping_shrinks_by_the_truncation():
    codec = tersor.get_codec("thc:8,truncation=0.0625")
    x = normal(2**18)
    estimate = codec.decode(codec.encode(x, seed=1)).astype(np.float64)
    assert estimate @ x / (x.astype(np.float64) @ x) == pytest.approx(1 - 1 / 16, abs=2e-3)


def test_zeros_and_a_zero_sender():
    codec = tersor.get_codec("thc:4")
    zero = np.zeros(5000, np.float32)
    total, _ = summed(codec, [zero] * 3)
    assert (codec.decode(total) == 0).all()
    x = normal(5000)
    total, messages = summed(codec, [x, zero])
    assert tersor.nmse(x / 2, codec.decode(total)) < 0.06 and messages[1].error == 0


def test_a_large_sender_drowns_small_ones():
    xs = list(normal(4, 2**14))
    xs[0] *= 100
    total, _ = summed(tersor.get_codec("thc:4"), xs)
    mean = np.mean(xs, axis=0, dtype=np.float64)
    assert tersor.nmse(mean, tersor.decode(total)) < 0.1
    rest = 4 * tersor.decode(total).astype(np.float64) - xs[0]
    assert tersor.nmse(np.sum(xs[1:], axis=0, dtype=np.float64), rest) > 100


def test_blocks_have_ranges_of_their_own():
    # One range for a vector of very different blocks would clip the large and waste codes on the small ones.
    x = normal(8, 4096) * (10.0 ** np.arange(8))[:, None].astype(np.float32)
    value = tersor.decode(tersor.get_codec("thc:4").encode(x.reshape(-1), seed=1)).reshape(8, 4096)
    for row, got in zip(x, value, strict=True):
        assert tersor.nmse(row, got) == pytest.approx(0.0198, rel=0.15)


def test_rows_have_ranges_of_their_own_and_add():
    codec = tersor.get_codec("thc:4")
    xs = normal(3, 20, 80) * np.arange(1, 21)[:, None].astype(np.float32)
    shared = codec.merge(np.stack([codec.measure(x, axis=-1) for x in xs]), key=1)
    messages = [codec.encode(x, seed=1, sender=k, shared=shared, axis=-1) for k, x in enumerate(xs)]
    total = codec.add_all(messages)
    assert total.count == 3 and tersor.nmse(xs.mean(0), codec.decode(total)) < 0.03
    assert tersor.nmse(xs.mean(0)[4:9], codec.decode(total[4:9])) < 0.03
    part = codec.add(messages[0], replace(messages[1], received=np.arange(20) % 2 == 0))
    assert part.count.tolist() == [2, 1] * 10
    assert tersor.nmse(xs[0][1::2], codec.decode(part)[1::2]) < 0.06


def test_saturating_sums_keep_their_width_and_count_what_they_clamp():
    exact, codec = tersor.get_codec("thc:4"), tersor.get_codec("thc:4,sum_bits=6")
    xs = list(normal(16, 3 * 4096))
    wide, _ = summed(exact, xs)
    total, messages = summed(codec, xs)
    assert total.planes["codes"].bits == 6 and total.count == 16
    assert total.nbytes == codec.nbytes((3 * 4096,), count=16)
    # Sums of 16 have a standard deviation of about 4 * 17 / 4.3 = 16 steps: 6 bits keep two of them.
    n_clamped = codec.saturated(total)
    assert 0 < n_clamped < 0.1 * 3 * 4096
    difference = codec.decode(total).astype(np.float64) - exact.decode(wide)
    assert 0 < tersor.nmse(exact.decode(wide), codec.decode(total)) < 0.06 and np.isfinite(difference).all()
    # Added one after the other, what was clamped on the way is counted too.
    step = messages[0]
    for m in messages[1:]:
        step = codec.add(step, m)
    assert codec.saturated(step) >= n_clamped and tersor.nmse(np.mean(xs, axis=0), codec.decode(step)) < 0.2
    twin = tersor.from_bytes(total.to_bytes())
    assert codec.saturated(twin) == n_clamped
    two, _ = summed(codec, xs[:2])
    assert codec.saturated(two) == 0, "two senders fit in 6 bits"
    with pytest.raises(tersor.IncompatibleError, match="missing"):
        codec.add(replace(messages[0], received=np.array([True, True, False])), messages[1])


def test_other_ranges_starts_and_tables_do_not_add():
    codec, x = tersor.get_codec("thc:4"), normal(3 * 4096)
    shared = codec.merge(codec.measure(x)[None], key=1)
    a = codec.encode(x[:4096], seed=1, shared=shared)
    b = codec.encode(x[4096:8192], seed=1, shared=shared, start=4096)
    with pytest.raises(tersor.IncompatibleError, match="ranges or starts"):
        codec.add(a, b)
    with pytest.raises(tersor.IncompatibleError, match="larger than the shared"):
        codec.encode(2 * x, seed=1, shared=shared)
    for wrong in (np.ones(3, np.float32), shared.stats[:-1], np.full_like(shared.stats, np.nan)):
        with pytest.raises(tersor.IncompatibleError, match="merge"):
            codec.encode(x, seed=1, shared=tersor.Shared(1, wrong))
    with pytest.raises(tersor.IncompatibleError, match="sizes"):
        codec.merge(np.stack([codec.measure(x), codec.measure(x[:-1])]))
    x[5] = np.nan
    with pytest.raises(tersor.NonFiniteError):
        codec.merge(codec.measure(x)[None])


def test_the_table_travels():
    # A receiver whose own search found another table still decodes what was sent.
    codec, x = tersor.get_codec("thc:4,granularity=30"), normal(4096)
    shared = codec.merge(codec.measure(x)[None], key=1)
    stats = shared.stats.copy()
    stats[1:17] = PROTOTYPE
    enc = codec.encode(x, seed=1, shared=tersor.Shared(1, stats))
    assert tersor.nmse(x, tersor.decode(tersor.from_bytes(enc.to_bytes()))) == pytest.approx(0.0203, rel=0.1)
    assert enc.to_bytes() != codec.encode(x, seed=1, shared=shared).to_bytes()


@pytest.mark.parametrize(
    "spec",
    ["thc:0", "thc:9", "thc:4,granularity=14", "thc:4,granularity=1024", "thc:4,truncation=0.0", "thc:4,block=100",
     "thc:4,rotations=0", "thc:4,sum_bits=4", "thc:4,sum_bits=17", "thc:4,block=16"],
)  # fmt: skip
def test_bad_arguments(spec):
    with pytest.raises(ValueError, match="thc"):
        tersor.get_codec(spec)
    with pytest.raises(ValueError):
        thc.table(4, 14, 1 / 32)
    with pytest.raises(ValueError):
        thc.spread(0.0)


def test_a_forged_count_beyond_the_proven_range_is_refused():
    total, _ = summed(tersor.get_codec("thc:3,block=32"), [normal(20)] * 3)
    for count in (0, 2**32 - 1):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(replace(total, count=count).to_bytes())
    with pytest.raises(tersor.FormatError, match="contradict"):
        tersor.from_bytes(replace(total, count=100).to_bytes())
