"""The bytes of a tensor in turn: from a file, or of an array in memory, little-endian and in C order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.errors import FormatError

Bytes = Callable[[int], Any]


def from_file(path: Path, at: int, nbytes: int) -> Callable[[], AbstractContextManager[Bytes]]:
    """Stream bytes of a file."""

    @contextmanager
    def stream() -> Iterator[Bytes]:
        with open(path, "rb", buffering=0) as file:
            file.seek(at)
            yield lambda n: exactly(file, n, path)

    return stream


def exactly(file: Any, n: int, path: Path) -> bytearray:
    """Read `n` bytes, in as many reads as it takes."""
    raw = bytearray(n)
    view = memoryview(raw)
    while view:
        got = file.readinto(view[: 1 << 30])
        if not got:
            raise FormatError(f"{path} ends within a tensor; it is truncated")
        view = view[got:]
    return raw


def slices(x: Any) -> Bytes:
    """Give the bytes of an array in memory, or mapped there, in turn."""
    raw = _raw(x)
    at = 0

    def read(n: int) -> NDArray[np.uint8]:
        nonlocal at
        at += n
        return raw[at - n : at]

    return read


def _raw(x: Any) -> NDArray[np.uint8]:
    """View an array's bytes, little-endian and in C order."""
    if hasattr(x, "untyped_storage"):
        import torch

        data: NDArray[Any] = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return data
    array = np.asarray(x)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
