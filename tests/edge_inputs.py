"""Float32 vectors at the edges: zeros, ties, denormals, the largest floats, NaN and infinity, by name."""

import numpy as np


def edge_inputs(n):
    """Float32 vectors of n coordinates by name."""
    g = np.random.default_rng(n)
    x = g.standard_normal(n).astype(np.float32)
    made = {
        "normal": x,
        "zeros": np.zeros(n, np.float32),
        "minus zeros": -np.zeros(n, np.float32),
        "constant": np.full(n, -0.7, np.float32),
        "one hot": np.eye(1, n, n // 3, dtype=np.float32)[0] * np.float32(3) if n else x,
        "two": np.eye(1, n, 0, dtype=np.float32)[0] + np.eye(1, n, n // 2, dtype=np.float32)[0] if n else x,
        "tiny": x * np.float32(1e-30),
        "huge": x * np.float32(1e30),
        "max": np.copysign(np.float32(3.4028235e38), x),
        "denormal": x * np.float32(1e-41),
        "least": np.copysign(np.float32(1e-45), x),
        "heavy": (x.astype(np.float64) * 10.0 ** g.uniform(-40, 35, n)).astype(np.float32),
        "ties": np.round(x * 2) / 2,
    }
    for name, bad in (("nan", np.nan), ("inf", np.inf), ("minus inf", -np.inf)):
        if n:
            made[name] = x.copy()
            made[name][[n // 2, n - 1]] = bad
    return made
