"""Whatever tersor wrote - a container, a bundle, one message - as named entries that are read a piece at a time."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tersor.bundle import MAGIC as BUNDLE
from tersor.bundle import EncodedDict
from tersor.encoded import Encoded
from tersor.errors import FormatError, TersorError
from tersor.evaluate.check import storage
from tersor.evaluate.readers import CODES
from tersor.files import BITS, Kept, open_file
from tersor.message import MAGIC as MESSAGE
from tersor.message import from_bytes
from tersor.pieces import StoredMessage

_COPY = 1 << 22


@dataclass(frozen=True)
class Entry:
    """A tensor of a compressed file.

    Attributes
    ----------
    code : str
        Its dtype in the .safetensors format.
    shape : tuple of int
        Its shape.
    nbytes : int
        Bytes that it takes in the file.
    message : StoredMessage, Encoded or None
        What it is decoded from; None if it was kept as it was.
    """

    code: str
    shape: tuple[int, ...]
    nbytes: int
    message: StoredMessage | Encoded | None
    kept: tuple[open_file, Kept] | None = None

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of a decoded coordinate; 0 for types of less than a byte."""
        return BITS[self.code] // 8

    def raw(self) -> Iterator[memoryview]:
        """Yield the decoded bytes, little-endian and in C order, a piece at a time."""
        if self.kept is not None:
            file, where = self.kept
            crc = 0
            for begin in range(0, where.nbytes, _COPY):
                n = min(_COPY, where.nbytes - begin)
                part = file.read(where.begin + begin, n)
                if len(part) != n:
                    raise FormatError("the file became shorter while it was read")
                crc = zlib.crc32(part, crc)
                yield memoryview(part)
            if crc != where.crc:
                raise FormatError("the checksum of a tensor that was kept as it was is wrong: the file was damaged")
        elif self.message is not None:
            for enc in [self.message] if isinstance(self.message, Encoded) else self.message.pieces():
                data = storage(enc).data
                little = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
                yield little.reshape(-1).view(np.uint8).data


class EncodedFile(Mapping[str, Entry], AbstractContextManager["EncodedFile"]):
    """The entries of a file; messages come first, then what was kept as it was.

    Attributes
    ----------
    kind : str
        What the file is, in words.
    nbytes : int
        Its length.
    """

    def __init__(self, path: Path, kind: str, content: Mapping[str, Encoded]) -> None:
        self.path, self.kind, self.nbytes = path, kind, path.stat().st_size
        self._content = content
        self._kept: Mapping[str, Kept] = content.kept if isinstance(content, open_file) else {}

    def __getitem__(self, name: str) -> Entry:
        if isinstance(self._content, open_file):
            if name in self._kept:
                kept = self._kept[name]
                return Entry(kept.dtype, kept.shape, kept.nbytes, None, (self._content, kept))
            try:
                stored = self._content.stored(name)
            except FormatError as error:
                raise FormatError(f"{self.path}: the tensor {name!r}: {error}") from error
            return Entry(CODES[stored.header.dtype], stored.header.shape, stored.nbytes, stored)
        enc = self._content[name]
        return Entry(CODES[enc.dtype], enc.shape, enc.nbytes, enc)

    def __iter__(self) -> Iterator[str]:
        yield from self._content
        yield from self._kept

    def __len__(self) -> int:
        return len(self._content) + len(self._kept)

    def __exit__(self, *_: Any) -> None:
        if isinstance(self._content, open_file):
            self._content.close()


def open_encoded(path: Path) -> EncodedFile:
    """Open whatever tersor wrote: a .safetensors container, the bytes of an EncodedDict, or of an Encoded.

    Raises
    ------
    TersorError
        If it is something else, or damaged.
    """
    with open(path, "rb") as file:
        magic = file.read(4)
        if magic in (MESSAGE, BUNDLE):
            raw = magic + file.read()
    try:
        if magic == MESSAGE:
            return EncodedFile(path, "one message", {path.stem: from_bytes(raw)})
        if magic == BUNDLE:
            return EncodedFile(path, "a bundle", EncodedDict.from_bytes(raw))
        if path.suffix.lower() in (".npy", ".npz", ".pt", ".pth"):
            raise TersorError("its tensors are not compressed; see `tersor compress`")
        if path.suffix.lower() != ".safetensors":
            raise TersorError("this is not a file that tersor wrote")
        return EncodedFile(path, "a .safetensors container", open_file(path))
    except TersorError as error:
        text = str(error)
        raise type(error)(text if str(path) in text else f"{path}: {text}") from error
