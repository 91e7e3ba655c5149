"""Units of which only pieces arrived: by what an unbiased estimate is then divided (FORMAT.md, section 4)."""

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import high_count, padded_length
from tersor.units import Units

_ONE = 1 << 20


def divide_by_share(
    scales: NDArray[np.float32],
    present: NDArray[np.bool_],
    units: Units,
    full: bool,
    fraction: float,
    kept: tuple[float, float],
) -> NDArray[np.float32]:
    """Divide each unit's scale by the share of its rotated coordinates that arrived; nothing arrived: 0.

    Where coordinates have two widths, each counts by what it adds to the estimate in expectation.

    Parameters
    ----------
    scales : ndarray of float32, shape (units,)
        Not modified.
    present : ndarray of bool, shape (units, pieces)
        Which pieces of a unit arrived.
    units, full, fraction
        As for the codec's operations.
    kept : pair of float
        What a coordinate of the higher and one of the lower width adds: 1 less its error.
    """
    if not units.count:
        return scales
    result = np.empty(units.count, np.float64)
    for k, n in ((slice(0, units.count - 1), units.length), (slice(units.count - 1, None), units.last)):
        weights = _weights(padded_length(n, full), present.shape[1], fraction, kept)
        arrived = present[k].astype(np.int64) @ weights
        share = arrived.astype(np.float64) / float(weights.sum())
        with np.errstate(invalid="ignore"):  # a scale of NaN stays
            result[k] = np.where(arrived > 0, scales[k].astype(np.float64) / np.where(arrived > 0, share, 1), 0)
    most = float(np.finfo(np.float32).max)
    return np.clip(result, -most, most).astype(np.float32)


def _weights(padded: int, pieces: int, fraction: float, kept: tuple[float, float]) -> NDArray[np.int64]:
    """Return what each piece of a unit of P coordinates counts, as integers: their sums have no order."""
    high = high_count(padded, fraction)
    edges = np.minimum(np.arange(pieces + 1, dtype=np.int64) * -(-padded // pieces), padded)
    of_high = np.diff(np.minimum(edges, high))
    a, b = (int(value * _ONE + 0.5) for value in kept) if fraction else (1, 1)
    weights: NDArray[np.int64] = of_high * a + (np.diff(edges) - of_high) * b
    return weights
