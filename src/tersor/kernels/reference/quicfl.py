"""QUIC-FL's encoder, decoder and sum of units, in NumPy and in the exact order of FORMAT.md section 10.

Ran Ben-Basat, Shay Vargaftik, Amit Portnoy, Gil Einziger, Yaniv Ben-Itzhak, Michael Mitzenmacher: "Accelerating
Federated Learning with Quick Distributed Mean Estimation", ICML 2024, arXiv 2205.13341.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.kernels.lengths import mixing_rounds, padded_length, run_length
from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.hadamard import rotate
from tersor.kernels.reference.sums import lane_sum

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
ROUNDS = 2
# codes, scales, counts, positions, values, symbols, weight
QuicflMessage = tuple[U8, F32, U32, U32, F32, int, float]


class _Unit(NamedTuple):
    k: int
    values: F32  # its coordinates
    padded: int
    rounds: int
    position: int  # of coordinate 0, for the rotation
    word: int  # of coordinate 0, for private rounding
    symbol_word: int  # of coordinate 0, for shared symbols
    codes: slice


def _units(x: F32, unit: int, start: int, by_rows: bool, bits: int) -> Iterator[_Unit]:
    width = 8 if bits <= 2 else 4
    offset = 0
    for k in range(-(-len(x) // unit) if len(x) else 0):
        values = x[k * unit : (k + 1) * unit]
        padded = padded_length(len(values))
        nbytes = (padded * bits + 7) // 8
        rounds = ROUNDS if run_length(padded) == padded else mixing_rounds(padded)
        position = 0 if by_rows else start + k * unit
        word = (start + k) * padded if by_rows else position
        symbol_word = (start + k) * -(-padded * width // 32) if by_rows else position * width // 32
        yield _Unit(k, values, padded, rounds, position, word, symbol_word, slice(offset, offset + nbytes))
        offset += nbytes


def _symbols(key: int, unit: _Unit, bits: int, shared_bits: int) -> NDArray[np.int64]:
    """Return the shared symbols h of a unit: fields of 8 or 4 bits of the stream, of which the lowest count."""
    per_word = 4 if bits <= 2 else 8
    words = rng.words(key, rng.SYMBOLS, 0, unit.symbol_word, -(-unit.padded // per_word))
    fields = words[:, None] >> (np.arange(per_word, dtype=np.uint32) * np.uint32(32 // per_word))
    masked: NDArray[np.int64] = (fields & np.uint32((1 << shared_bits) - 1)).astype(np.int64)
    return masked.reshape(-1)[: unit.padded]


def quicfl_encode(
    x: F32,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    bits: int,
    shared_bits: int,
    low: F32,
    width: F32,
    limit: float,
    symbols: int,
    private: int,
    codes: U8,
    scales: F32,
    counts: U32,
    positions: U32,
    values: F32,
) -> tuple[int, int]:
    """Encode the units of `x`; fill `codes`, `scales` and `counts`, and as much of the list of exact entries as fits.

    Parameters
    ----------
    x : ndarray of float32, shape (d,)
        The vector, or the rows of length `unit` one after the other.
    unit : int
        Coordinates of a unit; only the last unit of a vector may be shorter.
    key, start : int
        Rotation key; random position of coordinate 0, or number of the first row.
    by_rows : bool
        All units use the same rotation.
    bits, shared_bits : int
        Width of a code, 1 to 4; bits of a shared symbol, 0 to 8 - (2 if bits is 1, 3 if 2, else 4).
    low, width : ndarray of float32, shape (2**shared_bits * (2**bits - 1),)
        The zones of the quantizer, symbol by symbol.
    limit : float
        Rotated coordinates of larger magnitude are sent exactly; a float32 value.
    symbols, private : int
        Keys of the shared symbols and of private rounding.
    codes, scales, counts : ndarray
        All packed units one after the other; a scale and the number of exact entries of every unit.
    positions, values : ndarray of uint32, float32, of one length
        Where in its unit an exact entry stands, and the rotated coordinate over the scale.

    Returns
    -------
    first_bad : int
        Index of the first NaN or infinity, -1 if there is none. Such a unit gets the scale NaN.
    n_exact : int
        Exact entries. If there are more than `positions` holds, call again with room for them.
    """
    zones = [part.reshape(1 << shared_bits, (1 << bits) - 1) for part in (low, width)]
    total = 0
    for u in _units(x, unit, start, by_rows, bits):
        where = codes[u.codes]
        scales[u.k], z = _normalised(u, key)
        counts[u.k] = 0
        where[...] = 0
        if z is None:
            continue
        h = _symbols(symbols, u, bits, shared_bits)
        drawn = rng.uniform(private, rng.ROUNDING, u.word, u.padded)
        code = (z[:, None] >= zones[0][h] + drawn[:, None] * zones[1][h]).sum(axis=1).astype(np.uint8)
        pack(code.reshape(1, -1), bits, where.reshape(1, -1))
        exact = np.flatnonzero((np.abs(z) > np.float32(limit)) | (u.padded == 1))
        counts[u.k] = len(exact)
        room = slice(total, total + len(exact))
        fitting = len(positions[room])
        positions[room], values[room] = exact[:fitting], z[exact[:fitting]]
        total += len(exact)
    bad = np.flatnonzero(~np.isfinite(x))
    return (int(bad[0]) if len(bad) else -1), total


def _normalised(u: _Unit, key: int) -> tuple[np.float32, F32 | None]:
    """Return a unit's scale and its rotated coordinates over it, which have the mean square 1; None if 0 or NaN."""
    amax = np.max(np.abs(u.values))
    if not np.isfinite(amax):
        return np.float32(np.nan), None
    if amax == 0:
        return np.float32(0), None
    s = np.ldexp(np.float64(1), int(np.clip(-np.frexp(amax)[1], -126, 127)))
    w = np.zeros((1, u.padded), np.float32)
    w[0, : len(u.values)] = u.values * np.float32(s)
    r = np.sqrt(lane_sum(w * w)[0])
    scale = _round_up(r / np.sqrt(np.float64(u.padded)) / s)
    rotate(w, key, u.position, u.rounds, inverse=False)
    power = np.sqrt(np.float64(run_length(u.padded)) ** u.rounds)
    return scale, (w * np.float32(1 / (np.float64(scale) * s * power)))[0]


