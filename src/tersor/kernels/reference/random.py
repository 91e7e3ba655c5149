"""Random words as an operation of the backends: a Philox stream (FORMAT.md section 1), in NumPy."""

import numpy as np
from numpy.typing import NDArray

from tersor import rng


def philox(key: int, purpose: int, rotation: int, start: int, out: NDArray[np.uint32]) -> None:
    """Fill `out`, shape (n,), with words `start` .. `start + n` of a stream."""
    out[:] = rng.words(key, purpose, rotation, start, len(out))
