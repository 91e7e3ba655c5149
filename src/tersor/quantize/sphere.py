"""Lloyd-Max levels of one coordinate of a uniform direction in R^P, and Gaussian quantiles: basic operations only.

z = sqrt(P) t with t a coordinate of a point uniform on the unit sphere: density proportional to (1 - t**2)**((P-3)/2)
(a shifted Beta law; N(0, 1) for P to infinity). Everything is float64 + - * / sqrt in one order, so that every machine
finds the same levels. With t = 2 w / (1 + w**2) and q = sqrt(1 - t**2) = (1 - w**2) / (1 + w**2) the density times dt
is q**(P-2) * 2 / (1 + w**2) dw, which is smooth for every P >= 2.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersor.quantize.lloyd_max import MAX_BITS

F64 = NDArray[np.float64]

_PANELS = 4096  # of Simpson's rule
_REACH = 12.0  # standard deviations; what lies beyond has no mass in float64
_LLOYD, _NEWTON = 60, 40
_ROOT = 1.2533141373155003  # sqrt(pi / 2), the integral of exp(-z**2 / 2) over z > 0
GAUSSIAN_STEP = 2.0**-9


class _Law(NamedTuple):
    """The half line t >= 0: the mass up to each node of a grid in w."""

    padded: int
    step: float
    mass: F64


def _power(base: F64, n: int) -> F64:
    """Return ``base**n`` for n >= 0 by repeated squaring."""
    result = np.ones_like(base)
    while n:
        if n & 1:
            result = result * base
        base = base * base
        n >>= 1
    return result


def _density(w: F64, padded: int) -> F64:
    squared = w * w
    height: F64 = _power((1 - squared) / (1 + squared), padded - 2) * (2 / (1 + squared))
    return height


def _law(padded: int) -> _Law:
    t = min(1.0, _REACH / float(np.sqrt(np.float64(padded))))
    step = t / (1 + float(np.sqrt(np.float64(1 - t * t)))) / _PANELS
    nodes: F64 = np.arange(_PANELS + 1, dtype=np.float64) * step
    inner: F64 = (np.arange(_PANELS, dtype=np.float64) + 0.5) * step
    ends = _density(nodes, padded)
    panels: F64 = (ends[:-1] + 4 * _density(inner, padded) + ends[1:]) * (step / 6)
    return _Law(padded, step, np.concatenate([np.zeros(1), np.add.accumulate(panels)]))


def _mass(law: _Law, t: F64) -> F64:
    """Return the mass of [0, t]: the table up to the node below, Simpson's rule from there."""
    w = t / (1 + np.sqrt((1 - t) * (1 + t)))
    node = np.minimum(np.floor(w / law.step).astype(np.int64), _PANELS)
    begin = node * law.step
    rest = w - begin
    ends = _density(begin, law.padded) + 4 * _density(begin + rest / 2, law.padded) + _density(w, law.padded)
    total: F64 = law.mass[node] + ends * (rest / 6)
    return total


class _Cells(NamedTuple):
    bounds: F64  # the m + 1 borders of the cells on the half line; the last one is 1
    mass: F64
    centroids: F64


def _cells(law: _Law, levels: F64) -> _Cells:
    inner = (levels[:-1] + levels[1:]) / 2
    bounds = np.concatenate([np.zeros(1), inner, np.ones(1)])
    below = np.concatenate([np.zeros(1), _mass(law, inner), law.mass[-1:]])
    mass = below[1:] - below[:-1]
    # The integral of t (1 - t**2)**((P-3)/2) from t to 1 has a closed form.
    moment = _power(np.sqrt((1 - bounds) * (1 + bounds)), law.padded - 1) / (law.padded - 1)
    return _Cells(bounds, mass, (moment[:-1] - moment[1:]) / mass)


def _newton(law: _Law, levels: F64, cells: _Cells) -> F64:
    """Return the levels after a Newton step on levels = centroids; the Jacobian is tridiagonal."""
    inner = cells.bounds[1:-1]
    q = np.sqrt((1 - inner) * (1 + inner))
    height = _power(q, law.padded - 2) / q
    m = len(levels)
    lower, upper = np.zeros(m), np.zeros(m)  # half the derivatives by the lower and the upper border
    lower[1:] = height * (cells.centroids[1:] - inner) / cells.mass[1:] / 2
    upper[:-1] = height * (inner - cells.centroids[:-1]) / cells.mass[:-1] / 2
    diagonal, right = (1 - lower - upper).tolist(), (cells.centroids - levels).tolist()
    low, up = lower.tolist(), upper.tolist()
    for i in range(1, m):
        factor = -low[i] / diagonal[i - 1]
        diagonal[i] += factor * up[i - 1]
        right[i] -= factor * right[i - 1]
    change = [0.0] * m
    change[-1] = right[-1] / diagonal[-1]
    for i in range(m - 2, -1, -1):
        change[i] = (right[i] + up[i] * change[i + 1]) / diagonal[i]
    better: F64 = levels + np.asarray(change)
    return better


