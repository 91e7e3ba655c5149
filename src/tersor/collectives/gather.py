"""gather: every rank sends its whole message to all and decodes all of them. Best for two ranks."""

from tersor.codecs.deliver import first_nonfinite
from tersor.collectives.frames import make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.wire import EncodedWire
from tersor.errors import NonFiniteError


def gather(state: Round, wire: EncodedWire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x` over the ranks in place; returns the frames instead if some rank holds NaN or infinity.

    If the sum overflows, an empty list.
    """
    size = wire.frame_size(0, len(x), 1)
    with state.trace.coding():
        data, mine = make_frame(lambda: wire.own(0, len(x)).message(), size, state.rank, bad)
    frames = state.all_gather(data, size)
    state.check(frames, mine)
    if nonfinite_ranks(frames):
        return frames
    with state.trace.coding():
        messages = [wire.parse(state.opened(f), len(x)) for f in frames]
        x.fill(0)
        # All ranks add in the order of the ranks, each decoding its own message like any other: equal bits.
        wire.accumulate(messages, x, [state.weight] * len(messages))
    return [] if first_nonfinite(x) >= 0 else None
