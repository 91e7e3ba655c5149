"""Which codec for this tensor, budget and use: from what codecs claim and what they do to this very tensor.

Three rules, none of which names a codec. A mean of many needs estimates whose errors cancel: unbiased, or rounded so
finely that it does not matter. A store wants the least error of one use, and may shrink. A search also wants rows that
move as bytes, and inner products in the right order. In every case a message with all its headers fits the budget.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.codec import Claims, Codec
from tersor.errors import TersorError
from tersor.evaluate.bed import format_rate
from tersor.evaluate.compare import Row, check_finite, compare
from tersor.evaluate.examples import constructs, default_specs, examples, needs_value
from tersor.evaluate.measure import host
from tersor.evaluate.recall import MIN_ROWS, recall
from tersor.evaluate.sample import sample
from tersor.registry import codecs, get_codec

USES = ("mean", "store", "search")
_SCALES = ("scale=biased",)  # settings that trade bias for error, where a codec has them
_SEARCHED = 8  # codecs whose recall is measured: those of the least error
_NEAR = 0.05  # over the budget by no more than this share: worth a word
_BELOW = (2, 5, 10, 20)  # hundredths of a bit for scales, headers and what an entropy coder adds
_MOST = 8  # bits that codecs of a width take
_BASELINE = "bf16"


@dataclass(frozen=True)
class Candidate:
    """A codec that was measured.

    Attributes
    ----------
    spec : str
        The codec.
    row : Row
        Its measurement.
    score : float
        What it is ranked by, smaller is better: the error of a mean, or of one use.
    bits : float
        Bits a coordinate of the tensors' messages, everything counted.
    recall : float or None
        Share of the ten nearest rows that are found among the estimates.
    seconds : dict of str to float
        By link: encode, send and decode one tensor of this size.
    """

    spec: str
    row: Row
    score: float
    bits: float
    recall: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def claims(self) -> Claims:
        """What the codec guarantees."""
        return get_codec(self.spec).claims

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "codec": self.spec,
            "score": self.score,
            "bits_per_coordinate": self.bits,
            "recall_at_10": self.recall,
            "seconds": dict(self.seconds),
            "measured": self.row.to_dict(),
        }


@dataclass(frozen=True)
class Recommendation:
    """The choice and how it came about.

    Attributes
    ----------
    use : str
        What for.
    budget : float
        Bits a coordinate.
    chosen : Candidate or None
        The best, or None if nothing fits.
    reasons : list of str
        Why, with numbers.
    runners_up : list of Candidate
        The next best, one of a kind.
    excluded : list of tuple of str and str
        Specs that were not considered, and why.
    measured_on : int
        Coordinates; fewer than the tensors have where these are large.
    notes : list of str
        What else to know: near misses, links on which compression does not pay.
    """

    use: str
    budget: float
    chosen: Candidate | None
    reasons: list[str]
    runners_up: list[Candidate]
    excluded: list[tuple[str, str]]
    measured_on: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "use": self.use,
            "budget_bits": self.budget,
            "measured_on": self.measured_on,
            "chosen": self.chosen.to_dict() if self.chosen else None,
            "reasons": self.reasons,
            "runners_up": [c.to_dict() for c in self.runners_up],
            "excluded": [{"codec": spec, "why": why} for spec, why in self.excluded],
            "notes": self.notes,
        }


def recommend(
    tensors: Mapping[str, Any],
    budget: float,
    use: str,
    *,
    senders: int = 10,
    links: Sequence[float] = (),
    specs: Sequence[str] | None = None,
    seeds: int = 5,
    limit: int = 1 << 20,
    progress: Callable[[str], None] | None = None,
) -> Recommendation:
    """Choose a codec for tensors by measuring all that may fit.

    Parameters
    ----------
    tensors : mapping of str to array
        NumPy arrays or torch tensors of finite floats.
    budget : float
        Bits a coordinate that a message may take, everything counted.
    use : {"mean", "store", "search"}
        A mean over senders; one use of the estimate; inner products with rows (tensors of two or more dimensions).
    senders : int, default 10
        In a mean.
    links : sequence of float
        Rates in bits a second at which a message is sent.
    specs : sequence of str, optional
        Codecs to choose from; default: all, at all widths, and the widest that fits.
    seeds : int, default 5
        Independent encodings.
    limit : int, default 2**20
        Coordinates to measure on; larger tensors are sampled by whole rows or blocks.
    progress : callable, optional
        Called with a spec before its turn.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal(2**15).astype(np.float32)
    >>> chosen = recommend({"x": x}, 4.1, "mean").chosen
    >>> type(get_codec(chosen.spec)).name, 4 < chosen.bits <= 4.1, chosen.row.verdict
    ('eden', True, 'unbiased')
    """
    if use not in USES:
        raise TersorError(f"the use is one of {', '.join(USES)}, got {use!r}")
    if not budget > 0 or senders < 1 or seeds < 2:
        raise TersorError("the budget must be above 0 bits, with at least one sender and two seeds")
    by_rows = use == "search"
    chosen = {name: x for name, x in tensors.items() if not by_rows or (len(x.shape) > 1 and x.shape[-1] > 1)}
    if not chosen or not sum(np.prod(x.shape) for x in chosen.values()):
        raise TersorError("a search needs a tensor of rows" if by_rows else "there is nothing to encode")
    for name, x in chosen.items():
        try:
            check_finite(x)
        except TersorError as error:
            raise TersorError(f"the tensor {name!r}: {error}") from error
    parts = sample(chosen, limit)
    axis = -1 if by_rows else None
    excluded: list[tuple[str, str]] = []
    near: list[tuple[str, float]] = []
    candidates: list[Candidate] = []
    for spec in list(specs) if specs is not None else candidate_specs(budget, use, chosen, axis):
        codec = get_codec(spec)
        # Where the size is fixed it is known for the whole tensors; else it is that of what is measured.
        bits = _bits(codec, chosen, axis) if codec.claims.fixed_size else None
        why = _claims_against(codec, use) or _too_large(codec, budget, bits, near)
        if not why:
            if progress:
                progress(codec.spec)
            start = Row(codec.spec, seeds, expected=codec.expected_error())
            row = sum((compare(x, [spec], seeds=seeds, axis=axis)[0] for x in parts.values()), start)
            bits = row.bits if bits is None else bits
            score = row.error_of_mean(senders) if use == "mean" else row.vnmse
            why = _measured_against(row, codec, use, budget, bits, score)
            if not why:
                candidates.append(Candidate(codec.spec, row, score, bits, seconds=_seconds(row, links)))
        if why:
            excluded.append((codec.spec, why))
    candidates.sort(key=lambda c: (c.score, c.bits))
    if by_rows:
        candidates = _by_recall(candidates, parts)
    first = candidates[0] if candidates else None
    # The best of every other kind: the same codec a little narrower tells nothing.
    kinds = {_kind(c.spec): c for c in reversed(candidates)}
    others = [c for c in candidates[1:] if kinds[_kind(c.spec)] is c]
    notes = _near_notes(near, first) + _link_notes(first, links, parts, axis, seeds)
    return Recommendation(
        use,
        budget,
        first,
        _reasons(first, others, use, senders, excluded),
        others[:3],
        excluded,
        sum(int(np.prod(x.shape)) for x in parts.values()),
        notes,
    )


def candidate_specs(budget: float, use: str, tensors: Mapping[str, Any], axis: int | None) -> list[str]:
    """Return all codecs at sensible settings, and of those whose first field is a width, the widest that fits."""
    specs = default_specs()
    for name, cls in codecs().items():
        if needs_value(cls):
            for settings in dict.fromkeys(spec.partition(",")[2] for spec in examples(name, cls)):
                specs += _widest(name, f",{settings}" if settings else "", budget, tensors, axis)
    if use != "mean":
        specs += [f"{spec}{',' if ':' in spec else ':'}{extra}" for spec in specs for extra in _SCALES]
    return list(dict.fromkeys(get_codec(spec).spec for spec in specs if constructs(spec)))


def _widest(name: str, settings: str, budget: float, tensors: Mapping[str, Any], axis: int | None) -> list[str]:
    """The largest hundredth that a codec takes as its first value and whose message fits.

    Where the size depends on the values: several just below the budget, to be measured. With settings also the largest
    whole number.
    """
    top = round(100 * budget)
    whole = [f"{name}:{min(int(budget), _MOST)}{settings}"] if settings and budget >= 1 else []
    whole = [spec for spec in whole if constructs(spec)]
    probes = [f"{name}:{value / 100:g}{settings}" for value in (top, top - 1) if value % 100]
    if not any(map(constructs, probes)):
        return whole
    if not get_codec(next(filter(constructs, probes))).claims.fixed_size:
        return whole + [f"{name}:{(top - less) / 100:g}{settings}" for less in _BELOW if top > less]
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        spec = f"{name}:{middle / 100:g}{settings}"
        fits = constructs(spec) and _bits(get_codec(spec), tensors, axis) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return [*whole, f"{name}:{low / 100:g}{settings}"] if low else whole


def _kind(spec: str) -> str:
    """A codec with its settings, whatever its first value."""
    head, _, settings = spec.partition(",")
    return f"{head.partition(':')[0]},{settings}"


def _bits(codec: Codec, tensors: Mapping[str, Any], axis: int | None) -> float:
    size = sum(int(np.prod(x.shape)) for x in tensors.values())
    return 8 * sum(codec.nbytes(tuple(x.shape), x.dtype, axis=axis) for x in tensors.values()) / max(size, 1)


def _claims_against(codec: Codec, use: str) -> str:
    claims = codec.claims
    if use == "mean" and not (claims.unbiased or claims.rounds_to_nearest):
        return "biased by its own claims: averaging does not remove its error"
    if use == "search" and not claims.row_addressable:
        return "rows cannot be addressed in its messages"
    return ""


def _too_large(codec: Codec, budget: float, bits: float | None, near: list[tuple[str, float]]) -> str:
    if bits is None or bits <= budget:
        return ""
    if bits <= budget * (1 + _NEAR):
        near.append((codec.spec, bits))
    return f"over the budget: {bits:.3f} bits a coordinate"


def _measured_against(row: Row, codec: Codec, use: str, budget: float, bits: float, score: float) -> str:
    if row.problem:
        return f"cannot encode this: {row.problem}"
    if bits > budget:
        return f"over the budget: {bits:.3f} bits a coordinate"
    if use == "mean" and row.verdict == "biased" and not codec.claims.rounds_to_nearest:
        return f"biased on this tensor: {100 * (row.bias_share or 0):.0f} % of its error outlasts averaging"
    if score >= 1:
        return f"an error of {score:.3g}: sending zeros has 1"
    return ""


def _seconds(row: Row, links: Sequence[float]) -> dict[str, float]:
    return {f"{rate:g}": row.encode_s + 8 * row.nbytes / rate + row.decode_s for rate in links}


def _by_recall(candidates: list[Candidate], tensors: Mapping[str, Any]) -> list[Candidate]:
    """Put those first that find as many of the nearest rows as any, but for a hundredth."""
    rows: NDArray[np.float32] | None = None
    for x in tensors.values():
        flat = host(x).float32().reshape(-1, x.shape[-1])
        if len(flat) >= MIN_ROWS and (rows is None or flat.size > rows.size):
            rows = flat
    if rows is None:
        return candidates
    best = [dataclasses.replace(c, recall=recall(rows, get_codec(c.spec))) for c in candidates[:_SEARCHED]]
    most = max((c.recall or 0.0 for c in best), default=0.0) - 0.01
    best.sort(key=lambda c: (0.0, c.score) if (c.recall or 0.0) >= most else (1 - (c.recall or 0.0), c.score))
    return best + candidates[_SEARCHED:]


def _reasons(
    first: Candidate | None, others: list[Candidate], use: str, senders: int, excluded: list[tuple[str, str]]
) -> list[str]:
    if first is None:
        return []
    row = first.row
    varies = "" if first.claims.fixed_size else "; the size depends on the values"
    found = [f"It takes {first.bits:.3f} bits a coordinate, headers and scales included{varies}."]
    if use == "mean":
        kind = "It claims to be unbiased" if first.claims.unbiased else "It rounds to a fine grid"
        shows = {"unbiased": ", and no bias shows", "exact": ", and is exact here"}.get(row.verdict, "")
        found.append(f"{kind}{shows}: {row.seeds} encodings of this tensor erred by {row.vnmse:.3g}, their mean by "
                     f"{row.vnmse_of_mean:.3g}.")  # fmt: skip
        found.append(f"The mean of {senders} senders would err by {first.score:.3g}, the least of all that fit.")
    else:
        least = "" if others and min(c.score for c in others) < first.score else ", the least of all that fit"
        found.append(f"One use of it errs by {row.vnmse:.3g} on this tensor{least}.")
    if use == "search":
        found.append("Its rows move as bytes: append, delete and reorder without decoding.")
        if first.recall is not None:
            found.append(f"It finds {100 * first.recall:.1f} % of the ten rows of largest inner product.")
    if row.expected is not None and use != "search":
        found.append(f"Its law promises {row.expected:.3g} for any long input, not for this tensor alone.")
    if others:
        second = others[0]
        if use == "search" and second.recall is not None and first.recall is not None:
            found.append(f"Next is {second.spec} with {100 * second.recall:.1f} % and an error of {second.score:.3g}.")
        elif second.score > first.score > 0:
            found.append(
                f"Next is {second.spec}: {second.score / first.score:.2f} times the error, {second.bits:.3f} bits."
            )
    biased = [spec for spec, why in excluded if why.startswith("biased")]
    if use == "mean" and biased:
        found.append(f"Left out for their bias: {', '.join(biased[:4])}{' and others' if len(biased) > 4 else ''}.")
    return found


def _near_notes(near: list[tuple[str, float]], first: Candidate | None) -> list[str]:
    found = []
    for spec, bits in sorted(near, key=lambda item: item[1])[:3]:
        law = get_codec(spec).expected_error()
        if law is not None and (first is None or law < first.row.vnmse):
            found.append(
                f"{spec} takes {bits:.3f} bits, just over the budget: {math.ceil(100 * bits) / 100:.2f} bits admit it, "
                f"with an error of {law:.3g}."
            )
    return found


def _link_notes(
    first: Candidate | None, links: Sequence[float], tensors: Mapping[str, Any], axis: int | None, seeds: int
) -> list[str]:
    if first is None or not links:
        return []
    found = []
    rows = [compare(x, [_BASELINE], seeds=1, axis=axis)[0] for x in tensors.values()]
    plain = _seconds(sum(rows, Row(_BASELINE, 1)), links)
    for rate in links:
        ours, theirs = first.seconds[f"{rate:g}"], plain[f"{rate:g}"]
        name = format_rate(rate)
        times = f"{1e3 * ours:.3g} ms for {first.spec}, {1e3 * theirs:.3g} ms for {_BASELINE}"
        if ours < theirs:
            found.append(f"At {name}, encode + send + decode: {times}, {theirs / ours:.1f} times sooner.")
        else:
            found.append(f"At {name} it does not pay: {times} to encode + send + decode.")
    return found
