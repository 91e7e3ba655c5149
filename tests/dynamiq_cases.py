"""Cases of test_backends.py for DynamiQ's super-groups."""

import numpy as np
from edge_inputs import edge_inputs

from tersor.kernels import reference
from tersor.kernels.reference.dynamiq import record_size

SHARED, PRIVATE = 0xFEDCBA9876543210, 0x0123456789ABCDEF
NOTHING, NO_MEANS = np.zeros(0, np.uint8), np.zeros(0, np.float32)


def dynamiq_arguments():
    """(x, scale, means, widths, size)"""
    for n in (0, 1, 15, 256, 257, 1000, 300 * 256 + 5):
        for i, x in enumerate(edge_inputs(n).values()):
            if n > 2000 and i > 1:
                break
            count = -(-n // 256)
            widths = np.array([(2, 4, 8)[(i + j) % 3] for j in range(count)], np.uint8)
            means = np.linspace(-0.5, 0.5, count).astype(np.float32) if i % 2 else NO_MEANS
            yield x, (1.0, 0.25, 2.0**100)[i % 3], means, widths, (1, 2, 5, 64)[i % 4]


def hop(backend, x, scale, means, widths, received, size, rank=0, first=2**33 + 7):
    out = np.full(sum(record_size(int(b)) for b in widths), 0xAA, np.uint8)
    with np.errstate(all="ignore"):
        sums = backend.dynamiq_hop(x, scale, means, widths, received, rank, size, SHARED, PRIVATE + rank, first, out)
    return out, np.where(np.isnan(sums), np.nan, sums)


def case_dynamiq_stats(backend):
    for x, scale, _, widths, _ in dynamiq_arguments():
        means, energies = (np.full(len(widths), 7, np.float32) for _ in range(2))
        with np.errstate(all="ignore"):
            backend.dynamiq_stats(x, scale, means, energies)
        for made in (means, energies):
            yield np.where(np.isnan(made), np.float32(np.nan), made)


def case_dynamiq_hop(backend):
    for x, scale, means, widths, size in dynamiq_arguments():
        yield from hop(backend, x, scale, means, widths, NOTHING, size)
        received, _ = hop(reference, x, scale, means, widths, NOTHING, size)
        yield from hop(backend, x, scale, means, widths, received, size, rank=size - 1)
        # Any bytes, scales of infinity and NaN among them.
        noise = np.random.default_rng(len(x)).integers(0, 256, len(received)).astype(np.uint8)
        yield from hop(backend, x, scale, means, widths, noise, size)


def case_dynamiq_decode(backend):
    for i, (x, scale, means, widths, size) in enumerate(dynamiq_arguments()):
        data, _ = hop(reference, x, scale, means, widths, NOTHING, size)
        if i % 3 == 0:
            data = np.random.default_rng(i).integers(0, 256, len(data)).astype(np.uint8)
        for times, factor, add in ((0.0, 1.0, False), (3.0, -0.3, True), (1.0, 1e30, False)):
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.dynamiq_decode(data, widths, means, times, factor, add, out)
            yield np.where(np.isnan(out), np.float32(np.nan), out)
