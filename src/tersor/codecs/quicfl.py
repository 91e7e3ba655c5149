"""QUIC-FL: unbiased coordinate by coordinate, so a server sums rotated vectors and rotates back once for all senders.

Ran Ben-Basat, Shay Vargaftik, Amit Portnoy, Gil Einziger, Yaniv Ben-Itzhak, Michael Mitzenmacher: "Accelerating
Federated Learning with Quick Distributed Mean Estimation" (QUIC-FL), ICML 2024, arXiv 2205.13341. The quantizer is in
`tersor.quantize.quicfl`; FORMAT.md section 10: every step.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.codec import Claims, Codec, Job, Made
from tersor.coding import bits as bit_stream
from tersor.encoded import Encoded, PlaneSpec
from tersor.errors import FormatError
from tersor.kernels import ops
from tersor.kernels.lengths import padded_length
from tersor.quantize import quicfl as tables
from tersor.registry import register
from tersor.units import Units

_FIELDS = struct.Struct("<QQ")  # key of the shared symbols, number of exact entries
_LARGE = 2.0**100
_SHORT = 1 << 16  # up to this padded length, counts and positions take 16 bits
_EMPTY = np.zeros(0, np.uint8)


@register("quicfl")
@dataclass(frozen=True)
class QuicFL(Codec):
    """QUIC-FL: b bits a coordinate, unbiased in each one, for means of many senders that share one rotation.

    Senders that encode with one `Shared` use one rotation; `tersor.mean` then adds their messages in the rotated domain
    and rotates back once, so that a sender costs the server O(d). Rotated coordinates beyond 3.097 times their root
    mean square, about one in 512, are sent exactly.

    Attributes
    ----------
    bits : int
        Width of a code, 1 to 4.
    shared_bits : int, optional
        Bits a coordinate of the randomness that sender and server share and nobody sends: more give a lower error. At
        most, and by default, 6, 5, 4 and 4 at 1 to 4 bits.
    block : int, default 4096
        Coordinates that share a scale in a long vector, a power of two.

    Notes
    -----
    vNMSE in high dimension is 1.465, 0.2135, 0.0426 and 0.00951 at 1 to 4 bits; the mean of n senders has 1/n of it,
    whether their vectors are alike or not. The list of exact entries takes 0.09 bits a coordinate on average.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.random.default_rng(0).standard_normal(2**15).astype(np.float32)
    >>> codec, shared = tersor.QuicFL(bits=2), tersor.Shared(key=5)
    >>> sent = [codec.encode(x, seed=7, sender=i, shared=shared) for i in range(10)]
    >>> round(sent[0].bits_per_coordinate, 1), round(tersor.nmse(x, tersor.mean(sent)), 3)
    (2.1, 0.021)
    """

    bits: int
    shared_bits: int | None = None
    block: int = 4096

    examples: ClassVar[tuple[str, ...]] = ("quicfl:1", "quicfl:2", "quicfl:3", "quicfl:4")
    claims: ClassVar[Claims] = Claims(
        unbiased=True,
        fixed_size=False,
        tolerates_loss=True,
        shared_rotation=True,
        error_law="J of the quantizer (1.465, 0.2135, 0.0426, 0.00951 at 1 to 4 bits), 1/n of it for n senders",
    )
    fields_size: ClassVar[int] = _FIELDS.size

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in tables.SHARED_BITS:
            raise ValueError(f"quicfl: bits must be an integer from 1 to 4, got {self.bits!r}")
        most = tables.SHARED_BITS[self.bits]
        if self.shared_bits is not None and not (type(self.shared_bits) is int and 0 <= self.shared_bits <= most):
            raise ValueError(
                f"quicfl: shared_bits must be 0 to {most} with {self.bits} bits, or absent, got {self.shared_bits!r}"
            )
        if not (type(self.block) is int and 32 <= self.block <= 2**24 and self.block & (self.block - 1) == 0):
            raise ValueError(f"quicfl: block must be a power of two from 32 to 2**24, got {self.block!r}")

    @property
    def unit(self) -> int:
        return self.block

    @property
    def table(self) -> tables.Table:
        """The quantizer."""
        return tables.table(self.bits, self.shared_bits)

    def expected_error(self, received: float = 1.0) -> float:
        return received * self.table.error + 1 - received

    def layout(self, units: Units, dtype: str, fields: bytes) -> dict[str, PlaneSpec]:
        _, listed = _FIELDS.unpack(fields)
        if listed > _most_exact(units):
            raise FormatError(f"quicfl: {listed} exact entries are more than {units.count} units can have")
        stride = bit_stream.packed_size(padded_length(units.length), self.bits)
        last = bit_stream.packed_size(padded_length(units.last), self.bits)
        n, index = units.count, _index_type(units)
        size = np.dtype(index).itemsize
        return {
            "codes": PlaneSpec(self.bits, n, stride, max(n - 1, 0) * stride + last),
            "scales": PlaneSpec(32, n, 4, 4 * n, "<f4"),
            "counts": PlaneSpec(8 * size, n, size, size * n, index),
            "positions": PlaneSpec(8 * size, n, 0, size * listed, index),
            "values": PlaneSpec(32, n, 0, 4 * listed, "<f4"),
        }

    def largest_fields(self, units: Units) -> bytes:
        return _FIELDS.pack(0, _most_exact(units))

    def _encode(self, job: Job) -> Made:
        units, table = job.units, self.table
        codes = np.empty(self.layout(units, job.host.dtype, bytes(_FIELDS.size))["codes"].nbytes, np.uint8)
        scales, counts = np.empty(units.count, np.float32), np.empty(units.count, np.uint32)
        low, width = (part.reshape(-1) for part in table.zones)
        symbols = rng.mix64(job.private, step=1)
        x = job.host.float32()
        # Twice what is expected; the second try has room for all.
        room = min(_most_exact(units), units.size // 256 + units.count + 64)
        while True:
            positions, values = np.empty(room, np.uint32), np.empty(room, np.float32)
            bad, listed = ops.current().quicfl_encode(
                x,
                units.length,
                job.key,
                job.start,
                units.by_rows,
                self.bits,
                table.shared_bits,
                low,
                width,
                float(tables.LIMIT),
                symbols,
                job.private,
                codes,
                scales,
                counts,
                positions,
                values,
            )
            if listed <= room:
                break
            room = listed
        index = _index_type(units)
        planes = {
            "codes": codes,
            "scales": scales.astype("<f4", copy=False).view(np.uint8),
            "counts": counts.astype(index).view(np.uint8),
            "positions": positions[:listed].astype(index).view(np.uint8),
            "values": values[:listed].astype("<f4").view(np.uint8),
        }
        return Made(planes, _FIELDS.pack(symbols, listed), first_bad=bad)

    def _decode(
        self, enc: Encoded, units: Units, out: NDArray[Any], add: bool, weight: float, present: NDArray[np.bool_] | None
    ) -> None:
        codes, scales, counts, positions, values, symbols, weight = self._message(enc, weight)
        ops.current().quicfl_decode(
            codes,
            scales,
            counts,
            positions,
            values,
            units.length,
            enc.key,
            enc.start,
            units.by_rows,
            self.bits,
            self.table.shared_bits,
            self.table.levels.reshape(-1),
            symbols,
            weight,
            add,
            _EMPTY if present is None else present.astype(np.uint8),
            out,
        )

    def accumulate(
        self, messages: Sequence[Encoded], units: Units, out: NDArray[Any], weights: Sequence[float]
    ) -> None:
        """Add the weighted estimates of messages to `out`; those of one rotation are summed before it is undone."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i, enc in enumerate(messages):
            alone = i if self._may_overflow(enc) else -1
            groups.setdefault((enc.key, enc.start) if alone < 0 else (-1, i), []).append(i)
        for chosen in groups.values():
            if len(chosen) == 1:
                i = chosen[0]
                self.estimate(messages[i], units, out, True, weights[i], messages[i].received)
                continue
            first = messages[chosen[0]]
            ops.current().quicfl_add(
                [self._message(messages[i], weights[i], messages[i].received) for i in chosen],
                units.length,
                first.key,
                first.start,
                units.by_rows,
                self.bits,
                self.table.shared_bits,
                self.table.levels.reshape(-1),
                out,
            )

    def _message(
        self, enc: Encoded, weight: float, present: NDArray[np.bool_] | None = None
    ) -> tuple[Any, Any, Any, Any, Any, int, float]:
        symbols, _ = _FIELDS.unpack(enc.fields)
        scales = enc.planes["scales"].values().astype(np.float32, copy=False)
        if present is not None:
            scales = np.where(present, scales, np.float32(0))  # adds nothing
        return (
            np.ascontiguousarray(enc.planes["codes"].data),
            scales,
            enc.planes["counts"].values().astype(np.uint32),
            enc.planes["positions"].values().astype(np.uint32),
            enc.planes["values"].values().astype(np.float32, copy=False),
            symbols,
            weight,
        )

    def validate(self, enc: Encoded) -> None:
        units = self.units(enc.shape, enc.axis)
        if not units.count:
            return
        _, listed = _FIELDS.unpack(enc.fields)
        scales, values = enc.planes["scales"].values(), enc.planes["values"].values()
        counts = enc.planes["counts"].values()
        positions = enc.planes["positions"].values().astype(np.int64)
        padded, last = padded_length(units.length), padded_length(units.last)
        silent = ~(scales > 0)  # 0 or NaN
        if (scales < 0).any() or np.isinf(scales).any() or counts[silent].any():
            raise FormatError("quicfl: a scale is not one that an encoder writes")
        too_many = (counts[:-1] > _most_of_unit(padded)).any() or counts[-1] > _most_of_unit(last)
        if too_many or counts.sum(dtype=np.int64) != listed:
            raise FormatError("quicfl: the counts of exact entries contradict the message")
        sizes = np.full(listed, padded)
        sizes[listed - int(counts[-1]) :] = last
        rising = np.diff(positions) > 0
        begins = np.cumsum(counts, dtype=np.int64)[:-1]
        rising[begins[(begins > 0) & (begins < listed)] - 1] = True  # another unit
        magnitude = np.abs(values)
        fitting = ((magnitude > tables.LIMIT) | (sizes == 1)) & (magnitude <= 1.01 * np.sqrt(sizes))
        if (positions >= sizes).any() or not rising.all() or not fitting.all():
            raise FormatError("quicfl: an exact entry is not one that an encoder writes")

    def _may_overflow(self, enc: Encoded) -> bool:
        return bool((enc.planes["scales"].values() > _LARGE).any())


def _index_type(units: Units) -> str:
    return "<u2" if padded_length(units.length) <= _SHORT else "<u4"


def _most_of_unit(padded: int) -> int:
    """More than the P / T**2 coordinates that can exceed T when their squares sum to P; a unit of one is exact."""
    return 1 if padded == 1 else 2 * padded // 19


def _most_exact(units: Units) -> int:
    if not units.count:
        return 0
    return (units.count - 1) * _most_of_unit(padded_length(units.length)) + _most_of_unit(padded_length(units.last))
