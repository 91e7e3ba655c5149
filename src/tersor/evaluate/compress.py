"""A file of tensors compressed as a stream: what `tersor compress` calls. It can be killed at any time and goes on."""

from __future__ import annotations

import errno
import math
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tersor import rng
from tersor.codec import Codec
from tersor.errors import FormatError, NonFiniteError, TersorError
from tersor.evaluate.check import measure_message
from tersor.evaluate.journal import FULL, Journal, Record, journal
from tersor.evaluate.readers import Tensor, TensorFile
from tersor.evaluate.summary import Packed, Summary
from tersor.files import BITS, header_of, nbytes_of, padded
from tersor.message import CRC_AT, CRC_END
from tersor.pieces import Cut, StoredMessage, cut, encode_into, read_at, write_at
from tersor.registry import get_codec

KEEP_BELOW = 1024
Progress = Callable[[str, int], None]
Note = Callable[[str], None]
_COPY = 1 << 22
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True)
class _Step:
    """A tensor's way into the file: encoded if it has a cut, else copied."""

    name: str
    tensor: Tensor
    index: int
    cut: Cut | None
    room: int


def choose_codec(
    name: str, tensor: Tensor, default: Codec, policy: Mapping[str, Codec], keep: Sequence[str], keep_below: int
) -> Codec:
    """Return a tensor's codec: `none` if a pattern of `keep` matches, else the first match of `policy`, else `none` for
    a small tensor, else the default.
    """
    if any(fnmatchcase(name, pattern) for pattern in keep):
        return get_codec("none")
    found = next((codec for pattern, codec in policy.items() if fnmatchcase(name, pattern)), None)
    return found or (get_codec("none") if tensor.size < keep_below else default)


