"""Random rotations: the keyed Hadamard rotation of any length, and a uniform one for evaluation."""

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels import ops
from tersor.kernels.lengths import mixing_rounds, padded_length, run_length

__all__ = ["Hadamard", "needs_second_round", "neighbour_correlations", "uniform"]


class Hadamard:
    """The orthogonal map that EDEN applies to a unit of `n` coordinates.

    Parameters
    ----------
    n : int
        Coordinates; any number. Lengths that are no powers of two follow the length rule of FORMAT.md section 3.
    key : int
        64-bit key of the signs and permutations.
    rotations : int, default 2
        Rounds of signs and Hadamard transform, 1 to 3, where `n` pads to a power of two; other lengths fix their own.
    start : int, default 0
        Random position of coordinate 0.

    Attributes
    ----------
    padded : int
        Length of a rotated vector.
    rounds : int
        Rounds in use.

    Examples
    --------
    >>> h = Hadamard(80, key=7)
    >>> x = np.random.default_rng(0).standard_normal((3, 80)).astype(np.float32)
    >>> bool(np.allclose(h.inverse(h.apply(x)), x, atol=1e-5))
    True
    """

    def __init__(self, n: int, key: int, rotations: int = 2, start: int = 0) -> None:
        if n < 0 or not 1 <= rotations <= 3:
            raise ValueError(f"need n >= 0 and rotations of 1 to 3, got n={n}, rotations={rotations}")
        self.n = n
        self.key = key
        self.start = start
        self.padded = padded_length(n)
        run = run_length(self.padded) if n else 1
        self.rounds = rotations if run == self.padded else mixing_rounds(self.padded) if n else rotations
        self._scale = np.float32(1 / np.sqrt(np.float64(run) ** self.rounds))

    def apply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rotate the last axis: shape (..., n) float32 to (..., padded) float32."""
        return self._run(x, self.n, self.padded, inverse=False)

    def inverse(self, y: NDArray[np.float32]) -> NDArray[np.float32]:
        """Undo `apply`: shape (..., padded) float32 to (..., n) float32."""
        return self._run(y, self.padded, self.padded, inverse=True)[..., : self.n]

    def _run(self, x: NDArray[np.float32], expected: int, width: int, inverse: bool) -> NDArray[np.float32]:
        x = np.asarray(x, np.float32)
        if x.ndim == 0 or x.shape[-1] != expected:
            raise ValueError(f"the last axis must have {expected} coordinates, got shape {x.shape}")
        work = np.zeros((*x.shape[:-1], width), np.float32)
        work[..., :expected] = x
        if work.size:
            ops.current().rotate(work.reshape(-1, width), self.key, self.start, self.rounds, inverse)
        work *= self._scale
        return work


def needs_second_round(x: NDArray[np.float32]) -> bool:
    """Say whether one round leaves the rotated `x` too far from Gaussian: sum x**4 / (sum x**2)**2 is large.

    The O(d) check that Ran Ben-Basat, William Kuszmaul, Michael Mitzenmacher, Amit Portnoy and Shay Vargaftik propose
    ("Quantizing With Randomized Hadamard Transforms: Efficient Heuristic Now Proven", 2026, arXiv 2605.06014), with a
    threshold of our own: ``max(2**-10, 4 / n)``. Codecs apply it per unit in exact float32 order (FORMAT.md, 4.5).

    Examples
    --------
    >>> needs_second_round(np.eye(1, 64)[0]), needs_second_round(np.ones(64))
    (True, False)
    """
    values: NDArray[np.float64] = np.asarray(x, np.float64).reshape(-1)
    peak = np.max(np.abs(values), initial=0.0)
    if peak == 0:
        return False
    squares = (values / peak) ** 2
    return bool(np.sum(squares**2) > max(2.0**-10, 4 / padded_length(len(values))) * np.sum(squares) ** 2)


def neighbour_correlations(u: NDArray[np.float32], m: int) -> NDArray[np.float64]:
    """Return how strongly one more round of signs and Hadamard transform correlates neighbours, in O(n).

    For vector quantizers on aligned groups of `m` rotated coordinates: they want independent ones, and two rounds may
    leave pairs that are equal up to sign (x = e_2t + e_2t+1). Over the signs, outputs k and l of the round have the
    correlation ``sum_j (-1)**popcount((k ^ l) & j) u_j**2 / sum_j u_j**2``; inside a group only ``j mod m`` matters.
    Derived here; the question is that of arXiv 2605.06014 (see `needs_second_round`).

    Parameters
    ----------
    u : ndarray, shape (n,)
        What goes into the round; n a power of two.
    m : int
        Size of a group, a power of two, at most n.

    Returns
    -------
    ndarray of float64, shape (m,)
        The correlation of outputs whose indices differ by ``offset`` in exclusive or; entry 0 is 1. Add a round if
        another one is far from 0.

    Raises
    ------
    ValueError
        If n or m are no powers of two, or m is larger than n.

    Examples
    --------
    >>> neighbour_correlations(np.array([0, 0, 3, 0, 0, 0, 3, 0]), 4).tolist()
    [1.0, 1.0, -1.0, -1.0]
    """
    values: NDArray[np.float64] = np.asarray(u, np.float64).reshape(-1)
    n = len(values)
    if m < 1 or m > n or m & (m - 1) or n & (n - 1):
        raise ValueError(f"need powers of two, m at most n; got m={m} and {n} coordinates")
    peak = np.max(np.abs(values), initial=0.0)
    sums: NDArray[np.float64] = ((values / (peak or 1.0)) ** 2).reshape(-1, m).sum(0)
    sums += peak == 0
    stride = 1
    while stride < m:
        pairs = sums.reshape(-1, 2, stride)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
        stride *= 2
    sums /= sums[0]
    return sums


def uniform(n: int, key: int) -> NDArray[np.float64]:
    """Return an n x n orthogonal matrix, uniform (Haar), float64: for evaluation, not byte-stable across machines.

    Examples
    --------
    >>> q = uniform(3, key=1)
    >>> bool(np.allclose(q @ q.T, np.eye(3)))
    True
    """
    u = rng.uniform(key, rng.UNIFORM, 0, 2 * n * n).astype(np.float64).reshape(2, n, n)
    gauss = np.sqrt(-2 * np.log(1 - u[0])) * np.cos(2 * np.pi * u[1])
    q, r = np.linalg.qr(gauss)
    rotation: NDArray[np.float64] = q * np.sign(np.diag(r))
    return rotation
