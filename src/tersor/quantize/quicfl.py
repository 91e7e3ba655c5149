"""QUIC-FL's quantizer: the levels that senders and server share, solved exactly, and their frozen float32 tables.

Ran Ben-Basat, Shay Vargaftik, Amit Portnoy, Gil Einziger, Yaniv Ben-Itzhak, Michael Mitzenmacher: "Accelerating
Federated Learning with Quick Distributed Mean Estimation", ICML 2024, arXiv 2205.13341 (the optimisation problem of the
paper's section on client-specific shared randomness). The paper solves it over quantiles with a generic solver; here it
is reduced exactly:

Row h of the m x k levels R is what the server reads for shared symbol h. For a given R the best sender is known. Sort
all N = m (k - 1) thresholds t = (R[h, j] + R[h, j+1]) / 2; let c_0 = mean_h R[h, 0] and c_i = c_(i-1) + gap_i / m, with
gap_i = R[h, j+1] - R[h, j] of the i-th threshold. For z in [c_(i-1), c_i] every row but the owner of threshold i sends
the number of its thresholds among the first i - 1, and the owner one more with probability (z - c_(i-1)) / (c_i -
c_(i-1)). That is unbiased, and E[R**2 | z] is piecewise linear with slope 2 t_i, so that the error and its gradient
have closed forms in Phi and phi. What is left is a smooth problem in R alone.
"""

import json
import math
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

EXACT_RATE = 1 / 512
LIMIT = np.float32(NormalDist().inv_cdf(1 - EXACT_RATE / 2))  # T = 3.0972691; what lies beyond is sent exactly
SHARED_BITS = {1: 6, 2: 5, 3: 4, 4: 4}  # the default, and the most, for each width of a code
_FINEST = 22  # T and all zones are multiples of 2**-22: exact in float32 up to 4


@dataclass(frozen=True, eq=False)
class Table:
    """One quantizer, exactly unbiased as it stands: zones and levels are float32 numbers without rounding errors.

    Attributes
    ----------
    bits, shared_bits : int
        Bits of a code x and of a shared symbol h.
    levels : ndarray of float32, shape (2**shared_bits, 2**bits)
        What code x means under symbol h; rows ascend; multiples of 2**(shared_bits - 22).
    error : float
        J: the vNMSE of a sender in high dimension.
    """

    bits: int
    shared_bits: int
    levels: F32
    error: float

    @property
    def id(self) -> int:
        """CRC-32 of the levels' bytes."""
        return zlib.crc32(self.levels.astype("<f4").tobytes())

    @cached_property
    def zones(self) -> tuple[F32, F32]:
        """Low ends and widths of the zones, each of shape (2**shared_bits, 2**bits - 1), float32.

        Under symbol h, with u uniform in [0, 1), the code of z is the number of j with z >= low[h, j] + u width[h, j].
        """
        order = _Order(self.levels.astype(np.float64))
        low, width = order.per_level(order.ends[:-1]), order.per_level(np.diff(order.ends))
        exact = low.astype(np.float32), width.astype(np.float32)  # multiples of 2**-22 below 4
        for part in exact:
            part.flags.writeable = False
        return exact


@lru_cache(maxsize=32)
def table(bits: int, shared_bits: int | None = None) -> Table:
    """Return a frozen table.

    Parameters
    ----------
    bits : int
        1 to 4.
    shared_bits : int, optional
        0 to `SHARED_BITS[bits]`, which is the default.

    Raises
    ------
    ValueError
        If there is no such table.

    Examples
    --------
    >>> [round(table(bits).error, 4) for bits in (1, 2, 3, 4)]
    [1.4654, 0.2135, 0.0426, 0.0095]
    """
    if bits not in SHARED_BITS:
        raise ValueError(f"bits must be 1 to {max(SHARED_BITS)}, got {bits!r}")
    shared = SHARED_BITS[bits] if shared_bits is None else shared_bits
    if not 0 <= shared <= SHARED_BITS[bits]:
        raise ValueError(f"shared_bits must be 0 to {SHARED_BITS[bits]} for {bits} bits, got {shared_bits!r}")
    entry = _frozen()[str(bits)][str(shared)]
    whole = _mirrored(np.array(entry["half"], np.float64), 1 << shared, 1 << bits)
    levels = (whole * 2.0 ** (shared - _FINEST)).astype(np.float32)
    levels.flags.writeable = False
    return Table(bits, shared, levels, float(entry["error"]))


