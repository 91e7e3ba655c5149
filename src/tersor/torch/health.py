"""Health: whether what arrives has about the norm of what was sent."""

import warnings
from typing import Any

import numpy as np
import torch

from tersor.collectives import Link, all_reduce

SAMPLE = 65536  # coordinates of a bucket that are compared
_LOW, _HIGH = 0.5, 2.0


def check_health(arrived: torch.Tensor, sample: "np.ndarray[Any, np.dtype[np.float32]]", link: Link, what: str) -> None:
    """Warn on all ranks if the norm of the estimate's first coordinates is not within a factor of two of the mean's.

    Parameters
    ----------
    arrived : Tensor
        The estimate of the mean.
    sample : ndarray of float32
        This rank's own first coordinates; written to.
    """
    all_reduce(link, sample, "none", seed=0, average=True, nonfinite="propagate", what=f"health of {what}")
    got = arrived.detach().reshape(-1)[: len(sample)].to(device="cpu", dtype=torch.float32).numpy()
    exact, estimate = (float(np.linalg.norm(v.astype(np.float64))) for v in (sample, got))
    if exact and not _LOW <= estimate / exact <= _HIGH:
        warnings.warn(
            f"{what}: the norm of what arrived is {estimate / exact:.2g} times that of the exact mean; "
            "use more bits, error feedback, or another codec",
            stacklevel=2,
        )
