"""EDEN: random rotation, Lloyd-Max codes of b bits, and one scale that makes the estimate exact on average.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "EDEN:
Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv 2108.08842.
FORMAT.md section 4: every step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.arrived import divide_by_share
from tersor.codecs.grid_coder import FIELDS, WIDTH, GridCoder, coder_of
from tersor.codecs.scale_types import SCALE_DTYPES, check_scales, choose, narrow, widen
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.lengths import code_bytes, mixing_rounds, padded_length, run_length
from tersor.quantize import lloyd_max, uniform_grid
from tersor.registry import register
from tersor.units import Units

SCALES = ("unbiased", "biased", "norm", "one")
_LARGE = 2.0**60  # a scale may still be divided by a share of 2**-30, and multiplied by rotated levels
_AUTO_ROWS = 2
_CACHED, _AT_ONCE = 1 << 16, 64  # longest unit, and how many messages, that one pass over several messages takes


_UNIFORM_CLAIMS = Claims(
    unbiased=True, fixed_size=False, error_law="E q**2 / (E z q)**2 - 1 with q the level of z ~ N(0, 1)"
)


@register("eden")
@dataclass(frozen=True)
class Eden(Codec):
    """EDEN: b bits a coordinate, with an error that does not depend on the input.

    Attributes
    ----------
    bits : int or float
        Bits a coordinate, above 0 and at most 8. 1 is DRIVE. With a fraction, the first rotated coordinates have one
        bit more than the others: 2.5 means 3 bits for one half and 2 for the other, 0.25 one bit for a quarter.
    scale : {"unbiased", "biased", "norm", "one"}, default "unbiased"
        What the sender makes exact: the expectation (for means of many senders), the least error (for one use), the
        norm of the estimate, or nothing (TurboQuant's choice). Decoders do not care.
    rotations : {"auto", 1, 2, 3}, default "auto"
        Rounds of the rotation. 1 leaves a bias where few coordinates dominate. "auto" gives each block one round, or
        two if its fourth moment is large; rows, senders with a shared key and fractional bits always have two.
    block : int or "full", default 4096
        Coordinates that share a scale in a long vector, a power of two; "full" rotates the whole vector, padded to one.
    scale_dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Type of a scale on the wire.
    store_norm : bool, default False
        Also send ||x|| of every unit.
    grid : {"lloyd", "uniform"}, default "lloyd"
        The levels: those of least error, or a uniform grid whose codes have an entropy of `bits` (up to 6) and are
        entropy-coded: at 2, 3 and 4 bits 27 %, 36 % and 42 % less error for the same bytes, but slower, and a lost
        byte loses all. The size of a message depends on the data: it is off where units are short or their rotated
        coordinates far from normal. Below 2 bits, units of a few coordinates may decode to zeros.

    Notes
    -----
    With m_b the mean squared error of the Lloyd-Max quantizer, vNMSE is m_b / (1 - m_b) for "unbiased" and m_b for
    "biased" in high dimension: 0.571, 0.133, 0.0358, 0.00959 and 0.363, 0.117, 0.0345, 0.00950 at 1 to 4 bits. With a
    fraction m is the mean over the coordinates; one that is not sent has m = 1. Below 1 bit, a unit whose few sent
    coordinates all happen to be 0 decodes to zeros; units of up to 8 coordinates send them all at the higher width.

    "unbiased" is so for a uniformly random rotation, which that of short units is not nearly: with up to 8 coordinates
    means over many keys were off by up to 13 % of ||x|| at 1 and 2 bits and 2 % at 4 bits; with 0.5 bits by 11 % at 16
    coordinates, and 1 % at 64.

    Where parts of units are lost (`received` of shape (units, pieces) in `decode`) and a share p arrives, vNMSE is
    1 / (p (1 - m)) - 1 for "unbiased", 1 - p (1 - m) for "biased" and "one", 1 - 2 p sqrt(1 - m) + p for "norm"; with
    a fraction, where the lost pieces are spread over a unit.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**17).astype(np.float32)
    >>> enc = tersor.Eden(bits=2).encode(x, seed=7)
    >>> round(enc.bits_per_coordinate, 2), round(enc.error, 2)
    (2.01, 0.13)
    """

    bits: int | float
    scale: str = "unbiased"
    rotations: int | str = "auto"
    block: int | str = 4096
    scale_dtype: str = "float32"
    store_norm: bool = False
    grid: str = "lloyd"

    examples: ClassVar[tuple[str, ...]] = (
        "eden:0.5",
        "eden:1",
        "eden:1.5",
        "eden:2",
        "eden:2.5",
        "eden:3",
        "eden:4",
        "eden:6",
        "eden:8",
        "eden:2,grid=uniform",
    )
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        error_law="m_b / (1 - m_b) with m_b the Lloyd-Max error of N(0, 1)",
    )

    def __post_init__(self) -> None:
        if type(self.bits) is float and self.bits.is_integer():
            object.__setattr__(self, "bits", int(self.bits))
        if type(self.bits) not in (int, float) or not 0 < self.bits <= lloyd_max.MAX_BITS:
            raise ValueError(
                f"{self.name}: bits must be a number above 0 and up to {lloyd_max.MAX_BITS}, got {self.bits!r}"
            )
        choose("grid", self.grid, ("lloyd", "uniform"))
        if self.grid == "uniform":
            if self.bits > uniform_grid.MAX_BITS:
                raise ValueError(f"{self.name}: grid=uniform has up to {uniform_grid.MAX_BITS} bits, got {self.bits!r}")
            object.__setattr__(self, "fields_size", FIELDS.size)
            object.__setattr__(self, "claims", _UNIFORM_CLAIMS)
        choose("scale", self.scale, SCALES)
        choose("rotations", self.rotations, ("auto", 1, 2, 3))
        choose("scale_dtype", self.scale_dtype, tuple(SCALE_DTYPES))
        choose("store_norm", self.store_norm, (False, True))
        if self.block != "full" and not (
            type(self.block) is int and 32 <= self.block <= 2**24 and self.block & (self.block - 1) == 0
        ):
            raise ValueError(f'eden: block must be a power of two from 32 to 2**24, or "full", got {self.block!r}')
        if self.scale != "unbiased":
            law = {"biased": "m_b", "norm": "2 (1 - sqrt(1 - m_b))", "one": "m_b, more for structured inputs"}[
                self.scale
            ]
            object.__setattr__(self, "claims", replace(self.claims, unbiased=False, error_law=law))
        elif self.rotations == 1:
            law = "that of two rounds, for inputs that no few coordinates dominate; else biased"
            object.__setattr__(self, "claims", replace(self.claims, unbiased=False, error_law=law))

    @property
    def unit(self) -> int | None:
        return None if isinstance(self.block, str) else self.block

    @property
    def loss_inside_units(self) -> bool:
        return self.claims.tolerates_loss

    @property
    def _coder(self) -> GridCoder | None:
        return coder_of(float(self.bits)) if self.grid == "uniform" else None

    @cached_property
    def _low(self) -> int:
        return WIDTH if self.grid == "uniform" else int(self.bits)

    @cached_property
    def _fraction(self) -> float:
        return 0.0 if self.grid == "uniform" else float(self.bits) - self._low

    @property
    def _always_two(self) -> bool:
        """Whether `auto` is two rounds: after one, parts of the rotated coordinates are not alike enough."""
        return self._fraction > 0

    @cached_property
    def _width(self) -> int:
        """The width of codes, of the wider ones if there are two."""
        return self._low + (self._fraction > 0)

    @property
    def levels(self) -> NDArray[np.float32]:
        """The values that codes stand for, in units of the scale; with fractional bits those of the wider codes."""
        if self._coder:
            return self._coder.levels[: self._coder.n_levels]
        return self.levels_of(self._width)

    def levels_of(self, width: int) -> NDArray[np.float32]:
        """Return the 2**width values that codes of `width` bits stand for, in units of the scale; [0] for 0 bits.

        Examples
        --------
        >>> import tersor
        >>> codec = tersor.Eden(bits=1.5)
        >>> [len(codec.levels_of(w)) for w in (1, 2)], codec.levels is codec.levels_of(2)
        ([2, 4], True)
        """
        return lloyd_max.levels(width)

    def expected_error(self, received: float = 1.0) -> float:
        if received != 1 and not self.loss_inside_units:
            return received * self.expected_error() + 1 - received
        zq, qq = self._moments()
        if not received:
            return 1.0
        return {
            "unbiased": lambda: qq / (received * zq * zq) - 1,
            "biased": lambda: 1 - received * zq * zq / qq,
            "norm": lambda: 1 - 2 * received * zq / math.sqrt(qq) + received,
            "one": lambda: 1 - 2 * received * zq + received * qq,
        }[self.scale]()

    def _moments(self) -> tuple[float, float]:
        """Return E z q and E q**2 for z ~ N(0, 1)."""
        if self._coder:
            return self._coder.grid.moments
        low, high = 1 - lloyd_max.mse(self._low), 1 - lloyd_max.mse(self._width)
        kept = low + self._fraction * (high - low)
        return kept, kept

    def largest_fields(self, units: Units) -> bytes:
        return self._coder.largest(units, self._full(units)) if self._coder else b""

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        planes = {"codes": self._codes_spec(units), **self._scales_spec(units)}
        if self._coder:
            nbytes = self._coder.nbytes(units, self._full(units), fields)
            planes["codes"] = PlaneSpec(8, units.count, 0, nbytes)
        if self.store_norm:
            planes["norms"] = PlaneSpec(32, units.count, 4, 4 * units.count, "<f4")
        if self._stores_rounds(units):
            planes["rounds"] = PlaneSpec(2, units.count, 0, bit_stream.packed_size(units.count, 2))
        return planes

    def _codes_spec(self, units: Units) -> PlaneSpec:
        full = self._full(units)
        stride, last = (
            code_bytes(padded_length(n, full), self._low, self._fraction) for n in (units.length, units.last)
        )
        return PlaneSpec(self._width, units.count, stride, max(units.count - 1, 0) * stride + last)

    def _scales_spec(self, units: Units) -> dict[str, PlaneSpec]:
        kind = np.dtype(SCALE_DTYPES[self.scale_dtype])
        nbytes = kind.itemsize * units.count
        return {"scales": PlaneSpec(8 * kind.itemsize, units.count, kind.itemsize, nbytes, kind.str)}

    def _full(self, units: Units) -> bool:
        return self.block == "full" and not units.by_rows

    def _stores_rounds(self, units: Units) -> bool:
        return self.rotations == "auto" and not units.by_rows and not self._always_two

    def _rotations(self, job: Job) -> int:
        """Return the rounds of this job, 0 for 1 or 2 by the moment check."""
        if not isinstance(self.rotations, str):
            return self.rotations
        return _AUTO_ROWS if job.units.by_rows or job.shared or self._always_two else 0

    def _encode(self, job: Job) -> Made:
        units = job.units
        codes = np.empty(self._codes_spec(units).nbytes, np.uint8)
        scales, rounds = np.empty(units.count, np.float32), np.empty(units.count, np.uint8)
        norms = np.empty(units.count if self.store_norm else 0, np.float32)
        bad, error, energy = ops.current().eden_encode(
            job.host.float32(),
            units.length,
            job.key,
            0 if units.by_rows else job.start,
            units.by_rows,
            self._low,
            self._levels(),
            self._thresholds(),
            SCALES.index(self.scale),
            list(SCALE_DTYPES).index(self.scale_dtype),
            self._rotations(job),
            self._full(units),
            codes,
            scales,
            rounds,
            norms,
            self._fraction,
        )
        wider = "" if self.scale_dtype == "float32" else "; scale_dtype=float32 holds more"
        check_scales(scales, f"scale does not fit in {self.scale_dtype}{wider}")
        if self._coder:
            codes = self._coder.encode(codes, scales, units, self._full(units))
        planes = {"codes": codes, "scales": narrow(scales, self.scale_dtype)}
        return self._made(planes, units, rounds, norms, error, energy, bad)

    def _made(
        self,
        planes: dict[str, NDArray[np.uint8]],
        units: Units,
        rounds: NDArray[np.uint8],
        norms: NDArray[np.float32],
        error: float,
        energy: float,
        bad: int,
    ) -> Made:
        check_scales(norms, "norm does not fit in float32")
        if self.store_norm:
            planes["norms"] = norms.astype("<f4").view(np.uint8)
        if self._stores_rounds(units):
            planes["rounds"] = bit_stream.pack(rounds.reshape(1, -1), 2).reshape(-1)
        fields = FIELDS.pack(len(planes["codes"])) if self._coder else b""
        return Made(planes, fields, error=max(error, 0.0) / energy if energy else 0.0, first_bad=bad)

    def _levels(self) -> NDArray[np.float32]:
        """The levels that an operation takes: of the lower width, then of the higher one if there is a fraction."""
        if self._coder:
            return self._coder.levels
        low = lloyd_max.levels(self._low)
        return np.concatenate([low, lloyd_max.levels(self._width)]) if self._fraction else low

    def _thresholds(self) -> NDArray[np.float32]:
        if self._coder:
            return self._coder.thresholds
        low = lloyd_max.thresholds(self._low)
        return np.concatenate([low, lloyd_max.thresholds(self._width)]) if self._fraction else low

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        scales, pieces = self._scales(enc), 1
        if present is not None and present.ndim == 2:
            pieces = present.shape[1]
            if self.scale == "unbiased":
                scales = divide_by_share(scales, present, units, self._full(units), self._fraction, self._kept())
        ops.current().eden_decode(
            self._codes(enc, units),
            scales,
            self._rounds(enc, units),
            units.length,
            enc.key,
            0 if units.by_rows else enc.start,
            units.by_rows,
            self._low,
            self._decoded_levels(enc),
            weight,
            add,
            np.zeros(0, np.uint8) if present is None else present.astype(np.uint8).reshape(-1),
            self._full(units),
            out,
            self._fraction,
            pieces,
        )

    def _codes(self, enc: Encoded, units: Units) -> NDArray[np.uint8]:
        if self._coder:
            return self._coder.decode(enc.planes["codes"].data, units, self._full(units))
        return np.ascontiguousarray(enc.planes["codes"].data)

    def _decoded_levels(self, enc: Encoded) -> NDArray[np.float32]:
        return self._levels()

    def _kept(self) -> tuple[float, float]:
        """Return E z q of the wider codes and of the others: what a coordinate adds to the estimate."""
        return 1 - lloyd_max.mse(self._width), 1 - lloyd_max.mse(self._low)

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        # One pass: every unit takes all messages while it is in cache. Long units do not stay there.
        general = any(enc.received is not None or self._may_overflow(enc) for enc in messages)
        if len(messages) < 2 or units.length > _CACHED or general or self._coder:
            super().accumulate(messages, units, out, weights)
            return
        for i in range(0, len(messages), _AT_ONCE):
            ops.current().eden_add(
                [
                    (
                        self._codes(enc, units),
                        self._scales(enc),
                        self._rounds(enc, units),
                        enc.key,
                        0 if units.by_rows else enc.start,
                        weight,
                    )
                    for enc, weight in zip(messages[i : i + _AT_ONCE], weights[i : i + _AT_ONCE], strict=True)
                ],
                units.length,
                units.by_rows,
                self._low,
                self._levels(),
                self._full(units),
                out,
                self._fraction,
            )

    def _scales(self, enc: Encoded) -> NDArray[np.float32]:
        return widen(enc.planes["scales"].values(), self.scale_dtype)

    def _rounds(self, enc: Encoded, units: Units) -> NDArray[np.uint8]:
        if self._stores_rounds(units):
            packed = enc.planes["rounds"].data.reshape(1, -1)
            return np.asarray(bit_stream.unpack(packed, 2, units.count), np.uint8).reshape(-1)
        rounds = np.full(units.count, _AUTO_ROWS if self.rotations == "auto" else self.rotations, np.uint8)
        for k, n in ((slice(None), units.length), (slice(units.count - 1, None), units.last)):
            padded = padded_length(n, self._full(units))
            if units.count and run_length(padded) != padded:
                rounds[k] = mixing_rounds(padded)
            elif k.start is not None and units.count:
                rounds[k] = _AUTO_ROWS if self.rotations == "auto" else self.rotations
        return rounds

    def validate(self, enc: Encoded) -> None:
        units = self.units(enc.shape, enc.axis)
        self._codes(enc, units)  # coded symbols that are none are found here
        if not self._stores_rounds(units) or not units.count:
            return
        rounds = self._rounds(enc, units)
        padded = padded_length(units.last, self._full(units))
        tail_is_mixed = run_length(padded) != padded
        blocks = rounds[:-1] if tail_is_mixed else rounds
        if bool(((blocks < 1) | (blocks > 2)).any()) or (tail_is_mixed and rounds[-1] != mixing_rounds(padded)):
            raise FormatError("eden: the plane of rounds holds a value that no encoder writes")

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((self._scales(enc) > _LARGE).any())
