"""The forms of SQ beyond private rounding of x itself: a subtractive dither, and the same quantizer on R x.

Subtractive dither: Lawrence G. Roberts: "Picture coding using pseudo-random noise", IRE Transactions on Information
Theory 8(2), 1962; Robert M. Gray, Thomas G. Stockham: "Dithered quantizers", IEEE Transactions on Information Theory
39(3), 1993. Rotation first: Ananda Theertha Suresh, Felix X. Yu, Sanjiv Kumar, H. Brendan McMahan: "Distributed Mean
Estimation with Limited Communication", ICML 2017, arXiv 1611.00429, section 3.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims
from tersor.kernels import ops
from tersor.kernels.lengths import padded_length
from tersor.units import Units

_AT_ONCE = 1 << 20  # coordinates that are decoded at a time: what bounds the memory of a rotated form
_NONE = np.zeros(0, np.uint8)


class Form(NamedTuple):
    """What a form needs to know of its codec."""

    bits: int
    subtractive: bool
    rotations: int


class Place(NamedTuple):
    """Where units stand in the random streams: the shared key, the private one, and the position of the first unit."""

    key: int
    private: int
    start: int


def claims_of(plain: Claims, form: Form) -> Claims:
    """Return what a form claims, from what the plain one does.

    A shared dither is one error for all who share it, and sums of codes would need the sum of the dithers. Parts of a
    rotated array have ranges of their own, which cannot be measured before the key is known.
    """
    if form.subtractive:
        law = "step**2 / 12 a coordinate, step = (max - min) / (2**bits - 1)"
        plain = replace(plain, additive=False, shared_rotation=False, error_law=law)
    if form.rotations:
        law = plain.error_law.replace("max - min", "max(R x) - min(R x)")
        plain = replace(plain, additive=False, row_addressable=False, error_law=law)
    return plain


def rotated_units(units: Units, form: Form) -> Units:
    """Return the units that the codes have: those of R x, each of its padded length."""
    if not form.rotations or not units.count:
        return units
    length = padded_length(units.length) if units.count > 1 or units.by_rows else padded_length(units.last)
    return Units((units.count - 1) * length + padded_length(units.last), length, units.by_rows)


def power_of_two(largest: float) -> float:
    """Return the s = 2**k that brings `largest` to [1/2, 1), k within -126 .. 127 (FORMAT.md, 4.2)."""
    return math.ldexp(1.0, max(-126, min(127, -math.frexp(largest)[1])))


def encode(
    x: NDArray[np.float32],
    units: Units,
    form: Form,
    place: Place,
    limits: tuple[float, float] | None,
    codes: NDArray[np.uint8],
) -> tuple[float, float]:
    """Fill `codes` from the finite `x`, which is not empty; return the range, `limits` or what was found."""
    s = 1.0
    if form.rotations:
        s = power_of_two(max(-float(x.min()), float(x.max())))
        start = 0 if units.by_rows else place.start
        turned = rotated_units(units, form)
        y = np.empty(turned.size, np.float32)
        scaled = x * np.float32(s)
        ops.current().rotate_units(scaled, units.length, place.key, start, units.by_rows, form.rotations, False, y)
        x, units = y, turned
    low, high = limits or (float(x.min()), float(x.max()))
    if form.subtractive:
        start = 0 if units.by_rows else place.start
        ops.current().dither_encode(x, units.length, low, high, form.bits, place.key, start, units.by_rows, codes)
    else:
        first = place.start * units.length if units.by_rows else place.start
        ops.current().sq_encode(x, units.length, low, high, form.bits, place.private, first, codes)
    return low / s, high / s


def decode(
    codes: NDArray[np.uint8],
    units: Units,
    form: Form,
    place: Place,
    limits: tuple[float, float],
    weight: float,
    add: bool,
    present: NDArray[np.bool_] | None,
    out: NDArray[Any],
) -> None:
    """Write ``weight * estimate`` to the flat `out`, or add it."""
    flags = _NONE if present is None else present.astype(np.uint8)
    turned = rotated_units(units, form)
    if not form.rotations:
        _expand(codes, turned, form, place, limits, weight, add, flags, out)
        return
    largest = max(abs(limits[0]), abs(limits[1]))
    s = power_of_two(largest) if math.isfinite(largest) else 1.0
    scaled = limits[0] * s, limits[1] * s
    stride = (turned.length * form.bits + 7) // 8
    step = max(1, _AT_ONCE // turned.length)
    for k in range(0, units.count, step):
        here, beyond = slice(k * units.length, (k + step) * units.length), slice(k, k + step)
        target = out[here]
        part = Units(min(step * turned.length, turned.size - k * turned.length), turned.length, units.by_rows)
        there = Place(place.key, place.private, 0 if units.by_rows else place.start + k * units.length)
        y = np.empty(part.size, np.float32)
        _expand(codes[k * stride : (k + step) * stride], part, form, there, scaled, 1.0, False, _NONE, y)
        ops.current().unrotate_units(
            y,
            units.length,
            place.key,
            there.start,
            units.by_rows,
            form.rotations,
            False,
            weight / s,
            add,
            flags[beyond],
            target,
        )


def _expand(
    codes: NDArray[np.uint8],
    units: Units,
    form: Form,
    place: Place,
    limits: tuple[float, float],
    weight: float,
    add: bool,
    flags: NDArray[np.uint8],
    out: NDArray[Any],
) -> None:
    low, high = limits
    if form.subtractive:
        start = 0 if units.by_rows else place.start
        ops.current().dither_decode(
            codes, units.length, low, high, form.bits, place.key, start, units.by_rows, weight, add, flags, out
        )
    else:
        counts = flags.astype(np.uint32) if len(flags) else np.ones(units.count, np.uint32)
        ops.current().sq_decode(codes, units.length, low, high, form.bits, form.bits, counts, weight, add, out)
