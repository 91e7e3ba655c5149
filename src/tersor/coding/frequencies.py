"""Frequency tables of the entropy coder: counts to frequencies, their code length, and their bytes."""

import heapq
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor.errors import FormatError

MAX_SYMBOLS = 256
MIN_SCALE_BITS, MAX_SCALE_BITS = 1, 15
SCALE_BITS = 12

_FRACTION = 28  # bits behind the point of the logarithms


@lru_cache(maxsize=1)
def _log2_table() -> list[int]:
    """Return floor-like log2(f) * 2**28 of f = 1 .. 2**15 by repeated squaring of integers; element 0 is unused."""
    f = np.arange(1, (1 << MAX_SCALE_BITS) + 1, dtype=np.uint64)
    whole = np.zeros(len(f), np.uint64)
    for k in range(1, MAX_SCALE_BITS + 1):
        whole += f >= (1 << k)
    x, value = f << (np.uint64(31) - whole), whole
    for _ in range(_FRACTION):
        x = (x * x) >> np.uint64(31)
        bit = x >> np.uint64(32)
        x >>= bit
        value = value << np.uint64(1) | bit
    return [0, *(int(v) for v in value)]


def _weights(counts: ArrayLike) -> list[int]:
    """Return the counts as integers; floats keep 44 bits below the largest, and what is not zero stays so."""
    c = np.asarray(counts)
    if c.ndim != 1 or not 1 <= len(c) <= MAX_SYMBOLS:
        raise ValueError(f"counts must be one-dimensional with 1 to {MAX_SYMBOLS} elements, got shape {c.shape}")
    if c.dtype.kind == "f":
        c = c.astype(np.float64)
        if not np.all(np.isfinite(c)) or np.any(c < 0):
            raise ValueError("counts must be finite and not negative")
        scaled = np.ldexp(c, 44 - int(np.frexp(c.max())[1]))
        c = np.where(c > 0, np.maximum(scaled, 1.0), 0.0).astype(np.int64)
    elif c.dtype.kind not in "ui":
        raise ValueError(f"counts must be integers or floats, got {c.dtype}")
    made = [int(v) for v in c]
    if min(made) < 0:
        raise ValueError("counts must be finite and not negative")
    return made


