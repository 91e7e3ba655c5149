"""Counter-based random numbers: Philox4x32-10, the same words on every machine.

John K. Salmon, Mark A. Moraes, Ron O. Dror, David E. Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Word ``w`` of a stream is lane ``w % 4`` of counter block ``w // 4``; see FORMAT.md, section 1.
"""

import os

import numpy as np
from numpy.typing import NDArray

SIGNS = 0
PERMUTATION = 1
ROUNDING = 2
UNIFORM = 3
SYMBOLS = 4
DITHER = 5
GAUSSIAN = 6
SELECTION = 7

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


def mix64(seed: int, step: int = 0, sender: int = 0, tensor: int = 0) -> int:
    """Mix four integers into one 64-bit key.

    Parameters
    ----------
    seed, step, sender, tensor : int
        Taken modulo 2**64. For fixed other arguments the map is one-to-one in each of them.

    Returns
    -------
    int
        A key in ``[0, 2**64)``.

    Examples
    --------
    >>> mix64(7) == mix64(7, 0, 0, 0)
    True
    >>> mix64(7, sender=1) == mix64(7, step=1)
    False
    """
    h = _finalise(int(seed) + _GOLDEN)
    for value in (step, sender, tensor):
        h = _finalise((h ^ (int(value) & _MASK64)) + _GOLDEN)
    return h


def fresh_seed() -> int:
    """Draw 64 bits from the operating system."""
    return int.from_bytes(os.urandom(8), "little")


def philox_blocks(key: int, purpose: int, rotation: int, first: int, count: int) -> NDArray[np.uint32]:
    """Return ``count`` Philox4x32-10 blocks from block ``first`` on, shape ``(count, 4)``.

    Parameters
    ----------
    key : int
        64-bit key of the stream.
    purpose, rotation : int
        The two upper counter words; `purpose` is one of the constants above.
    first, count : int
        Range of the 64-bit block counter.

    Returns
    -------
    ndarray of uint32, shape (count, 4)

    Examples
    --------
    >>> [hex(w) for w in philox_blocks(0, 0, 0, 0, 1)[0]]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    counter = np.arange(count, dtype=np.uint64) + np.uint64(first & _MASK64)
    c0, c1 = counter & _LOW, counter >> _HALF
    c2, c3 = np.full(count, purpose, np.uint64), np.full(count, rotation, np.uint64)
    k0, k1 = np.uint32(key & 0xFFFFFFFF), np.uint32((key >> 32) & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
            c0, c1 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW
            c2, c3 = (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
            k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def words(key: int, purpose: int, rotation: int, start: int, count: int) -> NDArray[np.uint32]:
    """Return words ``start .. start + count`` of a stream, shape ``(count,)``, dtype uint32."""
    first = start // 4
    blocks = philox_blocks(key, purpose, rotation, first, (start + count + 3) // 4 - first if count else 0)
    return blocks.reshape(-1)[start - 4 * first :][:count]


def signs(key: int, rotation: int, start: int, count: int) -> NDArray[np.float32]:
    """Return signs ``start .. start + count`` of a stream as +1 and -1, float32.

    Sign ``j`` is bit ``j % 32`` of word ``j // 32``; a set bit means minus.
    """
    first = start // 32
    bits = words(key, SIGNS, rotation, first, (start + count + 31) // 32 - first if count else 0)
    unpacked = np.unpackbits(bits.astype("<u4").view(np.uint8), bitorder="little")
    return (1 - 2 * unpacked[start - 32 * first :][:count].astype(np.int8)).astype(np.float32)


def uniform(key: int, purpose: int, start: int, count: int) -> NDArray[np.float32]:
    """Return ``count`` uniforms in [0, 1), one word each: ``(word >> 8) * 2**-24``, float32."""
    drawn = words(key, purpose, 0, start, count)
    return (drawn >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def permutation(key: int, rotation: int, start: int, count: int) -> NDArray[np.int64]:
    """Return a keyed permutation of ``range(count)`` (Fisher-Yates, FORMAT.md section 3), int64."""
    drawn = words(key, PERMUTATION, rotation, start, count).tolist()
    perm = list(range(count))
    for i in range(count - 1, 0, -1):
        j = (drawn[i] * (i + 1)) >> 32
        perm[i], perm[j] = perm[j], perm[i]
    return np.asarray(perm, np.int64)


def _finalise(z: int) -> int:
    z &= _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)
