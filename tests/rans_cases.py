"""Symbols and tables for the entropy coder, and its operations as cases of test_backends.py."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.coding.rans import normalise
from tersor.coding.rans_stream import _room
from tersor.kernels import reference
from tersor.quantize import lloyd_max

LENGTHS = (0, 1, 2, 15, 16, 17, 333, 2000)
LONG = (8191, 8200, 16_500, 40_000, 65_536, 70_001)  # each number of lanes; slow in NumPy


def gaussian(n: int, bits: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return N(0,1) quantized to 2**bits Lloyd-Max levels."""
    z = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    return np.searchsorted(lloyd_max.thresholds(bits), z, side="right").astype(np.uint8)


def tables() -> Iterator[NDArray[np.uint32]]:
    """Tables of all shapes: every scale, lone symbols, frequencies of 1, gaps, powers of two and their neighbours."""
    g = np.random.default_rng(1)
    for bits in (1, 2, 5, 8, 11, 12, 13, 15):
        total = 1 << bits
        for s in (1, 2, 3, 16, 17, 256):
            if s <= total:
                yield normalise(g.dirichlet(np.full(s, 0.3)) + 1e-9, bits)
        for f in (1, total // 2 - 1, total // 2, total // 2 + 1, total // 3, total - 1):
            if 0 < f < total:
                yield np.array([0, f, 0, total - f], np.uint32)
        yield np.array([0, total], np.uint32)


def drawn(freqs: NDArray[np.uint32], n: int) -> NDArray[np.uint8]:
    """Return n symbols; half of them so that rare ones are not rare."""
    g = np.random.default_rng([n, len(freqs)])
    p = freqs / freqs.sum()
    here = np.flatnonzero(freqs)
    common, any_of = g.choice(len(freqs), n, p=p), here[g.integers(0, len(here), n)]
    return np.where(np.arange(n) % 64 < 32, common, any_of).astype(np.uint8)


def encoded(backend: Any, symbols: NDArray[np.uint8], freqs: NDArray[np.uint32]) -> NDArray[np.uint8]:
    out = np.full(_room(len(symbols)), 0xAA, np.uint8)
    size = backend.rans_encode(symbols, freqs, out)
    assert size >= 0
    return out[:size].copy()


def arguments() -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint32]]]:
    for k, freqs in enumerate(tables()):
        yield drawn(freqs, LENGTHS[k % len(LENGTHS)]), freqs
        if k % 6 == 5:
            n = LONG[k // 6 % len(LONG)]
            yield drawn(freqs, n), freqs


@cache
def messages() -> list[tuple[NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint8]]]:
    return [(symbols, freqs, encoded(reference, symbols, freqs)) for symbols, freqs in arguments()]


def case_count_symbols(backend: Any) -> Iterator[NDArray[Any]]:
    for n in (*LENGTHS, *LONG, 300_000):
        for top in (1, 5, 256):
            counts = np.full(256, 7, np.uint64)
            backend.count_symbols(np.random.default_rng(n).integers(0, top, n).astype(np.uint8), counts)
            yield counts


def case_rans_encode(backend: Any) -> Iterator[NDArray[Any]]:
    for symbols, freqs in arguments():
        yield encoded(backend, symbols, freqs)
        if len(symbols) and (freqs == 0).any():  # refused wherever it stands
            wrong = symbols.copy()
            wrong[len(wrong) // 3] = int(np.argmin(freqs))
            yield np.array(backend.rans_encode(wrong, freqs, np.empty(_room(len(wrong)), np.uint8)))
        if len(symbols) and len(freqs) < 256:
            wrong = symbols.copy()
            wrong[-1 - len(wrong) // 2] = max(len(freqs), 240)
            yield np.array(backend.rans_encode(wrong, freqs, np.empty(_room(len(wrong)), np.uint8)))


def case_rans_decode(backend: Any) -> Iterator[NDArray[Any]]:
    g = np.random.default_rng(2)
    for symbols, freqs, data in messages():
        out = np.full(len(symbols), 9, np.uint8)
        yield np.array(backend.rans_decode(data, freqs, out))
        yield out.copy()
        if len(symbols) > 2000:
            continue
        for damaged in (data[:-1], data[:-2], np.append(data, np.zeros(2, np.uint8))):
            yield np.array(backend.rans_decode(np.ascontiguousarray(damaged), freqs, out))
        if len(data):
            damaged = data.copy()
            damaged[g.integers(0, len(data))] ^= 1 << g.integers(0, 8)
            yield np.array(backend.rans_decode(damaged, freqs, out))
