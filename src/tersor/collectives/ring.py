"""ring: every shard travels once around, each rank adds its part and sends the sum on; then an all-gather.

While it sums, every rank talks to its two neighbours only. It sends 2 (n - 1) / n messages, like transpose, but n
encodings lie on the way of every coordinate. With unbiased codecs of error m, n equal vectors arrive with the error
E(n) / n**2, where E(k) = E(k - 1) + m (k**2 + E(k - 1)) and E(0) = 0. Where the wire adds messages as integers, there
is one encoding, and messages grow.
"""

from functools import partial

from tersor.collectives.frames import make_frame
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.transpose import gather_shards, shards
from tersor.collectives.wire import Wire
from tersor.errors import NonFiniteError


def ring(state: Round, wire: Wire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x`, fit on all ranks, over them in place; returns an empty list instead if the sum overflows."""
    ranges = shards(len(x), state.size, wire.unit)
    following, preceding = (state.rank + 1) % state.size, (state.rank - 1) % state.size

    def add_and_encode(received: Bytes | None, shard: int, hop: int) -> bytes:
        part = wire.own(*ranges[shard])
        if received is not None:
            # A failure travels on with its shard: its owner tells everybody.
            part.add(state.opened(received), hop)
        return part.message(final=hop == state.size - 1)

    failed: Exception | None = None
    received: Bytes | None = None
    for hop in range(state.size - 1):
        shard = (state.rank - 1 - hop) % state.size
        with state.trace.coding():
            make = partial(add_and_encode, received, shard, hop)
            data, error = make_frame(make, wire.frame_size(*ranges[shard], hop + 1), state.rank)
        failed = failed or error
        received = state.exchange(data, following, preceding, wire.frame_size(*ranges[shard - 1], hop + 1))
    make = partial(add_and_encode, received, state.rank, state.size - 1)
    return None if gather_shards(state, wire, ranges, make, x, failed) else []
