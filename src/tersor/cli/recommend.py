"""`tersor recommend`: which codec for your tensor, your budget and your use, and why."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from tersor.cli import show
from tersor.cli.source import Demo, File, Key, open_source
from tersor.errors import TersorError
from tersor.evaluate.bed import parse_rate
from tersor.evaluate.demo import parse_size
from tersor.evaluate.recommend import USES, Recommendation
from tersor.evaluate.recommend import recommend as choose
from tersor.specs import split_list

_SHOWN = 8  # excluded codecs are listed one by one up to this many a reason


def recommend(
    file: File = None,
    budget: Annotated[
        str, typer.Option("--budget", "-b", metavar="BITS", help="Bits a coordinate, everything counted: 2bit.")
    ] = "4.1bit",
    use: Annotated[
        str,
        typer.Option(
            "--use", "-u", metavar="USE", help="mean: averaged over senders; store: used once; search: inner products."
        ),
    ] = "mean",
    links: Annotated[
        str | None, typer.Option(metavar="RATES", help="Say whether it pays on links of these rates: 50mbit,1gbit.")
    ] = None,
    senders: Annotated[int, typer.Option(metavar="N", help="How many are averaged.", min=1)] = 10,
    codecs: Annotated[
        str | None, typer.Option("--codecs", "-c", metavar="SPECS", help="Choose among these only.", show_default="all")
    ] = None,
    key: Key = None,
    sample: Annotated[
        str, typer.Option(metavar="N", help="Measure on about as many coordinates of larger tensors.")
    ] = "2^20",
    demo: Demo = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    """Recommend a codec for your tensors: what every codec claims, and what it does to this very file, decide."""
    if use not in USES:
        raise TersorError(f"--use is one of {', '.join(USES)}, got {use!r}")
    bits = _bits(budget)
    rates = [rate for text in (links or "").split(",") if text and (rate := parse_rate(text.strip())) is not None]
    source = open_source(file, demo, key)
    with show.progress("measuring", 0) as begin:
        found = choose(
            {name: source[name] for name in source},
            bits,
            use,
            senders=senders,
            links=rates,
            specs=None if codecs is None else split_list(codecs),
            limit=parse_size(sample),
            progress=lambda spec: begin(spec, 0),
        )
    size = sum(t.size for t in source.tensors.values())
    if json:
        show.print_json({"source": str(source.path), "size": size} | found.to_dict())
    else:
        _print(found, str(source.path), size)
    if found.chosen is None:
        raise TersorError(f"no codec fits {bits:g} bits for {use}; the reasons: --json lists them all")


def _bits(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:bits?|b)?\s*", text)
    value = float(match[1]) if match else 0.0
    if value <= 0:
        raise TersorError(f"cannot read the budget {text!r}: write 2bit or 2.5")
    return value


def _print(found: Recommendation, path: str, size: int) -> None:
    out = show.console()
    part = "" if found.measured_on >= size else f", measured on {found.measured_on:,} of them"
    purpose = {"mean": "a mean of many", "store": "a store", "search": "a search"}[found.use]
    out.print(Text(f"{path}: {show.plural(size, 'coordinate')}{part}. For {purpose} at {found.budget:g} bits:"))
    if found.chosen is not None:
        out.print(Text(f"\n  {found.chosen.spec}\n", "bold green"))
        for reason in found.reasons:
            out.print(Padding(Text(f"- {reason}"), (0, 0, 0, 2)))
    if found.runners_up:
        out.print()
        head = [
            "",
            "bits",
            "error",
            "of a mean" if found.use == "mean" else "",
            "recall" if found.use == "search" else "",
        ]
        made = show.table(*[h for i, h in enumerate(head) if h or not i], "enc GB/s", "dec GB/s")
        for c in filter(None, [found.chosen, *found.runners_up]):
            cells = [c.spec, f"{c.bits:.3f}", show.number(c.row.vnmse)]
            cells += [show.number(c.score)] if found.use == "mean" else []
            if found.use == "search":
                cells.append("-" if c.recall is None else f"{100 * c.recall:.1f} %")
            speeds = [c.row.speed(c.row.encode_s), c.row.speed(c.row.decode_s)]
            made.add_row(*cells, *[show.number(s) for s in speeds], style="bold" if c is found.chosen else "")
        out.print(made)
    if found.notes:
        out.print(Text("\n" + "\n".join(found.notes), "yellow"))
    if found.excluded:
        out.print(Text("\nNot considered:", "bold"))
        for why, specs in _grouped(found.excluded).items():
            more = f" and {len(specs) - _SHOWN} more" if len(specs) > _SHOWN else ""
            out.print(Padding(Text(f"{why}: {', '.join(specs[:_SHOWN])}{more}", "dim"), (0, 0, 0, 2)))


def _grouped(excluded: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Specs by the reason in front of its numbers, which follow the spec."""
    groups: dict[str, list[str]] = {}
    for spec, why in excluded:
        reason, colon, detail = why.partition(": ")
        numbers = re.search(r"[\d.]+ (?:bits|%)", detail)
        if reason == "cannot encode this" or not colon:
            groups.setdefault(why, []).append(spec)
        elif why.startswith("an error of"):
            groups.setdefault("no better than sending zeros", []).append(f"{spec} ({reason.removeprefix('an ')})")
        else:
            named = reason if numbers else why
            groups.setdefault(named, []).append(f"{spec} ({numbers[0]})" if numbers else spec)
    return groups
