"""Level search: the values that codes stand for."""

from tersor.quantize import adaptive

__all__ = ["adaptive"]
