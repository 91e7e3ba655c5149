"""Scheme: a frozen dataclass like a codec, but for a protocol: it reduces a vector over the ranks itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.errors import NonFiniteError
from tersor.registry import from_spec, get_codec
from tersor.specs import Value, format_spec

Memory = dict[str, NDArray[Any]]
Frames = list[Bytes] | None


@dataclass
class Tensors:
    """What a vector is made of: tensors one after the other, each with its part of a scheme's state.

    Attributes
    ----------
    shapes : list of tuple of int
        Of the tensors.
    memory : list of dict
        The state of each; schemes replace arrays and never write into them.
    """

    shapes: list[tuple[int, ...]]
    memory: list[Memory]

    def parts(self, x: F32) -> list[F32]:
        """Return views of a vector, one a tensor, in their shapes."""
        edges = np.cumsum([0, *(int(np.prod(s)) for s in self.shapes)])
        return [x[a:b].reshape(s) for a, b, s in zip(edges[:-1], edges[1:], self.shapes, strict=True)]


@dataclass(frozen=True)
class SchemeClaims:
    """What a scheme guarantees.

    Attributes
    ----------
    unbiased : bool
        The expectation of the estimate is the sum.
    topologies : tuple of str
        Where it runs; the first one is what "auto" takes.
    error_law : str
        vNMSE as a formula, or what bounds it.
    """

    unbiased: bool = False
    topologies: tuple[str, ...] = ("transpose",)
    error_law: str = ""

    @property
    def rounds_to_nearest(self) -> bool:
        """Schemes never claim that; see `tersor.Claims`."""
        return False


@dataclass(frozen=True)
class Scheme:
    """Base of all schemes. A subclass sets `name` and `claims` and fills `reduce`; the state is the caller's."""

    name: ClassVar[str] = ""
    claims: ClassVar[SchemeClaims] = SchemeClaims()

    @cached_property
    def spec(self) -> str:
        """The shortest spec string that gives this scheme."""
        return format_spec(self)

    def init(self, shape: tuple[int, ...]) -> Memory:
        """Return the state of a tensor of `shape` before the first step: named arrays, empty if there is none."""
        return {}

    def expected_error(self) -> float | None:
        """Return a vNMSE that the law gives, or None if it depends on the input."""
        return None

    def reduce(self, state: Round, x: F32, topology: str, tensors: Tensors, bad: NonFiniteError | None) -> Frames:
        """Sum `x` over the ranks in place, and put a new state into `tensors`.

        Returns the frames that say which ranks hold NaN or infinity instead, or an empty list if the sum overflows;
        nothing has changed then, nor after an error.
        """
        raise NotImplementedError


_REGISTRY: dict[str, type[Scheme]] = {}
S = TypeVar("S", bound=type[Scheme])


def register(name: str) -> Callable[[S], S]:
    """Class decorator that enters a scheme under `name`."""

    def enter(cls: S) -> S:
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return enter


def schemes() -> dict[str, type[Scheme]]:
    """Return all schemes by name.

    Examples
    --------
    >>> from tersor.collectives.schemes import schemes
    >>> schemes()["dynamiq"].claims.unbiased
    True
    """
    return dict(sorted(_REGISTRY.items()))


def get_scheme(spec: "Scheme | str | Mapping[str, Value]") -> Scheme:
    """Return the scheme that a spec string names; errors as for `tersor.get_codec`.

    Examples
    --------
    >>> from tersor.collectives.schemes import get_scheme
    >>> get_scheme("dynamiq:5")
    DynamiQ(bits=5)
    """
    return spec if isinstance(spec, Scheme) else from_spec(spec, _REGISTRY, "scheme", Scheme)


def resolve(spec: "Codec | Scheme | str") -> Codec | Scheme:
    """Return the codec or scheme that a spec string names."""
    if isinstance(spec, Codec | Scheme):
        return spec
    return get_scheme(spec) if spec.split(":")[0].split(",")[0].strip() in _REGISTRY else get_codec(spec)
