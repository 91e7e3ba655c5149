"""Level search: the values that codes stand for."""

from tersor.quantize import adaptive, entropy_constrained, shared_levels, thc

__all__ = ["adaptive", "entropy_constrained", "shared_levels", "thc"]
