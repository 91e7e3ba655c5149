"""Units: the blocks of a long vector, or the rows of a matrix, that are encoded independently of one another."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Units:
    """How `size` coordinates fall into units.

    Attributes
    ----------
    size : int
        Coordinates in all.
    length : int
        Coordinates of a unit; only the last block of a vector may be shorter.
    by_rows : bool
        Units are the rows of the last axis (`axis=-1`), else blocks of one vector (`axis=None`).
    """

    size: int
    length: int
    by_rows: bool

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int | None, block: int | None) -> "Units":
        """Return the units of an array; `block` of None makes the whole vector one unit.

        Raises
        ------
        ValueError
            If `axis` is -1 and the array has no axis.
        """
        size = math.prod(shape)
        if axis is None:
            return cls(size, max(block or size, 1), False)
        if not shape:
            raise ValueError("axis=-1 needs an array with at least one axis, got a scalar")
        return cls(size, max(shape[-1], 1), True)

    @property
    def count(self) -> int:
        """Number of units."""
        return -(-self.size // self.length)

    @property
    def last(self) -> int:
        """Coordinates of the last unit; 0 if there is none."""
        return self.size - (self.count - 1) * self.length if self.size else 0


def check_axis(axis: int | None, ndim: int) -> int | None:
    """Return `axis` as None or -1.

    Raises
    ------
    ValueError
        If it is another axis.
    """
    if axis is None:
        return None
    if axis == -1 or axis == ndim - 1:
        return -1
    raise ValueError(
        f"axis must be None (one vector) or -1 (rows), got {axis}; bring the axis to the end with moveaxis"
    )
