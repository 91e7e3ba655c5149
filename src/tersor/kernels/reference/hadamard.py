"""Walsh-Hadamard transform and the keyed rotation built on it, in NumPy."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.lengths import run_length


def fwht(x: NDArray[np.float32]) -> None:
    """Transform each row of `x`, shape (m, n) with n a power of two, in place and without normalising.

    Radix-2 stages of stride 1, 2, 4, ...: ``(a, b) -> (a + b, a - b)`` in float32.
    """
    m, n = x.shape
    stride = 1
    while stride < n:
        pairs = x.reshape(m, n // (2 * stride), 2, stride)
        low = pairs[:, :, 0, :].copy()
        high = pairs[:, :, 1, :]
        np.add(low, high, out=pairs[:, :, 0, :])
        np.subtract(low, high, out=high)
        stride *= 2


def rotate(x: NDArray[np.float32], key: int, start: int, rounds: int, inverse: bool) -> None:
    """Rotate each row of `x`, shape (m, P), in place, up to the factor sqrt(B)**rounds.

    Parameters
    ----------
    x : ndarray of float32, shape (m, P)
        C-contiguous; P is a padded length.
    key : int
        Rotation key.
    start : int
        Random position of coordinate 0; the same for every row.
    rounds : int
        1, 2 or 3 rounds.
    inverse : bool
        Undo instead.
    """
    m, padded = x.shape
    run = run_length(padded)
    order = reversed(range(rounds)) if inverse else range(rounds)
    for r in order:
        signs = rng.signs(key, r, start, padded)
        if inverse:
            fwht(x.reshape(m * (padded // run), run))
            x *= signs
            if padded != run:
                undone = np.empty_like(x)
                undone[:, _permutation(key, r, start, padded)] = x
                x[:] = undone
        else:
            if padded != run:
                x[:] = x[:, _permutation(key, r, start, padded)]
            x *= signs
            fwht(x.reshape(m * (padded // run), run))


@lru_cache(maxsize=64)
def _permutation(key: int, rotation: int, start: int, count: int) -> NDArray[np.int64]:
    perm = rng.permutation(key, rotation, start, count)
    perm.flags.writeable = False
    return perm
