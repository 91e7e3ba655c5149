"""tersor for PyTorch: compressed all-reduce and a DDP communication hook, over any backend that moves bytes."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("tersor.torch needs PyTorch: pip install 'tersor[torch]'") from error

from tersor.torch.collectives import Work, all_reduce
from tersor.torch.hook import CommHook, HookStats, register_comm_hook
from tersor.torch.identity import check_identical
from tersor.torch.link import LinkError, TorchLink
from tersor.torch.lion import DistributedLion

__all__ = [
    "CommHook",
    "DistributedLion",
    "HookStats",
    "LinkError",
    "TorchLink",
    "Work",
    "all_reduce",
    "check_identical",
    "register_comm_hook",
]
