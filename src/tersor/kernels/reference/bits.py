"""Bit packing: codes of b bits in a little-endian bit stream, least significant bit first, in NumPy."""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]


def pack(codes: Codes, bits: int, out: NDArray[np.uint8]) -> None:
    """Pack each row of `codes`, shape (m, n), into a row of `out`, shape (m, ceil(n * bits / 8))."""
    m, n = codes.shape
    wide = codes.astype("<u4").reshape(m, n, 1)
    stream = (wide >> np.arange(bits, dtype=np.uint32)) & np.uint32(1)
    packed = np.packbits(stream.astype(np.uint8).reshape(m, n * bits), axis=1, bitorder="little")
    out[...] = packed


def unpack(packed: NDArray[np.uint8], bits: int, out: Codes) -> None:
    """Undo `pack`: fill `out`, shape (m, n), dtype uint8, uint16 or uint32."""
    m, n = out.shape
    stream = np.unpackbits(packed, axis=1, count=n * bits, bitorder="little").reshape(m, n, bits)
    weights = np.left_shift(np.uint32(1), np.arange(bits, dtype=np.uint32))
    out[...] = (stream.astype(np.uint32) * weights).sum(axis=2, dtype=np.uint32)
