"""Named tensors in .npy, .npz, .safetensors and .pt files, read one at a time; nothing in a file is executed."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import FLOAT_DTYPES, storage_dtype
from tersor.errors import FormatError, TersorError
from tersor.evaluate.streams import Bytes, exactly, from_file, slices
from tersor.files import read_header

if TYPE_CHECKING:
    from types import ModuleType

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    **{f"F{8 * n}": f"float{8 * n}" for n in (2, 4, 8)},
    **{f"I{8 * n}": f"int{8 * n}" for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": f"uint{8 * n}" for n in (1, 2, 4, 8)},
}
CODES = {dtype: code for code, dtype in _DTYPES.items()} | {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_DTYPE_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_END = 1 << 16


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
    stream : callable, optional
        Gives a context whose value, called with `n`, returns the next `n` bytes (little-endian, C order) in memory that
        does not grow with the tensor.
    code : str
        Its dtype in the .safetensors format; "" if that has none.
    """

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], Any]
    stream: Callable[[], AbstractContextManager[Bytes]] | None = None
    code: str = ""

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a float tensor in its own dtype."""
        return self.size * _DTYPE_SIZES[self.dtype]

    @contextmanager
    def values(self) -> Iterator[Callable[[int], NDArray[Any]]]:
        """Give a function that returns the next `n` coordinates of a float tensor, flat; bfloat16 as uint16."""
        kind = storage_dtype(self.dtype)
        with self.bytes() as read:
            yield lambda n: np.frombuffer(read(n * kind.itemsize), kind.newbyteorder("<")).astype(kind, copy=False)

    @contextmanager
    def bytes(self) -> Iterator[Bytes]:
        """Give a function that returns the next `n` bytes; a tensor without a stream is loaded."""
        if self.stream is not None:
            with self.stream() as read:
                yield read
        else:
            yield slices(self.load())

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

    def fingerprint(self) -> str:
        """Return a hash of the names, dtypes and shapes, of the file's size and time, and of its two ends."""
        stat = Path(self.path).stat()
        found = hashlib.sha256(repr((stat.st_size, stat.st_mtime_ns)).encode())
        for name, t in (self.tensors | self.others).items():
            found.update(repr((name, t.dtype, t.shape)).encode())
        with open(self.path, "rb") as file:
            found.update(file.read(_END))
            file.seek(max(stat.st_size - _END, 0))
            found.update(file.read(_END))
        return found.hexdigest()

    def __getitem__(self, name: str) -> Any:
        tensor = self.tensors[name]
        with _parsing(f"{self.path}: cannot read the tensor {name!r}"):
            return tensor.load()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def only(self, names: Collection[str]) -> TensorFile:
        """Return the same file with some of its entries."""
        return TensorFile(self.path, {name: t for name, t in (self.tensors | self.others).items() if name in names})

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
        raise FormatError(f"{problem}: {str(error).split(chr(10))[0][:200]}") from error


def _npy(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as file:
        dtype, shape, plain = _npy_header(file)
        at = file.tell()
    nbytes = math.prod(shape) * dtype.itemsize
    if path.stat().st_size < at + nbytes and not dtype.hasobject:
        raise ValueError("it is shorter than its header says")
    stream = from_file(path, at, nbytes) if plain else None
    load = lambda: np.load(path, mmap_mode="r", allow_pickle=False)  # noqa: E731 - one of a kind with the others
    return {path.stem: Tensor(str(dtype.name), shape, load, stream, CODES.get(dtype.name, ""))}


def _npz(path: Path) -> dict[str, Tensor]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    dtype, shape, plain = _npy_header(file)
                stream = _from_member(path, member) if plain else None
                load = partial(_load_member, path, member)
                found[member.removesuffix(".npy")] = Tensor(
                    str(dtype.name), shape, load, stream, CODES.get(dtype.name, "")
                )
    return found


def _load_member(path: Path, member: str) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _from_member(path: Path, member: str) -> Callable[[], AbstractContextManager[Bytes]]:
    """Stream the data of an array in a .npz file."""

    @contextmanager
    def stream() -> Iterator[Bytes]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            _npy_header(file)

            def read(n: int) -> bytearray:
                with _parsing(f"{path}: damaged in {member!r}"):
                    return exactly(file, n, path)

            yield read

    return stream


def _npy_header(file: Any) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return dtype, shape, and whether the data is little-endian and in C order."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError("its shape is negative")
    plain = not dtype.hasobject and dtype.newbyteorder("<") == dtype and not (fortran and len(shape) > 1)
    return dtype, tuple(shape), plain


def _safetensors(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as file:
        _, entries, metadata = read_header(file, str(path))
    if metadata.get("format") == "tersor":
        raise TersorError(f"{path} is compressed by tersor already; see `tersor inspect` and `tersor decompress`")
    found = {}
    for name, (code, shape, begin, end) in entries.items():
        dtype = _DTYPES.get(code, code)
        found[name] = Tensor(
            dtype, shape, partial(_map, path, dtype, shape, begin), from_file(path, begin, end - begin), code
        )
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
        shape = tuple(int(n) for n in value.shape)
        found[name] = Tensor(dtype, shape, lambda: value.detach(), code=CODES.get(dtype, ""))
    else:
        found[name] = Tensor(f"Python {type(value).__name__}", (), lambda: value)
