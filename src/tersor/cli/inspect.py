"""`tersor inspect`: what is in a file that tersor wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tersor.cli import show
from tersor.cli.compare_table import broken
from tersor.encoded import Encoded
from tersor.evaluate.encoded_file import EncodedFile, Entry, open_encoded
from tersor.pieces import StoredMessage

_SPEC = 26  # columns for a codec, beyond which its fields are broken into lines
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


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
    with open_encoded(file) as source:
        _inspect(file, source, long, json)


def _inspect(path: Path, source: EncodedFile, long: bool, json: bool) -> None:
    out = show.console()
    wide = long or len(source) == 1
    listed: list[Any] = []
    size = kept = 0
    for name, entry in source.items():  # one header in memory at a time
        if entry.message is None:
            kept += entry.nbytes
        else:
            size += entry.size
        if json:
            listed.append({"name": name, **_header(entry)})
        elif wide:
            _print_header(out, name, entry)
        else:
            listed.append(_cells(name, entry))
    bits = show.bits(source.nbytes - kept, size)
    if json:
        totals = {"coordinates": size, "bytes": source.nbytes, "bits_per_coordinate": bits}
        show.print_json({"file": str(path), "kind": source.kind, **totals, "tensors": listed})
        return
    if not wide:
        _print_table(out, listed)
    text = f"{path}: {source.kind}, {show.plural(len(source), 'tensor')}, {size:,} coordinates, {source.nbytes:,} bytes"
    out.print(Text(text + ("" if bits is None else f", {bits:.3f} bits a coordinate"), "bold"))


def _planes(message: Encoded | StoredMessage) -> dict[str, dict[str, Any]]:
    """Return what the planes of a message are, without reading them."""
    if isinstance(message, Encoded):
        return {n: {"bytes": len(p.data), "bits": p.bits, "layout": p.layout} for n, p in message.planes.items()}
    head = message.header
    layout = head.codec.layout(message.cut.units, head.dtype, head.fields)
    return {n: {"bytes": p.nbytes, "bits": p.bits, "layout": p.layout} for n, p in layout.items()}


def _read(message: Encoded | StoredMessage) -> Encoded:
    """Return a message that fits in memory by itself: one that is added up, or has lost units."""
    return message if isinstance(message, Encoded) else next(iter(message.pieces()))


def _header(entry: Entry) -> dict[str, Any]:
    if entry.message is None:
        return {"spec": None, "shape": entry.shape, "dtype": entry.code, "bytes": entry.nbytes, "kept": True}
    message = entry.message
    head: Any
    if isinstance(message, StoredMessage) and not (message.header.counts or message.header.received):
        head, count, received, codec = message.header, message.header.count, None, message.header.codec
    else:
        head = _read(message)
        count = head.count if isinstance(head.count, int) else head.count.tolist()
        received, codec = None if head.received is None else int(head.received.sum()), head.codec
    return {
        "spec": codec.spec,
        "shape": head.shape,
        "dtype": head.dtype,
        "axis": head.axis,
        "bytes": entry.nbytes,
        "bits_per_coordinate": show.bits(entry.nbytes, entry.size),
        "key": f"{head.key:016x}",
        "start": head.start,
        "count": count,
        "units": codec.units(head.shape, head.axis).count,
        "units_received": received,
        "digest": f"{head.digest:08x}" if head.digest else None,
        "expected_error": codec.expected_error(),
        "planes": _planes(message),
    }


def _cells(name: str, entry: Entry) -> dict[str, str]:
    found = _header(entry)
    bits = found.get("bits_per_coordinate")
    return {
        "tensor": name,
        "spec": broken(found["spec"], _SPEC) if found["spec"] else "(as it was)",
        "shape": show.shape(entry.shape),
        "dtype": found["dtype"],
        "key": found.get("key", ""),
        "planes": " ".join(f"{plane} {p['bytes']:,}" for plane, p in found.get("planes", {}).items()),
        "bytes": f"{entry.nbytes:,}",
        "bits": "-" if bits is None else f"{bits:.3f}",
        "law": show.number(found.get("expected_error")),
    }


def _print_table(out: Console, listed: list[dict[str, str]]) -> None:
    """Print a line a tensor; keys and planes have room in a wide terminal only."""
    wide = out.width >= 140
    columns = [c for c in ("tensor", "spec", "shape", "dtype", "key", "planes") if wide or c not in ("key", "planes")]
    made = show.table(*columns, "bytes", "bits", "law", left=len(columns))
    for cells in listed:
        made.add_row(*(cells[c] for c in (*columns, "bytes", "bits", "law")))
    out.print(made)
    text = "law: vNMSE by the codec's law, - where it depends on the tensor."
    out.print(Text(text if wide else f"{text} --long shows keys and planes.", "dim"))
    out.print()


def _print_header(out: Console, name: str, entry: Entry) -> None:
    found = _header(entry)
    out.print(Text(f"{name}: {found['spec'] or 'kept as it was'}", "bold"))
    grid = show.table("", "", left=2)
    grid.show_header = False
    grid.add_row("  array", f"{found['dtype']}, {show.shape(entry.shape)}")
    bits = found.get("bits_per_coordinate")
    grid.add_row("  bytes", f"{entry.nbytes:,}" + ("" if bits is None else f", {bits:.3f} bits a coordinate"))
    if entry.message is not None:
        _add_header(grid, found, entry.message)
    out.print(grid)
    out.print()


def _elements(plane: dict[str, Any]) -> str:
    """What a plane is made of; bytes need no word."""
    if plane["layout"] != "lsb":
        return "" if plane["layout"] == "|u1" else f", {np.dtype(plane['layout']).name}"
    return "" if plane["bits"] == 8 else f", {show.plural(plane['bits'], 'bit')} an element"


def _add_header(grid: Table, found: dict[str, Any], message: Encoded | StoredMessage) -> None:
    units_of = message.units if isinstance(message, Encoded) else message.cut.units
    length = units_of.last if units_of.count == 1 else units_of.length
    units = show.plural(units_of.count, "block" if found["axis"] is None else "row") + f" of {length:,}"
    if found["units_received"] is not None:
        units += f", {found['units_received']:,} arrived"
    grid.add_row("  units", units)
    for plane, p in found["planes"].items():
        grid.add_row(f"  plane {plane}", f"{show.plural(p['bytes'], 'byte')}{_elements(p)}")
    grid.add_row("  key", found["key"])
    if found["start"]:
        grid.add_row("  starts at", f"{found['start']:,}")
    count = found["count"]
    if not isinstance(count, int):
        grid.add_row("  sum of", f"{min(count)} to {max(count)} messages, by unit")
    elif count != 1:
        grid.add_row("  sum of", f"{count} messages")
    if found["digest"]:
        grid.add_row("  shared", f"statistics with digest {found['digest']}")
    law = found["expected_error"]
    grid.add_row("  vNMSE", "depends on the array" if law is None else f"{show.number(law)}, by the codec's law")
