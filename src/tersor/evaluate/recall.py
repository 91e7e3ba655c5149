"""How well estimates of rows keep the order of inner products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Codec

MIN_ROWS = 100
_MOST_ROWS, _QUERIES, _NEAREST = 4096, 100, 10


def recall(rows: NDArray[np.float32], codec: Codec, seed: int = 0) -> float:
    """Return the share of the ten rows of largest inner product with a query that the estimates find too.

    Queries are rows themselves, as they were; a query does not find itself.

    Parameters
    ----------
    rows : ndarray of float32, shape (n, d)
        At least 100; of more than 4096, as many evenly spaced ones.

    Examples
    --------
    >>> import tersor
    >>> rows = np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32)
    >>> recall(rows, tersor.get_codec("none"))
    1.0
    """
    base = np.ascontiguousarray(rows[_spaced(len(rows), _MOST_ROWS)])
    queries = _spaced(len(base), _QUERIES)
    estimates = np.asarray(codec.decode(codec.encode(base, seed=seed, axis=-1)), np.float32)
    true, found = _nearest(base, base[queries], queries), _nearest(estimates, base[queries], queries)
    hits = [len(np.intersect1d(a, b)) for a, b in zip(true, found, strict=True)]
    return float(np.mean(hits)) / _NEAREST


def _nearest(base: NDArray[np.float32], queries: NDArray[np.float32], at: NDArray[np.int64]) -> NDArray[Any]:
    products = queries @ base.T
    products[np.arange(len(at)), at] = -np.inf
    return np.argpartition(products, -_NEAREST, axis=1)[:, -_NEAREST:]


def _spaced(n: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
