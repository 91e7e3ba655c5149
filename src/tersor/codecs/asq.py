"""ASQ: the 2**bits levels of least variance for this very input, and unbiased stochastic rounding between neighbours.

R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik: "Optimal and Approximate Adaptive Stochastic Quantization",
NeurIPS 2024, arXiv 2402.03158, Section 2 (the problem); `tersor.quantize.adaptive` finds the levels.
"""

from dataclasses import dataclass
from typing import ClassVar

from tersor.codec import Claims
from tersor.codecs.unit_levels import UnitLevels
from tersor.registry import register


@register("asq")
@dataclass(frozen=True)
class ASQ(UnitLevels):
    """``x_hat_i`` is the level above x_i or the one below, at random, so that the mean is x_i; no rotation.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 8.
    block : int or "full", default "full"
        Coordinates that share levels: the whole vector, or blocks of it. Rows (``axis=-1``) have their own.
    level_dtype : {"auto", "float32", "float16", "bfloat16"}, default "auto"
        Type of the levels. "auto" is float32 for units of 256 * 2**bits coordinates or more, and for those of no more
        coordinates than levels, else bfloat16. In 16 bits the first level is rounded down, the last up, the others to
        nearest; the estimate stays unbiased. Where its range suffices, float16 has the lesser error of the two.
    method : {"auto", "exact", "histogram"}, default "auto"
        How the levels are found (`tersor.quantize.adaptive.levels`); "auto" is exact up to 4,096 coordinates.

    Notes
    -----
    A coordinate between the levels a and b has the expected squared error ``(b - x) (x - a)``; no unbiased scheme with
    2**bits values has a smaller sum. `enc.error` is the error that this very message made. What is itself a level is
    exact: a vector of zeros, or of no more values than levels where their type holds them. A RangeError tells of
    levels beyond float16, or beyond bfloat16 (from 3.39e38 on).

    In rows of 128 normal values, bfloat16 levels cost 0.5, 0.7 and 1.4 % of error at 2, 3 and 4 bits (float16 0.1 to
    0.2 %), where float32 levels would cost 0.5, 1 and 2 bits a coordinate. 16 bits are coarse far from zero, though:
    at 4 bits the error of values about 10 or 100 with a spread of 1 grows by 10 % or fourfold; choose float32 there.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).lognormal(0, 1, 2**14).astype(np.float32)
    >>> enc = tersor.get_codec("asq:4").encode(x, seed=1)
    >>> round(enc.bits_per_coordinate, 1), bool(tersor.nmse(x, tersor.decode(enc)) < 0.015)
    (4.1, True)
    """

    examples: ClassVar[tuple[str, ...]] = ("asq:2", "asq:3", "asq:4", "asq:6", "asq:8")
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        row_addressable=True,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="sum (b - x) (x - a) / ||x||**2 for the levels a <= x <= b, the least that 2**bits levels allow",
    )
