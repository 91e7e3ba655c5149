"""Spec strings: ``name[:first][,key=value...]``, the short form of a codec or scheme."""

import dataclasses
import math
from typing import Any

Value = int | float | bool | str

MAX_SPEC = 255


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split a spec string; the bare first value has the key "".

    Raises
    ------
    ValueError
        If it is not a spec string.

    Examples
    --------
    >>> parse_spec("eden:4,scale=biased")
    ('eden', {'': 4, 'scale': 'biased'})
    >>> parse_spec("none")
    ('none', {})
    """
    if len(spec) > MAX_SPEC or not spec.isascii():
        raise ValueError(f"a spec string is ASCII of at most {MAX_SPEC} characters, got {spec[:80]!r}")
    head, colon, rest = spec.partition(":")
    if not colon:
        head, _, rest = spec.partition(",")
    name = head.strip()
    if not name.isidentifier():
        raise ValueError(f"a spec string looks like name:value,key=value; got {spec!r}")
    values: dict[str, Any] = {}
    for position, item in enumerate(rest.split(",") if rest else []):
        key, equals, text = (part.strip() for part in item.partition("="))
        if not equals:
            key, text = "", key
            if position or not text or not colon:
                raise ValueError(f"{item!r} is not key=value in {spec!r}")
        elif not key.isidentifier() or not text:
            raise ValueError(f"{item!r} is not key=value in {spec!r}")
        if key in values:
            raise ValueError(f"{key} is given twice in {spec!r}")
        values[key] = _parse_value(text)
    return name, values


def split_list(text: str) -> list[str]:
    """Split a comma-separated list of spec strings; an item with "=" and no ":" continues the one before.

    Examples
    --------
    >>> split_list("bf16,eden:4,scale=biased,eden:2")
    ['bf16', 'eden:4,scale=biased', 'eden:2']
    """
    specs: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        if "=" in item and ":" not in item and specs:
            specs[-1] += "," + item
        elif item:
            specs.append(item)
    return specs


def format_spec(codec: Any) -> str:
    """Return the shortest spec string of a dataclass with a `name`: required fields, then those with other values."""
    items = []
    for position, f in enumerate(f for f in dataclasses.fields(codec) if f.init):
        value = getattr(codec, f.name)
        if f.default is dataclasses.MISSING or value != f.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            items.append(text if position == 0 else f"{f.name}={text}")
    if items and "=" not in items[0]:
        return f"{codec.name}:{','.join(items)}"
    return ",".join([codec.name, *items])


def _parse_value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text
