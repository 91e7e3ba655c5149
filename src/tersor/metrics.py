"""How far an estimate is from what it estimates."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import arrays
from tersor.codec import Codec
from tersor.registry import get_codec


def nmse(x: Any, x_hat: Any) -> float:
    """Return ``||x_hat - x||**2 / ||x||**2`` in float64; 0 if both are zero.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> nmse([3.0, 4.0], [3.0, 3.0])
    0.04
    """
    a, b = (_float64(v) for v in (x, x_hat))
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    peak = float(np.max(np.abs(a), initial=0.0)) or 1.0
    error, energy = float(np.sum(((b - a) / peak) ** 2)), float(np.sum((a / peak) ** 2))
    return error / energy if energy else (0.0 if error == 0 else np.inf)


def roundtrip(x: Any, codec: "Codec | str", **options: Any) -> Any:
    """Encode and decode: the estimate that a receiver would have; `options` go to `Codec.encode`.

    Examples
    --------
    >>> import numpy as np
    >>> roundtrip(np.array([1.0, 2.0, 3.0], np.float16), "bf16")
    array([1., 2., 3.], dtype=float16)
    """
    chosen = get_codec(codec)
    return chosen.decode(chosen.encode(x, **options))


def _float64(x: Any) -> NDArray[np.float64]:
    host, shape = arrays.to_host(x)
    flat = host.data if host.dtype == "float64" else host.float32()
    return flat.astype(np.float64).reshape(shape)
