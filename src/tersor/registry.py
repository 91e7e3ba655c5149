"""The registry: codecs by name, and the codec that a spec string names."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tersor.codec import Codec
from tersor.specs import Value, parse_spec

_REGISTRY: dict[str, type[Codec]] = {}
C = TypeVar("C", bound=type[Codec])
T = TypeVar("T")


def register(name: str) -> Callable[[C], C]:
    """Class decorator that enters a codec under `name`."""

    def enter(cls: C) -> C:
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return enter


def codecs() -> dict[str, type[Codec]]:
    """Return all codecs by name.

    Examples
    --------
    >>> import tersor
    >>> tersor.codecs()["eden"].claims.unbiased
    True
    """
    return dict(sorted(_REGISTRY.items()))


def get_codec(spec: "Codec | str | Mapping[str, Value]") -> Codec:
    """Return the codec that a spec string or a `config` names.

    Parameters
    ----------
    spec : Codec, str or mapping
        ``name[:first][,key=value...]``, such as "eden:4" or "eden:bits=4,scale=biased".

    Raises
    ------
    ValueError
        If there is no such codec or field, or a value is not legal.
    TypeError
        If `spec` is none of these.

    Examples
    --------
    >>> import tersor
    >>> tersor.get_codec("eden:4,scale=biased").spec
    'eden:4,scale=biased'
    """
    return spec if isinstance(spec, Codec) else from_spec(spec, _REGISTRY, "codec", Codec)


def from_spec(spec: str | Mapping[str, Value], registry: Mapping[str, type[T]], kind: str, base: type[T]) -> T:
    """Return the object of a registry that a spec string or config names; `kind` and `base` are for errors."""
    if isinstance(spec, str):
        name, values = parse_spec(spec)
    elif not isinstance(spec, Mapping):
        raise TypeError(
            f'a {kind} is a {base.__name__}, a spec string such as "eden:4", or a config, got {type(spec).__name__}'
        )
    else:
        values = {**spec}
        name = str(values.pop("name", ""))
    if name not in registry:
        raise ValueError(f"no {kind} {name!r}; there are {', '.join(sorted(registry))}")
    cls: Any = registry[name]
    names = [f.name for f in dataclasses.fields(cls) if f.init]
    if "" in values:
        if not names:
            raise ValueError(f"{name} takes no value, got {spec!r}")
        if names[0] in values:
            raise ValueError(f"{names[0]} is given twice in {spec!r}")
        values = {names[0]: values.pop(""), **values}
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]!r}; it has {', '.join(names) or 'none'}")
    missing = [
        f.name for f in dataclasses.fields(cls) if f.init and f.default is dataclasses.MISSING and f.name not in values
    ]
    if missing:
        raise ValueError(f"{name} needs {missing[0]}, for example {name}:4")
    made: T = cls(**values)
    return made
