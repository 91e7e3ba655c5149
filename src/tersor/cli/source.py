"""Which tensors a command works on: a file, one tensor of it, or built-in values."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tersor.cli import show
from tersor.errors import TersorError
from tersor.evaluate.demo import demo as values
from tersor.evaluate.demo import parse_demo
from tersor.evaluate.readers import SUFFIXES, Tensor, TensorFile, open_tensors

File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE[:TENSOR]", help="A .npy, .npz, .safetensors or .pt file; of many tensors, all or one."
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option("--key", "-k", metavar="NAME", help="Only this tensor of the file; may be repeated."),
]
Demo = Annotated[
    str | None,
    typer.Option(
        "--demo", metavar="KIND", help="No file: built-in values, normal, lognormal or sparse; also as normal:2^20."
    ),
]


def open_source(file: str | None, demo: str | None, keys: list[str] | None) -> TensorFile:
    """Open what a command was given: exactly one of a file and a demo."""
    keys = list(keys or [])
    if (file is None) == (demo is None):
        raise TersorError("name one file, or --demo normal (lognormal, sparse)")
    if demo is not None:
        if keys:
            raise TersorError("--key chooses a tensor of a file")
        kind, size = parse_demo(demo)
        return TensorFile(f"{size:,} {kind} values", {kind: Tensor("float32", (size,), lambda: values(kind, size))})
    path, tensor = split_tensor(str(file))
    source = open_tensors(path)
    keys += [tensor] if tensor else []
    unknown = [k for k in keys if k not in source.tensors]
    if unknown:
        raise TersorError(f"{path} has no float tensor {unknown[0]!r}; it has {_names(source)}")
    if keys:
        return TensorFile(source.path, {k: source.tensors[k] for k in keys})
    if not source:
        raise TersorError(f"{path} holds no float tensor" + (f", only {source.others_text()}" if source.others else ""))
    return source


def split_tensor(text: str) -> tuple[str, str]:
    """Split FILE:TENSOR at the first colon after a suffix that tersor reads; an existing file keeps its colons.

    Examples
    --------
    >>> split_tensor("model.npz:layer:0"), split_tensor("model.npz")
    (('model.npz', 'layer:0'), ('model.npz', ''))
    """
    if not os.path.exists(text):
        for suffix in SUFFIXES:
            at = text.lower().find(f"{suffix}:")
            if at >= 0:
                return text[: at + len(suffix)], text[at + len(suffix) + 1 :]
    return text, ""


def heading(source: TensorFile, name: str) -> str:
    """Name a tensor, where it is, its dtype and shape."""
    tensor = source.tensors[name]
    if isinstance(source.path, str):
        return f"{source.path}, {tensor.dtype}"
    place = "" if name == source.path.stem else f", {name}"
    return f"{source.path}{place}: {tensor.dtype}, {show.shape(tensor.shape)}"


def _names(source: TensorFile, limit: int = 8) -> str:
    names = list(source)
    return (", ".join(names[:limit]) or "none") + (f" and {len(names) - limit} more" if len(names) > limit else "")
