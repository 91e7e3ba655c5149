"""Uniform stochastic quantization on a range that all senders share: unbiased, and its codes add as integers."""

import struct
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs import sq_forms, sums
from tersor.codecs.deliver import UNIT, first_nonfinite
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, IncompatibleError, RangeError
from tersor.kernels import ops
from tersor.registry import register
from tersor.shared import Shared
from tersor.units import Units

_FIELDS = struct.Struct("<ffB")
_ROTATED_FIELDS = struct.Struct("<ddB")
_SUM_WIDTHS = (8, 16, 32)
_LARGE = 2.0**100  # estimates may pass the largest float32 from here on
_BEYOND = 2.0**160  # more than a rotation makes of float32 values


@register("sq")
@dataclass(frozen=True)
class StochasticQuantization(Codec):
    """Stochastic quantization (SQ): 2**bits levels spread evenly over [min, max], rounded up or down at random.

    Senders that first exchange `measure` and agree by `merge` use one range; their messages then add as integers, in 8,
    16 or 32 bits, and the sum is proven to fit: (2**bits - 1) * count < 2**32. Without `shared` the range is the
    message's own and it does not add.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8.
    dither : {"private", "subtractive"}, default "private"
        The sender's own rounding; or a dither that the receiver repeats and takes away: the error of a coordinate is
        then uniform and does not depend on the input, but messages do not add, and senders must not share a key.
    rotations : int, default 0
        0, or 1 to 3 rounds of a random rotation before the quantizer ("Hadamard + SQ"); the range is then that of the
        rotated array, always the message's own, and messages do not add.

    Notes
    -----
    A coordinate's error is ``step**2 * f * (1 - f)`` with f its position between two levels, at most ``step**2 / 4``;
    with a subtractive dither it is ``step**2 / 12``.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> codec = tersor.get_codec("sq:4")
    >>> xs = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    >>> shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=1)
    >>> messages = [codec.encode(x, seed=2, sender=i, shared=shared) for i, x in enumerate(xs)]
    >>> total = codec.add(codec.add(messages[0], messages[1]), messages[2])
    >>> total.count, tersor.nmse(xs.mean(0), codec.decode(total)) < 0.05
    (3, True)
    """

    bits: int
    dither: str = "private"
    rotations: int = 0

    examples: ClassVar[tuple[str, ...]] = (
        "sq:1",
        "sq:2",
        "sq:4",
        "sq:8",
        "sq:4,dither=subtractive",
        "sq:4,rotations=2",
    )
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        additive=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="at most step**2 / 4 a coordinate, step = (max - min) / (2**bits - 1)",
    )
    fields_size: ClassVar[int] = _FIELDS.size

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 8:
            raise ValueError(f"sq: bits must be an integer from 1 to 8, got {self.bits!r}")
        if self.dither not in ("private", "subtractive"):
            raise ValueError(f'sq: dither must be "private" or "subtractive", got {self.dither!r}')
        if type(self.rotations) is not int or not 0 <= self.rotations <= 3:
            raise ValueError(f"sq: rotations must be an integer from 0 to 3, got {self.rotations!r}")
        object.__setattr__(self, "claims", sq_forms.claims_of(type(self).claims, self._form))
        object.__setattr__(self, "fields_size", self._fields.size)

    @property
    def _form(self) -> sq_forms.Form:
        return sq_forms.Form(self.bits, self.dither == "subtractive", self.rotations)

    @property
    def _fields(self) -> struct.Struct:
        # The range of a rotated array may lie beyond float32.
        return _ROTATED_FIELDS if self.rotations else _FIELDS

    @property
    def unit(self) -> int:
        return UNIT

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        width = fields[-1] or self.bits
        if width != self.bits and (width not in _SUM_WIDTHS or not self.claims.additive):
            raise FormatError(f"sq: codes of {width} bits are not what an encoder writes")
        units = sq_forms.rotated_units(units, self._form)
        stride = packed_size(units.length, width)
        nbytes = max(units.count - 1, 0) * stride + packed_size(units.last, width)
        return {"codes": PlaneSpec(width, units.count, stride, nbytes)}

    def measure(self, x: Any, *, axis: int | None = None) -> NDArray[np.float32] | None:
        """Return (finite, size // 2**24, size % 2**24, min, max) of `x`, float32; None with rotations."""
        if self.rotations:
            return None
        head, values, finite = sums.head_of(x)
        low, high = (values.min(), values.max()) if finite and len(values) else (0.0, 0.0)
        return np.array([*head, low, high], np.float32)

    def stats_size(self, shape: tuple[int, ...], axis: int | None = None) -> int:
        return 0 if self.rotations else sums.HEAD + 2

    def sum_fields(self, count: int) -> bytes:
        if not self.claims.additive:
            return super().sum_fields(count)
        return _FIELDS.pack(0, 0, self._sum_width(count))

    def _sum_width(self, count: int) -> int:
        largest = count * ((1 << self.bits) - 1)
        width = self.bits if count <= 1 else next((w for w in _SUM_WIDTHS if largest < 1 << w), None)
        if width is None:
            raise RangeError(f"sq: the sum of {count} messages of {self.bits} bits could pass 2**32; decode first")
        return width

    def merge(self, stats: NDArray[np.float32] | None, *, key: int | None = None) -> Shared:
        """Return the range that holds all senders' values.

        Raises
        ------
        NonFiniteError
            If a sender has NaN or infinity; `index` is the first such sender.
        IncompatibleError
            If the senders' sizes differ.
        """
        if self.rotations:
            return super().merge(None, key=key)
        ranges = sums.merged(stats, "sq", sums.HEAD + 2)
        return Shared(super().merge(None, key=key).key, np.array([ranges[:, 0].min(), ranges[:, 1].max()], np.float32))

    def _encode(self, job: Job) -> Made:
        x = job.host.float32()
        bad = first_nonfinite(x)
        codes = np.zeros(self.layout(job.units, job.host.dtype, bytes(self.fields_size))["codes"].nbytes, np.uint8)
        if bad >= 0:
            return Made({"codes": codes}, self._fields.pack(np.nan, np.nan, self.bits), first_bad=bad)
        limits = None
        if job.shared and not self.rotations:
            if len(job.shared.stats) != 2 or not np.isfinite(job.shared.stats).all():
                raise IncompatibleError("sq: `shared` must come from sq's own merge")
            low, high = limits = float(job.shared.stats[0]), float(job.shared.stats[1])
            if len(x) and not (low <= x.min() and x.max() <= high):
                raise IncompatibleError(f"x leaves the shared range [{low}, {high}]; measure this very array first")
        low, high = limits or (0.0, 0.0)
        if len(x):
            place = sq_forms.Place(job.key, job.private, job.start)
            low, high = sq_forms.encode(x, job.units, self._form, place, limits, codes)
        return Made({"codes": codes}, self._fields.pack(low, high, self.bits))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        low, high, width = self._fields.unpack(enc.fields)
        if not units.size:
            return
        codes = np.ascontiguousarray(enc.planes["codes"].data)
        if self.claims.additive:
            counts = sums.unit_counts(enc, units, present)
            ops.current().sq_decode(codes, units.length, low, high, self.bits, width, counts, weight, add, out)
            return
        place = sq_forms.Place(enc.key, 0, enc.start)
        sq_forms.decode(codes, units, self._form, place, (low, high), weight, add, present, out)

    def _may_overflow(self, enc: Encoded) -> bool:
        low, high, _ = self._fields.unpack(enc.fields)
        return not self.claims.additive and max(abs(low), abs(high)) > _LARGE

    def add(self, a: Encoded, b: Encoded) -> Encoded:
        if not self.claims.additive:
            return super().add(a, b)
        sums.check_addable(a, b, self.spec)
        (low, high, a_width), (b_low, b_high, b_width) = _FIELDS.unpack(a.fields), _FIELDS.unpack(b.fields)
        if (low, high) != (b_low, b_high):
            raise IncompatibleError("sq: the messages' ranges differ")
        units = self.units(a.shape, a.axis)
        total, most = sums.added_counts(a, b, units)
        width = self._sum_width(most)
        fields = _FIELDS.pack(low, high, width)
        layout = self.layout(units, a.dtype, fields)["codes"]
        codes = np.empty(layout.nbytes, np.uint8)
        if units.size:
            ops.current().sq_add(
                sums.present_codes(a),
                a_width,
                sums.present_codes(b),
                b_width,
                units.size,
                units.length,
                codes,
                width,
            )
        return replace(
            a,
            planes={"codes": layout.fill(codes)},
            count=total,
            received=None,
            fields=fields,
            error=None,
        )

    def validate(self, enc: Encoded) -> None:
        low, high, width = self._fields.unpack(enc.fields)
        largest = int(np.max(enc.count, initial=1)) * ((1 << self.bits) - 1)
        range_ok = (np.isfinite(low) and np.isfinite(high) and low <= high) or (np.isnan(low) and np.isnan(high))
        range_ok &= not max(abs(low), abs(high)) > _BEYOND
        if not range_ok or (width == self.bits) != (largest < 1 << self.bits) or largest >= 1 << width:
            raise FormatError("sq: the range, width and count contradict one another")
