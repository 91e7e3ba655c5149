"""TernGrad: every coordinate becomes -1, 0 or 1 times the largest magnitude of its block, at random; unbiased.

W. Wen, C. Xu, F. Yan, C. Wu, Y. Wang, Y. Chen, H. Li: "TernGrad: Ternary Gradients to Reduce Communication in
Distributed Deep Learning", NeurIPS 2017, arXiv 1705.07878, Equations 1 to 3 (without gradient clipping).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Job
from tersor.codecs.pieces import PIECE, Piece, rounding_uniform
from tersor.codecs.unit_scale import UnitScale
from tersor.encoded import Encoded
from tersor.errors import FormatError
from tersor.registry import register
from tersor.units import Units

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)
# The five levels of every byte; digit 2 is -1. Bytes above 242 are refused before they get here.
_DIGITS = (np.arange(256)[:, None] // _POWERS.astype(np.int64)) % 3
_LEVELS = np.where(_DIGITS == 2, -1, _DIGITS).astype(np.float32)


@register("terngrad")
@dataclass(frozen=True)
class TernGrad(UnitScale):
    """``x_hat_i = max|x| * sign(x_i)`` with probability |x_i| / max|x|, else 0; five coordinates a byte, 1.6 bits.

    Attributes
    ----------
    block : int or "full", default 4096
        Coordinates with one scale.

    Notes
    -----
    The vNMSE of a block is exactly ``||x||_inf ||x||_1 / ||x||**2 - 1``.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> np.unique(np.abs(tersor.roundtrip(np.array([0.5, -2, 1.5, 0], np.float32), "terngrad"))).tolist()
    [0.0, 2.0]
    """

    block: int | str = 4096

    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="||x||_inf ||x||_1 / ||x||**2 - 1",
    )
    code_layout: ClassVar[str] = "|u1"

    def __post_init__(self) -> None:
        self._check_block()

    def _size(self, n: int) -> int:
        return -(-n // 5)

    def _scales(self, x: NDArray[np.float32], units: Units, amax: NDArray[np.float32]) -> NDArray[np.float64]:
        return amax.astype(np.float64)

    def _codes(self, job: Job, p: Piece, x: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
        share = np.abs(x) / np.where(scales > 0, scales, 1).astype(np.float64)
        trits = np.zeros((p.rows, self._size(p.width) * 5), np.uint8)
        trits[:, : p.width] = (rounding_uniform(job, p) < share) * (np.uint8(1) + np.signbit(x))
        made: NDArray[np.uint8] = (trits.reshape(p.rows, -1, 5) * _POWERS).sum(axis=2, dtype=np.uint8)
        return made

    def _levels(self, packed: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
        return _LEVELS[packed].reshape(len(packed), -1)[:, :n]

    def validate(self, enc: Encoded) -> None:
        data = enc.planes["codes"].data
        if any((data[i : i + PIECE] > 242).any() for i in range(0, len(data), PIECE)):
            raise FormatError("terngrad: a byte above 242 does not hold five trits")
