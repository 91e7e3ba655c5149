"""Error feedback: what a rank's messages left out is added to its next gradient, parameter by parameter."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class Feedback:
    """Residuals of one model's parameters, by position, so that they survive DDP's bucket rebuild.

    A parameter whose gradient is exactly zero on this rank takes no part: DDP drops what a hook returns for
    parameters that no rank used, and a residual put there would be lost.
    """

    def __init__(self) -> None:
        self.residuals: dict[int, F32] = {}
        self._pending: dict[int, F32] = {}
        self._took_part: set[int] = set()

    def add_to(self, x: F32, positions: Sequence[int], sizes: Sequence[int]) -> None:
        """Add the residuals of a bucket's parameters to `x`, in place."""
        for position, part in _parts(x, positions, sizes):
            self._took_part.discard(position)
            if not part.any():
                continue
            self._took_part.add(position)
            residual = self.residuals.get(position)
            if residual is None:
                continue
            if residual.size != part.size:
                warnings.warn(f"the residual of parameter {position} has another size; it starts anew", stacklevel=2)
                del self.residuals[position]
                continue
            part += residual

    def keep(self, sent: F32, arrived: F32, positions: Sequence[int], sizes: Sequence[int]) -> None:
        """Note ``sent - arrived`` for every parameter of a bucket that took part; `commit` makes it count."""
        for (position, part), (_, got) in zip(
            _parts(sent, positions, sizes), _parts(arrived, positions, sizes), strict=True
        ):
            if position in self._took_part:
                self._pending[position] = part - got

    def commit(self) -> None:
        """Take over what was noted in this step."""
        self.residuals.update(self._pending)
        self._pending.clear()

    def discard(self) -> None:
        """Forget what was noted since the last commit: the step did not happen."""
        self._pending.clear()

    def state(self) -> dict[int, torch.Tensor]:
        """Return copies of the residuals as tensors."""
        return {position: torch.from_numpy(r.copy()) for position, r in sorted(self.residuals.items())}

    def load(self, state: dict[int, Any]) -> None:
        """Take residuals from `state`."""
        self.residuals = {
            int(position): np.array(torch.as_tensor(r, dtype=torch.float32).numpy()).reshape(-1)
            for position, r in state.items()
        }


def _parts(x: F32, positions: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, F32]]:
    edges = np.cumsum([0, *sizes])
    return [(p, x[a:b]) for p, a, b in zip(positions, edges[:-1], edges[1:], strict=True)]
