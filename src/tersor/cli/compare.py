"""`tersor compare`: one tensor, many codecs; prints sizes, errors and speeds."""

from __future__ import annotations

import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from tersor.cli import show
from tersor.errors import TersorError
from tersor.evaluate.compare import Row, default_specs
from tersor.evaluate.compare import compare as measure
from tersor.evaluate.readers import Tensor, TensorFile, open_tensors
from tersor.evaluate.writers import check_target, replacing
from tersor.registry import get_codec
from tersor.specs import split_list

_EACH = 3  # with more tensors than this, only the total is printed unless --each
_WIDE = 100


def compare(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A .npy, .npz, .safetensors or .pt file.")] = None,
    codecs: Annotated[
        str | None,
        typer.Option("--codecs", "-c", metavar="SPECS", help="Separated by commas.", show_default="all codecs"),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="NAME", help="Only this tensor of the file; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Encode from this many seeds; shows bias.", min=1)] = 5,
    axis: Annotated[
        int | None, typer.Option(help="-1: every row has a scale of its own.", show_default="one vector")
    ] = None,
    normal: Annotated[
        str | None, typer.Option(metavar="N", help="No file: N normal values, such as 2^20 or 1e6.")
    ] = None,
    lognormal: Annotated[
        str | None, typer.Option(metavar="N", help="No file: N lognormal values with random signs, heavy-tailed.")
    ] = None,
    each: Annotated[bool, typer.Option("--each", metavar="", help="A table for every tensor, however many.")] = False,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON: every tensor, every number.")] = False,
    png: Annotated[Path | None, typer.Option(metavar="PATH", help="Draw error against bits into this file.")] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace the picture if it is there.")] = False,
) -> None:
    """Compare codecs on your own tensors: size, error, bias, speed.

    Everything is measured: encoded, turned into bytes, decoded, and compared with the original, from several seeds.
    """
    source = _source(file, normal, lognormal, key or [])
    specs = [get_codec(spec).spec for spec in (default_specs() if codecs is None else split_list(codecs))]
    if not specs:
        raise TersorError("--codecs names no codec")
    if png is not None:
        if png.suffix.lower() != ".png":
            raise TersorError(f"{png}: the picture is a .png file")
        check_target(png, force=force)
        if find_spec("matplotlib") is None:
            raise TersorError("--png needs matplotlib: pip install 'tersor[plot]'")
    parts = _run(source, specs, seeds, axis)
    total = [sum((rows[i] for rows in parts.values()), Row(spec, seeds)) for i, spec in enumerate(specs)]
    total = [_with_law(row) for row in total]
    if json:
        show.print_json(
            {
                "source": str(source.path),
                "seeds": seeds,
                "axis": axis,
                "skipped": list(source.others),
                "tensors": [
                    {"name": n, "shape": source.tensors[n].shape, "dtype": source.tensors[n].dtype}
                    | {"codecs": [row.to_dict() for row in rows]}
                    for n, rows in parts.items()
                ],
                "total": [row.to_dict() for row in total],
            }
        )
    else:
        _print(source, parts, total, seeds, each)
    if png is not None:
        _draw(png, source, total, quiet=json)


def _source(file: Path | None, normal: str | None, lognormal: str | None, keys: list[str]) -> TensorFile:
    given = [g for g in (file, normal, lognormal) if g is not None]
    if len(given) != 1:
        raise TersorError("name one file, or --normal N, or --lognormal N")
    if file is None:
        if keys:
            raise TersorError("--key chooses a tensor of a file")
        return _synthetic("normal" if lognormal is None else "lognormal", str(given[0]))
    source = open_tensors(file)
    unknown = [k for k in keys if k not in source.tensors]
    if unknown:
        raise TersorError(f"{file} has no float tensor {unknown[0]!r}; it has {_names(source)}")
    if keys:
        return TensorFile(source.path, {k: source.tensors[k] for k in keys})
    if not source:
        raise TersorError(f"{file} holds no float tensor" + (f", only {source.others_text()}" if source.others else ""))
    return source


def _names(source: TensorFile, limit: int = 8) -> str:
    names = list(source)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _synthetic(kind: str, text: str) -> TensorFile:
    size = _size(text)

    def load() -> Any:
        rng = np.random.default_rng(0)
        x = rng.standard_normal(size, np.float32)
        return x if kind == "normal" else np.exp(x) * rng.choice(np.array([-1, 1], np.float32), size)

    return TensorFile(Path(f"{size:,} {kind} values"), {kind: Tensor("float32", (size,), load)})


def _size(text: str) -> int:
    base, power, exponent = text.replace("**", "^").partition("^")
    try:
        size = float(base) ** int(exponent) if power else float(base.replace(",", "").replace("_", ""))
        whole = int(size)
    except (ValueError, OverflowError):
        whole = 0
    if not 1 <= whole <= 2**32 or whole != size:
        raise TersorError(f"{text!r} is not a number of values; write 65536, 1e6 or 2^20")
    return whole


