"""A check that replicas are what they should be: the same bits on every rank."""

import hashlib
from collections.abc import Iterable

import numpy as np
import torch

from tersor.collectives.link import Link
from tersor.errors import TersorError
from tersor.torch.link import TorchLink


def fingerprint(tensors: Iterable[torch.Tensor]) -> bytes:
    """Return a 16-byte hash of the bits of `tensors`, in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        data = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().data)
    return digest.digest()


def check_identical(tensors: Iterable[torch.Tensor], link: Link | None = None) -> bytes:
    """Return the common hash of `tensors`, such as a model's parameters, on all ranks.

    Parameters
    ----------
    tensors : iterable of Tensor
        In the same order on every rank.
    link : Link, optional
        Default: a TorchLink over the default group.

    Raises
    ------
    TersorError
        On every rank, if the ranks' bits differ; names the ranks that differ from rank 0.
    """
    link = link or TorchLink()
    with link.guard():
        mine = fingerprint(tensors)
        everyone = [bytes(h.tobytes()) for h in link.all_gather(np.frombuffer(mine, np.uint8))]
    different = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
    if different:
        raise TersorError(
            f"replicas have drifted: ranks {different} differ from rank 0; load one checkpoint on all ranks, and look "
            "for parameters that are changed outside the optimizer or never synchronised"
        )
    return mine
