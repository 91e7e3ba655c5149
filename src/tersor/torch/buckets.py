"""Buckets: which parameters DDP's buckets hold, and how a resumed run keeps the layout it had.

DDP starts every process with buckets in reverse order of registration and rebuilds them, in the order in which
gradients became ready, after the first step. A run that resumes would therefore encode its first step in another layout
than the run it continues. So the layout is part of the hook's state: in the first step after loading, buckets that do
not agree with it are held, and reduced in the old layout at the end of backward.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch


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

    def know(self, parameters: Iterable[torch.Tensor]) -> None:
        """Number `parameters` in their order; others are numbered as they first appear in buckets."""
        for p in parameters:
            if id(p) not in self._position:
                self._position[id(p)] = len(self._parameters)
                self._parameters.append(p)

    def parameters(self) -> list[torch.Tensor]:
        """Return all known parameters, by position."""
        return list(self._parameters)

    def bucket(self, index: int, tensor: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Bucket:
        """Return one of DDP's buckets as ours."""
        self.know(parameters)
        return Bucket(index, tensor, [self._position[id(p)] for p in parameters], [p.numel() for p in parameters])

    def ready(self, bucket: Bucket, last: bool) -> list[Bucket]:
        """Return the buckets to reduce now: this one, or none yet, or at the end what is left in the wanted layout."""
        if bucket.index == 0:
            self._current, self._held = [], []
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
            self._held, self._wanted = [], []
        # Last of all: the next step may begin as soon as the futures are done.
        for bucket in complete:
            bucket.future.set_result(bucket.tensor)

    def state(self) -> list[list[int]]:
        """Return the positions in every bucket of the last step."""
        return [list(b) for b in self._current]

    def load(self, state: Sequence[Sequence[int]]) -> None:
        """Work in this layout for one step, whatever buckets DDP has."""
        self._wanted = [list(b) for b in state]
        self._current, self._held = [list(b) for b in state], []

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
