"""EDEN's encoder and decoder of units, in NumPy and in the exact order of FORMAT.md section 4.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "EDEN:
Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv 2108.08842.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import code_bytes, high_count, mixing_rounds, padded_length, run_length
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.hadamard import rotate
from tersor.kernels.reference.sums import lane_sum, ordered_sum

UNBIASED, BIASED, NORM, ONE = 0, 1, 2, 3
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class Quantized(NamedTuple):
    """The codes of a unit, shape (1, P), and its sums."""

    codes: NDArray[np.uint8]
    a: np.float64  # sum of z q
    c: np.float64  # sum of q q
    d: np.float64  # sum of (z - q)**2


class Rotated(NamedTuple):
    """A unit after steps 1 to 6 of FORMAT.md section 4; z is None if all is zero or something not finite."""

    z: F32 | None
    rounds: int
    s: np.float64
    s2: np.float64


def eden_encode(
    x: F32,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    bits: int,
    levels: F32,
    thresholds: F32,
    scale_kind: int,
    scale_dtype: int,
    rotations: int,
    full: bool,
    codes: NDArray[np.uint8],
    scales: F32,
    rounds: NDArray[np.uint8],
    norms: F32,
    fraction: float = 0.0,
) -> tuple[int, float, float]:
    """Encode the units of `x`; fill `codes`, `scales`, `rounds` and, if it is not empty, `norms`.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        The vector, or the rows of length `unit` one after the other.
    unit : int
        Coordinates of a unit; only the last unit of a vector may be shorter.
    key, start : int
        Rotation key; random position of coordinate 0.
    by_rows : bool
        All units use the random positions 0 .. n - 1.
    bits, levels, thresholds
        Width of a code; 2**bits levels, 2**bits - 1 thresholds. With a fraction also those of the width above, behind
        them; 0 bits are not sent and have one level, 0.
    scale_kind : int
        UNBIASED, BIASED, NORM or ONE.
    scale_dtype : int
        FLOAT32, FLOAT16 or BFLOAT16: scales are rounded to it and returned as float32.
    rotations : int
        1, 2 or 3 rounds for units of a power of two; 0 lets the moment check choose 1 or 2.
    full : bool
        Pad to a power of two.
    codes : ndarray of uint8
        All packed units one after the other, each starting on a byte.
    scales, rounds, norms : ndarray
        One value a unit.
    fraction : float, default 0.0
        Fraction of the rotated coordinates, the first ones, that have one bit more.

    Returns
    -------
    first_bad : int
        Index of the first NaN or infinity, -1 if there is none. Such a unit gets the scale NaN.
    error, energy : float
        ||x_hat - x||**2 (expected over the padding) and ||x||**2.
    """
    n_units = len(scales)
    errors, energies = np.zeros(n_units), np.zeros(n_units)
    offset = 0
    for k in range(n_units):
        values = x[k * unit : (k + 1) * unit]
        padded = padded_length(len(values), full)
        nbytes = code_bytes(padded, bits, fraction)
        where = codes[offset : offset + nbytes]
        offset += nbytes
        where[...] = 0
        rotated = rotate_unit(values, padded, key, 0 if by_rows else start + k * unit, rotations)
        rounds[k] = rotated.rounds
        if rotated.z is None:
            norm = np.float32(rotated.s2)
            scales[k] = errors[k] = energies[k] = rotated.s2
        else:
            made = _quantize_parts(rotated.z, bits, fraction, levels, thresholds, where)
            g = exact_scale(scale_kind, np.sqrt(rotated.s2), padded, made)
            with np.errstate(over="ignore"):
                scales[k] = scale = round_to(np.float32(g / rotated.s), scale_dtype)
            factor = np.float64(scale) * rotated.s
            norm, errors[k], energies[k] = books(rotated, made, factor, len(values), padded)
        if len(norms):
            norms[k] = norm
    return first_bad(x), ordered_sum(errors), ordered_sum(energies)


def first_bad(x: F32) -> int:
    """Return the index of the first NaN or infinity, or -1."""
    bad = np.flatnonzero(~np.isfinite(x))
    return int(bad[0]) if len(bad) else -1


def rotate_unit(values: F32, padded: int, key: int, position: int, rotations: int) -> Rotated:
    """Scale, choose the rounds, rotate: z has the norm sqrt(P). Of zeros s2 is 0, of what is not finite NaN."""
    amax = np.max(np.abs(values))
    run = run_length(padded)
    fixed = rotations or 1
    if not np.isfinite(amax) or amax == 0:
        s2 = np.float64(0 if amax == 0 else np.nan)
        return Rotated(None, fixed if padded == run else mixing_rounds(padded), np.float64(1), s2)
    s = np.ldexp(np.float64(1), int(np.clip(-np.frexp(amax)[1], -126, 127)))
    w = np.zeros((1, padded), np.float32)
    w[0, : len(values)] = values * np.float32(s)
    squares = w * w
    s2, s4 = lane_sum(squares)[0], lane_sum(squares * squares)[0]
    rounds = mixing_rounds(padded)
    if padded == run:
        smooth = s4 <= max(2.0**-10, 4.0 / padded) * (s2 * s2)
        rounds = rotations or (1 if smooth else 2)
    rotate(w, key, position, rounds, inverse=False)
    r = np.sqrt(s2)
    root = np.sqrt(np.float64(padded))
    z = w * np.float32(root / (r * np.sqrt(np.float64(run) ** rounds)))
    return Rotated(z, rounds, s, s2)


def exact_scale(kind: int, r: np.float64, padded: int, made: Quantized) -> np.float64:
    """Return the scale g of z's levels, before the pre-scaling is undone; 0 if nothing that is sent has energy."""
    length = r / np.sqrt(np.float64(padded))
    if not made.a > 0:
        return np.float64(0)
    if kind == ONE:
        return np.float64(length)
    ratio = {UNBIASED: padded / made.a, BIASED: made.a / made.c, NORM: np.sqrt(padded / made.c)}[kind]
    return np.float64(length * ratio)


