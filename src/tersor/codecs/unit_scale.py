"""UnitScale: codecs with one float32 scale a unit and small codes that are multiples of it, without a rotation."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec, Job, Made
from tersor.codecs.deliver import first_nonfinite
from tersor.codecs.pieces import Piece, largest, pieces, put
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import RangeError
from tersor.kernels.reference.microscaling import clamped
from tersor.kernels.reference.sums import lane_sum
from tersor.units import Units

_CHUNK = 4096
_LARGE = np.float32(2.0**100)


@dataclass(frozen=True)
class UnitScale(Codec):
    """A coordinate is ``level * scale / steps``; a subclass has a field `block` and says what the levels are."""

    code_bits: ClassVar[int] = 8
    code_layout: ClassVar[str] = "lsb"

    def _check_block(self) -> None:
        block = self._block
        if block != "full" and not (type(block) is int and 8 <= block <= 2**24):
            raise ValueError(f'{self.name}: block must be an integer from 8 to 2**24, or "full", got {block!r}')

    @property
    def _block(self) -> Any:
        return getattr(self, "block")  # noqa: B009 - a field of the subclasses, at a place of their choice

    @property
    def unit(self) -> int | None:
        return self._block if isinstance(self._block, int) else None

    @property
    def _steps(self) -> int:
        return 1

    def _size(self, n: int) -> int:
        """Return the bytes that n codes take."""
        raise NotImplementedError

    def _width(self) -> int:
        return self.code_bits

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        stride = self._size(units.length)
        nbytes = max(units.count - 1, 0) * stride + self._size(units.last)
        return {
            "codes": PlaneSpec(self._width(), units.count, stride, nbytes, self.code_layout),
            "scales": PlaneSpec(32, units.count, 4, 4 * units.count, "<f4"),
        }

    def _scales(self, x: NDArray[np.float32], units: Units, amax: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the scale of every unit, whose largest magnitudes are `amax`, finite."""
        raise NotImplementedError

    def _codes(self, job: Job, p: Piece, x: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the packed codes of a piece with scales of shape (rows, 1)."""
        raise NotImplementedError

    def _levels(self, packed: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
        """Return the levels of packed codes, n a row."""
        raise NotImplementedError

    def _error(self, x: NDArray[np.float32], units: Units, scales: NDArray[np.float32]) -> float | None:
        return None

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        layout = self.layout(units, job.host.dtype, b"")
        codes = np.zeros(layout["codes"].nbytes, np.uint8)
        amax = largest(x, units)
        good = np.isfinite(amax)
        clean = x if good.all() else np.where(np.repeat(good, units.length)[: units.size], x, np.float32(0))
        with np.errstate(over="ignore"):
            scales = self._scales(clean, units, np.where(good, amax, np.float32(0))).astype(np.float32)
        if np.isinf(scales).any():
            unit = int(np.argmax(np.isinf(scales)))
            raise RangeError(f"unit {unit}: the norm is beyond float32; scale the array down")
        for p in pieces(units):
            p.bytes_of(codes, layout["codes"].stride, self._size)[...] = self._codes(
                job, p, p.of(clean), scales[p.units, None]
            )
        error = self._error(clean, units, scales) if good.all() else None
        wire = np.where(good, scales, np.float32(np.nan)).astype("<f4")
        return Made({"codes": codes, "scales": wire.view(np.uint8)}, error=error, first_bad=first_nonfinite(x))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        codes, scales = enc.planes["codes"], enc.planes["scales"].values()
        for p in pieces(units):
            with np.errstate(over="ignore", invalid="ignore"):
                factors = clamped(scales[p.units].astype(np.float64) * weight / self._steps)
                values = self._levels(p.bytes_of(codes.data, codes.stride, self._size), p.width) * factors[:, None]
            put(p, values, out, add, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((np.abs(enc.planes["scales"].values()) > _LARGE).any())


def power_of_two(amax: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the power of two that brings each of `amax` to [1/2, 1), within float32 (FORMAT.md, 4.2)."""
    made: NDArray[np.float64] = np.ldexp(1.0, np.clip(-np.frexp(amax)[1], -126, 127))
    return made


def unit_sums(x: NDArray[np.float32], units: Units, factor: NDArray[np.float64], square: bool) -> NDArray[np.float64]:
    """Return sum |w| or sum w*w of every unit, w = x times its unit's `factor`, in FORMAT.md's order of sums."""
    total = np.zeros(units.count, np.float64)
    for p in pieces(units):
        w = np.abs(p.of(x)) * factor[p.units, None].astype(np.float32)
        if square:
            w *= w
        if p.rows > 1 or p.width <= _CHUNK:
            total[p.units] += lane_sum(w)
            continue
        whole = p.width // _CHUNK * _CHUNK
        for part in (w[:, :whole].reshape(-1, _CHUNK), w[:, whole:]):
            for value in lane_sum(part).tolist():
                total[p.first] += value
    return total
