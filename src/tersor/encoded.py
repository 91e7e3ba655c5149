"""Encoded: what a codec makes of an array - a small header and a few byte planes, whose size in bits is exact."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tersor.arrays import Origin
from tersor.errors import IncompatibleError
from tersor.units import Units

if TYPE_CHECKING:
    from tersor.codec import Codec


@dataclass(frozen=True, eq=False)
class Plane:
    """One kind of data of a message, for all its units.

    Attributes
    ----------
    data : ndarray of uint8, shape (nbytes,)
        The bytes.
    bits : int
        Bits of one element.
    rows : int
        Units.
    stride : int
        Bytes of a unit (the last block of a vector may have fewer); 0 if units share bytes.
    layout : str
        "lsb" for a little-endian bit stream, else the NumPy dtype of the elements, such as "<f4".
    """

    data: NDArray[np.uint8]
    bits: int
    rows: int
    stride: int
    layout: str = "lsb"

    def values(self) -> NDArray[Any]:
        """View the elements of a plane with a dtype layout."""
        return self.data.view(np.dtype(self.layout))


@dataclass(frozen=True)
class PlaneSpec:
    """The shape of a plane before it is filled; `nbytes` is its exact size."""

    bits: int
    rows: int
    stride: int
    nbytes: int
    layout: str = "lsb"

    def fill(self, data: NDArray[np.uint8]) -> Plane:
        """Return the plane with `data` in it."""
        return Plane(data, self.bits, self.rows, self.stride, self.layout)


@dataclass(frozen=True, eq=False)
class Encoded:
    """An encoded array.

    Attributes
    ----------
    spec : str
        Spec string of the codec.
    shape, dtype, axis
        Of the array that was encoded; `dtype` is a name such as "bfloat16", `axis` None (one vector) or -1 (rows).
    key : int
        64-bit key of everything the receiver repeats.
    planes : dict of str to Plane
        The data.
    start : int
        Random position of coordinate 0 (`axis=None`) or number of the first row (`axis=-1`).
    count : int or ndarray of uint32
        How many messages were added; one number, or one a unit.
    received : ndarray of bool or None
        Which units arrived; None means all.
    digest : int
        CRC-32 of the statistics that the senders share; 0 if they share none.
    error : float or None
        The sender's vNMSE, ||x_hat - x||**2 / ||x||**2, where the codec has a law for it. Exact but for rounding where
        no unit is padded; else with the share of the error that is expected on the coordinates beside the padding.
    fields : bytes
        What else the codec needs.
    origin : Origin
        Framework and device of the array; not on the wire.
    """

    spec: str
    shape: tuple[int, ...]
    dtype: str
    axis: int | None
    key: int
    planes: dict[str, Plane]
    start: int = 0
    count: "int | NDArray[np.uint32]" = 1
    received: NDArray[np.bool_] | None = None
    digest: int = 0
    error: float | None = None
    fields: bytes = b""
    origin: Origin = field(default=Origin(), repr=False)

    def __repr__(self) -> str:
        more = "" if isinstance(self.count, int) and self.count == 1 else f", count={self.count}"
        return f"Encoded({self.spec!r}, {self.dtype}{list(self.shape)}, axis={self.axis}, {self.nbytes} bytes{more})"

    @property
    def codec(self) -> "Codec":
        """The codec that `spec` names."""
        from tersor.registry import get_codec

        return get_codec(self.spec)

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.shape)

    @property
    def units(self) -> Units:
        """The units that the coordinates fall into."""
        return self.codec.units(self.shape, self.axis)

    @property
    def nbytes(self) -> int:
        """Length of `to_bytes()`: header, planes and padding."""
        from tersor.message import size_of

        return size_of(self)

    @property
    def bits_per_coordinate(self) -> float:
        """``8 * nbytes / size``, with everything counted; infinite for an empty array."""
        return 8 * self.nbytes / self.size if self.size else math.inf

    def to_bytes(self, *, align: int = 8) -> bytes:
        """Return the message (FORMAT.md section 6); planes start on multiples of `align`, a power of two."""
        from tersor.message import to_bytes

        return to_bytes(self, align=align)

    # Rows: what the codec claims to be row_addressable moves as bytes.

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """Length of the first axis of a message of rows."""
        self._check_rows()
        return self.shape[0]

    def __getitem__(self, index: slice) -> "Encoded":
        """Return the rows of a slice of the first axis, without decoding.

        Raises
        ------
        TypeError
            If `index` is not a slice, or the message does not hold addressable rows.
        """
        if not isinstance(index, slice):
            raise TypeError(f"index an Encoded with a slice, enc[i:j], or use enc.take; got {type(index).__name__}")
        self._check_rows()
        return self._select(range(self.shape[0])[index])

    def take(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> "Encoded":
        """Return the entries `indices` of the first axis, in that order, without decoding; they may repeat.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        self._check_rows()
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise TypeError("take wants a one-dimensional sequence of integers")
        n = self.shape[0]
        if chosen.size and (chosen.min() < -n or chosen.max() >= n):
            raise IndexError(f"take: an index is out of range for {n} entries")
        return self._select(chosen.astype(np.int64) % max(n, 1))

    def _select(self, chosen: "range | NDArray[np.int64]") -> "Encoded":
        per_entry = math.prod(self.shape[1:-1])
        picker = _Picker(chosen, self.shape[0], per_entry)
        planes = {
            name: replace(p, data=picker.bytes(p.data, p.stride), rows=len(chosen) * per_entry)
            for name, p in self.planes.items()
        }
        count = self.count if isinstance(self.count, int) else picker.units(self.count)
        received = None if self.received is None else picker.units(self.received)
        shape = (len(chosen), *self.shape[1:])
        # A row keeps its own private rounding wherever it goes, so `start` only tells of an unbroken run.
        start = self.start + chosen.start * per_entry if isinstance(chosen, range) and chosen.step == 1 else 0
        return replace(self, shape=shape, planes=planes, count=count, received=received, start=start, error=None)

    def _check_rows(self) -> None:
        if self.axis is None or len(self.shape) < 2 or not self.codec.claims.row_addressable:
            raise TypeError(
                f"this message ({self.spec}, shape {self.shape}, axis {self.axis}) has no addressable rows; encode an "
                "array of two or more axes with axis=-1 and a codec that claims row_addressable"
            )


