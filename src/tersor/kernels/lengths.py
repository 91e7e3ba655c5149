"""The length rule: how many coordinates a rotated unit has, and how many rounds mix them (FORMAT.md, section 3)."""


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
