"""EncodedDict: many named tensors as one manifest and one blob, so that small ones cost little (FORMAT.md 7)."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor import rng
from tersor.arrays import FLOAT_DTYPES
from tersor.codec import Codec
from tersor.encoded import Encoded
from tersor.errors import FormatError
from tersor.message import MAGIC as MESSAGE
from tersor.message import MAX_NDIM, assemble, check_shape, checked_layout, resolve
from tersor.registry import get_codec

Policy = Callable[[str, Any], "Codec | str | None"] | Mapping[str, "Codec | str"]

MAGIC = b"TERD"
VERSION = 0

_HEADER = struct.Struct("<4sB3sIIQQII")
_CRC_AT, _CRC_END = 8, 12
_AXIS, _KEY, _MORE = 4, 8, 16
_EXTRA = struct.Struct("<QII")
_MAX_VARINT = 10


class EncodedDict(Mapping[str, Encoded]):
    """Encoded tensors by name.

    Parameters
    ----------
    entries : mapping of str to Encoded
        The messages. Per-unit counts and lost units are not kept in bytes; add and mean single messages instead.
    key : int
        Key from which the entries' own keys follow.
    """

    def __init__(self, entries: Mapping[str, Encoded], key: int = 0) -> None:
        self._entries = dict(entries)
        self.key = key

    def __getitem__(self, name: str) -> Encoded:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        names = ", ".join([repr(name) for name in list(self)[:3]] + ["..."] * (len(self) > 3))
        return f"EncodedDict({len(self)} tensors: {names})"

    @property
    def nbytes(self) -> int:
        """Length of `to_bytes()`."""
        return len(self.to_bytes())

    @property
    def bits_per_coordinate(self) -> float:
        """``8 * nbytes`` over all coordinates."""
        size = sum(enc.size for enc in self._entries.values())
        return 8 * self.nbytes / size if size else float("inf")

    def decode(self, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Decode every tensor; `like` gives frameworks and devices by name."""
        return {
            name: enc.codec.decode(enc, like=None if like is None else like.get(name))
            for name, enc in self._entries.items()
        }

    def to_bytes(self) -> bytes:
        """Return manifest and blob.

        Raises
        ------
        ValueError
            If an entry has per-unit counts or lost units.
        """
        specs = list(dict.fromkeys(enc.spec for enc in self._entries.values()))
        manifest = bytearray()
        for spec in specs:
            manifest += bytes([len(spec)]) + spec.encode("ascii")
        blob: list[bytes] = []
        for i, (name, enc) in enumerate(self._entries.items()):
            manifest += _write_entry(name, enc, specs.index(enc.spec), rng.mix64(self.key, tensor=i))
            blob += [p.data.tobytes() for p in enc.planes.values()]
        body = bytes(manifest) + b"".join(blob)
        raw = bytearray(_HEADER.size) + body
        _HEADER.pack_into(
            raw, 0, MAGIC, VERSION, b"\0\0\0", 0, len(specs), len(raw), self.key, len(self), len(manifest)
        )
        struct.pack_into("<I", raw, _CRC_AT, _checksum(raw))
        return bytes(raw)

    @classmethod
    def from_bytes(cls, raw: Any, *, max_elements: int = 2**32, max_tensors: int = 100_000) -> "EncodedDict":
        """Parse what `to_bytes` wrote; the planes share memory with `raw`.

        Parameters
        ----------
        raw : bytes-like
            Exactly one bundle.
        max_elements : int, default 2**32
            Limit on the coordinates of all tensors together.
        max_tensors : int, default 100,000
            Limit on the number of tensors; each takes about 1 KiB of memory beside its bytes.

        Raises
        ------
        FormatError
            If the bytes are damaged, truncated, forged or too large.
        """
        view = memoryview(raw).cast("B")
        if len(view) < _HEADER.size:
            raise FormatError(f"a bundle has at least {_HEADER.size} bytes, got {len(view)}")
        magic, version, reserved, crc, n_specs, total, key, n_entries, n_manifest = _HEADER.unpack_from(view)
        if magic != MAGIC:
            hint = "; a single message: use tersor.from_bytes" if magic == MESSAGE else ""
            raise FormatError(f"these bytes are not a tersor bundle (wrong magic number){hint}")
        if version != VERSION or reserved != b"\0\0\0":
            raise FormatError(f"bundle version {version} is not readable by this tersor (it reads {VERSION})")
        if total != len(view) or n_manifest > total - _HEADER.size:
            raise FormatError(f"the bundle says {total} bytes, got {len(view)}: truncated or oversized")
        if crc != _checksum(view):
            raise FormatError("the checksum is wrong: the bundle was damaged")
        if max(n_entries, n_specs) > max_tensors:
            raise FormatError(f"the bundle has {n_entries} tensors, more than max_tensors={max_tensors}")
        reader = _Reader(view[_HEADER.size : _HEADER.size + n_manifest])
        codecs = [resolve(reader.take(reader.byte())) for _ in range(n_specs)]
        blob = np.frombuffer(view[_HEADER.size + n_manifest :], np.uint8)
        entries: dict[str, Encoded] = {}
        for i in range(n_entries):
            name, enc, used = _read_entry(reader, codecs, rng.mix64(key, tensor=i), blob, max_elements)
            if name in entries:
                raise FormatError(f"the tensor {name!r} is there twice")
            blob, max_elements = blob[used:], max_elements - enc.size
            entries[name] = enc
        if reader.left or len(blob):
            raise FormatError("the bundle has bytes that belong to no tensor")
        return cls(entries, key)


