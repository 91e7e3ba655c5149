"""switch: messages cut into packets that a switch adds on their way; and a model of one, in this process.

The program of THC's switch (arXiv 2302.08545) is not public, so the rules are our own: a packet holds the codes of one
unit, 1,024 of them by default. The switch has slots, each for one unit at a time; it adds packets to their slot and
counts them. A slot is sent to all ranks when all have come or, with the count of those that did, when its time ends.
What is lost on the way up is not in the sum, and its sender keeps it for error feedback; what is lost on the way down
to any rank is zero on all ranks, who tell one another before they use anything.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Codec
from tersor.collectives.link import Bytes, Link, LocalLink
from tersor.collectives.round import F32, Round
from tersor.collectives.wire import SumWire, Wire
from tersor.encoded import Encoded
from tersor.errors import NonFiniteError, TersorError


@dataclass
class Switch:
    """A model of an aggregating switch: integer adders, `slots` of them, which packets share and may not reach.

    Attributes
    ----------
    packet : int, default 1024
        Codes in a packet; the codec's block.
    slots : int, default 256
        Units that it holds at a time.
    loss : float, default 0.0
        Chance that a packet is lost, on either way.
    late : float, default 0.0
        Chance that all of a rank's packets of one filling of the slots come after their time.
    seed : int, default 0
        Keys these chances.
    timeouts, packets, lost : int
        Slots that were sent on incomplete; packets sent by ranks; packets that did not arrive, on either way.
    """

    packet: int = 1024
    slots: int = 256
    loss: float = 0.0
    late: float = 0.0
    seed: int = 0
    timeouts: int = 0
    packets: int = 0
    lost: int = 0
    _steps: int = field(default=0, repr=False)

    def add(self, messages: list[Encoded]) -> tuple[Encoded, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the sum, which packets are in it and which units arrive, both of shape (ranks, units)."""
        ranks, units = len(messages), messages[0].units.count
        key, self._steps = rng.mix64(self.seed, step=self._steps), self._steps + 1
        fillings = -(-units // self.slots)
        draws = [
            rng.uniform(key, rng.UNIFORM, way * ranks * units, ranks * units).reshape(ranks, units) for way in range(2)
        ]
        late = rng.uniform(key, rng.UNIFORM, 2 * ranks * units, ranks * fillings).reshape(ranks, fillings) < self.late
        up = (draws[0] >= self.loss) & ~np.repeat(late, self.slots, axis=1)[:, :units]
        total = messages[0].codec.add_all(
            [replace(m, received=up[i]) if not up[i].all() else m for i, m in enumerate(messages)]
        )
        counts = up.sum(axis=0)
        down = (draws[1] >= self.loss) & (counts > 0)
        self.timeouts += int((counts < ranks).sum())
        self.packets += ranks * units
        self.lost += int((~up).sum()) + int((~down & (counts > 0)).sum())
        return total, up, down


class SwitchLink(LocalLink):
    """Ranks of one process that a `Switch` connects.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> from tersor.collectives import Switch, SwitchLink, all_reduce
    >>> vectors = np.random.default_rng(0).standard_normal((4, 5000)).astype(np.float32)
    >>> links = SwitchLink.around(Switch(loss=0.01), 4)
    >>> def reduce(link):
    ...     return all_reduce(link, vectors[link.rank], "thc:4,block=1024", seed=1, topology="switch")
    >>> with ThreadPoolExecutor(4) as pool:
    ...     done = list(pool.map(reduce, links))
    >>> all(vectors[0].tobytes() == v.tobytes() for v in vectors)
    True
    """

    switch: Switch

    @classmethod
    def around(cls, switch: Switch, size: int, timeout: float = 60.0) -> "list[SwitchLink]":
        """Return the ends of a new group of `size` ranks around a switch."""
        made = cls.group(size, timeout)
        for link in made:
            link.switch = switch
        return made

    def aggregate(self, message: Encoded | None) -> tuple[Encoded, NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Send a message through the switch; returns what `Switch.add` does, or None if a rank sent nothing."""
        everyone: list[Any] = self._exchange(message)
        made = None
        if self.rank == 0 and all(m is not None for m in everyone):
            made = self.switch.add(everyone)
        first: Any = self._exchange(made)[0]
        self.bytes_sent += 0 if message is None else message.nbytes
        return None if first is None else first


def switch(state: Round, wire: Wire, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Sum `x`, fit on all ranks, over them in place."""
    link = state.link
    assert isinstance(link, SwitchLink) and isinstance(wire, SumWire)
    failed: Exception | None = None
    message: Encoded | None = None
    try:
        with state.trace.coding():
            message = replace(wire.own(0, len(x)).enc, error=None)
    except Exception as error:
        failed = error
    with state.trace.wiring():
        answer = link.aggregate(message)
    if answer is None:
        state.agreed = True
        raise failed or TersorError(f"{state.what}: another rank failed; its own error says why")
    total, up, down = answer
    # Only what all ranks received counts: otherwise they would drift apart.
    with state.trace.wiring():
        flags = link.all_gather(np.packbits(down[state.rank]))
    arrived = np.unpackbits(np.bitwise_and.reduce(flags), count=down.shape[1]).astype(np.bool_)
    with state.trace.coding():
        wire.codec.decode(total, out=x, weight=state.weight * state.size, received=arrived)
        if state.own is not None:
            delivered = up[state.rank] & arrived
            state.own[~np.repeat(delivered, link.switch.packet)[: len(x)]] = 0
    return None


def check_switched(link: Link, codec: Codec, what: str) -> None:
    """Raise ValueError unless the link has a switch that can add this codec's messages."""
    if not isinstance(link, SwitchLink) or not codec.claims.additive:
        raise ValueError(f'{what}: topology "switch" needs a SwitchLink and an additive codec, such as "thc:4"')
    if codec.unit != link.switch.packet:
        raise ValueError(
            f"{what}: the switch has packets of {link.switch.packet} codes, {codec.spec} blocks of {codec.unit}; "
            f'try "thc:4,block={link.switch.packet}"'
        )
