"""all_reduce: the sum or mean of one float32 vector over the ranks of a link, bit-identical on all of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Codec
from tersor.codecs.deliver import first_nonfinite
from tersor.collectives.frames import STATUS_SIZE, check, make_frame, nonfinite_ranks, payload
from tersor.collectives.link import Bytes, Link
from tersor.encoded import Encoded
from tersor.errors import IncompatibleError, NonFiniteError
from tersor.message import from_bytes
from tersor.registry import get_codec
from tersor.shared import Shared

F32 = NDArray[np.float32]

# A second exchange costs more than sending so little to everybody.
_SMALL = 32768


@dataclass
class Trace:
    """What all_reduces cost on this rank.

    Attributes
    ----------
    spans : list of (bool, float, float)
        Whether it was an exchange (else encoding or decoding), begin and end, by time.perf_counter.
    error, energy : float
        ||x_hat - x||**2 and ||x||**2 of this rank's own messages.
    """

    spans: list[tuple[bool, float, float]] = field(default_factory=list)
    error: float = 0.0
    energy: float = 0.0
    _open: list[tuple[bool, float]] = field(default_factory=list)

    def seconds(self, wire: bool, since: float = 0.0) -> float:
        """Return the time in exchanges (`wire`) or in encoding and decoding, from `since` on."""
        return sum(max(end - max(begin, since), 0.0) for kind, begin, end in self.spans if kind == wire)

    @property
    def vnmse(self) -> float | None:
        """The vNMSE of this rank's own messages, or None if the codec knows none."""
        return self.error / self.energy if self.energy > 0 else None

    @contextmanager
    def span(self, wire: bool) -> Iterator[None]:
        """Count the time of a block; what is counted inside it does not count twice."""
        begin = time.perf_counter()
        if self._open:
            outer, since = self._open[-1]
            self.spans.append((outer, since, begin))
        self._open.append((wire, begin))
        try:
            yield
        finally:
            end = time.perf_counter()
            _, since = self._open.pop()
            self.spans.append((wire, since, end))
            if self._open:
                self._open[-1] = (self._open[-1][0], end)

    def coding(self) -> AbstractContextManager[None]:
        """Count the time of a block as encoding or decoding."""
        return self.span(wire=False)

    def wiring(self) -> AbstractContextManager[None]:
        """Count the time of a block as exchange."""
        return self.span(wire=True)


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
    agreed : bool
        Whether a failure was found that all ranks know of.
    """

    link: Link
    codec: Codec
    seed: int
    weight: float
    what: str
    shared: Shared | None = None
    own: F32 | None = None
    trace: Trace = field(default_factory=Trace)
    agreed: bool = False

    def encode(self, x: F32, sender: int, start: int = 0, shared: Shared | None = None, step: int = 0) -> bytes:
        """Return the message of a part of the vector; another `step`, other random draws."""
        seed = rng.mix64(self.seed, step=step) if step else self.seed
        enc = self.codec.encode(x, seed=seed, sender=sender, start=start, shared=shared)
        if enc.error is not None and sender == self.link.rank:
            energy = _energy(x)
            self.trace.error += enc.error * energy
            self.trace.energy += energy
        return enc.to_bytes()

    def check(self, frames: Sequence[Bytes], mine: Exception | None) -> None:
        """Raise what `frames.check` raises, and note that all ranks do."""
        try:
            check(frames, mine, self.what)
        except Exception:
            self.agreed = True
            raise

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


def choose_topology(topology: str, size: int, nbytes: int = _SMALL) -> str:
    """Return the name of a topology; "auto" is gather for 2 ranks, and where it sends at most 32 KiB a rank, else
    transpose.

    Raises
    ------
    ValueError
        If there is no such topology.
    """
    if topology == "auto":
        return "gather" if size <= 2 or (size - 1) * nbytes <= _SMALL else "transpose"
    if topology not in ("gather", "transpose", "ring"):
        raise ValueError(f'topology must be "auto", "gather", "transpose" or "ring", got {topology!r}')
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
    exchange, before anything is written; what only one rank can notice (no memory for the result, say) closes its link,
    so that the others hear of it in their next exchange. One rank alone keeps its exact vector.

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
    topology : {"auto", "gather", "transpose", "ring"}
        gather: every rank sends its message to all and decodes all. transpose: every rank owns a shard, which it gets
        from all, sums in float32, encodes once and sends to all. ring: every shard goes once around, decoded, added to
        and encoded anew at each rank, which costs precision: for links that only reach neighbours. "auto": gather for 2
        ranks, and where it sends at most 32 KiB a rank, else transpose.
    average : bool, default False
        Divide by the number of ranks.
    nonfinite : {"raise", "propagate"}
        With NaN or infinity on any rank, or if the sum overflows: raise on all, or fill `x` with NaN on all.
    own : ndarray of float32, optional
        Receives what the others decode from this rank's messages, for error feedback; of a ring, `x` less what this
        rank's encodings of sums lost.
    trace : Trace, optional
        Adds up times and errors.

    Returns
    -------
    bool
        False if `x` was filled with NaN.

    Raises
    ------
    NonFiniteError
        If `nonfinite` is "raise" and a rank holds NaN or infinity, or the sum overflows.
    RemoteError
        If another rank failed.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from tersor.collectives import LocalLink, all_reduce
    >>> vectors = [np.full(1000, rank, np.float32) for rank in (1, 2)]
    >>> with ThreadPoolExecutor(2) as pool:
    ...     done = pool.map(lambda link, x: all_reduce(link, x, "eden:8", seed=1), LocalLink.group(2), vectors)
    ...     assert all(done)
    >>> bool(np.array_equal(*vectors)), round(float(vectors[0].mean()), 1)
    (True, 3.0)
    """
    from tersor.collectives.gather import gather
    from tersor.collectives.ring import ring
    from tersor.collectives.transpose import transpose

    codec = get_codec(codec)
    if not codec.claims.fixed_size:
        raise ValueError(f"{what}: {codec.spec} has messages of varying size, which collectives cannot move yet")
    if x.ndim != 1 or x.dtype != np.float32 or not x.flags.c_contiguous:
        raise ValueError(f"{what}: x must be a contiguous float32 vector, got {x.dtype} of shape {x.shape}")
    chosen = choose_topology(topology, link.size, codec.nbytes(x.shape))
    first = first_nonfinite(x)
    bad = None if first < 0 else NonFiniteError(f"{what}: x[{first}] is {x[first]} on rank {link.rank}", first)
    if link.size == 1:
        return _settle(x, bad is None, [0], nonfinite, what, own)
    weight = 1 / link.size if average else 1.0
    state = Round(link, codec, seed, weight, what, own=own, trace=trace or Trace())
    try:
        # Sums leave the range that inputs agree on, so a ring agrees on none.
        frames = None if chosen == "ring" else _agree_on_shared(state, x, bad)
        if frames is None:
            frames = {"gather": gather, "transpose": transpose, "ring": ring}[chosen](state, x, bad)
    except BaseException:
        if not state.agreed:
            link.close()
        raise
    return _settle(x, frames is None, nonfinite_ranks(frames or []), nonfinite, what, own)


def _agree_on_shared(state: Round, x: F32, bad: NonFiniteError | None) -> list[Bytes] | None:
    """Exchange statistics if the codec has any; returns the frames if some rank holds NaN or infinity, else None."""
    stats = state.codec.measure(np.zeros(0, np.float32))
    if stats is None:
        return None
    link = state.link

    def measure() -> bytes:
        measured = state.codec.measure(x)
        assert measured is not None
        return measured.tobytes()

    data, mine = make_frame(measure, STATUS_SIZE + stats.nbytes, link.rank, bad)
    with state.trace.wiring():
        frames = link.all_gather(data)
    state.check(frames, mine)
    if nonfinite_ranks(frames):
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
    if nonfinite == "raise" and not ranks:
        raise NonFiniteError(f"{what}: the sum over the ranks overflows float32")
    if nonfinite == "raise":
        raise NonFiniteError(f"{what}: NaN or infinity on ranks {ranks}; nothing was changed")
    x.fill(np.nan)
    return False


def _energy(x: F32) -> float:
    with np.errstate(over="ignore"):
        energy = float(np.einsum("i,i->", x, x))  # no BLAS: its threads cost more than the sum
    return energy if np.isfinite(energy) else float(np.sum(np.square(x, dtype=np.float64)))
