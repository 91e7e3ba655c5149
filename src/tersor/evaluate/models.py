"""The models of the race, and their optimizers; torch is imported only when one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tersor.errors import TersorError
from tersor.evaluate.workloads import Workload

if TYPE_CHECKING:
    import torch


def build_optimizer(workload: Workload, parameters: Any) -> torch.optim.Optimizer:
    """Build a workload's optimizer."""
    import torch

    if workload.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=workload.lr, betas=(0.9, 0.95), weight_decay=0.01)
    return torch.optim.SGD(parameters, lr=workload.lr, momentum=0.9)


def build_model(kind: str, seed: int, classes: int = 10) -> torch.nn.Module:
    """Build the model `kind` ("cnn", "mlp" or "llama") with weights drawn from `seed`: the same on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    if kind == "cnn":  # 960,658 parameters
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 600),
            nn.ReLU(),
            nn.Linear(600, 10),
        )
    if kind == "mlp":  # 535,818 parameters
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    if kind == "llama":
        from tersor.evaluate.llama import Llama

        return Llama(classes)
    raise TersorError(f"unknown model {kind!r}; there are: cnn, mlp, llama")
