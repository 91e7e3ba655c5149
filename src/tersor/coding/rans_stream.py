"""Symbols coded by rANS with one static table that both sides know: directory and chunks (FORMAT.md, section 9)."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor.coding.frequencies import MAX_SCALE_BITS, MIN_SCALE_BITS, SCALE_BITS, check_frequencies
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.lengths import RANS_CHUNK, rans_lanes

CHUNK = RANS_CHUNK  # symbols; chunks are coded in parallel, and damage to one stays there


def as_symbols(symbols: ArrayLike) -> NDArray[np.uint8]:
    x = np.asarray(symbols)
    if x.dtype != np.uint8 or x.ndim != 1:
        raise ValueError(f"symbols must be a one-dimensional uint8 array, got {x.dtype}, shape {x.shape}")
    return np.ascontiguousarray(x)


def as_bytes(data: Any) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError(f"data must be bytes or a one-dimensional uint8 array, got {data.dtype}, {data.shape}")
        return np.ascontiguousarray(data)
    return np.frombuffer(data, np.uint8)


def count(symbols: ArrayLike) -> NDArray[np.uint64]:
    """Return how often each of the 256 symbols occurs in a one-dimensional uint8 array.

    Examples
    --------
    >>> count(np.array([1, 0, 1], np.uint8))[:3].tolist()
    [1, 2, 0]
    """
    counts = np.empty(256, np.uint64)
    ops.current().count_symbols(as_symbols(symbols), counts)
    return counts


def entropy(counts: ArrayLike) -> float:
    """Return the empirical entropy of symbols of these counts, in bits a symbol; 0 if there are none.

    Examples
    --------
    >>> entropy([1, 1, 2])
    1.5
    """
    c = np.asarray(counts, np.float64).reshape(-1)
    if np.any(c < 0) or not np.all(np.isfinite(c)):
        raise ValueError("counts must be finite and not negative")
    total = c.sum()
    p = c[c > 0] / total
    return float(-(p * np.log2(p)).sum()) + 0.0


def _chunks(n: int) -> list[int]:
    return [min(CHUNK, n - i) for i in range(0, n, CHUNK)]


def _room(n: int) -> int:
    return sum(4 + 4 * rans_lanes(m) + 2 * m for m in _chunks(n))


def max_nbytes(n: int, table: ArrayLike | int = SCALE_BITS) -> int:
    """Return an upper bound of the bytes that `encode` makes of `n` symbols.

    Parameters
    ----------
    n : int
        Number of symbols.
    table : array of integers, or int
        The frequencies, or, for any table, its scale_bits.

    Examples
    --------
    >>> max_nbytes(0), max_nbytes(1 << 20, [1, 1]) - (1 << 17)
    (0, 72)
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    if isinstance(table, int):
        least, bits = 1, table
        if not MIN_SCALE_BITS <= bits <= MAX_SCALE_BITS:
            raise ValueError(f"scale_bits must be {MIN_SCALE_BITS} to {MAX_SCALE_BITS}, got {bits}")
    else:
        freqs, bits = check_frequencies(table)
        least = int(freqs[freqs > 0].min())
    # A state x grows to at most x 2**bits / f (1 + 2**(bits - 16)); a word is sent for each factor of 2**16, at most
    # one a symbol. In 1/256 bit, rounded up.
    each = 0 if least == 1 << bits else math.ceil(256 * (bits - math.log2(least) + math.log2(1 + 2.0 ** (bits - 16))))
    return sum(4 + 4 * rans_lanes(m) + 2 * min(m, m * each // 4096) for m in _chunks(n))


def encode(symbols: ArrayLike, freqs: ArrayLike) -> NDArray[np.uint8]:
    """Code symbols with one static frequency table, which does not go into the bytes.

    Parameters
    ----------
    symbols : uint8 array, shape (n,)
    freqs : array of integers, shape (s,)
        As `normalise` makes them: s is 1 to 256, the sum a power of two from 2 to 32,768.

    Returns
    -------
    uint8 array
        The sizes of the chunks, then the chunks. n symbols take ``-sum(log2(freqs[symbols] / sum))`` bits and, a chunk of
        2**20, about 24 bits a lane and 32 more: 0.0004 bit a symbol. The bytes are the same on every machine.

    Raises
    ------
    ValueError
        If a symbol has no frequency, or `freqs` is not such a table.

    Examples
    --------
    >>> from tersor.coding.rans import normalise
    >>> x = np.array([0, 1, 0, 0, 2], np.uint8)
    >>> freqs = normalise(count(x)[:3])
    >>> decode(encode(x, freqs), 5, freqs).tolist()
    [0, 1, 0, 0, 2]
    """
    x = as_symbols(symbols)
    f, _ = check_frequencies(freqs)
    out = np.empty(_room(len(x)), np.uint8)
    size = ops.current().rans_encode(x, f, out)
    if size < 0:
        present = np.zeros(256, np.bool_)
        present[: len(f)] = f > 0
        first = int(np.argmin(present[x]))
        raise ValueError(f"symbol {int(x[first])} at {first} has no frequency")
    return out[:size].copy()


def decode(data: Any, n: int, freqs: ArrayLike, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Undo `encode` with the same table.

    Parameters
    ----------
    data : bytes-like or uint8 array
    n : int
        Number of symbols; the bytes do not tell.
    freqs : array of integers, shape (s,)
        The table that `encode` had.
    out : uint8 array, shape (n,), optional
        Contiguous and writeable. Its content is not defined after an error.

    Returns
    -------
    uint8 array, shape (n,)

    Raises
    ------
    FormatError
        If `data` is not what `encode` makes of n symbols with this table: every lane must end in the state that it
        started from, and every byte be used. Memory beyond the output is 256 KiB.
    ValueError
        If `freqs` or `out` is not as described.
    """
    f, _ = check_frequencies(freqs)
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    coded = as_bytes(data)
    # Before the output exists: bytes too few for their own directory and states.
    if len(coded) < sum(4 + 4 * rans_lanes(m) for m in _chunks(n)):
        raise FormatError(f"{len(coded)} bytes are too few for {n} symbols")
    if out is None:
        out = np.empty(n, np.uint8)
    elif out.dtype != np.uint8 or out.shape != (n,) or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out must be a contiguous, writeable uint8 array of {n} elements")
    status = ops.current().rans_decode(coded, f, out)
    if status == 1:
        raise FormatError("the directory of chunks does not fit the bytes")
    if status:
        raise FormatError("a chunk of coded symbols is damaged")
    return out
