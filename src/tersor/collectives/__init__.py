"""Collectives: arrays summed across ranks while they travel encoded, over any link that moves bytes."""

from tersor.collectives.link import Link, LocalLink
from tersor.collectives.reduce import Trace, all_reduce, choose_topology

__all__ = ["Link", "LocalLink", "Trace", "all_reduce", "choose_topology"]
