"""Schemes: protocols between ranks that no single encode and decode describes."""

from tersor.collectives.schemes.blocks import OmniReduce, TopKC
from tersor.collectives.schemes.dynamiq import DynamiQ
from tersor.collectives.schemes.powersgd import PowerSGD
from tersor.collectives.schemes.scheme import Scheme, SchemeClaims, Tensors, get_scheme, schemes

__all__ = ["DynamiQ", "OmniReduce", "PowerSGD", "Scheme", "SchemeClaims", "Tensors", "TopKC", "get_scheme", "schemes"]
