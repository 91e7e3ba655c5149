"""One tensor, many codecs: size, error, bias and speed, each measured; sums over tensors give a file's total."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import RangeError, TersorError
from tersor.evaluate.measure import Errors, errors, host, pieces, ratio, squared, wide
from tersor.registry import codecs, get_codec

_MIN_RUNS = 5
_SPARE_SECONDS = 0.5  # no run is added for the median when those before took this long together
_FAMILIES = {"eden": ("1", "2", "3", "4", "6", "8"), "sq": ("4", "8")}
_ALIASES = ("drive",)  # the same as eden:1


def default_specs() -> list[str]:
    """Return specs of all registered codecs, several widths of those that have one, none first.

    Examples
    --------
    >>> "eden:4" in default_specs()
    True
    """
    specs = []
    for name in codecs():
        if name in _ALIASES:
            continue
        candidates = [f"{name}:{value}" for value in _FAMILIES.get(name, ())] or [name, f"{name}:4"]
        usable = [spec for spec in candidates if _constructs(spec)]
        specs += usable if name in _FAMILIES else usable[:1]
    return sorted(specs, key=lambda spec: -get_codec(spec).nbytes((4096,)))


def _constructs(spec: str) -> bool:
    try:
        get_codec(spec)
    except (ValueError, TypeError):
        return False
    return True


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
    squared : float
        ``||x_hat - x||**2``, mean over seeds.
    squared_of_mean : float
        ``||mean over seeds of x_hat - x||**2``.
    energy : float
        ``||x||**2``.
    largest : float
        Largest error of a coordinate.
    expected : float or None
        The vNMSE that the codec's law predicts; None if it depends on the input.
    encode_s, decode_s, copy_s : float
        Median seconds of encoding, decoding, and copying the same number of float32 values.
    problem : str
        Why the codec cannot encode this tensor; empty if it can.
    """

    codec: str
    seeds: int
    size: int = 0
    nbytes: int = 0
    squared: float = 0.0
    squared_of_mean: float = 0.0
    energy: float = 0.0
    largest: float = 0.0
    expected: float | None = None
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
            squared=self.squared + other.squared,
            squared_of_mean=self.squared_of_mean + other.squared_of_mean,
            energy=self.energy + other.energy,
            largest=max(self.largest, other.largest),
            expected=self.expected,
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
    def vnmse(self) -> float:
        """Error of one encoding, mean over seeds."""
        return ratio(self.squared, self.energy)

    @property
    def vnmse_of_mean(self) -> float:
        """Error of the mean of all seeds' estimates; `vnmse / seeds` for an unbiased codec."""
        return ratio(self.squared_of_mean, self.energy)

    @property
    def bias(self) -> float | None:
        """The share of the error that no averaging removes: about 0 if unbiased, 1 if every seed errs alike.

        With V the variance and B the squared bias, one encoding has the error V + B and the mean of s seeds V / s + B.
        """
        if self.seeds < 2 or not self.squared:
            return None
        return (self.seeds * self.squared_of_mean / self.squared - 1) / (self.seeds - 1)

    def speed(self, seconds: float) -> float | None:
        """GB/s of float32 values."""
        return 4 * self.size / seconds / 1e9 if seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Everything measured and derived, for JSON."""
        if self.problem:
            return {"codec": self.codec, "problem": self.problem}
        named = asdict(self)
        for name in ("problem", "encode_s", "decode_s", "copy_s", "squared", "squared_of_mean", "energy", "largest"):
            del named[name]
        return {
            **named,
            "bits_per_coordinate": self.bits,
            "vnmse": self.vnmse,
            "vnmse_of_mean": self.vnmse_of_mean,
            "vnmse_of_mean_if_unbiased": self.vnmse / self.seeds,
            "bias_share": self.bias,
            "max_abs_error": self.largest,
            "encode_gb_s": self.speed(self.encode_s),
            "decode_gb_s": self.speed(self.decode_s),
            "copy_gb_s": self.speed(self.copy_s),
            "encode_to_copy": ratio(self.copy_s, self.encode_s),
            "decode_to_copy": ratio(self.copy_s, self.decode_s),
        }


def compare(
    x: Any,
    specs: Sequence[str],
    *,
    seeds: int = 5,
    axis: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Encode and decode a tensor with every codec from several seeds.

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
    _check_finite(x)
    copy = _Copy(host(x).data.size)
    rows = []
    for codec in chosen:
        if progress:
            progress(codec.spec)
        try:
            rows.append(_measure(x, codec, seeds, axis, copy))
        except RangeError as error:
            rows.append(Row(codec.spec, seeds, problem=str(error)))
    return rows


def _measure(x: Any, codec: Codec, seeds: int, axis: int | None, copy: _Copy) -> Row:
    shape = tuple(x.shape)
    values, size = host(x), host(x).data.size
    total, mean = np.zeros(size), Errors()
    buffer = np.zeros(shape, codec.accumulator(values.dtype))
    times: list[tuple[float, float, float]] = []
    nbytes, total_squared, largest = 0, 0.0, 0.0

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
        total_squared, largest = total_squared + one.squared, max(largest, one.largest)
        estimate = host(x_hat)
        for piece in pieces(size):
            total[piece] += wide(estimate, piece)
    while len(times) < _MIN_RUNS and sum(map(sum, times)) < _SPARE_SECONDS:
        run(0)
    encode_s, decode_s, copy_s = (statistics.median(part) for part in zip(*times, strict=True))
    total /= seeds
    for piece in pieces(size):
        truth = wide(values, piece)
        gap = total[piece] - truth
        mean += Errors(squared(gap), squared(truth))
    return Row(
        codec=codec.spec,
        seeds=seeds,
        size=size,
        nbytes=nbytes,
        squared=total_squared / seeds,
        squared_of_mean=mean.squared,
        energy=mean.energy,
        largest=largest,
        expected=codec.expected_error(),
        encode_s=encode_s,
        decode_s=decode_s,
        copy_s=copy_s,
    )


def _check_finite(x: Any) -> None:
    values = host(x)
    for piece in pieces(values.data.size):
        finite = np.isfinite(wide(values, piece))
        if not finite.all():
            at = tuple(int(i) for i in np.unravel_index(piece.start + int(np.argmin(finite)), tuple(x.shape) or (1,)))
            raise TersorError(f"it holds NaN or infinity, first at {list(at)}; clean it before comparing codecs")


class _Copy:
    """Copies as many float32 values as the tensor has, into memory that is there already."""

    def __init__(self, size: int) -> None:
        self._source, self._target = np.ones(size, np.float32), np.zeros(size, np.float32)

    def seconds(self) -> float:
        """Time one copy."""
        begun = time.perf_counter()
        np.copyto(self._target, self._source)
        return time.perf_counter() - begun
