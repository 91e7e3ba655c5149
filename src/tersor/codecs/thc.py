"""THC: rotated blocks on a grid of integers that all senders share, so that messages add without being decoded.

Minghao Li, Ran Ben Basat, Shay Vargaftik, ChonLam Lao, Kevin Xu, Michael Mitzenmacher, Minlan Yu: "THC: Accelerating
Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024, arXiv 2302.08545. One range a block, that of
its largest sender, where the paper's prototype has one for 2**23 coordinates.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs import sums
from tersor.codecs.deliver import UNIT, first_nonfinite
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, IncompatibleError, RangeError
from tersor.kernels import ops
from tersor.kernels.lengths import padded_length
from tersor.quantize import thc as tables
from tersor.registry import register
from tersor.shared import Shared
from tersor.units import Units, check_axis

_SUM_WIDTHS = (8, 12, 16, 32)
_DEFAULT_GRANULARITY = 17  # at most: 15 senders add in 8 bits
_OF_SUMS = 9  # last bytes of the fields: saturated coordinates, width
_LARGE = 2.0**100  # estimates may pass the largest float32 from here on


@register("thc")
@dataclass(frozen=True)
class THC(Codec):
    """THC (NSDI 2024): after a shared rotation, stochastic rounding to a shared table of integers, which add.

    Senders that first exchange `measure` and agree by `merge` use one range a block: that of the largest among them.
    Their messages then add as integers and the sum is sent on as it is: 8 bits for up to 255 // granularity senders.
    Without `shared` a message has its own range and does not add.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8.
    granularity : int, default 0
        The largest integer of the table, 2**bits - 1 (a uniform one) to 1023; where it is small, more senders fit in
        8 bits. 0: the best one of at most 17, or a uniform table above 4 bits. The error is not monotone in it.
    truncation : float, default 1 / 32
        Expected share p of rotated coordinates outside the range, which are clamped to it. It shrinks the estimate by
        1 - p on average; error feedback returns that.
    rotations : int, default 2
        Rounds of the rotation, 1 to 3.
    block : int, default 4096
        Coordinates with one range; a power of two.
    sum_bits : int, default 0
        0: sums are exact, and as wide as they can get: 8, 12, 16 or 32 bits. Otherwise their width, at least `bits`
        + 1 and at most 16: what would leave it is clamped, which `saturated` counts.

    Notes
    -----
    For one sender the error is that of rounding and of clamping a normal variable: `tersor.quantize.thc`. Of a mean of
    n senders with ranges M_i, the rounding part is ``rounding * max(M_i)**2 * d / (n * ||mean||**2)``.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> codec = tersor.get_codec("thc:4")
    >>> xs = np.random.default_rng(0).standard_normal((3, 10_000)).astype(np.float32)
    >>> shared = codec.merge(np.stack([codec.measure(x) for x in xs]), key=1)
    >>> messages = [codec.encode(x, seed=2, sender=i, shared=shared) for i, x in enumerate(xs)]
    >>> total = codec.add_all(messages)
    >>> total.count, tersor.nmse(xs.mean(0), codec.decode(total)) < 0.025
    (3, True)
    """

    bits: int
    granularity: int = 0
    truncation: float = 1 / 32
    rotations: int = 2
    block: int = UNIT
    sum_bits: int = 0

    claims: ClassVar[Claims] = Claims(
        additive=True,
        row_addressable=True,
        tolerates_loss=True,
        error_law="rounding and clamping of a normal variable, tersor.quantize.thc",
    )

    def __post_init__(self) -> None:
        def bad(what: str, wanted: str, got: object) -> ValueError:
            return ValueError(f"thc: {what} must be {wanted}, got {got!r}")

        if type(self.bits) is not int or not 1 <= self.bits <= 8:
            raise bad("bits", "an integer from 1 to 8", self.bits)
        least = (1 << self.bits) - 1
        if type(self.granularity) is not int or not (
            self.granularity == 0 or least <= self.granularity <= tables.MAX_GRANULARITY
        ):
            raise bad("granularity", f"0 or an integer from {least} to {tables.MAX_GRANULARITY}", self.granularity)
        if not 1e-9 <= self.truncation <= 0.5:
            raise bad("truncation", "from 1e-9 to 0.5", self.truncation)
        if type(self.rotations) is not int or not 1 <= self.rotations <= 3:
            raise bad("rotations", "an integer from 1 to 3", self.rotations)
        if type(self.block) is not int or not 32 <= self.block <= 1 << 24 or self.block & (self.block - 1):
            raise bad("block", "a power of two from 32 to 2**24", self.block)
        if type(self.sum_bits) is not int or not (self.sum_bits == 0 or self.bits < self.sum_bits <= 16):
            raise bad("sum_bits", f"0 or an integer from {self.bits + 1} to 16", self.sum_bits)
        object.__setattr__(self, "fields_size", self._fields.size)

    @property
    def _fields(self) -> struct.Struct:
        return _fields_of(self.bits)

    @property
    def unit(self) -> int:
        return self.block

    @cached_property
    def table(self) -> NDArray[np.uint16]:
        """The integers that codes stand for, from 0 to the granularity."""
        most = self.granularity or tables.best_granularity(self.bits, _DEFAULT_GRANULARITY, self.truncation)
        return np.array(tables.table(self.bits, most, self.truncation), np.uint16)

    @cached_property
    def range_in_rms(self) -> float:
        """The end of the range, in root mean squares of the rotated coordinates."""
        return float(np.float32(tables.spread(self.truncation)))

    def expected_error(self, received: float = 1.0) -> float:
        levels = tuple(int(v) for v in self.table)
        whole = tables.rounding_error(levels, self.truncation) + tables.truncation_error(self.truncation)
        return received * whole + 1 - received

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        width = fields[-1] or self.bits
        if width != self.bits and width not in ((self.sum_bits,) if self.sum_bits else _SUM_WIDTHS):
            raise FormatError(f"thc: codes of {width} bits are not what an encoder writes")
        turned = rotated(units)
        stride = packed_size(turned.length, width)
        nbytes = max(units.count - 1, 0) * stride + packed_size(turned.last, width)
        return {
            "codes": PlaneSpec(width, units.count, stride, nbytes),
            "rms": PlaneSpec(32, units.count, 4, 4 * units.count, "<f4"),
        }

    def sum_fields(self, count: int) -> bytes:
        return bytes(self.fields_size - 1) + bytes([self._sum_width(count, int(self.table[-1]))])

    def _fitting_width(self, count: int, granularity: int) -> int | None:
        if count <= 1:
            return self.bits
        return self.sum_bits or next((w for w in _SUM_WIDTHS if count * granularity < 1 << w), None)

    def _sum_width(self, count: int, granularity: int) -> int:
        width = self._fitting_width(count, granularity)
        if width is None:
            raise RangeError(f"thc: the sum of {count} messages could pass 2**32; decode first")
        return width

    def _shift(self, count: int, granularity: int) -> int:
        """Return what is taken off the sum of `count` messages: a saturating sum keeps the middle of its range."""
        beyond = count * granularity - ((1 << self.sum_bits) - 1)
        return beyond // 2 if self.sum_bits and count > 1 and beyond > 0 else 0

    # Statistics: the root mean square of every unit.

    def measure(self, x: Any, *, axis: int | None = None) -> NDArray[np.float32]:
        """Return (finite, size // 2**24, size % 2**24, root mean square of every unit over its padded length)."""
        head, values, _ = sums.head_of(x)
        shape = tuple(x.shape)
        return np.concatenate([head, _rms(values, self.units(shape, check_axis(axis, len(shape))))])

    def stats_size(self, shape: tuple[int, ...], axis: int | None = None) -> int:
        return sums.HEAD + self.units(shape, check_axis(axis, len(shape))).count

    def merge(self, stats: NDArray[np.float32] | None, *, key: int | None = None) -> Shared:
        """Return the largest root mean square of every unit, behind the table that all senders then use.

        Raises
        ------
        NonFiniteError
            If a sender has NaN or infinity; `index` is the first such sender.
        IncompatibleError
            If the senders' sizes differ.
        """
        rms = sums.merged(stats, "thc")
        return Shared(
            super().merge(None, key=key).key,
            np.concatenate([[self.range_in_rms], self.table, rms.max(axis=0)], dtype=np.float32),
        )

    def _of_shared(self, job: Job) -> tuple[float, NDArray[np.uint16], NDArray[np.float32]]:
        """Return spread, table and the units' root mean squares that the senders agreed on."""
        assert job.shared is not None
        size = 1 << self.bits
        stats = np.asarray(job.shared.stats, np.float32)
        first = job.start if job.units.by_rows else job.start // self.block
        table, rms = stats[1 : 1 + size], stats[1 + size :][first : first + job.units.count]
        if len(rms) != job.units.count or not np.isfinite(stats).all() or not _ascends(table):
            raise IncompatibleError("thc: `shared` must come from thc's own merge, of arrays of this shape")
        return float(stats[0]), table.astype(np.uint16), rms

    # Messages.

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        own = _rms(x, units)
        spread, table, rms = self._of_shared(job) if job.shared else (self.range_in_rms, self.table, own)
        bad = first_nonfinite(x) if np.isnan(own).any() else -1
        finite = np.where(np.isnan(own), np.float32(0), rms)
        if (own > finite).any():
            raise IncompatibleError("a block of x is larger than the shared statistics say; measure this very array")
        codes = np.zeros(self.layout(units, job.host.dtype, bytes(self.fields_size))["codes"].nbytes, np.uint8)
        lost = 0.0
        if units.size:
            lost = ops.current().thc_encode(
                x if bad < 0 else np.nan_to_num(x, nan=0, posinf=0, neginf=0),
                units.length,
                job.key,
                0 if units.by_rows else job.start,
                units.by_rows,
                self.rotations,
                finite,
                table,
                spread,
                self.bits,
                job.private,
                job.start * padded_length(units.length) if units.by_rows else job.start,
                codes,
            )
        stored = np.where(np.isnan(own), np.float32(np.nan), rms).astype("<f4")
        fields = self._fields.pack(spread, *table.tolist(), 0, self.bits)
        energy = _energy(own, units) if bad < 0 else 0.0
        error = None if bad >= 0 else lost / energy if energy > 0 else 0.0
        return Made({"codes": codes, "rms": stored.view(np.uint8)}, fields, error, bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not units.size:
            return
        spread, table, _, width = self._unpack(enc)
        counts = sums.unit_counts(enc, units, present)
        ops.current().thc_decode(
            np.ascontiguousarray(enc.planes["codes"].data),
            units.length,
            enc.key,
            0 if units.by_rows else enc.start,
            units.by_rows,
            self.rotations,
            enc.planes["rms"].values().astype(np.float32),
            table,
            spread,
            self.bits,
            width,
            self._shift_of(enc, int(table[-1])),
            counts,
            weight,
            add,
            out,
        )

    def _unpack(self, enc: Encoded) -> tuple[float, NDArray[np.uint16], int, int]:
        spread, *table, saturated, width = self._fields.unpack(enc.fields)
        return spread, np.array(table, np.uint16), saturated, width

    def _shift_of(self, enc: Encoded, granularity: int) -> int:
        return self._shift(enc.count, granularity) if isinstance(enc.count, int) else 0

    def _may_overflow(self, enc: Encoded) -> bool:
        rms = enc.planes["rms"].values()
        return bool(len(rms)) and bool(np.nanmax(rms, initial=0) > _LARGE)

    def saturated(self, enc: Encoded) -> int:
        return self._unpack(enc)[2]

    def add(self, a: Encoded, b: Encoded) -> Encoded:
        return self.add_all([a, b])

    def add_all(self, messages: Sequence[Encoded]) -> Encoded:
        first = total = messages[0]
        spread, table, _, _ = self._unpack(first)
        units = self.units(first.shape, first.axis)
        most = 1
        for other in messages[1:]:
            sums.check_addable(total, other, self.spec)
            alike = other.fields[:-_OF_SUMS] == first.fields[:-_OF_SUMS] and other.start == first.start
            if not alike or not np.array_equal(other.planes["rms"].data, first.planes["rms"].data):
                raise IncompatibleError("thc: the messages' ranges or starts differ")
            count, most = sums.added_counts(total, other, units)
            total = replace(total, count=count, received=None)
        if len(messages) == 1:
            return first
        granularity = int(table[-1])
        if self.sum_bits and not all(isinstance(m.count, int) and m.received is None for m in messages):
            raise IncompatibleError("thc: saturating sums (sum_bits) need whole messages; some units are missing")
        width = self._sum_width(most, granularity)
        shift = self._shift(most, granularity) - sum(self._shift_of(m, granularity) for m in messages)
        saturated = sum(self.saturated(m) for m in messages)
        fields = self._fields.pack(spread, *table.tolist(), 0, width)
        layout = self.layout(units, first.dtype, fields)["codes"]
        codes = np.zeros(layout.nbytes, np.uint8)
        if units.size:
            turned = rotated(units)
            parts = [(sums.present_codes(m), self._unpack(m)[3]) for m in messages]
            saturated += ops.current().thc_add(
                parts, turned.length, turned.size, table, self.bits, shift, bool(self.sum_bits), codes, width
            )
        fields = self._fields.pack(spread, *table.tolist(), saturated, width)
        planes = {"codes": layout.fill(codes), "rms": first.planes["rms"]}
        return replace(total, planes=planes, fields=fields, error=None)

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        # Messages that add need one inverse rotation for all. A saturating sum would lose something.
        alike = len(messages) > 1 and not self.sum_bits and len({(m.digest, m.start) for m in messages}) == 1
        single = all(isinstance(m.count, int) and m.received is None for m in messages)
        factors = {w / m.count for w, m in zip(weights, messages, strict=True) if isinstance(m.count, int)}
        if not (alike and messages[0].digest and single and len(factors) == 1):
            return super().accumulate(messages, units, out, weights)
        total = self.add_all(messages)
        assert isinstance(total.count, int)
        self.estimate(total, units, out, True, factors.pop() * total.count, None)

    def validate(self, enc: Encoded) -> None:
        spread, table, saturated, width = self._unpack(enc)
        rms = enc.planes["rms"].values()
        if not (math.isfinite(spread) and 0 < spread < 100) or not _ascends(table):
            raise FormatError("thc: the table does not ascend from 0, or its spread is out of range")
        if (rms < 0).any() or np.isinf(rms).any():
            raise FormatError("thc: a root mean square is negative or infinite")
        most = int(np.max(enc.count, initial=1))
        if (saturated and not self.sum_bits) or width != self._fitting_width(most, int(table[-1])):
            raise FormatError("thc: width, count and saturation contradict one another")


def rotated(units: Units) -> Units:
    """Return the units that the codes have, each of its padded length."""
    if not units.count:
        return units
    length, last = padded_length(units.length), padded_length(units.last)
    return Units((units.count - 1) * length + last, length if units.count > 1 or units.by_rows else last, units.by_rows)


def _rms(x: NDArray[np.float32], units: Units) -> NDArray[np.float32]:
    made = np.empty(units.count, np.float32)
    if units.count:
        ops.current().unit_rms(x, units.length, False, made)
    return made


def _energy(rms: NDArray[np.float32], units: Units) -> float:
    sizes = np.full(units.count, padded_length(units.length), np.float64)
    sizes[-1:] = padded_length(units.last)
    return float((sizes * rms.astype(np.float64) ** 2).sum())


@lru_cache(maxsize=8)
def _fields_of(bits: int) -> struct.Struct:
    return struct.Struct(f"<f{1 << bits}HQB")


def _ascends(table: NDArray[Any]) -> bool:
    values = table.astype(np.int64)
    return bool(values[0] == 0 and (np.diff(values) > 0).all() and values[-1] <= tables.MAX_GRANULARITY)
