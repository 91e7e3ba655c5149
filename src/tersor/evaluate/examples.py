"""Sensible settings of every registered codec: its own `examples`, else what its fields allow."""

from __future__ import annotations

import dataclasses

from tersor.codec import Codec
from tersor.registry import codecs, get_codec

_WIDTHS = (1, 2, 3, 4, 6, 8)
_SHARES = (0.01, 0.05, 0.1, 0.25)
_SHAPE = (1 << 16,)


def examples(name: str, cls: type[Codec]) -> list[str]:
    """Return specs of one codec: those that its class names, else several widths if its first field has no default.

    A first field that takes no width may be a share, such as of the coordinates that are kept.

    Examples
    --------
    >>> import tersor
    >>> examples("drive", tersor.Drive), examples("bf16", tersor.BFloat16)
    (['drive', 'drive:plus=true'], ['bf16'])
    """
    if cls.examples:
        return list(cls.examples)
    if not needs_value(cls):
        return [name]
    widths = [f"{name}:{value}" for value in _WIDTHS if constructs(f"{name}:{value}")]
    shares = [f"{name}:{value}" for value in _SHARES if constructs(f"{name}:{value}")]
    return widths if len(widths) > 1 or not shares else shares


def default_specs() -> list[str]:
    """Return `examples` of all registered codecs, largest messages first.

    Examples
    --------
    >>> "eden:4" in default_specs()
    True
    """
    specs = [spec for name, cls in codecs().items() for spec in examples(name, cls)]
    return sorted(dict.fromkeys(specs), key=lambda spec: -get_codec(spec).nbytes(_SHAPE))


def needs_value(cls: type[Codec]) -> bool:
    """Say whether the first field has no default, so that a spec must give it."""
    fields = [f for f in dataclasses.fields(cls) if f.init]
    return bool(fields) and fields[0].default is dataclasses.MISSING


def constructs(spec: str) -> bool:
    """Say whether a spec string gives a codec."""
    try:
        get_codec(spec)
    except (ValueError, TypeError):
        return False
    return True
