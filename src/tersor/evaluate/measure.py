"""Errors of an estimate in float64, a piece at a time, so that large tensors need no large copies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import Host, bfloat16_to_float32, to_host

_PIECE = 1 << 15


@dataclass(frozen=True)
class Errors:
    """Sums over coordinates; they add over tensors.

    Attributes
    ----------
    squared : float
        ``||x_hat - x||**2``.
    energy : float
        ``||x||**2``.
    largest : float
        ``max |x_hat - x|``.
    """

    squared: float = 0.0
    energy: float = 0.0
    largest: float = 0.0

    @property
    def vnmse(self) -> float:
        """``squared / energy``; 0 if both are 0."""
        return ratio(self.squared, self.energy)

    def __add__(self, other: Errors) -> Errors:
        return Errors(self.squared + other.squared, self.energy + other.energy, max(self.largest, other.largest))


def ratio(error: float, energy: float) -> float:
    """Divide an error by an energy; 0 / 0 is 0."""
    return error / energy if energy else (0.0 if error == 0 else math.inf)


def pieces(size: int) -> list[slice]:
    """Cut a flat array into slices."""
    return [slice(begin, begin + _PIECE) for begin in range(0, size, _PIECE)]


def host(x: Any) -> Host:
    """Bring an array of floats to host memory."""
    return to_host(x)[0]


def wide(x: Host, piece: slice) -> NDArray[np.float64]:
    """Return a piece of an array as float64."""
    part = x.data.reshape(-1)[piece]
    return (bfloat16_to_float32(part) if x.dtype == "bfloat16" else part).astype(np.float64)


def errors(x: Any, x_hat: Any) -> Errors:
    """Compare an array and its estimate, of one shape.

    Examples
    --------
    >>> errors(np.array([3.0, 4.0]), np.array([3.0, 3.0])).vnmse
    0.04
    """
    a, b = host(x), host(x_hat)
    total = Errors()
    for piece in pieces(a.data.size):
        truth = wide(a, piece)
        difference = wide(b, piece) - truth
        largest = float(np.max(np.abs(difference), initial=0.0))
        total += Errors(squared(difference), squared(truth), largest)
    return total


def squared(values: NDArray[np.float64]) -> float:
    """Return the sum of squares, without BLAS: its threads wait for one another on a busy machine."""
    return float(np.einsum("i,i->", values, values))
