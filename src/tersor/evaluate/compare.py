"""One tensor, many codecs: size, error, bias and speed, each measured; sums over tensors give a file's total."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import TersorError
from tersor.evaluate.bias import Bias
from tersor.evaluate.bias import estimate as estimate_bias
from tersor.evaluate.examples import default_specs
from tersor.evaluate.measure import errors, host, pieces, ratio, squared, wide
from tersor.registry import get_codec
from tersor.units import check_axis

__all__ = ["Row", "compare", "default_specs", "sort_rows"]

_MIN_RUNS = 5
_SPARE_SECONDS = 0.5  # no run is added for the median when those before took this long together
_NO_BIAS = Bias()
_CANNOT = (TersorError, ValueError, TypeError, ArithmeticError, MemoryError, NotImplementedError)


@dataclass(frozen=True)
class Row:
    """What one codec did to one tensor, or to several; all sums, so that rows add.

    Attributes
    ----------
    codec : str
        Its spec.
    seeds : int
        How many independent encodings were made.
    size : int
        Coordinates.
    nbytes : int
        Of the message, header and padding included.
    each : tuple of float
        ``||x_hat - x||**2`` of every seed.
    squared_of_mean : float
        ``||mean over seeds of x_hat - x||**2``.
    energy : float
        ``||x||**2``.
    largest : float
        Largest error of a coordinate.
    bias : Bias
        Estimate of ``||E x_hat - x||**2``.
    expected : float or None
        The vNMSE that the codec's law predicts; None if it depends on the input.
    told : float or None
        Squared error that the senders knew of (`Encoded.error`), mean over seeds; None if they know none.
    encode_s, decode_s, copy_s : float
        Median seconds of encoding, decoding, and copying the same number of float32 values.
    problem : str
        Why the codec cannot encode this tensor; empty if it can.
    """

    codec: str
    seeds: int
    size: int = 0
    nbytes: int = 0
    each: tuple[float, ...] = ()
    squared_of_mean: float = 0.0
    energy: float = 0.0
    largest: float = 0.0
    bias: Bias = _NO_BIAS
    expected: float | None = None
    told: float | None = None
    encode_s: float = 0.0
    decode_s: float = 0.0
    copy_s: float = 0.0
    problem: str = ""

    def __add__(self, other: Row) -> Row:
        return Row(
            codec=self.codec,
            seeds=self.seeds,
            size=self.size + other.size,
            nbytes=self.nbytes + other.nbytes,
            each=_added(self.each, other.each),
            squared_of_mean=self.squared_of_mean + other.squared_of_mean,
            energy=self.energy + other.energy,
            largest=max(self.largest, other.largest),
            bias=self.bias + other.bias,
            expected=self.expected,
            told=_told(self, other),
            encode_s=self.encode_s + other.encode_s,
            decode_s=self.decode_s + other.decode_s,
            copy_s=self.copy_s + other.copy_s,
            problem=self.problem or other.problem,
        )

    @property
    def bits(self) -> float:
        """Bits a coordinate."""
        return ratio(8 * self.nbytes, self.size)

    @property
    def squared(self) -> float:
        """``||x_hat - x||**2``, mean over seeds."""
        return sum(self.each) / len(self.each) if self.each else 0.0

    @property
    def vnmse(self) -> float:
        """Error of one encoding, mean over seeds."""
        return ratio(self.squared, self.energy)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds of the error of one encoding; None of one seed."""
        return ratio(statistics.stdev(self.each), self.energy) if len(self.each) > 1 else None

    @property
    def vnmse_told(self) -> float | None:
        """Error that the senders knew of, mean over seeds."""
        return None if self.told is None else ratio(self.told, self.energy)

    @property
    def vnmse_of_mean(self) -> float:
        """Error of the mean of all seeds' estimates; `vnmse / seeds` for an unbiased codec."""
        return ratio(self.squared_of_mean, self.energy)

    @property
    def bias_share(self) -> float | None:
        """The share of the error that no averaging removes: about 0 if unbiased, 1 if every seed errs alike."""
        return self.bias.squared / self.squared if self.seeds > 1 and self.squared else None

    @property
    def verdict(self) -> str:
        """What the seeds show: "unbiased", "biased", "exact", or "" if they are too few."""
        return self.bias.verdict(self.squared, self.seeds)

    def error_of_mean(self, senders: int) -> float:
        """Predict the error of the mean of `senders` estimates of this tensor: variance / senders + bias.

        A bias counts only where it shows.
        """
        bias = max(self.bias.squared, 0.0) if self.verdict == "biased" else 0.0
        return ratio((self.squared - bias) / senders + bias, self.energy)

    def speed(self, seconds: float) -> float | None:
        """GB/s of float32 values."""
        return 4 * self.size / seconds / 1e9 if seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Everything measured and derived, for JSON."""
        if self.problem:
            return {"codec": self.codec, "problem": self.problem}
        return {
            "codec": self.codec,
            "seeds": self.seeds,
            "size": self.size,
            "nbytes": self.nbytes,
            "bits_per_coordinate": self.bits,
            "expected": self.expected,
            "vnmse_told_by_sender": self.vnmse_told,
            "vnmse": self.vnmse,
            "vnmse_spread": self.spread,
            "vnmse_of_mean": self.vnmse_of_mean,
            "vnmse_of_mean_if_unbiased": self.vnmse / self.seeds,
            "bias_share": self.bias_share,
            "bias_sigmas": self.bias.sigmas,
            "bias_verdict": self.verdict,
            "max_abs_error": self.largest,
            "encode_gb_s": self.speed(self.encode_s),
            "decode_gb_s": self.speed(self.decode_s),
            "copy_gb_s": self.speed(self.copy_s),
            "encode_to_copy": ratio(self.copy_s, self.encode_s),
            "decode_to_copy": ratio(self.copy_s, self.decode_s),
        }


def _told(a: Row, b: Row) -> float | None:
    if not a.each or not b.each:
        return a.told if a.each else b.told
    return None if a.told is None or b.told is None else a.told + b.told


def _added(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(sum, zip(a, b, strict=True))) if a and b else a or b


def compare(
    x: Any,
    specs: Sequence[str],
    *,
    seeds: int = 5,
    axis: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Encode and decode a tensor with every codec from several seeds.

    A codec that cannot encode this tensor gives a row with the reason in `problem`.

    Parameters
    ----------
    x : array
        NumPy array or torch tensor of finite floats.
    specs : sequence of str
        Codecs.
    seeds : int, default 5
        Independent encodings; their mean shows a bias.
    axis : None or -1
        One vector, or rows.
    progress : callable, optional
        Called with a spec before its turn.

    Returns
    -------
    list of Row
        One a codec, in order.

    Examples
    --------
    >>> rows = compare(np.random.default_rng(0).standard_normal(4096, np.float32), ["eden:4"], seeds=2)
    >>> round(rows[0].vnmse, 2)
    0.01
    """
    if seeds < 1:
        raise TersorError(f"seeds must be at least 1, got {seeds}")
    chosen = [get_codec(spec) for spec in specs]
    check_axis(axis, len(x.shape))
    check_finite(x)
    copy = _Copy(host(x).data.size)
    rows = []
    for codec in chosen:
        if progress:
            progress(codec.spec)
        try:
            rows.append(_measure(x, codec, seeds, axis, copy))
        except _CANNOT as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            rows.append(Row(codec.spec, seeds, size=copy.size, problem=reason))
    return rows


