"""Schemes: protocols between ranks that no single encode and decode describes."""

from tersor.collectives.schemes.dynamiq import DynamiQ
from tersor.collectives.schemes.scheme import Scheme, SchemeClaims, get_scheme, schemes

__all__ = ["DynamiQ", "Scheme", "SchemeClaims", "get_scheme", "schemes"]
