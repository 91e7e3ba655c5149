"""Which parameters of a bucket travel by which codec: groups of them, each reduced as a bucket of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from tersor.codec import Codec
from tersor.collectives import Scheme
from tersor.collectives.schemes.scheme import resolve
from tersor.torch.buckets import Bucket

Choice = Codec | Scheme | str | None
Policy = Mapping[str, Codec | Scheme | str] | Callable[[str, Any], Choice]


def choose(policy: Policy, name: str, parameter: torch.Tensor) -> Codec | Scheme | None:
    """Return what `policy` gives a parameter, or None if it leaves it to the default."""
    if callable(policy):
        found: Choice = policy(name, parameter)
    else:
        found = next((spec for pattern, spec in policy.items() if fnmatchcase(name, pattern)), None)
    return None if found is None else resolve(found)


def check_feedback(codec: Codec | Scheme, error_feedback: bool | None) -> None:
    """Raise ValueError if a biased codec comes without a word on error feedback, or one that diverges with it.

    What a message leaves out grows from step to step if an unbiased-like rounding errs by more than what it sends.
    """
    claims = codec.claims
    if error_feedback is None and not (claims.unbiased or claims.rounds_to_nearest):
        raise ValueError(
            f"{codec.spec} is biased: its error does not average out over steps. Pass error_feedback=True to "
            "correct it, or error_feedback=False to train without"
        )
    error = codec.expected_error()
    if error_feedback and error is not None and error >= 1:
        raise ValueError(
            f"{codec.spec} errs by {error:.2f} of what it sends, so error feedback would grow without bound; "
            "use more bits, or error_feedback=False"
        )


@dataclass
class Group:
    """Parameters of one bucket that one codec sends.

    Attributes
    ----------
    codec : Codec or Scheme
        How.
    bucket : Bucket
        A bucket of these parameters alone; its tensor is the whole one's, or a copy.
    where : list of slice
        Their places in the whole.
    """

    codec: Codec | Scheme
    bucket: Bucket
    where: list[slice]

    def put_back(self, whole: torch.Tensor) -> None:
        """Write what was reduced to where it belongs."""
        if self.bucket.tensor is whole:
            return
        for part, place in zip(torch.split(self.bucket.tensor, self.bucket.sizes), self.where, strict=True):
            whole[place].copy_(part)


def groups(bucket: Bucket, codecs: Sequence[Codec | Scheme]) -> list[Group]:
    """Return the groups of a bucket, of whose parameters each has its codec, in the order of first appearance."""
    edges = [0]
    for size in bucket.sizes:
        edges.append(edges[-1] + size)
    if len(set(codecs)) <= 1:
        return [Group(codecs[0], bucket, [])] if codecs else []
    made = []
    for codec in dict.fromkeys(codecs):
        which = [i for i, c in enumerate(codecs) if c == codec]
        where = [slice(edges[i], edges[i + 1]) for i in which]
        part = Bucket(
            bucket.index,
            torch.cat([bucket.tensor[place] for place in where]),
            [bucket.positions[i] for i in which],
            [bucket.sizes[i] for i in which],
        )
        made.append(Group(codec, part, where))
    return made
