"""`tersor compress` and `decompress`: files of tensors, small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tersor.cli import show
from tersor.codec import Codec
from tersor.errors import TersorError
from tersor.evaluate.compress import KEEP_BELOW, compress_file
from tersor.evaluate.encoded_file import open_encoded
from tersor.evaluate.measure import Errors
from tersor.evaluate.readers import TensorFile, open_tensors
from tersor.evaluate.summary import Summary
from tersor.evaluate.writers import check_target, write_decoded
from tersor.registry import get_codec

Force = Annotated[bool, typer.Option("--force", metavar="", help="Replace the output if it is there.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


def compress(
    input: Annotated[Path, typer.Argument(metavar="IN", help="A .npy, .npz, .safetensors or .pt file.")],
    output: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="The .safetensors file to write.", show_default="IN.tersor.safetensors"),
    ] = None,
    codec: Annotated[str, typer.Option("--codec", "-c", metavar="SPEC", help="Spec of the codec.")] = "eden:4",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=SPEC", help="Another codec for matching names; repeatable, the first match wins."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Store matching tensors exactly; repeatable, wins over --policy."),
    ] = None,
    keep_below: Annotated[
        int, typer.Option("--keep-below", min=0, metavar="N", help="Store smaller tensors exactly, if none names them.")
    ] = KEEP_BELOW,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Same seed, same bytes.", show_default="from the system")
    ] = None,
    axis: Annotated[
        int | None, typer.Option(help="-1: every row has a scale of its own.", show_default="one vector")
    ] = None,
    skip_other: Annotated[
        bool,
        typer.Option("--skip-other", metavar="", help="Leave out what is not a float tensor, instead of keeping it."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            "--check/--no-check",
            metavar="",
            help="Read the new file back and measure the error, before it takes its place.",
        ),
    ] = True,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", metavar="", help="Go on where an interrupted run stopped.")
    ] = True,
    replace_input: Annotated[
        bool, typer.Option("--replace-input", metavar="", help="Let OUT be IN itself; needs --verify.")
    ] = False,
    json: Json = False,
    force: Force = False,
) -> None:
    """Compress a file of tensors, read it back, and say what was lost.

    The new file is a .safetensors container that any safetensors reader can list and copy.

    Memory stays small for files and tensors of any size. Interrupted, the same command goes on.
    """
    chosen, rules = get_codec(codec), _policy(policy or [])
    target = input.with_name(f"{input.stem}.tersor.safetensors") if output is None else output
    if target.suffix.lower() != ".safetensors":
        raise TersorError(f"{target}: compressed tensors go into a .safetensors file")
    if replace_input and not check:
        raise TersorError("--replace-input needs --verify: the input is gone afterwards")
    check_target(target, force=force, source=input, in_place=replace_input)
    source = open_tensors(input)
    total = sum(t.size for t in source.tensors.values()) * (2 if check else 1)
    try:
        with show.transfer("compressing", total, "checking" if check else "") as advance:
            summary = compress_file(
                source,
                target,
                chosen,
                policy=rules,
                keep=keep or [],
                keep_below=keep_below,
                seed=seed,
                axis=axis,
                skip_other=skip_other,
                check=check,
                resume=resume,
                progress=advance,
                note=lambda text: show.console(stderr=True).print(Text(text, "yellow")),
            )
    except KeyboardInterrupt:
        typer.echo(f"\ntersor compress: interrupted; {target} is untouched, the same command goes on", err=True)
        raise typer.Exit(130) from None
    if json:
        show.print_json(_summary_dict(summary, input, target))
    else:
        _print_summary(summary, input, target, source)


def _policy(rules: list[str]) -> dict[str, Codec]:
    found = {}
    for rule in rules:
        pattern, equals, spec = rule.partition("=")
        if not (pattern and equals and spec):
            raise TersorError(f"--policy {rule!r}: write PATTERN=SPEC, such as '*.bias=fp16'")
        found[pattern] = get_codec(spec)
    return found


def _print_summary(summary: Summary, source: Path, target: Path, found: TensorFile) -> None:
    out = show.console()
    out.print(Text(f"{source} -> {target}", "bold"))
    grid = show.table("", "", left=2)
    grid.show_header = False
    before, after = summary.before, summary.after
    change = f"{before / after:.2f} times smaller" if before >= after else "larger: the headers outweigh the tensors"
    grid.add_row("size", f"{show.size(before)} -> {show.size(after)}, {change} ({before:,} -> {after:,} bytes)")
    grid.add_row("tensors", f"{show.count(len(summary.tensors))}, {summary.size:,} coordinates")
    bits = "-" if summary.bits is None else f"{summary.bits:.3f}, everything counted"
    grid.add_row("bits a coordinate", bits)
    total, worst = summary.total, summary.worst
    if total is not None and worst is not None and worst.errors is not None:
        law = "" if summary.law is None else f"; the law says {show.number(summary.law)}"
        grid.add_row("vNMSE, overall", f"{show.number(total.vnmse)}{law}; largest error {show.number(total.largest)}")
        if len(summary.tensors) > 1 and worst.errors.vnmse:
            grid.add_row("vNMSE, worst", f"{show.number(worst.errors.vnmse)}: {worst.name} ({worst.spec})")
    else:
        grid.add_row("vNMSE", "not measured (--no-verify)")
    if summary.kept:
        grid.add_row("kept as they are", f"{show.plural(len(summary.kept), 'tensor')}: {found.others_text(3)}")
    speed = f", {before / summary.seconds / 1e6:,.0f} MB/s" if summary.seconds > 0 else ""
    checked = f", {summary.check_seconds:.2f} s to read back and check" if total is not None else ""
    grid.add_row("time", f"{summary.seconds:.2f} s to encode and write{speed}{checked}")
    grid.add_row("seed", str(summary.seed))
    out.print(grid)
    _print_codecs(out, summary)
    if summary.skipped:
        lines = f"Left out of {target}, not floats: {found.others_text()}. Keep {source} for them."
        out.print(Text(lines, "yellow"))
    if summary.whole:
        names = ", ".join(summary.whole[:3]) + (", ..." if len(summary.whole) > 3 else "")
        out.print(Text(f"Encoded whole in memory, as their codec cannot be cut at blocks: {names}.", "yellow"))


def _print_codecs(out: Console, summary: Summary) -> None:
    """Print a line a codec: what it took and gave, and its error beside its law."""
    made = show.table("codec", "tensors", "coordinates", "bits", "vNMSE", "law")
    for spec in sorted({t.spec for t in summary.tensors}):
        group = [t for t in summary.tensors if t.spec == spec]
        size, nbytes = sum(t.size for t in group), sum(t.after for t in group)
        measured = [t.errors for t in group if t.errors is not None]
        vnmse = sum(measured, Errors()).vnmse if measured else None
        bits = show.bits(nbytes, size)
        made.add_row(
            spec,
            f"{len(group):,}",
            f"{size:,}",
            "-" if bits is None else f"{bits:.3f}",
            show.number(vnmse),
            show.number(group[0].law),
        )
    out.print()
    out.print(made)


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
        "vnmse_by_law": summary.law,
        "seconds": summary.seconds,
        "seconds_to_check": summary.check_seconds,
        "seed": summary.seed,
        "resumed": summary.resumed,
        "kept": {name: {"dtype": t.dtype, "shape": t.shape} for name, t in summary.kept.items()},
        "skipped": summary.skipped,
        "encoded_whole": summary.whole,
        "tensors": [
            {"name": t.name, "spec": t.spec, "dtype": t.dtype, "shape": t.shape, "bytes_before": t.before}
            | {"bytes_after": t.after, "vnmse": None if t.errors is None else t.errors.vnmse, "vnmse_by_law": t.law}
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
    with open_encoded(input) as source:
        with show.transfer("decompressing", sum(entry.size for entry in source.values())) as advance:
            widened = write_decoded(output, source, advance)
        count, before = len(source), source.nbytes
    out = show.console()
    after = output.stat().st_size
    out.print(f"{input} -> {output}: {show.plural(count, 'tensor')}, {before:,} -> {after:,} bytes")
    if widened:
        names = ", ".join(widened[:4]) + (f" and {len(widened) - 4} more" if len(widened) > 4 else "")
        out.print(
            Text(f"Written as float32, since NumPy has no bfloat16: {names}. A .safetensors file keeps it.", "yellow")
        )
