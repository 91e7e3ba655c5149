"""Files: named arrays in a .safetensors container, one message a tensor, written as a stream and read lazily."""

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tersor import rng
from tersor.arrays import to_host
from tersor.bundle import Policy, choose, items, naming
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import FormatError
from tersor.message import from_bytes, size_of, to_bytes
from tersor.pieces import ALIGN, StoredMessage, cut, read_at
from tersor.registry import get_codec

# The dtypes of the .safetensors format and their bits.
BITS = {
    "BOOL": 8,
    **dict.fromkeys(("U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}
NUMPY = {"BOOL": "?", "C64": "<c8"} | {f"{k}{8 * n}": f"<{k.lower()}{n}" for k in "UI" for n in (1, 2, 4, 8)}
_MAX_HEADER = 100_000_000
_TOTAL_AT = 16
_METADATA = "__metadata__"


def save(
    path: "str | os.PathLike[str]",
    arrays: Mapping[str, Any],
    codec: "Codec | str",
    *,
    policy: Policy | None = None,
    seed: int | None = None,
    axis: int | None = None,
) -> int:
    """Encode named arrays into a .safetensors file, one at a time.

    The file appears whole or not at all: it is written beside its place, flushed and renamed. Every tensor is stored as
    the bytes of one message (dtype U8), so that any safetensors reader can list and copy the file.

    Parameters
    ----------
    path : path
        The file; replaced if it exists.
    arrays : mapping of str to array
        Read one after the other, so a lazy mapping keeps memory small.
    codec, policy, seed
        As for `tersor.encode_dict`.
    axis : None or -1
        Encode rows; arrays without an axis are encoded as vectors.

    Returns
    -------
    int
        Bytes written.

    Examples
    --------
    >>> import numpy as np, tempfile, tersor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/model.safetensors"
    ...     _ = tersor.save(path, {"w": np.ones((64, 64), np.float32)}, "eden:4", seed=1)
    ...     with tersor.open(path) as file:
    ...         print(file.decode("w").shape, file["w"].spec)
    (64, 64) eden:4
    """
    default = get_codec(codec)
    base = rng.fresh_seed() if seed is None else seed
    target = Path(path)
    partial = target.with_name(f".{target.name}.{rng.fresh_seed():016x}.partial")
    try:
        with open(partial, "xb") as body:
            entries: dict[str, tuple[int, int]] = {}
            for i, (name, array) in enumerate(items(arrays)):
                if name == _METADATA:
                    raise ValueError(f"{name!r} is not free as a tensor's name in a .safetensors file")
                with naming(name):
                    chosen = choose(policy, name, array) or default
                    rows = axis if to_host(array)[1] else None
                    enc = chosen.encode(array, seed=rng.mix64(base, tensor=i), axis=rows)
                entries[name] = (_append(body, enc), padded(cut(chosen, enc.shape, enc.dtype, enc.axis).largest()))
            total = _put_header_before(body, partial, entries)
        os.replace(partial, target)
        sync_folder(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return total


class open_file(Mapping[str, Encoded]):
    """A file of `save`, opened lazily: tensors are read when they are asked for.

    Parameters
    ----------
    path : path
        The file.
    max_elements : int, default 2**32
        Limit on the coordinates of a tensor.

    Attributes
    ----------
    kept : dict of str to Kept
        Tensors that were not floats and are in the file as they were; `tersor compress` writes such.

    Raises
    ------
    FormatError
        If the file is not one that `save` wrote, or is damaged.

    Examples
    --------
    >>> import numpy as np, tempfile, tersor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tersor.save(folder + "/x.safetensors", {"b": np.ones(3, np.float32)}, "none")
    ...     with tersor.open(folder + "/x.safetensors") as file:
    ...         print(list(file), file["b"].shape, file.decode("b"))
    ['b'] (3,) [1. 1. 1.]
    """

    def __init__(self, path: "str | os.PathLike[str]", *, max_elements: int = 2**32) -> None:
        self._max_elements = max_elements
        self._file = open(path, "rb")  # noqa: SIM115 - close() closes it
        try:
            self._entries, self.kept = _read_container(self._file, str(path))
        except BaseException:
            self._file.close()
            raise

    def __getitem__(self, name: str) -> Encoded:
        begin, end = self._entries[name]
        raw = read_at(self._file.fileno(), begin, end - begin)
        total = int.from_bytes(raw[_TOTAL_AT : _TOTAL_AT + 8], "little")
        return from_bytes(raw[:total], max_elements=self._max_elements)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def stored(self, name: str) -> StoredMessage:
        """Return a message to be read in pieces; its checksum is verified now, in bounded memory."""
        begin, end = self._entries[name]
        return StoredMessage(
            lambda at, n: self.read(begin + at, min(n, end - begin - at)), end - begin, self._max_elements
        )

    def read(self, begin: int, n: int) -> bytes:
        """Return bytes of the file."""
        return read_at(self._file.fileno(), begin, n)

    def decode(self, name: str, **options: Any) -> Any:
        """Read and decode one tensor; `options` go to `Codec.decode`. One that was kept comes as a NumPy array."""
        if name in self.kept:
            entry = self.kept[name]
            if entry.dtype not in NUMPY:
                raise TypeError(f"NumPy has no type for {entry.dtype}; read {name!r} with safetensors")
            raw = self.read(entry.begin, entry.nbytes)
            if zlib.crc32(raw) != entry.crc:
                raise FormatError(f"the checksum of {name!r} is wrong: the file was damaged")
            return np.frombuffer(bytearray(raw), NUMPY[entry.dtype]).reshape(entry.shape)
        enc = self[name]
        return enc.codec.decode(enc, **options)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "open_file":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def padded(nbytes: int) -> int:
    """Return the room that a message of so many bytes has in a file."""
    return -(-nbytes // ALIGN) * ALIGN


def sync_folder(folder: Path) -> None:
    """Flush a directory, so that a file renamed in it stays so when the power fails."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems flush no directories
        pass
    finally:
        os.close(descriptor)


def header_of(
    messages: Mapping[str, tuple[int, int]], kept: "Mapping[str, tuple[str, tuple[int, ...], int, int]] | None" = None
) -> bytes:
    """Return the header of a container: what stands before its first message.

    Parameters
    ----------
    messages : mapping of str to (int, int)
        Room of every message, and that of the largest it could have been; the header leaves space as for those, so that
        its length is known before anything is encoded.
    kept : mapping of str to (dtype, shape, nbytes, crc), optional
        Tensors kept as they are, behind the messages.
    """
    texts = []
    for which in (0, 1):
        metadata = {"format": "tersor", "version": "0"}
        if kept:
            metadata["kept"] = json.dumps({name: f"{crc:08x}" for name, (_, _, _, crc) in kept.items()})
        entries: dict[str, Any] = {_METADATA: metadata}
        offset = 0
        for name, rooms in messages.items():
            entries[name] = {"dtype": "U8", "shape": [rooms[which]], "data_offsets": [offset, offset + rooms[which]]}
            offset += rooms[which]
        for name, (dtype, shape, nbytes, _) in (kept or {}).items():
            entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + nbytes]}
            offset += nbytes
        texts.append(json.dumps(entries).encode("utf-8"))
    length = padded(8 + max(map(len, texts))) - 8
    return struct.pack("<Q", length) + texts[0].ljust(length)


def _append(body: BinaryIO, enc: Encoded) -> int:
    raw = to_bytes(enc, align=ALIGN)
    room = padded(size_of(enc, ALIGN))
    body.write(raw)
    body.write(bytes(room - len(raw)))
    return room


def _put_header_before(body: BinaryIO, partial: Path, entries: dict[str, tuple[int, int]]) -> int:
    """Shift what was written behind the header, in place and from the end, a piece at a time."""
    header = header_of(entries)
    shift = len(header)
    size = body.tell()
    body.flush()
    with open(partial, "r+b") as file:
        piece = 1 << 24
        for end in range(size, 0, -piece):
            begin = max(end - piece, 0)
            file.seek(begin)
            data = file.read(end - begin)
            file.seek(begin + shift)
            file.write(data)
        file.seek(0)
        file.write(header)
        file.flush()
        os.fsync(file.fileno())
    return size + shift


@dataclass(frozen=True)
class Kept:
    """A tensor that a file holds as it was, because it is not one of floats.

    Attributes
    ----------
    dtype : str
        As the .safetensors format names it, such as "I64".
    shape : tuple of int
        Its shape.
    begin, nbytes : int
        Where its bytes are in the file.
    crc : int
        Their CRC-32.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int
    crc: int


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor in the .safetensors format.

    Raises
    ------
    FormatError
        If the format has no such dtype or no such tensor.
    """
    if dtype not in BITS:
        raise FormatError(f"there is no dtype {dtype[:40]!r} in the .safetensors format")
    bits = BITS[dtype] * math.prod(shape)
    if min(shape, default=0) < 0 or bits % 8:
        raise FormatError(f"no tensor of {dtype} has the shape {list(shape)}")
    return bits // 8


def read_header(file: BinaryIO, path: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Read the header of any .safetensors file: where the tensors begin, the entries by name, and the metadata.

    Entries are (dtype, shape, begin, end), within the file and of the length that dtype and shape give.

    Raises
    ------
    FormatError
        If it is damaged, truncated, forged, or larger than 100 MB.
    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        raise FormatError(f"{path} is truncated, or not a .safetensors file")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop(_METADATA, {})
        metadata.get("format")
        entries = {}
        for name, entry in header.items():
            begin, end = (int(v) for v in entry["data_offsets"])
            if not 0 <= begin <= end <= size - 8 - length:
                raise FormatError(f"{path}: the tensor {name!r} lies outside the file; it is truncated or damaged")
            dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
            if nbytes_of(dtype, shape) != end - begin:
                raise FormatError(f"{path}: the tensor {name!r} does not have the bytes of its shape")
            entries[name] = (dtype, shape, 8 + length + begin, 8 + length + end)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise FormatError(str(error) if path in str(error) else f"{path}: {error}") from error
        raise FormatError(f"{path} has a damaged header: {error}") from error
    return 8 + length, entries, metadata


def _read_container(file: BinaryIO, path: str) -> tuple[dict[str, tuple[int, int]], dict[str, Kept]]:
    _, entries, metadata = read_header(file, path)
    if metadata.get("format") != "tersor":
        raise FormatError(f"{path} was not written by tersor.save; read it with safetensors, or compress it first")
    if metadata.get("version") != "0":
        raise FormatError(f"{path} was written by another version of tersor.save than this; upgrade tersor")
    try:
        listed = json.loads(metadata.get("kept", "{}"))
        crcs = {name: struct.unpack(">I", bytes.fromhex(crc))[0] for name, crc in listed.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise FormatError(f"{path} has a damaged list of kept tensors: {error}") from error
    messages, kept = {}, {}
    for name, (dtype, shape, begin, end) in entries.items():
        if name in crcs:
            kept[name] = Kept(dtype, shape, begin, end - begin, crcs[name])
        elif dtype == "U8" and len(shape) == 1:
            messages[name] = (begin, end)
        else:
            raise FormatError(f"{path}: the tensor {name!r} is neither a message nor one of those kept as they are")
    if len(kept) != len(crcs):
        raise FormatError(f"{path} lists kept tensors that it does not hold")
    return messages, kept
