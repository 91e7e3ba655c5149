"""DynamiQ: sums that are decoded, added to and encoded anew at every hop, with bits where the energy is.

Wenchen Han, Shay Vargaftik, Michael Mitzenmacher, Ran Ben Basat: "DynamiQ", 2026, arXiv 2602.08923. Where the authors'
code and text differ, values are rounded in value space, group scales are rounded up and values against them, and codes
have no level beyond the scale: all of it unbiased.
"""

import struct
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.collectives.frames import STATUS_SIZE, make_frame, nonfinite_ranks, payload
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.collectives.schemes.scheme import Frames, Scheme, SchemeClaims, Tensors, register
from tersor.collectives.schemes.values import sum_values
from tersor.collectives.topologies import TOPOLOGIES
from tersor.collectives.wire import Partial, Wire
from tersor.errors import FormatError, IncompatibleError, NonFiniteError
from tersor.kernels import ops
from tersor.quantize.dynamiq import LEAST, MOST, SUPER_GROUP, expected_error, spread_rank, widths

_HEADER = struct.Struct("<III")  # CRC-32 of the rest, digest of the widths, ranks in the sum
_TOO_MUCH = 0.3
_NONE_U8, _NONE_F32 = np.zeros(0, np.uint8), np.zeros(0, np.float32)


