"""Shared: what senders agree on before they encode."""

import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tersor.errors import FormatError


@dataclass(frozen=True, eq=False)
class Shared:
    """What senders agree on before they encode: a key and merged statistics.

    Attributes
    ----------
    key : int
        64-bit rotation key.
    stats : ndarray of float32
        The merged statistics; empty if the codec has none.
    """

    key: int
    stats: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    @property
    def digest(self) -> int:
        """CRC-32 of `to_bytes()`, never 0."""
        return zlib.crc32(self.to_bytes()) or 1

    def to_bytes(self) -> bytes:
        """Return the key (8 bytes) and the statistics (4 bytes each), little-endian."""
        return self.key.to_bytes(8, "little") + np.asarray(self.stats, "<f4").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Shared":
        """Undo `to_bytes`.

        Raises
        ------
        FormatError
            If the length is wrong.
        """
        if len(raw) < 8 or len(raw) % 4:
            raise FormatError(f"shared statistics take 8 + 4 k bytes, got {len(raw)}")
        return cls(int.from_bytes(raw[:8], "little"), np.frombuffer(raw, "<f4", offset=8).astype(np.float32))