_SAME = {
    "key": "; encode them with one seed and sender, or with one `shared`",
    "shared statistics": "; encode them with one `shared`",
}


class _Picker:
    """Moves the bytes or values of whole entries of the first axis."""

    def __init__(self, chosen: "range | NDArray[np.int64]", entries: int, per_entry: int) -> None:
        self._entries, self._per_entry = entries, per_entry
        self._index: Any = chosen
        if isinstance(chosen, range):
            stop = chosen.stop if chosen.stop >= 0 else None
            self._index = slice(chosen.start, stop, chosen.step) if len(chosen) else slice(0, 0)

    def bytes(self, data: NDArray[np.uint8], stride: int) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self._pick(data, stride)).reshape(-1)

    def units(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(self._pick(values, 1)).reshape(-1)

    def _pick(self, data: NDArray[Any], per_unit: int) -> NDArray[Any]:
        if not data.size:  # entries of no coordinates have no units
            return data
        picked: NDArray[Any] = data.reshape(self._entries, self._per_entry * per_unit)[self._index]
        return picked


def concat(messages: Sequence[Encoded]) -> Encoded:
    """Join messages of rows along the first axis, without decoding.

    Parameters
    ----------
    messages : sequence of Encoded
        At least one; all of one codec, key, dtype, shared digest and trailing shape.

    Raises
    ------
    IncompatibleError
        If they differ in one of these.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    >>> enc = tersor.Eden(bits=2).encode(x, seed=1, axis=-1)
    >>> tersor.concat([enc[:2], enc[2:]]).to_bytes()[64:] == enc.to_bytes()[64:]
    True
    """
    if not messages:
        raise ValueError("concat needs at least one message")
    first = messages[0]
    first._check_rows()
    for other in messages[1:]:
        other._check_rows()
        check_compatible(first, other, rows=True)
    per_entry = math.prod(first.shape[1:-1])
    n_units = sum(m.shape[0] for m in messages) * per_entry
    planes = {
        name: replace(p, data=np.concatenate([m.planes[name].data for m in messages]), rows=n_units)
        for name, p in first.planes.items()
    }
    counts = [m.count for m in messages]
    count: int | NDArray[np.uint32] = counts[0]
    if any(isinstance(c, np.ndarray) or c != count for c in counts):
        count = np.concatenate([_per_unit(m, m.count, np.uint32) for m in messages])
    received = None
    if any(m.received is not None for m in messages):
        received = np.concatenate(
            [_per_unit(m, True if m.received is None else m.received, np.bool_) for m in messages]
        )
    shape = (sum(m.shape[0] for m in messages), *first.shape[1:])
    return replace(first, shape=shape, planes=planes, count=count, received=received, error=None)


def check_compatible(a: Encoded, b: Encoded, *, rows: bool = False) -> None:
    """Raise IncompatibleError unless two messages may be added (or, with `rows`, joined)."""
    pairs: list[tuple[str, Any, Any]] = [
        ("spec", a.spec, b.spec),
        ("key", a.key, b.key),
        ("shared statistics", a.digest, b.digest),
        ("dtype", a.dtype, b.dtype),
        ("axis", a.axis, b.axis),
    ]
    if rows:
        pairs += [("codec fields", a.fields, b.fields), ("shape after the first axis", a.shape[1:], b.shape[1:])]
    else:
        pairs += [("shape", a.shape, b.shape)]
    for name, x, y in pairs:
        if x != y:
            hint = _SAME.get(name, "")
            raise IncompatibleError(f"cannot combine messages with different {name}: {x!r} and {y!r}{hint}")


def check_encoded(enc: Any) -> None:
    """Raise TypeError, with what to do, unless `enc` is an Encoded."""
    if not isinstance(enc, Encoded):
        kind = type(enc).__name__
        hint = {"EncodedDict": "use its decode()", "ndarray": "encode the array first", "Tensor": "encode it first"}
        raise TypeError(f"expected an Encoded, got {kind}; {hint.get(kind, 'parse bytes with tersor.from_bytes')}")


def _per_unit(m: Encoded, value: Any, dtype: Any) -> NDArray[Any]:
    n = m.units.count
    return np.full(n, value, dtype) if np.ndim(value) == 0 else np.asarray(value, dtype)
