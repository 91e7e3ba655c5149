"""EDEN and DRIVE: random rotation, Lloyd-Max codes of b bits, and one scale that makes the estimate exact on average.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "EDEN:
Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv 2108.08842, and
"DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021, arXiv 2105.08339 (b = 1). FORMAT.md section 4: every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16
from tersor.codec import Claims, Codec, Job, Made
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError, RangeError
from tersor.kernels import ops
from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.quantize import lloyd_max
from tersor.registry import register
from tersor.units import Units

_SCALES = ("unbiased", "biased", "norm", "one")
_SCALE_DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_LARGE = 2.0**100
_AUTO_ROWS = 2
_CACHED, _AT_ONCE = 1 << 16, 64  # longest unit, and how many messages, that one pass over several messages takes


@register("eden")
@dataclass(frozen=True)
class Eden(Codec):
    """EDEN: b bits a coordinate, with an error that does not depend on the input.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8. 1 is DRIVE.
    scale : {"unbiased", "biased", "norm", "one"}, default "unbiased"
        What the sender makes exact: the expectation (for means of many senders), the least error (for one use), the
        norm of the estimate, or nothing (TurboQuant's choice). Decoders do not care.
    rotations : {"auto", 1, 2, 3}, default "auto"
        Rounds of the rotation. 1 leaves a bias where few coordinates dominate. "auto" gives each block one round, or
        two if its fourth moment is large; rows and senders with a shared key always have two.
    block : int or "full", default 4096
        Coordinates that share a scale in a long vector, a power of two; "full" rotates the whole vector, padded to one.
    scale_dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Type of a scale on the wire.
    store_norm : bool, default False
        Also send ||x|| of every unit.

    Notes
    -----
    With m_b the mean squared error of the Lloyd-Max quantizer, vNMSE is m_b / (1 - m_b) for "unbiased" and m_b for
    "biased" in high dimension: 0.571, 0.133, 0.0358, 0.00959 and 0.363, 0.117, 0.0345, 0.00950 at 1 to 4 bits.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**17).astype(np.float32)
    >>> enc = tersor.Eden(bits=2).encode(x, seed=7)
    >>> round(enc.bits_per_coordinate, 2), round(enc.error, 2)
    (2.01, 0.13)
    """

    bits: int
    scale: str = "unbiased"
    rotations: int | str = "auto"
    block: int | str = 4096
    scale_dtype: str = "float32"
    store_norm: bool = False

    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        error_law="m_b / (1 - m_b) with m_b the Lloyd-Max error of N(0, 1)",
    )

    def __post_init__(self) -> None:
        _choose("bits", self.bits, range(1, lloyd_max.MAX_BITS + 1))
        _choose("scale", self.scale, _SCALES)
        _choose("rotations", self.rotations, ("auto", 1, 2, 3))
        _choose("scale_dtype", self.scale_dtype, tuple(_SCALE_DTYPES))
        _choose("store_norm", self.store_norm, (False, True))
        if self.block != "full" and not (
            type(self.block) is int and 32 <= self.block <= 2**24 and self.block & (self.block - 1) == 0
        ):
            raise ValueError(f'eden: block must be a power of two from 32 to 2**24, or "full", got {self.block!r}')
        if self.scale != "unbiased":
            law = {"biased": "m_b", "norm": "2 (1 - sqrt(1 - m_b))", "one": "m_b, more for structured inputs"}[
                self.scale
            ]
            object.__setattr__(self, "claims", replace(type(self).claims, unbiased=False, error_law=law))
        elif self.rotations == 1:
            law = "that of two rounds, for inputs that no few coordinates dominate; else biased"
            object.__setattr__(self, "claims", replace(type(self).claims, unbiased=False, error_law=law))

    @property
    def unit(self) -> int | None:
        return None if isinstance(self.block, str) else self.block

    @property
    def levels(self) -> NDArray[np.float32]:
        """The 2**bits values that codes stand for, in units of the scale."""
        return lloyd_max.levels(self.bits)

    def expected_error(self, received: float = 1.0) -> float:
        m = lloyd_max.mse(self.bits)
        error = {
            "unbiased": 1 / (1 - m) - 1,
            "biased": m,
            "norm": 2 * (1 - np.sqrt(1 - m)),
            "one": m,
        }[self.scale]
        return float(received * error + 1 - received)

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        full = self._full(units)
        stride = bit_stream.packed_size(padded_length(units.length, full), self.bits)
        last = bit_stream.packed_size(padded_length(units.last, full), self.bits)
        kind = np.dtype(_SCALE_DTYPES[self.scale_dtype])
        planes = {
            "codes": PlaneSpec(self.bits, units.count, stride, max(units.count - 1, 0) * stride + last),
            "scales": PlaneSpec(8 * kind.itemsize, units.count, kind.itemsize, kind.itemsize * units.count, kind.str),
        }
        if self.store_norm:
            planes["norms"] = PlaneSpec(32, units.count, 4, 4 * units.count, "<f4")
        if self._stores_rounds(units):
            planes["rounds"] = PlaneSpec(2, units.count, 0, bit_stream.packed_size(units.count, 2))
        return planes

    def _full(self, units: Units) -> bool:
        return self.block == "full" and not units.by_rows

    def _stores_rounds(self, units: Units) -> bool:
        return self.rotations == "auto" and not units.by_rows

    def _encode(self, job: Job) -> Made:
        units, layout = job.units, self.layout(job.units, job.host.dtype, b"")
        codes = np.empty(layout["codes"].nbytes, np.uint8)
        scales, rounds = np.empty(units.count, np.float32), np.empty(units.count, np.uint8)
        norms = np.empty(units.count if self.store_norm else 0, np.float32)
        rotations = self.rotations
        if isinstance(rotations, str):
            rotations = _AUTO_ROWS if units.by_rows or job.shared else 0
        bad, error, energy = ops.current().eden_encode(
            job.host.float32(),
            units.length,
            job.key,
            0 if units.by_rows else job.start,
            units.by_rows,
            self.bits,
            lloyd_max.levels(self.bits),
            lloyd_max.thresholds(self.bits),
            _SCALES.index(self.scale),
            list(_SCALE_DTYPES).index(self.scale_dtype),
            rotations,
            self._full(units),
            codes,
            scales,
            rounds,
            norms,
        )
        wider = "" if self.scale_dtype == "float32" else "; scale_dtype=float32 holds more"
        _check_scales(scales, f"scale does not fit in {self.scale_dtype}{wider}")
        _check_scales(norms, "norm does not fit in float32")
        planes = {"codes": codes, "scales": _narrow(scales, self.scale_dtype)}
        if self.store_norm:
            planes["norms"] = norms.astype("<f4").view(np.uint8)
        if self._stores_rounds(units):
            planes["rounds"] = bit_stream.pack(rounds.reshape(1, -1), 2).reshape(-1)
        return Made(planes, error=max(error, 0.0) / energy if energy else 0.0, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        ops.current().eden_decode(
            np.ascontiguousarray(enc.planes["codes"].data),
            self._scales(enc),
            self._rounds(enc, units),
            units.length,
            enc.key,
            0 if units.by_rows else enc.start,
            units.by_rows,
            self.bits,
            lloyd_max.levels(self.bits),
            weight,
            add,
            np.zeros(0, np.uint8) if present is None else present.astype(np.uint8),
            self._full(units),
            out,
        )

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        # One pass: every unit takes all messages while it is in cache. Long units do not stay there.
        general = any(enc.received is not None or self._may_overflow(enc) for enc in messages)
        if len(messages) < 2 or units.length > _CACHED or general:
            super().accumulate(messages, units, out, weights)
            return
        for i in range(0, len(messages), _AT_ONCE):
            ops.current().eden_add(
                [
                    (
                        np.ascontiguousarray(enc.planes["codes"].data),
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
                self.bits,
                lloyd_max.levels(self.bits),
                self._full(units),
                out,
            )

    def _scales(self, enc: Encoded) -> NDArray[np.float32]:
        values = enc.planes["scales"].values()
        if self.scale_dtype == "bfloat16":
            return bfloat16_to_float32(values)
        return values.astype(np.float32)

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


@register("drive")
@dataclass(frozen=True)
class Drive(Eden):
    """DRIVE: the sign of every rotated coordinate and one scale a block; EDEN at one bit.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([3.0], np.float32), "drive").tolist()
    [3.0]
    """

    bits: int = field(default=1, init=False, repr=False)


def _check_scales(scales: NDArray[np.float32], what: str) -> None:
    """Raise RangeError if a scale became infinite."""
    if np.isinf(scales).any():
        raise RangeError(f"unit {int(np.argmax(np.isinf(scales)))}: the {what}; scale the array down")


def _choose(name: str, value: Any, allowed: Any) -> None:
    if not any(value == a and type(value) is type(a) for a in allowed):
        raise ValueError(f"eden: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _narrow(scales: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    if dtype == "bfloat16":
        return float32_to_bfloat16(scales).astype("<u2").view(np.uint8)
    return scales.astype(_SCALE_DTYPES[dtype]).view(np.uint8)
