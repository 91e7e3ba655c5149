"""TurboQuant, as published: a random rotation, Lloyd-Max levels of a coordinate on the sphere, S = 1; its QJL stage.

Amir Zandieh, Majid Daliri, Majid Hadian, Vahab Mirrokni: "TurboQuant: Online Vector Quantization with Near-optimal
Distortion Rate", ICLR 2026, arXiv 2504.19874, algorithms 1 (mse) and 2 (prod). The sign stage is QJL: Zandieh, Daliri,
Han: "QJL: 1-Bit Quantized JL Transform for KV Cache Quantization with Zero Overhead", arXiv 2406.03482. The paper
rotates by the QR factor of a Gaussian matrix; here it is the keyed Hadamard rotation of FORMAT.md section 3 with two
rounds (`tersor.rotation.uniform` is the other, for evaluation).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs import qjl
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.quantize import lloyd_max, sphere
from tersor.registry import register
from tersor.units import Units

_LONGEST = 4096
_ROUNDS = 2
_ONE = 3  # EDEN's scale "one"
_LARGE = 2.0**100
_NONE = np.zeros(0, np.uint8)


@register("turboquant")
@dataclass(frozen=True)
class TurboQuant(Codec):
    """TurboQuant: Lloyd-Max codes of the rotated unit, at the fixed scale ||x|| / sqrt(P).

    Attributes
    ----------
    bits : int
        Bits a coordinate, 1 to 8.
    kind : {"mse", "prod"}, default "mse"
        "mse": codes alone, biased. "prod": codes of `bits` - 1 bits, then the signs of a Gaussian projection of what
        they leave (QJL), which makes the estimate unbiased; one bit is QJL alone.
    block : int, default 1024
        Coordinates of a unit in a long vector, a power of two from 32 to 4096. "prod" multiplies every unit by a dense
        matrix of that size; its rows have at most 65536 coordinates.

    Notes
    -----
    vNMSE: m_b for "mse" and (pi/2) m_(b-1) for "prod", m_0 = 1: 0.363, 0.117, 0.0345, 0.0095 and 1.571, 0.571, 0.185,
    0.0543 at 1 to 4 bits in high dimension. `Eden` has the same codes with a scale that fits them: unbiased at b bits
    it is never worse than "prod" at b + 1.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**14).astype(np.float32)
    >>> [round(tersor.nmse(x, tersor.roundtrip(x, s, seed=1)), 2) for s in ("turboquant:3,kind=prod", "eden:2")]
    [0.18, 0.13]
    """

    bits: int
    kind: str = "mse"
    block: int = 1024

    scale: ClassVar[str] = "one"
    examples: ClassVar[tuple[str, ...]] = (
        "turboquant:1",
        "turboquant:2",
        "turboquant:3",
        "turboquant:4",
        "turboquant:2,kind=prod",
        "turboquant:3,kind=prod",
        "turboquant:4,kind=prod",
    )
    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        error_law="m_b, the Lloyd-Max error of the sphere's coordinate law; more for structured inputs",
    )

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= lloyd_max.MAX_BITS:
            raise ValueError(f"turboquant: bits must be an integer from 1 to 8, got {self.bits!r}")
        if self.kind not in ("mse", "prod"):
            raise ValueError(f'turboquant: kind must be "mse" or "prod", got {self.kind!r}')
        block = self.block
        if type(block) is not int or not 32 <= block <= _LONGEST or block & (block - 1):
            raise ValueError(f"turboquant: block must be a power of two from 32 to {_LONGEST}, got {block!r}")
        if self.kind == "prod":
            law = "(pi/2) m_(b-1), m_b the Lloyd-Max error of the sphere's coordinate law, m_0 = 1"
            object.__setattr__(self, "claims", replace(type(self).claims, unbiased=True, error_law=law))

    @property
    def unit(self) -> int:
        return self.block

    def expected_error(self, received: float = 1.0) -> float:
        width = self._width
        error = lloyd_max.mse(width) if width else 1.0
        if self.kind == "prod":
            error *= math.pi / 2
        return received * error + 1 - received

    @property
    def _width(self) -> int:
        """Bits of a Lloyd-Max code."""
        return self.bits - (self.kind == "prod")

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        planes = {}
        if self._width:
            stride = packed_size(padded_length(units.length), self._width)
            last = packed_size(padded_length(units.last), self._width)
            planes["codes"] = PlaneSpec(self._width, units.count, stride, max(units.count - 1, 0) * stride + last)
            planes["scales"] = PlaneSpec(32, units.count, 4, 4 * units.count, "<f4")
        if self.kind == "prod":
            if units.count and units.length > qjl.LONGEST:
                raise FormatError(f"turboquant: kind=prod takes rows of at most {qjl.LONGEST} coordinates")
            stride, last = packed_size(units.length, 1), packed_size(units.last, 1)
            planes["signs"] = PlaneSpec(1, units.count, stride, max(units.count - 1, 0) * stride + last)
            planes["gammas"] = PlaneSpec(32, units.count, 4, 4 * units.count, "<f4")
        return planes

    def _parts(self, units: Units) -> Iterator[tuple[int, Units]]:
        """Yield the units in runs of one padded length, for their levels: (number of the first unit, the run)."""
        whole = units.size // units.length
        if whole:
            yield 0, Units(whole * units.length, units.length, units.by_rows)
        if units.size > whole * units.length:
            rest = units.size - whole * units.length
            yield whole, Units(rest, rest, False)

    def _encode(self, job: Job) -> Made:
        x, units = job.host.float32(), job.units
        layout = self.layout(units, job.host.dtype, b"")
        planes = {name: np.zeros(p.nbytes, np.uint8) for name, p in layout.items()}
        bad, error, energy = -1, 0.0, 0.0
        for first, part in self._parts(units):
            at = first * units.length
            here = x[at : at + part.size]
            start = 0 if units.by_rows else job.start + at
            scales = np.zeros(part.count, np.float32)
            codes = _NONE
            if self._width:
                codes = _of_units(planes["codes"], layout["codes"], first, part.count)
                found = self._codes(here, part, job.key, start, codes, scales)
                bad = at + found[0] if bad < 0 <= found[0] else bad
                error, energy = error + found[1], energy + found[2]
                planes["scales"][4 * first :][: 4 * part.count] = scales.astype("<f4").view(np.uint8)
            if self.kind == "prod":
                signs = _of_units(planes["signs"], layout["signs"], first, part.count)
                gammas = self._residual_signs(here, part, job.key, start, codes, scales, signs)
                planes["gammas"][4 * first :][: 4 * part.count] = gammas.astype("<f4").view(np.uint8)
        if not self._width:
            bad = ops.current().first_nonfinite(np.ascontiguousarray(x))
        known = None if self.kind == "prod" else max(error, 0.0) / energy if energy else 0.0
        return Made(planes, error=known, first_bad=bad)

    def _codes(
        self,
        x: NDArray[np.float32],
        part: Units,
        key: int,
        start: int,
        codes: NDArray[np.uint8],
        scales: NDArray[np.float32],
    ) -> tuple[int, float, float]:
        padded = padded_length(part.length)
        return ops.current().eden_encode(
            x,
            part.length,
            key,
            start,
            part.by_rows,
            self._width,
            sphere.levels(self._width, padded),
            sphere.thresholds(self._width, padded),
            _ONE,
            0,
            _ROUNDS,
            False,
            codes,
            scales,
            np.empty(part.count, np.uint8),
            np.empty(0, np.float32),
        )

    def _expand(
        self,
        codes: NDArray[np.uint8],
        scales: NDArray[np.float32],
        part: Units,
        key: int,
        start: int,
        weight: float,
        add: bool,
        flags: NDArray[np.uint8],
        out: NDArray[np.float32],
    ) -> None:
        padded = padded_length(part.length)
        rounds = _ROUNDS if run_length(padded) == padded else mixing_rounds(padded)
        ops.current().eden_decode(
            codes,
            scales,
            np.full(part.count, rounds, np.uint8),
            part.length,
            key,
            start,
            part.by_rows,
            self._width,
            sphere.levels(self._width, padded),
            weight,
            add,
            flags,
            False,
            out,
        )

    def _residual_signs(
        self,
        x: NDArray[np.float32],
        part: Units,
        key: int,
        start: int,
        codes: NDArray[np.uint8],
        scales: NDArray[np.float32],
        signs: NDArray[np.uint8],
    ) -> NDArray[np.float32]:
        """Fill `signs` with those of G r, r = x - x_hat; return ||r|| / sqrt(n), NaN where x is not finite."""
        n = part.length
        rows = x.reshape(part.count, n)
        s, finite = qjl.powers_of_two(rows)
        w = np.where(finite[:, None], rows, 0).astype(np.float32) * s[:, None]
        if self._width:
            estimate = np.empty(part.size, np.float32)
            near = np.where(finite, scales, 0).astype(np.float32) * s
            self._expand(codes, near, part, key, start, 1.0, False, _NONE, estimate)
            w -= estimate.reshape(part.count, n)
        gammas = qjl.encode(w, key, signs.reshape(part.count, -1))
        return np.where(finite, (gammas / s).astype(np.float32), np.float32(np.nan))

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if add and self.kind == "prod":  # the sum of both stages is what is added
            estimate = np.empty_like(out)
            self._decode(enc, units, estimate, False, weight, present)
            out += estimate
            return
        flags = np.ones(units.count, np.uint8) if present is None else present.astype(np.uint8)
        layout = self.layout(units, enc.dtype, b"")
        for first, part in self._parts(units):
            at, these = first * units.length, slice(first, first + part.count)
            target = out[at : at + part.size]
            start = 0 if units.by_rows else enc.start + at
            if self._width:
                codes = _of_units(np.ascontiguousarray(enc.planes["codes"].data), layout["codes"], first, part.count)
                scales = enc.planes["scales"].values()[these].astype(np.float32)
                self._expand(codes, scales, part, enc.key, start, weight, add, flags[these], target)
            elif not add:
                target[:] = 0
            if self.kind == "prod":
                signs = _of_units(enc.planes["signs"].data, layout["signs"], first, part.count)
                gammas = enc.planes["gammas"].values()[these].astype(np.float32)
                rows = target.reshape(part.count, part.length)
                qjl.add_estimate(signs.reshape(part.count, -1), gammas, flags[these], enc.key, weight, rows)

    def estimate(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not self._may_overflow(enc):
            self._decode(enc, units, out, add, weight, present)
            return
        # Both stages may pass the largest float with opposite signs: they are added at 1/256 of their size.
        part = np.empty_like(out)
        self._decode(enc, units, part, False, weight / 256, present)
        limit = np.finfo(np.float32).max / 256
        np.clip(part, -limit, limit, out=part)
        part *= 256
        if add:
            out += part
        else:
            out[:] = part

    def _may_overflow(self, enc: Encoded) -> bool:
        names = [name for name in ("scales", "gammas") if name in enc.planes]
        return any(bool((enc.planes[name].values() > _LARGE).any()) for name in names)


def _of_units(data: NDArray[np.uint8], spec: PlaneSpec, first: int, count: int) -> NDArray[np.uint8]:
    """View the bytes of `count` units from number `first` on."""
    return data[first * spec.stride : min((first + count) * spec.stride, spec.nbytes)]
