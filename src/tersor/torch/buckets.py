"""Buckets: which parameters DDP's buckets hold, and how a resumed run keeps the layout it had.

DDP starts every process with buckets in reverse order of registration and rebuilds them, in the order in which
gradients became ready, after the first step (after the second with static_graph). A run that resumes would therefore
encode its first steps in another layout than the run it continues. So the layout is part of the hook's state: in the
first two steps after loading, buckets that do not agree with it are held, and reduced in the old layout at the end of
backward.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from tersor.errors import TersorError


@dataclass(eq=False)
class Bucket:
    """One bucket: its number, its flat gradient and the positions and sizes of the parameters in it."""

    index: int
    tensor: torch.Tensor
    positions: list[int]
    sizes: list[int]
    future: "torch.futures.Future[torch.Tensor]" = field(default_factory=torch.futures.Future)


class Layout:
    """Positions of parameters and the buckets they come in."""

    def __init__(self) -> None:
        self._parameters: list[torch.nn.Parameter | torch.Tensor] = []
        self._position: dict[int, int] = {}
        self._current: list[list[int]] = []
        self._wanted: list[list[int]] = []
        self._held: list[Bucket] = []
        self._open: list[Bucket] = []
        self._remaining = 0
        self._ended = True

    def know(self, parameters: Iterable[torch.Tensor]) -> None:
        """Number `parameters` in their order; others are numbered as they first appear in buckets."""
        for p in parameters:
            if id(p) not in self._position:
                self._position[id(p)] = len(self._parameters)
                self._parameters.append(p)

    def parameters(self) -> list[torch.Tensor]:
        """Return all known parameters, by position."""
        return list(self._parameters)

    def parameters_at(self, positions: Sequence[int]) -> list[torch.Tensor]:
        """Return the parameters at some positions."""
        return [self._parameters[p] for p in positions]

    def bucket(self, index: int, tensor: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Bucket:
        """Return one of DDP's buckets as ours."""
        self.know(parameters)
        return Bucket(index, tensor, [self._position[id(p)] for p in parameters], [p.numel() for p in parameters])

    def ready(self, bucket: Bucket, last: bool) -> list[Bucket]:
        """Return the buckets to reduce now: this one, or none yet, or at the end what is left in the wanted layout."""
        if bucket.index == 0:
            if not self._ended and bucket.positions != self._current[0]:
                raise TersorError(
                    "DDP began another step before the last bucket of this one: a hook serves one model, and with "
                    "static_graph all parameters need one dtype (DDP does not number the buckets of its first step)"
                )
            self._current, self._held, self._open = [], [], []
        self._open.append(bucket)
        self._ended = last
        self._current.append(bucket.positions)
        agrees = bucket.index < len(self._wanted) and bucket.positions == self._wanted[bucket.index]
        if not self._wanted or (agrees and not self._held):
            return [bucket]
        self._held.append(bucket)
        return self._regroup() if last else []

    def finish(self, done: Sequence[Bucket], last: bool) -> None:
        """Complete the futures of the buckets that are `done`, and at the end of those that were held."""
        complete = list(done)
        if last:
            results = {p: part for b in done for p, part in zip(b.positions, _split(b), strict=True)}
            for bucket in self._held:
                if bucket not in done:
                    for position, part in zip(bucket.positions, _split(bucket), strict=True):
                        part.copy_(results[position])
                    complete.append(bucket)
            self._remaining -= 1
            if self._remaining <= 0 or not self._held:
                self._wanted = []
            self._held = []
        self._open = [b for b in self._open if b not in complete]
        # Last of all: the next step may begin as soon as the futures are done.
        for bucket in complete:
            bucket.future.set_result(bucket.tensor)

    def abandon(self) -> None:
        """Complete what is left of a step that failed on all ranks, with NaN: nobody must take it for a mean."""
        for bucket in self._open:
            bucket.future.set_result(bucket.tensor.fill_(float("nan")))
        self._held, self._open = [], []

    def state(self) -> list[list[int]]:
        """Return the positions in every bucket of the last step."""
        return [list(b) for b in self._current]

    def load(self, state: Sequence[Sequence[int]]) -> None:
        """Work in this layout for two steps, whatever buckets DDP has."""
        self._remaining, self._ended = 2, True
        self._wanted = [list(b) for b in state]
        self._current, self._held = [list(b) for b in state], []

    def wanted(self) -> list[list[int]]:
        """Return the buckets to work in next, if a state was loaded."""
        return [list(b) for b in self._wanted]

    def detached(self) -> "Layout":
        """Return a layout with the same buckets, without the parameters."""
        other = Layout()
        other.load(self._current)
        return other

    def _regroup(self) -> list[Bucket]:
        held = {position: part for b in self._held for position, part in zip(b.positions, _split(b), strict=True)}
        begun = self._held[0].index
        left = self._wanted[begun:]
        if sorted(held) != sorted(position for b in left for position in b):
            warnings.warn(
                "the model's parameters are not those of the saved bucket layout; it is ignored", stacklevel=3
            )
            return list(self._held)
        return [
            Bucket(begun + k, torch.cat([held[p] for p in b]), b, [held[p].numel() for p in b])
            for k, b in enumerate(left)
        ]


def _split(bucket: Bucket) -> tuple[torch.Tensor, ...]:
    return torch.split(bucket.tensor, bucket.sizes)
