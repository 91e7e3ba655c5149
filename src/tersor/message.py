"""Messages: an Encoded as bytes and back, every size checked before anything is allocated (FORMAT.md, section 6)."""

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import FLOAT_DTYPES
from tersor.codec import Codec
from tersor.encoded import Encoded, PlaneSpec, check_encoded
from tersor.errors import FormatError
from tersor.registry import get_codec
from tersor.specs import MAX_SPEC

MAGIC = b"TERS"
VERSION = 0
MAX_NDIM = 32

_HEADER = struct.Struct("<4sBBBBIIQQQIIBBBBHH")
CRC_AT, CRC_END = 8, 12
_COUNTS, _RECEIVED = 1, 2
_MAX_FIELDS = 0xFFFF
LARGEST_HEADER = _HEADER.size + 8 * (MAX_NDIM + 255) + 255 + _MAX_FIELDS


def message_size(spec: str, ndim: int, fields: int, planes: Sequence[int], align: int = 8) -> int:
    """Return the length of a message from the lengths of its parts."""
    offset = _header_size(len(spec), ndim, fields, len(planes))
    for nbytes in planes:
        offset = _round_up(offset, align) + nbytes
    return offset


def size_of(enc: Encoded, align: int = 8) -> int:
    """Return the length of a message."""
    planes = [len(data) for data in _wire_planes(enc)]
    return message_size(enc.spec, len(enc.shape), len(enc.fields), planes, align)


def to_bytes(enc: Encoded, *, align: int = 8) -> bytes:
    """Return the message as bytes; planes start on multiples of `align`."""
    if align not in (8, 16, 32, 64, 128, 256):
        raise ValueError(f"align must be a power of two from 8 to 256, got {align}")
    planes = _wire_planes(enc)
    sizes = [len(data) for data in planes]
    uniform = isinstance(enc.count, int)
    header = header_of(
        enc.spec,
        enc.shape,
        enc.dtype,
        axis=enc.axis,
        key=enc.key,
        start=enc.start,
        count=enc.count if isinstance(enc.count, int) else 0,
        digest=enc.digest,
        fields=enc.fields,
        sizes=sizes,
        flags=(0 if uniform else _COUNTS) | (0 if enc.received is None else _RECEIVED),
        align=align,
    )
    raw = bytearray(message_size(enc.spec, len(enc.shape), len(enc.fields), sizes, align))
    raw[: len(header)] = header
    offset = len(header)
    view = memoryview(raw)
    for data in planes:
        offset = _round_up(offset, align)
        view[offset : offset + len(data)] = data.data
        offset += len(data)
    struct.pack_into("<I", raw, CRC_AT, _checksum(view))
    return bytes(raw)


def header_of(
    spec: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    axis: int | None,
    key: int,
    fields: bytes,
    sizes: Sequence[int],
    align: int,
    start: int = 0,
    count: int = 1,
    digest: int = 0,
    flags: int = 0,
) -> bytearray:
    """Return a message's header, up to the end of the fields, with 0 for the checksum."""
    text = spec.encode("ascii")
    if len(text) > MAX_SPEC or len(shape) > MAX_NDIM or len(fields) > _MAX_FIELDS:
        raise ValueError(f"a message has a spec of at most {MAX_SPEC} characters and at most {MAX_NDIM} axes")
    raw = bytearray(_header_size(len(text), len(shape), len(fields), len(sizes)))
    _HEADER.pack_into(
        raw,
        0,
        MAGIC,
        VERSION,
        FLOAT_DTYPES.index(dtype),
        0 if axis is None else 1,
        flags,
        0,
        len(raw),
        message_size(spec, len(shape), len(fields), sizes, align),
        key,
        start,
        count,
        digest,
        len(shape),
        len(text),
        len(sizes),
        align.bit_length() - 1,
        len(fields),
        0,
    )
    offset = _HEADER.size
    struct.pack_into(f"<{len(shape)}Q{len(sizes)}Q", raw, offset, *shape, *sizes)
    raw[offset + 8 * (len(shape) + len(sizes)) :] = text + fields
    return raw