def encode_dict(
    arrays: Mapping[str, Any],
    codec: "Codec | str",
    policy: Policy | None = None,
    *,
    seed: int | None = None,
    sender: int = 0,
    nonfinite: str = "raise",
) -> EncodedDict:
    """Encode named arrays, each as one vector with a key of its own.

    Parameters
    ----------
    arrays : mapping of str to array
        The tensors.
    codec : Codec or str
        For all that `policy` leaves.
    policy : callable or mapping, optional
        ``policy(name, array)`` returns a codec, a spec string or None; or a mapping of shell patterns to codecs, the
        first match wins: ``{"*.bias": "fp16"}``.
    seed, sender, nonfinite
        As for `Codec.encode`.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> weights = {"w": np.ones((64, 64), np.float32), "b": np.ones(64, np.float32)}
    >>> enc = tersor.encode_dict(weights, "eden:4", {"b": "fp16"}, seed=1)
    >>> enc["b"].spec, enc.decode()["w"].shape
    ('fp16', (64, 64))
    """
    default = get_codec(codec)
    base = rng.fresh_seed() if seed is None else int(seed) & (2**64 - 1)
    base = base if sender == 0 else rng.mix64(base, sender=sender)
    entries = {}
    for i, (name, array) in enumerate(items(arrays)):
        with naming(name):
            chosen = choose(policy, name, array) or default
            entries[name] = chosen.encode(array, seed=rng.mix64(base, tensor=i), nonfinite=nonfinite)
    return EncodedDict(entries, base)


def items(arrays: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the items of a mapping of names to arrays; anything else raises TypeError."""
    if not hasattr(arrays, "items"):
        raise TypeError(f"expected arrays by name, such as {{'w': x}} or a state_dict, got {type(arrays).__name__}")
    return arrays.items()


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Note the tensor's name on what is raised inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the tensor {name!r}")
        raise


def choose(policy: Policy | None, name: str, array: Any) -> Codec | None:
    """Return the codec that `policy` gives a tensor, or None if it leaves it to the default."""
    found: Codec | str | None = None
    if callable(policy):
        found = policy(name, array)
    elif policy is not None:
        found = next((spec for pattern, spec in policy.items() if fnmatchcase(name, pattern)), None)
    return None if found is None else get_codec(found)


def _write_entry(name: str, enc: Encoded, spec: int, implied_key: int) -> bytes:
    if not isinstance(enc.count, int) or enc.received is not None:
        raise ValueError(f"{name}: a bundle keeps no per-unit counts or lost units; send this message on its own")
    more = enc.start != 0 or enc.count != 1 or enc.digest != 0
    info = FLOAT_DTYPES.index(enc.dtype) | (_AXIS if enc.axis is not None else 0)
    info |= (_KEY if enc.key != implied_key else 0) | (_MORE if more else 0)
    encoded = name.encode("utf-8")
    raw = _varint(len(encoded)) + encoded + _varint(spec) + bytes([info]) + _varint(len(enc.shape))
    raw += b"".join(_varint(n) for n in enc.shape) + enc.fields
    if info & _KEY:
        raw += enc.key.to_bytes(8, "little")
    if more:
        raw += _EXTRA.pack(enc.start, enc.count, enc.digest)
    return raw


def _read_entry(
    reader: "_Reader", codecs: list[Codec], implied_key: int, blob: NDArray[np.uint8], max_elements: int
) -> tuple[str, Encoded, int]:
    try:
        name = str(reader.take(reader.varint()), "utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("a tensor's name is not UTF-8") from error
    spec, info, ndim = reader.varint(), reader.byte(), reader.varint()
    if spec >= len(codecs) or info >= 32 or ndim > MAX_NDIM:
        raise FormatError(f"the entry of {name!r} holds a value that no encoder writes")
    codec = codecs[spec]
    shape = tuple(reader.varint() for _ in range(ndim))
    check_shape(shape, max_elements)
    axis = -1 if info & _AXIS else None
    if axis is not None and not shape:
        raise FormatError("a message of rows needs an axis")
    fields = reader.take(codec.fields_size)
    key = int.from_bytes(reader.take(8), "little") if info & _KEY else implied_key
    start, count, digest = _EXTRA.unpack(reader.take(_EXTRA.size)) if info & _MORE else (0, 1, 0)
    dtype = FLOAT_DTYPES[info & 3]
    planes, used = [], 0
    for p in checked_layout(codec, codec.units(shape, axis), dtype, fields).values():
        planes.append(blob[used : used + p.nbytes])
        used += p.nbytes
    enc = assemble(
        codec,
        shape=shape,
        dtype=dtype,
        axis=axis,
        key=key,
        start=start,
        count=count,
        digest=digest,
        fields=fields,
        planes=planes,
    )
    return name, enc, used


class _Reader:
    """Takes bytes from the front of a manifest; running out of them raises FormatError."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    @property
    def left(self) -> int:
        return len(self._view)

    def take(self, n: int) -> bytes:
        if n > len(self._view):
            raise FormatError("the bundle's manifest is truncated")
        taken, self._view = bytes(self._view[:n]), self._view[n:]
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = 0
        for i in range(_MAX_VARINT):
            byte = self.byte()
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                if value >= 2**63 or (byte == 0 and i):
                    break
                return value
        raise FormatError("the bundle's manifest holds a number that no encoder writes")


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value >= 128:
        raw.append(value & 127 | 128)
        value >>= 7
    return bytes([*raw, value])


def _checksum(raw: Any) -> int:
    view = memoryview(raw)
    return zlib.crc32(view[_CRC_END:], zlib.crc32(view[:_CRC_AT]))
