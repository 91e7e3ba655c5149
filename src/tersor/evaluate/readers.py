"""Named tensors in .npy, .npz, .safetensors and .pt files, read one at a time; nothing in a file is executed."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import FLOAT_DTYPES
from tersor.errors import TersorError

if TYPE_CHECKING:
    from types import ModuleType

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_MAX_HEADER = 100_000_000
_SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_DTYPE_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Tensor:
    """A tensor that a file holds, before it is read.

    Attributes
    ----------
    dtype : str
        Its name, such as "float32"; for what is no tensor at all, what it is.
    shape : tuple of int
        Its shape.
    load : callable
        Reads it.
    """

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], Any]

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a float tensor in its own dtype."""
        return self.size * _DTYPE_SIZES[self.dtype]

    def describe(self) -> str:
        """Dtype and shape in a few characters."""
        return self.dtype + ("" if self.dtype.startswith("Python ") else str(list(self.shape)))


class TensorFile(Mapping[str, Any]):
    """The float tensors of a file, read when they are asked for.

    Attributes
    ----------
    path : Path, or str
        The file; the name of tensors that no file holds.
    tensors : dict of str to Tensor
        What tersor can encode.
    others : dict of str to Tensor
        What it cannot: integers, booleans, 8-bit floats, values that are no tensors.
    """

    def __init__(self, path: Path | str, found: Mapping[str, Tensor]) -> None:
        self.path = path
        self.tensors = {name: t for name, t in found.items() if t.dtype in FLOAT_DTYPES}
        self.others = {name: t for name, t in found.items() if t.dtype not in FLOAT_DTYPES}

    def __getitem__(self, name: str) -> Any:
        tensor = self.tensors[name]
        with _parsing(f"{self.path}: cannot read the tensor {name!r}"):
            return tensor.load()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def others_text(self, limit: int = 4) -> str:
        """Name what tersor cannot encode, the first `limit` of them."""
        named = [f"{name} ({t.describe()})" for name, t in self.others.items()]
        more = f" and {len(named) - limit} more" if len(named) > limit else ""
        return ", ".join(named[:limit]) + more


def open_tensors(path: str | os.PathLike[str]) -> TensorFile:
    """Open a file of tensors; its kind follows from its suffix.

    Parameters
    ----------
    path : path
        A .npy, .npz, .safetensors or .pt file; .pt is loaded with ``weights_only``, NumPy's without pickle.

    Raises
    ------
    TersorError
        If the file is of another kind or damaged, or needs a package that is not installed.
    OSError
        If it cannot be read.
    """
    target = Path(path)
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".pt": _pt, ".pth": _pt}
    reader = readers.get(target.suffix.lower())
    if reader is None:
        raise TersorError(f"{target}: cannot tell what this is; tersor reads {', '.join(SUFFIXES)}")
    with open(target, "rb"):  # a missing or unreadable file is an OSError, whatever the reader makes of it
        pass
    with _parsing(f"{target}: damaged, or not a {target.suffix} file"):
        return TensorFile(target, reader(target))


@contextmanager
def _parsing(problem: str) -> Iterator[None]:
    """Make one error of the dozen that the parsers of NumPy, zipfile, zlib, json and torch raise for damaged bytes."""
    try:
        yield
    except (TersorError, OSError, MemoryError):
        raise
    except Exception as error:
        raise TersorError(f"{problem}: {str(error).split(chr(10))[0][:200]}") from error