@lru_cache(maxsize=32)
def solve(bits: int, shared_bits: int) -> Table:
    """Solve for the levels of least error; a second or less. The frozen tables are its results.

    Parameters
    ----------
    bits, shared_bits : int
        Any; it is practical up to 2**(bits + shared_bits) = 256 levels.

    Examples
    --------
    >>> round(solve(2, 1).error, 5)
    0.31085
    """
    m, k = 1 << shared_bits, 1 << bits
    half = _minimise(_start(m, k), m, k)
    levels = _round(half, m, k, 2.0 ** (shared_bits - _FINEST)).astype(np.float32)
    levels.flags.writeable = False
    return Table(bits, shared_bits, levels, error(levels))


def error(levels: NDArray[Any]) -> float:
    """Return J, the mean squared error of levels of shape (m, k) over N(0, 1) inside the limit."""
    return _error_and_gradient(np.asarray(levels, np.float64))[0]


@lru_cache(maxsize=1)
def _frozen() -> dict[str, Any]:
    text = files("tersor.quantize").joinpath("quicfl_tables.json").read_text("ascii")
    return dict(json.loads(text))


class _Order:
    """The thresholds of levels R in ascending order, and the zones' ends c_0 .. c_N."""

    def __init__(self, levels: F64) -> None:
        m, _ = levels.shape
        self._shape = (m, levels.shape[1] - 1)
        middle = (levels[:, :-1] + levels[:, 1:]).reshape(-1) / 2
        self._sorted = np.argsort(middle, kind="stable")
        self.thresholds = middle[self._sorted]
        gaps = (levels[:, 1:] - levels[:, :-1]).reshape(-1)[self._sorted]
        self.ends = np.cumsum(np.concatenate([[levels[:, 0].sum()], gaps])) / m
        self.rank = np.empty(len(middle), np.int64)
        self.rank[self._sorted] = np.arange(len(middle))

    def per_level(self, of_zone: F64) -> F64:
        """Return values of zones, in ascending order, as (h, j)."""
        return of_zone[self.rank].reshape(self._shape)


def _error_and_gradient(levels: F64) -> tuple[float, F64]:
    m, k = levels.shape
    order = _Order(levels)
    t, c = order.thresholds, order.ends
    # Over zone i: a = P(z in it), b = E[z; z in it], up = E[the owner's probability to send one more; z in it].
    cdf = np.array([0.5 * math.erfc(-v * math.sqrt(0.5)) for v in c.tolist()])
    pdf = np.exp(-0.5 * c * c) / math.sqrt(2 * math.pi)
    a, b, width = np.diff(cdf), -np.diff(pdf), np.diff(c)
    above = b - c[:-1] * a
    up = np.where(width > 1e-9, above / np.maximum(width, 1e-9), a / 2)
    square = (levels[:, 0] ** 2).sum() / m + np.concatenate([[0.0], np.cumsum(2 * t * width)])
    second_moment = (cdf[-1] - cdf[0]) - (c[-1] * pdf[-1] - c[0] * pdf[0])
    value = float((square[:-1] * a + 2 * t * above).sum() - second_moment)
    # Level x of row h: on the way up in the zone of threshold x - 1, then always, on the way down in that of x.
    rank = order.rank.reshape(m, k - 1)
    sums = np.concatenate([[0.0], np.cumsum(a)]), np.concatenate([[0.0], np.cumsum(t * a)])
    from_zone = np.concatenate([np.zeros((m, 1), np.int64), rank + 1], axis=1)
    to_zone = np.concatenate([rank, np.full((m, 1), len(t))], axis=1)
    gradient = levels * (sums[0][to_zone] - sums[0][from_zone]) - (sums[1][to_zone] - sums[1][from_zone])
    gradient[:, 1:] += (levels[:, 1:] - t[rank]) * up[rank]
    gradient[:, :-1] += (levels[:, :-1] - t[rank]) * (a - up)[rank]
    return value, 2 / m * gradient


# R is antisymmetric, R[h, x] = -R[m-1-h, k-1-x]: its first half, in C order, is all there is to choose.