def books(
    rotated: Rotated, made: Quantized, factor: np.float64, n: int, padded: int
) -> tuple[np.float32, np.float64, np.float64]:
    """Return norm, error and energy of a unit whose levels are multiplied by `factor` (pre-scaled)."""
    s, r = rotated.s, np.sqrt(rotated.s2)
    length = r / np.sqrt(np.float64(padded))
    t = factor / length
    error = made.d + 2 * (t - 1) * (made.c - made.a) + ((t - 1) * (t - 1)) * made.c
    error = error * (length * length) * (n / padded) / (s * s)
    with np.errstate(over="ignore"):
        return np.float32(r / s), error, rotated.s2 / (s * s)


def quantize(z: F32, levels: F32, thresholds: F32) -> Quantized:
    """Return codes and sums of one unit, or one part of it."""
    codes = np.searchsorted(thresholds, z.reshape(-1), side="right").reshape(z.shape).astype(np.uint8)
    q = levels[codes]
    residual = z - q
    return Quantized(codes, lane_sum(z * q)[0], lane_sum(q * q)[0], lane_sum(residual * residual)[0])


def _quantize_parts(
    z: F32, bits: int, fraction: float, levels: F32, thresholds: F32, where: NDArray[np.uint8]
) -> Quantized:
    """Quantise and pack the part of the higher width, if there is one, and the other."""
    padded, low = z.shape[1], 1 << bits
    if not fraction:
        made = quantize(z, levels, thresholds)
        pack(made.codes, bits, where.reshape(1, -1))
        return made
    high = high_count(padded, fraction)
    cut = (high * (bits + 1) + 7) // 8
    first = quantize(z[:, :high], levels[low:], thresholds[low - 1 :])
    second = quantize(z[:, high:], levels[:low], thresholds[: low - 1])
    pack(first.codes, bits + 1, where[:cut].reshape(1, -1))
    if bits:
        pack(second.codes, bits, where[cut:].reshape(1, -1))
    codes = np.concatenate([first.codes, second.codes], axis=1)
    return Quantized(codes, first.a + second.a, first.c + second.c, first.d + second.d)


