"""Binary logarithms from basic operations: x = 2**e m with m in [sqrt(1/2), sqrt(2)), log2 m = 2 / ln 2 atanh y.

y = (m - 1) / (m + 1), |y| < 0.1716, so 11 terms of atanh y = y + y**3 / 3 + y**5 / 5 + ... are exact to the
last bit or two.
"""

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_TERMS = tuple(2.8853900817779268 / (2 * k + 1) for k in range(11))
_ROOT = 0.7071067811865476
_LEAST = 2.0**-1022


def log2(x: F64, out: F64) -> None:
    """Fill `out` with the binary logarithms of finite `x`; with 0 for what is below 2**-1022, as 0 log 0 wants it."""
    some = np.where(x >= _LEAST, x, 1.0)
    m, e = np.frexp(some)  # m in [1/2, 1)
    low = m < _ROOT
    m = np.where(low, m + m, m)
    y = (m - 1.0) / (m + 1.0)
    z = y * y
    total = np.full_like(z, _TERMS[-1])
    for term in _TERMS[-2::-1]:
        total = total * z + term
    out[...] = (e - low).astype(np.float64) + y * total
