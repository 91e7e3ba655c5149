"""Levels of each unit's own: stochastic or nearest rounding onto a table, and looking values up, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.microscaling import clamped
from tersor.kernels.reference.sums import lane_sum, ordered_sum
from tersor.kernels.reference.uniform import each_unit

_ZERO = np.float32(0)


def levels_encode(
    x: NDArray[np.float32],
    unit: int,
    levels: NDArray[np.float32],
    bits: int,
    key: int,
    first: int,
    stochastic: bool,
    codes: NDArray[np.uint8],
) -> tuple[float, float]:
    """Round each coordinate to one of its unit's 2**bits levels: at random without bias, or to the nearest.

    Of equal levels at the top only the first is ever chosen, so that tables padded with their last level cost nothing.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        Values. Stochastic: what is outside the levels counts as the level at that end, NaN as the lowest.
    unit : int
        Coordinates of a unit; each unit of `codes` starts on a byte.
    levels : ndarray of float32, shape (units * 2**bits,)
        Finite, ascending in each unit; equal ones may follow one another.
    bits : int
        Width of a code, 1 to 8.
    key, first : int
        Key of the private stream; word of coordinate 0.
    stochastic : bool
        With b the lowest level >= x and a the one before: a if u * (b - a) < b - x, else b. Otherwise the nearest
        level, on a tie the upper one; of equal ones the first. NaN has code 0.
    codes : ndarray of uint8
        The packed codes.

    Returns
    -------
    error, energy : float
        Sum of the squared errors that were made, and of the squares of `x`.
    """
    made = np.empty(len(x), np.uint8)
    errors, energies = [np.zeros(0)], [np.zeros(0)]
    size, count = 1 << bits, len(x) // unit if unit else 0
    for begin, m, n in ((0, count, unit), (count * unit, int(len(x) > count * unit), len(x) - count * unit)):
        if not m * n:
            continue
        rows = x[begin : begin + m * n].reshape(m, n)
        k = begin // unit
        tables = levels[k * size : (k + m) * size].reshape(m, size)
        if stochastic:
            u = rng.uniform(key, rng.ROUNDING, first + begin, m * n).reshape(m, n)
            code, scaled, error, t = _at_random(rows, tables, bits, u)
        else:
            code, scaled, error, t = _nearest(rows, tables, bits)
        made[begin : begin + m * n] = code.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            errors.append(lane_sum(error * error) / t / t)
            energies.append(lane_sum(scaled * scaled) / t / t)
    each_unit(made, unit, bits, codes, pack)
    return ordered_sum(np.concatenate(errors)), ordered_sum(np.concatenate(energies))


def _search(rows: NDArray[np.float32], table: NDArray[np.float32], bits: int, above: Any) -> NDArray[np.int64]:
    """Return how many of the first 2**bits - 1 entries of a row's ascending table are below its values."""
    code: NDArray[np.int64] = np.zeros(rows.shape, np.int64)
    for step in (1 << b for b in reversed(range(bits))):
        code += above(rows, np.take_along_axis(table, code + (step - 1), 1)) * step
    return code


def _exponent(tables: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return e with 2**(e - 1) <= the largest magnitude < 2**e, 0 for zeros."""
    made: NDArray[np.int64] = np.frexp(np.max(np.abs(tables), axis=1).astype(np.float64))[1].astype(np.int64)
    return made


def _power(exponent: NDArray[np.int64]) -> NDArray[np.float32]:
    made: NDArray[np.float32] = np.ldexp(np.float32(1), exponent.astype(np.int32)).astype(np.float32)
    return made[:, None]


def _at_random(
    rows: NDArray[np.float32], tables: NDArray[np.float32], bits: int, u: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    low, high = tables[:, :1], tables[:, -1:]
    inside = np.where(rows > low, rows, low)
    inside = np.where(inside < high, inside, high)
    code = _search(inside, tables, bits, np.greater)
    # Differences of values below 2**126: they cannot overflow, and denormals become normal.
    e = _exponent(tables)
    up = np.clip(126 - e, -2, 127)
    t = np.clip(-e, -126, 127)
    scaled, upper = inside * _power(up), tables * _power(up)
    widths = np.zeros_like(upper)
    widths[:, 1:] = upper[:, 1:] - upper[:, :-1]
    rest = np.take_along_axis(upper, code, 1) - scaled
    width = np.take_along_axis(widths, code, 1)
    down = u * width < rest
    smaller = _power(t - up)  # what is squared is about 1
    return code - down, scaled * smaller, np.where(down, width - rest, rest) * smaller, np.ldexp(1.0, t)


def _nearest(
    rows: NDArray[np.float32], tables: NDArray[np.float32], bits: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    code = _search(rows, _thresholds(tables), bits, np.greater_equal)
    t = np.clip(-_exponent(tables), -126, 127)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = rows * _power(t)
        error = np.take_along_axis(tables * _power(t), code, 1) - scaled
    return code, scaled, error, np.ldexp(1.0, t)


def _thresholds(tables: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the least value of the next level; infinite where none is higher, and at the end."""
    wide = tables.astype(np.float64)
    made = np.full(tables.shape, np.inf, np.float32)
    for k in reversed(range(tables.shape[1] - 1)):
        middle = ((wide[:, k] + wide[:, k + 1]) / 2).astype(np.float32)
        here = np.where(middle > tables[:, k], middle, tables[:, k + 1])  # no level is rounded away from itself
        made[:, k] = np.where(tables[:, k] == tables[:, k + 1], made[:, k + 1], here)
    return made


def levels_decode(
    codes: NDArray[np.uint8],
    unit: int,
    levels: NDArray[np.float32],
    bits: int,
    weight: float,
    add: bool,
    present: NDArray[np.uint8],
    out: NDArray[np.float32],
) -> None:
    """Decode to ``float32(level * weight)``, into `out`, shape (d,), or added to it; see `levels_encode`.

    Products stay within the finite floats unless the level is NaN; zeros are +0.

    Parameters
    ----------
    present : ndarray of uint8
        One flag a unit, or empty for all: the others count as zeros.
    """
    plain: NDArray[Any] = np.empty(len(out), np.uint8)
    each_unit(plain, unit, bits, codes, lambda rows, width, packed: unpack(packed, width, rows))
    with np.errstate(over="ignore", invalid="ignore"):
        table = (clamped(levels.astype(np.float64) * weight) + _ZERO).reshape(-1, 1 << bits)
    if len(present):
        table[present == 0] = 0
    owner = np.arange(len(out)) // max(unit, 1)
    values = table[owner, plain]
    with np.errstate(over="ignore", invalid="ignore"):
        if add:
            out += values
        else:
            out[:] = values
