"""Cases of test_backends.py for levels with shared randomness."""

import numpy as np


def case_shared_search(backend):
    g = np.random.default_rng(0)
    for size in (1, 2, 5, 100, 700):
        normal = g.standard_normal((3, size))
        for x in (normal, np.exp(3 * normal), np.rint(2 * normal), np.zeros((3, size)), normal * 1e-200, normal + 1e8):
            points = np.sort(x, axis=1)
            for shared, s, sweeps in ((1, 3, 4), (2, 2, 60), (3, 4, 5), (8, 2, 4), (5, 9, 2), (4, 3, 0)):
                places = np.linspace(0, size - 1, s).round().astype(int)
                levels = np.repeat(points[:, places], shared, axis=1).reshape(-1)
                weights = g.random(3 * size) if shared % 2 else np.zeros(0)
                backend.shared_search(points.reshape(-1), weights, size, levels, shared * s, shared, sweeps)
                yield levels
    backend.shared_search(np.zeros(0), np.zeros(0), 4, np.zeros(0), 4, 2, 5)
