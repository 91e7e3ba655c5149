"""What became of a file that was compressed: sizes, errors, laws."""

from __future__ import annotations

from dataclasses import dataclass, field

from tersor.evaluate.measure import Errors
from tersor.evaluate.readers import Tensor
from tersor.files import nbytes_of


@dataclass(frozen=True)
class Packed:
    """What became of one tensor.

    Attributes
    ----------
    name, dtype, shape, size
        Of the tensor.
    spec : str
        Spec of its codec.
    before, after : int
        Bytes in its own dtype, and of its message.
    errors : Errors or None
        Measured from the new file.
    law : float or None
        vNMSE by the codec's law.
    """

    name: str
    spec: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    before: int
    after: int
    errors: Errors | None
    law: float | None = None


@dataclass
class Summary:
    """What became of a file.

    Attributes
    ----------
    tensors : list of Packed
        One a tensor.
    before, after : int
        Bytes of the tensors in their own dtypes, and of the new file with everything in it.
    kept : dict of str to Tensor
        What is no tensor of floats and went into the new file as it was.
    skipped : list of str
        What tersor could not encode and left out.
    whole : list of str
        Long tensors whose codec needs them as a whole in memory.
    seed : int
        The seed; the same one gives the same bytes.
    resumed : int
        Tensors that an interrupted run had written.
    seconds, check_seconds : float
        Of encoding and writing, and of checking.
    """

    tensors: list[Packed] = field(default_factory=list)
    before: int = 0
    after: int = 0
    kept: dict[str, Tensor] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    seed: int = 0
    resumed: int = 0
    seconds: float = 0.0
    check_seconds: float = 0.0

    @property
    def size(self) -> int:
        """Coordinates in all."""
        return sum(t.size for t in self.tensors)

    @property
    def kept_bytes(self) -> int:
        """Bytes of what was kept as it was."""
        return sum(nbytes_of(t.code, t.shape) for t in self.kept.values())

    @property
    def bits(self) -> float | None:
        """Bits a coordinate of the file without what was kept as it was; None if it has no coordinates."""
        return 8 * (self.after - self.kept_bytes) / self.size if self.size else None

    @property
    def total(self) -> Errors | None:
        """Error over all tensors; None if it was not measured."""
        measured = [t.errors for t in self.tensors if t.errors is not None]
        return sum(measured, Errors()) if measured else None

    @property
    def law(self) -> float | None:
        """The overall vNMSE that the codecs' laws give, weighted by energy; None if one of them has no law."""
        if any(t.errors is None or t.law is None for t in self.tensors):
            return None
        energy = sum(t.errors.energy for t in self.tensors if t.errors)
        error = sum(t.law * t.errors.energy for t in self.tensors if t.errors and t.law is not None)
        return error / energy if energy else 0.0

    @property
    def worst(self) -> Packed | None:
        """The tensor with the largest vNMSE."""
        measured = [t for t in self.tensors if t.errors is not None]
        return max(measured, key=lambda t: t.errors.vnmse if t.errors else 0.0, default=None)
