"""Cases of test_backends.py for the rotation of units and the quantizers built on it."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference
from tersor.kernels.lengths import padded_length

KEY = 0xFEDCBA9876543210


def rotated_size(n, unit, full):
    return sum(padded_length(min(unit, n - k), full) for k in range(0, n, unit))


def rotated_arguments():
    """(x, unit, start, by_rows, rotations, full)"""
    for n in (0, 1, 2, 3, 80, 100, 4097, 9000):
        for i, x in enumerate(edge_inputs(n).values()):
            yield x, 4096, 4096 * (i % 3), False, 1 + i % 3, False
    for n in (1, 5, 80):
        for i, x in enumerate(edge_inputs(6 * n).values()):
            yield x, n, 0, True, 1 + i % 3, i % 4 == 0
    for n in (3, 1000, 5000):
        for i, x in enumerate(edge_inputs(n).values()):
            yield x, n, 0, False, 1 + i % 3, True
    yield edge_inputs(700)["normal"], 32, 2**40, False, 2, False
    yield edge_inputs(300_000)["normal"], 300_000, 0, False, 2, True  # one unit for several threads


def case_rotate_units(backend):
    for x, unit, start, by_rows, rotations, full in rotated_arguments():
        out = np.full(rotated_size(len(x), unit, full), 7, np.float32)
        with np.errstate(all="ignore"):
            backend.rotate_units(x, unit, KEY, start, by_rows, rotations, full, out)
        # NaN has no fixed bits here: nothing of it goes on the wire.
        yield np.where(np.isnan(out), np.float32(np.nan), out)


def case_unrotate_units(backend):
    for i, (x, unit, start, by_rows, rotations, full) in enumerate(rotated_arguments()):
        y = np.resize(x, rotated_size(len(x), unit, full))
        count = -(-len(x) // unit) if len(x) else 0
        present = np.arange(count, dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.unrotate_units(y, unit, KEY, start, by_rows, rotations, full, weight, add, present, out)
            yield out


def dither_arguments():
    """(x, unit, low, high, bits, start, by_rows)"""
    for n, unit, by_rows in ((0, 5, False), (1, 1, False), (9, 4, False), (9000, 4096, False), (700, 70, True)):
        for bits in range(1, 9):
            for name in ("normal", "zeros", "constant", "max", "least", "ties"):
                x = edge_inputs(n)[name]
                yield x, unit, float(x.min(initial=0)), float(x.max(initial=0)), bits, 2**33 + 1, by_rows


def dither_codes(backend, x, unit, low, high, bits, start, by_rows):
    size = sum((min(unit, len(x) - k) * bits + 7) // 8 for k in range(0, len(x), unit))
    out = np.full(size, 0xAA, np.uint8)
    backend.dither_encode(x, unit, low, high, bits, KEY, start, by_rows, out)
    return out


def case_dither_encode(backend):
    for arguments in dither_arguments():
        yield dither_codes(backend, *arguments)


def case_dither_decode(backend):
    for i, (x, unit, low, high, bits, start, by_rows) in enumerate(dither_arguments()):
        codes = dither_codes(reference, x, unit, low, high, bits, start, by_rows)
        count = -(-len(x) // unit)
        present = np.arange(count, dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True)):
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.dither_decode(codes, unit, low, high, bits, KEY, start, by_rows, weight, add, present, out)
            yield out


def case_draw_table(backend):
    table = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
    for n in (0, 1, 2, 3, 7, 8, 63, 4095, 4096, 4097, 70_000):
        for start in (0, 1, 3, 2**33 + 2):
            out = np.full(n, 7, np.float32)
            backend.draw_table(table, KEY, 9, start, out)
            yield out
