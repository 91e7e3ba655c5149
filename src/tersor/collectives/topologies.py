"""The topologies by name, and which one "auto" is."""

from collections.abc import Callable

from tersor.collectives.butterfly import butterfly
from tersor.collectives.gather import gather
from tersor.collectives.link import Bytes
from tersor.collectives.ring import ring
from tersor.collectives.server import server
from tersor.collectives.switch import switch
from tersor.collectives.transpose import transpose

TOPOLOGIES: dict[str, Callable[..., list[Bytes] | None]] = {
    "gather": gather,
    "transpose": transpose,
    "sharded": transpose,
    "ring": ring,
    "butterfly": butterfly,
    "server": server,
    "switch": switch,
}
# These tell all ranks in their first exchange whether a vector is unfit; before the others a status goes around.
TELL = ("gather", "transpose", "sharded")
# These add messages as integers where the codec can.
ADD = ("sharded", "ring", "butterfly", "server", "switch")

# A second exchange costs more than sending so little to everybody.
_SMALL = 32768


def choose_topology(topology: str, size: int, nbytes: int = _SMALL, additive: bool = False) -> str:
    """Return the name of a topology; for "auto" see `all_reduce`.

    Raises
    ------
    ValueError
        If there is no such topology.
    """
    if topology == "auto":
        if size <= 2 or (size - 1) * nbytes <= _SMALL:
            return "gather"
        return "sharded" if additive else "transpose"
    if topology not in TOPOLOGIES:
        names = ", ".join(f'"{name}"' for name in TOPOLOGIES)
        raise ValueError(f'topology must be "auto" or one of {names}, got {topology!r}')
    return topology
