"""Messages in pieces: encoded into a file and read from it in bounded memory, with the bytes of the whole."""

import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import Host
from tersor.checksum import combine
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import FormatError, NonFiniteError, RangeError
from tersor.message import (
    CRC_AT,
    CRC_END,
    LARGEST_HEADER,
    MAGIC,
    Header,
    header_of,
    message_size,
    parse_header,
)
from tersor.units import Units

PIECE = 1 << 22
ALIGN = 64
_READ = 1 << 22
_TOTAL = struct.Struct("<16xQ")


@dataclass(frozen=True)
class Piece:
    """A run of units.

    Attributes
    ----------
    first : int
        Number of its first unit.
    begin, size : int
        Its coordinates.
    start : int
        Where it begins for `Codec.encode`: a coordinate, or a row.
    shape : tuple of int
        Of the array to encode.
    """

    first: int
    begin: int
    size: int
    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """How an array is encoded and decoded: in pieces of so many units, or as a whole.

    Attributes
    ----------
    codec, shape, dtype, axis
        The codec and the array.
    units : Units
        Of the array.
    per_piece : int
        Units of a piece; 0 if the codec needs the array as a whole.
    """

    codec: Codec
    shape: tuple[int, ...]
    dtype: str
    axis: int | None
    units: Units
    per_piece: int

    @property
    def whole(self) -> bool:
        """Whether the array is one piece because the codec needs it as a whole, not because it is small."""
        return self.per_piece == 0 and self.units.size > PIECE

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order; an array of no coordinates has one."""
        units = self.units
        if not self.per_piece:
            yield Piece(0, 0, units.size, 0, self.shape)
            return
        for first in range(0, units.count, self.per_piece):
            begin = first * units.length
            size = min(self.per_piece * units.length, units.size - begin)
            shape = (size // units.length, units.length) if units.by_rows else (size,)
            yield Piece(first, begin, size, first if units.by_rows else begin, shape)

    def largest(self) -> int:
        """Return the bytes of the message in a file: exact for codecs of fixed size, else an upper bound."""
        fields = self.codec.largest_fields(self.units)
        sizes = [p.nbytes for p in self.codec.layout(self.units, self.dtype, fields).values()]
        return message_size(self.codec.spec, len(self.shape), len(fields), sizes, ALIGN)


def cut(codec: Codec, shape: tuple[int, ...], dtype: str, axis: int | None) -> Cut:
    """Find the pieces of an array.

    It is cut if its messages have a fixed size and no fields, which would tell of the whole array; if a unit is not the
    whole vector; and if the planes of the pieces, one after the other, are as long as those of the whole.
    """
    units = codec.units(shape, axis)
    whole = Cut(codec, shape, dtype, axis, units, 0)
    apart = codec.claims.fixed_size and not codec.fields_size and (axis is not None or codec.unit is not None)
    if not apart or units.size <= PIECE:
        return whole
    fitting = max(PIECE // units.length, 1)
    for per_piece in (fitting // 8 * 8, fitting, 2, 4, 8):  # planes of less than a byte a unit need a multiple
        if per_piece and per_piece < units.count and _adds_up(codec, units, dtype, per_piece):
            return Cut(codec, shape, dtype, axis, units, per_piece)
    return whole


def _adds_up(codec: Codec, units: Units, dtype: str, per_piece: int) -> bool:
    full, rest = divmod(units.size, per_piece * units.length)
    sizes = [
        [p.nbytes for p in codec.layout(Units(n, units.length, units.by_rows), dtype, b"").values()]
        for n in (units.size, per_piece * units.length, rest)
    ]
    return all(total == full * a + (b if rest else 0) for total, a, b in zip(*sizes, strict=True))


@dataclass(frozen=True)
class Written:
    """A message in a file: its bytes, and its CRC-32 (which stands in its header)."""

    nbytes: int
    crc: int


def encode_into(
    file: int,
    at: int,
    made: Cut,
    read: Callable[[int], NDArray[np.generic]],
    *,
    seed: int,
    nonfinite: str = "raise",
    progress: Callable[[int], None] | None = None,
) -> Written:
    """Encode an array into a file, a piece at a time; the message is byte for byte that of the whole.

    Parameters
    ----------
    file : int
        File descriptor.
    at : int
        Where the message begins.
    made : Cut
        From `cut`.
    read : callable
        ``read(n)`` returns the next `n` coordinates, flat; bfloat16 as uint16.
    seed, nonfinite
        As for `Codec.encode`.
    progress : callable, optional
        Called with the coordinates of every piece that was written.
    """
    codec = made.codec
    layout = codec.layout(made.units, made.dtype, b"") if made.per_piece else None
    sizes = [p.nbytes for p in layout.values()] if layout else []
    fields = b""
    offsets: list[int] = []
    crcs: list[int] = []
    done: list[int] = []
    for piece in made.pieces():
        host = Host(read(piece.size).reshape(piece.shape), made.dtype)
        enc = _encode(made, piece, host, seed, nonfinite)
        if not offsets:
            fields = enc.fields
            sizes = sizes or [len(p.data) for p in enc.planes.values()]
            offsets = _offsets(made, fields, sizes)
            crcs, done = [0] * len(sizes), [0] * len(sizes)
        for i, plane in enumerate(enc.planes.values()):
            data = np.ascontiguousarray(plane.data)
            write_at(file, data.data, at + offsets[i] + done[i])
            crcs[i] = zlib.crc32(data.data, crcs[i])
            done[i] += len(data)
        if progress:
            progress(piece.size)
    assert done == sizes, "the planes of the pieces make those of the whole"
    key = seed & (2**64 - 1)
    raw = header_of(
        codec.spec, made.shape, made.dtype, axis=made.axis, key=key, fields=fields, sizes=sizes, align=ALIGN
    )
    crc = zlib.crc32(memoryview(raw)[CRC_END:], zlib.crc32(memoryview(raw)[:CRC_AT]))
    end = len(raw)
    for offset, size, own in zip(offsets, sizes, crcs, strict=True):
        gap = bytes(offset - end)
        write_at(file, gap, at + end)
        crc = combine(zlib.crc32(gap, crc), own, size)
        end = offset + size
    write_at(file, bytes(-end % ALIGN), at + end)
    struct.pack_into("<I", raw, CRC_AT, crc)
    write_at(file, raw, at)
    return Written(end, crc)


def _encode(made: Cut, piece: Piece, host: Host, seed: int, nonfinite: str) -> Encoded:
    try:
        return made.codec.encode(host, seed=seed, axis=made.axis, start=piece.start, nonfinite=nonfinite)
    except NonFiniteError as error:
        index = piece.begin + error.index
        where = ", ".join(str(int(i)) for i in np.unravel_index(index, made.shape or (1,)))
        raise NonFiniteError(
            f"x[{where}] is {host.value(error.index)}; clean the array, or pass nonfinite='propagate'", index
        ) from error
    except RangeError as error:
        if piece.begin:
            raise RangeError(f"from coordinate {piece.begin:,} on, {error}") from error
        raise


def _offsets(made: Cut, fields: bytes, sizes: list[int]) -> list[int]:
    """Return where the planes begin in the message."""
    offsets = []
    offset = message_size(made.codec.spec, len(made.shape), len(fields) + 8 * len(sizes), [])
    for size in sizes:
        offset = -(-offset // ALIGN) * ALIGN
        offsets.append(offset)
        offset += size
    return offsets


class StoredMessage:
    """A message in a file, read a piece at a time.

    Parameters
    ----------
    read : callable
        ``read(begin, n)`` returns the `n` bytes from `begin` on, counted from the message's first, or fewer at the end.
    room : int
        Bytes there are; the message may be shorter.
    max_elements : int
        Limit on the coordinates.

    Raises
    ------
    FormatError
        If the message is damaged or forged; its checksum is verified here, its codes when they are read.
    """

    def __init__(self, read: Callable[[int, int], bytes], room: int, max_elements: int = 2**32) -> None:
        self._read = read
        head = memoryview(read(0, min(room, LARGEST_HEADER)))
        size = _TOTAL.unpack_from(head)[0] if len(head) >= _TOTAL.size else room
        size = min(size, room) if bytes(head[:4]) == MAGIC else room
        self.header: Header = parse_header(head, size, lambda: self._checksum(size), max_elements)
        self.cut = cut(self.header.codec, self.header.shape, self.header.dtype, self.header.axis)
        if self.header.counts or self.header.received or self.header.start:
            self.cut = Cut(self.header.codec, self.header.shape, self.header.dtype, self.header.axis, self.cut.units, 0)

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.header.shape)

    @property
    def nbytes(self) -> int:
        """Length of the message with planes on 8-byte boundaries, as `Encoded.nbytes` counts it."""
        head = self.header
        return message_size(head.codec.spec, len(head.shape), len(head.fields), head.sizes)

    def pieces(self) -> Iterator[Encoded]:
        """Yield the array's pieces in order, each a message of its own."""
        head = self.header
        if not self.cut.per_piece:
            yield head.assemble([self._plane(i, 0, n) for i, n in enumerate(head.sizes)])
            return
        if [p.nbytes for p in head.codec.layout(self.cut.units, head.dtype, b"").values()] != list(head.sizes):
            raise FormatError(f"{head.codec.spec} with shape {head.shape} has planes of other sizes than these")
        done = [0] * len(head.sizes)
        for piece in self.cut.pieces():
            units = head.codec.units(piece.shape, head.axis)
            sizes = [p.nbytes for p in head.codec.layout(units, head.dtype, b"").values()]
            planes = [self._plane(i, done[i], n) for i, n in enumerate(sizes)]
            done = [a + b for a, b in zip(done, sizes, strict=True)]
            yield replace(head, shape=piece.shape, start=piece.start).assemble(planes)

    def _plane(self, i: int, begin: int, n: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._exactly(self.header.offsets[i] + begin, n), np.uint8)

    def _exactly(self, begin: int, n: int) -> bytes:
        raw = self._read(begin, n)
        if len(raw) != n:
            raise FormatError("the file became shorter while it was read")
        return raw

    def _checksum(self, size: int) -> int:
        crc = 0
        for begin in range(0, size, _READ):
            raw = memoryview(self._exactly(begin, min(_READ, size - begin)))
            crc = zlib.crc32(raw[CRC_END:], zlib.crc32(raw[:CRC_AT])) if begin == 0 else zlib.crc32(raw, crc)
        return crc


def write_at(file: int, data: "bytes | bytearray | memoryview", at: int) -> None:
    """Write all of `data` at an offset."""
    view = memoryview(data).cast("B")
    while view:
        n = os.pwrite(file, view[: 1 << 30], at)
        view, at = view[n:], at + n


def read_at(file: int, at: int, n: int) -> bytes:
    """Read `n` bytes at an offset, or fewer at the end of the file."""
    parts = []
    while n:
        part = os.pread(file, min(n, 1 << 30), at)
        if not part:
            break
        parts.append(part)
        n, at = n - len(part), at + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
