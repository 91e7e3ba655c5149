"""Collectives: arrays summed across ranks while they travel encoded, over any link that moves bytes."""

from tersor.collectives.link import Link, LocalLink
from tersor.collectives.reduce import all_reduce
from tersor.collectives.round import Trace
from tersor.collectives.switch import Switch, SwitchLink
from tersor.collectives.topologies import choose_topology

__all__ = ["Link", "LocalLink", "Switch", "SwitchLink", "Trace", "all_reduce", "choose_topology"]
