"""Means of many messages: added while encoded where the codec can, else decoded and added one by one."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import arrays
from tersor.encoded import Encoded, check_compatible, check_encoded
from tersor.errors import IncompatibleError


class Mean:
    """A streaming weighted mean of messages of one shape; they may come from different codecs.

    A unit that did not arrive counts in neither sum nor weight; one that nobody sent gives 0. A message that is
    itself a sum of k counts k times.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    >>> acc = tersor.Mean()
    >>> for i in range(4):
    ...     acc.add(tersor.Eden(bits=2).encode(x, seed=1, sender=i))
    >>> tersor.nmse(x, acc.value()) < 0.05
    True
    """

    def __init__(self) -> None:
        self._first: Encoded | None = None
        self._sum: NDArray[Any] = np.zeros(0)
        self._weight: float | NDArray[np.float64] = 0.0

    def add(self, enc: Encoded, weight: float = 1.0) -> None:
        """Add a message.

        Parameters
        ----------
        enc : Encoded
            Of the shape and dtype of those before it.
        weight : float, default 1.0
            Not negative.

        Raises
        ------
        IncompatibleError
            If shape or dtype differ; nothing is changed then.
        """
        if not np.isfinite(weight) or weight < 0:
            raise ValueError(f"a weight must be finite and not negative, got {weight}")
        check_encoded(enc)
        codec = enc.codec
        if self._first is None:
            total = np.zeros(enc.size, codec.accumulator(enc.dtype))
        elif (enc.shape, enc.dtype) != (self._first.shape, self._first.dtype):
            raise IncompatibleError(
                f"the mean has {self._first.shape} {self._first.dtype}, the message {enc.shape} {enc.dtype}"
            )
        else:
            total = self._sum
        units = codec.units(enc.shape, enc.axis)
        kind = codec.accumulator(enc.dtype)
        if isinstance(enc.count, int) and enc.received is None:
            factor = weight * enc.count
            share: float | NDArray[np.float64] = factor
            if total.dtype == kind:
                codec.estimate(enc, units, total, True, factor, None)
            else:
                part = np.empty(enc.size, kind)
                codec.estimate(enc, units, part, False, factor, None)
                total += part.astype(total.dtype)
        else:
            counts = np.broadcast_to(np.asarray(enc.count, np.float64), (units.count,)).copy()
            if enc.received is not None:
                counts[~enc.received] = 0
            share = np.repeat(weight * counts, units.length)[: units.size]
            part = np.empty(enc.size, kind)
            codec.estimate(enc, units, part, False, 1.0, enc.received)
            total += (part * share).astype(total.dtype)
        self._sum, self._weight = total, self._weight + share
        self._first = enc if self._first is None else self._first

    def _add_all(self, messages: list[Encoded], weights: list[float]) -> None:
        """Add to an empty mean what `_at_once` allows: the sums of `add`, in one call."""
        first = messages[0]
        codec = first.codec
        factors = [weight * _whole(enc) for enc, weight in zip(messages, weights, strict=True)]
        total = np.zeros(first.size, codec.accumulator(first.dtype))
        codec.accumulate(messages, codec.units(first.shape, first.axis), total, factors)
        self._first, self._sum = first, total
        for factor in factors:  # not sum(), which compensates from Python 3.12 on
            self._weight += factor

    def value(self, like: Any = None) -> Any:
        """Return the mean so far, with shape, dtype and framework of the first message (framework of `like`).

        Raises
        ------
        ValueError
            If nothing was added, or only weights of 0.
        """
        first = self._first
        if first is None or (np.ndim(self._weight) == 0 and not self._weight):
            raise ValueError("the mean of nothing: add at least one message with a weight above 0")
        weight = np.asarray(self._weight)
        divided = self._sum / np.where(weight > 0, weight, 1).astype(self._sum.dtype)
        origin = first.origin if like is None else arrays.origin_of(like)
        return arrays.from_host(divided, first.shape, first.dtype, origin)


def mean(messages: Iterable[Encoded], weights: Sequence[float] | None = None, *, like: Any = None) -> Any:
    """Return the (weighted) mean of messages of one shape.

    Parameters
    ----------
    messages : iterable of Encoded
        At least one. Additive ones that share their statistics are added as integers and decoded once.
    weights : sequence of float, optional
        One a message; the mean divides by their sum.
    like : array, optional
        Gives the framework and device of the result.

    Raises
    ------
    ValueError
        If there is no message, or the number of weights differs.
    IncompatibleError
        If the shapes or dtypes differ.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    >>> sent = [tersor.Eden(bits=2).encode(x, seed=1, sender=i) for i in range(10)]
    >>> round(tersor.nmse(x, tersor.mean(sent)), 3)  # 0.133 / 10
    0.013
    """
    if isinstance(messages, Encoded):
        raise TypeError("mean wants an iterable of messages, got one Encoded; pass a list")
    listed = list(messages)
    for enc in listed:
        check_encoded(enc)
    if weights is not None and len(weights) != len(listed):
        raise ValueError(f"{len(listed)} messages need as many weights, got {len(weights)}")
    if weights is None and len(listed) > 1 and _addable(listed):
        total = listed[0]
        codec = total.codec
        for enc in listed[1:]:
            total = codec.add(total, enc)
        return codec.decode(total, like=like)
    acc = Mean()
    # Only ratios matter; a power of two changes no bit of the result and keeps sums in range.
    unit = 1.0 if weights is None else 2.0 ** math.frexp(math.fsum(weights))[1]
    factors = [1.0] * len(listed) if weights is None else [float(w) / unit for w in weights]
    if _at_once(listed, factors):
        acc._add_all(listed, factors)
        return acc.value(like)
    for enc, factor in zip(listed, factors, strict=True):
        acc.add(enc, factor)
    return acc.value(like)


def _addable(messages: list[Encoded]) -> bool:
    first = messages[0]
    if not first.codec.claims.additive or not first.digest:
        return False
    try:
        for enc in messages[1:]:
            check_compatible(first, enc)
    except IncompatibleError:
        return False
    return True


def _whole(enc: Encoded) -> int:
    """Return the count of a message all of whose units have it and arrived, else 0."""
    return enc.count if isinstance(enc.count, int) and enc.received is None else 0


def _at_once(messages: list[Encoded], weights: list[float]) -> bool:
    """Whether messages are whole, and of one codec, shape and dtype; what `Mean.add` refuses is left to it."""
    kinds = {(enc.spec, enc.shape, enc.dtype, enc.axis) for enc in messages}
    return len(kinds) == 1 and all(map(_whole, messages)) and all(np.isfinite(w) and w >= 0 for w in weights)
