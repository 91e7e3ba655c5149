"""Top-k: the coordinates of largest magnitude, exactly, and zeros elsewhere. The baseline of sparse gradients.

Dan Alistarh, Torsten Hoefler, Mikael Johansson, Sarit Khirirat, Nikola Konstantinov, Cedric Renggli: "The Convergence
of Sparsified Gradient Methods", NeurIPS 2018, arXiv 1809.10505. Biased: training needs error feedback.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.pieces import groups
from tersor.codecs.scale_types import SCALE_DTYPES, widen
from tersor.codecs.sparse import AT_ONCE, narrow_values, spoil
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.registry import register
from tersor.units import Units

_LARGE = 2.0**96
_MAGNITUDE = np.uint32(0x7FFFFFFF)


@register("topk")
@dataclass(frozen=True)
class TopK(Codec):
    """The largest coordinates of the whole vector, or of every row; the rest is 0.

    Equal magnitudes go by the lower index. An index takes ceil(log2(n)) bits.

    Attributes
    ----------
    fraction : float
        Share of coordinates to keep, above 0 and at most 1: ceil(fraction * n), at least one.
    values : {"float32", "float16", "bfloat16"}, default "float32"
        Type of a value on the wire, rounded to nearest.

    Notes
    -----
    vNMSE is the share of energy outside the largest k coordinates, at most 1 - k / n.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([3.0, -1.0, 0.5, -4.0], np.float32), "topk:0.5").tolist()
    [3.0, 0.0, 0.0, -4.0]
    """

    fraction: float
    values: str = "float32"

    examples: ClassVar[tuple[str, ...]] = ("topk:0.01", "topk:0.1")
    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="the share of ||x||**2 outside the k largest coordinates, at most 1 - k / n",
    )

    def __post_init__(self) -> None:
        check_fraction(self)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        k, width = kept(self.fraction, units.length), index_bits(units.length)
        stride = bit_stream.packed_size(k, width)
        kind = np.dtype(SCALE_DTYPES[self.values])
        return {
            "indices": PlaneSpec(width, units.count, stride, units.count * stride),
            "values": PlaneSpec(
                8 * kind.itemsize, units.count, k * kind.itemsize, units.count * k * kind.itemsize, kind.str
            ),
        }

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        k, width = kept(self.fraction, units.length), index_bits(units.length)
        places, values, dropped, energy = [], [], 0.0, 0.0
        for first, rows, length in groups(units, AT_ONCE // units.length):
            part = x[first * units.length :][: rows * length].reshape(rows, length)
            where = _largest(part, k)
            chosen = np.take_along_axis(part, where, axis=1)
            spoil(chosen, part)
            places.append(bit_stream.pack(where.astype(np.uint32), width).reshape(-1))
            values.append(narrow_values(chosen, self.values))
            with np.errstate(invalid="ignore"):
                squares = np.square(part, dtype=np.float64)
                energy += float(squares.sum())
                np.put_along_axis(squares, where, 0.0, axis=1)
                off = widen(values[-1].view(SCALE_DTYPES[self.values]), self.values).reshape(chosen.shape) - chosen
                dropped += float(squares.sum()) + float(np.square(off, dtype=np.float64).sum())
        none = [np.zeros(0, np.uint8)]
        return Made(
            {"indices": np.concatenate(places or none), "values": np.concatenate(values or none)},
            error=dropped / energy if energy else 0.0,
            first_bad=first_nonfinite(x),
        )

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not add:
            out.fill(0)
        k, plane = kept(self.fraction, units.length), enc.planes["values"].values()
        for unit, rows, begin, places in self._places(enc, units):
            at = unit * k + begin
            values = widen(plane[at : at + places.size], self.values).reshape(places.shape)
            arrived = np.ones(rows, np.bool_) if present is None else present[unit : unit + rows]
            where = places + units.length * np.arange(unit, unit + rows)[:, None]
            with np.errstate(over="ignore"):  # `estimate` saturates
                out[where[arrived]] += values[arrived] * out.dtype.type(weight)
            for spoilt in unit + np.flatnonzero(arrived & np.isnan(values).any(axis=1)):
                out[spoilt * units.length : (spoilt + 1) * units.length] = np.nan

    def _places(self, enc: Encoded, units: Units) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
        """Yield (unit, units, number of the first value in the unit, indices) for pieces of many units or of one."""
        plane, k = enc.planes["indices"], kept(self.fraction, units.length)
        for unit, rows, _ in groups(units, AT_ONCE // units.length):
            for begin in range(0, k, AT_ONCE):
                n = min(k - begin, AT_ONCE)
                offset = bit_stream.packed_size(begin, plane.bits)
                packed = plane.data[unit * plane.stride : (unit + rows) * plane.stride].reshape(rows, plane.stride)
                packed = packed[:, offset : offset + bit_stream.packed_size(n, plane.bits)]
                yield unit, rows, begin, bit_stream.unpack(packed, plane.bits, n).astype(np.int64)

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((np.abs(widen(enc.planes["values"].values(), self.values)) > _LARGE).any())

    def validate(self, enc: Encoded) -> None:
        units, last = self.units(enc.shape, enc.axis), -1
        for _, _, begin, places in self._places(enc, units):
            after = places[:, 0] > (last if begin else -1)
            if not after.all() or (places >= units.length).any() or (np.diff(places, axis=1) <= 0).any():
                raise FormatError("topk: the indices of a unit must ascend and lie inside it")
            last = int(places[-1, -1])


def kept(fraction: float, n: int) -> int:
    """Return how many of `n` coordinates a fraction keeps."""
    return min(max(math.ceil(fraction * n), 1), n)


def index_bits(n: int) -> int:
    """Return the bits of an index below `n`; at least 1."""
    return max((n - 1).bit_length(), 1)


def check_fraction(codec: Any) -> None:
    """Check the fields `fraction` and `values`; a whole fraction becomes a float, so that equal codecs are equal."""
    fraction = codec.fraction
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise ValueError(f"{codec.name}: fraction must be a number above 0 and at most 1, got {fraction!r}")
    object.__setattr__(codec, "fraction", float(fraction))
    if codec.values not in SCALE_DTYPES:
        raise ValueError(f"{codec.name}: values must be one of {', '.join(SCALE_DTYPES)}, got {codec.values!r}")


def _largest(x: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the ascending indices of the k largest magnitudes of each row, shape (rows, k); NaN counts as largest."""
    magnitudes = np.ascontiguousarray(x).view(np.uint32) & _MAGNITUDE
    n = magnitudes.shape[1]
    if k == n:
        return np.broadcast_to(np.arange(n), x.shape)
    limit = np.partition(magnitudes, n - k, axis=1)[:, n - k, None]
    chosen = np.nonzero(magnitudes >= limit)[1]
    if len(chosen) == len(x) * k:
        return chosen.reshape(-1, k)
    above = magnitudes > limit
    ties = magnitudes == limit
    ties &= np.cumsum(ties, axis=1) <= k - above.sum(axis=1, keepdims=True)
    return np.nonzero(above | ties)[1].reshape(-1, k)
