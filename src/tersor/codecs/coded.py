"""Units of entropy-coded symbols: one plane of their bytes, one of their sizes (FORMAT.md, section 6).

A unit has at least one byte for 65,536 coordinates, so that few bytes never stand for an array of any size.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tersor.coding import bits as bit_stream
from tersor.coding.rans_blocks import Reader, block_parts, read_block
from tersor.coding.rans_stream import count
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.units import Units

_PIECE = 1 << 16
_ALL = np.zeros(0, np.uint8)  # every unit is there

Symbols = NDArray[np.uint8] | NDArray[np.uint16]


def least(n: int) -> int:
    """Return the bytes of a unit of one symbol, all 0, and the least that a unit of n coordinates can have."""
    return n >> 16


def most(n: int, symbols: int) -> int:
    """Return the most bytes that a unit of n coordinates has, whose symbols are below `symbols`.

    Examples
    --------
    >>> most(1000, 1), most(1000, 16), most(1000, 1000)
    (0, 502, 1260)
    """
    if symbols == 1:
        return least(n)
    if symbols <= 256:
        return 2 + bit_stream.packed_size(n, (symbols - 1).bit_length())
    high = (symbols - 1 >> 8) + 1
    # A plain block, and one of bytes for each upper byte.
    return 2 + bit_stream.packed_size(n, (high - 1).bit_length()) + 2 * min(high, n) + n


def specs(units: Units, total: int, largest: int) -> dict[str, PlaneSpec]:
    """Return the planes `codes`, of `total` bytes, and `sizes`; a whole unit has at most `largest` bytes.

    Raises
    ------
    FormatError
        If no message has so many bytes.
    """
    n = units.count
    fewest = max(n - 1, 0) * least(units.length) + least(units.last)
    if not fewest <= total <= n * largest:
        raise FormatError(f"{total} bytes of coded symbols are not what {n} units have")
    kind = "<u4" if units.length <= 1 << 30 else "<u8"
    size = np.dtype(kind).itemsize
    return {"codes": PlaneSpec(8, n, 0, total), "sizes": PlaneSpec(8 * size, n, size, size * n, kind)}


def planes(coded: list[bytes], units: Units) -> dict[str, NDArray[np.uint8]]:
    """Return the planes of coded units."""
    joined = np.frombuffer(b"".join(coded), np.uint8)
    kind = "<u4" if units.length <= 1 << 30 else "<u8"
    sizes = np.array([len(c) for c in coded], kind)
    return {"codes": joined, "sizes": sizes.view(np.uint8)}


def coded_units(
    enc: Encoded, units: Units, present: NDArray[np.bool_] | None = None
) -> Iterator[tuple[int, slice, NDArray[np.uint8]]]:
    """Yield (unit, its coordinates, its bytes) of the units that are `present`.

    Raises
    ------
    FormatError
        If the sizes do not add up.
    """
    codes, sizes = enc.planes["codes"].data, enc.planes["sizes"].values().astype(np.uint64)
    # An end may wrap around, but then the sizes are not all within the plane.
    if (sizes > len(codes)).any() or int(sizes.sum()) != len(codes):
        raise FormatError("the sizes of coded units do not add up")
    end = 0
    for k, size in enumerate(sizes.tolist()):
        begin, end = end, end + size
        if present is None or present[k]:
            first = k * units.length
            yield k, slice(first, min(first + units.length, units.size)), codes[begin:end]


def encode_unit(symbols: Symbols, number: int) -> bytes:
    """Return the bytes of a unit of symbols below `number`, up to 65,536; above 256 the symbols must be uint16.

    Up to 256: one block of section 9. Above: a block of the upper bytes, then one of the lower bytes of each upper byte
    that occurs, ascending; these conditional tables give the entropy of the symbols.
    """
    if number == 1:
        return bytes(least(len(symbols)))
    if number <= 256:
        return b"".join(block_parts(symbols.astype(np.uint8, copy=False)))
    high, low = np.empty(len(symbols), np.uint8), np.empty(len(symbols), np.uint8)
    ops.current().split_symbols(np.ascontiguousarray(symbols, np.uint16), high, low)
    parts, begin = block_parts(high), 0
    for size in count(high).tolist():
        if size:
            parts += block_parts(low[begin : begin + size])
            begin += size
    return b"".join(parts)


def decode_unit(data: NDArray[np.uint8], n: int, number: int) -> Symbols:
    """Undo `encode_unit` of n symbols below `number`.

    Raises
    ------
    FormatError
        If the bytes are none of its.
    """
    if number == 1:
        if len(data) != least(n) or data.any():
            raise FormatError("a unit of one symbol has other bytes")
        return np.zeros(n, np.uint8)
    if len(data) < 2 + least(n):
        raise FormatError("a unit of coded symbols has too few bytes")
    reader = Reader(data)
    first, low = np.empty(n, np.uint8), np.empty(0, np.uint8)
    read_block(reader, first, zstd=False)
    top = number - 1 if number <= 256 else number - 1 >> 8
    last = first
    if int(first.max()) > top:
        raise FormatError("a symbol is beyond the number of levels")
    if number > 256:
        low, begin = np.empty(n, np.uint8), 0
        last = low[:0]
        for value, size in enumerate(count(first).tolist()):
            if size:
                part = low[begin : begin + size]
                read_block(reader, part, zstd=False)
                begin += size
                if value == top:
                    last = part
        if int(last.max(initial=0)) > (number - 1 & 255):
            raise FormatError("a symbol is beyond the number of levels")
    if reader.left():
        raise FormatError(f"{reader.left()} bytes too many in a unit of coded symbols")
    if number <= 256:
        return first
    joined = np.empty(n, np.uint16)
    ops.current().join_symbols(first, low, joined)
    return joined


def look_up(table: NDArray[np.float32], symbols: Symbols, out: NDArray[np.float32], add: bool) -> None:
    """Write the entries of `table` that symbols stand for to `out`, or add them."""
    if symbols.dtype == np.uint8:
        padded = np.full(256, table[-1], np.float32)
        padded[: len(table)] = table
        ops.current().levels_decode(symbols.astype(np.uint8, copy=False), len(symbols), padded, 8, 1.0, add, _ALL, out)
        return
    for i in range(0, len(symbols), _PIECE):  # NumPy's indices are wide while it has them
        values = table[symbols[i : i + _PIECE]]
        if add:
            out[i : i + _PIECE] += values
        else:
            out[i : i + _PIECE] = values
