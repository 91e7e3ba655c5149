"""Cases of test_backends.py for int4 and the Microscaling formats: each yields the outputs of a backend."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference


def block_shapes():
    """(x, row): vectors and rows, short and long, of odd lengths and of whole blocks."""
    for n, row in ((0, 0), (1, 1), (31, 31), (32, 32), (33, 33), (1000, 1000), (4097, 4097), (9000, 9000)):
        for x in edge_inputs(n).values():
            yield x, row
    for rows, row in ((7, 1), (6, 33), (5, 64), (3, 77), (40, 32), (2, 5001)):
        for x in edge_inputs(rows * row).values():
            yield x, row
    yield 2.0 ** np.random.default_rng(0).uniform(-149, 128, 4096).astype(np.float32), 64
    yield np.arange(-4096, 4096, dtype=np.float32) / 1024, 8192


def int4_codes(backend, x, row, block, kind):
    rows = len(x) // row if row else 0
    codes = np.full(rows * ((row + 1) // 2), 0xAA, np.uint8)
    scales = np.full(rows * -(-row // block) * (4 if kind == 0 else 2), 7, np.uint8)
    return codes, scales, np.array(backend.int4_encode(x, row, block, kind, codes, scales))


def int4_arguments():
    for i, (x, row) in enumerate(block_shapes()):
        yield x, row, (32, 8, 48, 4096)[i % 4], i % 3
        yield x, row, 32, 2 - i % 3


def case_int4_encode(backend):
    for arguments in int4_arguments():
        yield from int4_codes(backend, *arguments)


def case_int4_decode(backend):
    for i, (x, row, block, kind) in enumerate(int4_arguments()):
        codes, scales, _ = int4_codes(reference, x, row, block, kind)
        if i % 5 == 0:  # what no encoder writes
            codes[:] = np.random.default_rng(i).integers(0, 256, len(codes))
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            backend.int4_decode(codes, scales, row, block, kind, weight, add, out)
            yield out


MX_BITS = (8, 8, 6, 6, 4, 8)


def mx_codes(backend, x, row, element, *options):
    rows = len(x) // row if row else 0
    codes = np.full(rows * ((row * MX_BITS[element] + 7) // 8), 0xAA, np.uint8)
    scales = np.full(rows * -(-row // 32), 7, np.uint8)
    return codes, scales, np.array(backend.mx_encode(x, row, element, codes, scales, *options))


def case_mx_encode(backend):
    for i, (x, row) in enumerate(block_shapes()):
        for element in range(6):
            yield from mx_codes(backend, x, row, element)
            # Scales that do not saturate, and rounding at random with words from any place of the stream.
            up, stochastic = (i + element) % 3 > 0, (i + element) % 3 < 2
            key, first = 0x0123456789ABCDEF * (i + 1) % 2**64, (0, 1, 7, 2**32 - 3, 2**62 + 2)[i % 5]
            yield from mx_codes(backend, x, row, element, up, stochastic, key, first)


def case_mx_decode(backend):
    for i, (x, row) in enumerate(block_shapes()):
        for element in range(6):
            codes, scales, _ = mx_codes(reference, x, row, element)
            if (i + element) % 3 == 0:  # what no encoder writes
                g = np.random.default_rng(i)
                codes[:], scales[:] = g.integers(0, 256, len(codes)), g.integers(0, 256, len(scales))
            for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
                out = np.full(len(x), 0.25, np.float32)
                backend.mx_decode(codes, scales, row, element, weight, add, out)
                yield out