def _mirrored(half: F64, m: int, k: int) -> F64:
    return np.concatenate([half, -half[::-1]]).reshape(m, k)


def _start(m: int, k: int) -> F64:
    """Quantiles of the normal distribution, somewhat spread, with a top level of T on average."""
    quantile = NormalDist().inv_cdf
    grid = [[1.3 * quantile((x * m + h + 0.5) / (m * k)) for x in range(k)] for h in range(m)]
    levels = np.array(grid)
    return levels.reshape(-1)[: m * k // 2]


def _constraint(m: int, k: int) -> F64:
    """The vector v with v . half = mean_h R[h, k-1]."""
    v = np.zeros((m, k))
    v[:, k - 1] = 1 / m
    flat = v.reshape(-1)
    n = m * k // 2
    return flat[:n] - flat[::-1][:n]


class _Point(NamedTuple):
    value: float
    gradient: F64


def _minimise(half: F64, m: int, k: int) -> F64:
    """Newton's method with a trust region, on the plane where the top levels have the mean T."""
    v = _constraint(m, k)
    half = half + v * (float(LIMIT) - v @ half) / (v @ v)
    if len(half) == 1:
        return half
    # An orthonormal basis of the directions that keep the constraint.
    basis = np.linalg.qr(np.concatenate([v[:, None], np.eye(len(v))], axis=1))[0][:, 1 : len(v)]

    def at(y: F64) -> _Point:
        levels = _mirrored(half + basis @ y, m, k)
        if (np.diff(levels, axis=1) <= 0).any():
            return _Point(math.inf, y)
        value, gradient = _error_and_gradient(levels)
        n = len(half)
        flat = gradient.reshape(-1)
        return _Point(value, basis.T @ (flat[:n] - flat[::-1][:n]))

    y = np.zeros(basis.shape[1])
    here, radius = at(y), 1.0
    for _ in range(200):
        curvature, directions = np.linalg.eigh(_hessian(at, y))
        slope = directions.T @ here.gradient
        while True:
            step = directions @ _trusted_step(curvature, slope, radius)
            there = at(y + step)
            if there.value < here.value:
                break
            radius = min(radius, float(np.linalg.norm(step))) / 4
            if radius < 1e-9:
                return half + basis @ y
        gain, y, here = here.value - there.value, y + step, there
        radius *= 2
        if gain < 1e-14:
            break
    return half + basis @ y


def _hessian(at: Any, y: F64) -> F64:
    """Central differences of the analytic gradient."""
    delta = 1e-6
    columns = []
    for e in np.eye(len(y)) * delta:
        columns.append((at(y + e).gradient - at(y - e).gradient) / (2 * delta))
    h: F64 = np.array(columns)
    symmetric: F64 = (h + h.T) / 2
    return symmetric


def _trusted_step(curvature: F64, slope: F64, radius: float) -> F64:
    """Minimise the quadratic model within the radius, in the eigenbasis, by bisection of the shift."""
    low = max(0.0, -float(curvature[0])) + 1e-12 * max(1.0, float(np.abs(curvature).max()))
    step: F64 = -slope / (curvature + low)
    if np.linalg.norm(step) <= radius:
        return step
    high = low + float(np.linalg.norm(slope)) / radius + 1e-300
    for _ in range(60):
        middle = (low + high) / 2
        step = -slope / (curvature + middle)
        if np.linalg.norm(step) > radius:
            low = middle
        else:
            high = middle
    step = -slope / (curvature + high)
    return step


def _round(half: F64, m: int, k: int, grid: float) -> F64:
    """Round to multiples of `grid`, keeping the constraint exactly: then every zone is a multiple of grid / m."""
    v = np.rint(_constraint(m, k) * m).astype(np.int64)  # -1, 0, 1; 2 if there is one row
    units = half / grid
    whole = np.rint(units).astype(np.int64)
    target = round(float(LIMIT) * m / grid)
    while (missing := target - int(v @ whole)) != 0:
        # Move what rounding left furthest on the wrong side.
        towards = v * np.sign(missing)
        i = int(np.argmax(np.where(v != 0, towards * (units - whole), -np.inf)))
        whole[i] += towards[i]
    return _mirrored(whole.astype(np.float64) * grid, m, k)
