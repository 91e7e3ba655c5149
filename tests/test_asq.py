"""asq and kmeans: the least error, exactly its variance, no bias in any level type, and levels no encoder writes."""

from dataclasses import replace

import numpy as np
import pytest

import tersor
from tersor import rng
from tersor.codecs import level_grid
from tersor.coding import bits as bit_stream
from tersor.quantize import adaptive


def normal(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def levels_of(enc, unit=0):
    """The 2**bits levels of a unit, float64."""
    planes = {name: plane.values() for name, plane in enc.planes.items() if name != "codes"}
    table = level_grid.widen(planes, 1 << enc.codec.bits, enc.codec.held_as(enc.units.length))
    return table[unit].astype(np.float64)


def codes_of(enc, unit=0):
    plane, n = enc.planes["codes"], min(enc.units.length, enc.size - unit * enc.units.length)
    return bit_stream.unpack(plane.data[unit * plane.stride :][: plane.stride][None], enc.codec.bits, n)[0]


def neighbours(x, levels):
    """The levels below and above each coordinate; both are the level itself where x is one."""
    x = x.astype(np.float64)
    above = levels[np.minimum(np.searchsorted(levels, x), len(levels) - 1)]
    return levels[np.searchsorted(levels, x, "right") - 1], above


def test_codes_are_what_format_md_says():
    for spec in ("asq:1", "asq:4", "asq:3,block=50,level_dtype=float32", "asq:8,level_dtype=uint8"):
        x = normal(330)
        enc = tersor.get_codec(spec).encode(x, seed=4, sender=2, start=4000)
        u = rng.uniform(rng.mix64(4, sender=2), rng.ROUNDING, 4000, len(x)).astype(np.float64)
        for k in range(enc.units.count):
            n = enc.units.length
            part, levels = x[k * n : (k + 1) * n].astype(np.float64), levels_of(enc, k)
            upper = np.searchsorted(levels, part)
            width = levels[upper] - levels[np.maximum(upper - 1, 0)]
            expected = upper - (u[k * n : (k + 1) * n] * width < levels[upper] - part)
            assert np.array_equal(codes_of(enc, k), expected)
            decoded = tersor.decode(enc)[k * n : (k + 1) * n]
            assert np.array_equal(decoded, levels[expected].astype(np.float32))


CASES = [("asq:2", "normal"), ("asq:4", "lognormal"), ("asq:3,level_dtype=uint8", "normal"), ("asq:1", "lognormal")]


@pytest.mark.parametrize(("spec", "law"), CASES)
@pytest.mark.parametrize("n", [128, 4096])
def test_unbiased_with_the_variance_of_its_levels(spec, law, n):
    draws, codec, g = 400, tersor.get_codec(spec), np.random.default_rng(n)
    x = (g.standard_normal(n) if law == "normal" else g.lognormal(0, 1, n)).astype(np.float32)
    enc = codec.encode(x, seed=0)
    levels = levels_of(enc)
    low, high = neighbours(x, levels)
    width, variance = high - low, (high - x) * (x - low)
    made = np.stack([codec.decode(codec.encode(x, seed=s)) for s in range(draws)]).astype(np.float64)
    off = made.mean(0) - x
    # Bernstein: a coordinate fails with a probability below 1e-8, however rare its other level is.
    assert (np.abs(off) <= np.sqrt(40 * variance / draws) + 20 * width / (3 * draws) + 1e-6 * np.abs(x)).all()
    p = np.divide(x - low, width, out=np.full(n, 0.5), where=width > 0)
    chance = variance / draws
    fourth = 2 + (1 / np.maximum(p * (1 - p), 1e-9) - 6) / draws
    assert abs(np.sum(off**2) - np.sum(chance)) <= 4 * np.sqrt(np.sum(fourth * chance**2))
    squared = np.sum((made - x) ** 2) / draws
    assert squared == pytest.approx(variance.sum(), rel=0.03)
    assert adaptive.expected_error(x, levels) == pytest.approx(variance.sum(), rel=1e-9)


@pytest.mark.parametrize(("bits", "best"), [(2, 2795.163689), (4, 88.04455616)])
def test_the_least_error_of_the_specification(bits, best):
    """adaptive.md section 5: 4,096 normal values cast to float32, exact search, levels as they are."""
    x = normal(4096)
    enc = tersor.get_codec(f"asq:{bits},level_dtype=float32,method=exact").encode(x, seed=1)
    assert adaptive.expected_error(x, levels_of(enc)) == pytest.approx(best, rel=1e-6)
    for held, most in (("uint16", 1.0002), ("uint8", 1.03)):
        enc = tersor.get_codec(f"asq:{bits},level_dtype={held}").encode(x, seed=1)
        assert best * 0.999 < adaptive.expected_error(x, levels_of(enc)) < best * most


@pytest.mark.parametrize(("bits", "best"), [(2, 462.9626413), (3, 135.047403), (4, 36.63842953)])
def test_kmeans_is_the_least_squared_error(bits, best):
    x = normal(4096)
    enc = tersor.get_codec(f"kmeans:{bits},level_dtype=float32,method=exact").encode(x)
    assert enc.error * np.sum(x.astype(np.float64) ** 2) == pytest.approx(best, rel=1e-5)
    assert tersor.get_codec(f"kmeans:{bits}").encode(x).error == pytest.approx(enc.error, rel=2e-3)


def test_the_error_is_that_of_the_message():
    for spec in ("asq:2", "asq:4,block=100", "kmeans:3", "kmeans:5,block=64,level_dtype=uint8"):
        codec = tersor.get_codec(spec)
        huge = normal(300) * np.float32(1e30)
        for x, axis in ((normal(9001), None), (normal(700).reshape(5, 140) + 3, -1), (huge, None)):
            enc = codec.encode(x, seed=3, axis=axis)
            assert enc.error == pytest.approx(tersor.nmse(x, codec.decode(enc)), rel=1e-5)


def test_what_is_a_level_is_exact():
    few = np.random.default_rng(1).choice(np.array([-3.5, -0.0, 0.25, 7], np.float32), 500)
    close = np.float32(1) + np.arange(4, dtype=np.float32) * np.float32(2.0**-23)
    tiny = np.arange(-2, 2, dtype=np.float32) * np.float32(1e-45)
    for name in ("asq:2", "kmeans:2"):
        for x in (np.zeros(77), np.full(77, 0.125), few, few[:3], close, tiny, np.array([2.5]), np.array([])):
            codec = tersor.get_codec(name + ",level_dtype=float32")
            enc = codec.encode(x.astype(np.float32), seed=5)
            assert np.array_equal(codec.decode(enc), x.astype(np.float32)) and enc.error == 0
            if len(x):
                assert codes_of(enc).max(initial=0) < max(len(np.unique(x)), 1), "a padded level was used"
        # "auto": rows of no more coordinates than levels, and values that steps hold.
        rows = normal(36).reshape(9, 4)
        assert np.array_equal(tersor.roundtrip(rows, name, axis=-1), rows)
        assert np.array_equal(tersor.roundtrip(few, name), few)


def test_levels_at_the_ends_of_float32():
    """Neither an overflow nor a denormal biases: differences are those of scaled values."""
    top = np.finfo(np.float32).max
    codec = tersor.get_codec("asq:1,level_dtype=float32")
    x = np.concatenate([[-top, top], np.repeat(np.array([-1e38, 0, 2.5e38]), 400)]).astype(np.float32)
    y = np.concatenate([[0, 3e-45], np.repeat(np.array([1e-45]), 400)]).astype(np.float32)
    for v, groups in ((x, 3), (y, 1)):
        estimates = codec.decode(codec.encode(v, seed=1)).astype(np.float64)
        assert set(estimates) == {float(v[:2].min()), float(v[:2].max())}
        for k in range(groups):
            part = slice(2 + 400 * k, 402 + 400 * k)
            p = (float(v[part][0]) - float(v[0])) / (float(v[1]) - float(v[0]))
            up = np.mean(estimates[part] == float(v[1]))
            assert abs(up - p) <= 4 * np.sqrt(p * (1 - p) / 400)


def test_no_level_is_minus_zero():
    for x in (np.array([-0.0, 1, 2]), np.array([0.0, -0.0, -3, -0.0] * 9), -np.zeros(40)):
        for spec in ("asq:2", "kmeans:1", "asq:1,block=16", "asq:2,method=histogram"):
            levels = levels_of(tersor.get_codec(spec).encode(x.astype(np.float32), seed=1))
            assert not np.signbit(levels[levels == 0]).any()


def test_nearest_goes_up_on_a_tie():
    x = np.array([0, 1, 4, 1, 1, 0.5, 2.5, 0.49], np.float32)
    codes = np.zeros(2, np.uint8)
    levels = np.array([0, 1, 4, 4], np.float32)
    tersor.kernels.ops.current().levels_encode(x, 8, levels, 2, 0, 0, False, codes)
    assert bit_stream.unpack(codes[None], 2, 8)[0].tolist() == [0, 1, 2, 1, 1, 1, 2, 0]


def test_steps_between_the_ends():
    g = np.random.default_rng(2)
    made = np.sort(g.standard_normal((300, 8)) * 10.0 ** g.uniform(-45, 38, (300, 1)), axis=1).astype(np.float32)
    made[:50, 3:] = made[:50, 3:4]  # padded
    made[:10] = made[:10, :1]
    made[50:60, 0], made[60:70, -1], made[70:80, :4] = -3e38, 3.4e38, made[70:80, :1]
    made += np.float32(0)
    for dtype in ("uint16", "uint8"):
        steps = level_grid.STEPS[dtype]
        for outward in (0, 1, 2, 3):
            held = level_grid.widen(level_grid.narrow(made, dtype, outward=outward), 8, dtype)
            assert np.array_equal(held[:, [0, -1]], made[:, [0, -1]])
            assert (held[:, 1:] >= held[:, :-1]).all()
            width = made[:, -1:].astype(np.float64) - made[:, :1]
            off = held - made.astype(np.float64)
            least = width / steps * (0.5000001 if outward < 2 else 1.0000001)
            least = least + np.spacing(np.abs(held)).astype(np.float64) / 2
            assert (np.abs(off) <= least).all()
            assert (off[:, :outward] <= 0).all() and (off[:, 8 - outward :] >= 0).all()
    assert np.array_equal(level_grid.narrow(made, "float32", outward=2)["levels"].reshape(made.shape), made)


@pytest.mark.parametrize("off", [0, 100, -1e4])
def test_steps_cost_little_wherever_the_values_are(off):
    x = (off + np.random.default_rng(5).laplace(0, 1, (200, 128))).astype(np.float32)
    for name, bits in (("asq", 2), ("asq", 4), ("kmeans", 3)):
        exact, *held = (
            tersor.get_codec(f"{name}:{bits},level_dtype={held}").encode(x, axis=-1, seed=1)
            for held in level_grid.LEVEL_DTYPES
        )
        assert held[0].error == pytest.approx(exact.error, rel=1e-3)
        assert held[1].error == pytest.approx(exact.error, rel=0.05)
        assert exact.nbytes > held[0].nbytes > held[1].nbytes or bits == 2


def test_integers_are_exact():
    """65,520 and 240 steps: every range of up to 10 steps, and more."""
    for most in (*range(1, 11), 12, 15):
        x = np.arange(most + 1, dtype=np.float32).repeat(9) - 3
        for spec in ("asq:4,level_dtype=uint16", "asq:4,level_dtype=uint8", "kmeans:4,block=48,level_dtype=uint16"):
            if "uint8" not in spec or 240 % most == 0:
                assert 65520 % most or np.array_equal(tersor.roundtrip(x, spec), x)


def test_auto_follows_from_the_units_alone():
    held = tersor.get_codec("asq:4").held_as
    assert [held(n) for n in (1, 16, 17, 128, 4095, 4096, 2**24)] == ["float32"] * 2 + ["uint16"] * 3 + ["float32"] * 2
    assert tersor.get_codec("asq:4,level_dtype=uint8").held_as(5) == "uint8"
    assert tersor.get_codec("asq:1,level_dtype=uint8").held_as(5) == "float32", "two levels are the ends"


def test_the_whole_range_of_float32():
    for spec in ("asq:4", "asq:4,level_dtype=float32", "kmeans:4,level_dtype=uint8", "kmeans:4,block=64"):
        for low in (0, -3.4e38):
            x = np.linspace(low, 3.4e38, 99, dtype=np.float32)
            value = tersor.roundtrip(x, spec, seed=1)
            assert np.isfinite(value).all() and tersor.nmse(x * np.float32(1e-9), value * np.float32(1e-9)) < 0.01


def test_rows_with_nan_leave_the_others_as_they_are():
    x = normal(40 * 128).reshape(40, 128)
    broken = x.copy()
    broken[3, 5], broken[8] = np.nan, np.inf
    for spec in ("asq:3", "kmeans:2,level_dtype=uint8"):
        codec = tersor.get_codec(spec)
        whole = codec.decode(codec.encode(x, seed=1, axis=-1))
        enc = codec.encode(broken, seed=1, axis=-1, nonfinite="propagate")
        value = tersor.decode(tersor.from_bytes(enc.to_bytes()))
        assert np.isnan(value[[3, 8]]).all() and enc.error is None
        good = np.delete(np.arange(40), [3, 8])
        assert np.array_equal(value[good], whole[good])


def test_histogram_and_exact_search_agree():
    x = np.random.default_rng(4).lognormal(0, 1, 20_000).astype(np.float32)
    for name in ("asq:4", "kmeans:4"):
        exact, near = (tersor.get_codec(f"{name},method={m}").encode(x, seed=1).error for m in ("exact", "histogram"))
        assert near == pytest.approx(exact, rel=0.1)  # one draw
        blocks = tersor.get_codec(f"{name},block=5000,method=histogram").encode(x, seed=1)
        assert blocks.error < 1.1 * near


def forge(enc, **changed):
    """The message with the values of planes of its second row changed, to bytes."""
    planes = dict(enc.planes)
    for name, row in changed.items():
        values = planes[name].values().copy()
        values[len(row) : 2 * len(row)] = row
        planes[name] = replace(planes[name], data=values.view(np.uint8))
    return replace(enc, planes=planes).to_bytes()


@pytest.mark.parametrize("held", ["float32", "uint16", "uint8"])
def test_forged_levels_are_refused(held):
    enc = tersor.get_codec(f"asq:2,level_dtype={held}").encode(normal(90).reshape(3, 30), seed=1, axis=-1)
    nan, inf, most = np.nan, np.inf, level_grid.STEPS.get(held)
    if held == "float32":
        rows = [1, 2, 4, 3], [1, 2, nan, 3], [1, 2, 3, inf], [-inf, 2, 3, 4], [nan] * 3 + [1]
        bad = [{"levels": row} for row in rows]
        good = [{"levels": [nan] * 4}, {"levels": [0] * 4}]
    else:
        ends = ([3, 2], [nan, 2], [1, nan], [1, inf], [-inf, 1], [-inf, inf], [inf, inf])
        bad = [{"ends": row} for row in ends] + [{"levels": [5, 4]}, {"levels": [1, most + 1]}]
        good = [{"ends": [nan, nan]}, {"ends": [0, 0]}, {"levels": [0, most]}, {"ends": [-3e38, 3e38]}]
    for changed in good:
        assert tersor.decode(tersor.from_bytes(forge(enc, **changed))).shape == (3, 30)
    for changed in bad:
        with pytest.raises(tersor.FormatError, match="levels"):
            tersor.from_bytes(forge(enc, **changed))


def test_any_code_is_a_level():
    enc = tersor.get_codec("asq:3").encode(np.repeat(np.float32([1, 2]), 50), seed=1)
    noise = np.random.default_rng(0).integers(0, 256, enc.planes["codes"].data.size).astype(np.uint8)
    forged = replace(enc, planes={**enc.planes, "codes": replace(enc.planes["codes"], data=noise)})
    assert set(tersor.decode(tersor.from_bytes(forged.to_bytes())).tolist()) == {1.0, 2.0}


def test_refusals():
    for name in ("asq", "kmeans"):
        for tail in (":0", ":9", ":true", ":4,block=7", ":4,block=row", ":4,level_dtype=f4", ":4,method=fast"):
            with pytest.raises(ValueError, match=name):
                tersor.get_codec(name + tail)