def normalise(counts: ArrayLike, scale_bits: int = SCALE_BITS) -> NDArray[np.uint32]:
    """Return the frequencies, integers that sum to ``2**scale_bits``, with which symbols of these counts code shortest.

    Parameters
    ----------
    counts : array of integers or floats, shape (s,)
        How often each symbol occurs; s is 1 to 256. Only ratios matter.
    scale_bits : int
        1 to 15. 12 is the fastest to decode.

    Returns
    -------
    uint32 array, shape (s,)
        At least 1 wherever the count is not 0, and 0 where it is. The code length ``-sum(counts * log2(freqs))`` is the
        least there is, up to the precision of the integer logarithms (28 bits behind the point): units go one by one
        to the symbol that gains most, and move while a move gains. Integer arithmetic: the same on every machine.

    Raises
    ------
    ValueError
        If no count is positive, one is negative or not finite, or more symbols occur than ``2**scale_bits``.

    Examples
    --------
    >>> normalise([5, 0, 1, 1000], scale_bits=8).tolist()
    [1, 0, 1, 254]
    """
    if not MIN_SCALE_BITS <= scale_bits <= MAX_SCALE_BITS:
        raise ValueError(f"scale_bits must be {MIN_SCALE_BITS} to {MAX_SCALE_BITS}, got {scale_bits}")
    all_weights = _weights(counts)
    symbols = [i for i, w in enumerate(all_weights) if w]
    total = 1 << scale_bits
    if not symbols:
        raise ValueError("no count is positive")
    if len(symbols) > total:
        raise ValueError(f"{len(symbols)} symbols occur, more than 2**scale_bits = {total}")
    out = np.zeros(len(all_weights), np.uint32)
    if len(symbols) == 1:
        out[symbols[0]] = total
        return out
    log2 = _log2_table()
    w = [all_weights[i] for i in symbols]
    weight = sum(w)
    f = [max(1, v * total // weight) for v in w]

    def gain(k: int) -> int:  # of one unit more
        return w[k] * (log2[f[k] + 1] - log2[f[k]])

    def loss(k: int) -> int:  # of one unit less; the last one stays
        return w[k] * (log2[f[k]] - log2[f[k] - 1]) if f[k] > 1 else -1

    gains = [(-gain(k), k) for k in range(len(w))]
    losses = [(loss(k), k) for k in range(len(w)) if f[k] > 1]
    heapq.heapify(gains)
    heapq.heapify(losses)
    left = total - sum(f)

    # Entries of the heaps are renewed when they come up: they are stale if the frequency has changed since.
    def best_gain() -> tuple[int, int]:
        while True:
            value, k = gains[0]
            if f[k] == total:
                return 0, k
            now = -gain(k)
            if now == value:
                return -value, k
            heapq.heapreplace(gains, (now, k))

    def best_loss() -> tuple[int, int]:
        while losses:
            value, k = losses[0]
            now = loss(k)
            if now == value:
                return value, k
            if now < 0:
                heapq.heappop(losses)
            else:
                heapq.heapreplace(losses, (now, k))
        return 1 << 200, -1

    def change(k: int, by: int) -> None:
        f[k] += by
        if f[k] < total:
            heapq.heappush(gains, (-gain(k), k))
        if f[k] > 1:
            heapq.heappush(losses, (loss(k), k))

    while left > 0:
        change(best_gain()[1], 1)
        left -= 1
    while left < 0:
        change(best_loss()[1], -1)
        left += 1
    while True:
        (up, a), (down, b) = best_gain(), best_loss()
        # A frequency of thousands may seem to gain by a unit from itself: the logarithms are rounded there.
        if up <= down or a == b:
            break
        change(a, 1)
        change(b, -1)
    out[symbols] = f
    return out


def check_frequencies(freqs: ArrayLike) -> tuple[NDArray[np.uint32], int]:
    """Return `freqs` as contiguous uint32 and their scale_bits.

    Raises
    ------
    ValueError
        Unless they are 1 to 256 integers that sum to a power of two, 2 to 32,768.
    """
    f = np.asarray(freqs)
    if f.ndim != 1 or not 1 <= len(f) <= MAX_SYMBOLS or f.dtype.kind not in "ui":
        raise ValueError(f"freqs must be 1 to {MAX_SYMBOLS} integers, got {f.dtype}, shape {f.shape}")
    values = [int(v) for v in f]
    total = sum(values)
    bits = total.bit_length() - 1
    if min(values) < 0 or not MIN_SCALE_BITS <= bits <= MAX_SCALE_BITS or total != 1 << bits:
        raise ValueError(f"freqs must sum to a power of two, 2 to {1 << MAX_SCALE_BITS}, got {total}; see normalise")
    return np.ascontiguousarray(f, dtype=np.uint32), bits


def code_length(counts: NDArray[Any], freqs: NDArray[np.uint32]) -> int:
    """Return the bits that symbols of these counts take, rounded up: integer arithmetic, the same on every machine."""
    log2 = _log2_table()
    top = log2[int(freqs.sum())]
    used = [(int(c), int(f)) for c, f in zip(counts, freqs, strict=True) if c]
    return -(-sum(c * (top - log2[f]) for c, f in used) >> _FRACTION)


def _golomb_bits(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bits of each row of values with orders 0 to 7, shape (rows, 8)."""
    orders = np.arange(8)[:, None]
    lengths = np.frexp(((values[:, None, :] >> orders) + 1).astype(np.float64))[1]
    made: NDArray[np.int64] = (2 * lengths.astype(np.int64) - 1 + orders).sum(axis=2)
    return made


def table_to_bytes(freqs: NDArray[np.uint32]) -> bytes:
    """Return a table's bytes (FORMAT.md, section 9): frequencies, or their differences, in exponential Golomb codes."""
    f = [int(v) for v in freqs]
    steps = [a - b for a, b in zip(f, [0, *f[:-1]], strict=True)]
    folded = [2 * v if v >= 0 else -2 * v - 1 for v in steps]
    kind, order = divmod(int(np.argmin(_golomb_bits(np.array([f, folded], np.int64)))), 8)
    values = folded if kind else f
    stream = size = 0
    for v in values:
        w = v + (1 << order)
        bits = w.bit_length() - 1
        zeros = bits - order
        stream |= (1 | (w ^ (1 << bits)) << 1) << (size + zeros)
        size += zeros + 1 + bits
    head = sum(f).bit_length() - 2 | kind << 4 | order << 5
    return bytes([len(f) - 1, head]) + stream.to_bytes((size + 7) // 8, "little")


def table_from_bytes(data: bytes) -> tuple[NDArray[np.uint32], int]:
    """Return the table that `data` begins with and the number of its bytes.

    Raises
    ------
    FormatError
        If there is none: cut short, or frequencies that are none or have another sum.
    """
    if len(data) < 2:
        raise FormatError("the frequency table is cut short")
    count, total, kind, order = data[0] + 1, 2 << (data[1] & 15), data[1] >> 4 & 1, data[1] >> 5
    stream, size, at = int.from_bytes(data[2:1100], "little"), 8 * len(data[2:1100]), 0
    if total > 1 << MAX_SCALE_BITS:
        raise FormatError("the frequency table has too many bits")
    f: list[int] = []
    for _ in range(count):
        rest = stream >> at
        zeros = (rest & -rest).bit_length() - 1
        bits = zeros + order
        if rest == 0 or bits > MAX_SCALE_BITS + 2:
            raise FormatError("the frequency table is damaged")
        v = (rest >> (zeros + 1) & ((1 << bits) - 1)) + (1 << bits) - (1 << order)
        at += zeros + 1 + bits
        if kind:
            v = (f[-1] if f else 0) + (-(v + 1) // 2 if v & 1 else v // 2)
        if at > size or not 0 <= v <= total:
            raise FormatError("the frequency table is damaged")
        f.append(v)
    nbytes = (at + 7) // 8
    padding = stream >> at & ((1 << (8 * nbytes - at)) - 1)
    if sum(f) != total or f[-1] == 0 or padding:
        raise FormatError("the frequency table is damaged")
    return np.array(f, np.uint32), 2 + nbytes
