"""rANS from its definition, in Python integers, symbol by symbol: the oracle of the bytes, written from FORMAT.md alone."""


def coded(symbols: list[int], freqs: list[int]) -> bytes:
    chunks = [_chunk(symbols[i : i + 2**20], freqs) for i in range(0, len(symbols), 2**20)]
    return b"".join(len(c).to_bytes(4, "little") for c in chunks) + b"".join(chunks)


def _chunk(symbols: list[int], freqs: list[int]) -> bytes:
    total, m = sum(freqs), len(symbols)
    lanes = 1
    while lanes < 16 and 4096 * 2 * lanes <= m:
        lanes *= 2
    states, words = [2**16] * lanes, []
    for i in reversed(range(m)):
        x, f, start = states[i % lanes], freqs[symbols[i]], sum(freqs[: symbols[i]])
        if x * total >= f * 2**32:
            words.append(x % 2**16)
            x //= 2**16
        states[i % lanes] = x // f * total + x % f + start
        assert 2**16 <= states[i % lanes] < 2**32
    return b"".join(x.to_bytes(4, "little") for x in states) + b"".join(
        w.to_bytes(2, "little") for w in reversed(words)
    )


def one_number(symbols: list[int], freqs: list[int]) -> int:
    """The whole message as one integer, without words: what Duda's paper defines. Its logarithm is the size."""
    total, x = sum(freqs), 2**16
    for s in reversed(symbols):
        x = x // freqs[s] * total + x % freqs[s] + sum(freqs[:s])
    return x
