"""Random-k and Perm-k: coordinates chosen by the key, so that no index travels; unbiased.

Random-k: Sebastian U. Stich, Jean-Baptiste Cordonnier, Martin Jaggi: "Sparsified SGD with Memory", NeurIPS 2018, arXiv
1809.07599, scaled to be unbiased. Perm-k: Rafal Szlendak, Alexander Tyurin, Peter Richtarik: "Permutation Compressors
for Provably Faster Distributed Nonconvex Optimization", ICLR 2022, arXiv 2110.03300, definition 2.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, deliver, first_nonfinite
from tersor.codecs.pieces import groups
from tersor.codecs.scale_types import SCALE_DTYPES, widen
from tersor.codecs.sparse import AT_ONCE, narrow_values, ranked, spoil
from tersor.codecs.topk import check_fraction, kept
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.registry import register
from tersor.units import Units

_WORKER = struct.Struct("<I")
_LARGE = 2.0**96


@dataclass(frozen=True)
class _Chosen(Codec):
    """Some coordinates of every unit, chosen by the key, times one factor."""

    @property
    def unit(self) -> int:
        return UNIT

    def _kept(self, length: int) -> int:
        """Return how many values a unit of `length` has on the wire."""
        raise NotImplementedError

    def _factor(self, length: int) -> float:
        """Return what a value is multiplied with."""
        raise NotImplementedError

    def _places(
        self, key: int, fields: bytes, units: Units, start: int, first: int, rows: int, length: int
    ) -> NDArray[np.int64]:
        """Return the chosen coordinates, shape (rows, kept); `length` itself stands for none."""
        raise NotImplementedError

    def _values_dtype(self) -> str:
        return "float32"

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        kind = np.dtype(SCALE_DTYPES[self._values_dtype()])
        k = self._kept(units.length)
        total = k * max(units.count - 1, 0) + (self._kept(units.last) if units.count else 0)
        return {"values": PlaneSpec(8 * kind.itemsize, units.count, k * kind.itemsize, total * kind.itemsize, kind.str)}

    def _fields(self, job: Job) -> bytes:
        return b""

    def _encode(self, job: Job) -> Made:
        x, units, fields = job.host.float32(), job.units, self._fields(job)
        planes, error, energy = [], 0.0, 0.0
        for first, rows, length in groups(units, AT_ONCE // units.length):
            part = x[first * units.length :][: rows * length].reshape(rows, length)
            where = self._places(job.key, fields, units, job.start, first, rows, length)
            padded = np.concatenate([part, np.zeros((rows, 1), np.float32)], axis=1)
            chosen = np.take_along_axis(padded, where, axis=1)
            spoil(chosen, part)
            planes.append(narrow_values(chosen, self._values_dtype()))
            with np.errstate(invalid="ignore"):
                sent = widen(planes[-1].view(SCALE_DTYPES[self._values_dtype()]), self._values_dtype())
                exact = chosen.reshape(-1).astype(np.float64)
                total = float(np.square(part, dtype=np.float64).sum())
                off = float(np.square(sent * np.float64(self._factor(length)) - exact).sum())
                error += total - float(np.square(exact).sum()) + off
                energy += total
        return Made(
            {"values": np.concatenate(planes or [np.zeros(0, np.uint8)])},
            fields,
            error=max(error, 0.0) / energy if energy else 0.0,
            first_bad=first_nonfinite(x),
        )

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        plane, at = enc.planes["values"].values(), 0
        for first, rows, length in groups(units, AT_ONCE // units.length):
            k = self._kept(length)
            with np.errstate(over="ignore"):  # `estimate` saturates
                part = widen(plane[at : at + rows * k], self._values_dtype()) * np.float32(self._factor(length))
            part = part.reshape(rows, k)
            dense = np.zeros((rows, length + 1), np.float32)
            where = self._places(enc.key, enc.fields, units, enc.start, first, rows, length)
            np.put_along_axis(dense, where, part, axis=1)
            dense[np.isnan(part).any(axis=1)] = np.nan
            here = slice(first * units.length, first * units.length + rows * length)
            arrived = None if present is None else present[first : first + rows]
            values = dense[:, :length].reshape(-1)
            deliver(values, Units(len(values), length, units.by_rows), out[here], add, weight, arrived)
            at += rows * k

    def _may_overflow(self, enc: Encoded) -> bool:
        values = np.abs(widen(enc.planes["values"].values(), self._values_dtype()))
        return bool((values > _LARGE).any())


@register("randk")
@dataclass(frozen=True)
class RandK(_Chosen):
    """Random-k: a random share of each block's or row's coordinates, times n / k; unbiased.

    The coordinates follow from the key in the header: a value costs no index. Rows share the choice.

    Attributes
    ----------
    fraction : float
        Share of coordinates to keep, above 0 and at most 1: k = ceil(fraction * n), at least one.
    values : {"float32", "float16", "bfloat16"}, default "float32"
        Type of a value on the wire; the 16-bit ones are rounded to nearest.

    Notes
    -----
    The expected vNMSE is n / k - 1, whatever the input.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> sorted(tersor.RandK(0.5).decode(tersor.RandK(0.5).encode(np.ones(4, np.float32), seed=1)).tolist())
    [0.0, 0.0, 2.0, 2.0]
    """

    fraction: float
    values: str = "float32"

    examples: ClassVar[tuple[str, ...]] = ("randk:0.01", "randk:0.1")
    claims: ClassVar[Claims] = Claims(
        unbiased=True, row_addressable=True, tolerates_loss=True, error_law="n / k - 1 for every input"
    )

    def __post_init__(self) -> None:
        check_fraction(self)
        if self.values != "float32":
            law = type(self).claims.error_law + ", and the rounding of values"
            object.__setattr__(self, "claims", replace(type(self).claims, unbiased=False, error_law=law))

    def expected_error(self, received: float = 1.0) -> float:
        return received * (UNIT / kept(self.fraction, UNIT) - 1) + 1 - received

    def _values_dtype(self) -> str:
        return self.values

    def _kept(self, length: int) -> int:
        return kept(self.fraction, length)

    def _factor(self, length: int) -> float:
        return length / self._kept(length)

    def _places(
        self, key: int, fields: bytes, units: Units, start: int, first: int, rows: int, length: int
    ) -> NDArray[np.int64]:
        return np.sort(ranked(key, units, start, first, rows, length, self._kept(length)), axis=1)


@register("permk")
@dataclass(frozen=True)
class PermK(_Chosen):
    """Perm-k: a shared permutation deals each block's or row's coordinates out to `workers` senders; unbiased.

    Worker ``sender % workers`` sends its share times `workers`. With a shared key the mean of all workers of one vector
    is that vector: what senders have in common travels without error.

    Attributes
    ----------
    workers : int
        Number of senders, 1 to 2**16.

    Notes
    -----
    The expected vNMSE of one worker is workers - 1. Each worker sends ceil(n / workers) values; where workers do not
    divide n, some of them end with a zero, and a draw decides which.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.arange(6, dtype=np.float32)
    >>> codec, shared = tersor.PermK(workers=3), tersor.Shared(key=1)
    >>> tersor.mean([codec.encode(x, seed=2, sender=w, shared=shared) for w in range(3)]).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    workers: int

    examples: ClassVar[tuple[str, ...]] = ("permk:4",)
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="workers - 1 for every input; 0 for the mean of all workers of one vector with a shared key",
    )
    fields_size: ClassVar[int] = _WORKER.size

    def __post_init__(self) -> None:
        if type(self.workers) is not int or not 1 <= self.workers <= 2**16:
            raise ValueError(f"permk: workers must be an integer from 1 to 2**16, got {self.workers!r}")

    def expected_error(self, received: float = 1.0) -> float:
        return received * (self.workers - 1) + 1 - received

    def validate(self, enc: Encoded) -> None:
        if _WORKER.unpack(enc.fields)[0] >= self.workers:
            raise FormatError(f"permk: worker {_WORKER.unpack(enc.fields)[0]} of {self.workers}")

    def _fields(self, job: Job) -> bytes:
        return _WORKER.pack(job.sender % self.workers)

    def _kept(self, length: int) -> int:
        return -(-length // self.workers)

    def _factor(self, length: int) -> float:
        return float(self.workers)

    def _places(
        self, key: int, fields: bytes, units: Units, start: int, first: int, rows: int, length: int
    ) -> NDArray[np.int64]:
        # The coordinate of rank r belongs to worker (r + offset) % workers, so that the shorter shares move about.
        order = ranked(key, units, start, first, rows, length, length)
        at, draws = (0, 1) if units.by_rows else (start // units.length + first, rows)
        offsets = rng.words(key, rng.SELECTION, 1, at, draws).astype(np.int64)
        k = self._kept(length)
        worker = _WORKER.unpack(fields)[0]
        ranks = (worker - offsets[:, None]) % self.workers + self.workers * np.arange(k)
        ranks = np.broadcast_to(np.minimum(ranks, length), (rows, k))
        padded = np.concatenate([order, np.full((rows, 1), length)], axis=1)
        return np.take_along_axis(padded, ranks, axis=1)
