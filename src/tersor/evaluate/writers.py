"""Decoded tensors into .npy, .npz and .safetensors files, one at a time; a file appears whole or not at all."""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16, storage_dtype, to_host
from tersor.encoded import Encoded
from tersor.errors import TersorError

SUFFIXES = (".npy", ".npz", ".safetensors")
_CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
Progress = Callable[[str, int], None]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it takes the place of `path` if all goes well, else it is removed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def check_target(path: Path, *, force: bool, source: Path | None = None) -> None:
    """Refuse to write over a file without `force`, or over the source at all.

    Raises
    ------
    TersorError
        With what to do instead.
    """
    if path.is_dir():
        raise TersorError(f"{path} is a directory; name a file")
    if not path.parent.is_dir():
        raise TersorError(f"there is no directory {path.parent}")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise TersorError(f"{path} is the input itself; write to another file")
    if path.exists() and not force:
        raise TersorError(f"{path} exists; --force replaces it")


def write_decoded(path: Path, messages: Mapping[str, Encoded], progress: Progress | None = None) -> list[str]:
    """Decode messages into a file of the kind that its suffix names.

    Parameters
    ----------
    path : Path
        .npy for one tensor, .npz or .safetensors for any number.
    messages : mapping of str to Encoded
        Read one after the other.
    progress : callable, optional
        Called with a tensor's name and coordinates when it is written.

    Returns
    -------
    list of str
        Tensors that were bfloat16 and are written as float32, without loss, because NumPy's formats lack the type.

    Raises
    ------
    TersorError
        If the suffix is another, or .npy is to hold more than one tensor.
    """
    say = progress or (lambda name, size: None)
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise TersorError(f"{path}: cannot write this kind of file; tersor decompresses to {', '.join(SUFFIXES)}")
    if kind == ".npy" and len(messages) != 1:
        raise TersorError(f"{path}: a .npy file holds one tensor, here are {len(messages)}; write .npz or .safetensors")
    with replacing(path) as partial:
        if kind == ".safetensors":
            _write_safetensors(partial, messages, say)
            return []
        if kind == ".npy":
            ((name, enc),) = messages.items()
            with open(partial, "xb") as file:
                np.lib.format.write_array(file, _for_numpy(enc), allow_pickle=False)
            say(name, enc.size)
            return [name] if enc.dtype == "bfloat16" else []
        return _write_npz(partial, messages, say)


def _write_npz(path: Path, messages: Mapping[str, Encoded], say: Progress) -> list[str]:
    widened = []
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, enc in messages.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _for_numpy(enc), allow_pickle=False)
            if enc.dtype == "bfloat16":
                widened.append(name)
            say(name, enc.size)
    return widened


def _write_safetensors(path: Path, messages: Mapping[str, Encoded], say: Progress) -> None:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    # Readers want aligned tensors: the wide types go first, as the safetensors library writes them.
    kinds = {name: (enc.dtype, enc.shape) for name, enc in messages.items()}
    names = sorted(kinds, key=lambda name: -storage_dtype(kinds[name][0]).itemsize)
    for name in names:
        dtype, shape = kinds[name]
        end = offset + math.prod(shape) * storage_dtype(dtype).itemsize
        entries[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries).encode("utf-8")
    header += b" " * (-len(header) % 8)
    with open(path, "xb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            data = _storage(messages[name])
            file.write(np.ascontiguousarray(data, data.dtype.newbyteorder("<")).data)
            say(name, data.size)


def _storage(enc: Encoded) -> NDArray[Any]:
    """Decode to the bytes of the message's own dtype; bfloat16 as its bit patterns."""
    host, _ = to_host(enc.codec.decode(enc))
    if enc.dtype == "bfloat16" and host.dtype != "bfloat16":
        return float32_to_bfloat16(host.float32())
    return host.data


def _for_numpy(enc: Encoded) -> NDArray[Any]:
    data = _storage(enc)
    return (bfloat16_to_float32(data) if enc.dtype == "bfloat16" else data).reshape(enc.shape)
