"""butterfly: in every step two ranks at twice the distance swap halves of what they hold; then an all-gather.

Recursive halving: log2(n) steps and as many encodings on the way of a coordinate, and one of the sum. Where n is no
power of two, the ranks beyond it first hand their vectors to one below, and get the sum like all others at the end.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tersor.collectives.frames import STATUS_SIZE, make_frame
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.transpose import gather_shards, shards
from tersor.collectives.wire import Partial, Wire
from tersor.errors import FormatError, NonFiniteError


def butterfly(state: Round, wire: Wire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x`, fit on all ranks, over them in place; returns an empty list instead if the sum overflows."""
    rank, size = state.rank, state.size
    pairs = 1 << (size.bit_length() - 1)  # the ranks that take part in the steps
    ranges = shards(len(x), pairs, wire.unit)
    counts = [1 + (r + pairs < size) for r in range(pairs)]  # of vectors in what a rank holds
    nothing = np.zeros(0, np.uint8)
    no_size = None if wire.size(0, 0, 1) is None else 0
    failed: Exception | None = None
    parts: list[Partial] = []

    def swap(given: range, count: int, peer: int, kept: range, kept_count: int) -> None:
        """Send the shards `given`, of `count` vectors, to a peer, and add what it sends."""
        nonlocal failed

        def messages() -> bytes:
            if failed:
                raise failed
            return b"".join(_padded(parts[i].message()) for i in given)

        data = nothing
        if given:
            with state.trace.coding():
                data, error = make_frame(messages, _size(wire, ranges, given, count), rank)
            failed = failed or error
        received = state.exchange(data, peer, peer, _size(wire, ranges, kept, kept_count) if kept else no_size)
        if not kept or failed:
            return
        try:
            with state.trace.coding():
                for i, message in zip(kept, _split(state.opened(received)), strict=True):
                    parts[i].add(message, kept_count)
        except Exception as error:
            failed = error

    try:
        with state.trace.coding():
            parts.extend(wire.own(*r) for r in ranges)
    except Exception as error:
        failed = error
    everything, none = range(pairs), range(0)
    if rank >= pairs:
        swap(everything, 1, rank - pairs, none, 0)
    elif rank + pairs < size:
        swap(none, 0, rank + pairs, everything, 1)
    elif size > pairs:
        state.exchange(nothing, rank, rank, no_size)
    first, stop, distance = 0, pairs, pairs // 2
    while distance:
        if rank >= pairs:
            state.exchange(nothing, rank, rank, no_size)
        else:
            peer, middle = rank ^ distance, (first + stop) // 2
            low, high = range(first, middle), range(middle, stop)
            kept, given = (high, low) if rank & distance else (low, high)
            swap(given, counts[rank], peer, kept, counts[peer])
            first, stop = kept.start, kept.stop
        counts = [counts[r] + counts[r ^ distance] for r in range(pairs)]
        distance //= 2

    def final() -> bytes:
        if failed:
            raise failed
        return parts[rank].message(final=True) if rank < pairs else b""

    all_ranges = [*ranges, *[(0, 0)] * (size - pairs)]
    return None if gather_shards(state, wire, all_ranges, final, x, failed) else []


def _padded(message: bytes) -> bytes:
    """Return a message with its length in front, filled up to whole words."""
    return len(message).to_bytes(8, "little") + message + bytes(-len(message) % 8)


def _split(joined: Bytes) -> Iterator[Bytes]:
    while len(joined):
        size = int(joined[:8].view("<u8")[0])
        if size > len(joined) - 8:
            raise FormatError("a frame of several messages ends too early")
        yield joined[8 : 8 + size]
        joined = joined[8 + size + -size % 8 :]


def _size(wire: Wire, ranges: Sequence[tuple[int, int]], which: range, count: int) -> int | None:
    sizes = [wire.size(begin, stop, count) for begin, stop in (ranges[i] for i in which)]
    return None if None in sizes else STATUS_SIZE + sum(8 + n + -n % 8 for n in sizes if n is not None)
