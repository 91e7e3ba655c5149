"""The OCP Microscaling formats: small floats or integers with one power-of-two scale a block of 32.

B. D. Rouhani et al.: "Microscaling Data Formats for Deep Learning", 2023, arXiv 2310.10537, Algorithm 1; Open Compute
Project: OCP Microscaling Formats (MX) Specification v1.0, 2023.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec, Job, Made
from tersor.codecs.deliver import deliver
from tersor.coding.bits import packed_size
from tersor.encoded import Encoded, PlaneSpec
from tersor.kernels import ops
from tersor.registry import register
from tersor.units import Units

BLOCK = 32
_NAN = 255  # the E8M0 code of NaN; all others are powers of two, 2**(code - 127)
# Number of the element for `ops`, bits, exponent of the largest power of two.
_ELEMENTS = {
    "e4m3": (0, 8, 8),
    "e5m2": (1, 8, 15),
    "e2m3": (2, 6, 2),
    "e3m2": (3, 6, 4),
    "e2m1": (4, 4, 2),
    "int8": (5, 8, 0),
}
_STOCHASTIC_LAW = "(b - |x_i|) * (|x_i| - a) a coordinate between neighbours a and b of the grid, at most step**2 / 4"


def _claims(fine: bool, law: str) -> Claims:
    return Claims(
        row_addressable=True, tolerates_loss=True, shared_rotation=True, rounds_to_nearest=fine, error_law=law
    )


@dataclass(frozen=True)
class _Microscaling(Codec):
    """Blocks of 32: scale 2**(floor(log2 max|x|) - emax), elements x / scale to nearest even, saturating.

    Attributes
    ----------
    rounding : {"nearest", "stochastic"}, default "nearest"
        To the nearest element, ties to even, or to one of the two beside x / scale with the probabilities that make the
        estimate unbiased where it does not saturate.
    scale_rounding : {"floor", "up"}, default "floor"
        The specification's scale, under which the largest values may saturate, or the least power of two under which
        none does (but for `mxint8` above 127/64 * 2**127).
    """

    kinds: ClassVar[tuple[str, ...]]

    @property
    def _kind(self) -> str:
        return self.kinds[0]

    @property
    def _stochastic(self) -> bool:
        return bool(getattr(self, "rounding") == "stochastic")  # noqa: B009 - a field of the subclasses, after `element`

    @property
    def _up(self) -> bool:
        return bool(getattr(self, "scale_rounding") == "up")  # noqa: B009

    def __post_init__(self) -> None:
        for name, legal in (("rounding", ("nearest", "stochastic")), ("scale_rounding", ("floor", "up"))):
            if getattr(self, name) not in legal:
                raise ValueError(f"{self.name}: {name} must be {' or '.join(legal)}, got {getattr(self, name)!r}")
        if self._stochastic:
            claims = replace(type(self).claims, unbiased=self._up, rounds_to_nearest=False, error_law=_STOCHASTIC_LAW)
            object.__setattr__(self, "claims", claims)

    @property
    def unit(self) -> int:
        return BLOCK

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        bits = _ELEMENTS[self._kind][1]
        per_unit, stride = -(-units.length // BLOCK), packed_size(units.length, bits)
        nbytes = max(units.count - 1, 0) * stride + packed_size(units.last, bits)
        return {
            "codes": PlaneSpec(bits, units.count, stride, nbytes),
            "scales": PlaneSpec(8, units.count, per_unit, units.count * per_unit, "|u1"),
        }

    def _encode(self, job: Job) -> Made:
        layout = self.layout(job.units, job.host.dtype, b"")
        planes = {name: np.empty(plane.nbytes, np.uint8) for name, plane in layout.items()}
        bad = -1
        if job.units.size:
            row, number = _row(job.units), _ELEMENTS[self._kind][0]
            options = (self._up, self._stochastic, job.private, job.word)
            bad = ops.current().mx_encode(job.host.float32(), row, number, planes["codes"], planes["scales"], *options)
        return Made(planes, first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        if not units.size:
            return
        codes, scales = (np.ascontiguousarray(enc.planes[name].data) for name in ("codes", "scales"))
        row, number = _row(units), _ELEMENTS[self._kind][0]
        if present is None:
            ops.current().mx_decode(codes, scales, row, number, weight, add, out)
            return
        values = np.empty(units.size, np.float32)
        ops.current().mx_decode(codes, scales, row, number, 1.0, False, values)
        deliver(values, units, out, add, weight, present)

    def _may_overflow(self, enc: Encoded) -> bool:
        large = 247 - _ELEMENTS[self._kind][2]  # from here on, elements near the largest may exceed 2**120
        scales = enc.planes["scales"].data
        return bool(((scales > large) & (scales != _NAN)).any())


def _row(units: Units) -> int:
    return units.length if units.by_rows else units.size


@dataclass(frozen=True)
class _WithElement(_Microscaling):
    """A format with a choice of elements."""

    element: str

    def __post_init__(self) -> None:
        if self.element not in self.kinds:
            raise ValueError(f"{self.name}: element must be {' or '.join(self.kinds)}, got {self.element!r}")
        super().__post_init__()

    @property
    def _kind(self) -> str:
        return self.element


@register("mxfp8")
@dataclass(frozen=True)
class MXFP8(_WithElement):
    """8-bit floats, 8.25 bits a coordinate.

    Attributes
    ----------
    element : {"e4m3", "e5m2"}, default "e4m3"
        Exponent and mantissa bits; the largest elements are 448 and 57,344.
    rounding : {"nearest", "stochastic"}, default "nearest"
        To the nearest element, ties to even, or to one of its two neighbours at random.
    scale_rounding : {"floor", "up"}, default "floor"
        The specification's scale, under which the largest values may saturate, or the least one under which none
        does. Stochastic rounding with scales rounded up is unbiased.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([448, 17, 1, -0.3], np.float32), "mxfp8").tolist()
    [448.0, 16.0, 1.0, -0.3125]
    """

    element: str = "e4m3"
    rounding: str = "nearest"
    scale_rounding: str = "floor"

    examples: ClassVar[tuple[str, ...]] = ("mxfp8", "mxfp8:rounding=stochastic,scale_rounding=up")
    claims: ClassVar[Claims] = _claims(
        False, "|x_hat_i - x_i| <= |x_i| / 16 (e4m3) or / 8 (e5m2), twice that where it saturates, or a denormal's half"
    )
    kinds: ClassVar[tuple[str, ...]] = ("e4m3", "e5m2")


@register("mxfp6")
@dataclass(frozen=True)
class MXFP6(_WithElement):
    """6-bit floats, 6.25 bits a coordinate.

    Attributes
    ----------
    element : {"e2m3", "e3m2"}, default "e2m3"
        Exponent and mantissa bits; the largest elements are 7.5 and 28.
    rounding : {"nearest", "stochastic"}, default "nearest"
        To the nearest element, ties to even, or to one of its two neighbours at random.
    scale_rounding : {"floor", "up"}, default "floor"
        The specification's scale, under which the largest values may saturate, or the least one under which none
        does. Stochastic rounding with scales rounded up is unbiased.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([7.5, 3.9, 1, -0.3], np.float32), "mxfp6").tolist()
    [7.5, 4.0, 1.0, -0.25]
    """

    element: str = "e2m3"
    rounding: str = "nearest"
    scale_rounding: str = "floor"

    examples: ClassVar[tuple[str, ...]] = ("mxfp6", "mxfp6:rounding=stochastic,scale_rounding=up")
    claims: ClassVar[Claims] = _claims(
        False, "|x_hat_i - x_i| <= |x_i| / 16 (e2m3) or / 8 (e3m2), twice that where it saturates, or a denormal's half"
    )
    kinds: ClassVar[tuple[str, ...]] = ("e2m3", "e3m2")


@register("mxfp4")
@dataclass(frozen=True)
class MXFP4(_Microscaling):
    """4-bit floats (E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6), 4.25 bits a coordinate.

    Attributes
    ----------
    rounding : {"nearest", "stochastic"}, default "nearest"
        To the nearest element, ties to even, or to one of its two neighbours at random.
    scale_rounding : {"floor", "up"}, default "floor"
        The specification's scale, under which the largest values may saturate, or the least one under which none
        does. Stochastic rounding with scales rounded up is unbiased.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([6, 2.5, 1, -0.3], np.float32), "mxfp4").tolist()
    [6.0, 2.0, 1.0, -0.5]
    """

    rounding: str = "nearest"
    scale_rounding: str = "floor"

    examples: ClassVar[tuple[str, ...]] = ("mxfp4", "mxfp4:rounding=stochastic,scale_rounding=up")
    claims: ClassVar[Claims] = _claims(False, "|x_hat_i - x_i| <= max|x| / 4 in each block")
    kinds: ClassVar[tuple[str, ...]] = ("e2m1",)


@register("mxint8")
@dataclass(frozen=True)
class MXINT8(_Microscaling):
    """8-bit integers over 64, from -127/64 to 127/64, 8.25 bits a coordinate.

    Attributes
    ----------
    rounding : {"nearest", "stochastic"}, default "nearest"
        To the nearest element, ties to even, or to one of its two neighbours at random.
    scale_rounding : {"floor", "up"}, default "floor"
        The specification's scale, under which the largest values may saturate, or the least one under which none
        does. Stochastic rounding with scales rounded up is unbiased.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.roundtrip(np.array([1.5, 1 / 64, 1 / 128, -1.999], np.float32), "mxint8").tolist()
    [1.5, 0.015625, 0.0, -1.984375]
    """

    rounding: str = "nearest"
    scale_rounding: str = "floor"

    examples: ClassVar[tuple[str, ...]] = ("mxint8", "mxint8:rounding=stochastic,scale_rounding=up")
    claims: ClassVar[Claims] = _claims(True, "|x_hat_i - x_i| <= max|x| / 128 in each block")
    kinds: ClassVar[tuple[str, ...]] = ("int8",)
