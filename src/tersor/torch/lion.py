"""DistributedLion: an optimizer whose workers send signs and vote, where others average gradients.

Bo Liu, Lemeng Wu, Lizhang Chen, Kaizhao Liang, Jiaxu Zhu, Chen Liang, Raghuraman Krishnamoorthi, Qiang Liu:
"Communication Efficient Distributed Training with Distributed Lion", NeurIPS 2024, arXiv 2404.00438, Algorithm 1.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tersor import rng
from tersor.collectives.link import Link
from tersor.collectives.votes import RULES, TIES, vote
from tersor.errors import NonFiniteError
from tersor.torch.link import TorchLink


class DistributedLion(torch.optim.Optimizer):
    """Lion whose updates are the majority, or the average, of the workers' signs.

    Every worker keeps a momentum of its own gradients. It sends the signs of ``b1 m + (1 - b1) g``, one bit a
    coordinate, and applies what all agree on. Gradients are not averaged: use the plain model, not one wrapped in
    DistributedDataParallel, with the same parameters on all ranks at the start.

    Parameters
    ----------
    params : iterable
        Parameters or groups, as for every optimizer; in the same order on all ranks.
    lr : float, default 1e-4
        Step size.
    betas : (float, float), default (0.9, 0.99)
        Of the update, and of the momentum.
    weight_decay : float, default 0.0
        Decoupled: ``lr * weight_decay * x`` is taken off.
    vote : {"majority", "average"}
        Apply the sign of the sum of the workers' signs, or their mean.
    ties : {"zero", "coin"}
        With "majority", what a tie is: no update, or a coin that all ranks throw alike.
    seed : int, default 0
        Of these coins.
    group : ProcessGroup, optional
        Default: the default group.
    link : Link, optional
        Use this link in place of the group.

    Attributes
    ----------
    bytes_sent : int
        Payload bytes handed to the transport.

    Notes
    -----
    Momenta differ from rank to rank: every rank saves and loads its own `state_dict`. A parameter without a gradient
    counts as a gradient of zero. NaN or infinity in a gradient raises on all ranks and changes nothing.

    Examples
    --------
    >>> import tempfile, torch, torch.distributed as dist, tersor.torch
    >>> store = dist.FileStore(tempfile.mktemp(), 1)
    >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> x = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = tersor.torch.DistributedLion([x], lr=0.5)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, -1.5]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        vote: str = "majority",
        ties: str = "zero",
        seed: int = 0,
        group: "dist.ProcessGroup | None" = None,
        link: Link | None = None,
    ) -> None:
        if not lr >= 0 or not weight_decay >= 0 or not all(0 <= b < 1 for b in betas):
            raise ValueError(
                f"lr and weight_decay must not be negative, betas in [0, 1); got {lr}, {weight_decay}, {betas}"
            )
        if vote not in RULES or ties not in TIES:
            raise ValueError(f"vote must be one of {RULES} and ties one of {TIES}, got {vote!r} and {ties!r}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.vote, self.ties, self.seed = vote, ties, seed
        self._group, self._link = group, link

    @property
    def bytes_sent(self) -> int:
        """Payload bytes handed to the transport so far."""
        return 0 if self._link is None else self._link.bytes_sent

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Vote, and update all parameters.

        Raises
        ------
        NonFiniteError
            On all ranks, if a gradient of one holds NaN or infinity; parameters and momenta are unchanged.
        RemoteError
            If another rank failed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        link = self._link = self._link or TorchLink(self._group)
        bad: NonFiniteError | None = None
        with link.guard():
            everything = [(group, p) for group in self.param_groups for p in group["params"]]
            signs = [self._signs(p, group) for group, p in everything]
            flat = np.concatenate([np.zeros(0, np.float32), *(s.reshape(-1).float().cpu().numpy() for s in signs)])
            if not np.isfinite(flat).all():
                index = int(np.argmin(np.isfinite(flat)))
                bad = NonFiniteError(f"DistributedLion: a gradient on rank {link.rank} is not finite", index)
                flat = np.zeros_like(flat)
        result = vote(
            link,
            np.sign(flat).astype(np.int8),
            rule=self.vote,
            ties=self.ties,
            seed=rng.mix64(self.seed, step=self._steps()),
            bad=bad,
            what="DistributedLion",
        )
        with link.guard():
            at = 0
            factor = 1 / link.size if self.vote == "average" else 1.0
            for group, p in everything:
                part = torch.from_numpy(result[at : at + p.numel()].astype(np.float32) * factor)
                at += p.numel()
                self._update(p, group, part.reshape(p.shape).to(device=p.device, dtype=p.dtype))
        return loss

    def _momentum(self, p: torch.Tensor) -> torch.Tensor:
        state = self.state[p]
        if "momentum" not in state:
            state["step"], state["momentum"] = 0, torch.zeros_like(p, memory_format=torch.preserve_format)
        momentum: torch.Tensor = state["momentum"]
        return momentum

    def _steps(self) -> int:
        return int(next((state.get("step", 0) for state in self.state.values()), 0))

    def _signs(self, p: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """Return what this worker votes for; NaN and infinity stay."""
        if p.grad is not None and p.grad.is_sparse:
            raise TypeError("DistributedLion wants dense gradients")
        b1: float = group["betas"][0]
        blend = self._momentum(p) * b1
        return blend if p.grad is None else blend + p.grad * (1 - b1)

    def _update(self, p: torch.Tensor, group: dict[str, Any], agreed: torch.Tensor) -> None:
        lr, b2, momentum = group["lr"], group["betas"][1], self._momentum(p)
        if group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        p.add_(agreed, alpha=-lr)
        momentum.mul_(b2)
        if p.grad is not None:
            momentum.add_(p.grad, alpha=1 - b2)
        self.state[p]["step"] += 1
