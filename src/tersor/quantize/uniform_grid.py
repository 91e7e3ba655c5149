"""The uniform grid whose codes of N(0, 1) have b bits of entropy, and the probabilities of these codes.

Everything is made of IEEE additions, multiplications, divisions and square roots in one order, so it is the same on
every machine; the tests compare with `math.erf`.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MAX_BITS = 6
REACH = 5.5  # the grid goes as far, in standard deviations; what is beyond counts as its last level
SCALE_BITS = 15  # the rarest codes have probabilities of 10**-8
_STEPS = 48  # of the bisection
_INV_SQRT_2PI = 0.3989422804014327


def _exp(t: float) -> float:
    """Return e**t for -200 < t <= 0: the series of t / 2**11, squared 11 times."""
    x, term, total = t / 2048, 1.0, 1.0
    for k in range(1, 14):
        term = term * x / k
        total += term
    for _ in range(11):
        total *= total
    return total


def _log2(x: float) -> float:
    m, e = math.frexp(x)  # exact
    y = (m - 1) / (m + 1)
    square, power, total = y * y, y, 0.0
    for k in range(1, 64, 2):
        total += power / k
        power *= square
    return e + 2 * total / 0.6931471805599453


def density(x: float) -> float:
    """Return the density of N(0, 1) at `x`."""
    return _INV_SQRT_2PI * _exp(-min(x * x / 2, 199.0))


def mass(x: float) -> float:
    """Return the probability of N(0, 1) from 0 to `x`, x >= 0: density(x) (x + x**3 / 3 + x**5 / (3 5) + ...)."""
    if x > 9:
        return 0.5
    term = total = x
    k = 1
    while term > total * 2.0**-54:
        k += 2
        term = term * x * x / k
        total += term
    return density(x) * total


@dataclass(frozen=True)
class UniformGrid:
    """Levels step * j, j = -last .. last, of which code j + last stands for one; values between go to the nearest.

    Attributes
    ----------
    step : float
        Distance of levels, in standard deviations.
    last : int
        The largest j.
    probabilities : tuple of float
        Of the codes of N(0, 1).
    """

    step: float
    last: int
    probabilities: tuple[float, ...]

    @classmethod
    def of_step(cls, step: float) -> "UniformGrid":
        """Return the grid of a step."""
        last = max(1, math.ceil(REACH / step - 0.5))
        edges = [mass((j + 0.5) * step) for j in range(last)] + [0.5]
        half = [high - low for low, high in itertools.pairwise(edges)]
        return cls(step, last, (*half[::-1], 2 * edges[0], *half))

    @property
    def entropy(self) -> float:
        """Bits a code."""
        return -sum(p * _log2(p) for p in self.probabilities if p > 0)

    @property
    def moments(self) -> tuple[float, float]:
        """E z q and E q**2 for z ~ N(0, 1)."""
        zq = qq = 0.0
        for j in range(1, self.last + 1):
            upper = density((j + 0.5) * self.step) if j < self.last else 0.0
            zq += 2 * j * self.step * (density((j - 0.5) * self.step) - upper)
            qq += 2 * (j * self.step) * (j * self.step) * self.probabilities[self.last + j]
        return zq, qq

    def levels(self) -> NDArray[np.float32]:
        """Return the levels, float32."""
        return np.array([(i - self.last) * self.step for i in range(2 * self.last + 1)]).astype(np.float32)

    def thresholds(self) -> NDArray[np.float32]:
        """Return the midpoints of the levels, float32; a value on one goes up."""
        return np.array([(i - self.last + 0.5) * self.step for i in range(2 * self.last)]).astype(np.float32)


@lru_cache(maxsize=64)
def grid_of(bits: float) -> UniformGrid:
    """Return the grid whose codes of N(0, 1) have an entropy of `bits`, above 0 and up to 6.

    Examples
    --------
    >>> grid = grid_of(2)
    >>> print(f"{grid.step:.5f} {grid.entropy:.5f} {len(grid.probabilities)}")
    1.08245 2.00000 11
    """
    low, high = 2.0**-5, 16.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if UniformGrid.of_step(middle).entropy > bits:
            low = middle
        else:
            high = middle
    return UniformGrid.of_step((low + high) / 2)
