"""Decoded tensors into .npy, .npz and .safetensors files, one at a time; a file appears whole or not at all."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tersor.arrays import bfloat16_to_float32
from tersor.errors import TersorError
from tersor.evaluate.encoded_file import EncodedFile, Entry
from tersor.evaluate.journal import FULL
from tersor.files import BITS, NUMPY, nbytes_of, sync_folder

SUFFIXES = (".npy", ".npz", ".safetensors")
_KINDS = NUMPY | {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
Progress = Callable[[str, int], None]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it takes the place of `path` if all goes well, else it is removed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TersorError(f"{path}: {error.strerror}; nothing was written") from error
    finally:
        partial.unlink(missing_ok=True)


def check_target(path: Path, *, force: bool, source: Path | None = None, in_place: bool = False) -> None:
    """Refuse to write over a file without `force`, or over the source without `in_place`.

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
        if in_place:
            return
        raise TersorError(f"{path} is the input itself; write to another file")
    if path.exists() and not force:
        raise TersorError(f"{path} exists; --force replaces it")


def write_decoded(path: Path, source: EncodedFile, progress: Progress | None = None) -> list[str]:
    """Decode a file's tensors into one of the kind that its suffix names, a piece at a time.

    Parameters
    ----------
    path : Path
        .npy for one tensor, .npz or .safetensors for any number.
    source : EncodedFile
        From `open_encoded`.
    progress : callable, optional
        Called with a tensor's name and how many more of its coordinates are written.

    Returns
    -------
    list of str
        Tensors that were bfloat16 and are written as float32, without loss, because NumPy's formats lack the type.

    Raises
    ------
    TersorError
        If the suffix is another, .npy is to hold more than one tensor, NumPy has no type for one, or a message is
        damaged.
    """
    say = progress or (lambda name, size: None)
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise TersorError(f"{path}: cannot write this kind of file; tersor decompresses to {', '.join(SUFFIXES)}")
    if kind == ".npy" and len(source) != 1:
        raise TersorError(f"{path}: a .npy file holds one tensor, here are {len(source)}; write .npz or .safetensors")
    with replacing(path) as partial:
        if kind == ".safetensors":
            _write_safetensors(partial, source, say)
            return []
        if kind == ".npy":
            ((name, entry),) = source.items()
            with open(partial, "xb") as file:
                return [name] if _write_array(file, name, entry, say) else []
        return _write_npz(partial, source, say)


def _write_npz(path: Path, source: EncodedFile, say: Progress) -> list[str]:
    widened = []
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, entry in source.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                if _write_array(file, name, entry, say):
                    widened.append(name)
    return widened


def _write_array(file: Any, name: str, entry: Entry, say: Progress) -> bool:
    """Write a tensor in the .npy format; returns whether it was widened from bfloat16 to float32."""
    widened = entry.code == "BF16"
    kind = "<f4" if widened else _KINDS.get(entry.code)
    if kind is None:
        raise TersorError(f"NumPy has no type for the {entry.code} of {name!r}; write a .safetensors file")
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": entry.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for raw in entry.raw():
        file.write(bfloat16_to_float32(np.frombuffer(raw, "<u2")).astype("<f4").data if widened else raw)
        say(name, len(raw) // entry.itemsize)
    return widened


def _write_safetensors(path: Path, source: EncodedFile, say: Progress) -> None:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    # Readers want aligned tensors: the wide types go first, as the safetensors library writes them. Messages are parsed
    # again below, so that what is held for each is its name.
    kinds = {name: (entry.code, entry.shape) for name, entry in source.items()}
    names = sorted(kinds, key=lambda name: -BITS[kinds[name][0]])
    for name in names:
        code, shape = kinds[name]
        end = offset + nbytes_of(code, shape)
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries).encode("utf-8")
    header += b" " * (-len(header) % 8)
    with open(path, "xb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            entry = source[name]
            for raw in entry.raw():
                file.write(raw)
                say(name, 8 * len(raw) // BITS[entry.code])
