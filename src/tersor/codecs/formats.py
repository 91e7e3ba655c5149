"""Plain number formats: no compression, float16, bfloat16. Rounded to nearest, so biased."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, storage_dtype
from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, deliver, first_nonfinite
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import RangeError
from tersor.kernels import ops
from tersor.registry import register
from tersor.units import Units


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
