"""Cases of QUIC-FL's operations for test_backends.py: every width, rows and blocks, lists that do not fit, sums."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference
from tersor.kernels.lengths import padded_length
from tersor.quantize import quicfl

KEY, SYMBOLS, PRIVATE = 0xFEDCBA9876543210, 0x0123456789ABCDEF, 0xDEADBEEF12345678
TABLES = [(bits, shared) for bits, most in quicfl.SHARED_BITS.items() for shared in (most, 0, most // 2)]


def arguments():
    """(x, unit, start, by_rows, table, room for exact entries)"""
    for n in (0, 1, 2, 3, 80, 100, 4097):
        for i, x in enumerate(edge_inputs(n).values()):
            yield x, 4096, 4096 * (i % 3), False, quicfl.table(*TABLES[i % len(TABLES)]), n
    for n in (1, 5, 80):
        for i, x in enumerate(edge_inputs(6 * n).values()):
            yield x, n, i % 2 * 7, True, quicfl.table(*TABLES[(i + n) % len(TABLES)]), 6 * n
    for bits, shared in TABLES:
        yield edge_inputs(9000)["normal"], 4096, 2**40, False, quicfl.table(bits, shared), 3
        yield edge_inputs(700)["normal"], 32, 2**63 - 8192, False, quicfl.table(bits, shared), 700
    yield edge_inputs(20_000)["normal"], 1 << 14, 0, False, quicfl.table(4), 20_000
    yield edge_inputs(9000)["heavy"], 4096, 0, False, quicfl.table(1), 9000


def encode(backend, x, unit, start, by_rows, table, room):
    count = -(-len(x) // unit) if unit else 0
    sizes = [(padded_length(min(unit, len(x) - k * unit)) * table.bits + 7) // 8 for k in range(count)]
    codes, scales = np.full(sum(sizes), 0xAA, np.uint8), np.full(count, 7, np.float32)
    counts, positions = np.full(count, 9, np.uint32), np.full(room, 9, np.uint32)
    values = np.full(room, 7, np.float32)
    low, width = (part.reshape(-1) for part in table.zones)
    head = (x, unit, KEY, start, by_rows, table.bits, table.shared_bits, low, width, float(quicfl.LIMIT))
    with np.errstate(all="ignore"):
        found = backend.quicfl_encode(*head, SYMBOLS, PRIVATE, codes, scales, counts, positions, values)
    return codes, scales, counts, positions, values, found


def complete(*case):
    """A message of the reference, with its whole list."""
    codes, scales, counts, positions, values, (_, listed) = encode(reference, *case[:-1], max(len(case[0]), 1))
    return codes, scales, counts, positions[:listed], values[:listed]


def case_quicfl_encode(backend):
    for case in arguments():
        *planes, found = encode(backend, *case)
        yield from (*planes, np.array(found))


def case_quicfl_decode(backend):
    for i, case in enumerate(arguments()):
        x, unit, start, by_rows, table, _ = case
        message = complete(*case)
        present = np.arange(len(message[1]), dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            shape = (unit, KEY, start, by_rows, table.bits, table.shared_bits, table.levels.reshape(-1))
            with np.errstate(all="ignore"):
                backend.quicfl_decode(*message, *shape, SYMBOLS, weight, add, present, out)
            yield out


def case_quicfl_add(backend):
    """None, one and three messages of one rotation and several symbols and weights, over what is there."""
    for i, case in enumerate(arguments()):
        x, unit, start, by_rows, table, _ = case
        message = complete(*case)
        messages = [(*message, SYMBOLS, 0.5), (*message, 7, -1.25), (*message, SYMBOLS, 0.0 if i % 3 else 2.0)]
        for n in (0, 1, 3)[i % 2 :]:
            out = np.full(len(x), 0.25, np.float32)
            shape = (unit, KEY, start, by_rows, table.bits, table.shared_bits, table.levels.reshape(-1))
            with np.errstate(all="ignore"):
                backend.quicfl_add(messages[:n], *shape, out)
            yield out
