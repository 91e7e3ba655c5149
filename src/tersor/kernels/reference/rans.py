"""Interleaved rANS with one static table (FORMAT.md, section 9): 32-bit states, 16-bit words, in NumPy."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tersor.kernels.lengths import RANS_CHUNK, rans_lanes

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

LOW = 1 << 16  # the least state, and the one that a lane starts from


def chunks(n: int) -> Iterator[tuple[int, int]]:
    """Yield (first symbol, number of symbols) of the chunks of n symbols."""
    for begin in range(0, n, RANS_CHUNK):
        yield begin, min(RANS_CHUNK, n - begin)


def count_symbols(symbols: U8, counts: U64) -> None:
    """Fill `counts`, 256 elements, with how often each byte occurs."""
    counts[:] = np.bincount(symbols, minlength=256).astype(np.uint64)


def rans_encode(symbols: U8, freqs: U32, out: U8) -> int:
    """Write directory and chunks into `out`, return their size in bytes; -1 if a symbol has no frequency.

    `out` has room for 2 bytes a symbol, 4 a lane and 4 a chunk.
    """
    if np.any(symbols >= len(freqs)) or np.any(freqs[symbols] == 0):
        return -1
    f = freqs.astype(np.uint64)
    start = np.cumsum(f) - f
    bits = int(f.sum()).bit_length() - 1
    bodies = [_encode_chunk(symbols[i : i + m], f, start, bits) for i, m in chunks(len(symbols))]
    data = np.array([len(b) for b in bodies], "<u4").tobytes() + b"".join(bodies)
    out[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)


def _encode_chunk(symbols: U8, freqs: U64, start: U64, bits: int) -> bytes:
    m, width = len(symbols), rans_lanes(len(symbols))
    x = np.full(width, LOW, np.uint64)
    words: list[bytes] = []
    for i in reversed(range(0, m, width)):  # the last symbol first: the decoder undoes this
        now = symbols[i : i + width]
        f, y = freqs[now], x[: len(now)]
        full = (y >> np.uint64(32 - bits)) >= f
        words.append((y[full] & np.uint64(0xFFFF)).astype("<u2").tobytes())
        y[full] >>= np.uint64(16)
        x[: len(now)] = ((y // f) << np.uint64(bits)) + y % f + start[now]
    return x.astype("<u4").tobytes() + b"".join(reversed(words))


def rans_decode(data: U8, freqs: U32, out: U8) -> int:
    """Undo `rans_encode`: fill `out`. Return 0, 1 if the directory is wrong, 2 if a chunk is damaged."""
    number = len(range(0, len(out), RANS_CHUNK))
    if len(data) < 4 * number:
        return 1
    sizes = [int(size) for size in np.frombuffer(data[: 4 * number].tobytes(), "<u4")]
    least = [4 * rans_lanes(m) for _, m in chunks(len(out))]
    if sum(sizes) != len(data) - 4 * number or any(a < b or a % 2 for a, b in zip(sizes, least, strict=True)):
        return 1
    f = freqs.astype(np.uint64)
    start = np.cumsum(f) - f
    of_slot = np.repeat(np.arange(len(f), dtype=np.uint8), freqs)
    at = 4 * number
    for (i, m), size in zip(chunks(len(out)), sizes, strict=True):
        if not _decode_chunk(data[at : at + size], f, start, of_slot, out[i : i + m]):
            return 2
        at += size
    return 0


def _decode_chunk(data: U8, freqs: U64, start: U64, of_slot: U8, out: U8) -> bool:
    m, width = len(out), rans_lanes(len(out))
    total = np.uint64(len(of_slot))
    bits = np.uint64(len(of_slot).bit_length() - 1)
    x = np.frombuffer(data[: 4 * width].tobytes(), "<u4").astype(np.uint64)
    words = np.frombuffer(data[4 * width :].tobytes(), "<u2").astype(np.uint64)
    if np.any(x < LOW):
        return False
    at = 0
    for i in range(0, m, width):
        y = x[: min(width, m - i)]  # a view
        slot = y & (total - np.uint64(1))
        symbol = of_slot[slot.astype(np.int64)]
        out[i : i + width] = symbol
        y[:] = freqs[symbol] * (y >> bits) + slot - start[symbol]
        empty = y < LOW
        count = int(np.count_nonzero(empty))
        if count > len(words) - at:
            return False
        y[empty] = (y[empty] << np.uint64(16)) | words[at : at + count]
        at += count
    return at == len(words) and bool(np.all(x == LOW))
