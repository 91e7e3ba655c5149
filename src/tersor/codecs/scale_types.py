"""Numbers on the wire in 16 or 32 bits: three types, their rounding and limits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import bfloat16_to_float32, float32_to_bfloat16
from tersor.errors import RangeError

SCALE_DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


def check_scales(scales: NDArray[np.float32], what: str) -> None:
    """Raise RangeError if a scale became infinite."""
    if np.isinf(scales).any():
        raise RangeError(f"unit {int(np.argmax(np.isinf(scales)))}: the {what}; scale the array down")


def choose(name: str, value: Any, allowed: Any) -> None:
    if not any(value == a and type(value) is type(a) for a in allowed):
        raise ValueError(f"eden: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def narrow(scales: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    if dtype == "bfloat16":
        return float32_to_bfloat16(scales).astype("<u2").view(np.uint8)
    return scales.astype(SCALE_DTYPES[dtype]).view(np.uint8)


def widen(values: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Undo `narrow`, from a plane's values."""
    if dtype == "bfloat16":
        return bfloat16_to_float32(values)
    return values.astype(np.float32)
