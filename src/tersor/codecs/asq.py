"""ASQ: the 2**bits levels of least variance for this very input, and unbiased stochastic rounding between neighbours.

R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik: "Optimal and Approximate Adaptive Stochastic Quantization",
NeurIPS 2024, arXiv 2402.03158, Section 2 (the problem); `tersor.quantize.adaptive` finds the levels. With shared
randomness: the same authors' "Better than Optimal: Improving Adaptive Stochastic Quantization Using Shared Randomness",
SIGMETRICS 2026; `tersor.quantize.shared_levels` says the estimator and finds the levels.
"""

import dataclasses
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Job
from tersor.codecs.pieces import groups
from tersor.codecs.unit_levels import AT_ONCE, EXACT_BELOW, UnitLevels
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.quantize import shared_levels
from tersor.registry import register
from tersor.units import Units

_TURN = struct.Struct("<B")  # what is added to the numbers of codebooks that senders draw alike
_APART = (0, 4, 2, 6, 1, 5, 3, 7)  # turns in the order of senders: the first few are far from one another
_NONE = np.zeros(0, np.uint8)


@register("asq")
@dataclass(frozen=True)
class ASQ(UnitLevels):
    """``x_hat_i`` is the level above x_i or the one below, at random, so that the mean is x_i; no rotation.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8.
    block : int or "full", default "full"
        Coordinates that share levels: the whole vector, or blocks of it. Rows (``axis=-1``) have their own.
    level_dtype : {"auto", "float32", "uint16", "uint8"}, default "auto"
        Type of the levels: float32, or float32 for the first and the last and evenly spaced steps between them for the
        others. "auto" is float32 for units of 256 * 2**bits coordinates or more, and for those of no more coordinates
        than levels, else uint16. The estimate is unbiased with any.
    method : {"auto", "exact", "histogram"}, default "auto"
        How the levels are found (`tersor.quantize.adaptive.levels`); "auto" is exact up to 4,096 coordinates.
    shared : int, default 1
        Number of codebooks, 1 to 8. From 2 on, sender and receiver draw from the message's key which one holds for a
        coordinate (in rows: for a column): less error at as many bits a code, for `shared` times as many levels.

    Notes
    -----
    A coordinate between the levels a and b has the expected squared error ``(b - x) (x - a)``; no unbiased scheme with
    2**bits values, and nothing shared, has a smaller sum. `enc.error` is the error that this very message made. What is
    itself a level is exact: a vector of zeros, or of no more values than levels where their type holds them (float32
    any, uint16 halves, thirds, .. tenths of the range).

    In rows of 128 values, uint16 levels cost less than 0.05 % of error at 2, 3 and 4 bits for normal, Laplace and
    lognormal values, wherever their mean is, and take 0.75, 1.25 and 2.25 bits a coordinate. uint8 costs up to 2 % and
    takes 0.625, 0.875 and 1.375 bits: choose it for short rows without extreme outliers.

    Two codebooks leave 35, 52 and 61 % of the error of 4,096 normal values at 1, 2 and 4 bits, four 20, 39 and 52 %.
    Senders with keys of their own have a mean whose error falls as 1/n. Those with one `Shared` key take turns at the
    codebooks, by their `sender` numbers: estimates of like vectors then err against one another, and the error of the
    mean falls faster. A codebook's values may be beyond the largest and the least coordinate.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).lognormal(0, 1, 2**14).astype(np.float32)
    >>> enc = tersor.get_codec("asq:4").encode(x, seed=1)
    >>> round(enc.bits_per_coordinate, 1), bool(tersor.nmse(x, tersor.decode(enc)) < 0.015)
    (4.1, True)
    """

    examples: ClassVar[tuple[str, ...]] = (
        "asq:2",
        "asq:3",
        "asq:4",
        "asq:6",
        "asq:8",
        "asq:2,shared=2",
        "asq:4,shared=2",
    )
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="sum (b - x) (x - a) / ||x||**2 for the levels a <= x <= b, the least that 2**bits levels allow",
    )
    shared: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.shared) is not int or not 1 <= self.shared <= shared_levels.MAX_SHARED:
            raise ValueError(
                f"asq: shared must be an integer from 1 to {shared_levels.MAX_SHARED}, got {self.shared!r}"
            )
        if self.shared > 1:
            law = "shared_levels.expected_error(x, levels) / ||x||**2"
            object.__setattr__(self, "claims", dataclasses.replace(self.claims, error_law=law))
            object.__setattr__(self, "fields_size", _TURN.size)

    @property
    def n_levels(self) -> int:
        return self.shared << self.bits

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        if self.shared > 1 and _TURN.unpack(fields)[0] >= self.shared:
            raise FormatError(f"asq: turn {_TURN.unpack(fields)[0]} of {self.shared} codebooks")
        return super().layout(units, dtype, fields)

    def _fields(self, job: Job) -> bytes:
        return _TURN.pack(self._turn(job)) if self.shared > 1 else b""

    def _turn(self, job: Job) -> int:
        return [turn for turn in _APART if turn < self.shared][job.sender % self.shared]

    def _search(self, x: NDArray[np.float32], units: Units) -> NDArray[np.float32]:
        if self.shared == 1:
            return super()._search(x, units)
        made = np.empty((units.count, self.n_levels), np.float32)
        for k, m, n in groups(units, AT_ONCE // units.length):
            rows = x[k * units.length :][: m * n].reshape(m, n)
            if self.method == "exact" or (self.method == "auto" and n <= EXACT_BELOW):
                found = shared_levels.levels(rows, 1 << self.bits, shared=self.shared, axis=-1)
                made[k : k + m] = found.swapaxes(1, 2).reshape(m, -1)
                continue
            for i, row in enumerate(rows):
                found = shared_levels.levels(row, 1 << self.bits, shared=self.shared, method=self.method)
                made[k + i, : found.size], made[k + i, found.size :] = found.T.reshape(-1), found[-1, -1]
        made += np.float32(0)  # no -0, as in UnitLevels
        # Levels may lie far outside the values, even beyond float32. Levels among the values do not.
        for unit in np.flatnonzero(np.isinf(made).any(axis=1)):
            values = x[unit * units.length :][: units.length]
            alone = dataclasses.replace(self, shared=1)._search(values, Units(len(values), len(values), False))
            made[unit] = np.repeat(alone, self.shared, axis=1)
        return made

    def _round(
        self, job: Job, x: NDArray[np.float32], levels: NDArray[np.float32], codes: NDArray[np.uint8]
    ) -> tuple[float, float]:
        if self.shared == 1:
            return super()._round(job, x, levels, codes)
        return ops.current().shared_encode(
            x,
            job.units.length,
            levels,
            self.bits,
            self.shared,
            job.key,
            job.start,
            job.units.by_rows,
            self._turn(job),
            job.private,
            job.word,
            codes,
        )

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if self.shared == 1:
            super()._decode(enc, units, out, add, weight, present)
            return
        ops.current().shared_decode(
            np.ascontiguousarray(enc.planes["codes"].data),
            units.length,
            self._levels(enc, units),
            self.bits,
            self.shared,
            enc.key,
            enc.start,
            units.by_rows,
            _TURN.unpack(enc.fields)[0],
            weight,
            add,
            _NONE if present is None else present.astype(np.uint8),
            out,
        )
