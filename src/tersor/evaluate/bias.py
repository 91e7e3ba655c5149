"""Is a codec biased on this tensor? Errors of several seeds, summed so that chance and bias can be told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GROUPS = 64  # at least this many where the tensor has as many coordinates
_LARGEST = 4096  # coordinates of a group; codecs share scales and rotations over no more, as a rule
_FEWEST = 32  # groups from which a verdict is drawn
_SIGMAS, _UNSURE = 4.0, 3.0  # from where a bias shows, and from where it cannot be ruled out


@dataclass(frozen=True)
class Bias:
    """Estimate of ``||E x_hat - x||**2`` and its standard error if it were 0; sums, so that tensors add.

    With e_s the error of seed s, the estimate is the mean of <e_s, e_t> over all pairs s != t: 0 in expectation
    if the codec is unbiased. It is summed in groups of neighbouring coordinates; their squares give the standard error,
    however the errors within a group depend on one another.

    Attributes
    ----------
    squared : float
        The estimate.
    variance : float
        Sum of the groups' squares.
    groups : int
        How many there were.
    """

    squared: float = 0.0
    variance: float = 0.0
    groups: int = 0

    def __add__(self, other: Bias) -> Bias:
        return Bias(self.squared + other.squared, self.variance + other.variance, self.groups + other.groups)

    @property
    def sigmas(self) -> float:
        """The estimate in standard errors."""
        return self.squared / math.sqrt(self.variance) if self.variance else 0.0

    def verdict(self, error: float, seeds: int) -> str:
        """Return "exact" where there is no error, "biased", "unbiased", or "" where too little data can tell.

        "unbiased" means that no bias shows: the estimate is within three standard errors of 0; "biased" needs four.
        """
        if not error:
            return "exact"
        if seeds < 2 or self.groups < _FEWEST:
            return ""
        return "biased" if self.sigmas > _SIGMAS else "" if self.sigmas > _UNSURE else "unbiased"


def estimate(total: NDArray[np.float64], squares: NDArray[np.float64], seeds: int) -> Bias:
    """Return the estimate from the sum over seeds of every coordinate's error, and the sum of their squares.

    Examples
    --------
    >>> e = np.random.default_rng(0).standard_normal((5, 4096))
    >>> [estimate(x.sum(0), (x**2).sum(0), 5).verdict(1.0, 5) for x in (e, e + 1)]
    ['unbiased', 'biased']
    """
    if seeds < 2 or not total.size:
        return Bias()
    pairs = (total * total - squares) / (seeds * (seeds - 1))
    step = min(max(total.size // _GROUPS, 1), _LARGEST)
    groups = np.add.reduceat(pairs, np.arange(0, total.size, step))
    return Bias(float(groups.sum()), float(np.einsum("i,i->", groups, groups)), len(groups))
