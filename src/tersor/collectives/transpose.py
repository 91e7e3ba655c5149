"""transpose: all-to-all of shards, the sum at each shard's owner, one message of it to all.

Two encodings on the way of every coordinate, whatever the number of ranks, and 2 (n - 1) / n messages a rank. Where the
wire adds messages as integers (`sharded`), one encoding.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import overload

from tersor.collectives.frames import make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.wire import Wire
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
    state: Round,
    wire: Wire,
    ranges: Sequence[tuple[int, int]],
    make: Callable[[], bytes],
    x: F32,
    failed: Exception | None = None,
) -> bool:
    """Send the message of this rank's sum, which `make` returns, to all, and decode everybody's to `x`.

    Every rank, the owner too, takes the decoded values, never its own exact sum. `failed` is an earlier error of this
    rank, which the others know of. Returns False if a sum overflows; `x` is unchanged then.
    """
    sizes = [wire.frame_size(begin, stop, state.size) for begin, stop in ranges]
    # All frames have the size of the largest, so that one all-gather moves them.
    size = None if None in sizes else max(n for n in sizes if n is not None)
    with state.trace.coding():
        data, error = make_frame(make, size, state.rank)
    frames = state.all_gather(data, size)
    state.check(frames, failed or error)
    if nonfinite_ranks(frames):
        return False
    with state.trace.coding():
        wire.deliver([(state.opened(f), a, b) for f, (a, b) in zip(frames, ranges, strict=True) if a < b], x)
    return True


class _Parts(Sequence[Bytes]):
    """The frames for all ranks, each encoded when it is first asked for: a link sends one while the next is made."""

    def __init__(self, state: Round, wire: Wire, ranges: list[tuple[int, int]], bad: NonFiniteError | None) -> None:
        self._state, self._wire, self._ranges, self._bad = state, wire, ranges, bad
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
            begin, stop = self._ranges[j]
            with self._state.trace.coding():
                self._made[j], error = make_frame(
                    lambda: self._wire.own(begin, stop).message(),
                    self._wire.frame_size(begin, stop, 1),
                    self._state.rank,
                    self._bad,
                )
            self.error = self.error or error
        return self._made[j]


def transpose(state: Round, wire: Wire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity.

    If the sum overflows, an empty list.
    """
    ranges = shards(len(x), state.size, wire.unit)
    parts = _Parts(state, wire, ranges, bad)
    begin, stop = ranges[state.rank]
    size = wire.frame_size(begin, stop, 1)
    received = state.all_to_all(parts, None if size is None else [size] * state.size)
    # NaN or infinity is known before the first part is sent, so every peer hears of it and all stop here.
    if nonfinite_ranks(received):
        return received

    def reduce_and_encode() -> bytes:
        # Encoding may fail after some parts are gone: all ranks hear of it in the second exchange, and stop there.
        state.check(received, parts.error)
        return wire.total(begin, stop, [state.opened(f) for f in received], state.size).message(final=True)

    return None if gather_shards(state, wire, ranges, reduce_and_encode, x) else []
