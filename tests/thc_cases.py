"""Cases of test_backends.py for THC: rotated units on integer grids, and their sums."""

import numpy as np
from edge_inputs import edge_inputs
from rotated_cases import rotated_size

from tersor.kernels import reference
from tersor.quantize import thc

KEY, PRIVATE = 0xFEDCBA9876543210, 0x0123456789ABCDEF


def thc_arguments():
    """(x, unit, start, by_rows, rotations, bits, table)"""
    i = 0
    for n, unit, by_rows in ((0, 64, False), (1, 64, False), (3, 64, False), (700, 64, False), (80 * 5, 80, True)):
        for x in edge_inputs(n).values():
            if np.isfinite(x).all():
                bits, i = 1 + i % 8, i + 1
                table = thc.table(bits, (1 << bits) - 1 + 2 * (i % 3), 1 / 32)
                yield x, unit, 0 if by_rows else 64 * (i % 5), by_rows, 1 + i % 3, bits, np.array(table, np.uint16)
    x = edge_inputs(9000)["normal"]
    yield x, 4096, 2**33, False, 2, 4, np.array(thc.table(4, 17, 1 / 32), np.uint16)
    yield x, 8192, 0, False, 2, 3, np.array(thc.table(3, 7, 1 / 32), np.uint16)  # longer than a chunk
    yield x, 9000, 0, False, 2, 8, np.arange(256).astype(np.uint16)


def rms_of(x, unit):
    out = np.empty(-(-len(x) // unit), np.float32)
    reference.unit_rms(x, unit, False, out)
    return out


def nbytes(n, unit, bits):
    return sum((rotated_size(min(unit, n - k), unit, False) * bits + 7) // 8 for k in range(0, n, unit))


def codes_of(backend, x, unit, start, by_rows, rotations, bits, table, private=PRIVATE):
    codes = np.full(nbytes(len(x), unit, bits), 0xAA, np.uint8)
    with np.errstate(all="ignore"):
        error = backend.thc_encode(
            x, unit, KEY, start, by_rows, rotations, rms_of(x, unit), table, 2.15, bits, private, start + 5, codes
        )
    return codes, np.array([error])


def case_unit_rms(backend):
    for n, unit in ((0, 5), (1, 5), (3, 5), (9, 4), (700, 80), (9000, 4096), (9000, 9000)):
        for i, x in enumerate(edge_inputs(n).values()):
            out = np.full(-(-n // unit), 7, np.float32)
            with np.errstate(all="ignore"):
                backend.unit_rms(x, unit, i % 2 == 1, out)
            yield np.where(np.isnan(out), np.float32(np.nan), out)


def case_thc_encode(backend):
    for arguments in thc_arguments():
        yield from codes_of(backend, *arguments)


def turned(n, unit):
    size = rotated_size(n, unit, False)
    return size, rotated_size(min(unit, n), unit, False) or 1


def case_thc_add(backend):
    for i, (x, unit, *rest) in enumerate(thc_arguments()):
        size, length = turned(len(x), unit)
        bits, table = rest[-2:]
        single = [codes_of(reference, x, unit, *rest, private=k)[0] for k in range(3)]
        for width, shift, clamp in ((16, 0, False), (12, 0, False), (9 if i % 2 else 32, 3, True), (16, -2, True)):
            room = nbytes(len(x), unit, width)
            total = np.full(room, 0xAA, np.uint8)
            messages = [(codes, bits) for codes in single]
            yield np.array([backend.thc_add(messages, length, size, table, bits, shift, clamp, total, width)])
            yield total
            again = np.full(nbytes(len(x), unit, 32), 0xAA, np.uint8)
            reference.thc_add(messages, length, size, table, bits, shift, clamp, total, width)
            backend.thc_add([(total, width), *messages[:1]], length, size, table, bits, 1, False, again, 32)
            yield again


def case_thc_decode(backend):
    for i, (x, unit, start, by_rows, rotations, bits, table) in enumerate(thc_arguments()):
        size, length = turned(len(x), unit)
        codes, rms = codes_of(reference, x, unit, start, by_rows, rotations, bits, table)[0], rms_of(x, unit)
        if i % 7 == 1 and len(rms):
            rms[0] = np.nan
        total = np.zeros(nbytes(len(x), unit, 16), np.uint8)
        reference.thc_add([(codes, bits)] * 3, length, size, table, bits, 0, False, total, 16)
        ones = np.ones(len(rms), np.uint32)
        mixed = (np.arange(len(rms)) % 4).astype(np.uint32)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            for packed, width, shift, counts in (
                (codes, bits, 0, ones),
                (total, 16, 0, mixed),
                (total, 16, 7, 3 * ones),
            ):
                out = np.full(len(x), 0.25, np.float32)
                with np.errstate(all="ignore"):
                    backend.thc_decode(
                        packed, unit, KEY, start, by_rows, rotations, rms, table, 2.15, bits, width, shift, counts,
                        weight, add, out,
                    )  # fmt: skip
                yield np.where(np.isnan(out), np.float32(np.nan), out)
