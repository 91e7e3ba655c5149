"""Cases of test_backends.py for levels with shared randomness."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference

KEY, MASK = 0x0123456789ABCDEF, 2**64 - 1


def case_shared_search(backend):
    g = np.random.default_rng(0)
    for size in (1, 2, 5, 100, 700):
        normal = g.standard_normal((3, size))
        for x in (normal, np.exp(3 * normal), np.rint(2 * normal), np.zeros((3, size)), normal * 1e-200, normal + 1e8):
            points = np.sort(x, axis=1)
            for shared, s, sweeps in ((1, 3, 4), (2, 2, 60), (3, 4, 5), (8, 2, 4), (5, 9, 2), (4, 3, 0)):
                places = np.linspace(0, size - 1, s).round().astype(int)
                levels = np.repeat(points[:, places], shared, axis=1).reshape(-1)
                weights = g.random(3 * size) if shared % 2 else np.zeros(0)
                backend.shared_search(points.reshape(-1), weights, size, levels, shared * s, shared, sweeps)
                yield levels
    backend.shared_search(np.zeros(0), np.zeros(0), 4, np.zeros(0), 4, 2, 5)


def code_arguments():
    """(x, unit, levels, bits, shared, start, by_rows, turn, first)"""
    shapes = (
        (0, 5, False),
        (1, 1, False),
        (33, 40, False),
        (300, 7, False),
        (9000, 8200, False),
        (77, 11, True),
        (1600, 16, True),
    )
    for n, unit, by_rows in shapes:
        for i, x in enumerate(edge_inputs(n).values()):
            bits, shared = 1 + i % 8, 2 + i // 2 % 7
            start = 5 if by_rows else (0, 1, 7, 2**32 - 3, 2**62 + 2)[i % 5]
            yield x, unit, sequences(x, unit, shared << bits), bits, shared, start, by_rows, i % shared, 3 * i
    for bits in range(1, 9):
        x = edge_inputs(700)["normal"]
        for shared in (2, 3, 8):
            levels = sequences(x, 70, shared << bits)
            yield x, 70, levels / np.float32(4), bits, shared, 3, shared == 3, shared - 1, 3  # values outside
            yield x, 70, np.zeros(len(levels), np.float32), bits, shared, 3, shared == 3, 1, 3


def sequences(x, unit, count):
    """Ascending levels about the values of each unit."""
    made = []
    for begin in range(0, len(x), unit):
        part = np.where(np.isfinite(x[begin : begin + unit]), x[begin : begin + unit], 0)
        made.append(np.sort(np.random.default_rng([begin, count]).choice(np.append(part, 0), count)))
    return np.concatenate([np.zeros(0), *made]).astype(np.float32)


def shared_codes(backend, x, unit, levels, bits, shared, start, by_rows, turn, first):
    codes = np.full(sum((min(unit, len(x) - k) * bits + 7) // 8 for k in range(0, len(x), unit)), 0xAA, np.uint8)
    with np.errstate(all="ignore"):
        sums = backend.shared_encode(
            x, unit, levels, bits, shared, KEY, start, by_rows, turn, ~KEY & MASK, first, codes
        )
    return codes, np.array(sums)


def case_shared_encode(backend):
    for arguments in code_arguments():
        yield from shared_codes(backend, *arguments)


def case_shared_decode(backend):
    for i, arguments in enumerate(code_arguments()):
        x, unit, levels, bits, shared, start, by_rows, turn, _ = arguments
        codes = shared_codes(reference, *arguments)[0]
        if i % 5 == 0:
            codes[:] = np.random.default_rng(i).integers(0, 256, len(codes))
        if i % 7 == 0:
            levels = np.where(np.arange(len(levels)) // (shared << bits) == 1, np.float32(np.nan), levels)
        count = -(-len(x) // unit)
        present = np.arange(count, dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.shared_decode(
                    codes, unit, levels, bits, shared, KEY, start, by_rows, turn, weight, add, present, out
                )
            yield out