@register("dynamiq")
@dataclass(frozen=True)
class DynamiQ(Scheme):
    """DynamiQ (2026): unbiased sums over many hops at a budget of bits, all of its statistics and scales counted.

    Super-groups of 256 coordinates get 2, 4 or 8 bits by their energy over all ranks. Every hop finds fresh scales, a
    byte for 16 coordinates and a bfloat16 for 256, and rounds at random to levels that are denser near zero; the ranks'
    draws are spread evenly over [0, 1], so that their errors tend to cancel.

    Attributes
    ----------
    bits : float
        Bits a coordinate of every message, 2.6875 to 8.6875.

    Notes
    -----
    It pays where the energy of super-groups differs. On i.i.d. normal vectors `mxfp8` errs less in a ring of few ranks.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> from tersor.collectives import LocalLink, all_reduce
    >>> x = np.random.default_rng(0).standard_normal((4, 5000)).astype(np.float32)
    >>> exact = x.sum(axis=0)
    >>> with ThreadPoolExecutor(4) as pool:
    ...     done = list(pool.map(lambda link: all_reduce(link, x[link.rank], "dynamiq:5", seed=1), LocalLink.group(4)))
    >>> bool(np.array_equal(x[0], x[3])), bool(((x[0] - exact) ** 2).sum() < 0.04 * (exact**2).sum())
    (True, True)
    """

    bits: float

    claims: ClassVar[SchemeClaims] = SchemeClaims(
        unbiased=True,
        topologies=("ring", "butterfly", "transpose", "server"),
        error_law="grows with the square of the ranks in a ring, with their number in a butterfly",
    )

    def __post_init__(self) -> None:
        if not LEAST <= self.bits <= MOST:
            raise ValueError(f"dynamiq: bits must be {LEAST} to {MOST}, with scales and statistics, got {self.bits!r}")

    def reduce(self, state: Round, x: F32, topology: str, tensors: Tensors, bad: NonFiniteError | None) -> Frames:
        # The status carries the largest magnitude, so that all ranks work on the same scale and nothing overflows.
        data, failed = make_frame(
            lambda: np.abs(x).max(initial=0).astype("<f4").tobytes(), STATUS_SIZE + 8, state.rank, bad
        )
        frames = state.all_gather(data, len(data))
        state.check(frames, failed)
        if nonfinite_ranks(frames):
            return frames
        largest = max(float(payload(f, 4).view("<f4")[0]) for f in frames)
        scale = float(np.ldexp(1.0, int(np.clip(-np.frexp(largest)[1], -126, 126))))
        count = -(-len(x) // SUPER_GROUP)
        stats = np.empty((2, count), np.float32)
        with state.trace.coding():
            ops.current().dynamiq_stats(x, scale, stats[0], stats[1])
        # Sums of bfloat16 at their owners, and sent as such: the same bytes on all ranks.
        agreed = stats.reshape(-1)
        finite = sum_values(state, agreed, "bf16", 1, 1 / state.size)
        assert finite, "means of finite numbers below 1 are finite"
        bits = widths(agreed[count:], float(self.bits))
        predicted = expected_error(bits, agreed[count:], state.size if topology == "ring" else 2)
        if predicted > _TOO_MUCH:
            warnings.warn(
                f"{self.spec}: expect an error of more than {_TOO_MUCH} of the sum's energy; use more bits, or a codec",
                stacklevel=2,
            )
        wire = DynamiQWire(state, x, scale, agreed[:count], bits)
        return TOPOLOGIES[topology](state, wire, x, None)


class DynamiQWire(Wire):
    """Messages of sums of super-groups, whose means and widths all ranks know."""

    unit = SUPER_GROUP

    def __init__(self, state: Round, x: F32, scale: float, means: F32, bits: NDArray[np.uint8]) -> None:
        self.state, self.x, self.scale, self.means, self.bits = state, x, scale, means, bits
        self.offsets = np.cumsum(np.concatenate([[0], 32 * bits.astype(np.int64) + 18]))
        self.digest = zlib.crc32(means.tobytes() + bits.tobytes())
        self.shared = rng.mix64(state.seed, tensor=2)
        self.place = spread_rank(state.rank, state.size)

    def own(self, begin: int, stop: int) -> "DynamiQPartial":
        return DynamiQPartial(self, begin, stop, 1)

    def total(self, begin: int, stop: int, messages: Sequence[Bytes], count: int) -> "DynamiQPartial":
        made = DynamiQPartial(self, begin, stop, 0)
        made.values = np.zeros(stop - begin, np.float32)
        for data in messages:
            made.add(data, count // len(messages))
        return made

    def groups(self, begin: int, stop: int) -> slice:
        """Return the super-groups of a range."""
        return slice(begin // SUPER_GROUP, -(-stop // SUPER_GROUP)) if begin < stop else slice(0, 0)

    def body_size(self, begin: int, stop: int) -> int:
        """Return the bytes of the records of a range."""
        which = self.groups(begin, stop)
        return int(self.offsets[which.stop] - self.offsets[which.start])

    def size(self, begin: int, stop: int, count: int) -> int:
        return _HEADER.size + self.body_size(begin, stop)

    def deliver(self, messages: Sequence[tuple[Bytes, int, int]], out: F32) -> None:
        size, factor = self.state.size, self.state.weight / self.scale
        bodies = [self.parse(data, begin, stop, size) for data, begin, stop in messages]
        for body, (_, begin, stop) in zip(bodies, messages, strict=True):
            which = self.groups(begin, stop)
            ops.current().dynamiq_decode(
                body, self.bits[which], self.means[which], float(size), factor, False, out[begin:stop]
            )

    def parse(self, data: Bytes, begin: int, stop: int, count: int) -> Bytes:
        """Return the records of a message, checked."""
        size = self.size(begin, stop, count)
        if len(data) < size:
            raise FormatError(f"{self.state.what}: a message of {len(data)} bytes, expected {size}")
        crc, digest, counted = _HEADER.unpack(data[: _HEADER.size].tobytes())
        if zlib.crc32(data[4:size].tobytes()) != crc:
            raise FormatError(f"{self.state.what}: a message is damaged: its checksum does not match")
        if (digest, counted) != (self.digest, count):
            raise IncompatibleError(f"{self.state.what}: the ranks' bit widths or places in the topology differ")
        return data[_HEADER.size : size]


class DynamiQPartial(Partial):
    """Of a DynamiQWire. What came last is decoded only when it goes on: one pass adds it and encodes the sum."""

    def __init__(self, wire: DynamiQWire, begin: int, stop: int, count: int) -> None:
        super().__init__(begin, stop, count)
        self.wire = wire
        self.values: F32 | None = None  # None: this rank's own
        self.received: Bytes = _NONE_U8

    def add(self, message: Bytes, count: int) -> None:
        body = self.wire.parse(message, self.begin, self.stop, count)
        if len(self.received):
            self.values = self.sum()
        self.received = body
        self.count += count

    def sum(self) -> F32:
        """Return the sum so far, of scaled values less their means."""
        wire, which = self.wire, self.wire.groups(self.begin, self.stop)
        if self.values is None:
            made = wire.x[self.begin : self.stop] * np.float32(wire.scale)
            made -= np.repeat(wire.means[which], SUPER_GROUP)[: len(made)]
        else:
            made = self.values
        if len(self.received):
            ops.current().dynamiq_decode(self.received, wire.bits[which], _NONE_F32, 0.0, 1.0, True, made)
        return made

    def message(self, final: bool = False) -> bytes:
        wire, state = self.wire, self.wire.state
        which = wire.groups(self.begin, self.stop)
        raw = bytearray(wire.size(self.begin, self.stop, self.count))
        body = np.frombuffer(raw, np.uint8, offset=_HEADER.size)
        own = self.values is None
        values = wire.x[self.begin : self.stop] if self.values is None else self.values
        error, energy = ops.current().dynamiq_hop(
            values,
            wire.scale if own else 1.0,
            wire.means[which] if own else _NONE_F32,
            wire.bits[which],
            self.received,
            wire.place,
            state.size,
            wire.shared,
            rng.mix64(state.seed, step=self.count + final * state.size, sender=state.rank),
            which.start,
            body,
        )
        if not np.isfinite(energy):
            raise NonFiniteError(f"{state.what}: a partial sum is not finite", self.begin)
        if self.count == 1 and not final:
            state.trace.error += error / wire.scale**2
            state.trace.energy += energy / wire.scale**2
        if state.own is not None and not final:
            lost = self.sum()
            ops.current().dynamiq_decode(body, wire.bits[which], _NONE_F32, 0.0, -1.0, True, lost)
            state.own[self.begin : self.stop] = wire.x[self.begin : self.stop] - lost / np.float32(wire.scale)
        _HEADER.pack_into(raw, 0, 0, wire.digest, self.count)
        raw[:4] = zlib.crc32(memoryview(raw)[4:]).to_bytes(4, "little")
        return bytes(raw)
