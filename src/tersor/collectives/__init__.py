"""Collectives: arrays summed across ranks while they travel encoded, over any link that moves bytes."""

from tersor.collectives.link import Link, LocalLink
from tersor.collectives.reduce import all_reduce
from tersor.collectives.round import Trace
from tersor.collectives.schemes import Scheme, Tensors, get_scheme, schemes
from tersor.collectives.switch import Switch, SwitchLink
from tersor.collectives.topologies import choose_topology
from tersor.collectives.votes import vote

__all__ = [
    "Link",
    "LocalLink",
    "Scheme",
    "Switch",
    "SwitchLink",
    "Tensors",
    "Trace",
    "all_reduce",
    "choose_topology",
    "get_scheme",
    "schemes",
    "vote",
]
