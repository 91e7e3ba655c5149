"""`tersor compare`: one tensor, many codecs; prints sizes, errors, biases and speeds."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tersor.cli import show
from tersor.cli.compare_table import layout
from tersor.cli.source import Demo, File, Key, heading, open_source
from tersor.errors import TersorError
from tersor.evaluate.compare import Row, default_specs, sort_rows
from tersor.evaluate.compare import compare as measure
from tersor.evaluate.readers import TensorFile
from tersor.evaluate.writers import check_target, replacing
from tersor.registry import get_codec
from tersor.specs import split_list

_EACH = 3  # with more tensors than this, only the total is printed unless --each


def compare(
    file: File = None,
    codecs: Annotated[
        str | None,
        typer.Option("--codecs", "-c", metavar="SPECS", help="Separated by commas.", show_default="all codecs"),
    ] = None,
    all_codecs: Annotated[
        bool, typer.Option("--all", metavar="", help="Every codec that there is, beside those of --codecs.")
    ] = False,
    key: Key = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Encode from this many seeds; shows bias.", min=1)] = 5,
    rows: Annotated[
        bool, typer.Option("--rows", metavar="", help="Every row has a scale of its own (axis -1).")
    ] = False,
    axis: Annotated[int | None, typer.Option(hidden=True)] = None,
    demo: Demo = None,
    each: Annotated[bool, typer.Option("--each", metavar="", help="A table for every tensor, however many.")] = False,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON: every tensor, every number.")] = False,
    png: Annotated[Path | None, typer.Option(metavar="PATH", help="Draw error against bits into this file.")] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace the picture if it is there.")] = False,
) -> None:
    """Compare codecs on your own tensors: size, error, bias, speed.

    Everything is measured: encoded, turned into bytes, decoded, and compared with the original, from several seeds.
    """
    source = open_source(file, demo, key)
    axis = -1 if rows else axis
    wanted = ([] if codecs is None else split_list(codecs)) + (default_specs() if all_codecs or codecs is None else [])
    specs = list(dict.fromkeys(get_codec(spec).spec for spec in wanted))
    if not specs:
        raise TersorError("--codecs names no codec")
    if png is not None:
        if png.suffix.lower() != ".png":
            raise TersorError(f"{png}: the picture is a .png file")
        check_target(png, force=force)
        if find_spec("matplotlib") is None:
            raise TersorError("--png needs matplotlib: pip install 'tersor[plot]'")
    parts = run(source, specs, seeds, axis)
    total = sort_rows(
        [_with_law(sum((found[i] for found in parts.values()), Row(s, seeds))) for i, s in enumerate(specs)]
    )
    if json:
        show.print_json(
            {
                "source": str(source.path),
                "seeds": seeds,
                "axis": axis,
                "skipped": list(source.others),
                "tensors": [
                    {"name": n, "shape": source.tensors[n].shape, "dtype": source.tensors[n].dtype}
                    | {"codecs": [row.to_dict() for row in sort_rows(found)]}
                    for n, found in parts.items()
                ],
                "total": [row.to_dict() for row in total],
            }
        )
    else:
        _print(source, parts, total, seeds, each)
    if png is not None:
        _draw(png, source, total, quiet=json)


def run(source: TensorFile, specs: list[str], seeds: int, axis: int | None) -> dict[str, list[Row]]:
    """Measure every codec on every tensor, with a bar."""
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
    chosen = layout([total, *parts.values()], seeds, out.width)
    if len(parts) == 1 or each or len(parts) <= _EACH:
        for name, rows in parts.items():
            out.print(Text(heading(source, name), "bold"))
            out.print(chosen.table(sort_rows(rows)))
            out.print()
    if len(parts) > 1:
        size = sum(t.size for t in source.tensors.values())
        head = f"{source.path}: {show.plural(len(parts), 'tensor')} together, {size:,} coordinates"
        out.print(Text(head, "bold"))
        out.print(chosen.table(total))
        out.print()
    for row in total:
        if row.problem:
            out.print(Text(f"{row.codec} cannot encode this: {row.problem}", "yellow"))
    if source.others:
        out.print(Text(f"Left out, not floats: {source.others_text()}.", "yellow"))
    out.print(Text(chosen.legend(), "dim"))
    if len(parts) > _EACH and not each:
        out.print(Text("--each prints a table for every tensor.", "dim"))


def _draw(png: Path, source: TensorFile, total: list[Row], quiet: bool) -> None:
    from tersor.evaluate.compare_plot import draw

    size = sum(t.size for t in source.tensors.values())
    title = source.path if isinstance(source.path, str) else f"{source.path.name}: {size:,} coordinates"
    picture = draw(total, f"Error against size, {title}")
    with replacing(png) as partial:
        partial.write_bytes(picture)
    if not quiet:
        show.console().print(f"Picture: {png}")
