"""k-means levels: the 2**bits levels nearest to this very input, and rounding to the nearest; biased.

Stuart P. Lloyd: "Least Squares Quantization in PCM", IEEE Transactions on Information Theory 28(2), 1982 (the problem).
In one dimension its optimum can be found: `tersor.quantize.adaptive`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tersor.codec import Claims
from tersor.codecs.unit_levels import UnitLevels
from tersor.registry import register


@register("kmeans")
@dataclass(frozen=True)
class KMeans(UnitLevels):
    """``x_hat_i`` is the level nearest to x_i, the levels those of least squared error (Lloyd-Max of this input).

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8.
    block : int or "full", default "full"
        Coordinates that share levels: the whole vector, or blocks of it. Rows (``axis=-1``) have their own.
    level_dtype : {"auto", "float32", "uint16", "uint8"}, default "auto"
        Type of the levels, as for `asq`; rounded to nearest.
    method : {"auto", "exact", "histogram"}, default "auto"
        How the levels are found (`tersor.quantize.adaptive.levels`); "auto" is exact up to 4,096 coordinates.

    Notes
    -----
    The smallest error of one message at this width, but a bias: estimates of many senders do not average down as those
    of `asq` do; use error feedback in training. `enc.error` is the error of the message. A value half way between two
    levels (their float32 midpoint) goes up.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).lognormal(0, 1, 2**14).astype(np.float32)
    >>> bool(tersor.get_codec("kmeans:4").encode(x).error < 0.5 * tersor.get_codec("asq:4").encode(x).error)
    True
    >>> tersor.roundtrip(np.array([1, 1.5, 2, 9], np.float32), "kmeans:1").tolist()
    [1.5, 1.5, 1.5, 9.0]
    """

    stochastic: ClassVar[bool] = False
    examples: ClassVar[tuple[str, ...]] = ("kmeans:2", "kmeans:3", "kmeans:4", "kmeans:6", "kmeans:8")
    claims: ClassVar[Claims] = Claims(
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="the least sum of squared distances to 2**bits levels, / ||x||**2",
    )
