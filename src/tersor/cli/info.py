"""`tersor codecs` and `tersor doctor`: what there is, and what works here."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.text import Text

from tersor.cli import show
from tersor.codec import Claims, Codec
from tersor.evaluate.examples import examples
from tersor.registry import codecs as registered
from tersor.registry import get_codec

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]
_CLAIMS = {
    "unbiased": "unbiased",
    "additive": "messages add while encoded",
    "row_addressable": "rows move as bytes",
    "tolerates_loss": "lost units leave the rest",
    "shared_rotation": "senders may share a key",
    "rounds_to_nearest": "rounds to nearest",
}
_STYLES = {"ok": "green", "info": "", "note": "yellow", "broken": "bold red"}
_LABELS = {"ok": "ok", "info": "", "note": "note", "broken": "BROKEN"}


def codecs(
    json: Json = False,
) -> None:
    """List the codecs, their fields and what they guarantee."""
    found = registered()
    if json:
        show.print_json([_describe(name, cls) for name, cls in found.items()])
        return
    out = show.console()
    made = show.table("codec", "what it is, what it guarantees, its fields, its error", left=2)
    for name, cls in found.items():
        made.add_row(Text(f"{name}{_first(cls)}", "bold"), _about(name, cls))
        made.add_row("", "")
    out.print(made)
    out.print(Text("A spec is name:first,key=value, such as eden:4 or eden:4,scale=biased.", "dim"))
    out.print(Text("m_b: the Lloyd-Max error of N(0, 1) with b bits. tersor compare measures all of them.", "dim"))


def _about(name: str, cls: type[Codec]) -> Text:
    settings = _examples(name, cls)
    claims = settings[0][1].claims
    about = Text((cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", ""))
    about.append(f"\n{', '.join(_guaranteed(claims)) or 'guarantees nothing'}", "green")
    fields = [f for f in dataclasses.fields(cls) if f.init]
    if fields:
        about.append(f"\nfields: {', '.join(map(_field, fields))}", "dim")
    about.append(f"\n{_law(claims)}")
    known = [(spec.rpartition(":")[2], codec.expected_error()) for spec, codec in settings if codec.claims == claims]
    if len(known) > 1 and known[0][1] is not None:
        about.append("\n" + ", ".join(f"{bits}: {show.number(error)}" for bits, error in known))
    others: dict[Claims, list[tuple[str, float | None]]] = {}
    for spec, codec in settings:
        if codec.claims != claims:
            others.setdefault(codec.claims, []).append((spec, codec.expected_error()))
    for other, members in others.items():
        more = [text for text in _guaranteed(other) if text not in _guaranteed(claims)]
        less = [text for text in _guaranteed(claims) if text not in _guaranteed(other)]
        change = [*more, *([f"no longer: {', '.join(less)}"] if less else [])]
        about.append(f"\n{members[0][0]}: ", "bold")
        about.append("; ".join([*change, _law(other)]))
        if members[0][1] is not None:
            about.append(
                "\n" + ", ".join(f"{spec.rpartition(':')[2]}: {show.number(error)}" for spec, error in members)
            )
    return about


def _guaranteed(claims: Claims) -> list[str]:
    return [text for claim, text in _CLAIMS.items() if getattr(claims, claim)]


def _law(claims: Claims) -> str:
    """The error law; one of coordinates is no vNMSE."""
    law = claims.error_law
    if law.startswith("|x"):
        return law
    return f"{'squared error' if ' a coordinate' in law or ' a coefficient' in law else 'vNMSE'}: {law}"


def _first(cls: type[Codec]) -> str:
    fields = [f for f in dataclasses.fields(cls) if f.init]
    return f":{fields[0].name}" if fields and fields[0].default is dataclasses.MISSING else ""


def _field(field: dataclasses.Field[Any]) -> str:
    return field.name if field.default is dataclasses.MISSING else f"{field.name}={_word(field.default)}"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _examples(name: str, cls: type[Codec]) -> list[tuple[str, Codec]]:
    return [(spec, get_codec(spec)) for spec in examples(name, cls)]


def _describe(name: str, cls: type[Codec]) -> dict[str, Any]:
    settings = _examples(name, cls)
    fields = [
        {"name": f.name, "required": f.default is dataclasses.MISSING}
        | ({} if f.default is dataclasses.MISSING else {"default": f.default})
        for f in dataclasses.fields(cls)
        if f.init
    ]
    return {
        "name": name,
        "fields": fields,
        "claims": dataclasses.asdict(settings[0][1].claims),
        "expected_error": {spec: codec.expected_error() for spec, codec in settings},
    }


def doctor(
    json: Json = False,
) -> None:
    """Check this installation: backend, extras, links, and a self-test. Exit code 1 if something is broken."""
    from tersor.evaluate.doctor import examine

    findings = list(examine())
    broken = [f for f in findings if f.state == "broken"]
    if json:
        show.print_json({"ok": not broken, "findings": [dataclasses.asdict(f) for f in findings]})
    else:
        made = show.table("", "", "", left=3)
        made.show_header = False
        for f in findings:
            text = Text(f.text)
            if f.hint:
                text.append(f"\n{f.hint}", "bold")
            made.add_row(Text(f.topic, "bold"), Text(_LABELS[f.state], _STYLES[f.state]), text)
        show.console().print(made)
    if broken:
        topics = ", ".join(f.topic for f in broken)
        typer.echo(f"tersor doctor: {show.plural(len(broken), 'check')} failed: {topics}", err=True)
        raise typer.Exit(1)
