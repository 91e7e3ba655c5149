"""Uniform stochastic quantization on a known range, and the addition of its codes, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack


def sq_encode(
    x: NDArray[np.float32],
    unit: int,
    low: float,
    high: float,
    bits: int,
    key: int,
    first: int,
    codes: NDArray[np.uint8],
) -> None:
    """Round each coordinate at random to one of 2**bits levels spread evenly over [low, high].

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Every value lies in [low, high].
    unit : int
        Coordinates of a unit; each unit of `codes` starts on a byte.
    low, high : float
        The range; float32 values.
    bits : int
        Width of a code, 1 to 8.
    key, first : int
        Key of the private stream; word of coordinate 0.
    codes : ndarray of uint8
        The packed codes.
    """
    top = (1 << bits) - 1
    inverse = top / (high - low) if high > low else 0.0
    t = (x.astype(np.float64) - low) * inverse
    below = np.floor(t)
    up = rng.uniform(key, rng.ROUNDING, first, len(x)).astype(np.float64) < t - below
    code = np.clip(below + up, 0, top).astype(np.uint8)
    each_unit(code, unit, bits, codes, pack)


def sq_decode(
    codes: NDArray[np.uint8],
    unit: int,
    low: float,
    high: float,
    bits: int,
    width: int,
    counts: NDArray[np.uint32],
    weight: float,
    add: bool,
    out: NDArray[np.float32],
) -> None:
    """Decode sums of codes of `width` bits: ``weight * (low + step * sum / count)``; units of count 0 give 0.

    Parameters
    ----------
    counts : ndarray of uint32
        How many codes were added, one number a unit.
    out : ndarray of float32, shape (d,)
        Where the result goes, or is added.
    """
    sums: NDArray[Any] = np.empty(len(out), np.uint32)
    each_unit(sums, unit, width, codes, lambda rows, bits, packed: unpack(packed, bits, rows))
    per_coordinate = np.repeat(counts.astype(np.float64), unit)[: len(out)]
    step = (high - low) / ((1 << bits) - 1)
    mean = sums.astype(np.float64) / np.maximum(per_coordinate, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        values = (weight * (low + step * mean)).astype(np.float32)
    values[per_coordinate == 0] = 0
    if add:
        out += values
    else:
        out[:] = values


def sq_add(
    a: NDArray[np.uint8],
    a_width: int,
    b: NDArray[np.uint8],
    b_width: int,
    size: int,
    unit: int,
    out: NDArray[np.uint8],
    out_width: int,
) -> None:
    """Add two arrays of `size` packed codes into codes of `out_width` bits, which must be wide enough."""
    total = np.zeros(size, np.uint32)
    for packed, width in ((a, a_width), (b, b_width)):
        term: NDArray[Any] = np.empty(size, np.uint32)
        each_unit(term, unit, width, packed, lambda rows, bits, data: unpack(data, bits, rows))
        total += term
    each_unit(total, unit, out_width, out, pack)


def each_unit(codes: NDArray[Any], unit: int, bits: int, packed: NDArray[np.uint8], call: Any) -> None:
    """Call `call(codes, bits, packed)` on the full units as one batch and on a shorter last one."""
    full = len(codes) // unit if unit else 0
    stride = (unit * bits + 7) // 8
    if full:
        call(codes[: full * unit].reshape(full, unit), bits, packed[: full * stride].reshape(full, stride))
    if len(codes) > full * unit:
        tail = packed[full * stride :]
        call(codes[full * unit :].reshape(1, -1), bits, tail.reshape(1, -1))
