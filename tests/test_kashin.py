"""Kashin's representation: the frame, the algorithm against a float64 form, the rows of the table, its bias."""

import numpy as np
import pytest
from baseline_rows import agrees, draw, errors

import tersor
from tersor import rng
from tersor.codecs.kashin import _represent, frame_length
from tersor.kernels import ops


def frame(q, key, start, n):
    """R of the first n of q coordinates, in float64: signs, then Hadamard / sqrt(q)."""
    h = np.ones((1, 1))
    while len(h) < q:
        h = np.block([[h, h], [h, -h]])
    return (h / np.sqrt(q) * rng.signs(key, 0, start, q))[:, :n]


def test_frame_length():
    """2 pow2(n), or pow2(n) if n / pow2(n) <= 0.85."""
    for n in range(1, 3000):
        power = 1 << (n - 1).bit_length()
        assert frame_length(n) == (power if n / power <= 0.85 else 2 * power)


@pytest.mark.parametrize("n", [1, 3, 64, 100, 256])
@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_the_algorithm(n, iterations):
    """Clip R r to +-M, add it up, take R^T of it from r, shrink M by eta: theorem 3.5's algorithm in float64."""
    x = draw("lognormal", n, np.random.default_rng(n))
    q, key, start = frame_length(n), 77, 8192
    turn = frame(q, key, start, n)
    assert turn.T @ turn == pytest.approx(np.eye(n), abs=1e-12), "a tight frame"
    level, rest, a = np.linalg.norm(x.astype(np.float64)) / np.sqrt(q), x.astype(np.float64), np.zeros(q)
    for _ in range(iterations):
        part = np.clip(turn @ rest, -level, level)
        a, rest, level = a + part, rest - turn.T @ part, level * 0.9
    got = _represent(x[None], q, key, start, False, iterations)[0]
    assert got == pytest.approx(a, abs=2e-5 * np.abs(a).max())
    bound = np.linalg.norm(x) / np.sqrt(q) * (1 - 0.9**iterations) / 0.1
    assert np.abs(got).max() <= bound * (1 + 1e-5)


def residual(x, iterations, key):
    q = frame_length(len(x))
    a = _represent(x[None], q, key, 0, False, iterations)[0]
    back = np.empty(q, np.float32)
    ops.current().unrotate_units(a, q, key, 0, False, 1, False, 1.0, False, np.zeros(0, np.uint8), back)
    return tersor.nmse(x, back[: len(x)])


@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_what_is_not_represented(kind):
    """About 0.1 % of the energy after three iterations; nothing that float32 holds at convergence."""
    xs = [draw(kind, 4096, np.random.default_rng(s)) for s in range(30)]
    assert np.mean([residual(x, 3, key) for key, x in enumerate(xs)]) == pytest.approx(1.05e-3, rel=0.25)
    assert max(residual(x, 15, key) for key, x in enumerate(xs)) < 1e-11
    assert residual(np.eye(1, 100, 7, dtype=np.float32)[0], 1, 1) < 1e-12, "one coordinate is flat in the frame"


FIGURES = [("kashin:1", 3.16, 3.20, 3.18), ("kashin:4", 0.0119, 0.0120, 0.0119)]  # quantizers.md section 7


@pytest.mark.parametrize("figures", FIGURES, ids=[f[0] for f in FIGURES])
def test_table_small(figures):
    assert agrees(errors(figures[0], "normal", 2**10, 60), figures[1], 60)


@pytest.mark.slow
@pytest.mark.parametrize("figures", FIGURES, ids=[f[0] for f in FIGURES])
def test_table(figures):
    assert agrees(errors(figures[0], "normal", 2**14, 40), figures[2], 12)
    assert agrees(errors(figures[0], "lognormal", 2**14, 40), figures[3], 12)


@pytest.mark.slow
def test_table_of_ten_senders():
    """NMSE of the mean of 10 lognormal vectors: .314 and .0012."""
    for spec, figure in (("kashin:1", 0.314), ("kashin:4", 0.0012)):
        codec, g, made = tersor.get_codec(spec), np.random.default_rng(0), []
        for trial in range(10):
            xs = [draw("lognormal", 2**14, g) for _ in range(10)]
            mean = tersor.mean([codec.encode(x, seed=trial, sender=k) for k, x in enumerate(xs)])
            energy = np.mean([np.sum(x.astype(np.float64) ** 2) for x in xs])
            made.append(np.sum((mean - np.mean(xs, axis=0, dtype=np.float64)) ** 2) / energy)
        assert np.mean(made) == pytest.approx(figure, rel=0.04)


def test_the_residual_is_a_bias_and_goes_away_with_iterations():
    """Equal senders with one key: the mean keeps the residual after 3 iterations, and not after 15."""
    x = draw("normal", 4096, np.random.default_rng(0))
    shared = tersor.Shared(5)
    left = {}
    for iterations in (3, 15):
        codec = tersor.Kashin(6, iterations)
        mean = tersor.mean([codec.encode(x, seed=1, sender=k, shared=shared) for k in range(40)])
        left[iterations] = tersor.nmse(x, mean)
    assert left[3] == pytest.approx(residual(x, 3, 5), rel=0.1) and left[15] < left[3] / 20


def test_the_decoder_is_the_frame_on_the_levels():
    for n, axis in ((5000, None), (90, -1)):
        codec, x = tersor.Kashin(3, block=1024), draw("normal", 5040 if axis else n, np.random.default_rng(n))
        x = x.reshape(-1, n) if axis else x
        enc = codec.encode(x, seed=3, axis=axis, start=9 if axis else 2048)
        scales, value = enc.planes["scales"].values(), codec.decode(enc).reshape(-1)
        for k in (0, enc.units.count - 1):
            at = k * enc.units.length
            width = min(enc.units.length, x.size - at)
            q = frame_length(width)
            plane = enc.planes["codes"]
            number = int.from_bytes(plane.data[k * plane.stride :][: q * 3 // 8].tobytes(), "little")
            codes = np.array([number >> (3 * i) & 7 for i in range(q)])
            start = 0 if axis else (2 + k) * frame_length(1024)
            expected = frame(q, enc.key, start, width).T @ ((2 * codes / 7 - 1) * 16 * scales[k])
            assert value[at : at + width] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("spec", ["kashin:1", "kashin:5,iterations=7,block=64"])
def test_same_bytes_on_the_reference(spec):
    codec = tersor.get_codec(spec)
    for n in (1, 3, 100, 9000):
        x, made = draw("normal", n, np.random.default_rng(n)), []
        for backend in ("reference", ops.backend_name()):
            with tersor.backend(backend):
                enc = codec.encode(x, seed=3)
                made.append((enc.to_bytes(), codec.decode(enc).tobytes()))
        assert made[0] == made[1]


def test_zeros_and_single_coordinates_at_one_bit():
    assert not tersor.roundtrip(np.zeros(100, np.float32), "kashin:1").any()
    for v in (3.0, -1e-30, 1e30):
        assert tersor.roundtrip(np.array([v], np.float32), "kashin:1", seed=1)[0] == pytest.approx(v, rel=1e-5)


@pytest.mark.parametrize("arguments", [(0,), (9,), (2, 0), (2, 101), (2, True), (2, 3, 100), (2, 3, 1 << 17)])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match="kashin"):
        tersor.Kashin(*arguments)
