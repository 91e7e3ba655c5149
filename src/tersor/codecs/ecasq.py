"""ECASQ: the levels of least error among those whose codes have at most a given entropy, stochastic rounding, rANS.

Ran Ben Basat, Yaniv Ben-Itzhak, Michael Mitzenmacher, Shay Vargaftik: "Entropy-Constrained Adaptive Stochastic
Quantization", 2026, arXiv 2608.18147 (reconstructed from the abstract). FORMAT.md section 6.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs import coded
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.pieces import groups
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.reference.microscaling import clamped
from tersor.quantize import entropy_constrained
from tersor.registry import register
from tersor.units import Units

_FIELDS = struct.Struct("<QQ")  # bytes of the coded units, levels of all units
_WIDTH = 8  # of a code while the kernels have it
_SIZE = 1 << _WIDTH
_AT_ONCE = 1 << 20  # coordinates, or entries of tables, in one step
_LARGE = np.float32(2.0**100)


@register("ecasq")
@dataclass(frozen=True)
class ECASQ(Codec):
    """Entropy-constrained adaptive stochastic quantization: unbiased, without a rotation, levels of each unit's own.

    Attributes
    ----------
    entropy : int or float
        The budget in bits a coordinate, above 0 and at most 8: the entropy that the codes are expected to have. The
        levels and the table come on top. Below 1 bit it may be out of reach, as the extremes of a unit are levels.
    block : int or "full", default "full"
        Coordinates of a unit in a long vector, 256 to 2**24, each with levels of its own; "full" makes the vector one
        unit. Rows are units.
    max_levels : int, default 64
        Levels of a unit at most, 2 to 256.

    Notes
    -----
    At high rates the step is even and the error of a smooth density of differential entropy h is ``2**(2 (h - H)) / 6``
    a coordinate, with H the entropy: twice that of `ecuq`, which is biased, but it falls with the number of senders.

    Raises
    ------
    InfeasibleError
        From `encode`, if no levels of a unit have so little entropy; the message names the least.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**14).astype(np.float32)
    >>> enc = tersor.ECASQ(entropy=2).encode(x, seed=1)
    >>> 1.9 < enc.bits_per_coordinate < 2.2, 0.1 < enc.error < 0.3
    (True, True)
    """

    entropy: int | float
    block: int | str = "full"
    max_levels: int = 64

    examples: ClassVar[tuple[str, ...]] = ("ecasq:1", "ecasq:2", "ecasq:3", "ecasq:4")
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        fixed_size=False,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="the least over levels of that entropy; 2**(2 (h - H)) / 6 a coordinate at high rates",
    )
    fields_size: ClassVar[int] = _FIELDS.size

    def __post_init__(self) -> None:
        if type(self.entropy) is float and self.entropy.is_integer():
            object.__setattr__(self, "entropy", int(self.entropy))
        if type(self.entropy) not in (int, float) or not 0 < self.entropy <= _WIDTH:
            raise ValueError(f"ecasq: entropy must be a number above 0 and up to {_WIDTH}, got {self.entropy!r}")
        if self.block != "full" and not (type(self.block) is int and 256 <= self.block <= 2**24):
            raise ValueError(f'ecasq: block must be an integer from 256 to 2**24, or "full", got {self.block!r}')
        if type(self.max_levels) is not int or not 2 <= self.max_levels <= _SIZE:
            raise ValueError(f"ecasq: max_levels must be an integer from 2 to {_SIZE}, got {self.max_levels!r}")

    @property
    def unit(self) -> int | None:
        return self.block if isinstance(self.block, int) else None

    def _most(self, n: int) -> int:
        """Return the most levels that a unit of n coordinates has: no more than coordinates."""
        return min(self.max_levels, n)

    def largest_fields(self, units: Units) -> bytes:
        most = self._most(units.length)
        return _FIELDS.pack(units.count * coded.most(units.length, most), units.count * most)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        total, levels = _FIELDS.unpack(fields)
        n, most = units.count, self._most(units.length)
        if not n <= levels <= n * most:
            raise FormatError(f"ecasq: {n} units cannot have {levels} levels")
        return {
            **coded.specs(units, total, coded.most(units.length, most)),
            "numbers": PlaneSpec(8, n, 1, n, "|u1"),
            "levels": PlaneSpec(32, n, 0, 4 * levels, "<f4"),
        }

    def _encode(self, job: Job) -> Made:
        x, units = np.ascontiguousarray(job.host.float32()), job.units
        bad = first_nonfinite(x)
        if bad >= 0 and not job.propagate:
            empty = [bytes(coded.least(min(units.length, units.size - k * units.length))) for k in range(units.count)]
            return self._made(empty, [np.full(1, np.nan, np.float32)] * units.count, units, bad, None)
        made: list[bytes] = []
        levels: list[NDArray[np.float32]] = []
        error = energy = 0.0
        for first, m, n in groups(units, _AT_ONCE // max(units.length, _SIZE)):
            rows = x[first * units.length :][: m * n].reshape(m, n)
            lost = np.asarray(~np.isfinite(rows).all(axis=1))
            rows = np.where(lost[:, None], np.float32(0), rows) if lost.any() else rows
            found = [self._search(row, first + k) for k, row in enumerate(rows)]
            tables = np.stack([np.append(f, np.full(_SIZE - len(f), f[-1], np.float32)) for f in found])
            codes = np.empty(m * n, np.uint8)
            part = ops.current().levels_encode(
                rows.reshape(-1),
                n,
                tables.reshape(-1),
                _WIDTH,
                job.private,
                job.word + first * units.length,
                True,
                codes,
            )
            error, energy = error + part[0], energy + part[1]
            made += [coded.encode_unit(c, len(f)) for c, f in zip(codes.reshape(m, n), found, strict=True)]
            levels += [np.full(1, np.nan, np.float32) if gone else f for f, gone in zip(found, lost, strict=True)]
        return self._made(made, levels, units, bad, None if bad >= 0 else error / energy if energy else 0.0)

    def _search(self, row: NDArray[np.float32], unit: int) -> NDArray[np.float32]:
        try:
            most = max(self._most(len(row)), 2)
            return entropy_constrained.levels(row, self.entropy, max_levels=most).levels
        except entropy_constrained.InfeasibleError as error:
            raise entropy_constrained.InfeasibleError(f"unit {unit}: {error}", error.least) from error

    def _made(
        self, made: list[bytes], levels: list[NDArray[np.float32]], units: Units, bad: int, error: float | None
    ) -> Made:
        planes = coded.planes(made, units)
        planes["numbers"] = np.array([len(f) - 1 for f in levels], np.uint8)
        planes["levels"] = np.concatenate([np.zeros(0, "<f4"), *levels]).astype("<f4").view(np.uint8)
        fields = _FIELDS.pack(len(planes["codes"]), len(planes["levels"]) // 4)
        return Made(planes, fields, error=error, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if present is not None and not add:
            out[:] = 0
        numbers, begins = _numbers(enc)
        levels = enc.planes["levels"].values()
        for k, where, data in coded.coded_units(enc, units, present):
            part, own = out[where], levels[begins[k] : begins[k] + numbers[k]]
            with np.errstate(over="ignore", invalid="ignore"):
                table = clamped(own.astype(np.float64) * weight + 0.0)
            coded.look_up(table, coded.decode_unit(data, len(part), int(numbers[k])), part, add)

    def validate(self, enc: Encoded) -> None:
        units = self.units(enc.shape, enc.axis)
        numbers, begins = _numbers(enc)
        levels = enc.planes["levels"].values()
        if int(numbers.sum()) != len(levels) or (numbers > self._most(units.length)).any():
            raise FormatError("ecasq: the numbers of levels contradict the message")
        rising = np.diff(levels) > 0
        rising[begins[1:] - 1] = True  # another unit
        nothing = np.isnan(levels[begins]) & (numbers == 1)
        finite = np.isfinite(levels)
        finite[begins] |= nothing
        if not rising.all() or not finite.all():
            raise FormatError("ecasq: the levels of a unit are not finite and ascending")
        for k, where, data in coded.coded_units(enc, units):
            coded.decode_unit(data, where.stop - where.start, int(numbers[k]))

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((np.abs(enc.planes["levels"].values()) > _LARGE).any())


def _numbers(enc: Encoded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many levels each unit has, and where its own begin."""
    numbers = enc.planes["numbers"].values().astype(np.int64) + 1
    return numbers, np.cumsum(numbers) - numbers
