"""`tersor compress`, `decompress` and `inspect`: files of tensors, small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tersor.cli import show
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import TersorError
from tersor.evaluate.compress import Summary, compress_file, decompress_file, open_encoded
from tersor.evaluate.readers import open_tensors
from tersor.evaluate.writers import check_target
from tersor.registry import get_codec

Force = Annotated[bool, typer.Option("--force", metavar="", help="Replace the output if it is there.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


def compress(
    input: Annotated[Path, typer.Argument(metavar="IN", help="A .npy, .npz, .safetensors or .pt file.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The .safetensors file to write.")],
    codec: Annotated[str, typer.Option("--codec", "-c", metavar="SPEC", help="Spec of the codec.")] = "eden:4",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=SPEC", help="Another codec for matching names; repeatable, the first match wins."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Same seed, same bytes.", show_default="from the system")
    ] = None,
    axis: Annotated[
        int | None, typer.Option(help="-1: every row has a scale of its own.", show_default="one vector")
    ] = None,
    skip_other: Annotated[
        bool,
        typer.Option(
            "--skip-other", metavar="", help="Leave out what is not a float tensor, instead of refusing the file."
        ),
    ] = False,
    check: Annotated[bool, typer.Option(metavar="", help="Read the new file back and measure the error.")] = True,
    json: Json = False,
    force: Force = False,
) -> None:
    """Compress a file of tensors, read it back, and say what was lost.

    The new file is a .safetensors container that any safetensors reader can list and copy.
    """
    chosen, rules = get_codec(codec), _policy(policy or [])
    if output.suffix.lower() != ".safetensors":
        raise TersorError(f"{output}: compressed tensors go into a .safetensors file")
    check_target(output, force=force, source=input)
    source = open_tensors(input)
    total = sum(t.size for t in source.tensors.values()) * (2 if check else 1)
    with show.progress("compressing", total) as begin:
        summary = compress_file(
            source,
            output,
            chosen,
            policy=rules,
            seed=seed,
            axis=axis,
            skip_other=skip_other,
            check=check,
            progress=begin,
        )
    if json:
        show.print_json(_summary_dict(summary, input, output))
    else:
        _print_summary(summary, input, output, source.others_text())


def _policy(rules: list[str]) -> dict[str, Codec]:
    found = {}
    for rule in rules:
        pattern, equals, spec = rule.partition("=")
        if not (pattern and equals and spec):
            raise TersorError(f"--policy {rule!r}: write PATTERN=SPEC, such as '*.bias=fp16'")
        found[pattern] = get_codec(spec)
    return found


def _print_summary(summary: Summary, source: Path, target: Path, others: str) -> None:
    out = show.console()
    files = f"{source} -> {target}"
    out.print(Text(files, "bold"))
    grid = show.table("", "", left=2)
    grid.show_header = False
    grid.add_row("tensors", f"{show.count(len(summary.tensors))}, {summary.size:,} coordinates")
    before, after = summary.before, summary.after
    change = f"{before / after:.2f} times smaller" if before >= after else "larger: the headers outweigh the tensors"
    grid.add_row("bytes", f"{before:,} -> {after:,} ({change})")
    grid.add_row("bits a coordinate", "-" if summary.bits is None else f"{summary.bits:.3f}, everything counted")
    total, worst = summary.total, summary.worst
    if total is not None and worst is not None and worst.errors is not None:
        grid.add_row("vNMSE, overall", f"{show.number(total.vnmse)}, largest error {show.number(total.largest)}")
        if len(summary.tensors) > 1:
            grid.add_row("vNMSE, worst", f"{show.number(worst.errors.vnmse)}: {worst.name} ({worst.spec})")
    else:
        grid.add_row("vNMSE", "not measured (--no-check)")
    specs = sorted({t.spec for t in summary.tensors})
    grid.add_row(
        "codecs", ", ".join(f"{s} ({show.plural(sum(t.spec == s for t in summary.tensors), 'tensor')})" for s in specs)
    )
    grid.add_row("seconds", f"{summary.seconds:.2f} to encode and write")
    out.print(grid)
    if summary.skipped:
        lines = f"Left out of {target}, not floats: {others}. Keep {source} for them."
        out.print(Text(lines, "yellow"))


def _summary_dict(summary: Summary, source: Path, target: Path) -> dict[str, Any]:
    total = summary.total
    return {
        "input": str(source),
        "output": str(target),
        "coordinates": summary.size,
        "bytes_before": summary.before,
        "bytes_after": summary.after,
        "bits_per_coordinate": summary.bits,
        "vnmse": None if total is None else total.vnmse,
        "max_abs_error": None if total is None else total.largest,
        "seconds": summary.seconds,
        "skipped": summary.skipped,
        "tensors": [
            {"name": t.name, "spec": t.spec, "dtype": t.dtype, "shape": t.shape, "bytes_before": t.before}
            | {"bytes_after": t.after, "vnmse": None if t.errors is None else t.errors.vnmse}
            for t in summary.tensors
        ],
    }


def decompress(
    input: Annotated[Path, typer.Argument(metavar="IN", help="A file that tersor wrote.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The .npy, .npz or .safetensors file to write.")],
    force: Force = False,
) -> None:
    """Decompress a file: the tensors, with their names, shapes and dtypes."""
    check_target(output, force=force, source=input)
    source = open_encoded(input)
    with show.progress("decompressing", sum(enc.size for enc in source.values())) as begin:
        widened = decompress_file(source, output, begin)
    out = show.console()
    size = output.stat().st_size
    out.print(f"{input} -> {output}: {show.plural(len(source), 'tensor')}, {source.nbytes:,} -> {size:,} bytes")
    if widened:
        names = ", ".join(widened[:4]) + (f" and {len(widened) - 4} more" if len(widened) > 4 else "")
        out.print(
            Text(f"Written as float32, since NumPy has no bfloat16: {names}. A .safetensors file keeps it.", "yellow")
        )


def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that tersor wrote: container, bundle or message.")
    ],
    long: Annotated[
        bool, typer.Option("--long", "-l", metavar="", help="Keys, planes and the rest of every header.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what is in a compressed file, without decoding it."""
    source = open_encoded(file)
    out = show.console()
    wide = long or len(source) == 1
    listed, size = [], 0
    for name, enc in source.items():  # one message in memory at a time
        size += enc.size
        if json:
            listed.append({"name": name, **_header(enc)})
        elif wide:
            _print_header(out, name, enc)
        else:
            listed.append(_cells(name, enc))
    bits = _bits(source.nbytes, size)
    if json:
        totals = {"coordinates": size, "bytes": source.nbytes, "bits_per_coordinate": bits}
        show.print_json({"file": str(file), "kind": source.kind, **totals, "tensors": listed})
        return
    if not wide:
        _print_table(out, listed)
    text = f"{file}: {source.kind}, {show.plural(len(source), 'tensor')}, {size:,} coordinates, {source.nbytes:,} bytes"
    out.print(Text(text + ("" if bits is None else f", {bits:.3f} bits a coordinate"), "bold"))


