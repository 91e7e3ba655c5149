"""Cases of the operations behind adaptive levels, for test_backends.py."""

import numpy as np

from tersor.kernels.reference.level_search import from_middle


def problems(sizes=(1, 2, 3, 17, 64, 300, 1200)):
    """Yield (points, counts, sums, squares) of data on their own values, of several kinds, with and without a front."""
    rng = np.random.default_rng(5)
    for m in sizes:
        kinds = {
            "normal": rng.standard_normal(m),
            "even": np.arange(m, dtype=np.float64),
            "heavy": np.exp(3 * rng.standard_normal(m)),
            "far": np.append(rng.standard_normal(m - 1), 1e9),
        }
        for values in kinds.values():
            points = np.unique(values) - np.median(values)
            points /= max(np.abs(points).max(), 1e-300)
            counts = rng.integers(0, 4, len(points)).astype(np.float64)
            cells = (counts, counts * points, counts * points * points)
            for clusters in (False, True):
                nodes = np.concatenate([points[:1], points]) if clusters else points
                yield clusters, nodes, *(np.ascontiguousarray(from_middle(c, clusters)) for c in cells)


def case_optimal_path(backend):
    for clusters, *arrays in problems():
        for edges in (1, 2, 3, 7, 40):
            path = np.zeros(edges + 1, np.int64)
            used = backend.optimal_path(*arrays, edges, clusters, path)
            yield np.array(used)
            yield path[: used + 1]


def case_optimal_rows(backend):
    rng = np.random.default_rng(6)
    for n in (1, 2, 3, 5, 8, 16, 17, 64, 130):
        rows = np.stack(
            [
                rng.standard_normal(n),
                rng.integers(0, 5, n),
                np.zeros(n),
                np.exp(4 * rng.standard_normal(n)),
                1e8 + rng.integers(0, 9, n) * 8,
                rng.standard_normal(n) * 1e-41,
                rng.standard_normal(n) * 1e37,
                np.append(rng.standard_normal(n - 1), -1e9),
            ]
        ).astype(np.float32)
        rows.sort(axis=1)
        for levels in (1, 2, 3, 4, 5, 8, 16):
            for clusters in (False, True) if levels > 1 else (True,):
                out = np.full(len(rows) * levels, np.nan, np.float32)
                backend.optimal_rows(rows.reshape(-1), n, levels, clusters, out)
                yield out


def _keyed():
    rng = np.random.default_rng(7)
    for n in (0, 1, 5, 16, 17, 1000, 70000):
        yield rng.standard_normal(n).astype(np.float32)
        yield (rng.standard_normal(n) * 10.0 ** rng.uniform(-44, 37, n)).astype(np.float32)
    yield np.array([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38] * 50, np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        for place in (0, 16, 18):
            x = np.ones(19, np.float32)
            x[place] = bad
            yield x


def case_key_histogram(backend):
    for x in _keyed():
        for centre in (0.0, 1.5, 1e37):
            counts, lows, ends = np.zeros(65536, np.uint64), np.ones(65536, np.uint64), np.zeros(3)
            good = backend.key_histogram(x, centre, counts, lows, ends)
            yield np.array(good)
            if good:
                yield counts
                yield lows
                yield ends


def case_key_gather(backend):
    rng = np.random.default_rng(8)
    for x in _keyed():
        wanted = (rng.random(65536) < 0.5).astype(np.uint8)
        for room in (0, len(x)):
            out = np.zeros(room, np.float32)
            with np.errstate(all="ignore"):
                yield np.array(backend.key_gather(x, 0.5, wanted, out))
            yield out
