"""Memory: a scheme's state, parameter by parameter; what a step makes counts only when the step ends well."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tersor.collectives import Scheme, Tensors


class SchemeMemory:
    """States of one model's parameters, by position, so that they survive DDP's bucket rebuild."""

    def __init__(self) -> None:
        self.states: dict[int, dict[str, Any]] = {}
        self._pending: dict[int, dict[str, Any]] = {}

    def tensors(self, scheme: Scheme, positions: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> Tensors:
        """Return the tensors of a bucket with copies of their states, those of the first step where there are none."""
        memory = []
        for position, shape in zip(positions, shapes, strict=True):
            fresh, known = scheme.init(shape), self.states.get(position, {})
            fits = {k: v.shape for k, v in known.items()} == {k: v.shape for k, v in fresh.items()}
            memory.append(dict(known) if fits else fresh)
        return Tensors(list(shapes), memory)

    def keep(self, positions: Sequence[int], tensors: Tensors) -> None:
        """Note the states after a bucket; `commit` makes them count."""
        self._pending.update(zip(positions, tensors.memory, strict=True))

    def commit(self) -> None:
        """Take over what was noted in this step."""
        self.states.update((p, m) for p, m in self._pending.items() if m)
        self._pending.clear()

    def discard(self) -> None:
        """Forget what was noted since the last commit: the step did not happen."""
        self._pending.clear()

    def state(self) -> dict[int, dict[str, torch.Tensor]]:
        """Return copies of the states as tensors."""
        return {p: {k: torch.from_numpy(v.copy()) for k, v in m.items()} for p, m in sorted(self.states.items())}

    def load(self, state: dict[int, dict[str, Any]]) -> None:
        """Take states from `state`."""
        self.states = {
            int(p): {k: np.array(torch.as_tensor(v).numpy()) for k, v in m.items()} for p, m in state.items()
        }
