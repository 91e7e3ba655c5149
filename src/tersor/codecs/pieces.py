"""Pieces: how codecs in NumPy walk over an array a cache-sized part at a time, in few steps whatever the units are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Job
from tersor.kernels import ops
from tersor.units import Units

# Coordinates of a piece. A multiple of 8 and of 5, so that codes of any width and five trits a byte are cut at bytes,
# and of 4,096, so that sums of a unit (FORMAT.md section 4) are sums of its pieces.
PIECE = 40960


@dataclass(frozen=True)
class Piece:
    """Whole units `first` .. `first + rows`, or columns `column` .. `column + width` of one; flat from `begin` on."""

    first: int
    rows: int
    column: int
    width: int
    begin: int

    @property
    def units(self) -> slice:
        """The units it belongs to."""
        return slice(self.first, self.first + self.rows)

    def of(self, flat: NDArray[Any]) -> NDArray[Any]:
        """View the coordinates of a flat array, shape (rows, width)."""
        return flat[self.begin : self.begin + self.rows * self.width].reshape(self.rows, self.width)

    def bytes_of(self, data: NDArray[np.uint8], stride: int, size: Callable[[int], int]) -> NDArray[np.uint8]:
        """View the bytes of a plane with `stride` bytes a unit, where n coordinates take ``size(n)``."""
        begin, width = self.first * stride + size(self.column), size(self.width)
        return data[begin : begin + self.rows * width].reshape(self.rows, width)


def groups(units: Units, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first unit, number of units, their length) for units of one length, `most` or at least one at once."""
    whole = units.count if units.last == units.length else units.count - 1
    step = max(most, 1)
    for first in range(0, whole, step):
        yield first, min(step, whole - first), units.length
    if 0 <= whole < units.count:
        yield whole, 1, units.last


def pieces(units: Units) -> Iterator[Piece]:
    """Cut an array in pieces, in order: groups of whole units, or parts of a long one."""
    for first, rows, length in groups(units, PIECE // units.length):
        step = length if rows > 1 else PIECE
        for column in range(0, length, step):
            yield Piece(first, rows, column, min(step, length - column), first * units.length + column)


def largest(x: NDArray[np.float32], units: Units) -> NDArray[np.float32]:
    """Return max |x_i| of every unit; NaN or infinity where a unit holds one."""
    made = np.zeros(units.count, np.float32)
    for p in pieces(units):
        made[p.units] = np.maximum(made[p.units], np.max(np.abs(p.of(x)), axis=1))
    return made


def rounding_words(job: Job, p: Piece) -> NDArray[np.uint32]:
    """Return the words of private rounding of a piece (FORMAT.md section 2), shape (rows, width)."""
    drawn = np.empty(p.rows * p.width, np.uint32)
    ops.current().philox(job.private, rng.ROUNDING, 0, job.word + p.begin, drawn)
    return drawn.reshape(p.rows, p.width)


def rounding_uniform(job: Job, p: Piece) -> NDArray[np.float32]:
    """Return the uniforms of private rounding of a piece, shape (rows, width)."""
    return (rounding_words(job, p) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def put(p: Piece, values: NDArray[Any], out: NDArray[Any], add: bool, present: NDArray[np.bool_] | None) -> None:
    """Write the values of a piece to the flat `out`, or add them, with zeros for units that are not `present`."""
    if present is not None:
        values = np.where(present[p.units, None], values, out.dtype.type(0))
    with np.errstate(over="ignore", invalid="ignore"):
        if add:
            p.of(out)[...] += values
        else:
            p.of(out)[...] = values
