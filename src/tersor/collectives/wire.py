"""Wire: what travels between the ranks of one all_reduce - messages of sums of ranges - and the wires of codecs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tersor import rng
from tersor.codec import Codec
from tersor.collectives.frames import STATUS_SIZE
from tersor.collectives.link import Bytes
from tersor.collectives.round import F32, Round
from tersor.encoded import Encoded
from tersor.errors import IncompatibleError
from tersor.message import from_bytes
from tersor.shared import Shared


class Partial(ABC):
    """The sum over some ranks of a range of coordinates, on its way through the group.

    Attributes
    ----------
    begin, stop : int
        The range.
    count : int
        How many ranks' vectors are in it.
    """

    def __init__(self, begin: int, stop: int, count: int) -> None:
        self.begin, self.stop, self.count = begin, stop, count

    @abstractmethod
    def add(self, message: Bytes, count: int) -> None:
        """Add another partial sum, of `count` ranks."""

    @abstractmethod
    def message(self, final: bool = False) -> bytes:
        """Return what the next rank, or with `final` all of them, get of it. Called once."""


class Wire(ABC):
    """How one all_reduce encodes: the topologies move its messages and do not look into them.

    Attributes
    ----------
    unit : int or None
        Ranges begin at its multiples.
    """

    unit: int | None = None

    @abstractmethod
    def own(self, begin: int, stop: int) -> Partial:
        """Return this rank's own vector as a partial sum."""

    @abstractmethod
    def total(self, begin: int, stop: int, messages: Sequence[Bytes], count: int) -> Partial:
        """Return the sum of messages of one range, of `count` ranks in all."""

    @abstractmethod
    def size(self, begin: int, stop: int, count: int) -> int | None:
        """Return the bytes of a message of a range and `count` ranks; None if that depends on the data."""

    @abstractmethod
    def deliver(self, messages: Sequence[tuple[Bytes, int, int]], out: F32) -> None:
        """Decode the messages, each with its range, of complete sums to where they belong in `out`."""

    def frame_size(self, begin: int, stop: int, count: int) -> int | None:
        """Return the size of the frame of a message."""
        size = self.size(begin, stop, count)
        return None if size is None else STATUS_SIZE + size


class EncodedWire(Wire):
    """Messages of a codec."""

    def __init__(self, state: Round, x: F32, codec: Codec, shared: Shared | None) -> None:
        self.state, self.x, self.codec, self.shared = state, x, codec, shared
        self.unit = codec.unit

    def encode(self, x: F32, sender: int, begin: int, step: int, shared: Shared | None) -> Encoded:
        """Return the message of a part of a vector; another `step`, other random draws."""
        seed = rng.mix64(self.state.seed, step=step) if step else self.state.seed
        enc = self.codec.encode(x, seed=seed, sender=sender, start=begin, shared=shared)
        if enc.error is not None and sender == self.state.rank:
            energy = _energy(x)
            self.state.trace.error += enc.error * energy
            self.state.trace.energy += energy
        return enc

    def parse(self, data: Bytes, n: int, count: int = 1) -> Encoded:
        """Return a message, checked to be of this codec, of `n` coordinates and `count` vectors."""
        enc = from_bytes(data[: self.codec.nbytes((n,), count=count)], max_elements=max(n, 1))
        if enc.spec != self.codec.spec or enc.shape != (n,) or not np.array_equal(enc.count, count):
            raise IncompatibleError(
                f"{self.state.what}: this rank reduces {n} coordinates with {self.codec.spec}, another one "
                f"{enc.shape} with {enc.spec}"
            )
        return enc

    def accumulate(self, messages: list[Encoded], out: F32, weights: list[float]) -> None:
        """Add the weighted estimates of messages to `out`; sums may overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.codec.accumulate(messages, self.codec.units(out.shape, None), out, weights)


class CodecWire(EncodedWire):
    """Messages of any codec: sums are made in float32 and encoded anew, with fresh draws, wherever they go on."""

    def own(self, begin: int, stop: int) -> "CodecPartial":
        return CodecPartial(self, begin, stop, 1)

    def total(self, begin: int, stop: int, messages: Sequence[Bytes], count: int) -> "CodecPartial":
        made = CodecPartial(self, begin, stop, count)
        made.values = np.zeros(stop - begin, np.float32)
        encs = [self.parse(data, stop - begin) for data in messages]
        self.accumulate(encs, made.values, [self.state.weight] * len(encs))
        return made

    def size(self, begin: int, stop: int, count: int) -> int | None:
        return self.codec.nbytes((stop - begin,)) if self.codec.claims.fixed_size else None

    def deliver(self, messages: Sequence[tuple[Bytes, int, int]], out: F32) -> None:
        encs = [self.parse(data, stop - begin) for data, begin, stop in messages]
        for enc, (_, begin, stop) in zip(encs, messages, strict=True):
            self.codec.decode(enc, out=out[begin:stop])


class CodecPartial(Partial):
    """Of a CodecWire. This rank's own vector goes out as it is, a sum with the weight of all_reduce in it."""

    def __init__(self, wire: CodecWire, begin: int, stop: int, count: int) -> None:
        super().__init__(begin, stop, count)
        self.wire = wire
        self.values: F32 | None = None

    def add(self, message: Bytes, count: int) -> None:
        wire = self.wire
        if self.values is None:
            self.values = wire.x[self.begin : self.stop] * np.float32(wire.state.weight)
        enc = wire.parse(message, self.stop - self.begin)
        wire.accumulate([enc], self.values, [wire.state.weight if count == 1 else 1.0])
        self.count += count

    def message(self, final: bool = False) -> bytes:
        wire, state = self.wire, self.wire.state
        own = None if state.own is None or final else state.own[self.begin : self.stop]
        sender = state.size + state.rank if final else state.rank
        if self.values is None:
            enc = wire.encode(wire.x[self.begin : self.stop], sender, self.begin, 0, wire.shared)
            if own is not None:
                wire.codec.decode(enc, out=own)
            return enc.to_bytes()
        # Sums leave the range that inputs agree on.
        enc = wire.encode(self.values, sender, self.begin, self.count, None)
        if own is not None:
            # What this rank's own rounding of the sum lost is its part of the error.
            lost = self.values - wire.codec.decode(enc)
            own[:] = wire.x[self.begin : self.stop] - lost / np.float32(state.weight)
        return enc.to_bytes()