def round_to(value: np.float32, dtype: int) -> np.float32:
    """Round one float32 to FLOAT16 or BFLOAT16 (nearest, ties to even); overflow gives infinity."""
    if dtype == FLOAT16:
        return np.float32(np.float16(value))
    if dtype == BFLOAT16:
        bits = int(np.float32(value).view(np.uint32))
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return np.uint32(bits).view(np.float32)
    return value


def eden_decode(
    codes: NDArray[np.uint8],
    scales: F32,
    rounds: NDArray[np.uint8],
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    bits: int,
    levels: F32,
    weight: float,
    add: bool,
    present: NDArray[np.uint8],
    full: bool,
    out: F32,
    fraction: float = 0.0,
    pieces: int = 1,
) -> None:
    """Decode units into `out`, shape (d,), or add ``weight`` times them to it.

    Parameters
    ----------
    codes, scales, rounds, unit, key, start, by_rows, bits, levels, full, fraction
        As for `eden_encode`; for one bit, levels may also be two for each unit.
    weight : float
        Factor of the decoded values.
    add : bool
        Add to `out` instead of overwriting it.
    present : ndarray of uint8
        Empty, or `pieces` flags a unit; a missing unit decodes to zeros.
    out : ndarray of float32, shape (d,)
        Where the result goes.
    pieces : int, default 1
        Equal runs, but for the last, that the rotated coordinates of a unit are cut into; missing ones are zeros.
    """
    offset, own = 0, bits == 1 and not fraction and len(levels) != 2
    for k in range(len(scales)):
        target = out[k * unit : (k + 1) * unit]
        padded = padded_length(len(target), full)
        nbytes = code_bytes(padded, bits, fraction)
        stream = codes[offset : offset + nbytes]
        offset += nbytes
        flags = present[k * pieces : (k + 1) * pieces]
        if len(present) and not flags.any():
            if not add:
                target[:] = 0
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.float32(np.float64(scales[k]) * np.float64(weight))
        if factor == 0:
            if not add:
                target[:] = 0
            continue
        n_rounds = int(rounds[k])
        norm = 1 / np.sqrt(np.float64(run_length(padded)) ** n_rounds)
        table = levels[2 * k : 2 * k + 2] if own else levels
        v = _look_up(stream, padded, bits, fraction, (table.astype(np.float64) * norm).astype(np.float32))
        if len(present):
            v[0, np.repeat(flags == 0, -(-padded // pieces))[:padded]] = 0
        rotate(v, key, 0 if by_rows else start + k * unit, n_rounds, inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            values = v[0, : len(target)] * factor
        if add:
            target += values
        else:
            target[:] = values


def _look_up(stream: NDArray[np.uint8], padded: int, bits: int, fraction: float, table: F32) -> F32:
    """Return the levels of a unit's codes, shape (1, P)."""
    high = high_count(padded, fraction)
    cut = (high * (bits + 1) + 7) // 8
    parts = [(stream[:cut], high, bits + 1, table[1 << bits :])] if high else []
    parts.append((stream[cut:], padded - high, bits, table[: 1 << bits]))
    made = []
    for packed, n, width, levels in parts:
        unpacked: NDArray[Any] = np.zeros((1, n), np.uint8)
        if width:
            unpack(packed.reshape(1, -1), width, unpacked)
        made.append(levels[unpacked])
    return np.concatenate(made, axis=1)


def eden_add(
    messages: Sequence[tuple[NDArray[np.uint8], F32, NDArray[np.uint8], int, int, float]],
    unit: int,
    by_rows: bool,
    bits: int,
    levels: F32,
    full: bool,
    out: F32,
    fraction: float = 0.0,
) -> None:
    """Add the estimates of several messages to `out`, one after the other.

    Parameters
    ----------
    messages : sequence of (codes, scales, rounds, key, start, weight)
        As for `eden_decode`; all cut into the same units.
    unit, by_rows, bits, levels, full, fraction
        As for `eden_encode`.
    out : ndarray of float32, shape (d,)
        Where the sum goes.
    """
    every = np.zeros(0, np.uint8)
    for codes, scales, rounds, key, start, weight in messages:
        eden_decode(
            codes, scales, rounds, unit, key, start, by_rows, bits, levels, weight, True, every, full, out, fraction
        )
