"""Cases of test_backends.py for levels of each unit's own: each yields the outputs of a backend."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference

KEY = 0x0123456789ABCDEF


def level_arguments():
    """(x, unit, levels, bits, word): units of many lengths, with levels about their values."""
    shapes = ((0, 5), (1, 1), (15, 15), (16, 16), (33, 40), (300, 7), (77, 33), (1000, 128), (5001, 5001), (9000, 8200))
    for n, unit in shapes:
        for i, x in enumerate(edge_inputs(n).values()):
            bits = 1 + i % 8
            yield x, unit, chosen(x, unit, bits), bits, (0, 1, 7, 2**32 - 3, 2**62 + 2)[i % 5]
    for bits in range(1, 9):
        x = edge_inputs(700)["normal"]
        yield x, 64, chosen(x, 64, bits), bits, 3
        yield x, 64, chosen(x, 64, bits) / np.float32(4), bits, 3  # values outside the levels
        yield x, 64, np.zeros(11 << bits, np.float32), bits, 3


def chosen(x, unit, bits):
    """Levels from the values themselves, some of them repeated."""
    made = []
    for begin in range(0, len(x), unit):
        part = x[begin : begin + unit]
        part = np.where(np.isfinite(part), part, 0)
        g = np.random.default_rng([begin, bits])
        picked = np.concatenate([[part.min(), part.max()], g.choice(part, 1 << bits)])[: 1 << bits]
        made.append(np.sort(picked[: 2 + g.integers(0, 1 << bits)] if bits > 1 else picked))
        made[-1] = np.pad(made[-1], (0, (1 << bits) - len(made[-1])), mode="edge")
    return np.concatenate([np.zeros(0), *made]).astype(np.float32)


def encoded(backend, x, unit, levels, bits, word, stochastic):
    sizes = [(min(unit, len(x) - k) * bits + 7) // 8 for k in range(0, len(x), unit)]
    codes = np.full(sum(sizes), 0xAA, np.uint8)
    with np.errstate(all="ignore"):
        sums = backend.levels_encode(x, unit, levels, bits, KEY, word, stochastic, codes)
    return codes, np.array(sums)


def case_levels_encode(backend):
    for arguments in level_arguments():
        for stochastic in (True, False):
            yield from encoded(backend, *arguments, stochastic)


def case_levels_decode(backend):
    for i, (x, unit, levels, bits, word) in enumerate(level_arguments()):
        codes = encoded(reference, x, unit, levels, bits, word, True)[0]
        if i % 5 == 0:
            codes[:] = np.random.default_rng(i).integers(0, 256, len(codes))
        if i % 7 == 0:
            levels = np.where(np.arange(len(levels)) >> bits == 1, np.float32(np.nan), levels)
        count = -(-len(x) // unit)
        present = np.arange(count, dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.levels_decode(codes, unit, levels, bits, weight, add, present, out)
            yield out
