"""Histograms over the upper halves of floats: 65,536 cells as fine as bfloat16 at every magnitude, in NumPy."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]

CELLS = 1 << 16
_CHUNK = 65536


def keys_of(y: F32) -> NDArray[np.uint32]:
    """Return the bits of floats as integers in the order of values: all flipped for a negative one, else the sign."""
    bits = np.ascontiguousarray(y).view(np.uint32)
    return bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))


def rest_of(y: F32) -> F64:
    """Return y minus y with a lower half of zeros; exact."""
    return (y - (np.ascontiguousarray(y).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)).astype(np.float64)


def key_histogram(x: F32, centre: float, counts: U64, lows: U64, ends: F64) -> bool:
    """Add to each cell how many ``y = x - centre`` it holds and the sum of the lower halves of their keys.

    `ends` receives the least x, the greatest x and the sum of squares of y minus y with a lower half of zeros (in 16
    lanes, in chunks). Returns False if a y is not finite; what has been written means nothing then.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        y = x - np.float32(centre)
    if not np.isfinite(y).all():
        return False
    keys = keys_of(y)
    cells = keys >> 16
    counts += np.bincount(cells, minlength=CELLS).astype(np.uint64)
    # Sums of integers below 2**53, so exact.
    lows += np.bincount(cells, weights=(keys & 0xFFFF).astype(np.float64), minlength=CELLS).astype(np.uint64)
    total = 0.0
    for begin in range(0, len(y), _CHUNK):
        chunk = rest_of(y[begin : begin + _CHUNK])
        lanes = np.zeros((-(-len(chunk) // 16), 16))
        lanes.reshape(-1)[: len(chunk)] = chunk * chunk
        sums = np.zeros(16)
        for row in lanes:
            sums += row
        for half in (8, 4, 2, 1):
            sums = sums[:half] + sums[half : 2 * half]
        total += float(sums[0])
    ends[:] = (x.min(initial=np.inf), x.max(initial=-np.inf), total)
    return True


def key_gather(x: F32, centre: float, wanted: U8, out: F32) -> int:
    """Copy those ``x - centre`` whose cell is wanted, in order. Return how many, or -1 if `out` is too short."""
    y = x - np.float32(centre)
    found = y[wanted[keys_of(y) >> 16] != 0]
    if len(found) > len(out):
        return -1
    out[: len(found)] = found
    return len(found)
