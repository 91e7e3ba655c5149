"""Lloyd-Max levels of the standard normal distribution, b = 1 to 8 bits, from one frozen table.

Joel Max: "Quantizing for minimum distortion", IRE Transactions on Information Theory 6(1), 1960; Stuart P. Lloyd:
"Least squares quantization in PCM", IEEE Transactions on Information Theory 28(2), 1982. The table was solved to 12
digits; its centroid condition, symmetry and errors are checked by the tests.
"""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BITS = 8


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    text = files("tersor.quantize").joinpath("lloyd_max.json").read_text("ascii")
    return dict(json.loads(text))


@lru_cache(maxsize=MAX_BITS + 1)
def levels(bits: int) -> NDArray[np.float32]:
    """Return the 2**bits levels, ascending, float32; of 0 bits the level 0.

    Examples
    --------
    >>> levels(1).tolist()
    [-0.7978845834732056, 0.7978845834732056]
    """
    if bits == 0:
        return np.zeros(1, np.float32)
    positive = np.array([float(v) for v in _table()[str(bits)]["positive_levels"]])
    result = np.concatenate([-positive[::-1], positive]).astype(np.float32)
    result.flags.writeable = False
    return result


@lru_cache(maxsize=MAX_BITS + 1)
def thresholds(bits: int) -> NDArray[np.float32]:
    """Return the 2**bits - 1 midpoints of the levels, ascending, float32; a value on a threshold goes up."""
    c = levels(bits).astype(np.float64)
    result = ((c[:-1] + c[1:]) / 2).astype(np.float32)
    result.flags.writeable = False
    return result


def mse(bits: int) -> float:
    """Return E (z - q)**2 for z ~ N(0, 1): the vNMSE of EDEN's biased scale in high dimension."""
    return float(_table()[str(bits)]["mse"]) if bits else 1.0
