"""Rotations: orthogonal, invertible, by the length rule, Gaussian where they claim to be, seeded by position."""

import numpy as np
import pytest

from tersor import rng
from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.rotation import Hadamard, needs_second_round, neighbour_correlations, uniform

LENGTHS = [*range(0, 70), 80, 96, 100, 127, 128, 129, 255, 576, 1000, 1025, 2047, 2048, 2100, 4095, 4096]


def matrix(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def test_the_length_rule():
    """n' = n rounded up to a multiple of 2**ceil(log2(n) / 2); B = the largest power of two in it; 2 or 3 rounds."""
    for n in range(1, 9000):
        log2 = (n - 1).bit_length()
        unit = 2 ** -(-log2 // 2)
        padded = padded_length(n)
        assert padded % unit == 0 and n <= padded < n + unit
        b = run_length(padded)
        assert padded % b == 0 and (padded // b) % 2 == 1 and b & (b - 1) == 0
        assert mixing_rounds(padded) == (2 if b * b >= 16 * padded else 3)
        full = padded_length(n, full=True)
        assert full & (full - 1) == 0 and n <= full < 2 * n + (n == 1)
    assert padded_length(0) == padded_length(0, full=True) == 0
    # a tail is never padded beyond its block of 4,096
    assert max(padded_length(n) for n in range(4097)) == 4096


@pytest.mark.parametrize("n", LENGTHS)
def test_orthogonal_and_invertible(n):
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    for rotations in (1, 2, 3):
        h = Hadamard(n, key=11, rotations=rotations, start=5)
        y = h.apply(x)
        assert y.shape == (3, h.padded) and y.dtype == np.float32
        assert np.allclose(np.linalg.norm(y, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
        assert np.allclose(h.inverse(y), x, atol=2e-6 * (1 + np.abs(x).max(initial=0)))
        assert np.allclose(y[0] @ y[1], x[0] @ x[1], atol=1e-4 * max(n, 1) ** 0.5)
        assert np.array_equal(h.apply(x[1]), y[1]), "rows are rotated alike"


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_power_of_two_is_signs_then_hadamard(rotations):
    n, key, start = 64, 2**63 + 1, 4096
    dense = np.eye(n)
    for r in range(rotations):
        dense = matrix(n) / np.sqrt(n) @ np.diag(rng.signs(key, r, start, n)) @ dense
    got = Hadamard(n, key, rotations, start).apply(np.eye(n, dtype=np.float32))
    assert np.allclose(got.T, dense, atol=1e-6)


@pytest.mark.parametrize("n", [12, 80, 96])
def test_other_lengths_are_permuted_signed_and_transformed_by_runs(n):
    key, start, b = 3, 7, run_length(n)
    dense = np.eye(n)
    for r in range(mixing_rounds(n)):
        permutation = np.eye(n)[rng.permutation(key, r, start, n)]
        runs = np.kron(np.eye(n // b), matrix(b)) / np.sqrt(b)
        dense = runs @ np.diag(rng.signs(key, r, start, n)) @ permutation @ dense
    got = Hadamard(n, key, start=start).apply(np.eye(n, dtype=np.float32))
    assert np.allclose(got.T, dense, atol=1e-6)


@pytest.mark.parametrize("n", [80, 576, 1000, 4096])
def test_one_hot_becomes_gaussian(n):
    """Fourth moment of the rotated coordinates of a one-hot vector near 3, fourth of all outside 1.15 sigma."""
    rows = []
    for key in range(300):
        x = np.zeros(n, np.float32)
        x[key % n] = 1
        h = Hadamard(n, key)
        rows.append(h.apply(x) * np.sqrt(h.padded))
    y = np.concatenate(rows)
    assert np.mean(y**4) == pytest.approx(3, abs=0.45)
    assert np.mean(np.abs(y) > 1.1503) == pytest.approx(0.25, abs=0.03)


def test_keys_and_starts_give_other_rotations():
    x = np.ones(256, np.float32)
    made = [Hadamard(256, k, start=s).apply(x) for k, s in ((0, 0), (1, 0), (2**32, 0), (0, 256))]
    for i, a in enumerate(made):
        for b in made[i + 1 :]:
            assert abs(a @ b) / 256 < 0.35


def test_wrong_arguments():
    for n, rotations in ((-1, 2), (8, 0), (8, 4)):
        with pytest.raises(ValueError):
            Hadamard(n, 0, rotations)
    h = Hadamard(80, 0)
    for shape in ((), (79,), (80, 3)):
        with pytest.raises(ValueError, match="80"):
            h.apply(np.zeros(shape, np.float32))
    with pytest.raises(ValueError):
        h.inverse(np.zeros(79, np.float32))


def test_moment_check():
    """Two rounds if sum x**4 / (sum x**2)**2 > max(2**-10, 4 / n): k equal coordinates have 1 / k."""
    for n, k, two in ((1024, 256, False), (1024, 255, True), (2**16, 1024, False), (2**16, 1023, True), (4, 1, False)):
        x = np.zeros(n, np.float32)
        x[:k] = -7
        assert needs_second_round(x) == two, (n, k)
        assert needs_second_round(x * np.float32(1e30)) == two
    normal = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    assert not needs_second_round(normal) and not needs_second_round(np.zeros(5, np.float32))
    assert not needs_second_round(np.zeros(0, np.float32))


def test_codecs_decide_like_the_moment_check():
    import tersor

    codec = tersor.Eden(bits=1)
    for seed in range(30):
        x = np.random.default_rng(seed).standard_t(2.5 + seed / 10, 4096).astype(np.float32)
        enc = codec.encode(x, seed=1)
        assert (codec._rounds(enc, enc.units)[0] == 2) == needs_second_round(x)


def test_uniform_rotation_is_orthogonal_and_uniform():
    q = uniform(50, key=1)
    assert np.allclose(q @ q.T, np.eye(50), atol=1e-12)
    first = np.stack([uniform(3, key)[:, 0] for key in range(3000)])
    # Archimedes: a coordinate of a uniform point on the sphere is uniform in [-1, 1]
    assert np.allclose(first.mean(0), 0, atol=0.045) and np.allclose((first**2).mean(0), 1 / 3, atol=0.025)
    assert np.allclose((np.abs(first) < 0.5).mean(0), 0.5, atol=0.04)


def correlation(x, rotations, offset, keys=100):
    """Mean over keys of |correlation| of rotated coordinates k and k ^ offset (within one rotated vector)."""
    k = np.arange(len(x))
    found = []
    for key in range(keys):
        y = Hadamard(len(x), key, rotations).apply(x)
        found.append(abs(float((y * y[k ^ offset]).sum() / (y * y).sum())))
    return float(np.mean(found))


def test_neighbours_of_a_pair_stay_equal_up_to_sign_after_two_rounds():
    """quantizers.md 2.3 and 8.10: a vector quantizer needs a third round there, and the O(n) check says so."""
    n = 1024
    pair = np.zeros(n, np.float32)
    pair[[6, 7]] = 1
    assert correlation(pair, 2, 1) == pytest.approx(1, abs=1e-5)
    assert correlation(pair, 3, 1) < 0.15
    after = [Hadamard(n, 5, rotations).apply(pair) for rotations in (1, 2)]
    assert abs(neighbour_correlations(after[0], 2)[1]) == pytest.approx(1, abs=1e-6)
    assert abs(neighbour_correlations(after[1], 2)[1]) < 0.15
    apart = np.zeros(n, np.float32)
    apart[[3, 7]] = 1
    assert correlation(apart, 1, 1) == pytest.approx(1, abs=1e-5) and correlation(apart, 1, 4) < 1e-5
    assert correlation(apart, 2, 4) == pytest.approx(1, abs=1e-5)


def test_neighbour_correlations_are_those_over_all_signs():
    u = np.array([1.0, -2, 0.5, 3, 0, 1, 1, -1], np.float32)
    h = matrix(8) / np.sqrt(8)
    signs = np.array([[1 - 2 * (s >> j & 1) for j in range(8)] for s in range(256)])
    y = signs * u @ h.T
    covariance = y.T @ y / 256
    for m in (1, 2, 4, 8):
        got = neighbour_correlations(u, m)
        for k in range(8):
            for other in range(m):
                assert covariance[k, k ^ other] / covariance[k, k] == pytest.approx(got[other], abs=1e-6)
    assert neighbour_correlations(np.zeros(8), 4).tolist() == [1, 0, 0, 0]
    for wrong in ((np.ones(6), 2), (np.ones(8), 3), (np.ones(4), 8), (np.ones(8), 0)):
        with pytest.raises(ValueError, match="powers of two"):
            neighbour_correlations(*wrong)
