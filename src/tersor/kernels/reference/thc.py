"""THC's encoder and decoder of rotated units, and the sum of its messages as integers, in NumPy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import padded_length
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.level_codes import levels_encode
from tersor.kernels.reference.rotated import rotate_units, unrotate_units
from tersor.kernels.reference.sums import lane_sum, ordered_sum
from tersor.kernels.reference.uniform import each_unit

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]


def _pre_scale(largest: NDArray[np.float32]) -> F32:
    """Return the power of two that brings each value to [1/2, 1), its exponent within -126 .. 127."""
    exponents = np.frexp(np.where(np.isfinite(largest), largest, 0).astype(np.float64))[1]
    made: F32 = np.ldexp(np.float32(1), np.clip(-exponents, -126, 127).astype(np.int32)).astype(np.float32)
    return made


def unit_rms(x: F32, unit: int, full: bool, out: F32) -> None:
    """Write the root mean square of every unit over its padded length; NaN where a unit holds NaN or infinity.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        The units one after the other.
    unit : int
        Coordinates of a unit; the last one may be shorter.
    full : bool
        Padded lengths are powers of two.
    out : ndarray of float32, shape (units,)
        The root mean squares.
    """
    for k in range(len(out)):
        row = x[None, k * unit : (k + 1) * unit]
        largest = np.abs(row).max(axis=1)
        if not np.isfinite(largest[0]):
            out[k] = np.nan
            continue
        s = _pre_scale(largest)
        scaled = row * s[:, None]
        mean = lane_sum(scaled * scaled) / padded_length(row.shape[1], full)
        out[k] = np.float32(np.sqrt(mean[0]) / np.float64(s[0]))


def thc_encode(
    x: F32,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    rotations: int,
    rms: F32,
    table: U16,
    spread: float,
    bits: int,
    private: int,
    first: int,
    codes: U8,
) -> float:
    """Rotate every unit and round it at random to the grid points that a table names, on a range of its own.

    Parameters
    ----------
    x, unit, key, start, by_rows, rotations
        As for `rotate_units`.
    rms : ndarray of float32, shape (units,)
        The range of a unit is ``[-spread, spread] * rms``; what is outside is clamped to it.
    table : ndarray of uint16, shape (2**bits,)
        Ascending, from 0 to the granularity g: code z is the value ``rms * (-spread + 2 * spread / g * table[z])``.
    spread : float
        A float32 value.
    bits : int
        Width of a code, 1 to 8.
    private, first : int
        Key of the sender's stream; word of the first rotated coordinate.
    codes : ndarray of uint8
        The packed codes, each unit on a byte.

    Returns
    -------
    float
        Sum of the squared errors that were made, over all rotated coordinates.
    """
    offset, words = 0, 0
    errors = np.zeros(len(rms))
    for k in range(len(rms)):
        s = _pre_scale(rms[k : k + 1])
        row = x[k * unit : (k + 1) * unit]
        y = np.empty(padded_length(len(row)), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            rotate_units(row * s, unit, key, start + (0 if by_rows else k * unit), by_rows, rotations, False, y)
        factor = np.float64(rms[k] * s[0])
        levels = (factor * (-spread + (2 * spread / int(table[-1])) * table.astype(np.float64))).astype(np.float32)
        nbytes = (len(y) * bits + 7) // 8
        packed = codes[offset : offset + nbytes]
        rounded, _ = levels_encode(y, len(y), levels, bits, private, first + words, True, packed)
        beyond = np.maximum(np.maximum(y - levels[-1], levels[0] - y), np.float32(0))[None]
        with np.errstate(over="ignore"):
            errors[k] = (rounded + lane_sum(beyond * beyond)[0]) / np.float64(s[0]) / np.float64(s[0])
        offset, words = offset + nbytes, words + len(y)
    return ordered_sum(errors)


def _sums(codes: U8, size: int, unit: int, width: int, table: U16, bits: int) -> NDArray[np.uint32]:
    """Return integers: sums of `width` bits, or the table's values where the codes are those of one message."""
    values = np.empty(size, np.uint32)
    each_unit(values, unit, width, codes, lambda rows, width, packed: unpack(packed, width, rows))
    return table.astype(np.uint32)[values] if width == bits else values


def thc_add(
    messages: Sequence[tuple[U8, int]],
    unit: int,
    size: int,
    table: U16,
    bits: int,
    shift: int,
    clamp: bool,
    out: U8,
    out_width: int,
) -> int:
    """Add messages as integers: the table's values of codes of `bits` bits, and sums of other widths, less `shift`.

    Parameters
    ----------
    messages : sequence of (codes, width)
        Packed codes of `size` coordinates in units.
    unit, size : int
        Rotated coordinates of a unit, and of all.
    shift : int
        Taken off every sum.
    clamp : bool
        Sums beyond 0 .. 2**out_width - 1 become the nearer end; otherwise they count modulo 2**out_width.
    out : ndarray of uint8
        The packed sums, of `out_width` bits, more than `bits`.

    Returns
    -------
    int
        How many sums were clamped.
    """
    total = np.full(size, -shift, np.int64)
    for codes, width in messages:
        total += _sums(codes, size, unit, width, table, bits)
    most = (1 << out_width) - 1
    inside = np.clip(total, 0, most)
    clamped = int((inside != total).sum()) if clamp else 0
    each_unit((inside if clamp else total & most).astype(np.uint32), unit, out_width, out, pack)
    return clamped


def thc_decode(
    codes: U8,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    rotations: int,
    rms: F32,
    table: U16,
    spread: float,
    bits: int,
    width: int,
    shift: int,
    counts: NDArray[np.uint32],
    weight: float,
    add: bool,
    out: F32,
) -> None:
    """Decode sums S of `counts` messages: the inverse rotation of ``rms * (-spread + 2 * spread / g * S / count)``.

    Parameters
    ----------
    codes : ndarray of uint8
        Sums of `width` bits, less `shift`; codes of one message where that is `bits`.
    unit, key, start, by_rows, rotations, rms, table, spread
        As for `thc_encode`.
    counts : ndarray of uint32, shape (units,)
        How many messages a unit adds up; 0 gives zeros.
    weight : float
        Factor of the result.
    out : ndarray of float32, shape (d,)
        Where the result goes, or is added.
    """
    offset = 0
    for k in range(len(rms)):
        target = out[k * unit : (k + 1) * unit]
        padded = padded_length(len(target))
        nbytes = (padded * width + 7) // 8
        part, offset = codes[offset : offset + nbytes], offset + nbytes
        if not counts[k]:
            if not add:
                target[:] = 0
            continue
        s = _pre_scale(rms[k : k + 1])
        mean = (_sums(part, padded, padded, width, table, bits).astype(np.float64) + shift) / np.float64(counts[k])
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.float64(rms[k] * s[0])
            y = (factor * (-spread + (2 * spread / int(table[-1])) * mean)).astype(np.float32)
        unrotate_units(
            y,
            unit,
            key,
            start + (0 if by_rows else k * unit),
            by_rows,
            rotations,
            False,
            weight / float(s[0]),
            add,
            np.zeros(0, np.uint8),
            target,
        )
