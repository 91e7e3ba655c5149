"""The one order in which tersor adds float32 numbers: 16 lanes, a fixed tree, chunks of 4,096 in float64."""

import numpy as np
from numpy.typing import NDArray

_LANES = 16
_CHUNK = 4096


def lane_sum(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sum each row of `rows`, shape (m, n), as FORMAT.md section 4 says; returns float64, shape (m,)."""
    m, n = rows.shape
    total = np.zeros(m, np.float64)
    for begin in range(0, n, _CHUNK):
        chunk = rows[:, begin : begin + _CHUNK]
        width = chunk.shape[1]
        padded = np.zeros((m, -(-width // _LANES) * _LANES), np.float32)
        padded[:, :width] = chunk
        lanes = np.zeros((m, _LANES), np.float32)
        for column in range(0, padded.shape[1], _LANES):
            lanes += padded[:, column : column + _LANES]
        for half in (8, 4, 2, 1):
            lanes = lanes[:, :half] + lanes[:, half : 2 * half]
        total += lanes[:, 0].astype(np.float64)
    return total


def ordered_sum(values: NDArray[np.float64]) -> float:
    """Add float64 values in groups of 16, each in order, then the groups in order."""
    groups = [_sequential(values[i : i + 16]) for i in range(0, len(values), 16)]
    return _sequential(np.asarray(groups, np.float64))


def _sequential(values: NDArray[np.float64]) -> float:
    total = 0.0
    for value in values.tolist():
        total += value
    return total
