"""server: every rank sends its message to rank 0, which sends the sum to all.

With an additive codec the server only adds integers: it decodes nothing and rotates nothing.
"""

import numpy as np

from tersor.collectives.frames import make_frame, nonfinite_ranks
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.wire import Wire
from tersor.errors import NonFiniteError

SERVER = 0


def server(state: Round, wire: Wire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x`, fit on all ranks, over them in place; returns an empty list instead if the sum overflows."""
    n, serves = len(x), state.rank == SERVER
    size, total_size = wire.frame_size(0, n, 1), wire.frame_size(0, n, state.size)
    with state.trace.coding():
        data, mine = make_frame(lambda: wire.own(0, n).message(), size, state.rank, bad)
    nothing = np.zeros(0, np.uint8)
    sizes = None if size is None else [size if serves else 0] * state.size
    received = state.all_to_all([data if j == SERVER else nothing for j in range(state.size)], sizes)

    def total() -> bytes:
        state.check(received, mine)
        return wire.total(0, n, [state.opened(f) for f in received], state.size).message(final=True)

    answer, error = np.zeros(total_size or 0, np.uint8), mine
    if serves:
        with state.trace.coding():
            answer, error = make_frame(total, total_size, state.rank)
    answer = state.broadcast(answer, SERVER, total_size)
    state.check([answer], error)
    if nonfinite_ranks([answer]):
        return []
    with state.trace.coding():
        wire.deliver([(state.opened(answer), 0, n)], x)
    return None
