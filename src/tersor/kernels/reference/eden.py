"""EDEN's encoder and decoder of units, in NumPy and in the exact order of FORMAT.md section 4.

Shay Vargaftik, Ran Ben Basat, Amit Portnoy, Gal Mendelson, Yaniv Ben-Itzhak, Michael Mitzenmacher: "EDEN:
Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv 2108.08842.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.hadamard import rotate
from tersor.kernels.reference.sums import lane_sum, ordered_sum

UNBIASED, BIASED, NORM, ONE = 0, 1, 2, 3
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class _Quantized(NamedTuple):
    codes: NDArray[np.uint8]
    a: F64  # sum of z q
    c: F64  # sum of q q
    d: F64  # sum of (z - q)**2


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
        Width of a code; 2**bits levels, 2**bits - 1 thresholds.
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
        nbytes = (padded * bits + 7) // 8
        where = codes[offset : offset + nbytes]
        offset += nbytes
        position = 0 if by_rows else start + k * unit
        made = _encode_unit(
            values, padded, key, position, bits, levels, thresholds, scale_kind, scale_dtype, rotations, where
        )
        scales[k], rounds[k], norm, errors[k], energies[k] = made
        if len(norms):
            norms[k] = norm
    bad = np.flatnonzero(~np.isfinite(x))
    return (int(bad[0]) if len(bad) else -1), ordered_sum(errors), ordered_sum(energies)


def _encode_unit(
    values: F32,
    padded: int,
    key: int,
    position: int,
    bits: int,
    levels: F32,
    thresholds: F32,
    scale_kind: int,
    scale_dtype: int,
    rotations: int,
    where: NDArray[np.uint8],
) -> tuple[float, int, float, float, float]:
    where[...] = 0
    amax = np.max(np.abs(values))
    run = run_length(padded)
    fixed = rotations or 1
    if not np.isfinite(amax):
        return np.nan, fixed if padded == run else mixing_rounds(padded), np.nan, np.nan, np.nan
    if amax == 0:
        return 0.0, fixed if padded == run else mixing_rounds(padded), 0.0, 0.0, 0.0
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
    made = _quantize(z, levels, thresholds)
    pack(made.codes, bits, where.reshape(1, -1))
    a, c, d = made.a[0], made.c[0], made.d[0]
    length = r / root
    g = {
        UNBIASED: lambda: length * (padded / a),
        BIASED: lambda: length * (a / c),
        NORM: lambda: length * np.sqrt(padded / c),
        ONE: lambda: length,
    }[scale_kind]()
    with np.errstate(over="ignore"):
        scale = round_to(np.float32(g / s), scale_dtype)
        norm = np.float32(r / s)
    t = np.float64(scale) * s / length
    error = d + 2 * (t - 1) * (c - a) + ((t - 1) * (t - 1)) * c
    error = error * (length * length) * (len(values) / padded) / (s * s)
    return float(scale), rounds, float(norm), float(error), float(s2 / (s * s))


def _quantize(z: F32, levels: F32, thresholds: F32) -> _Quantized:
    codes = np.searchsorted(thresholds, z.reshape(-1), side="right").reshape(z.shape).astype(np.uint8)
    q = levels[codes]
    residual = z - q
    return _Quantized(codes, lane_sum(z * q), lane_sum(q * q), lane_sum(residual * residual))


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
) -> None:
    """Decode units into `out`, shape (d,), or add ``weight`` times them to it.

    Parameters
    ----------
    codes, scales, rounds, unit, key, start, by_rows, bits, levels, full
        As for `eden_encode`.
    weight : float
        Factor of the decoded values.
    add : bool
        Add to `out` instead of overwriting it.
    present : ndarray of uint8
        Empty, or one flag a unit; a missing unit decodes to zeros.
    out : ndarray of float32, shape (d,)
        Where the result goes.
    """
    offset = 0
    for k in range(len(scales)):
        target = out[k * unit : (k + 1) * unit]
        padded = padded_length(len(target), full)
        nbytes = (padded * bits + 7) // 8
        stream = codes[offset : offset + nbytes]
        offset += nbytes
        if len(present) and not present[k]:
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
        unpacked: NDArray[Any] = np.empty((1, padded), np.uint8)
        unpack(stream.reshape(1, -1), bits, unpacked)
        norm = 1 / np.sqrt(np.float64(run_length(padded)) ** n_rounds)
        v = (levels.astype(np.float64) * norm).astype(np.float32)[unpacked]
        rotate(v, key, 0 if by_rows else start + k * unit, n_rounds, inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            values = v[0, : len(target)] * factor
        if add:
            target += values
        else:
            target[:] = values


def eden_add(
    messages: Sequence[tuple[NDArray[np.uint8], F32, NDArray[np.uint8], int, int, float]],
    unit: int,
    by_rows: bool,
    bits: int,
    levels: F32,
    full: bool,
    out: F32,
) -> None:
    """Add the estimates of several messages to `out`, one after the other.

    Parameters
    ----------
    messages : sequence of (codes, scales, rounds, key, start, weight)
        As for `eden_decode`; all cut into the same units.
    unit, by_rows, bits, levels, full
        As for `eden_encode`.
    out : ndarray of float32, shape (d,)
        Where the sum goes.
    """
    every = np.zeros(0, np.uint8)
    for codes, scales, rounds, key, start, weight in messages:
        eden_decode(codes, scales, rounds, unit, key, start, by_rows, bits, levels, weight, True, every, full, out)
