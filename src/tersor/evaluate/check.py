"""Reading back what was written: is it whole, does it decode, and is the error what the codec's law says?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import Host, float32_to_bfloat16, to_host
from tersor.encoded import Encoded
from tersor.errors import TersorError
from tersor.evaluate.measure import Errors, errors
from tersor.evaluate.readers import Tensor
from tersor.pieces import StoredMessage

LAW_FROM = 4096
_SLACK = 4.0
_FLOAT16_STEP = 2.0**-25  # half the distance of float16's denormals: what rounding to the array's own dtype may cost


def storage(enc: Encoded) -> Host:
    """Decode to the message's own dtype; bfloat16 as its bit patterns. What is stored exactly keeps every bit."""
    if enc.codec.name == "none":
        plane = enc.planes["values"]
        data: NDArray[Any] = plane.values()
        return Host(data.astype(data.dtype.newbyteorder("="), copy=False).reshape(enc.shape), enc.dtype)
    host, _ = to_host(enc.codec.decode(enc))
    if enc.dtype == "bfloat16" and host.dtype != "bfloat16":
        return Host(float32_to_bfloat16(host.float32()).reshape(enc.shape), "bfloat16")
    return host


def measure_message(stored: StoredMessage, tensor: Tensor, progress: Callable[[int], None]) -> Errors:
    """Decode a message and compare it with the tensor, a piece at a time.

    Raises
    ------
    FormatError
        If a plane holds what no encoder writes.
    TersorError
        If the message cannot be of this tensor: another shape or dtype, bits that differ though the codec is lossless,
        a finite input that decodes to NaN, or, from 4,096 coordinates on, more than four times the error of the law.
    """
    head, total = stored.header, Errors()
    if (head.shape, head.dtype) != (tensor.shape, tensor.dtype):
        raise TersorError(f"it reads back as {head.dtype}{list(head.shape)}, not {tensor.describe()}")
    exact = head.codec.name == "none"
    with tensor.values() as read:
        for enc in stored.pieces():
            x = Host(read(enc.size), head.dtype)
            estimate = storage(enc)
            if exact:
                if not np.array_equal(_bits(x), _bits(estimate)):
                    raise TersorError("it does not read back bit for bit")
                total += _energy(x)
            else:
                part = errors(x, estimate)
                if not np.isfinite(part.squared):
                    raise TersorError("it reads back with NaN or infinity")
                total += part
            progress(enc.size)
    law = head.codec.expected_error()
    rounding = stored.size * _FLOAT16_STEP**2 if head.dtype == "float16" else 0.0
    if law is not None and stored.size >= LAW_FROM and total.squared > _SLACK * law * total.energy + rounding:
        raise TersorError(f"its vNMSE is {total.vnmse:.3g} where the codec's law says {law:.3g}")
    return total


def _bits(x: Host) -> NDArray[np.uint8]:
    return np.ascontiguousarray(x.data).reshape(-1).view(np.uint8)


def _energy(x: Host) -> Errors:
    """Return no error, and the energy of what is finite: masks with infinities are kept exactly, too."""
    data = x.data if x.dtype == "float64" else x.float32()
    finite = data if np.isfinite(data).all() else np.where(np.isfinite(data), data, 0)
    return errors(finite, finite)
