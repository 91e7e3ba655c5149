"""Sparse sums whose blocks all ranks agree on first: chunk-consensus top-k, and OmniReduce-like unions of blocks.

Chunk consensus (reconstructed): Wenchen Han, Shay Vargaftik, Michael Mitzenmacher, Brad Karp, Ran Ben Basat: "Beyond
Throughput and Compression Ratios: Towards High End-to-end Utility of Gradient Compression", HotNets 2024, arXiv
2407.01378.
Unions of blocks (reconstructed): Jiawei Fei, Chen-Yu Ho, Atal N. Sahu, Marco Canini, Amedeo Sapio: "Efficient Sparse
Collective Communication and its application to Accelerate Distributed Deep Learning", SIGCOMM 2021.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor.collectives.round import F32, Round
from tersor.collectives.schemes.scheme import Frames, Scheme, SchemeClaims, Tensors, register
from tersor.collectives.schemes.values import sum_values
from tersor.errors import NonFiniteError
from tersor.registry import get_codec

Flags = NDArray[np.bool_]
_FORMATS = ("none", "bf16", "fp16")


@dataclass(frozen=True)
class _Blocks(Scheme):
    """What both have in common: a share of the blocks, and the format of their values."""

    share: float
    block: int = 64
    values: str = "bf16"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"{self.name}: share must be above 0 and at most 1, got {self.share!r}")
        if type(self.block) is not int or not 1 <= self.block <= 1 << 20:
            raise ValueError(f"{self.name}: block must be an integer from 1 to 2**20, got {self.block!r}")
        if self.values not in _FORMATS:
            raise ValueError(f"{self.name}: values must be one of {', '.join(_FORMATS)}, got {self.values!r}")

    @abstractmethod
    def _choose(self, state: Round, sizes: F32) -> Flags:
        """Return which blocks are summed, the same on all ranks, from the root mean squares of this rank's."""

    def reduce(self, state: Round, x: F32, topology: str, tensors: Tensors, bad: NonFiniteError | None) -> Frames:
        frames = state.status(bad)
        if frames is not None:
            return frames
        with state.trace.coding():
            sizes = _block_rms(x, self.block)
        chosen = np.repeat(self._choose(state, sizes), self.block)[: len(x)]
        with state.trace.coding():
            values = x[chosen]
            if state.own is not None:
                state.own.fill(0)
                codec = get_codec(self.values)
                state.own[chosen] = codec.decode(codec.encode(values, seed=0))
        if not sum_values(state, values, self.values, 2, state.weight):
            return []
        with state.trace.coding():
            x.fill(0)
            x[chosen] = values
        return None

    def _count(self, blocks: int) -> int:
        return min(max(int(np.ceil(self.share * blocks)), 1), blocks)


@register("topkc")
@dataclass(frozen=True)
class TopKC(_Blocks):
    """Chunk-consensus top-k: all ranks sum the chunks whose norms are largest over all ranks, and only those.

    No indices travel: the sums of the chunks' norms are all-reduced first, and everybody picks the same chunks.

    Attributes
    ----------
    share : float
        Share of the chunks that is summed, above 0 and at most 1.
    block : int, default 64
        Coordinates of a chunk.
    values : {"bf16", "fp16", "none"}
        Format of the summed values.
    """

    claims: ClassVar[SchemeClaims] = SchemeClaims(
        topologies=("transpose",), error_law="the energy of the chunks that are left out"
    )

    def _choose(self, state: Round, sizes: F32) -> Flags:
        total = sizes.copy()
        chosen = np.zeros(len(sizes), np.bool_)
        finite = sum_values(state, total, "bf16", 1, 1 / state.size)
        assert finite, "a mean of finite numbers is finite"
        chosen[np.argsort(-total, kind="stable")[: self._count(len(sizes))]] = True
        return chosen


@register("omnireduce")
@dataclass(frozen=True)
class OmniReduce(_Blocks):
    """Block-sparse sums (OmniReduce-like): blocks that are zero on all ranks do not travel.

    Every rank names its blocks that are not zero, or the largest of them; all ranks sum the union. With a share of 1
    nothing is lost but what `values` rounds.

    Attributes
    ----------
    share : float, default 1.0
        Share of a rank's blocks that it may name, the largest by norm.
    block : int, default 256
        Coordinates of a block.
    values : {"bf16", "fp16", "none"}
        Format of the summed values.
    """

    share: float = 1.0
    block: int = 256

    claims: ClassVar[SchemeClaims] = SchemeClaims(
        topologies=("transpose",), error_law="the energy of the blocks that no rank names"
    )

    def _choose(self, state: Round, sizes: F32) -> Flags:
        mine = np.zeros(len(sizes), np.bool_)
        mine[np.argsort(-sizes, kind="stable")[: self._count(len(sizes))]] = True
        mine &= sizes > 0
        with state.trace.wiring():
            everyone = state.link.all_gather(np.packbits(mine))
        return np.unpackbits(np.bitwise_or.reduce(everyone), count=len(sizes)).astype(np.bool_)


def _block_rms(x: F32, block: int) -> F32:
    """Return the root mean squares of blocks, the last one filled with zeros; 0 only for zeros."""
    rows = np.zeros((-(-len(x) // block), block), np.float64)
    rows.reshape(-1)[: len(x)] = x
    made: F32 = np.sqrt(np.einsum("ij,ij->i", rows, rows) / block).astype(np.float32)
    return made
