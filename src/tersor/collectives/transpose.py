"""transpose: all-to-all of shards, the sum in float32 at each shard's owner, one more encoding, all-gather.

Two encodings on the way of every coordinate, whatever the number of ranks, and 2 (n - 1) / n messages a rank.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from tersor.collectives.frames import make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.reduce import F32, Round
from tersor.encoded import Encoded
from tersor.errors import NonFiniteError


def shards(size: int, ranks: int, unit: int | None) -> list[tuple[int, int]]:
    """Return each rank's range of coordinates, cut at whole units.

    Examples
    --------
    >>> shards(10_000, 4, 4096)
    [(0, 0), (0, 4096), (4096, 8192), (8192, 10000)]
    """
    step = unit or 1
    n_units = -(-size // step)
    edges = [min(n_units * i // ranks * step, size) for i in range(ranks + 1)]
    return list(pairwise(edges))


def gather_shards(
    state: Round, ranges: Sequence[tuple[int, int]], make: Callable[[], bytes], failed: Exception | None = None
) -> list[Encoded] | None:
    """Send the message of this rank's sum, which `make` returns, to all; return everybody's, or None if one overflows.

    Every rank, the owner too, must take the decoded values, never its own exact sum. `failed` is an earlier error of
    this rank, which the others know of.
    """
    lengths = [stop - begin for begin, stop in ranges]
    with state.trace.coding():
        # All frames have the size of the largest, so that one all-gather moves them.
        data, error = make_frame(make, max(map(state.frame_size, lengths)), state.link.rank)
    with state.trace.wiring():
        frames = state.link.all_gather(data)
    state.check(frames, failed or error)
    if nonfinite_ranks(frames):
        return None
    with state.trace.coding():
        return [state.parse(f, n) for f, n in zip(frames, lengths, strict=True)]


class _Parts(Sequence[Bytes]):
    """The frames for all ranks, each encoded when it is first asked for: a link sends one while the next is made."""

    def __init__(self, state: Round, x: F32, ranges: list[tuple[int, int]], bad: NonFiniteError | None) -> None:
        self._state, self._x, self._ranges, self._bad = state, x, ranges, bad
        self._made: dict[int, Bytes] = {}
        self.error: Exception | None = bad

    def __len__(self) -> int:
        return len(self._ranges)

    @overload
    def __getitem__(self, j: int) -> Bytes: ...
    @overload
    def __getitem__(self, j: slice) -> Sequence[Bytes]: ...
    def __getitem__(self, j: int | slice) -> Bytes | Sequence[Bytes]:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(len(self)))]
        if not 0 <= j < len(self):
            raise IndexError(j)
        if j not in self._made:
            state, (begin, stop) = self._state, self._ranges[j]
            with state.trace.coding():
                self._made[j], error = make_frame(
                    lambda: state.encode(self._x[begin:stop], state.link.rank, begin, state.shared),
                    state.frame_size(stop - begin),
                    state.link.rank,
                    self._bad,
                )
            self.error = self.error or error
        return self._made[j]


def transpose(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity.

    If the sum overflows, an empty list.
    """
    link, codec = state.link, state.codec
    ranges = shards(len(x), link.size, codec.unit)
    lengths = [stop - begin for begin, stop in ranges]
    parts = _Parts(state, x, ranges, bad)
    begin = ranges[link.rank][0]
    with state.trace.wiring():
        received = link.all_to_all(parts, [state.frame_size(lengths[link.rank])] * link.size)
    # NaN or infinity is known before the first part is sent, so every peer hears of it and all stop here.
    if nonfinite_ranks(received):
        return received

    def reduce_and_encode() -> bytes:
        # Encoding may fail after some parts are gone: all ranks hear of it in the second exchange, and stop there.
        state.check(received, parts.error)
        total = np.zeros(lengths[link.rank], np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            messages = [state.parse(data, len(total)) for data in received]
            codec.accumulate(messages, codec.units(total.shape, None), total, [state.weight] * len(messages))
        return state.encode(total, link.size + link.rank, begin, step=1)

    messages = gather_shards(state, ranges, reduce_and_encode)
    if messages is None:
        return []
    with state.trace.coding():
        if state.own is not None:
            for data, (a, b) in zip(parts, ranges, strict=True):
                codec.decode(state.parse(data, b - a), out=state.own[a:b])
        for enc, (a, b) in zip(messages, ranges, strict=True):
            codec.decode(enc, out=x[a:b])
    return None