def _start(law: _Law, m: int) -> F64:
    """Return levels at even shares of (nearly) the cube root of the density, as fine quantizers have them."""
    w = (np.arange(_PANELS) + 0.5) * law.step
    squared = w * w
    q = (1 - squared) / (1 + squared)
    fourth = np.sqrt(np.sqrt(_power(q, law.padded - 2) / q))
    sixteenth = np.sqrt(np.sqrt(fourth))
    root = fourth * sixteenth * np.sqrt(np.sqrt(sixteenth))  # the power 21/64
    share = np.add.accumulate(root * (q / (1 + squared)))
    wanted = (np.arange(m) + 0.5) / m * share[-1]
    at = w[np.searchsorted(share, wanted)]
    levels: F64 = 2 * at / (1 + at * at)
    return levels


def _good(levels: F64) -> bool:
    bounded = np.isfinite(levels).all() and levels[0] > 0 and levels[-1] < 1
    return bool(bounded and (levels[1:] > levels[:-1]).all())


@lru_cache(maxsize=256)
def _solve(bits: int, padded: int) -> tuple[F64, float]:
    """Return the positive levels in units of 1 / sqrt(P), and the mean squared error."""
    if not 1 <= bits <= MAX_BITS or padded < 1:
        raise ValueError(f"need 1 to {MAX_BITS} bits and P >= 1, got {bits} bits and P = {padded}")
    m = 1 << (bits - 1)
    if padded == 1:  # z is 1 or -1: the outer levels are exact
        return (2 * np.arange(m) + 1.0) / (2 * m - 1), 0.0
    law = _law(padded)
    levels = _start(law, m)
    for _ in range(_LLOYD):
        levels = _cells(law, levels).centroids
    for _ in range(_NEWTON):
        cells = _cells(law, levels)
        better = _newton(law, levels, cells)
        levels = better if _good(better) else cells.centroids
    scaled = levels * np.sqrt(np.float64(padded))
    shares = _cells(law, levels).mass / law.mass[-1]
    return scaled, 1 - float(np.add.accumulate(shares * scaled * scaled)[-1])


@lru_cache(maxsize=256)
def levels(bits: int, padded: int) -> NDArray[np.float32]:
    """Return the 2**bits levels for z = sqrt(P) t, ascending, float32.

    Examples
    --------
    >>> [round(v, 4) for v in levels(1, 2).tolist()]  # a direction in the plane: sqrt(2) * 2 / pi
    [-0.9003, 0.9003]
    """
    positive = _solve(bits, padded)[0]
    result = np.concatenate([-positive[::-1], positive]).astype(np.float32)
    result.flags.writeable = False
    return result


@lru_cache(maxsize=256)
def thresholds(bits: int, padded: int) -> NDArray[np.float32]:
    """Return the 2**bits - 1 midpoints of the levels, ascending, float32."""
    c = levels(bits, padded).astype(np.float64)
    result = ((c[:-1] + c[1:]) / 2).astype(np.float32)
    result.flags.writeable = False
    return result


def mse(bits: int, padded: int) -> float:
    """Return E (z - q)**2: the vNMSE of TurboQuant_mse under a uniform rotation of R^P, exact for every P."""
    return _solve(bits, padded)[1]


def _exp(x: float) -> float:
    """Return exp(x) for small |x| from its series."""
    total = term = 1.0
    for k in range(1, 20):
        term = term * x / k
        total += term
    return total


@lru_cache(maxsize=1)
def gaussian_table() -> NDArray[np.float32]:
    """Return 2**16 equally likely values of N(0, 1) in steps of 2**-9, float32: the quantiles (j + 1/2) / 2**16.

    Entry j = g, a whole number of steps, means Phi((g - 1/2) step) <= (j + 1/2) / 2**16 < Phi((g + 1/2) step), with Phi
    by Simpson's rule on half steps and exp(-z**2 / 2) by the recurrence of its ratios.

    Examples
    --------
    >>> table = gaussian_table()
    >>> len(table), float(table[-1]), bool((table == -table[::-1]).all())
    (65536, 2214.0, True)
    """
    reach = 5 * 512
    quarter = GAUSSIAN_STEP / 4
    ratio, fall = _exp(-quarter * quarter / 2), _exp(-quarter * quarter)
    heights = [1.0]
    for _ in range(4 * reach + 2):  # exp(-z**2 / 2) at multiples of a quarter step
        heights.append(heights[-1] * ratio)
        ratio *= fall
    h = np.asarray(heights)
    panels = (h[0:-2:2] + 4 * h[1:-1:2] + h[2::2]) * (quarter / 3)  # of half steps
    above = np.concatenate([np.zeros(1), np.add.accumulate(panels)])  # the mass of [0, k half steps]
    borders = above[1::2]  # (g + 1/2) steps, g = 0, 1, ...
    wanted = (np.arange(1 << 15) + 0.5) / (1 << 15) * _ROOT  # the upper half of the quantiles
    positive = np.searchsorted(borders, wanted, side="right").astype(np.float32)
    result = np.concatenate([0 - positive[::-1], positive])  # no -0
    result.flags.writeable = False
    return result
