"""The length rule: how many coordinates a rotated unit has, how many rounds mix them, how wide codes are."""

import math
from functools import lru_cache


def padded_length(n: int, full: bool = False) -> int:
    """Return the padded length P of a unit of `n` coordinates; `full` pads to a power of two.

    Examples
    --------
    >>> [padded_length(n) for n in (0, 1, 3, 9, 80, 1000, 4096)]
    [0, 1, 4, 12, 80, 1024, 4096]
    >>> padded_length(80, full=True)
    128
    """
    if n == 0:
        return 0
    log2 = (n - 1).bit_length()
    unit = 1 << (log2 if full else (log2 + 1) // 2)
    return -(-n // unit) * unit


def run_length(padded: int) -> int:
    """Return B, the largest power of two that divides P.

    Examples
    --------
    >>> [run_length(p) for p in (1, 12, 80, 1024)]
    [1, 4, 16, 1024]
    """
    return padded & -padded


def mixing_rounds(padded: int) -> int:
    """Return the rounds that a length P > B needs: 2 if B**2 >= 16 P, else 3."""
    run = run_length(padded)
    return 2 if run * run >= 16 * padded else 3


RANS_CHUNK = 1 << 20  # symbols of a chunk of the entropy coder (FORMAT.md, section 9)


def rans_lanes(m: int) -> int:
    """Return how many lanes code a chunk of m > 0 symbols: the largest power of two that leaves each 4,096, 1 to 16.

    Examples
    --------
    >>> [rans_lanes(m) for m in (1, 8191, 8192, 65536, 1 << 20)]
    [1, 1, 2, 16, 16]
    """
    return min(16, 1 << (max(m >> 12, 1).bit_length() - 1))


def high_count(padded: int, fraction: float) -> int:
    """Return how many of P rotated coordinates have one bit more: `fraction` of them, rounded up to whole bytes.

    Examples
    --------
    >>> [high_count(p, 0.5) for p in (1, 8, 12, 80, 4096)], high_count(80, 0.0), high_count(80, 2.6 - 2)
    ([1, 8, 8, 40, 2048], 0, 48)
    """
    if fraction == 0 or padded == 0:
        return 0
    # 2**-10: the rounding of fraction * P must not add a byte.
    return min(padded, 8 * max(1, math.ceil((fraction * padded - 2.0**-10) / 8)))


@lru_cache(maxsize=256)
def code_bytes(padded: int, bits: int, fraction: float = 0.0) -> int:
    """Return the bytes of a unit's codes: those of the higher width, then the others, each part from a byte on."""
    high = high_count(padded, fraction)
    return (high * (bits + 1) + 7) // 8 + ((padded - high) * bits + 7) // 8
