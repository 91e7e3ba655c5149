"""Random values of any law by table: two of them a word, in NumPy."""

import numpy as np
from numpy.typing import NDArray

from tersor import rng


def draw_table(table: NDArray[np.float32], key: int, purpose: int, start: int, out: NDArray[np.float32]) -> None:
    """Fill `out` with values of `table`, picked by the 16-bit halves of random words, the lower half first.

    Parameters
    ----------
    table : ndarray of float32, shape (65536,)
        Equally likely values.
    key, purpose, start : int
        Stream, and its word that gives the first two values.
    out : ndarray of float32, shape (n,)
        The values.
    """
    words = rng.words(key, purpose, 0, start, (len(out) + 1) // 2)
    out[:] = table[words.astype("<u4").view("<u2")[: len(out)]]