@dataclass(frozen=True)
class Header:
    """What stands before the planes of a message, checked.

    Attributes
    ----------
    codec : Codec
        The codec that the spec string names.
    shape, dtype, axis, key, start, count, digest, fields
        As in `Encoded`; `count` is 0 if a plane of counts follows.
    sizes, offsets : tuple of int
        Bytes of every plane, and where it begins in the message.
    counts, received : bool
        Whether these planes follow those of the codec.
    size : int
        Bytes of the message.
    """

    codec: Codec
    shape: tuple[int, ...]
    dtype: str
    axis: int | None
    key: int
    start: int
    count: int
    digest: int
    fields: bytes
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    counts: bool
    received: bool
    size: int

    def assemble(self, planes: Sequence[NDArray[np.uint8]]) -> Encoded:
        """Put the message together with its planes; what no encoder writes raises FormatError."""
        return assemble(
            self.codec,
            shape=self.shape,
            dtype=self.dtype,
            axis=self.axis,
            key=self.key,
            start=self.start,
            count=self.count,
            digest=self.digest,
            fields=self.fields,
            planes=planes,
            counts=self.counts,
            received=self.received,
        )


def from_bytes(raw: Any, *, max_elements: int = 2**32) -> Encoded:
    """Parse a message; its planes share memory with `raw`.

    Parameters
    ----------
    raw : bytes-like
        Exactly one message.
    max_elements : int, default 2**32
        Refuse messages of more coordinates, before anything is allocated.

    Returns
    -------
    Encoded

    Raises
    ------
    FormatError
        If the bytes are damaged, truncated, forged, too large or of another version.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> enc = tersor.Eden(bits=4).encode(np.ones(5, np.float32), seed=1)
    >>> tersor.from_bytes(enc.to_bytes()).spec
    'eden:4'
    """
    view = memoryview(raw).cast("B")
    header = parse_header(view, len(view), lambda: _checksum(view), max_elements)
    planes = [
        np.frombuffer(view[begin : begin + nbytes], np.uint8)
        for begin, nbytes in zip(header.offsets, header.sizes, strict=True)
    ]
    return header.assemble(planes)


def parse_header(view: memoryview, size: int, checksum: Callable[[], int], max_elements: int) -> Header:
    """Parse the header of a message.

    Parameters
    ----------
    view : memoryview
        The message, or at least its first LARGEST_HEADER bytes.
    size : int
        Length of the message.
    checksum : callable
        Returns the CRC-32 of all its bytes but those that hold it.
    max_elements : int
        Limit on the coordinates.

    Raises
    ------
    FormatError
        If the bytes are damaged, truncated, forged, too large or of another version.
    """
    if size < _HEADER.size:
        raise FormatError(f"a message has at least {_HEADER.size} bytes, got {size}")
    (
        magic,
        version,
        dtype,
        axis,
        flags,
        crc,
        header_size,
        total,
        key,
        start,
        count,
        digest,
        ndim,
        spec_len,
        n_planes,
        align_log2,
        n_fields,
        reserved,
    ) = _HEADER.unpack_from(view)
    if magic != MAGIC:
        hint = "; a bundle: use tersor.EncodedDict.from_bytes" if magic == b"TERD" else ""
        raise FormatError(f"these bytes are not a tersor message (wrong magic number){hint}")
    if version != VERSION:
        raise FormatError(
            f"message version {version} is not readable by this tersor (it reads {VERSION}); upgrade tersor"
        )
    if total != size:
        raise FormatError(f"the message says {total} bytes, got {size}: truncated or oversized")
    if crc != checksum():
        raise FormatError("the checksum is wrong: the message was damaged")
    if dtype >= len(FLOAT_DTYPES) or axis > 1 or flags > 3 or reserved or ndim > MAX_NDIM or not 3 <= align_log2 <= 8:
        raise FormatError("the header holds a value that no encoder writes")
    if header_size != _header_size(spec_len, ndim, n_fields, n_planes) or header_size > total:
        raise FormatError("the header's sizes contradict one another")
    numbers = struct.unpack_from(f"<{ndim + n_planes}Q", view, _HEADER.size)
    shape, sizes = numbers[:ndim], numbers[ndim:]
    check_shape(shape, max_elements)
    text_at = _HEADER.size + 8 * (ndim + n_planes)
    fields = bytes(view[text_at + spec_len : text_at + spec_len + n_fields])
    codec = resolve(bytes(view[text_at : text_at + spec_len]))
    if message_size(codec.spec, ndim, n_fields, sizes, 1 << align_log2) != total:
        raise FormatError("the planes do not fill the message")
    offsets = []
    offset = header_size
    for nbytes in sizes:
        offset = _round_up(offset, 1 << align_log2)
        offsets.append(offset)
        offset += nbytes
    return Header(
        codec=codec,
        shape=shape,
        dtype=FLOAT_DTYPES[dtype],
        axis=None if axis == 0 else -1,
        key=key,
        start=start,
        count=count,
        digest=digest,
        fields=fields,
        sizes=sizes,
        offsets=tuple(offsets),
        counts=bool(flags & _COUNTS),
        received=bool(flags & _RECEIVED),
        size=total,
    )


