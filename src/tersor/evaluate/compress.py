"""A file of tensors compressed, checked by reading it back, and decompressed: what `tersor compress` calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tersor.bundle import MAGIC as BUNDLE
from tersor.bundle import EncodedDict
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import NonFiniteError, TersorError
from tersor.evaluate.measure import Errors, errors
from tersor.evaluate.readers import TensorFile
from tersor.evaluate.writers import write_decoded
from tersor.files import open_file, save
from tersor.message import MAGIC as MESSAGE
from tersor.message import from_bytes

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Packed:
    """What became of one tensor."""

    name: str
    spec: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    before: int
    after: int
    errors: Errors | None


@dataclass
class Summary:
    """What became of a file.

    Attributes
    ----------
    tensors : list of Packed
        One a tensor.
    before, after : int
        Bytes of the tensors in their own dtypes, and of the new file with everything in it.
    skipped : list of str
        What tersor could not encode and left out.
    seconds : float
        Of encoding and writing.
    """

    tensors: list[Packed] = field(default_factory=list)
    before: int = 0
    after: int = 0
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def size(self) -> int:
        """Coordinates in all."""
        return sum(t.size for t in self.tensors)

    @property
    def bits(self) -> float | None:
        """Bits a coordinate of the whole file; None if it has no coordinates."""
        return 8 * self.after / self.size if self.size else None

    @property
    def total(self) -> Errors | None:
        """Error over all tensors; None if it was not measured."""
        measured = [t.errors for t in self.tensors if t.errors is not None]
        return sum(measured, Errors()) if measured else None

    @property
    def worst(self) -> Packed | None:
        """The tensor with the largest vNMSE."""
        measured = [t for t in self.tensors if t.errors is not None]
        return max(measured, key=lambda t: t.errors.vnmse if t.errors else 0.0, default=None)


class _Watched(Mapping[str, Any]):
    """Tensors that `save` asks for one by one; remembers which one it is at."""

    def __init__(self, source: TensorFile, progress: Progress) -> None:
        self._source, self._progress, self.current = source, progress, ""

    def __getitem__(self, name: str) -> Any:
        self.current = name
        self._progress(name, self._source.tensors[name].size)
        return self._source[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)


def compress_file(
    source: TensorFile,
    out: Path,
    codec: Codec,
    *,
    policy: Mapping[str, Codec] | None = None,
    seed: int | None = None,
    axis: int | None = None,
    skip_other: bool = False,
    check: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Encode a file's float tensors into a .safetensors file of `tersor.save`, then read it back and measure.

    Parameters
    ----------
    source : TensorFile
        From `open_tensors`.
    out : Path
        Replaced if it exists.
    codec, policy, seed, axis
        As for `tersor.save`.
    skip_other : bool, default False
        Leave out what is not a float tensor, instead of refusing the file.
    check : bool, default True
        Decode every tensor from the new file and measure its error.
    progress : callable, optional
        Called with a tensor's name and coordinates when it is begun; once for encoding and once for checking.

    Raises
    ------
    TersorError
        If the file holds other than float tensors, or a tensor cannot be encoded; it is named.
    """
    if not source:
        only = f", only {source.others_text()}" if source.others else ""
        raise TersorError(f"{source.path} holds no float tensor{only}")
    if source.others and not skip_other:
        raise TersorError(
            f"{source.path} holds what tersor does not encode: {source.others_text()}; "
            "--skip-other leaves them out of the new file"
        )
    say = progress or (lambda name, size: None)
    watched = _Watched(source, say)
    begun = time.perf_counter()
    try:
        after = save(out, watched, codec, policy=policy, seed=seed, axis=axis)
    except NonFiniteError as error:
        raise TersorError(f"the tensor {watched.current!r}: {str(error).partition(';')[0]}; clean it first") from error
    except (TersorError, TypeError, ValueError) as error:
        raise TersorError(f"the tensor {watched.current!r}: {error}") from error
    summary = Summary(after=after, skipped=list(source.others), seconds=time.perf_counter() - begun)
    with open_file(out) as packed:
        for name, tensor in source.tensors.items():
            if check:
                say(name, tensor.size)
            enc = packed[name]
            measured = errors(source[name], enc.codec.decode(enc)) if check else None
            summary.tensors.append(
                Packed(name, enc.spec, enc.dtype, enc.shape, enc.size, tensor.nbytes, enc.nbytes, measured)
            )
            summary.before += tensor.nbytes
    return summary


class EncodedFile(Mapping[str, Encoded]):
    """The messages of a file: of a container, a bundle or a single message.

    Attributes
    ----------
    kind : str
        What the file is, in words.
    nbytes : int
        Its length.
    """

    def __init__(self, path: Path, kind: str, messages: Mapping[str, Encoded]) -> None:
        self.path, self.kind, self.nbytes = path, kind, path.stat().st_size
        self._messages = messages

    def __getitem__(self, name: str) -> Encoded:
        return self._messages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)


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
        raise TersorError(text if str(path) in text else f"{path}: {text}") from error


def decompress_file(source: EncodedFile, out: Path, progress: Progress | None = None) -> list[str]:
    """Decode a file's tensors into a .npy, .npz or .safetensors file; returns the names that became wider.

    Raises
    ------
    TersorError
        If `out` cannot hold them, or a message is damaged.
    """
    return write_decoded(out, source, progress)
