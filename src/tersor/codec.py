"""Codec: the one idea - a frozen dataclass that turns an array into an Encoded and back, and claims what it keeps."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor import arrays, rng
from tersor.encoded import Encoded, PlaneSpec, check_encoded
from tersor.errors import IncompatibleError, NonFiniteError, TersorError
from tersor.shared import Shared
from tersor.specs import Value, format_spec
from tersor.units import Units, check_axis

_MASK64 = (1 << 64) - 1
_MAX_POSITION = 1 << 63


@dataclass(frozen=True)
class Claims:
    """What a codec guarantees; one conformance suite tests every line of it.

    Attributes
    ----------
    unbiased : bool
        The expectation of the estimate is the input.
    additive : bool
        Messages that share statistics can be added without decoding.
    fixed_size : bool
        The size of a message follows from spec, shape and dtype alone.
    row_addressable : bool
        With `axis=-1`, rows can be sliced, taken and joined as bytes.
    tolerates_loss : bool
        Units that did not arrive leave the others decodable.
    shared_rotation : bool
        Sharing one rotation key costs nothing: the mean of many senders is as good as with a key each.
    rounds_to_nearest : bool
        Biased only by rounding each coordinate to a fine grid; training needs no error feedback.
    error_law : str
        vNMSE as a formula, or what bounds it.
    """

    unbiased: bool = False
    additive: bool = False
    fixed_size: bool = True
    row_addressable: bool = False
    tolerates_loss: bool = False
    shared_rotation: bool = False
    rounds_to_nearest: bool = False
    error_law: str = ""


@dataclass(frozen=True)
class Job:
    """One array on its way through `Codec._encode`."""

    host: arrays.Host
    units: Units
    key: int
    private: int
    sender: int
    start: int
    shared: Shared | None
    propagate: bool

    @property
    def word(self) -> int:
        """The word of private rounding of coordinate 0 (FORMAT.md section 2)."""
        return self.start * self.units.length if self.units.by_rows else self.start


@dataclass(frozen=True)
class Made:
    """What `Codec._encode` returns: the planes' bytes, further fields, the error and the first bad index."""

    planes: dict[str, NDArray[np.uint8]]
    fields: bytes = b""
    error: float | None = None
    first_bad: int = -1