def _round_up(value: np.float64) -> np.float32:
    """Round to float32 upwards, to the largest finite one at most: so the coordinates over it are never too large."""
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
        if np.float64(rounded) < value:
            rounded = np.nextafter(rounded, np.float32(np.inf))
    return min(rounded, np.finfo(np.float32).max)


def quicfl_decode(
    codes: U8,
    scales: F32,
    counts: U32,
    positions: U32,
    values: F32,
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    bits: int,
    shared_bits: int,
    levels: F32,
    symbols: int,
    weight: float,
    add: bool,
    present: U8,
    out: F32,
) -> None:
    """Decode units into `out`, shape (d,), or add ``weight`` times them to it.

    Parameters
    ----------
    codes, scales, counts, positions, values, unit, key, start, by_rows, bits, shared_bits, symbols
        As for `quicfl_encode`; the counts add up to the length of the list, positions are below the padded length.
    levels : ndarray of float32, shape (2**shared_bits * 2**bits,)
        What a code means, symbol by symbol.
    weight : float
        Factor of the decoded values.
    add : bool
        Add to `out` instead of overwriting it.
    present : ndarray of uint8
        Empty, or one flag a unit; a missing unit decodes to zeros.
    out : ndarray of float32, shape (d,)
        Where the result goes.
    """
    listed = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
    for u in _units(out, unit, start, by_rows, bits):
        factor = _factor(scales[u.k], weight)
        if factor == 0 or (len(present) and not present[u.k]):
            if not add:
                u.values[:] = 0
            continue
        entries = slice(listed[u.k], listed[u.k + 1])
        v = _look_up(u, codes, positions[entries], values[entries], bits, shared_bits, levels, symbols)
        rotate(v.reshape(1, -1), key, u.position, u.rounds, inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            result = v[: len(u.values)] * factor
        if add:
            u.values[:] += result
        else:
            u.values[:] = result


def _factor(scale: np.float32, weight: float) -> np.float32:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.float32(np.float64(scale) * np.float64(weight))


def _look_up(
    u: _Unit, codes: U8, positions: U32, values: F32, bits: int, shared_bits: int, levels: F32, symbols: int
) -> F32:
    norm = 1 / np.sqrt(np.float64(run_length(u.padded)) ** u.rounds)
    code: NDArray[Any] = np.empty((1, u.padded), np.uint8)
    unpack(codes[u.codes].reshape(1, -1), bits, code)
    table = (levels.astype(np.float64) * norm).astype(np.float32).reshape(1 << shared_bits, 1 << bits)
    v: F32 = table[_symbols(symbols, u, bits, shared_bits), code[0]]
    v[positions] = (values.astype(np.float64) * norm).astype(np.float32)
    return v


def quicfl_add(
    messages: Sequence[QuicflMessage],
    unit: int,
    key: int,
    start: int,
    by_rows: bool,
    bits: int,
    shared_bits: int,
    levels: F32,
    out: F32,
) -> None:
    """Add the weighted estimates of messages of one rotation to `out`: summed first, then rotated back once.

    Parameters
    ----------
    messages : sequence of (codes, scales, counts, positions, values, symbols, weight)
        As for `quicfl_decode`.
    unit, key, start, by_rows, bits, shared_bits, levels
        As for `quicfl_decode`.
    out : ndarray of float32, shape (d,)
        Where the sum goes.
    """
    listed = [np.concatenate([[0], np.cumsum(message[2].astype(np.int64))]) for message in messages]
    for u in _units(out, unit, start, by_rows, bits):
        total = np.zeros((1, u.padded), np.float32)
        for (codes, scales, _, positions, values, symbols, weight), ends in zip(messages, listed, strict=True):
            factor = _factor(scales[u.k], weight)
            if factor == 0:
                continue
            entries = slice(ends[u.k], ends[u.k + 1])
            v = _look_up(u, codes, positions[entries], values[entries], bits, shared_bits, levels, symbols)
            with np.errstate(over="ignore", invalid="ignore"):
                total[0] += v * factor
        with np.errstate(over="ignore", invalid="ignore"):
            rotate(total, key, u.position, u.rounds, inverse=True)
            u.values[:] += total[0, : len(u.values)]
