"""Symbols as bytes that need nothing else: a header, then blocks, each with its own table (FORMAT.md, section 9)."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tersor.coding import bits as bit_stream
from tersor.coding.frequencies import (
    MAX_SCALE_BITS,
    SCALE_BITS,
    code_length,
    normalise,
    table_from_bytes,
    table_to_bytes,
)
from tersor.coding.rans_stream import as_bytes, as_symbols, count, decode, encode
from tersor.errors import FormatError, TersorError

VERSION = 0
_RAW, _SINGLE, _RANS, _ZSTD = range(4)


def compress(symbols: ArrayLike, *, block: int | None = None, coder: Literal["rans", "zstd"] = "rans") -> bytes:
    """Code symbols so that the bytes need nothing else to decode.

    Parameters
    ----------
    symbols : uint8 array, shape (n,)
    block : int, optional
        Symbols of a block; each block has a frequency table of its own. None: one table for all.
    coder : {"rans", "zstd"}
        "rans" comes within a few thousandths of a bit of the entropy. "zstd" is for interchange with programs that have
        no coder of tersor's: a standard Zstandard frame of level 1 a block, holding the symbols at 1, 2, 4 or 8 bits;
        1 to 4 % larger on quantized Gaussian values (Zstandard codes whole bytes). It needs the ``zstandard`` package
        (``pip install tersor[zstd]``), and its bytes depend on the version of that.

    Returns
    -------
    bytes
        At most 32 bytes a block over the symbols at the bits of the largest: blocks that do not become smaller are
        stored so, and blocks of one symbol as that symbol.

    Raises
    ------
    ValueError
        If `symbols` is not such an array, `block` not positive or `coder` unknown.
    TersorError
        If zstandard is asked for and not installed.

    Examples
    --------
    >>> len(compress(np.zeros(1 << 20, np.uint8)))
    7
    """
    x = as_symbols(symbols)
    if block is not None and block < 1:
        raise ValueError(f"block must be positive, got {block}")
    if coder not in ("rans", "zstd"):
        raise ValueError(f"coder must be 'rans' or 'zstd', got {coder!r}")
    size = len(x) if block is None else block
    parts = [bytes([VERSION]), _varint(len(x)), _varint(0 if block is None else block)]
    for i in range(0, len(x), max(size, 1)):
        parts += block_parts(x[i : i + size], coder)
    return b"".join(parts)


def decompress(data: Any, max_symbols: int = 1 << 30) -> NDArray[np.uint8]:
    """Undo `compress`.

    Parameters
    ----------
    data : bytes-like or uint8 array
    max_symbols : int
        More symbols than that are refused before memory is taken: a few bytes can stand for many equal symbols.

    Returns
    -------
    uint8 array, shape (n,)

    Raises
    ------
    FormatError
        If the bytes are damaged, cut short, too long, or hold more than `max_symbols`.
    TersorError
        If a block is a Zstandard frame and zstandard is not installed.

    Examples
    --------
    >>> decompress(compress(np.array([3, 1, 2], np.uint8))).tolist()
    [3, 1, 2]
    """
    reader = Reader(as_bytes(data))
    if reader.byte() != VERSION:
        raise FormatError("not symbols that tersor compressed, or of another version")
    n, block = reader.varint(), reader.varint()
    if n > max_symbols:
        raise FormatError(f"the bytes hold {n} symbols, more than max_symbols={max_symbols}")
    size = block or n
    # The least block takes two bytes, so a forged count of blocks ends here.
    if n and -(-n // size) * 2 > reader.left():
        raise FormatError("the bytes are cut short")
    out = np.empty(n, np.uint8)
    for i in range(0, n, max(size, 1)):
        read_block(reader, out[i : i + size])
    if reader.left():
        raise FormatError(f"{reader.left()} bytes too many")
    return out


def block_parts(x: NDArray[np.uint8], coder: str = "rans") -> list[bytes]:
    """Return the bytes of one block of at least one symbol, in parts: coded, plain or one symbol, the shortest."""
    counts = count(x)
    s = int(np.flatnonzero(counts)[-1]) + 1
    counts = counts[:s]
    if np.count_nonzero(counts) == 1:
        return [bytes([_SINGLE, s - 1])]
    width = (s - 1).bit_length()
    raw = bit_stream.packed_size(len(x), width) + 1
    if coder == "zstd":
        width8 = 1 << (width - 1).bit_length()  # Zstandard codes bytes: whole symbols in each
        packed = bit_stream.pack(x[None], width8).tobytes()
        frame = _zstandard().ZstdCompressor(level=1, write_content_size=True).compress(packed)
        made = [bytes([_ZSTD, width8]), _varint(len(frame)), frame]
    elif 11 + (s + 7) // 8 >= raw:  # the least of table, directory and one state: a short block is not worth a table
        made = []
    else:
        freqs = _table(counts)
        # A block that would not pay is not coded at all, so that the choice costs nothing.
        if code_length(counts, freqs) >= 8 * raw:
            made = []
        else:
            coded = encode(x, freqs)
            made = [bytes([_RANS]), table_to_bytes(freqs), _varint(len(coded)), coded.tobytes()]
    if made and sum(map(len, made)) - 1 < raw:
        return made
    return [bytes([_RAW, width]), bit_stream.pack(x[None], width).tobytes()]


def _table(counts: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the table of 12 bits, or that of 15, slower to decode, where it saves more than 1 in 512."""
    fast = normalise(counts, SCALE_BITS)
    length = code_length(counts, fast)
    weights = [int(c) for c in counts]
    least = sum(weights)
    if all(w == 0 or w * 1024 >= least for w in weights):  # every frequency is 4 or more: nothing to gain
        return fast
    fine = normalise(counts, MAX_SCALE_BITS)
    gain = length - code_length(counts, fine) - 3 * len(counts)
    return fine if gain * 512 > length else fast


