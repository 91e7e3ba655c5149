"""Scaled sign: the sign of every coordinate times the mean magnitude of its block; one bit, biased.

The compressor of S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi: "Error Feedback Fixes SignSGD and other Gradient
Compression Schemes", ICML 2019, arXiv 1901.09847, Equation 2, after J. Bernstein, Y.-X. Wang, K. Azizzadenesheli,
A. Anandkumar: "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018, arXiv 1802.04434.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Job
from tersor.codecs.pieces import Piece, pieces
from tersor.codecs.unit_scale import UnitScale, power_of_two, unit_sums
from tersor.coding import bits as bit_stream
from tersor.registry import register
from tersor.units import Units

_LEVELS = np.array([1, -1], np.float32)


@register("sign")
@dataclass(frozen=True)
class Sign(UnitScale):
    """``x_hat_i = sign(x_i) * ||x||_1 / d`` for the d coordinates of a block; 0 counts as positive.

    Attributes
    ----------
    block : int or "full", default 4096
        Coordinates with one scale.

    Notes
    -----
    The error of a block is exactly ``1 - ||x||_1**2 / (d * ||x||**2)`` of its energy, the least that signs allow;
    `enc.error` is that of the message. The estimate is biased: use error feedback in training.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([1, -2, 3, -6], np.float32), "sign").tolist()
    [3.0, -3.0, 3.0, -3.0]
    """

    block: int | str = 4096

    claims: ClassVar[Claims] = Claims(
        row_addressable=True, tolerates_loss=True, shared_rotation=True, error_law="1 - ||x||_1**2 / (d ||x||**2)"
    )
    code_bits: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._check_block()

    def _size(self, n: int) -> int:
        return bit_stream.packed_size(n, 1)

    def _scales(self, x: NDArray[np.float32], units: Units, amax: NDArray[np.float32]) -> NDArray[np.float64]:
        lengths = np.full(units.count, units.length, np.float64)
        lengths[-1:] = units.last
        factor = power_of_two(amax)
        mean: NDArray[np.float64] = unit_sums(x, units, factor, square=False) / factor / lengths
        return np.minimum(mean, amax)

    def _codes(self, job: Job, p: Piece, x: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
        return np.packbits(x < 0, axis=1, bitorder="little")

    def _levels(self, packed: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
        return _LEVELS[np.unpackbits(packed, axis=1, count=n, bitorder="little")]

    def _error(self, x: NDArray[np.float32], units: Units, scales: NDArray[np.float32]) -> float:
        lost = energy = 0.0
        for p in pieces(units):
            values = p.of(x).astype(np.float64)
            lost += float(np.sum((np.abs(values) - scales[p.units, None]) ** 2))
            energy += float(np.sum(values**2))
        return lost / energy if energy else 0.0