def _bits(nbytes: int, size: int) -> float | None:
    return 8 * nbytes / size if size else None


def _header(enc: Encoded) -> dict[str, Any]:
    return {
        "spec": enc.spec,
        "shape": enc.shape,
        "dtype": enc.dtype,
        "axis": enc.axis,
        "bytes": enc.nbytes,
        "bits_per_coordinate": _bits(enc.nbytes, enc.size),
        "key": f"{enc.key:016x}",
        "start": enc.start,
        "count": enc.count if isinstance(enc.count, int) else enc.count.tolist(),
        "units": enc.units.count,
        "units_received": None if enc.received is None else int(enc.received.sum()),
        "digest": f"{enc.digest:08x}" if enc.digest else None,
        "expected_error": enc.codec.expected_error(),
        "planes": {name: {"bytes": len(p.data), "bits": p.bits, "layout": p.layout} for name, p in enc.planes.items()},
    }


def _cells(name: str, enc: Encoded) -> dict[str, str]:
    bits = _bits(enc.nbytes, enc.size)
    return {
        "tensor": name,
        "spec": enc.spec,
        "shape": show.shape(enc.shape),
        "dtype": enc.dtype,
        "key": f"{enc.key:016x}",
        "planes": " ".join(f"{plane} {len(p.data):,}" for plane, p in enc.planes.items()),
        "bytes": f"{enc.nbytes:,}",
        "bits": "-" if bits is None else f"{bits:.3f}",
    }


def _print_table(out: Console, listed: list[dict[str, str]]) -> None:
    """Print a line a tensor; keys and planes have room in a wide terminal only."""
    wide = out.width >= 140
    columns = [c for c in ("tensor", "spec", "shape", "dtype", "key", "planes") if wide or c not in ("key", "planes")]
    made = show.table(*columns, "bytes", "bits", left=len(columns))
    for cells in listed:
        made.add_row(*(cells[c] for c in (*columns, "bytes", "bits")))
    out.print(made)
    if not wide:
        out.print(Text("--long shows keys and planes.", "dim"))
    out.print()


def _print_header(out: Console, name: str, enc: Encoded) -> None:
    bits = _bits(enc.nbytes, enc.size)
    out.print(Text(f"{name}: {enc.spec}", "bold"))
    grid = show.table("", "", left=2)
    grid.show_header = False
    grid.add_row("  array", f"{enc.dtype}, {show.shape(enc.shape)}")
    grid.add_row("  bytes", f"{enc.nbytes:,}" + ("" if bits is None else f", {bits:.3f} bits a coordinate"))
    units = show.plural(enc.units.count, "row" if enc.axis is not None else "block") + f" of {enc.units.length:,}"
    if enc.received is not None:
        units += f", {int(enc.received.sum()):,} arrived"
    grid.add_row("  units", units)
    for plane, p in enc.planes.items():
        layout = "" if p.layout == "lsb" else f", {p.layout}"
        grid.add_row(f"  plane {plane}", f"{len(p.data):,} bytes, {p.bits} bits an element{layout}")
    grid.add_row("  key", f"{enc.key:016x}")
    if enc.start:
        grid.add_row("  starts at", f"{enc.start:,}")
    if not isinstance(enc.count, int):
        grid.add_row("  sum of", f"{enc.count.min()} to {enc.count.max()} messages, by unit")
    elif enc.count != 1:
        grid.add_row("  sum of", f"{enc.count} messages")
    if enc.digest:
        grid.add_row("  shared", f"statistics with digest {enc.digest:08x}")
    law = enc.codec.expected_error()
    grid.add_row("  vNMSE", "depends on the array" if law is None else f"{show.number(law)}, by the codec's law")
    out.print(grid)
    out.print()
