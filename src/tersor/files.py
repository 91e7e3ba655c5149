"""Files: named arrays in a .safetensors container, one message a tensor, written as a stream and read lazily."""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tersor import rng
from tersor.arrays import to_host
from tersor.bundle import Policy, choose, items, naming
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import FormatError
from tersor.message import from_bytes, size_of, to_bytes
from tersor.registry import get_codec

ALIGN = 64
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
            entries: dict[str, Any] = {}
            offset = 0
            for i, (name, array) in enumerate(items(arrays)):
                if name == _METADATA:
                    raise ValueError(f"{name!r} is not free as a tensor's name in a .safetensors file")
                with naming(name):
                    chosen = choose(policy, name, array) or default
                    rows = axis if to_host(array)[1] else None
                    enc = chosen.encode(array, seed=rng.mix64(base, tensor=i), axis=rows)
                offset = _append(body, enc, name, entries, offset)
            total = _put_header_before(body, partial, entries)
        os.replace(partial, target)
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
            self._begin, self._entries = _read_header(self._file, str(path))
        except BaseException:
            self._file.close()
            raise

    def __getitem__(self, name: str) -> Encoded:
        begin, end = self._entries[name]
        raw = os.pread(self._file.fileno(), end - begin, self._begin + begin)
        total = int.from_bytes(raw[_TOTAL_AT : _TOTAL_AT + 8], "little")
        return from_bytes(raw[:total], max_elements=self._max_elements)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def decode(self, name: str, **options: Any) -> Any:
        """Read and decode one tensor; `options` go to `Codec.decode`."""
        enc = self[name]
        return enc.codec.decode(enc, **options)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "open_file":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _append(body: BinaryIO, enc: Encoded, name: str, entries: dict[str, Any], offset: int) -> int:
    raw = to_bytes(enc, align=ALIGN)
    padded = -(-size_of(enc, ALIGN) // ALIGN) * ALIGN
    body.write(raw)
    body.write(bytes(padded - len(raw)))
    entries[name] = {"dtype": "U8", "shape": [padded], "data_offsets": [offset, offset + padded]}
    return offset + padded


def _put_header_before(body: BinaryIO, partial: Path, entries: dict[str, Any]) -> int:
    """Shift what was written behind the header, in place and from the end, a piece at a time."""
    header = json.dumps({_METADATA: {"format": "tersor", "version": "0"}, **entries}).encode("utf-8")
    header += b" " * (-(8 + len(header)) % ALIGN)
    shift = 8 + len(header)
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
        file.write(struct.pack("<Q", len(header)) + header)
        file.flush()
        os.fsync(file.fileno())
    return size + shift


def _read_header(file: BinaryIO, path: str) -> tuple[int, dict[str, tuple[int, int]]]:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        raise FormatError(f"{path} is truncated, or not a .safetensors file")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop(_METADATA, {})
        if metadata.get("format") != "tersor":
            raise FormatError(f"{path} was not written by tersor.save; read it with safetensors, or compress it first")
        if metadata.get("version") != "0":
            raise FormatError(f"{path} was written by another version of tersor.save than this; upgrade tersor")
        entries = {}
        for name, entry in header.items():
            begin, end = (int(v) for v in entry["data_offsets"])
            if not 0 <= begin <= end <= size - 8 - length:
                raise FormatError(f"{path}: the tensor {name!r} lies outside the file; it is truncated or damaged")
            entries[name] = (begin, end)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path} has a damaged header: {error}") from error
    return 8 + length, entries
