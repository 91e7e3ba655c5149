"""Kashin's representation, then stochastic quantization: coefficients in a redundant frame that are all alike in size.

Yurii Lyubarskii, Roman Vershynin: "Uncertainty principles and vector quantization", IEEE Transactions on Information
Theory 56(7), 2010, arXiv math/0611343 (theorem 3.5 and its algorithm), with the randomised Hadamard frame and the
constants of the baseline of DRIVE and EDEN: eta = 0.9, delta = 1, three iterations. FORMAT.md has every rounding.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import UNIT, first_nonfinite
from tersor.codecs.pieces import groups
from tersor.codecs.qjl import powers_of_two
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.kernels import ops
from tersor.kernels.reference.sums import lane_sum
from tersor.registry import register
from tersor.units import Units

_ETA = np.float32(0.9)
_TIGHT = 0.85
_AT_ONCE = 1 << 18  # coefficients that are in memory at a time, unless a unit has more
_SIXTEENTH = np.float32(1 / 16)  # a scale is this part of the largest coefficient, which may pass float32
_LARGE = 2.0**90
_NONE = np.zeros(0, np.uint8)


def frame_length(n: int) -> int:
    """Return Q, the coefficients of n coordinates: twice the next power of two, or that power where it leaves room.

    Examples
    --------
    >>> [frame_length(n) for n in (0, 1, 4, 870, 871, 1000, 1024)]
    [0, 2, 8, 1024, 2048, 2048, 2048]
    """
    if n == 0:
        return 0
    power = 1 << (n - 1).bit_length()
    return power if n <= _TIGHT * power else 2 * power


@register("kashin")
@dataclass(frozen=True)
class Kashin(Codec):
    """Kashin + SQ: x as R^T a in a frame of up to four times its length, |a_i| at most 2.71 ||x|| / sqrt(Q), a by SQ.

    Attributes
    ----------
    bits : int
        Bits of a coefficient, 1 to 8; a coordinate of a full block takes two coefficients.
    iterations : int, default 3
        Of clipping and representing what is left, 1 to 100. After 3 some 0.1 % of the energy is left out, always the
        same for one rotation: a bias. Some 10 leave out nothing that float32 holds, but have a wider range.
    block : int, default 4096
        Coordinates of a unit in a long vector, a power of two from 32 to 65536.

    Notes
    -----
    vNMSE per block is that of SQ of the coefficients, halved by the frame, plus the residual: about 3.18 and 0.0120 at
    1 and 4 bits for any input that no few coordinates dominate.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**14).astype(np.float32)
    >>> enc = tersor.get_codec("kashin:4").encode(x, seed=1)
    >>> round(enc.bits_per_coordinate, 1), round(tersor.nmse(x, tersor.decode(enc)), 3)
    (8.1, 0.012)
    """

    bits: int
    iterations: int = 3
    block: int = UNIT

    examples: ClassVar[tuple[str, ...]] = ("kashin:1", "kashin:2", "kashin:4")
    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        error_law="at most step**2 / 4 a coefficient, step = 2 max |a| / (2**bits - 1), plus what is not represented",
    )

    def __post_init__(self) -> None:
        for name, value, most in (("bits", self.bits, 8), ("iterations", self.iterations, 100)):
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(f"kashin: {name} must be an integer from 1 to {most}, got {value!r}")
        block = self.block
        if type(block) is not int or not 32 <= block <= 1 << 16 or block & (block - 1):
            raise ValueError(f"kashin: block must be a power of two from 32 to 65536, got {block!r}")

    @property
    def unit(self) -> int:
        return self.block

    def starts_at(self, start: int, units: Units) -> bool:
        # Coefficients have random positions of their own, up to four a coordinate.
        ahead = start * units.length if units.by_rows else start
        return super().starts_at(start, units) and 4 * (ahead + units.size) < 1 << 63

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        stride = packed_size(frame_length(units.length), self.bits)
        last = packed_size(frame_length(units.last), self.bits)
        return {
            "codes": PlaneSpec(self.bits, units.count, stride, max(units.count - 1, 0) * stride + last),
            "scales": PlaneSpec(32, units.count, 4, 4 * units.count, "<f4"),
        }

    def _encode(self, job: Job) -> Made:
        x, units = np.ascontiguousarray(job.host.float32()), job.units
        layout = self.layout(units, job.host.dtype, b"")
        codes, scales = np.zeros(layout["codes"].nbytes, np.uint8), np.zeros(units.count, np.float32)
        stride = layout["codes"].stride
        for k, m, n in groups(units, _AT_ONCE // frame_length(units.length)):
            rows = x[k * units.length :][: m * n].reshape(m, n)
            s, finite = powers_of_two(rows)
            w = np.where(finite[:, None], rows, 0).astype(np.float32) * s[:, None]
            q = frame_length(n)
            start = _position(units, job.start, k)
            a = _represent(w, q, job.key, 0 if units.by_rows else start, units.by_rows, self.iterations)
            largest = np.max(np.abs(a), axis=1)
            inverse = 1 / np.where(largest > 0, largest, 1).astype(np.float32)
            unit: NDArray[np.float32] = np.clip(a * inverse[:, None], np.float32(-1), np.float32(1))
            there = codes[k * stride :][: (m - 1) * stride + packed_size(q, self.bits)]
            ops.current().sq_encode(unit.reshape(-1), q, -1.0, 1.0, self.bits, job.private, start, there)
            there.reshape(m, -1)[~finite] = 0
            scales[k : k + m] = np.where(finite, largest * _SIXTEENTH / s, np.nan)
        return Made({"codes": codes, "scales": scales.astype("<f4").view(np.uint8)}, first_bad=first_nonfinite(x))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        codes = np.ascontiguousarray(enc.planes["codes"].data)
        scales, stride = enc.planes["scales"].values().astype(np.float32), enc.planes["codes"].stride
        for k, m, n in groups(units, _AT_ONCE // frame_length(units.length)):
            q = frame_length(n)
            y, back = np.empty((m, q), np.float32), np.empty((m, q), np.float32)
            here = codes[k * stride :][: (m - 1) * stride + packed_size(q, self.bits)]
            ones = np.ones(m, np.uint32)
            ops.current().sq_decode(here, q, -1.0, 1.0, self.bits, self.bits, ones, 1.0, False, y.reshape(-1))
            y *= scales[k : k + m, None]
            start = 0 if units.by_rows else _position(units, enc.start, k)
            flags = _NONE if present is None else present[k : k + m].astype(np.uint8)
            ops.current().unrotate_units(
                y.reshape(-1), q, enc.key, start, units.by_rows, 1, False, 16 * weight, False, flags, back.reshape(-1)
            )
            target = out[k * units.length :][: m * n].reshape(m, n)
            if add:
                target += back[:, :n]
            else:
                target[:] = back[:, :n]

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((enc.planes["scales"].values() > _LARGE).any())


def _position(units: Units, start: int, k: int) -> int:
    """Return the position of the first coefficient of unit k, past those of all rows or blocks before."""
    q = frame_length(units.length)
    return (start + k) * q if units.by_rows else start // units.length * q + k * q


def _represent(
    w: NDArray[np.float32], q: int, key: int, start: int, by_rows: bool, iterations: int
) -> NDArray[np.float32]:
    """Return the coefficients, shape (m, q), of the rows of `w`, shape (m, n)."""
    m, n = w.shape
    residual, b = np.zeros((m, q), np.float32), np.empty((m, q), np.float32)
    residual[:, :n] = w
    a = np.zeros((m, q), np.float32)
    level = np.sqrt(lane_sum(w * w) / q).astype(np.float32)[:, None]  # delta = 1
    for _ in range(iterations):
        ops.current().rotate_units(residual.reshape(-1), q, key, start, by_rows, 1, False, b.reshape(-1))
        np.clip(b, -level, level, out=b)
        a += b
        back = np.empty((m, q), np.float32)
        ops.current().unrotate_units(
            b.reshape(-1), q, key, start, by_rows, 1, False, 1.0, False, _NONE, back.reshape(-1)
        )
        residual[:, :n] -= back[:, :n]
        level = level * _ETA
    return a
