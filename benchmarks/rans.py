"""The entropy coder beside a copy, constriction and Zstandard: paired runs on one thread, medians of ratios.

pip install constriction zstandard
python benchmarks/rans.py [--size 20] [--rounds 15]
"""

import argparse
from collections.abc import Callable
from statistics import median

import constriction
import numpy as np
import zstandard
from peers import seconds

import tersor
from tersor.coding import bits as bit_stream
from tersor.coding import rans
from tersor.kernels import _native
from tersor.quantize import lloyd_max


def measure(bits: int, size: int, rounds: int) -> None:
    z = np.random.default_rng(bits).standard_normal(size).astype(np.float32)
    x = np.searchsorted(lloyd_max.thresholds(bits), z, side="right").astype(np.uint8)
    counts = rans.count(x)[: 1 << bits]
    freqs = rans.normalise(counts)
    model = constriction.stream.model.Categorical(counts / size, perfect=False)
    wide, out = x.astype(np.int32), np.empty_like(x)
    data, alone = rans.encode(x, freqs), rans.compress(x)
    width = 1 << (bits - 1).bit_length()

    def theirs() -> np.ndarray:
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(wide, model)
        return coder.get_compressed()

    packed = bit_stream.pack(x[None], width).tobytes()
    words, frame = theirs(), zstandard.ZstdCompressor(level=1).compress(packed)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: np.copyto(out, x),
        "encode": lambda: rans.encode(x, freqs),
        "decode": lambda: rans.decode(data, size, freqs, out),
        "compress": lambda: rans.compress(x),
        "decompress": lambda: rans.decompress(alone),
        "constriction encode": theirs,
        "constriction decode": lambda: constriction.stream.stack.AnsCoder(words).decode(model, size),
        "zstd -1 encode": lambda: zstandard.ZstdCompressor(level=1).compress(packed),
        "zstd -1 decode": lambda: zstandard.ZstdDecompressor().decompress(frame),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):  # one of each in turn, so that all see the same neighbours
        for name, call in calls.items():
            times[name].append(seconds(call))
    entropy = rans.entropy(counts)
    print(
        f"\n{1 << bits} levels, 2^{size.bit_length() - 1} symbols, {_native.cpu_level()}; bits: entropy {entropy:.4f}"
    )
    print(
        f"  encode {8 * len(data) / size:.4f}  compress {8 * len(alone) / size:.4f}"
        f"  constriction {8 * words.nbytes / size:.4f}  zstd -1 {8 * len(frame) / size:.4f}"
    )
    print("  M symbols/s, times a copy's duration, times as fast as constriction")
    for name, t in times.items():
        other = times["constriction decode" if "de" in name.replace("encode", "") else "constriction encode"]
        of_copy = median(a / b for a, b in zip(t, times["copy"], strict=True))
        of_peer = median(b / a for a, b in zip(t, other, strict=True))
        print(f"  {name:20} {size / median(t) / 1e6:8.0f} {of_copy:8.1f} {of_peer:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=20, help="log2 of the number of symbols")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    tersor.set_num_threads(1)
    for level in reversed(_native.cpu_levels().split()):
        _native.set_cpu_level(level)
        for bits in (2, 4, 6):
            measure(bits, 1 << options.size, options.rounds)


if __name__ == "__main__":
    main()
