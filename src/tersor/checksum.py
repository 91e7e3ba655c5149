"""CRC-32 (zlib's) of a whole from the CRC-32 of its parts, so that what is written in pieces is not read again."""

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31  # the polynomial 1; bit 31 is the constant term


def combine(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of A then B from those of A and of B, and the length of B in bytes.

    Examples
    --------
    >>> import zlib
    >>> combine(zlib.crc32(b"terse "), zlib.crc32(b"tensors"), 7) == zlib.crc32(b"terse tensors")
    True
    """
    shift, power, n = _ONE, 3, length
    while n:
        if n & 1:
            shift = _times(_SQUARES[power % 32], shift)
        n >>= 1
        power += 1
    return _times(shift, first) ^ second


def _times(a: int, b: int) -> int:
    """Multiply modulo the polynomial."""
    product, bit = 0, _ONE
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return product


def _squares() -> list[int]:
    """Return x**(2**k) for k = 0..31; the sequence repeats from there."""
    found = [1 << 30]
    while len(found) < 32:
        found.append(_times(found[-1], found[-1]))
    return found


_SQUARES = _squares()
