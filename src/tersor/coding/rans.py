"""Entropy coding of small integers: range ANS (rANS) with static tables, on interleaved lanes.

`encode` and `decode` use a frequency table that both sides know; `compress` and `decompress` count the table, send it and
fall back to plain bits where coding does not pay. The bytes are in FORMAT.md, section 9.

Jarek Duda, "Asymmetric numeral systems: entropy coding combining speed of Huffman coding with compression rate of
arithmetic coding", 2013, arXiv 1311.2540 (the range variant: C(s, x) = floor(x / f_s) 2**n + start_s + x mod f_s).
Interleaved lanes: Fabian Giesen, "Interleaved entropy coders", 2014, arXiv 1402.3392.

Examples
--------
>>> import numpy as np
>>> x = np.random.default_rng(0).binomial(15, 0.5, 1 << 16).astype(np.uint8)
>>> freqs = normalise(count(x)[:16])
>>> bool(np.array_equal(decode(encode(x, freqs), len(x), freqs), x))
True
>>> bits = 8 * len(compress(x)) / len(x)
>>> print(f"{entropy(count(x)):.2f} {bits:.2f}")
3.02 3.03
"""

from tersor.coding.frequencies import MAX_SCALE_BITS, MAX_SYMBOLS, SCALE_BITS, normalise
from tersor.coding.rans_blocks import compress, decompress
from tersor.coding.rans_stream import CHUNK, count, decode, encode, entropy, max_nbytes

__all__ = [
    "CHUNK",
    "MAX_SCALE_BITS",
    "MAX_SYMBOLS",
    "SCALE_BITS",
    "compress",
    "count",
    "decode",
    "decompress",
    "encode",
    "entropy",
    "max_nbytes",
    "normalise",
]