def _npy(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as file:
        dtype, shape = _npy_header(file)
    return {path.stem: Tensor(dtype, shape, lambda: np.load(path, mmap_mode="r", allow_pickle=False))}


def _npz(path: Path) -> dict[str, Tensor]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    dtype, shape = _npy_header(file)
                name = member.removesuffix(".npy")
                found[name] = Tensor(dtype, shape, lambda member=member: _load_member(path, member))  # type: ignore[misc]
    return found


def _load_member(path: Path, member: str) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _npy_header(file: Any) -> tuple[str, tuple[int, ...]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return str(dtype.name), tuple(shape)


def _safetensors(path: Path) -> dict[str, Tensor]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        raw = file.read(8)
        length = struct.unpack("<Q", raw)[0] if len(raw) == 8 else size
        if length > min(size - 8, _MAX_HEADER):
            raise ValueError("it is shorter than its header says")
        header = json.loads(file.read(length))
    if header.pop("__metadata__", {}).get("format") == "tersor":
        raise TersorError(f"{path} is compressed by tersor already; see `tersor inspect` and `tersor decompress`")
    found = {}
    for name, entry in header.items():
        dtype = _SAFETENSORS.get(entry["dtype"], str(entry["dtype"]))
        shape = tuple(int(n) for n in entry["shape"])
        begin, end = (int(v) for v in entry["data_offsets"])
        if not 0 <= begin <= end <= size - 8 - length or min(shape, default=0) < 0:
            raise ValueError(f"the tensor {name!r} lies outside the file")
        if dtype in _DTYPE_SIZES and math.prod(shape) * _DTYPE_SIZES[dtype] != end - begin:
            raise ValueError(f"the tensor {name!r} does not have the bytes of its shape")
        at = 8 + length + begin
        found[name] = Tensor(dtype, shape, lambda d=dtype, s=shape, at=at: _map(path, d, s, at))  # type: ignore[misc]
    if any(t.dtype == "bfloat16" for t in found.values()):
        _as_bfloat16(np.zeros(0, np.uint16))  # a missing package is known now, not after half of the work
    return found


def _map(path: Path, dtype: str, shape: tuple[int, ...], offset: int) -> Any:
    """Map a tensor's bytes; bfloat16 needs a package that has the type."""
    kind = np.dtype(np.uint16 if dtype == "bfloat16" else dtype).newbyteorder("<")
    size = math.prod(shape)
    data = np.memmap(path, kind, "r", offset, shape) if size else np.zeros(shape, kind)
    return _as_bfloat16(data) if dtype == "bfloat16" else data


def _as_bfloat16(bits: NDArray[Any]) -> Any:
    """NumPy has no bfloat16: give the bits the type of whichever package is there that has it."""
    if importlib.util.find_spec("ml_dtypes") is not None:
        return np.asarray(bits).view(importlib.import_module("ml_dtypes").bfloat16)
    torch = _torch("bfloat16 tensors")
    return torch.from_numpy(np.array(bits)).view(torch.bfloat16)


def _torch(what: str) -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise TersorError(f"{what} need PyTorch: pip install 'tersor[torch]'") from error
    return torch


def _pt(path: Path) -> dict[str, Tensor]:
    torch = _torch(".pt files")
    from pickle import UnpicklingError

    options = {"map_location": "cpu", "weights_only": True, "mmap": zipfile.is_zipfile(path)}
    try:
        loaded = torch.load(path, **options)
    except UnpicklingError as error:
        raise TersorError(
            f"{path} holds Python objects beside tensors, or is damaged; tersor loads tensors only (weights_only), so "
            "save the state_dict by itself"
        ) from error
    found: dict[str, Tensor] = {}
    _flatten(loaded, "", path.stem, found)
    return found


def _flatten(value: Any, prefix: str, stem: str, found: dict[str, Tensor]) -> None:
    """Name the leaves of nested dicts and lists by their path, with dots."""
    children: list[tuple[str, Any]] | None = None
    if isinstance(value, Mapping):
        children = [(str(key), child) for key, child in value.items()]
    elif isinstance(value, list | tuple):
        children = [(str(i), child) for i, child in enumerate(value)]
    if children is not None:
        for key, child in children:
            _flatten(child, f"{prefix}.{key}" if prefix else key, stem, found)
        return
    name = prefix or stem
    if name in found:
        raise ValueError(f"two tensors are named {name!r}")
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        dense = str(getattr(value, "layout", "torch.strided")) == "torch.strided"
        dtype = str(value.dtype).removeprefix("torch.") if dense else f"sparse {value.dtype}"
        found[name] = Tensor(dtype, tuple(int(n) for n in value.shape), lambda: value.detach())
    else:
        found[name] = Tensor(f"Python {type(value).__name__}", (), lambda: value)
