"""Top-K: the coordinates of largest magnitude, with their indices; biased, for use with error feedback.

A. F. Aji, K. Heafield: "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv 1704.05021; S. U.
Stich, J.-B. Cordonnier, M. Jaggi: "Sparsified SGD with Memory", NeurIPS 2018, arXiv 1809.07599, Definition 2.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.keyed import check_fraction, kept
from tersor.codecs.pieces import PIECE
from tersor.codecs.sparse import WIRE, check_values, from_wire, to_wire
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.registry import register
from tersor.units import Units


@register("topk")
@dataclass(frozen=True)
class TopK(Codec):
    """The k = max(1, ceil(fraction * n)) largest magnitudes of the vector, or of every row; the others are 0.

    Attributes
    ----------
    fraction : float
        Share of the coordinates that are sent, above 0, at most 1.
    values : {"float32", "float16", "bfloat16"}, default "float32"
        Type of the values on the wire; rounded to nearest.

    Notes
    -----
    The error is the energy of what is not sent, at most 1 - k / n of all; `enc.error` is that of the message. Of equal
    magnitudes those of the lowest indices are sent. An index takes ceil(log2 n) bits; indices rise.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([1, -5, 3, 0.5], np.float32), "topk:0.5").tolist()
    [0.0, -5.0, 3.0, 0.0]
    """

    fraction: float
    values: str = "float32"

    claims: ClassVar[Claims] = Claims(
        row_addressable=True, tolerates_loss=True, shared_rotation=True, error_law="at most 1 - k / n, k of n sent"
    )

    def __post_init__(self) -> None:
        check_fraction(self.name, self.fraction)
        check_values(self.name, self.values)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        n = units.length
        k, width, kind = kept(self.fraction, n), _index_bits(n), np.dtype(WIRE[self.values])
        if width > 32:
            raise FormatError(f"topk: {n} coordinates of one unit are more than 2**32")
        stride = bit_stream.packed_size(k, width)
        return {
            "indices": PlaneSpec(width, units.count, stride, units.count * stride),
            "values": PlaneSpec(
                8 * kind.itemsize, units.count, k * kind.itemsize, units.count * k * kind.itemsize, kind.str
            ),
        }

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        n, bad = units.length, first_nonfinite(x)
        k, width = kept(self.fraction, n), _index_bits(n)
        planes = {name: np.zeros(p.nbytes, np.uint8) for name, p in self.layout(units, job.host.dtype, b"").items()}
        index_size, value_size = bit_stream.packed_size(k, width), k * np.dtype(WIRE[self.values]).itemsize
        lost = energy = 0.0
        per = max(PIECE // n, 1)
        for first in range(0, units.count, per):
            rows = x[first * n : (first + per) * n].reshape(-1, n)
            finite: NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1), np.bool_)
            clean = np.where(finite[:, None], rows, np.float32(0)) if bad >= 0 else rows
            mask = _largest(np.abs(clean), k)
            indices = np.nonzero(mask)[1].reshape(len(rows), k)
            sent = clean[mask].reshape(len(rows), k)
            sent[~finite] = np.nan
            wire, stop = to_wire(sent, self.values), first + len(rows)
            if width:
                planes["indices"][first * index_size : stop * index_size] = bit_stream.pack(
                    indices.astype(np.uint32), width
                ).reshape(-1)
            planes["values"][first * value_size : stop * value_size] = wire
            if bad < 0:
                rounded = from_wire(wire, self.values).reshape(sent.shape).astype(np.float64)
                lost += float(np.sum(np.square(clean[~mask], dtype=np.float64)) + np.sum((rounded - sent) ** 2))
                energy += float(np.sum(np.square(clean, dtype=np.float64)))
        return Made(planes, error=(lost / energy if energy else 0.0) if bad < 0 else None, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        factor = out.dtype.type(weight)
        if not add:
            out[:] = 0
        for first, _, indices, sent in self._parts(enc, units):
            arrived = np.ones(len(sent), np.bool_) if present is None else present[first : first + len(sent)]
            flat = (indices.astype(np.int64) + (first + np.arange(len(sent))[:, None]) * units.length)[arrived]
            with np.errstate(over="ignore", invalid="ignore"):
                out[flat] += sent[arrived] * factor
            for k in np.flatnonzero(np.isnan(sent).any(axis=1) & arrived).tolist():
                out[(first + k) * units.length : (first + k + 1) * units.length] = np.nan

    def _parts(self, enc: Encoded, units: Units) -> Iterator[tuple[int, int, NDArray[np.uint32], NDArray[np.float32]]]:
        """Yield (first unit, first place, indices, values) of whole units or of parts of one, each of shape (m, j)."""
        n = units.length
        k, width = kept(self.fraction, n), _index_bits(n)
        index_size, bytes_each = bit_stream.packed_size(k, width), np.dtype(WIRE[self.values]).itemsize
        per, packed, wire = max(PIECE // n, 1), enc.planes["indices"].data, enc.planes["values"].data
        step = k if per > 1 else PIECE
        for first in range(0, units.count, per):
            rows = min(per, units.count - first)
            for place in range(0, k, step):
                j = min(step, k - place)
                begin, size = first * index_size + place * width // 8, bit_stream.packed_size(j, width)
                indices = np.zeros((rows, j), np.uint32)
                if width:
                    indices[...] = bit_stream.unpack(packed[begin : begin + rows * size].reshape(rows, size), width, j)
                at = (first * k + place) * bytes_each
                yield (
                    first,
                    place,
                    indices,
                    from_wire(wire[at : at + rows * j * bytes_each], self.values).reshape(rows, j),
                )

    def validate(self, enc: Encoded) -> None:
        last = -1
        for _, place, indices, _ in self._parts(enc, enc.units):
            rising = (indices[:, 1:] > indices[:, :-1]).all() and (not place or int(indices[0, 0]) > last)
            if not rising or (indices[:, -1] >= enc.units.length).any():
                raise FormatError("topk: indices do not rise, or are beyond the unit")
            last = int(indices[-1, -1])

    def _may_overflow(self, enc: Encoded) -> bool:
        return self.values != "float16"


def _index_bits(n: int) -> int:
    return max(n - 1, 0).bit_length()


def _largest(magnitude: NDArray[np.float32], k: int) -> NDArray[np.bool_]:
    """Mark the k largest of every row; of equal ones those of the lowest indices."""
    n = magnitude.shape[1]
    least = np.partition(magnitude, n - k, axis=1)[:, n - k, None]
    above = magnitude > least
    room = k - above.sum(axis=1, keepdims=True)
    equal = magnitude == least
    chosen: NDArray[np.bool_] = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return chosen
