"""Blocks of integers with one float scale each: 8 bits and 4 bits. Rounded to nearest, so biased."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32
from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import deliver
from tersor.codecs.scale_types import SCALE_DTYPES
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, RangeError
from tersor.kernels import ops
from tersor.registry import register
from tersor.units import Units

_LARGE = 2.0**120


def _row(units: Units) -> int:
    """Return what is cut in blocks of its own: a row, or the whole vector."""
    return units.length if units.by_rows else units.size


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

    def _encode(self, job: Job) -> Made:
        layout = self.layout(job.units, job.host.dtype, b"")
        codes = np.empty(job.units.size, np.int8)
        scales = np.empty(layout["scales"].nbytes // 4, np.float32)
        bad = -1
        if job.units.size:
            x = job.host.float32()
            bad = ops.current().int8_encode(x, _row(job.units), self.block, codes, scales)
        return Made({"codes": codes.view(np.uint8), "scales": scales.astype("<f4").view(np.uint8)}, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not units.size:
            return
        codes = np.ascontiguousarray(enc.planes["codes"].values())
        scales = enc.planes["scales"].values().astype(np.float32)
        if present is None:
            ops.current().int8_decode(codes, scales, _row(units), self.block, weight, add, out)
            return
        values = np.empty(units.size, np.float32)
        ops.current().int8_decode(codes, scales, _row(units), self.block, 1.0, False, values)
        deliver(values, units, out, add, weight, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((enc.planes["scales"].values() > _LARGE).any())

    def validate(self, enc: Encoded) -> None:
        if bool((enc.planes["codes"].values() == -128).any()):
            raise FormatError("int8: the code -128 is not one that an encoder writes")


@register("int4")
@dataclass(frozen=True)
class Int4(Codec):
    """4-bit integers from -7 to 7 with one scale, max|x| / 7, a block; rounded to nearest.

    Codes are those nearest under the scale that is sent, so that a coarse `scale_dtype` costs next to nothing.

    Attributes
    ----------
    block : int, default 32
        Coordinates that share a scale, a multiple of 8 up to 4,096; rows are cut in blocks of their own.
    scale_dtype : {"bfloat16", "float16", "float32"}, default "bfloat16"
        Type of the scales. bfloat16 has the range of float32 at 4.5 bits a coordinate; float16 ends at 65,504, where
        encoding raises RangeError, and loses blocks below 1e-7.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> float(np.abs(tersor.roundtrip(x, "int4") - x).max()) <= 1 / 13.9
    True
    """

    block: int = 32
    scale_dtype: str = "bfloat16"

    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="|x_hat_i - x_i| <= max|x| / 13.9 in each block",
    )

    def __post_init__(self) -> None:
        if type(self.block) is not int or not 8 <= self.block <= 4096 or self.block % 8:
            raise ValueError(f"int4: block must be a multiple of 8 from 8 to 4096, got {self.block!r}")
        if self.scale_dtype not in tuple(SCALE_DTYPES):
            raise ValueError(f"int4: scale_dtype must be one of {', '.join(SCALE_DTYPES)}, got {self.scale_dtype!r}")

    @property
    def unit(self) -> int:
        return self.block

    @property
    def _scale_kind(self) -> int:
        return list(SCALE_DTYPES).index(self.scale_dtype)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        kind = np.dtype(SCALE_DTYPES[self.scale_dtype])
        per_unit, stride = -(-units.length // self.block) * kind.itemsize, packed_size(units.length, 4)
        nbytes = max(units.count - 1, 0) * stride + packed_size(units.last, 4)
        return {
            "codes": PlaneSpec(4, units.count, stride, nbytes),
            "scales": PlaneSpec(8 * kind.itemsize, units.count, per_unit, units.count * per_unit, kind.str),
        }

    def _encode(self, job: Job) -> Made:
        layout = self.layout(job.units, job.host.dtype, b"")
        planes = {name: np.empty(plane.nbytes, np.uint8) for name, plane in layout.items()}
        bad = -1
        if job.units.size:
            x, row = job.host.float32(), _row(job.units)
            bad = ops.current().int4_encode(x, row, self.block, self._scale_kind, planes["codes"], planes["scales"])
        if self.scale_dtype == "float16" and (bad < 0 or job.propagate):
            lost = np.isinf(planes["scales"].view(np.float16))
            if lost.any():
                raise RangeError(
                    f"block {int(np.argmax(lost))}: the scale does not fit in float16; use scale_dtype=bfloat16 or "
                    "float32, or scale the array down"
                )
        return Made(planes, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not units.size:
            return
        codes, scales = (np.ascontiguousarray(enc.planes[name].data) for name in ("codes", "scales"))
        args = (codes, scales, _row(units), self.block, self._scale_kind)
        if present is None:
            ops.current().int4_decode(*args, weight, add, out)
            return
        values = np.empty(units.size, np.float32)
        ops.current().int4_decode(*args, 1.0, False, values)
        deliver(values, units, out, add, weight, present)

    def _scales(self, enc: Encoded) -> NDArray[Any]:
        scales = enc.planes["scales"].values()
        return bfloat16_to_float32(scales) if self.scale_dtype == "bfloat16" else scales

    def _may_overflow(self, enc: Encoded) -> bool:
        return self.scale_dtype != "float16" and bool((self._scales(enc) > _LARGE).any())

    def validate(self, enc: Encoded) -> None:
        codes = enc.planes["codes"].data
        if bool(((codes & 15 == 8) | (codes >> 4 == 8)).any()):
            raise FormatError("int4: the code -8 is not one that an encoder writes")