@dataclass(frozen=True)
class Codec:
    """Base of all codecs. A subclass sets `name` and `claims` and fills `layout`, `_encode` and `_decode`.

    Codecs are immutable and thread-safe. CONTRIBUTING.md shows how to add one.
    """

    name: ClassVar[str] = ""
    claims: ClassVar[Claims] = Claims()
    fields_size: ClassVar[int] = 0
    examples: ClassVar[tuple[str, ...]] = ()  # specs worth comparing; where none, several widths of the first field

    @property
    def loss_inside_units(self) -> bool:
        """Whether `decode` takes flags of shape (units, pieces): a unit of which only a part arrived still counts."""
        return False

    # What a subclass provides.

    @property
    def unit(self) -> int | None:
        """Coordinates of a unit of a long vector; None if the vector is one unit."""
        return None

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        """Return the planes of a message, in wire order, with their exact sizes.

        Where sizes depend on the data, `fields` hold them; what `fields` from the wire could not mean is a FormatError.
        """
        raise NotImplementedError

    def largest_fields(self, units: Units) -> bytes:
        """Return the fields of the largest message that these units can give."""
        return bytes(self.fields_size)

    def sum_fields(self, count: int) -> bytes:
        """Return fields that give the layout of a sum of `count` messages (additive codecs only).

        Raises
        ------
        RangeError
            If such a sum could leave the integer range.
        """
        raise TersorError(f"{self.name} is not additive")

    def _encode(self, job: Job) -> Made:
        raise NotImplementedError

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        """Write ``weight * estimate`` to the flat `out`, or add it; units not `present` count as zeros.

        With `loss_inside_units`, `present` may have the shape (units, pieces).
        """
        raise NotImplementedError

    def validate(self, enc: Encoded) -> None:
        """Raise FormatError if a message, as parsed, holds what no encoder writes."""

    def accumulator(self, dtype: str) -> type[np.floating[Any]]:
        """Return the NumPy type in which estimates of arrays of `dtype` are made."""
        return np.float32

    # The contract.

    @cached_property
    def spec(self) -> str:
        """The shortest spec string that gives this codec."""
        return format_spec(self)

    @property
    def config(self) -> dict[str, Value]:
        """Name and fields, JSON-able; `get_codec` takes it back."""
        return {"name": self.name, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}}

    def units(self, shape: tuple[int, ...], axis: int | None) -> Units:
        """Return how an array of `shape` falls into units."""
        return Units.of(shape, axis, self.unit)

    def starts_at(self, start: int, units: Units) -> bool:
        """Say whether an array may begin at `start`: at a block or row, with all its random positions below 2**63."""
        ahead = start * units.length if units.by_rows else start
        return start >= 0 and ahead + units.size <= _MAX_POSITION and (units.by_rows or start % (self.unit or 1) == 0)

    def nbytes(self, shape: tuple[int, ...], dtype: Any = "float32", axis: int | None = None, count: int = 1) -> int:
        """Return the size of a message before it is encoded: exact if `claims.fixed_size`, else an upper bound.

        Parameters
        ----------
        shape : tuple of int
            Of the array.
        dtype : str or dtype, default "float32"
            Its dtype: a name, or that of a NumPy or torch array.
        axis : None or -1
            One vector, or rows.
        count : int, default 1
            Size of the sum of so many messages (additive codecs only).

        Examples
        --------
        >>> import tersor
        >>> tersor.get_codec("eden:4").nbytes((4096,)) * 8 / 4096
        4.205078125
        """
        from tersor.message import message_size

        units = self.units(shape, check_axis(axis, len(shape)))
        fields = self.largest_fields(units) if count <= 1 else self.sum_fields(count)
        layout = self.layout(units, arrays.checked_dtype(dtype), fields)
        return message_size(self.spec, len(shape), self.fields_size, [p.nbytes for p in layout.values()])

    def expected_error(self, received: float = 1.0) -> float | None:
        """Return the vNMSE that the codec's law gives in high dimension, or None if it depends on the input.

        Parameters
        ----------
        received : float, default 1.0
            Fraction that arrives: of the units, where lost ones count as zeros; with `loss_inside_units` of the
            coordinates of each unit, decoded as `decode` does with flags of shape (units, pieces).
        """
        return None

    def measure(self, x: Any, *, axis: int | None = None) -> NDArray[np.float32] | None:
        """Return the small statistics that senders must agree on first, shape (k,), or None if there are none.

        `axis` is that of `encode`. Parts of an array (`start`) are encoded with the statistics of the whole.
        """
        return None

    def stats_size(self, shape: tuple[int, ...], axis: int | None = None) -> int:
        """Return how many numbers `measure` gives for an array of `shape`; 0 if the codec has none."""
        return 0

    def merge(self, stats: NDArray[np.float32] | None, *, key: int | None = None) -> Shared:
        """Merge the senders' statistics; done once at one owner and sent out.

        Parameters
        ----------
        stats : ndarray of float32, shape (n, k), or None
            One row a sender.
        key : int, optional
            Rotation key; drawn from the operating system if absent.
        """
        return Shared(rng.fresh_seed() if key is None else key & _MASK64)

    def encode(
        self,
        x: Any,
        *,
        seed: int | None = None,
        sender: int = 0,
        shared: Shared | None = None,
        axis: int | None = None,
        start: int = 0,
        nonfinite: str = "raise",
    ) -> Encoded:
        """Encode an array.

        Parameters
        ----------
        x : array
            NumPy array or torch tensor, any shape and strides; float32, float64, float16 or bfloat16. Not modified.
        seed : int, optional
            Keys every random choice; 64 bits from the operating system if absent. Same seed, same bytes.
        sender : int, default 0
            Senders of one seed draw independently of one another.
        shared : Shared, optional
            What the senders agreed on (`measure`, `merge`); its key replaces the seed where receivers repeat draws.
        axis : None or -1
            None: one vector, cut into blocks. -1: every row is a unit with a scale of its own.
        start : int, default 0
            Where `x` begins in a larger array: coordinates (a multiple of the block), or rows. Encoding parts with
            their starts gives the bytes of the whole.
        nonfinite : {"raise", "propagate"}
            NaN or infinity raises, or becomes NaN in the units that hold it.

        Returns
        -------
        Encoded

        Raises
        ------
        TypeError
            If `x` is not an array of floats.
        NonFiniteError
            If `x` holds NaN or infinity and `nonfinite` is "raise".
        RangeError
            If a scale does not fit in its dtype.

        Examples
        --------
        >>> import numpy as np, tersor
        >>> x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
        >>> enc = tersor.Eden(bits=4).encode(x, seed=7)
        >>> round(tersor.nmse(x, tersor.decode(enc)), 3)
        0.009
        """
        if nonfinite not in ("raise", "propagate"):
            raise ValueError(f'nonfinite must be "raise" or "propagate", got {nonfinite!r}')
        host, shape = arrays.to_host(x)
        axis = check_axis(axis, len(shape))
        units = self.units(shape, axis)
        if not self.starts_at(start, units):
            raise ValueError(f"start must be a multiple of the block ({self.unit or 1}) and not negative, got {start}")
        seed = rng.fresh_seed() if seed is None else int(seed) & _MASK64
        private = rng.mix64(seed, sender=sender)
        key = shared.key if shared else seed if sender == 0 else private
        made = self._encode(Job(host, units, key, private, sender, start, shared, nonfinite == "propagate"))
        if made.first_bad >= 0 and nonfinite == "raise":
            where = tuple(int(i) for i in np.unravel_index(made.first_bad, shape or (1,)))
            value = host.value(made.first_bad)
            raise NonFiniteError(
                f"x[{', '.join(map(str, where))}] is {value}; clean the array, or pass nonfinite='propagate'",
                made.first_bad,
            )
        layout = self.layout(units, host.dtype, made.fields)
        return Encoded(
            spec=self.spec,
            shape=shape,
            dtype=host.dtype,
            axis=axis,
            key=key,
            planes={name: spec.fill(made.planes[name]) for name, spec in layout.items()},
            start=start,
            digest=shared.digest if shared else 0,
            error=made.error,
            fields=made.fields,
            origin=arrays.origin_of(x),
        )

    def decode(
        self,
        enc: Encoded,
        *,
        out: Any = None,
        add: bool = False,
        weight: float = 1.0,
        received: Any = None,
        like: Any = None,
    ) -> Any:
        """Decode a message to an array of its shape and dtype.

        Parameters
        ----------
        enc : Encoded
            A message of this codec.
        out : array, optional
            Written in place and returned; of the message's shape.
        add : bool, default False
            Add to `out` instead.
        weight : float, default 1.0
            Factor of the estimate.
        received : array of bool, or sequence of (start, stop), optional
            Which units arrived, as flags or ranges of units. Others decode to 0. Codecs with `loss_inside_units` also
            take shape (units, pieces): which of the equal runs, but for the last, of a unit's rotated coordinates
            arrived. Lost ones count as zeros, and an unbiased estimate is divided by the share that arrived.
        like : array, optional
            Gives the framework and device of the result; default: those of the array that was encoded.

        Returns
        -------
        array
            The estimate; for a sum of messages their mean, each unit divided by its own count.

        Raises
        ------
        IncompatibleError
            If the message is another codec's, or `out` does not fit.
        """
        check_encoded(enc)
        if enc.spec != self.spec:
            raise IncompatibleError(f"this is a message of {enc.spec}, not of {self.spec}; use tersor.decode(enc)")
        if add and out is None:
            raise ValueError("add=True needs out")
        units = self.units(enc.shape, enc.axis)
        present = merge_received(enc, received, units.count, self.loss_inside_units)
        kind = self.accumulator(enc.dtype)
        if out is None:
            flat = np.empty(units.size, kind)
            self.estimate(enc, units, flat, False, weight, present)
            return arrays.from_host(flat, enc.shape, enc.dtype, enc.origin if like is None else arrays.origin_of(like))
        if not hasattr(out, "shape"):
            raise TypeError(f"out must be a NumPy array or a torch tensor, got {type(out).__name__}")
        if tuple(out.shape) != enc.shape:
            raise IncompatibleError(f"out has shape {tuple(out.shape)}, the message {enc.shape}")
        direct = isinstance(out, np.ndarray) and out.dtype == kind and out.flags.c_contiguous and out.flags.writeable
        if direct:
            self.estimate(enc, units, out.reshape(-1), add, weight, present)
        else:
            flat = np.empty(units.size, kind)
            self.estimate(enc, units, flat, False, weight, present)
            values = arrays.from_host(flat, enc.shape, arrays.dtype_name(out), arrays.origin_of(out))
            arrays.assign(out, values, add)
        return out

    def add(self, a: Encoded, b: Encoded) -> Encoded:
        """Add two messages without decoding (additive codecs only).

        Raises
        ------
        TersorError
            If the codec is not additive.
        IncompatibleError
            If the messages differ in spec, key, shared statistics or shape.
        RangeError
            If the sum could leave the integer range.
        """
        raise TersorError(f"{self.name} is not additive; decode and add, or use tersor.mean")

    def saturated(self, enc: Encoded) -> int:
        """Return how many coordinates of a sum were clamped on its way."""
        return 0

    def add_all(self, messages: Sequence[Encoded]) -> Encoded:
        """Add messages without decoding, one after the other; errors as for `add`."""
        return reduce(self.add, messages)

    def estimate(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        """Do as `_decode`, but let what overflows saturate: an estimate of finite values is finite."""
        if not self._may_overflow(enc):
            self._decode(enc, units, out, add, weight, present)
            return
        part = np.empty_like(out) if add else out
        self._decode(enc, units, part, False, weight, present)
        limit = np.finfo(part.dtype).max
        np.clip(part, -limit, limit, out=part)
        if add:
            out += part

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        """Add the weighted estimates of messages of one shape to `out`, one after the other."""
        for enc, weight in zip(messages, weights, strict=True):
            self.estimate(enc, units, out, True, weight, enc.received)

    def _may_overflow(self, enc: Encoded) -> bool:
        """Say whether a message of finite values may decode to infinity unless it is clipped."""
        return False


def merge_received(enc: Encoded, received: Any, n_units: int, inside: bool = False) -> NDArray[np.bool_] | None:
    """Return which units (with `inside`: pieces of units) arrived: the message's own flags and the caller's, None: all.

    Raises
    ------
    ValueError
        If `received` has the wrong length, or a range lies outside the units.
    """
    present = enc.received
    if received is None:
        return present
    given = np.asarray(received)
    if given.dtype == np.bool_ and given.ndim == 2:
        if not inside:
            raise ValueError(f"received: {enc.spec} has no pieces of units, expected one flag a unit")
        if len(given) != n_units or not given.shape[1]:
            raise ValueError(f"received: expected flags of shape ({n_units}, pieces), got {given.shape}")
        return given if present is None else given & present[:, None]
    if given.dtype != np.bool_ or given.ndim != 1:
        flags = np.zeros(n_units, np.bool_)
        for begin, stop in _ranges(received):
            if not 0 <= begin <= stop <= n_units:
                raise ValueError(f"received: the range {begin}:{stop} is not within {n_units} units")
            flags[begin:stop] = True
        given = flags
    if len(given) != n_units:
        raise ValueError(f"received: expected {n_units} flags, one a unit, got {len(given)}")
    return given if present is None else given & present


def _ranges(received: Any) -> list[tuple[int, int]]:
    try:
        return [(begin, stop) for begin, stop in received]
    except (TypeError, ValueError) as error:
        raise TypeError("received must be an array of bool, one a unit, or ranges (start, stop) of units") from error