def sort_rows(rows: Sequence[Row]) -> list[Row]:
    """Return rows by bits a coordinate, then by error; those with a problem last."""
    return sorted(rows, key=lambda row: (bool(row.problem), row.bits, row.vnmse))


def _measure(x: Any, codec: Codec, seeds: int, axis: int | None, copy: _Copy) -> Row:
    shape = tuple(x.shape)
    values, size = host(x), host(x).data.size
    total, squares = np.zeros(size), np.zeros(size)  # over seeds: of errors, of their squares
    buffer = np.zeros(shape, codec.accumulator(values.dtype))
    times: list[tuple[float, float, float]] = []
    nbytes, largest, energy = 0, 0.0, 0.0
    each: list[float] = []
    told: list[float | None] = []

    def run(seed: int) -> Encoded:
        begun = time.perf_counter()
        enc = codec.encode(x, seed=seed, axis=axis)
        encoded = time.perf_counter()
        codec.decode(enc, out=buffer)
        decoded = time.perf_counter()
        # Beside every run, so that whatever else the machine does slows both.
        times.append((encoded - begun, decoded - encoded, copy.seconds()))
        return enc

    for seed in range(seeds):
        enc = run(seed)
        nbytes = max(nbytes, len(enc.to_bytes()))
        # The buffer is what a receiver of float32 has; narrower types round once more.
        x_hat = buffer if values.dtype == buffer.dtype.name else codec.decode(enc)
        one = errors(x, x_hat)
        energy, largest = one.energy, max(largest, one.largest)
        each.append(one.squared)
        told.append(enc.error)
        estimate = host(x_hat)
        for piece in pieces(size):
            gap = wide(estimate, piece) - wide(values, piece)
            total[piece] += gap
            squares[piece] += gap * gap
    if not all(map(math.isfinite, each)):
        raise TersorError("its estimate of finite values holds NaN or infinity")
    while len(times) < _MIN_RUNS and sum(map(sum, times)) < _SPARE_SECONDS:
        run(0)
    encode_s, decode_s, copy_s = (statistics.median(part) for part in zip(*times, strict=True))
    bias = estimate_bias(total, squares, seeds)
    known = [error for error in told if error is not None]
    return Row(
        codec=codec.spec,
        seeds=seeds,
        size=size,
        nbytes=nbytes,
        each=tuple(each),
        squared_of_mean=sum(squared(total[piece] / seeds) for piece in pieces(size)),
        energy=energy,
        largest=largest,
        bias=bias,
        expected=codec.expected_error(),
        told=energy * sum(known) / seeds if len(known) == seeds else None,
        encode_s=encode_s,
        decode_s=decode_s,
        copy_s=copy_s,
    )


def check_finite(x: Any) -> None:
    """Raise TersorError, naming the place, if a tensor holds NaN or infinity."""
    values = host(x)
    for piece in pieces(values.data.size):
        finite = np.isfinite(wide(values, piece))
        if not finite.all():
            at = tuple(int(i) for i in np.unravel_index(piece.start + int(np.argmin(finite)), tuple(x.shape) or (1,)))
            raise TersorError(f"it holds NaN or infinity, first at {list(at)}; clean it before comparing codecs")


class _Copy:
    """Copies as many float32 values as the tensor has, into memory that is there already."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._source, self._target = np.ones(size, np.float32), np.zeros(size, np.float32)

    def seconds(self) -> float:
        """Time one copy."""
        begun = time.perf_counter()
        np.copyto(self._target, self._source)
        return time.perf_counter() - begun
