"""The native QUIC-FL on every SIMD level and number of threads: the bytes of the reference."""

import numpy as np
import pytest
import quicfl_cases
from kernel_cases import equal, everywhere, inputs, native

from tersor.kernels import reference
from tersor.quantize import quicfl

SHAPES = [
    (17 * 4096 + 80, 4096, False),
    (10 * 17, 17, True),
    (12 * 80, 80, True),
    (1000, 32, False),
    (9000, 1 << 14, False),
]


@pytest.mark.parametrize("bits", quicfl.SHARED_BITS)
@pytest.mark.parametrize(("d", "unit", "by_rows"), SHAPES)
def test_levels_and_threads(bits, d, unit, by_rows):
    table = quicfl.table(bits)
    for name in ("normal", "mixed"):
        case = (inputs(d)[name], unit, 2 * unit, by_rows, table, d)
        wanted = quicfl_cases.encode(reference, *case)
        message = quicfl_cases.complete(*case)
        shape = (unit, quicfl_cases.KEY, 2 * unit, by_rows, bits, table.shared_bits, table.levels.reshape(-1))

        def decode(backend, message=message, shape=shape):
            one, total = np.zeros(d, np.float32), np.ones(d, np.float32)
            with np.errstate(all="ignore"):
                backend.quicfl_decode(*message, *shape, 5, 0.7, False, np.zeros(0, np.uint8), one)
                backend.quicfl_add([(*message, 5, 0.7), (*message, 6, 1.5)], *shape, total)
            return one, total

        decoded = decode(reference)
        for where in everywhere(1, 3):
            made = quicfl_cases.encode(native, *case)
            assert all(equal(a, b) for a, b in zip(made[:-1], wanted[:-1], strict=True)), where
            assert made[-1] == wanted[-1], where
            assert all(equal(a, b) for a, b in zip(decode(native), decoded, strict=True)), where


def test_what_cannot_be_is_refused():
    """Bindings check what memory depends on: sizes, positions, counts, and zones out of order."""
    table = quicfl.table(2)
    case = (inputs(100)["normal"], 4096, 0, False, table, 100)
    codes, scales, counts, positions, values = quicfl_cases.complete(*case)
    shape = (4096, 1, 0, False, 2, table.shared_bits, table.levels.reshape(-1))
    out = np.zeros(100, np.float32)

    def decode(counts=counts, positions=positions, values=values, shape=shape, codes=codes):
        native.quicfl_decode(
            codes, scales, counts, positions, values, *shape, 5, 1.0, False, np.zeros(0, np.uint8), out
        )
        native.quicfl_add([(codes, scales, counts, positions, values, 5, 1.0)], *shape, out)

    decode()
    one = np.ones(1, np.uint32)
    for wrong in (
        {"counts": counts + 1},
        {"counts": one, "positions": one * 2**31, "values": np.ones(1, np.float32)},
        {"counts": one, "positions": one * 112, "values": np.ones(1, np.float32)},
        {"positions": np.concatenate([positions, one])},
        {"codes": codes[1:]},
        {"shape": (4096, 1, 0, False, 5, *shape[5:])},
        {"shape": (4096, 1, 0, False, 2, 6, shape[6])},
        {"shape": (*shape[:6], shape[6][1:])},
    ):
        with pytest.raises(ValueError):
            decode(**wrong)
    low, width = (part.reshape(-1).copy() for part in table.zones)
    for bad in (low[::-1].copy(), low * np.float32(np.nan), low + np.float32(np.inf)):
        planes = (codes.copy(), scales.copy(), counts.copy(), positions.copy(), values.copy())
        with pytest.raises(ValueError, match="zones"):
            native.quicfl_encode(case[0], 4096, 1, 0, False, 2, 5, bad, width, 3.0, 1, 1, *planes)