def decode(enc: Encoded, **options: Any) -> Any:
    """Decode a message with the codec it names; `options` go to `Codec.decode`.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> tersor.decode(tersor.get_codec("none").encode(np.ones(2, np.float32))).tolist()
    [1.0, 1.0]
    """
    check_encoded(enc)
    return enc.codec.decode(enc, **options)


def resolve(spec: bytes) -> Codec:
    """Return the codec of a spec string from the wire; only built-in names in canonical form are accepted."""
    try:
        codec = get_codec(spec.decode("ascii"))
    except (ValueError, TypeError) as error:
        raise FormatError(f"the message names no codec of this tersor: {error}") from error
    if codec.spec.encode() != spec:
        raise FormatError(f"the message's spec {spec!r} is not in canonical form ({codec.spec})")
    return codec


def check_shape(shape: Sequence[int], max_elements: int) -> None:
    """Raise FormatError if an array of `shape` could not exist or has more than `max_elements` coordinates."""
    if math.prod(max(n, 1) for n in shape) > max_elements:
        raise FormatError(f"shape {tuple(shape)} has more than max_elements={max_elements} coordinates")


def assemble(
    codec: Codec,
    *,
    shape: tuple[int, ...],
    dtype: str,
    axis: int | None,
    key: int,
    start: int,
    count: int,
    digest: int,
    fields: bytes,
    planes: Sequence[NDArray[np.uint8]],
    counts: bool = False,
    received: bool = False,
) -> Encoded:
    """Put a parsed message together, checking every plane against the codec's layout.

    Raises
    ------
    FormatError
        If anything is not as an encoder of this codec writes it.
    """
    if axis is not None and not shape:
        raise FormatError("a message of rows needs an axis")
    units = codec.units(shape, axis)
    layout = checked_layout(codec, units, dtype, fields)
    expected = [p.nbytes for p in layout.values()]
    expected += [4 * units.count] * counts + [(units.count + 7) // 8] * received
    if [len(p) for p in planes] != expected:
        raise FormatError(
            f"{codec.spec} with shape {shape} has planes of {expected} bytes, got {[len(p) for p in planes]}"
        )
    rest = list(planes[len(layout) :])
    per_unit = rest.pop(0).view("<u4").astype(np.uint32) if counts else None
    flags = np.unpackbits(rest.pop(0), count=units.count, bitorder="little").astype(np.bool_) if received else None
    if (count == 0) != counts or not codec.starts_at(start, units):
        raise FormatError("the header's count or start is not one that an encoder writes")
    enc = Encoded(
        spec=codec.spec,
        shape=shape,
        dtype=dtype,
        axis=axis,
        key=key,
        planes={name: spec.fill(data) for (name, spec), data in zip(layout.items(), planes, strict=False)},
        start=start,
        count=count if per_unit is None else per_unit,
        received=flags,
        digest=digest,
        fields=fields,
    )
    codec.validate(enc)
    return enc


def checked_layout(codec: Codec, units: Any, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
    """Return a codec's layout for fields from the wire; nonsense in them raises FormatError."""
    if len(fields) != codec.fields_size:
        raise FormatError(f"{codec.name} has {codec.fields_size} bytes of fields, got {len(fields)}")
    return codec.layout(units, dtype, fields)


def _wire_planes(enc: Encoded) -> list[NDArray[np.uint8]]:
    planes = [p.data for p in enc.planes.values()]
    if not isinstance(enc.count, int):
        planes.append(np.ascontiguousarray(enc.count, "<u4").view(np.uint8))
    if enc.received is not None:
        planes.append(np.packbits(enc.received, bitorder="little"))
    return planes


def _header_size(spec: int, ndim: int, fields: int, n_planes: int) -> int:
    return _HEADER.size + 8 * (ndim + n_planes) + spec + fields


def _round_up(offset: int, align: int) -> int:
    return -(-offset // align) * align


def _checksum(view: memoryview) -> int:
    return zlib.crc32(view[CRC_END:], zlib.crc32(view[:CRC_AT]))
