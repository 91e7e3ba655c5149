"""CommHook: DDP's gradient buckets averaged while they travel encoded.

Every bucket is reduced on one thread of the hook's own, in bucket order and over connections of its own, while backward
goes on: collectives inside callbacks are unordered across buckets on gloo and can abort the process.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from tersor import rng
from tersor.codec import Codec
from tersor.collectives.link import Link
from tersor.collectives.round import Trace
from tersor.collectives.schemes.scheme import Scheme, resolve
from tersor.collectives.topologies import choose_topology
from tersor.errors import IncompatibleError
from tersor.registry import get_codec
from tersor.torch.buckets import Bucket, Layout
from tersor.torch.collectives import reduce_tensor
from tersor.torch.feedback import Feedback
from tersor.torch.health import SAMPLE, check_health
from tersor.torch.identity import check_identical
from tersor.torch.lane import Lane
from tersor.torch.link import TorchLink
from tersor.torch.memory import SchemeMemory
from tersor.torch.policy import Policy, check_feedback, choose, groups

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket
else:
    # DDP compares this annotation with its own class, so it must be the class and not a string.
    GradBucket = dist.GradBucket

_UNCOMPRESSED = get_codec("none")
_VERSION = 2


@dataclass
class HookStats:
    """What the hook did so far on this rank.

    Attributes
    ----------
    steps, buckets : int
        Synchronised backward passes, and buckets in them.
    coordinates : int
        Gradient coordinates averaged.
    bytes_sent : int
        Payload bytes handed to the transport, with headers, scales and padding.
    codec_s, wire_s : float
        Seconds in encoding and decoding, and in exchanges (with waiting for other ranks).
    exposed_codec_s, exposed_wire_s : float
        The part of these that came after the last gradient was ready: what a step waited for.
    vnmse : float or None
        ||x_hat - x||**2 / ||x||**2 of this rank's own messages in the last full step; None if the codec has no law.
    nonfinite : int
        Buckets that became NaN because a rank had NaN or infinity.
    """

    steps: int = 0
    buckets: int = 0
    coordinates: int = 0
    bytes_sent: int = 0
    codec_s: float = 0.0
    wire_s: float = 0.0
    exposed_codec_s: float = 0.0
    exposed_wire_s: float = 0.0
    vnmse: float | None = None
    nonfinite: int = 0


class CommHook:
    """A DDP communication hook: ``ddp.register_comm_hook(hook.state, hook)``.

    Parameters
    ----------
    codec : Codec, Scheme or str
        A codec, or a protocol of `tersor.collectives.schemes`; the same on all ranks.
    topology : str, default "auto"
        See `tersor.collectives.all_reduce`.
    error_feedback : bool, optional
        Add to each gradient what the last message left out. None: off for unbiased codecs and number formats; biased
        codecs must say True or False.
    policy : mapping or callable, optional
        Codecs by parameter: shell patterns of names to specs, the first that fits counts, such as
        ``{"*.bias": "bf16"}``; or ``policy(name, parameter)``, which returns a codec, a spec or None for `codec`.
        Names are those of the model that `register_comm_hook` gets; without it "0", "1", .. by position.
    predivide : float, optional
        Divide gradients by this factor before they are sent, and their sum by size / predivide behind: for formats
        whose range is short, such as fp16, where the square root of size balances overflow and underflow. None: the
        ranks' estimates are divided by size as they are added.
    health_every : int, default 0
        Every that many steps, sum a sample of every bucket exactly too, and warn if the norm of what arrived is not
        within a factor of two of it; 0: never.
    seed : int, default 0
        Keys all random choices together with step, bucket and rank; the same on all ranks.
    warmup_steps : int, default 0
        Average the first steps without compression.
    nonfinite : {"propagate", "raise"}
        With NaN or infinity on any rank: NaN on all, which GradScaler and gradient clipping need to see, or an error
        on all.
    check_every : int, default 0
        Every that many steps, compare the parameters' bits across ranks and raise if they differ; 0: never.
    group : ProcessGroup, optional
        Default: the default group. Not part of the hook's state or pickle; see `bind`.
    link : Link, optional
        Use this link in place of the group.

    Attributes
    ----------
    stats : HookStats
        Counters.
    state : CommHook
        What DDP hands back to the hook.

    Notes
    -----
    A resumed run equals an uninterrupted one bit for bit if the model, the optimizer and the hook's `state_dict` are
    restored and at least two steps were made before (three with static_graph): DDP rebuilds its buckets after the first
    step (or two) of every process, so the hook keeps the layout in its state and works in it until then.

    After an error that all ranks get (NonFiniteError, RemoteError, drifted replicas), nothing of the step counts, the
    gradients are NaN, and training may go on with the next batch. After any other the link is closed: start again.

    Examples
    --------
    >>> import tempfile, torch, torch.distributed as dist, tersor.torch
    >>> store = dist.FileStore(tempfile.mktemp(), 1)
    >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    >>> hook = tersor.torch.CommHook("eden:4")
    >>> model.register_comm_hook(hook.state, hook)
    >>> model(torch.ones(3, 4)).sum().backward()
    >>> hook.stats.steps
    1
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        codec: "Codec | Scheme | str",
        topology: str = "auto",
        error_feedback: bool | None = None,
        *,
        policy: "Policy | None" = None,
        predivide: float | None = None,
        health_every: int = 0,
        seed: int = 0,
        warmup_steps: int = 0,
        nonfinite: str = "propagate",
        check_every: int = 0,
        group: "dist.ProcessGroup | None" = None,
        link: Link | None = None,
    ) -> None:
        # DDP logs the name of a hook as if it were a function.
        self.__name__ = self.__qualname__ = "tersor.torch.CommHook"
        self.codec = resolve(codec)
        choose_topology(topology, 2)
        if predivide is not None and not predivide > 0:
            raise ValueError(f"predivide must be positive, got {predivide}")
        if nonfinite not in ("propagate", "raise"):
            raise ValueError(f'nonfinite must be "propagate" or "raise", got {nonfinite!r}')
        if warmup_steps < 0 or check_every < 0 or health_every < 0:
            raise ValueError("warmup_steps, check_every and health_every must not be negative")
        check_feedback(self.codec, error_feedback)
        self.policy = policy
        self.predivide = predivide
        self.health_every = health_every
        self.topology = topology
        self.seed = seed
        self.warmup_steps = warmup_steps
        self.nonfinite = nonfinite
        self.check_every = check_every
        self.stats = HookStats()
        self._feedback = Feedback() if error_feedback else None
        self._memory = SchemeMemory()
        self._names: list[str] = []
        self._layout = Layout()
        self._step = 0
        self._lane = Lane()
        self._finite = True
        self._broken: Exception | None = None
        self.bind(group, link)

    @property
    def state(self) -> "CommHook":
        """What DDP hands back to the hook: the hook itself."""
        return self

    def bind(self, group: "dist.ProcessGroup | None" = None, link: Link | None = None) -> None:
        """Use another process group or link from now on, for example after unpickling; to be called on all ranks."""
        self._group = group
        self._given_link = link
        self._link: Link | None = None
        self._compared = False

    def __call__(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not hasattr(bucket, "buffer"):
            raise TypeError(
                "the hook got no GradBucket: compiled autograd's Python reducer is not supported; set "
                "torch._dynamo.config.optimize_ddp = 'ddp_optimizer'"
            )
        last = bucket.is_last()
        link = self._current_link()
        with link.guard():
            mine = self._layout.bucket(bucket.index(), bucket.buffer(), bucket.parameters())
            work = self._layout.ready(mine, last)
        self._lane.submit(partial(self._run, mine, work, last), last)
        if last and self._broken is not None:
            if link.closed:
                raise self._broken
            self._layout.abandon()
            _raise_after_backward(self._broken)
        return mine.future

    def _run(self, mine: Bucket, work: list[Bucket], last: bool) -> None:
        try:
            if mine.index == 0:
                self._begin_step()
            if self._broken is not None:
                raise self._broken
            for each in work:
                self._reduce(each)
            if last:
                self._end_step()
            self._layout.finish(work, last)
        except Exception as error:
            # What ends one bucket is known to all ranks, or has closed the link: all of them skip the rest of the step.
            self._broken = error

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return step, residuals, bucket layout and settings; the process group is not in it."""
        return {
            "version": _VERSION,
            "codec": self.codec.spec,
            "seed": self.seed,
            "step": self._step,
            "layout": self._layout.state(),
            "residuals": None if self._feedback is None else self._feedback.state(),
            "memory": self._memory.state(),
            "stats": asdict(self.stats),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; the hook may already be registered.

        Raises
        ------
        ValueError
            If the state is of another codec, or of a hook with error feedback where this one has none (or the reverse).
        """
        if state.get("version") != _VERSION:
            raise ValueError(f"this hook reads state version {_VERSION}, got {state.get('version')}")
        if state["codec"] != self.codec.spec:
            raise ValueError(f"the state is of {state['codec']}, this hook of {self.codec.spec}")
        if (state["residuals"] is None) != (self._feedback is None):
            raise ValueError("the state and this hook differ in error_feedback")
        self.seed, self._step = state["seed"], state["step"]
        self.stats = HookStats(**state["stats"])
        self._layout.load(state["layout"])
        if self._feedback is not None:
            self._feedback.load(state["residuals"])
        self._memory.load(state["memory"])

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__.copy()
        kept.update(_group=None, _given_link=None, _link=None, _compared=False, _broken=None)
        kept.update(_layout=self._layout.detached())
        return kept

    # One step.

    def _reduce(self, bucket: Bucket) -> None:
        link = self._current_link()
        warm = self._step < self.warmup_steps
        with link.guard():
            sample = self._sample(bucket) if self._sampled() else None
            codecs = [_UNCOMPRESSED] * len(bucket.positions) if warm else self._codecs(bucket.positions)
            parts = groups(bucket, codecs)
        counted, finite = link.bytes_sent, True
        for number, part in enumerate(parts):
            finite &= self._reduce_part(part.bucket, part.codec, number, warm)
            with link.guard():
                part.put_back(bucket.tensor)
        if sample is not None and finite:
            check_health(bucket.tensor, sample, link, f"gradient bucket {bucket.index} of step {self._step}")
        self._finite &= finite
        stats = self.stats
        stats.buckets += 1
        stats.coordinates += bucket.tensor.numel()
        stats.bytes_sent += link.bytes_sent - counted
        stats.nonfinite += not finite

    def _reduce_part(self, bucket: Bucket, codec: Codec | Scheme, number: int, warm: bool) -> bool:
        link, divided = self._current_link(), self.predivide
        exact = isinstance(codec, Codec) and (codec.claims.rounds_to_nearest or codec == _UNCOMPRESSED)
        feedback = None if warm or (exact and codec != self.codec) else self._feedback
        sent: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        with link.guard():
            own = np.empty(bucket.tensor.numel(), np.float32) if feedback else None
            shapes = [tuple(p.shape) for p in self._layout.parameters_at(bucket.positions)]
            tensors = self._memory.tensors(codec, bucket.positions, shapes) if isinstance(codec, Scheme) else None

        def before(x: Any) -> None:
            if feedback is not None:
                feedback.add_to(x, bucket.positions, bucket.sizes)
                sent.append(x.copy())
            if divided is not None:
                x /= np.float32(divided)

        finite = reduce_tensor(
            bucket.tensor,
            link,
            codec,
            seed=rng.mix64(self.seed, self._step, tensor=bucket.index + (number << 32)),
            topology="auto" if codec != self.codec else self.topology,
            average=divided is None,
            nonfinite=self.nonfinite,
            own=own,
            trace=self._lane.trace,
            what=f"gradient bucket {bucket.index} of step {self._step}",
            before=before if feedback or divided is not None else None,
            tensors=tensors,
        )
        with link.guard():
            if divided is not None:
                bucket.tensor *= divided / link.size
            if feedback is not None and own is not None and finite:
                own *= np.float32(divided or 1)
                feedback.keep(sent[0], own, bucket.positions, bucket.sizes)
            if tensors is not None and finite:
                self._memory.keep(bucket.positions, tensors)
        return finite

    def _codecs(self, positions: Sequence[int]) -> list[Codec | Scheme]:
        if self.policy is None:
            return [self.codec] * len(positions)
        names = [self._names[p] if p < len(self._names) else str(p) for p in positions]
        parameters = self._layout.parameters_at(positions)
        return [choose(self.policy, *named) or self.codec for named in zip(names, parameters, strict=True)]

    def _sampled(self) -> bool:
        return bool(self.health_every) and (self._step + 1) % self.health_every == 0

    def _sample(self, bucket: Bucket) -> np.ndarray[Any, np.dtype[np.float32]]:
        part = bucket.tensor.detach().reshape(-1)[:SAMPLE]
        return np.array(part.to(device="cpu", dtype=torch.float32).numpy())

    def _begin_step(self) -> None:
        self._lane.trace = Trace()
        self._finite, self._broken = True, None
        if self._feedback is not None:
            self._feedback.discard()
        self._memory.discard()
        if not self._compared:
            self._compare()

    def _compare(self) -> None:
        # Messages of unequal sizes would abort the processes, and another layout would mix up the parameters.
        settings = [self.codec.spec, self.topology, self.nonfinite, self.seed, self.warmup_steps, self.check_every]
        settings += [self.predivide, self.health_every, [c.spec for c in self._codecs(range(len(self._names)))]]
        text = repr([*settings, self._step, self._layout.wanted()])
        mine = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint8)
        link = self._current_link()
        with link.guard():
            everyone = [h.tobytes() for h in link.all_gather(mine)] if link.size > 1 else []
        different = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
        if different:
            raise IncompatibleError(
                f"the hooks of ranks {different} differ from rank 0's in codec, options or loaded state (here: {text})"
            )
        self._compared = True

    def _end_step(self) -> None:
        if self.check_every and (self._step + 1) % self.check_every == 0:
            check_identical(self._layout.parameters(), self._current_link())
        # A step with NaN anywhere is skipped by its optimizer, so nothing of it was delivered.
        if self._finite:
            self._memory.commit()
            if self._feedback is not None:
                self._feedback.commit()
        trace, stats = self._lane.end_step(), self.stats
        stats.codec_s += trace.seconds(wire=False)
        stats.wire_s += trace.seconds(wire=True)
        stats.exposed_codec_s += self._lane.exposed_codec_s
        stats.exposed_wire_s += self._lane.exposed_wire_s
        stats.vnmse = trace.vnmse
        stats.steps += 1
        self._step += 1

    def _current_link(self) -> Link:
        if self._link is None:
            self._link = self._given_link or TorchLink.beside(self._group)
        return self._link


