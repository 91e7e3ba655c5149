"""PowerSGD: gradients of matrices as products of two thin factors, each summed over the ranks.

Thijs Vogels, Sai Praneeth Karimireddy, Martin Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", NeurIPS 2019, arXiv 1905.13727. Orthogonalisation by the r x r Gram matrix, which one rank inverts for
all: the other ranks then only multiply and add in a fixed order, so that all of them end with the same bits.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.collectives.round import F32, Round
from tersor.collectives.schemes.scheme import Frames, Memory, Scheme, SchemeClaims, Tensors, register
from tersor.collectives.schemes.values import sum_values
from tersor.errors import NonFiniteError

_TINY = 1e-12  # of the largest eigenvalue: directions below it are noise


@register("powersgd")
@dataclass(frozen=True)
class PowerSGD(Scheme):
    """PowerSGD (NeurIPS 2019): one step of subspace iteration a step, from where the last one ended.

    Attributes
    ----------
    rank : int, default 1
        Columns of the factors.
    min_rate : float, default 2.0
        Tensors whose factors would not be so many times smaller travel as they are, as do vectors.
    """

    rank: int = 1
    min_rate: float = 2.0

    claims: ClassVar[SchemeClaims] = SchemeClaims(
        topologies=("transpose",), error_law="what a matrix of this rank leaves out of the mean"
    )

    def __post_init__(self) -> None:
        if type(self.rank) is not int or not 1 <= self.rank <= 64:
            raise ValueError(f"powersgd: rank must be an integer from 1 to 64, got {self.rank!r}")
        if not self.min_rate >= 1:
            raise ValueError(f"powersgd: min_rate must be at least 1, got {self.min_rate!r}")

    def _thin(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Return rows and columns of a tensor that is worth two factors, else None."""
        if len(shape) < 2 or 0 in shape:
            return None
        m, n = shape[0], int(np.prod(shape[1:]))
        return (m, n) if (m + n) * self.rank * self.min_rate <= m * n and self.rank <= min(m, n) else None

    def init(self, shape: tuple[int, ...]) -> Memory:
        size = self._thin(shape)
        if size is None:
            return {}
        n = size[1]
        # Uniform numbers span as well as normal ones.
        draws = rng.uniform(rng.mix64(n, tensor=self.rank), rng.UNIFORM, 0, n * self.rank) - np.float32(0.5)
        return {"q": draws.reshape(n, self.rank)}

    def reduce(self, state: Round, x: F32, topology: str, tensors: Tensors, bad: NonFiniteError | None) -> Frames:
        frames = state.status(bad)
        if frames is not None:
            return frames
        sizes = [self._thin(s) for s in tensors.shapes]
        parts = tensors.parts(x)
        matrices = [p.reshape(size) for p, size in zip(parts, sizes, strict=True) if size]
        rest = [p.reshape(-1) for p, size in zip(parts, sizes, strict=True) if not size]
        starts = [m["q"] for m, size in zip(tensors.memory, sizes, strict=True) if size]
        with state.trace.coding(), np.errstate(over="ignore", invalid="ignore"):
            p_parts = [m @ q for m, q in zip(matrices, starts, strict=True)]
            first = np.concatenate([*(p.reshape(-1) for p in p_parts), *rest, np.zeros(0, np.float32)])
        plain = first[len(first) - sum(map(len, rest)) :]
        mine = plain.copy()
        if not _summed(state, first, 1):
            return []
        p_means = _split(first, [p.shape for p in p_parts])
        bases = self._orthonormal(state, p_means)
        with state.trace.coding(), np.errstate(over="ignore", invalid="ignore"):
            q_parts = [m.T @ p for m, p in zip(matrices, bases, strict=True)]
            second = np.concatenate([*(q.reshape(-1) for q in q_parts), np.zeros(0, np.float32)])
        if not _summed(state, second, 2):
            return []
        q_means = _split(second, [q.shape for q in q_parts])
        factor = np.float32(state.weight * state.size)
        with state.trace.coding(), np.errstate(over="ignore", invalid="ignore"):
            made = [_product(p, q) for p, q in zip(bases, q_means, strict=True)]
            if not all(np.isfinite(m * factor).all() for m in made) or not np.isfinite(plain * factor).all():
                return []
            # Error feedback takes the mean's own approximation off every rank's matrix: the sum of the rests is exact.
            whole, own = np.empty_like(x), np.empty_like(x)
            _fill(tensors.parts(whole), sizes, [m * factor for m in made], plain * factor)
            _fill(tensors.parts(own), sizes, made, mine)
            if state.own is not None:
                state.own[:] = own
            x[:] = whole
            for memory, q in zip(
                (m for m, size in zip(tensors.memory, sizes, strict=True) if size), q_means, strict=True
            ):
                memory["q"] = q.copy() if q.any() else memory["q"]
        return None

    def _orthonormal(self, state: Round, p_means: list[F32]) -> list[F32]:
        """Return bases of the columns of each matrix, the same bits on all ranks."""
        r = self.rank
        inverse = np.zeros((len(p_means), r, r), np.float32)
        if state.rank == 0:
            with state.trace.coding():
                for k, p in enumerate(p_means):
                    inverse[k] = _inverse_root(p)
        with state.trace.wiring():
            raw = state.link.broadcast(np.frombuffer(inverse.tobytes(), np.uint8), 0)
        inverse = np.frombuffer(raw.tobytes(), np.float32).reshape(inverse.shape)
        with state.trace.coding():
            return [_product(p, c.T) for p, c in zip(p_means, inverse, strict=True)]


def _summed(state: Round, values: F32, tensor: int) -> bool:
    return sum_values(state, values, "none", tensor, 1 / state.size)


def _split(values: F32, shapes: list[tuple[int, ...]]) -> list[F32]:
    edges = np.cumsum([0, *(int(np.prod(s)) for s in shapes)])
    return [values[a:b].reshape(s) for a, b, s in zip(edges[:-1], edges[1:], shapes, strict=True)]


def _inverse_root(p: F32) -> NDArray[np.float32]:
    """Return C so that the columns of P C are orthonormal, or zero beyond the rank of P."""
    wide = p.astype(np.float64)
    largest = np.abs(wide).max(initial=0)
    if not largest:
        return np.zeros((p.shape[1], p.shape[1]), np.float32)
    wide /= largest
    values, vectors = np.linalg.eigh(wide.T @ wide)
    kept = values > _TINY * values[-1]
    roots = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    made: NDArray[np.float32] = (vectors * roots / largest).astype(np.float32)
    return made


def _product(p: F32, q: F32) -> F32:
    """Return P Q^T by multiplications and additions in one order: BLAS may differ from machine to machine."""
    made = p[:, :1] * q[:, 0]
    for k in range(1, p.shape[1]):
        made += p[:, k : k + 1] * q[:, k]
    return made


def _fill(parts: list[F32], sizes: list[tuple[int, int] | None], made: list[F32], plain: F32) -> None:
    matrices, at = iter(made), 0
    for part, size in zip(parts, sizes, strict=True):
        if size:
            part[...] = next(matrices).reshape(part.shape)
        else:
            part[...] = plain[at : at + part.size].reshape(part.shape)
            at += part.size
