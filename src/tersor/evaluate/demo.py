"""Tensors to try codecs on where there is no file: normal, lognormal and sparse values, from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.errors import TersorError

Values = NDArray[np.float32]
DEFAULT_SIZE = 1 << 18


def normal(rng: np.random.Generator, size: int) -> Values:
    """N(0, 1)."""
    return rng.standard_normal(size, np.float32)


def lognormal(rng: np.random.Generator, size: int) -> Values:
    """exp(N(0, 1)) with random signs: heavy tails."""
    values = np.exp(normal(rng, size)) * rng.choice(np.array([-1, 1], np.float32), size)
    return np.asarray(values, np.float32)


def sparse(rng: np.random.Generator, size: int) -> Values:
    """One coordinate of a hundred from N(0, 1), the others 0."""
    values = np.zeros(size, np.float32)
    kept = max(size // 100, 1)
    values[rng.choice(size, kept, replace=False)] = normal(rng, kept)
    return values


KINDS: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "normal": normal,
    "lognormal": lognormal,
    "sparse": sparse,
}


def parse_demo(text: str) -> tuple[str, int]:
    """Read a kind and a number of values.

    Examples
    --------
    >>> parse_demo("sparse"), parse_demo("normal:2^20"), parse_demo("lognormal:1e6")
    (('sparse', 262144), ('normal', 1048576), ('lognormal', 1000000))
    """
    kind, colon, size = text.partition(":")
    if kind not in KINDS:
        raise TersorError(f"there is no demo {kind!r}; there are {', '.join(KINDS)}, also as normal:2^20")
    return kind, parse_size(size) if colon else DEFAULT_SIZE


def parse_size(text: str) -> int:
    """Read a number of values: 65536, 1e6, 2^20."""
    base, power, exponent = text.replace("**", "^").partition("^")
    try:
        size = float(base) ** int(exponent) if power else float(base.replace(",", "").replace("_", ""))
        whole = int(size)
    except (ValueError, OverflowError):
        whole, size = 0, 0.0
    if not 1 <= whole <= 2**32 or whole != size:
        raise TersorError(f"{text!r} is not a number of values; write 65536, 1e6 or 2^20")
    return whole


def demo(kind: str, size: int) -> Any:
    """Return the values of a kind, the same every time."""
    return KINDS[kind](np.random.default_rng(0), size)
