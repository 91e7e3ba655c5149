"""asq with shared randomness: the law of its error, means of senders with and without one key, forged messages."""

from dataclasses import replace

import numpy as np
import pytest

import tersor
from tersor.codecs import level_grid
from tersor.quantize import adaptive, shared_levels
from tersor.quantize.shared_levels import means

X = np.random.default_rng(0).standard_normal(4096).astype(np.float32)


def law(x, bits, shared):
    q = shared_levels.levels(x, 1 << bits, shared=shared)
    return shared_levels.expected_error(x, q) / float(np.sum(np.square(x, dtype=np.float64)))


@pytest.mark.parametrize(
    "spec", ["asq:1,shared=2", "asq:2,shared=3", "asq:4,shared=2", "asq:4,shared=8", "asq:6,shared=5"]
)
def test_error_is_that_of_the_levels(spec):
    codec = tersor.get_codec(replace(tersor.get_codec(spec), level_dtype="float32").spec)
    errors = []
    for seed in range(40):
        enc = codec.encode(X, seed=seed)
        errors.append(tersor.nmse(X, tersor.decode(tersor.from_bytes(enc.to_bytes()))))
        assert enc.error == pytest.approx(errors[-1], rel=1e-5)
    sigma = np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(np.mean(errors) - law(X, codec.bits, codec.shared)) < 5 * sigma


def test_less_error_than_without():
    for bits, most in ((1, 0.36), (2, 0.54), (4, 0.63)):
        alone = tersor.get_codec(f"asq:{bits}").encode(X, seed=1)
        enc = tersor.get_codec(f"asq:{bits},shared=2").encode(X, seed=1)
        assert enc.error < 1.05 * most * alone.error
        assert enc.planes["codes"].data.size == alone.planes["codes"].data.size


def of_mean(spec, vectors, common, repeats=6):
    codec, total = tersor.get_codec(spec), 0.0
    for r in range(repeats):
        shared = tersor.Shared(50 + r) if common else None
        sent = [codec.encode(x, seed=r, sender=i, shared=shared) for i, x in enumerate(vectors)]
        assert len({enc.key for enc in sent}) == (1 if common else len(vectors))
        total += np.square(tersor.mean(sent) - np.mean(vectors, axis=0, dtype=np.float64)).sum()
    return total / repeats / np.mean([np.sum(np.square(x, dtype=np.float64)) for x in vectors])


def test_means_of_senders():
    """Keys of their own: 1/n. One key: turns at the codebooks, less than 1/n for like vectors, 1/n for unlike ones."""
    g = np.random.default_rng(1)
    one, n = law(X, 2, 4), 8
    unlike = list(g.standard_normal((n, 4096)).astype(np.float32))
    assert of_mean("asq:2,shared=4", [X] * n, False) == pytest.approx(one / n, rel=0.1)
    assert of_mean("asq:2,shared=4", [X] * n, True) < 0.6 * one / n
    assert of_mean("asq:2,shared=4", [X] * 2, True) < 0.75 * one / 2
    assert of_mean("asq:2,shared=4", unlike, True) == pytest.approx(of_mean("asq:2,shared=4", unlike, False), rel=0.1)
    assert of_mean("asq:4,shared=8", [X] * n, True) < 0.3 * law(X, 4, 8) / n


def test_turns_cover_all_codebooks_alike():
    for shared in range(2, 9):
        codec = tersor.get_codec(f"asq:2,shared={shared}")
        turns = [codec.encode(X[:16], seed=1, sender=k).fields[0] for k in range(2 * shared)]
        assert turns[:shared] == turns[shared:] and sorted(turns[:shared]) == list(range(shared))


@pytest.mark.parametrize("dtype", ["uint16", "uint8"])
def test_rounded_levels_keep_the_values_between_their_means(dtype):
    rows = np.random.default_rng(2).lognormal(0, 2, (40, 64)).astype(np.float32) * np.float32(0.37) - 1
    for shared in (2, 3, 8):
        made = shared_levels.levels(rows, 4, shared=shared, axis=-1).swapaxes(1, 2).reshape(40, -1)
        held = level_grid.widen(level_grid.narrow(made, dtype, outward=shared), 4 * shared, dtype)
        t = means(held, shared)
        assert (np.diff(held, axis=1) >= 0).all()
        assert (t[:, 0] <= rows.min(1)).all() and (t[:, -1] >= rows.max(1)).all()
        assert (np.abs(held - made) <= 1.01 / level_grid.STEPS[dtype] * np.ptp(made, axis=1, keepdims=True)).all()


def test_steps_have_no_bias():
    x = (3 + 0.01 * np.random.default_rng(3).standard_normal(64)).astype(np.float32)
    codec = tersor.get_codec("asq:2,shared=3,level_dtype=uint8")
    made = np.array([tersor.decode(codec.encode(x, seed=s)) for s in range(4000)], np.float64)
    off, sigma = made.mean(0) - x, made.std(0, ddof=1) / np.sqrt(len(made))
    assert (np.abs(off) < 5 * np.maximum(sigma, 1e-6)).all()