class SumWire(EncodedWire):
    """Messages of an additive codec, whose senders share their statistics: added as integers, decoded at the end."""

    def own(self, begin: int, stop: int) -> "SumPartial":
        enc = self.encode(self.x[begin:stop], self.state.rank, begin, 0, self.shared)
        if self.state.own is not None:
            self.codec.decode(enc, out=self.state.own[begin:stop])
        return SumPartial(self, begin, stop, enc)

    def total(self, begin: int, stop: int, messages: Sequence[Bytes], count: int) -> "SumPartial":
        parts = [self.parse(data, stop - begin) for data in messages]
        made = SumPartial(self, begin, stop, parts[0])
        made.join(parts)
        return made

    def size(self, begin: int, stop: int, count: int) -> int:
        return self.codec.nbytes((stop - begin,), count=count)

    def deliver(self, messages: Sequence[tuple[Bytes, int, int]], out: F32) -> None:
        size, weight = self.state.size, self.state.weight * self.state.size
        encs = [self.parse(data, stop - begin, size) for data, begin, stop in messages]
        for enc, (_, begin, stop) in zip(encs, messages, strict=True):
            self.codec.decode(enc, out=out[begin:stop], weight=weight)


class SumPartial(Partial):
    """Of a SumWire: an encoded sum."""

    def __init__(self, wire: SumWire, begin: int, stop: int, enc: Encoded) -> None:
        super().__init__(begin, stop, 1)
        self.wire, self.enc = wire, enc

    def add(self, message: Bytes, count: int) -> None:
        self.join([self.enc, self.wire.parse(message, self.stop - self.begin, count)])

    def join(self, parts: list[Encoded]) -> None:
        """Become the sum of `parts`. What it clamps, if it saturates, is this rank's error."""
        wire, state = self.wire, self.wire.state
        self.enc = wire.codec.add_all(parts)
        assert isinstance(self.enc.count, int)
        self.count = self.enc.count
        clamped = wire.codec.saturated(self.enc) - sum(wire.codec.saturated(p) for p in parts)
        state.trace.saturated += clamped
        if clamped and state.own is not None:
            lost = np.zeros(self.stop - self.begin, np.float32)
            wire.accumulate(parts, lost, [float(np.max(p.count)) for p in parts])
            wire.accumulate([self.enc], lost, [-float(self.count)])
            state.own[self.begin : self.stop] -= lost

    def message(self, final: bool = False) -> bytes:
        return replace(self.enc, error=None).to_bytes()


def _energy(x: F32) -> float:
    with np.errstate(over="ignore"):
        energy = float(np.einsum("i,i->", x, x))  # no BLAS: its threads cost more than the sum
    return energy if np.isfinite(energy) else float(np.sum(np.square(x, dtype=np.float64)))
