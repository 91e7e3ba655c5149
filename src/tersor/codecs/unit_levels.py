"""UnitLevels: codecs whose units bring a table of 2**bits levels of their own, and a code a coordinate."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import float32_to_bfloat16
from tersor.codec import Codec, Job, Made
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.pieces import groups, largest
from tersor.codecs.scale_types import SCALE_DTYPES, widen
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, NonFiniteError, RangeError
from tersor.kernels import ops
from tersor.quantize import adaptive
from tersor.units import Units

EXACT_BELOW = 4096  # "auto": levels of longer units come from a histogram
AT_ONCE = 1 << 20  # coordinates whose levels are searched, or levels that are checked, in one step
_NONE = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class UnitLevels(Codec):
    """A coordinate is one of its unit's levels; a subclass says which levels are best and how it rounds to them."""

    bits: int
    block: int | str = "full"
    level_dtype: str = "auto"
    method: adaptive.Method = "auto"

    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 8:
            raise ValueError(f"{self.name}: bits must be an integer from 1 to 8, got {self.bits!r}")
        if self.block != "full" and not (type(self.block) is int and 8 <= self.block <= 2**24):
            raise ValueError(f'{self.name}: block must be an integer from 8 to 2**24, or "full", got {self.block!r}')
        if self.level_dtype not in ("auto", *SCALE_DTYPES):
            raise ValueError(
                f"{self.name}: level_dtype must be auto or one of {', '.join(SCALE_DTYPES)}, got {self.level_dtype!r}"
            )
        if self.method not in ("auto", "exact", "histogram"):
            raise ValueError(f"{self.name}: method must be auto, exact or histogram, got {self.method!r}")

    @property
    def unit(self) -> int | None:
        return self.block if isinstance(self.block, int) else None

    @property
    def n_levels(self) -> int:
        """Levels of a unit."""
        return 1 << self.bits

    def held_as(self, length: int) -> str:
        """Return the type on the wire of the levels of units of `length` coordinates.

        "auto": float32 where its 16 more bits a level are at most 1/16 bit a coordinate, and where a unit has no more
        coordinates than levels, which then are its values; else bfloat16.
        """
        if self.level_dtype != "auto":
            return self.level_dtype
        return "float32" if length >= 256 * self.n_levels or length <= self.n_levels else "bfloat16"

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        stride = packed_size(units.length, self.bits)
        nbytes = max(units.count - 1, 0) * stride + packed_size(units.last, self.bits)
        kind = np.dtype(SCALE_DTYPES[self.held_as(units.length)])
        table = kind.itemsize * self.n_levels
        return {
            "codes": PlaneSpec(self.bits, units.count, stride, nbytes),
            "levels": PlaneSpec(8 * kind.itemsize, units.count, table, units.count * table, kind.str),
        }

    def _encode(self, job: Job) -> Made:
        x, units = np.ascontiguousarray(job.host.float32()), job.units
        layout, fields = self.layout(units, job.host.dtype, bytes(self.fields_size)), self._fields(job)
        codes, bad, lost = np.zeros(layout["codes"].nbytes, np.uint8), -1, np.zeros(units.count, np.bool_)
        try:
            best = self._search(x, units)
        except NonFiniteError:
            bad, lost = first_nonfinite(x), ~np.isfinite(largest(x, units))
            if not job.propagate:
                planes = {name: np.zeros(plane.nbytes, np.uint8) for name, plane in layout.items()}
                return Made(planes, fields, first_bad=bad)
            x = np.where(np.repeat(lost, units.length)[: units.size], np.float32(0), x)
            best = self._search(x, units)
        held = self.held_as(units.length)
        wire = self._narrow(best, held, x, units)
        levels = widen(wire, held)
        if np.isinf(levels).any():
            unit = int(np.argmax(np.isinf(levels).any(axis=1)))
            raise RangeError(f"unit {unit}: a level does not fit in {held}; use another level_dtype, or scale down")
        error, energy = self._round(job, x, levels.reshape(-1), codes)
        wire[lost] = narrow(np.full((1, 1), np.nan, np.float32), held)
        planes = {"codes": codes, "levels": wire.reshape(-1).view(np.uint8)}
        return Made(planes, fields, None if bad >= 0 else error / energy if energy else 0.0, bad)

    def _fields(self, job: Job) -> bytes:
        return b""

    def _narrow(self, best: NDArray[np.float32], held: str, x: NDArray[np.float32], units: Units) -> NDArray[Any]:
        """Return levels as they go on the wire, shape (units, n_levels)."""
        return narrow(best, held, outward=int(self.stochastic))

    def _round(
        self, job: Job, x: NDArray[np.float32], levels: NDArray[np.float32], codes: NDArray[np.uint8]
    ) -> tuple[float, float]:
        """Fill `codes`; return the squared error made and the energy of `x`."""
        return ops.current().levels_encode(
            x, job.units.length, levels, self.bits, job.private, job.word, self.stochastic, codes
        )

    def _search(self, x: NDArray[np.float32], units: Units) -> NDArray[np.float32]:
        """Return the best levels of every unit, shape (units, 2**bits); one unit's do not depend on the others."""
        s = 1 << self.bits
        made = np.empty((units.count, s), np.float32)
        for k, m, n in groups(units, AT_ONCE // units.length):
            rows = x[k * units.length :][: m * n].reshape(m, n)
            if self.method == "exact" or (self.method == "auto" and n <= EXACT_BELOW):
                made[k : k + m] = adaptive.levels(rows, s, unbiased=self.stochastic, axis=-1)
                continue
            for i, row in enumerate(rows):
                found = adaptive.levels(row, s, method=self.method, unbiased=self.stochastic)
                made[k + i, : len(found)], made[k + i, len(found) :] = found, found[-1]
        made += np.float32(0)  # no -0: which zero of several is found depends on the machine
        return made

    def _levels(self, enc: Encoded, units: Units) -> NDArray[np.float32]:
        return widen(enc.planes["levels"].values(), self.held_as(units.length))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        codes, levels = np.ascontiguousarray(enc.planes["codes"].data), self._levels(enc, units)
        flags = _NONE if present is None else present.astype(np.uint8)
        ops.current().levels_decode(codes, units.length, levels, self.bits, weight, add, flags, out)

    def validate(self, enc: Encoded) -> None:
        values, held = enc.planes["levels"].values(), self.held_as(enc.units.length)
        step = AT_ONCE // self.n_levels * self.n_levels
        for begin in range(0, len(values), step):
            table = widen(values[begin : begin + step], held).reshape(-1, self.n_levels)
            ascending = np.isfinite(table).all(axis=1) & (table[:, 1:] >= table[:, :-1]).all(axis=1)
            if not (ascending | np.isnan(table).all(axis=1)).all():
                raise FormatError(f"{self.name}: the levels of a unit are not finite and ascending")


def narrow(levels: NDArray[np.float32], dtype: str, *, outward: int = 0) -> NDArray[Any]:
    """Round rows of ascending levels to the type on the wire: to nearest, ties to even.

    The `outward` first of a row are rounded down and as many last ones up, as are those equal to these: what lies
    between the levels, or the means of so many, then lies between the rounded ones. What is beyond float16 becomes
    infinite; bfloat16 does so only with `outward`, else it saturates.
    """
    if dtype == "float32":
        return levels.astype("<f4")
    if dtype == "bfloat16":
        bits = float32_to_bfloat16(levels)
    else:
        with np.errstate(over="ignore", under="ignore"):
            bits = levels.astype(np.float16).view(np.uint16)
    if outward:
        sign = np.uint16(0x8000)
        held = widen(bits if dtype == "bfloat16" else bits.view(np.float16), dtype)
        last, first = levels >= levels[:, -outward, None], np.s_[:, :outward]
        last[first] = False
        bits = np.where(last & (held < levels), _next_up(bits), bits)
        above = held[first] > levels[first]
        bits[first] = np.where(above, _next_up(bits[first] ^ sign) ^ sign, bits[first])
    return bits.astype("<u2") if dtype == "bfloat16" else bits.view(np.float16).astype("<f2")


def _next_up(bits: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the bit patterns of the next greater numbers of a 16-bit float type; -0 counts as 0."""
    negative, magnitude = bits >= 0x8000, bits & np.uint16(0x7FFF)
    made: NDArray[np.uint16] = np.where(negative & (magnitude > 0), bits - np.uint16(1), magnitude + np.uint16(1))
    return made