def _run(source: TensorFile, specs: list[str], seeds: int, axis: int | None) -> dict[str, list[Row]]:
    parts = {}
    with show.progress("comparing", sum(t.size * len(specs) for t in source.tensors.values())) as begin:
        for name, tensor in source.tensors.items():
            rows_axis = axis if tensor.shape else None
            try:
                parts[name] = measure(
                    source[name],
                    specs,
                    seeds=seeds,
                    axis=rows_axis,
                    progress=lambda spec, name=name, size=tensor.size: begin(f"{name} {spec}", size),  # type: ignore[misc]
                )
            except (TersorError, ValueError) as error:
                raise TersorError(f"the tensor {name!r}: {error}") from error
    return parts


def _with_law(row: Row) -> Row:
    return Row(row.codec, row.seeds, expected=get_codec(row.codec).expected_error()) + row


def _print(source: TensorFile, parts: dict[str, list[Row]], total: list[Row], seeds: int, each: bool) -> None:
    out = show.console()
    if len(parts) == 1 or each or len(parts) <= _EACH:
        for name, rows in parts.items():
            tensor = source.tensors[name]
            out.print(Text(_heading(source, name, tensor), "bold"))
            out.print(_table(rows, seeds, out.width))
            out.print()
    if len(parts) > 1:
        size = sum(t.size for t in source.tensors.values())
        head = f"{source.path}: {show.plural(len(parts), 'tensor')} together, {size:,} coordinates"
        out.print(Text(head, "bold"))
        out.print(_table(total, seeds, out.width))
        out.print()
    for row in total:
        if row.problem:
            out.print(Text(f"{row.codec} cannot encode this: {row.problem}", "yellow"))
    if source.others:
        out.print(Text(f"Left out, not floats: {source.others_text()}.", "yellow"))
    out.print(Text(_legend(seeds, out.width >= _WIDE), "dim"))
    if len(parts) > _EACH and not each:
        out.print(Text("--each prints a table for every tensor.", "dim"))


def _heading(source: TensorFile, name: str, tensor: Tensor) -> str:
    if not source.path.suffix:
        return f"{source.path}, {tensor.dtype}"
    place = "" if name == source.path.stem else f", {name}"
    return f"{source.path}{place}: {tensor.dtype}, {show.shape(tensor.shape)}"


def _legend(seeds: int, wide: bool) -> str:
    lines = [
        "bits: a coordinate, from the bytes of the message, header included.",
        f"error: vNMSE, ||x_hat - x||^2 / ||x||^2, mean of {show.plural(seeds, 'seed')}; law: as predicted.",
        "max: largest error of a coordinate. GB/s: of float32 values, median of several.",
    ]
    if seeds > 1:
        lines.insert(2, "bias: share of the error that averaging over seeds leaves; 0 % if unbiased.")
    if seeds > 1 and wide:
        lines[2] += f" mean of {seeds}: error of the mean of all estimates."
    return "\n".join(lines)


def _table(rows: list[Row], seeds: int, width: int) -> Table:
    wide = width >= _WIDE
    means = [f"mean of {seeds}"] if seeds > 1 else []
    names = ["codec", "bits", "error", "law"]
    names += [*(means if wide else []), "bias", "max", "enc GB/s", "dec GB/s"]
    names += ["enc/copy", "dec/copy"] if wide else []
    made = show.table(*names)
    for row in rows:
        name = row.codec if wide else row.codec.replace(",", ",\n")
        if row.problem:
            made.add_row(name, "cannot", style="yellow")
            continue
        cells = [name, f"{row.bits:.3f}", show.number(row.vnmse), show.number(row.expected)]
        if wide and means:
            cells.append(show.number(row.vnmse_of_mean))
        # An estimate from few seeds may come out a little below 0.
        cells += ["-" if row.bias is None else f"{max(0.0, 100 * row.bias):.0f} %", show.number(row.largest)]
        cells += [_speed(row, row.encode_s), _speed(row, row.decode_s)]
        if wide:
            cells += [f"{row.copy_s / s:.2f}" if s else "-" for s in (row.encode_s, row.decode_s)]
        made.add_row(*cells)
    timed = [row for row in rows if row.copy_s]
    if timed:
        copy = _speed(timed[0], statistics.median(row.copy_s for row in timed))
        tail = [copy, copy, "1.00", "1.00"] if wide else [copy, copy]
        made.add_row("memcpy", "32.000", *[""] * (len(names) - len(tail) - 2), *tail, style="dim")
    return made


def _speed(row: Row, seconds: float) -> str:
    speed = row.speed(seconds)
    return "-" if speed is None else f"{speed:.3f}" if speed < 1 else f"{speed:.2f}"


def _draw(png: Path, source: TensorFile, total: list[Row], quiet: bool) -> None:
    from tersor.evaluate.compare_plot import draw

    size = sum(t.size for t in source.tensors.values())
    title = source.path.name if "values" in source.path.name else f"{source.path.name}: {size:,} coordinates"
    picture = draw(total, f"Error against size, {title}")
    with replacing(png) as partial:
        partial.write_bytes(picture)
    if not quiet:
        show.console().print(f"Picture: {png}")
