"""QSGD: a norm a block, and stochastic rounding of |x_i| / norm to evenly spaced levels; unbiased, no rotation.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017, arXiv 1610.02132, Section 3.1 (with codes of a fixed width in place of Elias codes).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Job
from tersor.codecs.pieces import Piece, rounding_uniform
from tersor.codecs.unit_scale import UnitScale, power_of_two, unit_sums
from tersor.coding import bits as bit_stream
from tersor.registry import register
from tersor.units import Units


@register("qsgd")
@dataclass(frozen=True)
class QSGD(UnitScale):
    """``x_hat_i = norm * sign(x_i) * level / s`` with s = 2**(bits - 1) - 1 levels above 0.

    Attributes
    ----------
    bits : int
        Width of a code, 2 to 8: a sign and a level; 2 bits are the paper's s = 1, 5 bits its s = 15.
    norm : {"l2", "linf"}, default "l2"
        The Euclidean norm (the paper's) or the largest magnitude, whose error is far smaller in high dimension.
    block : int or "full", default 4096
        Coordinates with one norm.

    Notes
    -----
    With t = s |x_i| / norm and f = t - floor(t), the error of a coordinate is ``(norm / s)**2 * f * (1 - f)`` on
    average. For the Euclidean norm of d coordinates the vNMSE is at most min(d / s**2, sqrt(d) / s) (the paper's
    Lemma 3.1); for s = 1 it is exactly norm * ||x||_1 / ||x||**2 - 1. A Euclidean norm beyond float32 is a RangeError.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.array([3, 0, -4, 0], np.float32)
    >>> np.unique(np.abs(tersor.roundtrip(x, "qsgd:2", seed=1))).tolist()  # 0 or the norm
    [0.0, 5.0]
    """

    bits: int
    norm: str = "l2"
    block: int | str = 4096

    examples: ClassVar[tuple[str, ...]] = ("qsgd:2", "qsgd:5", "qsgd:8")
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="(norm / s)**2 * f * (1 - f) a coordinate; for l2 at most min(d / s**2, sqrt(d) / s)",
    )

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 8:
            raise ValueError(f"qsgd: bits must be an integer from 2 to 8, got {self.bits!r}")
        if self.norm not in ("l2", "linf"):
            raise ValueError(f"qsgd: norm must be l2 or linf, got {self.norm!r}")
        self._check_block()

    @property
    def _steps(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def _width(self) -> int:
        return self.bits

    def _size(self, n: int) -> int:
        return bit_stream.packed_size(n, self.bits)

    def _scales(self, x: NDArray[np.float32], units: Units, amax: NDArray[np.float32]) -> NDArray[np.float64]:
        if self.norm == "linf":
            return amax.astype(np.float64)
        factor = power_of_two(amax)
        norm = np.sqrt(unit_sums(x, units, factor, square=True)) / factor
        held = norm.astype(np.float32)
        # Rounded up: no coordinate may exceed the norm, or its estimate would be biased.
        up = np.where(held < norm, np.nextafter(held, np.float32(np.inf)), held)
        return np.maximum(up, amax).astype(np.float64)

    def _codes(self, job: Job, p: Piece, x: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
        per_unit = self._steps / np.where(scales > 0, scales, 1).astype(np.float64)
        t = np.minimum(np.abs(x) * per_unit, self._steps)
        below = np.floor(t)
        level = below.astype(np.uint8) + (rounding_uniform(job, p) < t - below)
        negative = (np.signbit(x) & (level > 0)).astype(np.uint8)
        return bit_stream.pack(level | negative << np.uint8(self.bits - 1), self.bits)

    def _levels(self, packed: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
        magnitudes = np.arange(self._steps + 1, dtype=np.float32)
        table = np.concatenate([magnitudes, 0 - magnitudes])  # 0 - 0 is +0
        return table[bit_stream.unpack(packed, self.bits, n)]
