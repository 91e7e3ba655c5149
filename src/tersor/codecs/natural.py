"""Natural compression: every coordinate becomes one of the two powers of two beside it, at random; unbiased, 9 bits.

S. Horvath, C.-Y. Ho, L. Horvath, A. N. Sahu, M. Canini, P. Richtarik: "Natural Compression for Distributed Deep
Learning", 2019, arXiv 1905.10988, Definition 1.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, first_nonfinite
from tersor.codecs.pieces import pieces, put, rounding_words
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.registry import register
from tersor.units import Units

_BITS = 9
_NAN = 255


def _size(n: int) -> int:
    return bit_stream.packed_size(n, _BITS)


@register("natural")
@dataclass(frozen=True)
class Natural(Codec):
    """The sign and exponent of a float32, the exponent one higher with the probability that the mantissa says.

    Notes
    -----
    With |x_i| = m 2**e, 1 <= m < 2, the expected error of a coordinate is ``(m - 1) * (2 - m) / m**2`` of x_i**2,
    at most 1/8 (at m = 4/3). Zeros are exact. Denormals (below 2**-126) become 0 or 2**-126, unbiased, but with an
    error of any ratio. Above 2**127 there is no power of two to round up to: such values become 2**127, less than
    half too small, and this is the one place where the estimate is biased.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> np.abs(tersor.roundtrip(np.array([4, -0.125, 0], np.float32), "natural")).tolist()
    [4.0, 0.125, 0.0]
    """

    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="(m - 1) * (2 - m) / m**2 a coordinate with mantissa m, at most 1/8",
    )

    @property
    def unit(self) -> int:
        return UNIT

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        stride = _size(units.length)
        nbytes = max(units.count - 1, 0) * stride + _size(units.last)
        return {"codes": PlaneSpec(_BITS, units.count, stride, nbytes)}

    def _encode(self, job: Job) -> Made:
        x = job.host.float32()
        layout = self.layout(job.units, job.host.dtype, b"")["codes"]
        codes = np.zeros(layout.nbytes, np.uint8)
        for p in pieces(job.units):
            word = np.ascontiguousarray(p.of(x)).view(np.uint32)
            exponent = (word >> np.uint32(23)) & np.uint32(255)
            # 23 random bits against 23 of mantissa: the probability is exact, for denormals too.
            up = (rounding_words(job, p) >> np.uint32(9)) < (word & np.uint32(0x7FFFFF))
            made = exponent + (up & (exponent < 254))
            made |= np.where((made > 0) & (made < _NAN), (word >> np.uint32(31)) << np.uint32(8), np.uint32(0))
            p.bytes_of(codes, layout.stride, _size)[...] = bit_stream.pack(made.astype(np.uint16), _BITS)
        return Made({"codes": codes}, first_bad=first_nonfinite(x))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        plane = enc.planes["codes"]
        for p in pieces(units):
            packed = p.bytes_of(plane.data, plane.stride, _size)
            with np.errstate(over="ignore", invalid="ignore"):
                values = _TABLE[bit_stream.unpack(packed, _BITS, p.width)] * np.float32(weight)
            put(p, values, out, add, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        return True  # with a weight above 1; a look at all codes would take as long as clipping


def _table() -> NDArray[np.float32]:
    exponents = np.arange(512, dtype=np.uint32) & np.uint32(255)
    words = exponents << np.uint32(23) | (np.arange(512, dtype=np.uint32) >> np.uint32(8)) << np.uint32(31)
    values = words.view(np.float32)
    return np.where(exponents == _NAN, np.float32(np.nan), np.where(exponents == 0, np.float32(0), values))


_TABLE = _table()
