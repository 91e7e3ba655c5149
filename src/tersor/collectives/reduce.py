"""all_reduce: the sum or mean of one float32 vector over the ranks of a link, bit-identical on all of them."""

import numpy as np

from tersor import rng
from tersor.codec import Codec
from tersor.codecs.deliver import first_nonfinite
from tersor.collectives.frames import STATUS_SIZE, make_frame, nonfinite_ranks, payload
from tersor.collectives.link import Bytes, Link
from tersor.collectives.round import F32, Round, Trace
from tersor.collectives.schemes.scheme import Scheme, Tensors, resolve
from tersor.collectives.switch import check_switched
from tersor.collectives.topologies import ADD, TELL, TOPOLOGIES, choose_topology
from tersor.collectives.wire import CodecWire, SumWire
from tersor.errors import NonFiniteError
from tersor.shared import Shared


def all_reduce(
    link: Link,
    x: F32,
    codec: "Codec | Scheme | str",
    *,
    seed: int,
    topology: str = "auto",
    average: bool = False,
    nonfinite: str = "raise",
    tensors: Tensors | None = None,
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
    codec : Codec, Scheme or str
        The same on all ranks: a codec, or a protocol of `tersor.collectives.schemes`.
    seed : int
        The same on all ranks; another one for every call.
    topology : str, default "auto"
        "gather": every rank sends its message to all and decodes all. "transpose": every rank owns a shard, which it
        gets from all, sums in float32, encodes once and sends to all. "sharded": the same, but messages of additive
        codecs are added as integers, and the sum is sent on as it is. "server": rank 0 owns all. "ring": every shard
        goes once around; "butterfly": halves are swapped over growing distances, in log2(n) steps; there sums of codecs
        that are not additive are encoded anew at each rank, which costs precision. "switch": of a `SwitchLink`.
        "auto": gather for 2 ranks, and where it sends at most 32 KiB a rank; else sharded for additive codecs,
        transpose for others.
    average : bool, default False
        Divide by the number of ranks.
    nonfinite : {"raise", "propagate"}
        With NaN or infinity on any rank, or if the sum overflows: raise on all, or fill `x` with NaN on all.
    tensors : Tensors, optional
        What `x` is made of, with a scheme's state, which is brought up to date. Default: one vector, in its first step.
    own : ndarray of float32, optional
        Receives what the others decode from this rank's messages, for error feedback; where it encoded sums, `x` less
        what that lost.
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
    codec = resolve(codec)
    if x.ndim != 1 or x.dtype != np.float32 or not x.flags.c_contiguous:
        raise ValueError(f"{what}: x must be a contiguous float32 vector, got {x.dtype} of shape {x.shape}")
    chosen = _topology(codec, topology, link, x.shape, what)
    first = first_nonfinite(x)
    bad = None if first < 0 else NonFiniteError(f"{what}: x[{first}] is {x[first]} on rank {link.rank}", first)
    if link.size == 1:
        return _settle(x, bad is None, [0], nonfinite, what, own)
    if own is not None and own is not x:
        own[:] = x  # where this rank encodes nothing but the last sum
    weight = 1 / link.size if average else 1.0
    state = Round(link, seed, weight, what, own=own, trace=trace or Trace())
    try:
        if isinstance(codec, Scheme):
            frames = codec.reduce(state, x, chosen, tensors or Tensors([x.shape], [codec.init(x.shape)]), bad)
        else:
            frames = _reduce(state, codec, x, chosen, bad)
    except BaseException:
        if not state.agreed:
            link.close()
        raise
    return _settle(x, frames is None, nonfinite_ranks(frames or []), nonfinite, what, own)


def _topology(codec: Codec | Scheme, topology: str, link: Link, shape: tuple[int, ...], what: str) -> str:
    if isinstance(codec, Scheme):
        chosen = codec.claims.topologies[0] if topology == "auto" else choose_topology(topology, link.size)
        if chosen not in codec.claims.topologies:
            raise ValueError(f"{what}: {codec.spec} runs over {', '.join(codec.claims.topologies)}, not {chosen}")
        return chosen
    chosen = choose_topology(topology, link.size, codec.nbytes(shape), codec.claims.additive)
    if chosen == "switch":
        check_switched(link, codec, what)
    return chosen


def _reduce(state: Round, codec: Codec, x: F32, chosen: str, bad: NonFiniteError | None) -> list[Bytes] | None:
    frames, shared = _agree_on_shared(state, codec, x, bad)
    if frames is None and shared is None and chosen not in TELL:
        frames = state.status(bad)
    if frames is not None:
        return frames
    wire = (SumWire if codec.claims.additive and chosen in ADD else CodecWire)(state, x, codec, shared)
    return TOPOLOGIES[chosen](state, wire, x, bad)


def _agree_on_shared(
    state: Round, codec: Codec, x: F32, bad: NonFiniteError | None
) -> tuple[list[Bytes] | None, Shared | None]:
    """Exchange statistics if the codec has any; returns the frames if some rank holds NaN or infinity, else None."""
    stats_size = codec.stats_size(x.shape)
    if not stats_size:
        return None, None
    link = state.link

    def measure() -> bytes:
        measured = codec.measure(x)
        assert measured is not None
        return measured.tobytes()

    with state.trace.coding():
        data, mine = make_frame(measure, STATUS_SIZE + 4 * stats_size, link.rank, bad)
    with state.trace.wiring():
        frames = link.all_gather(data)
    state.check(frames, mine)
    if nonfinite_ranks(frames):
        return frames, None
    table = np.stack([payload(f, 4 * stats_size).view(np.float32) for f in frames])
    # Every rank merges, but all take the bytes of rank 0: floats may come out differently on another machine.
    merged = codec.merge(table, key=rng.mix64(state.seed, tensor=1))
    with state.trace.wiring():
        raw = link.broadcast(np.frombuffer(merged.to_bytes(), np.uint8), 0)
    return None, Shared.from_bytes(raw.tobytes())


def _settle(x: F32, finite: bool, ranks: list[int], nonfinite: str, what: str, own: F32 | None) -> bool:
    if finite:
        return True
    if nonfinite == "raise" and not ranks:
        raise NonFiniteError(f"{what}: the sum over the ranks overflows float32")
    if nonfinite == "raise":
        raise NonFiniteError(f"{what}: NaN or infinity on ranks {ranks}; nothing was changed")
    x.fill(np.nan)
    return False
