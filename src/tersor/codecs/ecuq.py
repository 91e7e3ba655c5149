"""ECUQ: evenly spaced levels, as many as an entropy budget allows, and their indices entropy-coded; biased.

Ron Dorfman, Shay Vargaftik, Yaniv Ben-Itzhak, Kfir Y. Levy: "DoCoFL: Downlink Compression for Cross-Device Federated
Learning", ICML 2023, arXiv 2302.00543: the codec of the anchors. FORMAT.md section 6.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs import coded
from tersor.codecs.deliver import first_nonfinite
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.reference.microscaling import clamped
from tersor.quantize.entropy_constrained_uniform import MAX_BITS, levels_for, most_levels, scale_of
from tersor.registry import register
from tersor.units import Units

_FIELDS = struct.Struct("<Q")  # bytes of the coded units
_LARGE = np.float32(2.0**100)


@register("ecuq")
@dataclass(frozen=True)
class ECUQ(Codec):
    """Entropy-constrained uniform quantization: the smallest even step whose indices have an entropy within `bits`.

    Attributes
    ----------
    bits : int or float
        The budget of entropy in bits a coordinate, above 0 and at most 10. Never exceeded; the table and a few bytes
        come on top.
    block : int or "full", default "full"
        Coordinates of a unit in a long vector, 256 to 2**24, each with a range, number of levels and table of its own;
        "full" makes the vector one unit. Rows are units.

    Notes
    -----
    With K levels on [min, max] of a unit, a value becomes the middle of its cell, off by at most (max - min) / (2 K); K
    is at least 2**floor(bits), at most 65,536 and, above that least, the unit's length. From 3 bits on the error of a
    smooth density of differential entropy h is about ``2**(2 (h - H)) / 12`` a coordinate, with H the entropy reached,
    1.53 dB above the rate-distortion bound: for N(0, 1) 0.0241 at 3 and 0.0057 at 4 bits, where Lloyd-Max has 0.0347
    and 0.0096. At 1 bit it is twice as bad as Lloyd-Max: few cells fit the budget. A single outlier costs little.

    Each unit brings a range, a number of levels, a table and a size, 14 bytes and about a byte a level, so this is for
    long units: rows of 128 numbers take 6 bits a coordinate at ``bits=4``, and half a millisecond each to encode.

    Biased: for anchors, models and other arrays that are decoded once, or whose error is inside a correction.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**18).astype(np.float32)
    >>> enc = tersor.ECUQ(bits=4).encode(x)
    >>> round(enc.bits_per_coordinate, 1), round(tersor.nmse(x, tersor.decode(enc)), 3)
    (4.0, 0.006)
    """

    bits: int | float
    block: int | str = "full"

    examples: ClassVar[tuple[str, ...]] = ("ecuq:2", "ecuq:3", "ecuq:4", "ecuq:6", "ecuq:8")
    claims: ClassVar[Claims] = Claims(
        fixed_size=False,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="2**(2 (h - H)) / 12 a coordinate for a density of entropy h, from 3 bits on",
    )
    fields_size: ClassVar[int] = _FIELDS.size

    def __post_init__(self) -> None:
        if type(self.bits) is float and self.bits.is_integer():
            object.__setattr__(self, "bits", int(self.bits))
        if type(self.bits) not in (int, float) or not 0 < self.bits <= MAX_BITS:
            raise ValueError(f"ecuq: bits must be a number above 0 and up to {MAX_BITS}, got {self.bits!r}")
        if self.block != "full" and not (type(self.block) is int and 256 <= self.block <= 2**24):
            raise ValueError(f'ecuq: block must be an integer from 256 to 2**24, or "full", got {self.block!r}')
        if self.bits >= 7:  # a step is then at most 1/64 of the largest magnitude
            object.__setattr__(self, "claims", replace(self.claims, rounds_to_nearest=True))

    @property
    def unit(self) -> int | None:
        return self.block if isinstance(self.block, int) else None

    def _most(self, n: int) -> int:
        return coded.most(n, most_levels(n, self.bits))

    def largest_fields(self, units: Units) -> bytes:
        return _FIELDS.pack(units.count * self._most(units.length))

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        n = units.count
        (total,) = _FIELDS.unpack(fields)
        return {
            **coded.specs(units, total, self._most(units.length)),
            "ranges": PlaneSpec(32, n, 8, 8 * n, "<f4"),
            "levels": PlaneSpec(16, n, 2, 2 * n, "<u2"),
        }

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        ranges, levels = np.zeros((units.count, 2), "<f4"), np.zeros(units.count, "<u2")
        made = []
        for k in range(units.count):
            part = x[k * units.length : (k + 1) * units.length]
            low, high = float(part.min()) + 0.0, float(part.max()) + 0.0  # -0 and 0 are one number
            number = 1
            if np.isfinite(low) and np.isfinite(high):
                number = levels_for(part, self.bits, low, high)
            else:
                low = high = np.nan
            symbols = np.zeros(len(part), np.uint16)
            if number > 1:
                ops.current().uniform_indices(part, low, scale_of(low, high, number), number, symbols)
            made.append(coded.encode_unit(symbols, number))
            ranges[k], levels[k] = (low, high), number - 1
        planes = coded.planes(made, units)
        planes |= {"ranges": ranges.reshape(-1).view(np.uint8), "levels": levels.view(np.uint8)}
        return Made(planes, _FIELDS.pack(len(planes["codes"])), first_bad=first_nonfinite(x))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if present is not None and not add:
            out[:] = 0
        ranges = enc.planes["ranges"].values().reshape(-1, 2).astype(np.float64)
        levels = enc.planes["levels"].values()
        for k, where, data in coded.coded_units(enc, units, present):
            number, part = int(levels[k]) + 1, out[where]
            table = _table(ranges[k, 0], ranges[k, 1], number, weight)
            coded.look_up(table, coded.decode_unit(data, len(part), number), part, add)

    def validate(self, enc: Encoded) -> None:
        units = self.units(enc.shape, enc.axis)
        ranges = enc.planes["ranges"].values().reshape(-1, 2)
        levels = enc.planes["levels"].values().astype(np.int64) + 1
        low, high = ranges[:, 0], ranges[:, 1]
        finite = np.isfinite(low) & np.isfinite(high)
        nothing = np.isnan(low) & np.isnan(high)
        good = np.where(levels > 1, finite & (low < high), (finite & (low <= high)) | nothing)
        if not good.all() or (levels > most_levels(units.length, self.bits)).any():
            raise FormatError("ecuq: a range or number of levels is not one that an encoder writes")
        for k, where, data in coded.coded_units(enc, units):
            coded.decode_unit(data, where.stop - where.start, int(levels[k]))

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((np.abs(enc.planes["ranges"].values()) > _LARGE).any())


def _table(low: float, high: float, levels: int, weight: float) -> NDArray[np.float32]:
    """Return the weighted middles of the cells, in float64 until the last step."""
    step = (high - low) / levels
    with np.errstate(over="ignore", invalid="ignore"):
        values = (low + (np.arange(levels, dtype=np.float64) + 0.5) * step) * weight + 0.0
        return clamped(values)
