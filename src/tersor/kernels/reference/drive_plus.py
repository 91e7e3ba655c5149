"""DRIVE+: one bit, and two values a unit found by two means of its rotated coordinates; the encoder in NumPy.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "DRIVE: One-bit
Distributed Mean Estimation", NeurIPS 2021, arXiv 2105.08339; the starting split and the three Lloyd iterations are
those of the authors' code. FORMAT.md section 4.
"""

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import padded_length
from tersor.kernels.reference.bits import pack
from tersor.kernels.reference.eden import F32, Quantized, books, exact_scale, first_bad, quantize, rotate_unit
from tersor.kernels.reference.sums import lane_sum, ordered_sum

ITERATIONS = 3
_LEVEL = np.float32(0.79788456080286536)  # DRIVE's: sqrt(2 / pi)


def drive_plus_encode(
    x: F32,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    scale_kind: int,
    rotations: int,
    full: bool,
    codes: NDArray[np.uint8],
    values: F32,
    rounds: NDArray[np.uint8],
    norms: F32,
) -> tuple[int, float, float]:
    """Encode the units of `x` with one bit and two values each.

    Parameters
    ----------
    x, unit, key, start, by_rows, scale_kind, rotations, full, codes, rounds, norms
        As for `eden_encode`.
    values : ndarray of float32, shape (2 * units,)
        What code 0 and code 1 of each unit stand for.

    Returns
    -------
    first_bad, error, energy
        As for `eden_encode`.
    """
    n_units = len(rounds)
    errors, energies = np.zeros(n_units), np.zeros(n_units)
    offset = 0
    for k in range(n_units):
        coordinates = x[k * unit : (k + 1) * unit]
        padded = padded_length(len(coordinates), full)
        where = codes[offset : offset + (padded + 7) // 8]
        offset += len(where)
        rotated = rotate_unit(coordinates, padded, key, 0 if by_rows else start + k * unit, rotations)
        rounds[k] = rotated.rounds
        if rotated.z is None:
            where[...] = 0
            norm = np.float32(rotated.s2)
            values[2 * k : 2 * k + 2] = errors[k] = energies[k] = rotated.s2
        else:
            levels, made = _two_means(rotated.z)
            pack(made.codes, 1, where.reshape(1, -1))
            g = exact_scale(scale_kind, np.sqrt(rotated.s2), padded, made)
            with np.errstate(over="ignore"):
                values[2 * k : 2 * k + 2] = (g * levels.astype(np.float64) / rotated.s).astype(np.float32)
            norm, errors[k], energies[k] = books(rotated, made, g, len(coordinates), padded)
        if len(norms):
            norms[k] = norm
    return first_bad(x), ordered_sum(errors), ordered_sum(energies)


def _two_means(z: F32) -> tuple[F32, Quantized]:
    """Return the two centers, and codes and sums: from the split at the mean, ITERATIONS times centers and midpoint."""
    size, total = z.shape[1], lane_sum(z)[0]
    levels, threshold = np.array([-_LEVEL, _LEVEL]), np.float32(total / size)
    for i in range(ITERATIONS + 1):
        upper = quantize(z, np.array([0, 1], np.float32), threshold.reshape(1))
        if upper.c in (0, size):  # an empty cluster: DRIVE
            levels, threshold = np.array([-_LEVEL, _LEVEL]), np.float32(0)
            break
        levels = np.array([(total - upper.a) / (size - upper.c), upper.a / upper.c]).astype(np.float32)
        if i < ITERATIONS:
            threshold = np.float32((np.float64(levels[0]) + np.float64(levels[1])) / 2)
    return levels, quantize(z, levels, threshold.reshape(1))
