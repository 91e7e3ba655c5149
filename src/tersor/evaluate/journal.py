"""The journal of a compression: what was begun from what, and which tensors are in the partial file already."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tersor.errors import TersorError
from tersor.files import sync_folder

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what an operating system says where there is no room


def partial_of(target: Path) -> Path:
    """Return the path that a file is written to before it takes the place of `target`."""
    return target.with_name(f".{target.name}.partial")


def journal_of(target: Path) -> Path:
    """Return the path of the journal of `partial_of(target)`."""
    return target.with_name(f".{target.name}.journal")


@dataclass(frozen=True)
class Record:
    """A tensor that is complete in the partial file.

    Attributes
    ----------
    begin, nbytes : int
        Where its bytes are.
    crc : int
        Their CRC-32; of a message, of all bytes but those that hold it.
    """

    begin: int
    nbytes: int
    crc: int


class Journal:
    """Lines of JSON, each behind its own CRC-32, beside the partial file; locked while in use.

    Lines are written when a tensor is complete. Nothing waits for the disk: what a crash of the machine lost is found
    by the checksums when the work goes on.

    Attributes
    ----------
    task : dict or None
        What the partial file was begun with; None if there is nothing to go on with.
    records : list of Record
        Tensors in order.
    """

    def __init__(self, target: Path) -> None:
        self.path, self.partial = journal_of(target), partial_of(target)
        self.target = target
        self._file = open(self.path, "a+b")  # noqa: SIM115 - close() closes it
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise TersorError(f"{target} is being written by another process") from error
        if not self.path.exists() or not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
            self._file.close()  # it was finished and removed between the two calls
            raise TersorError(f"{target} was just written by another process")
        self.task: dict[str, Any] | None = None
        self.records: list[Record] = []
        good = 0
        self._file.seek(0)
        for line in self._file:
            value = _parse(line)
            if value is None:
                break
            good += len(line)
            if self.task is None:
                self.task = value
            else:
                self.records.append(Record(**value))
        self._file.truncate(good)
        if self.task is None or not self.partial.exists():
            self.task, self.records = None, []

    def begin(self, task: dict[str, Any]) -> None:
        """Start anew: forget what there was."""
        self.partial.unlink(missing_ok=True)
        self._file.truncate(0)
        self.task, self.records = task, []
        self._write(task)

    def cut(self, n: int) -> None:
        """Forget all but the first `n` records."""
        records, task = self.records[:n], self.task
        self._file.truncate(0)
        self._write(task or {})
        self.records = []
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Note a tensor."""
        self.records.append(record)
        self._write(vars(record))

    def commit(self, file: int) -> None:
        """Flush the partial file and put it in its place."""
        os.fsync(file)
        os.replace(self.partial, self.target)
        self.path.unlink(missing_ok=True)
        sync_folder(self.target.parent)

    def discard(self) -> None:
        """Remove the partial file and the journal."""
        self.partial.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock."""
        self._file.close()

    def _write(self, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        os.write(self._file.fileno(), b"%08x %s\n" % (zlib.crc32(text), text))


@contextmanager
def journal(target: Path) -> Iterator[Journal]:
    """Open the journal of a file, and close it."""
    made = Journal(target)
    try:
        yield made
    finally:
        made.close()


def _parse(line: bytes) -> Any:
    """Return what a line holds, or None if it was cut off or damaged."""
    crc, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
        return None
    return json.loads(text)