def _raise_after_backward(error: Exception) -> None:
    # Raised inside the hook, it would leave DDP in the middle of a step, and unusable. DDP queues the end of its step
    # behind the first callback.
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def fail() -> None:
        raise error

    try:
        queue(lambda: queue(fail))
    except RuntimeError:  # no backward is running, as in DDP.join
        raise error from None


def register_comm_hook(
    model: torch.nn.parallel.DistributedDataParallel, codec: "Codec | Scheme | str", **options: Any
) -> CommHook:
    """Make DDP average `model`'s gradients through `codec`; returns the hook.

    Parameters
    ----------
    model : DistributedDataParallel
        A model has at most one hook.
    codec : Codec, Scheme or str
        Such as "eden:4" or "dynamiq:5".
    **options
        As for `CommHook`; the group defaults to the model's.

    Raises
    ------
    TypeError
        If `model` is not wrapped in DistributedDataParallel.

    Examples
    --------
    >>> import tersor.torch
    >>> hook = tersor.torch.register_comm_hook(ddp_model, "eden:4")    # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(
            f"wrap the model in torch.nn.parallel.DistributedDataParallel first, got {type(model).__name__}"
        )
    if "link" not in options:
        options.setdefault("group", model.process_group)
    hook = CommHook(codec, **options)
    named = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad]
    hook._names = [name for name, _ in named]
    hook._layout.know(p for _, p in named)
    model.register_comm_hook(hook.state, hook)
    return hook
