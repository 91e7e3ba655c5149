"""Packed codes: b bits each in a little-endian bit stream, every row on a byte of its own."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import ops


def packed_size(n: int, bits: int) -> int:
    """Return the bytes that `n` codes of `bits` bits take."""
    return (n * bits + 7) // 8


def pack(codes: ops.Codes, bits: int) -> NDArray[np.uint8]:
    """Pack each row of `codes`, shape (m, n), dtype uint8, uint16 or uint32; returns uint8, shape (m, bytes).

    Examples
    --------
    >>> pack(np.array([[1, 2, 3]], np.uint8), 4).tolist()
    [[33, 3]]
    """
    out = np.empty((codes.shape[0], packed_size(codes.shape[1], bits)), np.uint8)
    ops.current().pack(cast(ops.Codes, np.ascontiguousarray(codes)), bits, out)
    return out


def unpack(packed: NDArray[np.uint8], bits: int, n: int) -> ops.Codes:
    """Undo `pack` for rows of `n` codes; returns the smallest unsigned dtype that holds `bits` bits.

    Raises
    ------
    ValueError
        If a row of `packed` does not have the bytes that `n` codes take.
    """
    if packed.ndim != 2 or packed.shape[1] != packed_size(n, bits):
        raise ValueError(f"{n} codes of {bits} bits take {packed_size(n, bits)} bytes a row, got shape {packed.shape}")
    out: ops.Codes
    if bits <= 8:
        out = np.empty((packed.shape[0], n), np.uint8)
    elif bits <= 16:
        out = np.empty((packed.shape[0], n), np.uint16)
    else:
        out = np.empty((packed.shape[0], n), np.uint32)
    ops.current().unpack(np.ascontiguousarray(packed), bits, out)
    return out