def compress_file(
    source: TensorFile,
    out: Path,
    codec: Codec,
    *,
    policy: Mapping[str, Codec] | None = None,
    keep: Sequence[str] = (),
    keep_below: int = KEEP_BELOW,
    seed: int | None = None,
    axis: int | None = None,
    skip_other: bool = False,
    check: bool = True,
    resume: bool = True,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Summary:
    """Encode a file's float tensors into a .safetensors file of `tersor.save`, read it back, and put it in place.

    Memory does not grow with the file, nor with a tensor whose codec can be cut at its blocks. The file is written
    beside its place with a journal. If the process is killed, or the disk is full, the same call goes on behind the
    last complete tensor and gives the bytes of an uninterrupted one.

    Parameters
    ----------
    source : TensorFile
        From `open_tensors`.
    out : Path
        Replaced if it exists.
    codec, policy, seed, axis
        As for `tersor.save`.
    keep : sequence of str
        Shell patterns of names; such tensors are stored exactly (codec `none`), whatever `policy` says.
    keep_below : int, default 1024
        Tensors of fewer coordinates that no pattern names are stored exactly: biases and norms, where a coded tensor
        saves less than 4 KiB and errors cost most.
    skip_other : bool, default False
        Leave out what is not a float tensor. By default integers, booleans and 8-bit floats are kept as they are, and a
        file that holds anything else is refused.
    check : bool, default True
        Decode every tensor from the new file, before it takes its place, and measure its error.
    resume : bool, default True
        Go on with what an interrupted run left.
    progress : callable, optional
        Called with a tensor's name and how many more coordinates were encoded, or checked.
    note : callable, optional
        Called with what a person may want to know.

    Raises
    ------
    TersorError
        If the file holds what cannot be stored, a tensor cannot be encoded, or the new file does not read back as it
        should; `out` is then what it was.
    """
    say, tell = progress or (lambda name, size: None), note or (lambda text: None)
    steps = _plan(source, codec, policy or {}, keep, keep_below, axis, skip_other)
    header = _header(steps)
    fingerprint = source.fingerprint()
    task = {
        "journal": 0,
        "input": fingerprint,
        "tensors": [[s.name, s.cut.codec.spec if s.cut else s.tensor.code, s.room] for s in steps],
        "axis": axis,
    }
    with journal(out) as book:
        try:
            summary = _run(book, steps, header, task, seed, check, resume, say, tell)
            if source.fingerprint() != fingerprint:
                raise TersorError(f"{source.path} changed while it was read; compress it again")
            with open(book.partial, "rb+") as file:
                book.commit(file.fileno())
        except OSError as error:
            done = len(book.records)
            if not done:
                book.discard()
            if error.errno not in FULL:
                raise
            hint = f"{done} of {len(steps)} tensors are kept in {book.partial.name}; make room and run the same command"
            room = sum(s.room for s in steps) + len(header)
            hint = hint + " again to go on" if done else f"nothing was written; it takes up to {room:,} bytes"
            raise TersorError(f"{out}: {error.strerror}; {hint}") from error
        except Exception:
            book.discard()
            raise
    if not skip_other:
        summary.kept = {s.name: s.tensor for s in steps if s.cut is None}
    else:
        summary.skipped = list(source.others)
    return summary


def _plan(
    source: TensorFile,
    codec: Codec,
    policy: Mapping[str, Codec],
    keep: Sequence[str],
    keep_below: int,
    axis: int | None,
    skip_other: bool,
) -> list[_Step]:
    if not source:
        only = f", only {source.others_text()}" if source.others else ""
        raise TersorError(f"{source.path} holds no float tensor{only}")
    strange = source.only({name for name, t in source.others.items() if not t.code})
    if strange.others and not skip_other:
        raise TersorError(
            f"{source.path} holds what a .safetensors file cannot: {strange.others_text()}; --skip-other leaves out "
            "what is not a float tensor"
        )
    steps = []
    for i, (name, t) in enumerate(source.tensors.items()):
        with _naming(name):
            chosen = choose_codec(name, t, codec, policy, keep, keep_below)
            made = cut(chosen, t.shape, t.dtype, axis if t.shape else None)
            steps.append(_Step(name, t, i, made, padded(made.largest())))
    # Behind the messages, wide types first, so that all are aligned.
    others = [] if skip_other else sorted(source.others.items(), key=lambda item: -BITS[item[1].code])
    return steps + [_Step(name, t, -1, None, nbytes_of(t.code, t.shape)) for name, t in others]


def _header(steps: Sequence[_Step], records: Sequence[Record] = ()) -> bytes:
    """Return the header of the file; before anything is written, one of the same length."""
    known = records or [Record(0, s.room, 0) for s in steps]
    both = list(zip(steps, known, strict=True))
    messages = {s.name: (_room(r, s), s.room) for s, r in both if s.cut}
    return header_of(messages, {s.name: (s.tensor.code, s.tensor.shape, s.room, r.crc) for s, r in both if not s.cut})


def _run(
    book: Journal,
    steps: Sequence[_Step],
    header: bytes,
    task: dict[str, Any],
    seed: int | None,
    check: bool,
    resume: bool,
    say: Progress,
    tell: Note,
) -> Summary:
    begun = time.perf_counter()
    base = _base(book, task, seed, resume, tell)
    file = os.open(book.partial, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        done = next((i for i, r in enumerate(book.records) if _crc(file, r, steps[i]) != r.crc), len(book.records))
        book.cut(done)
        if done:
            tell(f"going on where an earlier run stopped: {done} of {len(steps)} tensors are there")
        if all(s.cut is None or s.cut.codec.claims.fixed_size for s in steps):
            _allocate(file, len(header) + sum(s.room for s in steps))
        for s in steps[:done]:
            say(s.name, s.tensor.size)
        at = book.records[-1].begin + _room(book.records[-1], steps[done - 1]) if done else len(header)
        for s in steps[done:]:
            with _naming(s.name):
                book.add(_write(file, at, s, base, say))
            at += _room(book.records[-1], s)
        write_at(file, _header(steps, book.records), 0)
        os.ftruncate(file, at)
        summary = Summary(after=at, seed=base, resumed=done, seconds=time.perf_counter() - begun)
        begun = time.perf_counter()
        for s, record in zip(steps, book.records, strict=True):
            _finish(file, s, record, check, say, summary)
        summary.check_seconds = time.perf_counter() - begun
        return summary
    finally:
        os.close(file)


def _base(book: Journal, task: dict[str, Any], seed: int | None, resume: bool, tell: Note) -> int:
    """Return the seed: the caller's, that of the run that is gone on with, or a new one."""
    old = dict(book.task or {})
    old_seed = old.pop("seed", None)
    if book.task is not None:
        changed = (
            "its input has changed since"
            if old.get("input") != task["input"]
            else "it had other options"
            if old != task or seed not in (None, old_seed)
            else "--no-resume"
            if not resume
            else ""
        )
        if not changed:
            return int(old_seed)
        if book.records:
            tell(f"an earlier run was interrupted; starting anew: {changed}")
    base = rng.fresh_seed() if seed is None else seed
    book.begin({**task, "seed": base})
    return base


def _allocate(file: int, total: int) -> None:
    """Take the room at once: a full disk is known before the work."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, 0, total)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise


def _room(record: Record, step: _Step) -> int:
    return padded(record.nbytes) if step.cut else record.nbytes


def _write(file: int, at: int, step: _Step, base: int, say: Progress) -> Record:
    def advance(n: int) -> None:
        say(step.name, n)

    if step.cut is not None:
        lossless = step.cut.codec.name == "none"  # every bit is kept, those of NaN and infinity too
        with step.tensor.values() as read:
            written = encode_into(
                file,
                at,
                step.cut,
                read,
                seed=rng.mix64(base, tensor=step.index),
                nonfinite="propagate" if lossless else "raise",
                progress=advance,
            )
        return Record(at, written.nbytes, written.crc)
    crc = 0
    with step.tensor.bytes() as copy:
        for begin in range(0, step.room, _COPY):
            raw = memoryview(copy(min(_COPY, step.room - begin)))
            write_at(file, raw, at + begin)
            crc = zlib.crc32(raw, crc)
    return Record(at, step.room, crc)


def _crc(file: int, record: Record, step: _Step) -> int:
    """Return the CRC-32 of what is in the file, as a record has it; -1 where it is not what the header says."""
    crc = 0
    for begin in range(0, record.nbytes, _COPY):
        raw = memoryview(read_at(file, record.begin + begin, min(_COPY, record.nbytes - begin)))
        if step.cut and begin == 0:
            if raw[CRC_AT:CRC_END] != record.crc.to_bytes(4, "little"):
                return -1
            crc = zlib.crc32(raw[CRC_END:], zlib.crc32(raw[:CRC_AT]))
        else:
            crc = zlib.crc32(raw, crc)
    return crc


def _finish(file: int, step: _Step, record: Record, check: bool, say: Progress, summary: Summary) -> None:
    """Check a tensor in the file, and add it to the summary."""
    t = step.tensor
    if step.cut is None:
        if check and _crc(file, record, step) != record.crc:
            raise TersorError(f"the tensor {step.name!r} does not read back as it was written; the disk may be bad")
        summary.before += record.nbytes
        return
    measured = None
    if check:
        limit = math.prod(max(n, 1) for n in t.shape)
        try:
            stored = StoredMessage(
                lambda at, n: read_at(file, record.begin + at, min(n, record.nbytes - at)),
                record.nbytes,
                limit,
            )
            measured = measure_message(stored, t, lambda n: say(step.name, n))
        except TersorError as error:
            raise TersorError(f"the check of the tensor {step.name!r} failed: {error}; nothing was replaced") from error
    codec = step.cut.codec
    if step.cut.whole:
        summary.whole.append(step.name)
    summary.tensors.append(
        Packed(
            step.name,
            codec.spec,
            t.dtype,
            t.shape,
            t.size,
            t.nbytes,
            record.nbytes,
            measured,
            codec.expected_error(),
        )
    )
    summary.before += t.nbytes


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the tensor in what is raised."""
    try:
        yield
    except NonFiniteError as error:
        raise TersorError(f"the tensor {name!r}: {str(error).partition(';')[0]}; clean it first") from error
    except FormatError as error:
        raise FormatError(f"the tensor {name!r}: {error}") from error
    except (TersorError, TypeError, ValueError) as error:
        raise TersorError(f"the tensor {name!r}: {error}") from error