def test_what_is_exact():
    for shared in (2, 3, 7):
        codec = tersor.get_codec(f"asq:2,shared={shared},level_dtype=float32")
        few = np.repeat(np.float32([-3.3, 0, 0.1, 7e7]), 30)
        for x in (
            np.zeros(50, np.float32),
            np.full(77, 0.1, np.float32),
            few,
            np.float32([1.5]),
            np.zeros(0, np.float32),
        ):
            for seed in range(20):
                assert np.array_equal(tersor.decode(codec.encode(x, seed=seed)), x)


def test_levels_beyond_their_type():
    """Codebooks reach beyond the values, to infinity here: then the levels are those without shared randomness."""
    x = np.linspace(-1, 1, 600).astype(np.float32)
    for dtype in level_grid.LEVEL_DTYPES:
        codec = tersor.get_codec(f"asq:1,shared=4,level_dtype={dtype}")
        enc = codec.encode(x * np.float32(3.4e38), seed=1)
        values = tersor.decode(enc)
        assert np.isfinite(values).all() and len(np.unique(values)) == 2
        with_room = codec.encode(x * np.float32(3.4e38 / 8), seed=1)
        assert with_room.error < 0.6 * enc.error


def test_not_finite():
    x = np.ones((4, 20), np.float32) * np.arange(20, dtype=np.float32)
    x[2, 3] = np.inf
    codec = tersor.get_codec("asq:2,shared=3")
    with pytest.raises(tersor.NonFiniteError):
        codec.encode(x, seed=1, axis=-1)
    enc = tersor.from_bytes(codec.encode(x, seed=1, axis=-1, nonfinite="propagate").to_bytes())
    assert np.array_equal(np.isnan(tersor.decode(enc)).all(axis=1), [False, False, True, False])


def test_rows_taken_apart_decode_alike():
    x = np.random.default_rng(4).standard_normal((9, 33)).astype(np.float32)
    enc = tersor.get_codec("asq:3,shared=4").encode(x, seed=5, axis=-1)
    whole = tersor.decode(enc)
    assert np.array_equal(tersor.decode(enc[2:5]), whole[2:5])
    assert tersor.nmse(x, whole) < 0.15


def test_forged_messages():
    enc = tersor.get_codec("asq:2,shared=3").encode(np.arange(90, dtype=np.float32).reshape(3, 30), seed=1, axis=-1)
    for turn in (3, 255):
        with pytest.raises(tersor.FormatError, match="turn"):
            tersor.from_bytes(replace(enc, fields=bytes([turn])).to_bytes())
    assert enc.planes["levels"].values().dtype == np.uint16 and enc.planes["levels"].values().shape == (3 * 10,)
    for name, bad in (("ends", np.nan), ("ends", np.inf), ("ends", 1e30), ("levels", 65521), ("levels", 60000)):
        values = enc.planes[name].values().copy()
        values[2] = bad
        plane = replace(enc.planes[name], data=values.view(np.uint8))
        with pytest.raises(tersor.FormatError, match="levels"):
            tersor.from_bytes(replace(enc, planes={**enc.planes, name: plane}).to_bytes())
    noise = np.random.default_rng(0).integers(0, 256, enc.planes["codes"].data.size).astype(np.uint8)
    forged = replace(enc, planes={**enc.planes, "codes": replace(enc.planes["codes"], data=noise)})
    levels = set(enc.codec._levels(enc, enc.units).tolist())
    assert set(tersor.decode(tersor.from_bytes(forged.to_bytes())).reshape(-1).tolist()) <= levels


def test_one_codebook_is_asq():
    codec = tersor.get_codec("asq:3,shared=1")
    assert codec.spec == "asq:3" and codec.fields_size == 0
    assert codec.encode(X, seed=2).to_bytes() == tersor.get_codec("asq:3").encode(X, seed=2).to_bytes()
    assert tersor.get_codec("asq:3,shared=2").claims.error_law != codec.claims.error_law


def test_refusals():
    for shared in ("0", "9", "2.5", "true", "-1"):
        with pytest.raises(ValueError, match="asq"):
            tersor.get_codec(f"asq:4,shared={shared}")


def test_histogram_and_exact_search():
    x = np.random.default_rng(6).lognormal(0, 1, 30_000).astype(np.float32)
    errors = [tersor.get_codec(f"asq:3,shared=3,method={m}").encode(x, seed=1).error for m in ("exact", "histogram")]
    assert errors[1] == pytest.approx(errors[0], rel=0.05)
    assert errors[0] < 0.65 * adaptive.solve(x, 8).error / float(np.sum(np.square(x, dtype=np.float64)))


def test_backends_write_the_same():
    x = np.random.default_rng(7).standard_normal((3, 50)).astype(np.float32)
    made = []
    for name in ("reference", "native"):
        with tersor.backend(name):
            enc = tersor.get_codec("asq:2,shared=3").encode(x, seed=3, sender=2, axis=-1)
            made.append((enc.to_bytes(), tersor.decode(enc, out=np.ones_like(x), add=True, weight=0.3).tobytes()))
    assert made[0] == made[1]
