"""The measurements that reproductions share: errors over draws, means of senders, and dense uniform rotations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec
from tersor.evaluate.demo import normal
from tersor.mean import Mean
from tersor.metrics import nmse
from tersor.quantize import lloyd_max

Vector = NDArray[np.float32]
_SCALES = ("biased", "unbiased", "norm", "one")
Draw = Callable[[np.random.Generator, int], Vector]


def one_sided_lognormal(rng: np.random.Generator, size: int) -> Vector:
    """LogNormal(0, 1) as the papers use it: all values positive."""
    return np.asarray(np.exp(normal(rng, size)), np.float32)


def support(values: list[float], size: int, at: list[int] | None = None) -> Vector:
    """Return a vector with few nonzeros, by default at 1, 2, 4, ...: there Hadamard signs are independent.

    Examples
    --------
    >>> support([2, 1], 4).tolist()
    [0.0, 2.0, 1.0, 0.0]
    """
    x = np.zeros(size, np.float32)
    x[at or [1 << i for i in range(len(values))]] = values
    return x


def vnmse(codec: Codec, draw: Draw, size: int, trials: int, seed: int = 0) -> float:
    """Return the mean vNMSE over fresh vectors and fresh keys."""
    rng = np.random.default_rng(seed)
    found = []
    for trial in range(trials):
        x = draw(rng, size)
        found.append(nmse(x, codec.decode(codec.encode(x, seed=seed + trial))))
    return float(np.mean(found))


def vnmse_of(codec: Codec, x: Vector, trials: int, seed: int = 0) -> float:
    """Return the mean vNMSE of one vector over keys."""
    return vnmse(codec, lambda rng, size: x, x.size, trials, seed)


def mean_error(codec: Codec, senders: list[Vector], seed: int, *, shared: bool = False) -> float:
    """Return the NMSE of a mean: ``||mean x_hat - mean x||**2`` over the mean of ``||x||**2``.

    Parameters
    ----------
    codec : Codec
    senders : list of ndarray
        Their vectors.
    seed : int
        Sender i draws from (seed, i).
    shared : bool, default False
        All use one rotation key.
    """
    agreed = codec.merge(_stats(codec, senders), key=seed) if shared else None
    total = Mean()
    for i, x in enumerate(senders):
        total.add(codec.encode(x, seed=seed, sender=i, shared=agreed))
    truth = np.mean([x.astype(np.float64) for x in senders], axis=0)
    gap = np.asarray(total.value(), np.float64) - truth
    energy = float(np.mean([np.sum(x.astype(np.float64) ** 2) for x in senders]))
    return float(gap @ gap) / energy


def _stats(codec: Codec, senders: list[Vector]) -> NDArray[np.float32] | None:
    found = [stats for stats in map(codec.measure, senders) if stats is not None]
    return np.stack(found) if found else None


def mean_errors(
    codec: Codec, draw: Draw, size: int, n: int, trials: int, *, same: bool = False, shared: bool = False, seed: int = 0
) -> float:
    """Return the NMSE of the mean of `n` senders, averaged over trials; `same`: all hold one vector."""
    rng = np.random.default_rng(seed)
    found = []
    for trial in range(trials):
        x = draw(rng, size)
        senders = [x] * n if same else [x, *(draw(rng, size) for _ in range(n - 1))]
        found.append(mean_error(codec, senders, seed + trial, shared=shared))
    return float(np.mean(found))


def bias_floor(codec: Codec, x: Vector, seeds: int) -> float:
    """Return ``||E x_hat - x||**2 / ||x||**2`` without the share of chance: the mean of <e_s, e_t> over s != t."""
    total, squares = np.zeros(x.size), 0.0
    for seed in range(seeds):
        gap = np.asarray(codec.decode(codec.encode(x, seed=seed)), np.float64) - x
        total += gap
        squares += float(gap @ gap)
    energy = float(np.sum(x.astype(np.float64) ** 2))
    return (float(total @ total) - squares) / (seeds * (seeds - 1)) / energy


def uniform_rotation_errors(size: int, bits: int, draws: int) -> dict[str, float]:
    """Return EDEN's mean errors under dense uniform rotations (QR of a normal matrix) in float64, by scale.

    One matrix rotates `size` basis vectors, so it gives `size` draws.
    """
    matrices, rng = -(-draws // size), np.random.default_rng(size)
    at_once = max(1, (1 << 18) // size**2)
    sums = np.zeros(len(_SCALES))
    for begin in range(0, matrices, at_once):
        rotated = _haar(rng, min(at_once, matrices - begin), size)  # of the basis vectors
        sums += _errors(rotated.reshape(-1, size), bits)
    return dict(zip(_SCALES, (sums / (matrices * size)).tolist(), strict=True))


def sphere_errors(size: int, bits: int, draws: int) -> dict[str, float]:
    """Return what `uniform_rotation_errors` estimates, from points on the sphere: a uniformly rotated vector is one."""
    y = np.random.default_rng(size).standard_normal((draws, size))
    y /= np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
    return dict(zip(_SCALES, (_errors(y, bits) / draws).tolist(), strict=True))


def _errors(y: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """Sum over rows of norm 1 of the errors with every scale."""
    levels = lloyd_max.levels(bits).astype(np.float64)
    size = y.shape[-1]
    q = levels[np.searchsorted((levels[:-1] + levels[1:]) / 2, y * np.sqrt(size), side="right")]
    dot, square = np.einsum("ij,ij->i", y, q), np.einsum("ij,ij->i", q, q)
    sine2 = 1 - dot**2 / square
    one = 1 - 2 * dot / np.sqrt(size) + square / size
    return np.array([sine2.sum(), (sine2 / (1 - sine2)).sum(), (2 * (1 - np.sqrt(1 - sine2))).sum(), one.sum()])


def _haar(rng: np.random.Generator, count: int, size: int) -> NDArray[np.float64]:
    """Return orthogonal matrices from the uniform (Haar) measure, shape (count, size, size).

    They are the Q of the QR factors of normal matrices, by modified Gram-Schmidt on the rows: NumPy's own QR has BLAS
    threads that wait for one another on a busy machine.
    """
    q: NDArray[np.float64] = rng.standard_normal((count, size, size))
    for i in range(size):
        row = q[:, i]
        row /= np.sqrt(np.einsum("kj,kj->k", row, row))[:, None]
        q[:, i + 1 :] -= np.einsum("kij,kj->ki", q[:, i + 1 :], row)[:, :, None] * row[:, None, :]
    return q
