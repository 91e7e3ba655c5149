"""Sums of plain values inside a scheme: statistics, chosen coordinates, factors of matrices."""

from tersor import rng
from tersor.codec import Codec
from tersor.collectives.round import F32, Round
from tersor.collectives.transpose import transpose
from tersor.collectives.wire import CodecWire
from tersor.encoded import Encoded
from tersor.registry import get_codec
from tersor.shared import Shared


def sum_values(state: Round, values: F32, codec: str, tensor: int, weight: float) -> bool:
    """Replace `values` by their sum over the ranks times `weight`, the same bytes everywhere; False if it overflows.

    `codec` is a format that rounds to nearest, or none; `tensor` tells apart the sums of one step. All ranks call it.
    """
    inner = Round(state.link, rng.mix64(state.seed, tensor=tensor), weight, state.what, trace=state.trace)
    try:
        frames = transpose(inner, FormatWire(inner, values, get_codec(codec), None), values, None)
    finally:
        state.agreed |= inner.agreed
    return frames is None


class FormatWire(CodecWire):
    """Of formats that encode each value alone: cut anywhere, so that few values are shared out too."""

    def __init__(self, state: Round, x: F32, codec: Codec, shared: Shared | None) -> None:
        super().__init__(state, x, codec, shared)
        self.unit = 1

    def encode(self, x: F32, sender: int, begin: int, step: int, shared: Shared | None) -> Encoded:
        return super().encode(x, sender, 0, step, shared)
