"""The last step of decoders that make whole arrays: weight, loss, then write or add."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.kernels import ops
from tersor.units import Units

UNIT = 4096


def deliver(
    values: NDArray[Any], units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
) -> None:
    """Write ``weight * values`` to the flat `out`, or add it, with zeros for units that are not `present`."""
    if weight != 1.0:
        with np.errstate(over="ignore", invalid="ignore"):
            values = values * out.dtype.type(weight)
    if present is not None:
        values = np.where(np.repeat(present, units.length)[: units.size], values, out.dtype.type(0))
    if add:
        out += values
    else:
        out[:] = values


def first_nonfinite(x: NDArray[Any]) -> int:
    """Return the index of the first NaN or infinity, -1 if there is none."""
    if x.dtype == np.float32:
        return ops.current().first_nonfinite(np.ascontiguousarray(x).reshape(-1))
    finite = np.isfinite(x)
    return -1 if finite.all() else int(np.argmin(finite))
