"""Part of large tensors, by whole rows or blocks, spread evenly, so that measuring takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_BLOCK = 4096


def sample(tensors: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return tensors of about `limit` coordinates in all: as they are if they are no larger.

    Of a tensor of two or more dimensions rows are kept, of a long vector blocks of 4096.

    Examples
    --------
    >>> parts = sample({"a": np.zeros((1000, 100)), "b": np.zeros(30)}, 10_000)
    >>> parts["a"].shape, parts["b"].shape
    ((100, 100), (30,))
    """
    size = sum(int(np.prod(x.shape)) for x in tensors.values())
    share = limit / max(size, 1)
    return {name: x if share >= 1 else _part(x, share) for name, x in tensors.items()}


def _part(x: Any, share: float) -> Any:
    width = x.shape[-1] if len(x.shape) > 1 else _BLOCK
    whole = int(np.prod(x.shape)) // width if width else 0
    kept = max(1, round(share * whole))
    if whole < 2 or kept >= whole:
        return x
    rows = x.reshape(-1)[: whole * width].reshape(whole, width)
    chosen = rows[np.unique(np.linspace(0, whole - 1, kept).astype(np.int64))]
    return chosen if len(x.shape) > 1 else chosen.reshape(-1)
