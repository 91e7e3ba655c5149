"""votes: signs of all ranks, packed, added at the owners of shards, and the majority or the sum of them sent to all.

Bo Liu, Lemeng Wu, Lizhang Chen, Kaizhao Liang, Jiaxu Zhu, Chen Liang, Raghuraman Krishnamoorthi, Qiang Liu:
"Communication Efficient Distributed Training with Distributed Lion", NeurIPS 2024, arXiv 2404.00438. Zeros are votes
for neither side.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.coding.bits import pack, packed_size, unpack
from tersor.collectives.frames import STATUS_SIZE, make_frame, nonfinite_ranks, payload
from tersor.collectives.link import Link
from tersor.collectives.round import Round
from tersor.collectives.transpose import shards
from tersor.errors import FormatError, NonFiniteError

Signs = NDArray[np.int8]
RULES = ("majority", "average")
TIES = ("zero", "coin")


def vote(
    link: Link,
    signs: Signs,
    *,
    rule: str = "majority",
    ties: str = "zero",
    seed: int = 0,
    bad: NonFiniteError | None = None,
    what: str = "vote",
) -> NDArray[np.int32]:
    """Return the sign of the sum of all ranks' signs, or the sum, the same on all ranks.

    Without zeros a vote takes one bit, otherwise two; a result as many as it has values: one bit for a majority without
    ties, ceil(log2(n + 1)) for the sum of n ranks without zeros.

    Parameters
    ----------
    link : Link
        This rank's end of the group.
    signs : ndarray of int8, shape (d,)
        -1, 0 or 1.
    rule : {"majority", "average"}
        The sign of the sum, or the sum itself, which is n times the average.
    ties : {"zero", "coin"}
        What the majority of a sum of 0 is: 0, or a coin that all ranks throw alike, keyed by `seed`.
    bad : NonFiniteError, optional
        This rank has nothing fit to vote for: all ranks raise.

    Raises
    ------
    NonFiniteError
        On all ranks, if one has passed `bad`.
    RemoteError
        If another rank failed.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from tersor.collectives import LocalLink
    >>> votes = np.array([[1, 1, 0, -1], [1, -1, 0, -1]], np.int8)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     print(list(pool.map(lambda link: vote(link, votes[link.rank]).tolist(), LocalLink.group(2))))
    [[1, 0, 0, -1], [1, 0, 0, -1]]
    """
    if rule not in RULES or ties not in TIES:
        raise ValueError(f"rule must be one of {RULES} and ties one of {TIES}, got {rule!r} and {ties!r}")
    state = Round(link, seed, 1.0, what)
    try:
        return _vote(state, signs, rule, ties, bad)
    except BaseException:
        if not state.agreed:
            link.close()
        raise


def _vote(state: Round, signs: Signs, rule: str, ties: str, bad: NonFiniteError | None) -> NDArray[np.int32]:
    # Whether anybody votes for neither side decides how wide votes are.
    data, failed = make_frame(lambda: bytes([not signs.all()]), STATUS_SIZE + 8, state.rank, bad)
    frames = state.all_gather(data, len(data))
    state.check(frames, failed)
    if nonfinite_ranks(frames):
        state.agreed = True
        raise NonFiniteError(f"{state.what}: NaN or infinity on ranks {nonfinite_ranks(frames)}; nothing was changed")
    zeros = any(payload(f, 1)[0] for f in frames)
    ranges = shards(len(signs), state.size, 8)
    lengths = [stop - begin for begin, stop in ranges]
    width, step = (2, 1) if zeros else (1, 2)  # votes are -1, 1 or -1, 0, 1; (vote + 1) / step is the code
    first: Exception | None = None
    parts = []
    for begin, stop in ranges:
        make = partial(_packed, signs[begin:stop].astype(np.int32) + 1, step, width)
        part, error = make_frame(make, STATUS_SIZE + packed_size(stop - begin, width), state.rank)
        parts.append(part)
        first = first or error
    mine = lengths[state.rank]
    received = state.all_to_all(parts, [STATUS_SIZE + packed_size(mine, width)] * state.size)
    low, high, gap = _values(rule, ties, state.size, zeros)
    out_width = max((high - low) // gap, 1).bit_length()

    def count() -> bytes:
        total = np.zeros(mine, np.int32)
        for frame in received:
            total += _unpacked(state.opened(frame), mine, width, 2 // step) * step - 1
        if rule == "majority":
            if ties == "coin":
                coins = rng.words(state.seed, rng.SIGNS, 0, ranges[state.rank][0], mine)
                total[total == 0] = (1 - 2 * (coins & np.uint32(1)).astype(np.int32))[total == 0]
            total = np.sign(total)
        return _packed(total - low, gap, out_width)

    size = STATUS_SIZE + packed_size(max(lengths), out_width)
    answer, error = make_frame(count, size, state.rank)
    frames = state.all_gather(answer, size)
    state.check(frames, first or error)
    result = np.empty(len(signs), np.int32)
    for frame, (begin, stop) in zip(frames, ranges, strict=True):
        result[begin:stop] = _unpacked(state.opened(frame), stop - begin, out_width, (high - low) // gap) * gap + low
    return result


def _values(rule: str, ties: str, size: int, zeros: bool) -> tuple[int, int, int]:
    """Return the least and the largest result, and the step between results."""
    if rule == "average":
        return -size, size, 1 if zeros else 2
    tied = ties == "zero" and (zeros or size % 2 == 0)
    return -1, 1, 1 if tied else 2


def _packed(values: NDArray[np.int32], step: int, width: int) -> bytes:
    return pack((values // step).astype(np.uint32)[None], width).tobytes()


def _unpacked(data: NDArray[np.uint8], n: int, width: int, most: int) -> NDArray[np.int32]:
    made: NDArray[np.int32] = unpack(data[None, : packed_size(n, width)], width, n)[0].astype(np.int32)
    if made.max(initial=0) > most:
        raise FormatError("a packed vote is none of those that there are")
    return made
