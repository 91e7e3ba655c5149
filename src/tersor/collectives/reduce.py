"""all_reduce: the sum or mean of one float32 vector over the ranks of a link, bit-identical on all of them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Codec, Shared, get_codec
from tersor.codecs.deliver import first_nonfinite
from tersor.collectives.frames import (
    FAILED,
    NONFINITE,
    STATUS_SIZE,
    agree,
    failed_frame,
    frame,
    nonfinite_ranks,
    payload,
)
from tersor.collectives.link import Bytes, Link
from tersor.encoded import Encoded
from tersor.errors import IncompatibleError, NonFiniteError
from tersor.message import from_bytes

F32 = NDArray[np.float32]


@dataclass
class Trace:
    """What an all_reduce cost on this rank.

    Attributes
    ----------
    codec_s, wire_s : float
        Seconds in encoding and decoding, and in exchanges.
    error, energy : float
        ||x_hat - x||**2 and ||x||**2 of this rank's own messages.
    """

    codec_s: float = 0.0
    wire_s: float = 0.0
    error: float = 0.0
    energy: float = 0.0

    @property
    def vnmse(self) -> float | None:
        """The vNMSE of this rank's own messages, or None if the codec knows none."""
        return self.error / self.energy if self.energy > 0 else None

    @contextmanager
    def coding(self) -> Iterator[None]:
        """Count the time of a block as encoding or decoding."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.codec_s += time.perf_counter() - begin

    @contextmanager
    def wiring(self) -> Iterator[None]:
        """Count the time of a block as exchange."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.wire_s += time.perf_counter() - begin


@dataclass
class Round:
    """One all_reduce in progress: what the topologies share.

    Attributes
    ----------
    link, codec, seed
        As given to `all_reduce`.
    weight : float
        Factor of every rank's estimate: 1, or 1 / size for a mean.
    what : str
        Names the collective in errors.
    shared : Shared or None
        What the ranks agreed on.
    own : ndarray of float32 or None
        Receives the estimate of this rank's own input.
    """

    link: Link
    codec: Codec
    seed: int
    weight: float
    what: str
    shared: Shared | None = None
    own: F32 | None = None
    trace: Trace = field(default_factory=Trace)

    def encode(self, x: F32, sender: int, start: int = 0, shared: Shared | None = None) -> bytes:
        """Return the message of a part of the vector."""
        enc = self.codec.encode(x, seed=self.seed, sender=sender, start=start, shared=shared)
        if enc.error is not None and sender == self.link.rank:
            energy = _energy(x)
            self.trace.error += enc.error * energy
            self.trace.energy += energy
        return enc.to_bytes()

    def frame_size(self, n: int) -> int:
        """Return the size of the frame of a message of `n` coordinates."""
        return STATUS_SIZE + self.codec.nbytes((n,))

    def parse(self, data: Bytes, n: int) -> Encoded:
        """Return the message of a frame, checked to be of this codec and of `n` coordinates."""
        enc = from_bytes(payload(data, self.codec.nbytes((n,))), max_elements=max(n, 1))
        if enc.spec != self.codec.spec or enc.shape != (n,):
            raise IncompatibleError(
                f"{self.what}: this rank reduces {n} coordinates with {self.codec.spec}, another one "
                f"{enc.shape} with {enc.spec}"
            )
        return enc


def attempt(make: Callable[[], bytes], size: int, bad: NonFiniteError | None) -> tuple[Bytes, BaseException | None]:
    """Return a frame and this rank's error, if any: failures travel as a status of the frame instead of a message."""
    if bad is not None:
        return failed_frame(size, NONFINITE), bad
    try:
        return frame(make()), None
    except NonFiniteError as error:
        return failed_frame(size, NONFINITE), error
    except Exception as error:
        return failed_frame(size, FAILED), error


def choose_topology(topology: str, size: int) -> str:
    """Return the name of a topology; "auto" is gather for 2 ranks, else transpose.

    Raises
    ------
    ValueError
        If there is no such topology.
    """
    if topology == "auto":
        return "gather" if size <= 2 else "transpose"
    if topology not in ("gather", "transpose"):
        raise ValueError(f'topology must be "auto", "gather" or "transpose", got {topology!r}')
    return topology


