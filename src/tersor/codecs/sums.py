"""What additive codecs share: how many messages each unit adds up, what did not arrive, and the statistics' head."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import to_host
from tersor.codecs.deliver import first_nonfinite
from tersor.encoded import Encoded, check_compatible
from tersor.errors import IncompatibleError, NonFiniteError
from tersor.units import Units

HEAD = 3  # statistics that say whether the array is finite, and its size
_SIZE_DIGITS = 2**24  # float32 holds integers up to here


def head_of(x: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """Return (finite, size // 2**24, size % 2**24) of an array, its values as float32, and whether it is finite."""
    values = to_host(x)[0].float32()
    finite = first_nonfinite(values) < 0
    size = len(values)
    return np.array([finite, size // _SIZE_DIGITS, size % _SIZE_DIGITS], np.float32), values, finite


def merged(stats: Any, name: str, width: int | None = None) -> NDArray[np.float32]:
    """Return the senders' statistics without their heads, shape (n, k), once the heads agree.

    Raises
    ------
    NonFiniteError
        If a sender has NaN or infinity; `index` is the first such sender.
    IncompatibleError
        If the senders' sizes differ.
    """
    if stats is None:
        raise ValueError(f"{name}: merge needs the senders' statistics, one row a sender")
    table: NDArray[np.float32] = np.asarray(stats, np.float32)
    if table.ndim != 2 or not len(table) or table.shape[1] < HEAD or (width and table.shape[1] != width):
        raise ValueError(f"{name}: merge wants an array of shape (n, {width or 'k'}) with n >= 1, got {table.shape}")
    bad = np.flatnonzero(table[:, 0] != 1)
    if len(bad):
        raise NonFiniteError(f"the arrays of senders {bad.tolist()} hold NaN or infinity", int(bad[0]))
    if (table[:, 1:HEAD] != table[0, 1:HEAD]).any():
        raise IncompatibleError("the senders' arrays have different sizes")
    return table[:, HEAD:]


def unit_counts(enc: Encoded, units: Units, present: NDArray[np.bool_] | None) -> NDArray[np.uint32]:
    """Return how many messages each unit adds up; 0 where it did not arrive."""
    counts = np.broadcast_to(np.asarray(enc.count, np.uint32), (units.count,)).copy()
    if present is not None:
        counts[~present] = 0
    return counts


def present_codes(enc: Encoded) -> NDArray[np.uint8]:
    """Return the codes of a message, with zeros in units that did not arrive."""
    plane = enc.planes["codes"]
    if enc.received is None:
        return np.ascontiguousarray(plane.data)
    codes = plane.data.copy()
    for k in np.flatnonzero(~enc.received).tolist():
        codes[k * plane.stride : (k + 1) * plane.stride] = 0
    return codes


def check_addable(a: Encoded, b: Encoded, spec: str) -> None:
    """Raise IncompatibleError unless the messages are of `spec` and of the same shared statistics.

    They then have one key and one range.
    """
    name = spec.split(":")[0]
    if not a.digest or not b.digest:
        raise IncompatibleError(
            f"{name}: messages without shared statistics do not add; encode with shared=codec.merge(...)"
        )
    check_compatible(a, b)
    if a.spec != spec:
        raise IncompatibleError(f"these are messages of {a.spec}, not of {spec}")


def added_counts(a: Encoded, b: Encoded, units: Units) -> tuple[int | NDArray[np.uint32], int]:
    """Return the `count` of the sum of two messages, and the largest that a unit has."""
    counts = unit_counts(a, units, a.received).astype(np.uint64) + unit_counts(b, units, b.received)
    if not units.count and isinstance(a.count, int) and isinstance(b.count, int):
        return a.count + b.count, a.count + b.count
    one = int(counts[0]) if len(counts) and (counts == counts[0]).all() else None
    most = int(counts.max(initial=1))
    return (counts.astype(np.uint32) if one is None or one == 0 else one), most
