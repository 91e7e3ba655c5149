"""transpose: all-to-all of shards, the sum in float32 at each shard's owner, one more encoding, all-gather.

Two encodings on the way of every coordinate, whatever the number of ranks, and 2 (n - 1) / n messages a rank.
"""

from functools import partial
from itertools import pairwise

import numpy as np

from tersor import rng
from tersor.collectives.frames import agree, failed_frame
from tersor.collectives.link import Bytes
from tersor.collectives.reduce import F32, Round, attempt
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


def transpose(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity."""
    link, codec = state.link, state.codec
    ranges = shards(len(x), link.size, codec.unit)
    lengths = [stop - begin for begin, stop in ranges]
    parts, mine = _encode_parts(state, x, ranges, bad)
    begin, stop = ranges[link.rank]
    with state.trace.wiring():
        frames = link.all_to_all(parts, [state.frame_size(lengths[link.rank])] * link.size)
    if not agree(frames, mine, state.what):
        return frames

    def reduce_and_encode() -> bytes:
        total = np.zeros(stop - begin, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for data in frames:
                codec.decode(state.parse(data, len(total)), out=total, add=True, weight=state.weight)
        return codec.encode(
            total, seed=rng.mix64(state.seed, step=1), sender=link.size + link.rank, start=begin
        ).to_bytes()

    # All frames have the size of the largest, so that one all-gather moves them.
    size = max(state.frame_size(n) for n in lengths)
    with state.trace.coding():
        data, mine = attempt(reduce_and_encode, size, None)
        padded = failed_frame(size, int(data[0]))
        padded[: len(data)] = data
    with state.trace.wiring():
        frames = link.all_gather(padded)
    if not agree(frames, mine, state.what):
        return frames
    with state.trace.coding():
        messages = [state.parse(f[: state.frame_size(n)], n) for f, n in zip(frames, lengths, strict=True)]
        if state.own is not None:
            for data, (a, b) in zip(parts, ranges, strict=True):
                codec.decode(state.parse(data, b - a), out=state.own[a:b])
        # The owner, too, takes the decoded value that it sent, never its own exact sum.
        for enc, (a, b) in zip(messages, ranges, strict=True):
            codec.decode(enc, out=x[a:b])
    return None


def _encode_parts(
    state: Round, x: F32, ranges: list[tuple[int, int]], bad: NonFiniteError | None
) -> tuple[list[Bytes], BaseException | None]:
    parts: list[Bytes] = []
    mine: BaseException | None = bad
    with state.trace.coding():
        for a, b in ranges:
            make = partial(state.encode, x[a:b], state.link.rank, a, state.shared)
            part, error = attempt(make, state.frame_size(b - a), bad)
            parts.append(part)
            mine = mine or error
    if mine is not None and bad is None:
        # One shard failed: every peer must hear of it, not only that shard's owner.
        status = max(int(part[0]) for part in parts)
        parts = [failed_frame(len(part), status) for part in parts]
    return parts, mine
