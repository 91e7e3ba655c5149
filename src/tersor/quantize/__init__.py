"""Level search: the values that codes stand for."""

from tersor.quantize import adaptive, shared_levels

__all__ = ["adaptive", "shared_levels"]