def all_reduce(
    link: Link,
    x: F32,
    codec: "Codec | str",
    *,
    seed: int,
    topology: str = "auto",
    average: bool = False,
    nonfinite: str = "raise",
    own: F32 | None = None,
    trace: Trace | None = None,
    what: str = "all_reduce",
) -> bool:
    """Replace `x` on every rank by the estimated sum (or mean) of all ranks' vectors.

    All ranks end with the same bits. A rank that fails, or holds NaN or infinity, is known to all in the first
    exchange, before anything is written. One rank alone keeps its exact vector.

    Parameters
    ----------
    link : Link
        This rank's end of the group.
    x : ndarray of float32, shape (d,)
        Contiguous; written in place.
    codec : Codec or str
        The same on all ranks, of fixed size.
    seed : int
        The same on all ranks; another one for every call.
    topology : {"auto", "gather", "transpose"}
        gather: every rank sends its message to all and decodes all. transpose: every rank owns a shard, which it gets
        from all, sums in float32, encodes once and sends to all. "auto": gather for 2 ranks, else transpose.
    average : bool, default False
        Divide by the number of ranks.
    nonfinite : {"raise", "propagate"}
        With NaN or infinity on any rank: raise on all, or fill `x` with NaN on all.
    own : ndarray of float32, optional
        Receives what the others decode from this rank's messages, for error feedback.
    trace : Trace, optional
        Adds up times and errors.

    Returns
    -------
    bool
        False if `x` was filled with NaN.

    Raises
    ------
    NonFiniteError
        If `nonfinite` is "raise" and a rank holds NaN or infinity.
    RemoteError
        If another rank failed.
    """
    from tersor.collectives.gather import gather
    from tersor.collectives.transpose import transpose

    codec = get_codec(codec)
    if not codec.claims.fixed_size:
        raise ValueError(f"{what}: {codec.spec} has messages of varying size, which collectives cannot move yet")
    if x.ndim != 1 or x.dtype != np.float32 or not x.flags.c_contiguous:
        raise ValueError(f"{what}: x must be a contiguous float32 vector, got {x.dtype} of shape {x.shape}")
    chosen = choose_topology(topology, link.size)
    first = first_nonfinite(x)
    bad = None if first < 0 else NonFiniteError(f"{what}: x[{first}] is {x[first]} on rank {link.rank}", first)
    if link.size == 1:
        return _settle(x, bad is None, [0], nonfinite, what, own)
    weight = 1 / link.size if average else 1.0
    state = Round(link, codec, seed, weight, what, own=own, trace=trace or Trace())
    frames = _agree_on_shared(state, x, bad)
    if frames is None:
        frames = (gather if chosen == "gather" else transpose)(state, x, bad)
    return _settle(x, frames is None, nonfinite_ranks(frames or []), nonfinite, what, own)


def _agree_on_shared(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Exchange statistics if the codec has any; returns the frames if some rank holds NaN or infinity, else None."""
    stats = state.codec.measure(np.zeros(0, np.float32) if bad else x)
    if stats is None:
        return None
    link = state.link
    data, mine = attempt(lambda: stats.tobytes(), STATUS_SIZE + stats.nbytes, bad)
    with state.trace.wiring():
        frames = link.all_gather(data)
    if not agree(frames, mine, state.what):
        return frames
    table = np.stack([payload(f, stats.nbytes).view(np.float32) for f in frames])
    # Every rank merges, but all take the bytes of rank 0: floats may come out differently on another machine.
    merged = state.codec.merge(table, key=rng.mix64(state.seed, tensor=1))
    with state.trace.wiring():
        raw = link.broadcast(np.frombuffer(merged.to_bytes(), np.uint8), 0)
    state.shared = Shared.from_bytes(raw.tobytes())
    return None


def _settle(x: F32, finite: bool, ranks: list[int], nonfinite: str, what: str, own: F32 | None) -> bool:
    if finite:
        if own is not None and own is not x and len(ranks) == 1:
            own[:] = x
        return True
    if nonfinite == "raise":
        raise NonFiniteError(f"{what}: NaN or infinity on ranks {ranks}; nothing was changed")
    x.fill(np.nan)
    return False


def _energy(x: F32) -> float:
    with np.errstate(over="ignore"):
        energy = float(np.einsum("i,i->", x, x))  # no BLAS: its threads cost more than the sum
    return energy if np.isfinite(energy) else float(np.sum(np.square(x, dtype=np.float64)))
