"""ring: every shard travels once around, each rank adds its part and encodes the sum anew; then an all-gather.

While it sums, every rank talks to its two neighbours only. It sends 2 (n - 1) / n messages, like transpose, but n
encodings lie on the way of every coordinate. With unbiased codecs of error m, n equal vectors arrive with the error
E(n) / n**2, where E(k) = E(k - 1) + m (k**2 + E(k - 1)) and E(0) = 0.
"""

from functools import partial

import numpy as np

from tersor.collectives.frames import STATUS_SIZE, check, make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.reduce import F32, Round
from tersor.collectives.transpose import gather_shards, shards
from tersor.errors import NonFiniteError
from tersor.message import from_bytes


def ring(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity.

    If the sum overflows, an empty list.
    """
    link, codec = state.link, state.codec
    ranges = shards(len(x), link.size, codec.unit)
    lengths = [stop - begin for begin, stop in ranges]
    status, failed = make_frame(lambda: b"", STATUS_SIZE, link.rank, bad)
    with state.trace.wiring():
        frames = link.all_gather(status)
    state.check(frames, failed)
    if nonfinite_ranks(frames):
        return frames
    following, preceding = (link.rank + 1) % link.size, (link.rank - 1) % link.size
    own = None if state.own is None else x.copy()

    def add_and_encode(received: Bytes | None, shard: int, hop: int) -> bytes:
        begin, stop = ranges[shard]
        with np.errstate(over="ignore", invalid="ignore"):
            total = x[begin:stop] * np.float32(state.weight)
            if received is not None:
                # A failure travels on with its shard: its owner tells everybody.
                check([received], None, state.what)
                if nonfinite_ranks([received]):
                    raise NonFiniteError(f"{state.what}: the sum overflows float32", begin)
                enc = state.parse(received, len(total))
                codec.accumulate([enc], codec.units(total.shape, None), total, [1.0])
        if hop == link.size - 1:
            return state.encode(total, link.size + link.rank, begin, step=hop)
        message = state.encode(total, link.rank, begin, step=hop)
        if own is not None:
            # What this rank's own rounding of the sum lost is its part of the error.
            lost = total - codec.decode(from_bytes(message))
            own[begin:stop] -= lost / np.float32(state.weight)
        return message

    received: Bytes | None = None
    for hop in range(link.size - 1):
        shard = (link.rank - 1 - hop) % link.size
        with state.trace.coding():
            make = partial(add_and_encode, received, shard, hop)
            data, error = make_frame(make, state.frame_size(lengths[shard]), link.rank)
        failed = failed or error
        with state.trace.wiring():
            received = link.exchange(data, following, preceding, state.frame_size(lengths[shard - 1]))
    messages = gather_shards(state, ranges, partial(add_and_encode, received, link.rank, link.size - 1), failed)
    if messages is None:
        return []
    with state.trace.coding():
        for enc, (begin, stop) in zip(messages, ranges, strict=True):
            codec.decode(enc, out=x[begin:stop])
        if state.own is not None and own is not None:
            state.own[:] = own
    return None
