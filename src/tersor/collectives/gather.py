"""gather: every rank sends its whole message to all and decodes all of them. Best for two ranks."""

import numpy as np

from tersor.codecs.deliver import first_nonfinite
from tersor.collectives.frames import make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.reduce import F32, Round
from tersor.errors import NonFiniteError


def gather(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity.

    If the sum overflows, an empty list.
    """
    link, n = state.link, len(x)
    with state.trace.coding():
        data, mine = make_frame(
            lambda: state.encode(x, link.rank, shared=state.shared), state.frame_size(n), link.rank, bad
        )
    with state.trace.wiring():
        frames = link.all_gather(data)
    state.check(frames, mine)
    if nonfinite_ranks(frames):
        return frames
    with state.trace.coding():
        messages = [state.parse(f, n) for f in frames]
        x.fill(0)
        # All ranks add in the order of the ranks, each decoding its own message like any other: equal bits.
        with np.errstate(over="ignore"):
            state.codec.accumulate(messages, state.codec.units((n,), None), x, [state.weight] * len(messages))
        if first_nonfinite(x) >= 0:
            return []
        if state.own is not None:
            state.codec.decode(messages[link.rank], out=state.own)
    return None
