"""Rand-K and Perm-K: coordinates that a key chooses, so that only their values travel; unbiased.

Rand-K: J. Konecny, P. Richtarik: "Randomized Distributed Mean Estimation: Accuracy vs. Communication", 2016, arXiv
1611.07555, Section 4. Perm-K: R. Szlendak, A. Tyurin, P. Richtarik: "Permutation Compressors for Provably Faster
Distributed Nonconvex Optimization", ICLR 2022, arXiv 2110.03300, Definitions 2 and 3.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, first_nonfinite
from tersor.codecs.pieces import PIECE, Piece, put
from tersor.codecs.sparse import TOGETHER, WIRE, check_values, choices, from_wire, to_wire
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.registry import register
from tersor.units import Units

_WORKER = struct.Struct("<H")


@dataclass(frozen=True)
class _Keyed(Codec):
    """A keyed choice of every unit's coordinates; a subclass says which and by what factor they grow."""

    @property
    def unit(self) -> int:
        return UNIT

    @property
    def _values(self) -> str:
        return str(getattr(self, "values"))  # noqa: B009 - a field of the subclasses, at a place of their choice

    def _kept(self, n: int) -> int:
        """Return how many values a unit of n coordinates sends."""
        raise NotImplementedError

    def _factor(self, n: int) -> float:
        """Return what values of a unit of n coordinates are multiplied by."""
        raise NotImplementedError

    def _chosen(self, key: int, starts: list[int], n: int, fields: bytes) -> NDArray[np.int64]:
        """Return the coordinates sent, shape (len(starts), kept); n and more stand for none."""
        raise NotImplementedError

    def _fields(self, job: Job) -> bytes:
        return b""

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        kind = np.dtype(WIRE[self._values])
        stride = self._kept(units.length) * kind.itemsize
        nbytes = max(units.count - 1, 0) * stride + (self._kept(units.last) * kind.itemsize if units.size else 0)
        return {"values": PlaneSpec(8 * kind.itemsize, units.count, stride, nbytes, kind.str)}

    def _groups(self, key: int, start: int, units: Units, fields: bytes) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
        """Yield whole units, few enough for a cache, with the coordinates chosen; all rows share one choice."""
        if not units.size:
            return
        if units.by_rows:
            one = self._chosen(key, [0], units.length, fields)
            per = max(PIECE // units.length, 1)
            for k in range(0, units.count, per):
                rows = min(per, units.count - k)
                yield Piece(k, rows, 0, units.length, k * units.length), one
            return
        whole = units.count if units.last == units.length else units.count - 1
        per = max(TOGETHER // units.length, 1)
        groups = [(k, min(per, whole - k), units.length) for k in range(0, whole, per)]
        if whole < units.count:
            groups.append((whole, 1, units.last))
        for first, rows, n in groups:
            starts = [start + k * units.length for k in range(first, first + rows)]
            yield Piece(first, rows, 0, n, first * units.length), self._chosen(key, starts, n, fields)

    def _encode(self, job: Job) -> Made:
        x, units, fields = job.host.float32(), job.units, self._fields(job)
        plane = self.layout(units, job.host.dtype, fields)["values"]
        wire = np.zeros(plane.nbytes, np.uint8)
        bad = first_nonfinite(x)
        for p, chosen in self._groups(job.key, job.start, units, fields):
            part = p.of(x)
            none = chosen >= p.width
            taken = np.take_along_axis(part, np.broadcast_to(np.where(none, 0, chosen), (p.rows, chosen.shape[1])), 1)
            sent = np.where(none, np.float32(0), taken)
            if bad >= 0:
                sent[~np.isfinite(part).all(axis=1)] = np.nan
            made = to_wire(sent, self._values)
            wire[p.first * plane.stride : p.first * plane.stride + len(made)] = made
        return Made({"values": wire}, fields, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        plane = enc.planes["values"]
        for p, chosen in self._groups(enc.key, enc.start, units, enc.fields):
            n, kept = p.width, self._kept(p.width)
            size = p.rows * kept * plane.bits // 8
            begin = p.first * plane.stride
            sent = from_wire(plane.data[begin : begin + size], self._values).reshape(p.rows, kept)
            values = np.zeros((p.rows, n), np.float32)
            used = np.broadcast_to(chosen < n, sent.shape)
            with np.errstate(over="ignore", invalid="ignore"):
                grown = sent * np.float32(self._factor(n) * weight)
            rows = np.broadcast_to(np.arange(p.rows)[:, None], sent.shape)[used]
            values[rows, np.broadcast_to(chosen, sent.shape)[used]] = grown[used]
            values[np.isnan(sent).any(axis=1)] = np.nan
            put(p, values, out, add, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        return self._values != "float16"


@register("randk")
@dataclass(frozen=True)
class RandK(_Keyed):
    """k = max(1, ceil(fraction * n)) coordinates of every block or row, chosen by the header's key, times n / k.

    Attributes
    ----------
    fraction : float
        Share of the coordinates that are sent, above 0, at most 1.
    values : {"float32", "float16", "bfloat16"}, default "float32"
        Their type on the wire; float16 and bfloat16 round to nearest.

    Notes
    -----
    The vNMSE is exactly n / k - 1. All rows of a message send the same coordinates. Senders that share a key choose
    alike, so that their mean has the error of one: give each a key of its own.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x_hat = tersor.roundtrip(np.ones(8, np.float32), "randk:0.25", seed=1)
    >>> sorted(x_hat.tolist())
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 4.0]
    """

    fraction: float
    values: str = "float32"

    claims: ClassVar[Claims] = Claims(
        unbiased=True, row_addressable=True, tolerates_loss=True, error_law="n / k - 1, k of n coordinates sent"
    )

    def __post_init__(self) -> None:
        check_fraction(self.name, self.fraction)
        check_values(self.name, self.values)

    def _kept(self, n: int) -> int:
        return kept(self.fraction, n)

    def _factor(self, n: int) -> float:
        return n / self._kept(n)

    def _chosen(self, key: int, starts: list[int], n: int, fields: bytes) -> NDArray[np.int64]:
        return choices(key, starts, n, 0, self._kept(n))

    def expected_error(self, received: float = 1.0) -> float:
        one = self._factor(UNIT) - 1
        return received * one + 1 - received


@register("permk")
@dataclass(frozen=True)
class PermK(_Keyed):
    """A keyed permutation of every block or row, split among the workers: each sends its part, times `workers`.

    Attributes
    ----------
    workers : int
        Senders that share the coordinates, 1 to 4096; worker ``sender % workers`` sends.
    values : {"float32", "float16", "bfloat16"}, default "float32"
        Their type on the wire; float16 and bfloat16 round to nearest.

    Notes
    -----
    Alone, a message is unbiased with a vNMSE of exactly workers - 1. The mean of all workers' messages of one vector
    with a shared key is that vector. Where `workers` does not divide n, the permutation is one of the next multiple of
    it, whose places beyond n send a 0: every message has ceil(n / workers) values a unit.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> codec, x = tersor.PermK(workers=4), np.arange(10, dtype=np.float32)
    >>> sent = [codec.encode(x, seed=1, sender=i, shared=tersor.Shared(7)) for i in range(4)]
    >>> bool(np.array_equal(tersor.mean(sent), x))
    True
    """

    workers: int
    values: str = "float32"

    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="workers - 1 alone; 0 for the mean of all workers of one vector with a shared key",
    )
    fields_size: ClassVar[int] = _WORKER.size

    def __post_init__(self) -> None:
        if type(self.workers) is not int or not 1 <= self.workers <= 4096:
            raise ValueError(f"permk: workers must be an integer from 1 to 4096, got {self.workers!r}")
        check_values(self.name, self.values)

    def _fields(self, job: Job) -> bytes:
        return _WORKER.pack(job.sender % self.workers)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        (worker,) = _WORKER.unpack(fields)
        if worker >= self.workers:
            raise FormatError(f"permk: worker {worker} of {self.workers}")
        return super().layout(units, dtype, fields)

    def _kept(self, n: int) -> int:
        return -(-n // self.workers)

    def _factor(self, n: int) -> float:
        return float(self.workers)

    def _chosen(self, key: int, starts: list[int], n: int, fields: bytes) -> NDArray[np.int64]:
        (worker,) = _WORKER.unpack(fields)
        count = self._kept(n)
        return choices(key, starts, count * self.workers, worker * count, count)

    def expected_error(self, received: float = 1.0) -> float:
        return received * (self.workers - 1) + 1 - received


def kept(fraction: float, n: int) -> int:
    """Return max(1, ceil(fraction * n)), the coordinates of n that are sent; 0 of none.

    Examples
    --------
    >>> [kept(0.1, n) for n in (0, 1, 10, 11)]
    [0, 1, 1, 2]
    """
    return min(max(1, math.ceil(fraction * n)), n)


def check_fraction(name: str, fraction: float) -> None:
    """Raise ValueError unless `fraction` is above 0 and at most 1."""
    if type(fraction) not in (int, float) or not 0 < fraction <= 1:
        raise ValueError(f"{name}: fraction must be above 0 and at most 1, got {fraction!r}")
