"""UnitLevels: codecs whose units bring a table of 2**bits levels of their own, and a code a coordinate."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec, Job, Made
from tersor.codecs import level_grid
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.pieces import groups, largest
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, NonFiniteError
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
        if self.level_dtype not in ("auto", *level_grid.LEVEL_DTYPES):
            kinds = ", ".join(level_grid.LEVEL_DTYPES)
            raise ValueError(f"{self.name}: level_dtype must be auto or one of {kinds}, got {self.level_dtype!r}")
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
        coordinates than levels, which then are its values; else uint16. Two levels are both ends, float32.
        """
        if self.n_levels <= 2:
            return "float32"
        if self.level_dtype != "auto":
            return self.level_dtype
        return "float32" if length >= 256 * self.n_levels or length <= self.n_levels else "uint16"

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        stride = packed_size(units.length, self.bits)
        nbytes = max(units.count - 1, 0) * stride + packed_size(units.last, self.bits)
        levels = level_grid.layout(units, self.n_levels, self.held_as(units.length))
        return {"codes": PlaneSpec(self.bits, units.count, stride, nbytes), **levels}

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
        wire = level_grid.narrow(best, held, outward=self.n_levels >> self.bits)
        levels = level_grid.widen(wire, self.n_levels, held)
        error, energy = self._round(job, x, levels.reshape(-1), codes)
        if lost.any():
            best[lost] = np.nan
            wire = level_grid.narrow(best, held, outward=self.n_levels >> self.bits)
        planes = {"codes": codes, **{name: values.view(np.uint8) for name, values in wire.items()}}
        return Made(planes, fields, None if bad >= 0 else error / energy if energy else 0.0, bad)

    def _fields(self, job: Job) -> bytes:
        return b""

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
        held = self.held_as(units.length)
        planes = {name: plane.values() for name, plane in enc.planes.items() if name != "codes"}
        return level_grid.widen(planes, self.n_levels, held).reshape(-1)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        codes, levels = np.ascontiguousarray(enc.planes["codes"].data), self._levels(enc, units)
        flags = _NONE if present is None else present.astype(np.uint8)
        ops.current().levels_decode(codes, units.length, levels, self.bits, weight, add, flags, out)

    def validate(self, enc: Encoded) -> None:
        if level_grid.damaged(enc, self.n_levels, self.held_as(enc.units.length), AT_ONCE):
            raise FormatError(f"{self.name}: the levels of a unit are not finite and ascending")
