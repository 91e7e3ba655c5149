"""DRIVE and DRIVE+: one bit for every rotated coordinate, and one scale or two values a block.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "DRIVE: One-bit
Distributed Mean Estimation", NeurIPS 2021, arXiv 2105.08339. FORMAT.md section 4: every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec, Job, Made
from tersor.codecs.eden import SCALES, Eden
from tersor.codecs.scale_types import check_scales, choose
from tersor.encoded import Encoded, PlaneSpec
from tersor.kernels import ops
from tersor.registry import register
from tersor.units import Units


@register("drive")
@dataclass(frozen=True)
class Drive(Eden):
    """DRIVE: the sign of every rotated coordinate and one scale a block; EDEN at one bit.

    Attributes
    ----------
    plus : bool, default False
        DRIVE+: the bit says which of two values stands for a coordinate, the two means of the block's rotated
        coordinates times the scale; two float32 a block. On rotated coordinates, which are close to normal, this gains
        nothing unless blocks are short; one whose coordinates are all equal is coded as DRIVE would. rotations="auto"
        is then 2.
    scale, rotations, block, store_norm
        As for `Eden`.
    scale_dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Type of a scale on the wire; float32 for DRIVE+.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([3.0], np.float32), "drive").tolist()
    [3.0]
    >>> tersor.get_codec("drive:plus=true").spec
    'drive,plus=true'
    """

    bits: int | float = field(default=1, init=False, repr=False)
    plus: bool = False
    examples: ClassVar[tuple[str, ...]] = ("drive", "drive:plus=true")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("plus", self.plus, (False, True))
        choose("grid", self.grid, ("lloyd",))
        if self.plus and self.scale_dtype != "float32":
            raise ValueError(f"drive: plus=true has two float32 a block, not scale_dtype={self.scale_dtype}")

    @property
    def _always_two(self) -> bool:
        # Two means keep the sum of the rotated coordinates, which after one round is a single coordinate of the input.
        return self.plus

    def _scales_spec(self, units: Units) -> dict[str, PlaneSpec]:
        if not self.plus:
            return super()._scales_spec(units)
        return {"values": PlaneSpec(32, units.count, 8, 8 * units.count, "<f4")}

    def _encode(self, job: Job) -> Made:
        if not self.plus:
            return super()._encode(job)
        units = job.units
        codes = np.empty(self._codes_spec(units).nbytes, np.uint8)
        values, rounds = np.empty(2 * units.count, np.float32), np.empty(units.count, np.uint8)
        norms = np.empty(units.count if self.store_norm else 0, np.float32)
        bad, error, energy = ops.current().drive_plus_encode(
            job.host.float32(),
            units.length,
            job.key,
            0 if units.by_rows else job.start,
            units.by_rows,
            SCALES.index(self.scale),
            self._rotations(job),
            self._full(units),
            codes,
            values,
            rounds,
            norms,
        )
        check_scales(np.abs(values).reshape(-1, 2).max(axis=1, initial=0), "value does not fit in float32")
        planes = {"codes": codes, "values": values.astype("<f4").view(np.uint8)}
        return self._made(planes, units, rounds, norms, error, energy, bad)

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        if self.plus:  # levels of their own: one message after the other
            Codec.accumulate(self, messages, units, out, weights)
        else:
            super().accumulate(messages, units, out, weights)

    def _scales(self, enc: Encoded) -> NDArray[np.float32]:
        if not self.plus:
            return super()._scales(enc)
        largest: NDArray[np.float32] = np.abs(self._values(enc)).max(axis=1, initial=0)
        return largest

    def _decoded_levels(self, enc: Encoded) -> NDArray[np.float32]:
        if not self.plus:
            return super()._decoded_levels(enc)
        scales = self._scales(enc).astype(np.float64)
        with np.errstate(invalid="ignore"):
            levels = self._values(enc).astype(np.float64) / np.where(scales == 0, 1, scales)[:, None]
        return levels.astype(np.float32).reshape(-1)

    def _values(self, enc: Encoded) -> NDArray[np.float32]:
        return enc.planes["values"].values().astype(np.float32).reshape(-1, 2)
