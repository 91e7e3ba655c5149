"""The keyed rotation of all units of an array, orthonormal, and its inverse, in NumPy (FORMAT.md section 3)."""

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.kernels.reference.hadamard import rotate


def _plan(n: int, rotations: int, full: bool) -> tuple[int, int, np.float32]:
    """Return the padded length, the rounds and the norm of a unit of `n` coordinates."""
    padded = padded_length(n, full)
    run = run_length(padded)
    rounds = rotations if padded == run else mixing_rounds(padded)
    return padded, rounds, np.float32(1 / np.sqrt(np.float64(run) ** rounds))


def rotate_units(
    x: NDArray[np.float32],
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    rotations: int,
    full: bool,
    out: NDArray[np.float32],
) -> None:
    """Rotate every unit of `x`: coordinates times float32(1 / sqrt(B**rounds)), zeros to the padded length, the rounds.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        The vector, or the rows of length `unit` one after the other.
    unit : int
        Coordinates of a unit; only the last unit of a vector may be shorter.
    key, start : int
        Rotation key; random position of coordinate 0.
    by_rows : bool
        All units use the random positions 0 .. n - 1.
    rotations : int
        1, 2 or 3 rounds for units of a power of two; other lengths fix their own.
    full : bool
        Pad to a power of two.
    out : ndarray of float32
        The rotated units one after the other, each of its padded length.
    """
    offset = 0
    for k in range(-(-len(x) // unit) if len(x) else 0):
        values = x[k * unit : (k + 1) * unit]
        padded, rounds, norm = _plan(len(values), rotations, full)
        w = np.zeros((1, padded), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            w[0, : len(values)] = values * norm
            rotate(w, key, 0 if by_rows else start + k * unit, rounds, inverse=False)
        out[offset : offset + padded] = w[0]
        offset += padded


def unrotate_units(
    y: NDArray[np.float32],
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    rotations: int,
    full: bool,
    weight: float,
    add: bool,
    present: NDArray[np.uint8],
    out: NDArray[np.float32],
) -> None:
    """Undo `rotate_units`, times ``float32(weight)``, into `out` or added to it.

    Parameters
    ----------
    y : ndarray of float32
        Rotated units, each of its padded length.
    unit, key, start, by_rows, rotations, full
        As for `rotate_units`.
    weight : float
        Factor of the result; 0 gives +0.
    add : bool
        Add to `out` instead of overwriting it.
    present : ndarray of uint8
        Empty, or one flag a unit; a missing unit gives zeros.
    out : ndarray of float32, shape (d,)
        Where the result goes.
    """
    offset = 0
    with np.errstate(over="ignore"):
        factor = np.float32(weight)
    for k in range(-(-len(out) // unit) if len(out) else 0):
        target = out[k * unit : (k + 1) * unit]
        padded, rounds, norm = _plan(len(target), rotations, full)
        rotated = y[offset : offset + padded].reshape(1, padded)
        offset += padded
        if factor == 0 or (len(present) and not present[k]):
            if not add:
                target[:] = 0
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            w = rotated * norm
            rotate(w, key, 0 if by_rows else start + k * unit, rounds, inverse=True)
            values = w[0, : len(target)] * factor
            if add:
                target += values
            else:
                target[:] = values
