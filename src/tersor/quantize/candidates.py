"""Candidates for levels: the data's own values or the edges of a fine histogram, with prefix sums of the data.

"Optimal and Approximate Adaptive Stochastic Quantization", Ran Ben Basat, Yaniv Ben-Itzhak, Michael Mitzenmacher, Shay
Vargaftik, NeurIPS 2024, arXiv 2402.03158, Sections 4 and 6. The histogram here has cells as fine as bfloat16 at every
magnitude in place of an even grid, and both edges of every cell that holds data.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import ops
from tersor.kernels.reference.key_histogram import CELLS, F32, F64, keys_of, rest_of
from tersor.kernels.reference.level_rows import scale_of
from tersor.kernels.reference.level_search import from_middle

_SAMPLE = 1023


@dataclass(frozen=True)
class Candidates:
    """Ascending candidates and, up to each of them, mass, first and second moment of the data.

    Attributes
    ----------
    values : ndarray of float64, shape (m,)
        The candidates; the first is the least value of the data, the last the greatest.
    points : ndarray of float64, shape (m,)
        ``(values * down - centre) * up``, within [-2, 2]: what the moments are of.
    counts, sums, squares : ndarray of float64, shape (m + 1,)
        Mass, sum of points and of their squares over the data up to each candidate; element 0 is before the first.
        Counted from the middle candidate, so only their differences mean something.
    centre : float
        The middle candidate times `down`.
    down, up : float
        Powers of two.
    within : float
        What `squares` lacks of the data's squares, in all: a cell of a histogram counts by its mean.
    """

    values: F64
    points: F64
    counts: F64
    sums: F64
    squares: F64
    centre: float
    down: float
    up: float
    within: float = 0.0

    @property
    def mass(self) -> float:
        """Total mass of the data."""
        return float(self.counts[-1] - self.counts[0])

    def value_of(self, points: F64) -> F64:
        """Return points as values of the data."""
        return (points / self.up + self.centre) / self.down

    def error_of(self, cost: float) -> float:
        """Return a sum of squares of points as one of values of the data."""
        return cost / self.up / self.up / self.down / self.down


def exact(x: NDArray[np.floating[Any]], weights: F64 | None = None) -> Candidates:
    """Return all distinct values of the finite 1-D array `x`, at least one, as candidates; O(d log d)."""
    if weights is None:
        ordered = x if (x[1:] >= x[:-1]).all() else np.sort(x)
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        counts = np.diff(begins, append=len(ordered)).astype(np.float64)
    else:
        order = np.argsort(x, kind="stable")
        ordered = x[order]
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        counts = np.add.reduceat(weights[order], begins)
    return _made(ordered[begins].astype(np.float64), counts)


def _made(values: F64, counts: F64, means: F64 | None = None, within: float = 0.0) -> Candidates:
    """Make candidates; data lie on them, or in cells with `means`, and `within` are their squares about these."""
    down = scale_of(max(abs(float(values[0])), abs(float(values[-1]))))  # before a difference could overflow
    centre = float(values[len(values) // 2]) * down
    moved = values * down - centre
    up = min(scale_of(max(abs(float(moved[0])), abs(float(moved[-1])))), 2.0**1000 / down)
    points = moved * up
    at = points if means is None else (means * down - centre) * up
    sums = counts * at
    squares = sums * at
    mass, moment, square = (from_middle(cells, True) for cells in (counts, sums, squares))
    return Candidates(values, points, mass, moment, square, centre, down, up, within * down * down * up * up)


@dataclass(frozen=True)
class Histogram:
    """How the values ``y = x - centre`` of a float32 array fall into cells by the upper halves of their bits.

    Attributes
    ----------
    cells : ndarray of int64, shape (k,)
        Numbers of the cells that hold data, ascending.
    entries : ndarray of int64, shape (k,)
        How many values each holds.
    counts, means : ndarray of float64, shape (k,)
        Mass in each, and its mean.
    low, high : ndarray of float64, shape (k,)
        Least and greatest value of each: both the only one where a cell is known to hold one value.
    least, greatest : float
        Of y.
    ends : tuple of two floats
        Least and greatest x.
    within : float
        Sum of squared differences from the means of the cells.
    """

    cells: NDArray[np.int64]
    entries: NDArray[np.int64]
    counts: F64
    means: F64
    low: F64
    high: F64
    least: float
    greatest: float
    ends: tuple[float, float]
    within: float

    def candidates(self, exactly: tuple[NDArray[np.int64], F32, F64] | None = None) -> Candidates:
        """Return both edges of every cell as candidates; in some cells, `exactly`, the values themselves.

        exactly: indices into `cells`, the distinct values in them, ascending, and the mass of each.
        """
        values, counts, means, within = self.high, self.counts, self.means, self.within
        rest = np.ones(len(values), np.bool_)
        if exactly is not None:
            rest[exactly[0]] = False
            own = exactly[1].astype(np.float64)
            cell = np.searchsorted(self.low[exactly[0]], own, "right") - 1
            about = own - self.means[exactly[0]][cell]
            within = max(within - in_order(exactly[2] * about * about), 0.0)
            values = np.concatenate([values[rest], own])
            counts, means = np.concatenate([counts[rest], exactly[2]]), np.concatenate([means[rest], own])
        edges = _greatest(self.cells[rest & (self.low < self.high)] - 1)  # no data between them and the cell
        values = np.clip(np.concatenate([values, edges, [self.least]]), self.least, self.greatest)
        nothing = np.zeros(len(edges) + 1)
        order = np.argsort(values, kind="stable")
        values = values[order]
        counts, means = np.concatenate([counts, nothing])[order], np.concatenate([means, nothing])[order]
        begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        mass = np.add.reduceat(counts, begins)
        sums = np.add.reduceat(counts * means, begins)
        return _made(values[begins], mass, sums / np.where(mass > 0, mass, 1.0), within)


def histogram(x: F32, centre: float, weights: F64 | None = None) -> Histogram | None:
    """Return the histogram of ``x - centre``; None if one of these is not finite. O(d), one pass."""
    counts, lows, ends = np.zeros(CELLS, np.uint64), np.zeros(CELLS, np.uint64), np.zeros(3)
    if not ops.current().key_histogram(x, centre, counts, lows, ends):
        return None
    cells = np.flatnonzero(counts)
    n, low = counts[cells].astype(np.float64), lows[cells].astype(np.float64)
    first, last = _greatest(cells - 1, up=1), _greatest(cells)
    pure_first, pure_last = low == 0, low == n * 65535.0
    if weights is not None:
        y = x - np.float32(centre)
        keys = keys_of(y)
        n = np.bincount(keys >> 16, weights, CELLS)[cells].astype(np.float64)
        low = np.bincount(keys >> 16, weights * (keys & 0xFFFF), CELLS)[cells].astype(np.float64)
        ends[2] = in_order(weights * np.square(rest_of(y)))
    means = np.clip(first + (last - first) * (low / np.where(n > 0, n * 65535.0, 1.0)), first, last)
    base = np.where(first < 0, last, first)  # what the values of a cell are without the lower halves of their bits
    within = max(float(ends[2]) - in_order(n * np.square(means - base)), 0.0)
    one = counts[cells] == 1
    least, greatest = (float(np.float32(v) - np.float32(centre)) for v in ends[:2])
    return Histogram(
        cells,
        counts[cells].astype(np.int64),
        n,
        means,
        np.where(one, means, np.where(pure_last, last, first)),
        np.where(one, means, np.where(pure_first, first, last)),
        least,
        greatest,
        (float(ends[0]), float(ends[1])),
        within,
    )


def _greatest(cells: NDArray[np.int64], up: int = 0) -> F64:
    """Return the greatest value of a cell, or the one `up` above it."""
    keys = ((cells << 16) + (0xFFFF + up)).astype(np.uint32)
    bits: NDArray[np.uint32] = np.where(keys >> 31, keys ^ np.uint32(0x80000000), ~keys)
    return bits.view(np.float32).astype(np.float64)


def in_order(values: F64) -> float:
    """Add values one after the other: sums that decide about levels must be the same everywhere."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def centre_of(x: F32) -> float:
    """Return what to subtract before the cells of a histogram are fine enough: 0, or the median where it is far from 0.

    Both the median and the quartiles are those of an even sample.
    """
    sample = np.sort(x[:: max(len(x) // _SAMPLE, 1)])
    low, middle, high = (float(sample[len(sample) * q // 4]) for q in (1, 2, 3))
    far = abs(middle) > 4.0 * (high - low) and abs(middle) < 2.0**100
    return middle if far else 0.0
