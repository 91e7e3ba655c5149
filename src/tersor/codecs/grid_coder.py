"""EDEN's entropy-coded uniform grid: codes of one byte each, and rANS with a table that follows from the bits alone.

"EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv
2108.08842, the variant with entropy encoding. FORMAT.md section 4.
"""

import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tersor.coding import rans
from tersor.errors import FormatError
from tersor.kernels.lengths import padded_length
from tersor.quantize.uniform_grid import SCALE_BITS, UniformGrid, grid_of
from tersor.units import Units

FIELDS = struct.Struct("<Q")  # bytes of the coded symbols
WIDTH = 8  # of a code while the kernels have it


class GridCoder:
    """The tables of one number of bits, and symbols to bytes and back."""

    def __init__(self, bits: float) -> None:
        self.grid: UniformGrid = grid_of(bits)
        levels, thresholds = self.grid.levels(), self.grid.thresholds()
        self.n_levels = len(levels)
        # As an operation takes them: what no symbol means repeats the last level, and no value comes there.
        self.levels = np.full(1 << WIDTH, levels[-1], np.float32)
        self.levels[: len(levels)] = levels
        self.thresholds = np.full((1 << WIDTH) - 1, np.inf, np.float32)
        self.thresholds[: len(thresholds)] = thresholds
        self.freqs = rans.normalise(np.array(self.grid.probabilities), SCALE_BITS)

    def symbols(self, units: Units, full: bool) -> int:
        """Return how many symbols all units have."""
        if not units.count:
            return 0
        return (units.count - 1) * padded_length(units.length, full) + padded_length(units.last, full)

    def largest(self, units: Units, full: bool) -> bytes:
        """Return the fields of the largest message."""
        return FIELDS.pack(rans.max_nbytes(self.symbols(units, full), self.freqs))

    def nbytes(self, units: Units, full: bool, fields: bytes) -> int:
        """Return the size that `fields` tell.

        Raises
        ------
        FormatError
            If no message has it.
        """
        if not fields:
            return 0
        (nbytes,) = FIELDS.unpack(fields)
        if nbytes > rans.max_nbytes(self.symbols(units, full), self.freqs):
            raise FormatError(f"eden: {nbytes} bytes of coded symbols are more than any message has")
        return int(nbytes)

    def encode(
        self, codes: NDArray[np.uint8], scales: NDArray[np.float32], units: Units, full: bool
    ) -> NDArray[np.uint8]:
        """Return the bytes of the codes; units that decode to zeros or NaN take the cheapest."""
        padded = padded_length(units.length, full)
        none = ~(np.abs(scales) > 0)
        if none.any():
            whole = len(codes) // padded
            codes[: whole * padded].reshape(whole, padded)[none[:whole]] = self.grid.last
            if none[whole:].any():
                codes[whole * padded :] = self.grid.last
        return rans.encode(codes, self.freqs)

    def decode(self, data: NDArray[np.uint8], units: Units, full: bool) -> NDArray[np.uint8]:
        """Undo `encode`; bytes that are none of its raise FormatError."""
        return rans.decode(data, self.symbols(units, full), self.freqs)


@lru_cache(maxsize=64)
def coder_of(bits: float) -> GridCoder:
    """Return the coder of a number of bits."""
    return GridCoder(bits)
