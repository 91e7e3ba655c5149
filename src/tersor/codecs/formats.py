"""Plain number formats: no compression, float16, bfloat16, blocks of 8-bit integers. Rounded to nearest, so biased."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, storage_dtype
from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, deliver, first_nonfinite
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, RangeError
from tersor.kernels import ops
from tersor.registry import register
from tersor.units import Units

_LARGE = 2.0**120


@dataclass(frozen=True)
class _Values(Codec):
    """Every coordinate becomes one number of a fixed format."""

    @property
    def unit(self) -> int:
        return UNIT

    def _format(self, dtype: str) -> np.dtype[Any]:
        """Return the type on the wire."""
        raise NotImplementedError

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        kind = self._format(dtype).newbyteorder("<")
        stride = units.length * kind.itemsize
        return {"values": PlaneSpec(8 * kind.itemsize, units.count, stride, units.size * kind.itemsize, kind.str)}

    def _values(self, enc: Encoded) -> NDArray[Any]:
        kind = self._format(enc.dtype)
        return np.ascontiguousarray(enc.planes["values"].values().astype(kind, copy=False))

    def _made(self, values: NDArray[Any], first_bad: int) -> Made:
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return Made({"values": little.view(np.uint8)}, first_bad=first_bad)


@register("none")
@dataclass(frozen=True)
class NoCompression(_Values):
    """The bytes as they are, in the dtype of the array: lossless.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.array([1e300, -0.1])
    >>> bool(np.array_equal(tersor.roundtrip(x, "none"), x))
    True
    """

    claims: ClassVar[Claims] = Claims(
        unbiased=True, row_addressable=True, tolerates_loss=True, shared_rotation=True, error_law="0"
    )

    def accumulator(self, dtype: str) -> type[np.floating[Any]]:
        return np.float64 if dtype == "float64" else np.float32

    def expected_error(self, received: float = 1.0) -> float:
        return 1 - received

    def _format(self, dtype: str) -> np.dtype[Any]:
        return storage_dtype(dtype)

    def _encode(self, job: Job) -> Made:
        data = job.host.data.reshape(-1)
        return self._made(data.copy(), first_nonfinite(data if job.host.dtype == "float64" else job.host.float32()))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        values = self._values(enc)
        wide = bfloat16_to_float32(values) if enc.dtype == "bfloat16" else values.astype(out.dtype, copy=False)
        deliver(wide, units, out, add, weight, present)


@dataclass(frozen=True)
class _Half(_Values):
    """Two bytes a coordinate."""

    kind: ClassVar[int]

    def _encode(self, job: Job) -> Made:
        x = job.host.float32()
        wire = np.empty(len(x), np.uint16)
        bad, lost = ops.current().half_encode(x, self.kind, wire)
        if lost >= 0 and bad < 0 and not job.propagate:
            raise RangeError(
                f"x[{lost}] = {x[lost]} is beyond {self.name} (65504); use bf16 or eden, or scale the array down"
            )
        return self._made(wire, bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        wire = self._values(enc).view(np.uint16)
        if present is None:
            ops.current().half_decode(wire, self.kind, weight, add, out)
            return
        values = np.empty(units.size, np.float32)
        ops.current().half_decode(wire, self.kind, 1.0, False, values)
        deliver(values, units, out, add, weight, present)


@register("fp16")
@dataclass(frozen=True)
class Float16(_Half):
    """IEEE float16: relative error at most 2**-11 above 6.1e-5; values beyond 65,504 raise RangeError."""

    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        rounds_to_nearest=True,
        error_law="at most 2**-22 where |x| is above 6.1e-5",
    )

    kind: ClassVar[int] = 0

    def _format(self, dtype: str) -> np.dtype[Any]:
        return np.dtype(np.float16)


@register("bf16")
@dataclass(frozen=True)
class BFloat16(_Half):
    """bfloat16: relative error at most 2**-9 over the range of float32; the largest values saturate."""

    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        rounds_to_nearest=True,
        error_law="at most 2**-18",
    )

    kind: ClassVar[int] = 1

    def _format(self, dtype: str) -> np.dtype[Any]:
        return np.dtype(np.uint16)


@register("int8")
@dataclass(frozen=True)
class Int8(Codec):
    """8-bit integers with one float32 scale, max|x| / 127, a block; rounded to nearest.

    Attributes
    ----------
    block : int, default 256
        Coordinates that share a scale; rows are cut in blocks of their own.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> float(np.abs(tersor.roundtrip(x, "int8") - x).max()) <= 1 / 254 + 1e-6
    True
    """

    block: int = 256

    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        rounds_to_nearest=True,
        error_law="|x_hat_i - x_i| <= max|x| / 254 in each block",
    )

    def __post_init__(self) -> None:
        if type(self.block) is not int or not 8 <= self.block <= 2**20:
            raise ValueError(f"int8: block must be an integer from 8 to 2**20, got {self.block!r}")

    @property
    def unit(self) -> int:
        return self.block

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        per_unit = -(-units.length // self.block)
        n_scales = units.count * per_unit
        return {
            "codes": PlaneSpec(8, units.count, units.length, units.size, "|i1"),
            "scales": PlaneSpec(32, units.count, 4 * per_unit, 4 * n_scales, "<f4"),
        }

    def _row(self, units: Units) -> int:
        return units.length if units.by_rows else units.size

    def _encode(self, job: Job) -> Made:
        layout = self.layout(job.units, job.host.dtype, b"")
        codes = np.empty(job.units.size, np.int8)
        scales = np.empty(layout["scales"].nbytes // 4, np.float32)
        bad = -1
        if job.units.size:
            x = job.host.float32()
            bad = ops.current().int8_encode(x, self._row(job.units), self.block, codes, scales)
        return Made({"codes": codes.view(np.uint8), "scales": scales.astype("<f4").view(np.uint8)}, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not units.size:
            return
        codes = np.ascontiguousarray(enc.planes["codes"].values())
        scales = enc.planes["scales"].values().astype(np.float32)
        if present is None:
            ops.current().int8_decode(codes, scales, self._row(units), self.block, weight, add, out)
            return
        values = np.empty(units.size, np.float32)
        ops.current().int8_decode(codes, scales, self._row(units), self.block, 1.0, False, values)
        deliver(values, units, out, add, weight, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((enc.planes["scales"].values() > _LARGE).any())

    def validate(self, enc: Encoded) -> None:
        if bool((enc.planes["codes"].values() == -128).any()):
            raise FormatError("int8: the code -128 is not one that an encoder writes")