def read_block(reader: "Reader", out: NDArray[np.uint8], zstd: bool = True) -> None:
    """Fill `out` from the block that comes next.

    Raises
    ------
    FormatError
        If there is none of so many symbols, or a Zstandard frame with `zstd` of False.
    """
    kind = reader.byte()
    if kind == _SINGLE:
        out[:] = reader.byte()
    elif kind == _RAW:
        width = reader.byte()
        if not 1 <= width <= 8:
            raise FormatError("a block has a wrong width")
        _unpack(reader.take(bit_stream.packed_size(len(out), width)), width, out)
    elif kind == _RANS:
        freqs, used = table_from_bytes(reader.peek(1100).tobytes())
        reader.take(used)
        decode(reader.take(reader.varint()), len(out), freqs, out)
    elif kind == _ZSTD and zstd:
        width = reader.byte()
        if width not in (1, 2, 4, 8):
            raise FormatError("a block has a wrong width")
        _unpack(_unzstd(reader.take(reader.varint()), bit_stream.packed_size(len(out), width)), width, out)
    else:
        raise FormatError(f"no kind of block is {kind}")


def _unpack(packed: NDArray[np.uint8], width: int, out: NDArray[np.uint8]) -> None:
    used = len(out) * width % 8
    if used and packed[-1] >> used:
        raise FormatError("the bits after the last symbol are not 0")
    out[:] = bit_stream.unpack(packed[None], width, len(out))[0]


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise TersorError("coder='zstd' needs the package zstandard: pip install tersor[zstd]") from error
    return zstandard


def _unzstd(frame: NDArray[np.uint8], expected: int) -> NDArray[np.uint8]:
    zstandard = _zstandard()
    try:
        # The size that the frame claims is what would be allocated.
        if zstandard.get_frame_parameters(frame.data).content_size != expected:
            raise FormatError("a Zstandard frame has another size")
        made = zstandard.ZstdDecompressor().decompress(frame.data, max_output_size=expected, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError) as error:
        raise FormatError(f"a Zstandard frame is damaged: {error}") from error
    return np.frombuffer(made, np.uint8)


def _varint(value: int) -> bytes:
    """Return the LEB128 of a number, in its shortest form."""
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


class Reader:
    """Reads on through bytes; FormatError where they end."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._at = data, 0

    def left(self) -> int:
        return len(self._data) - self._at

    def peek(self, size: int) -> NDArray[np.uint8]:
        return self._data[self._at : self._at + size]

    def take(self, size: int) -> NDArray[np.uint8]:
        if size > self.left():
            raise FormatError("the bytes are cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def byte(self) -> int:
        return int(self.take(1)[0])

    def varint(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    break
                return value
        raise FormatError("a number is not in its shortest form")
