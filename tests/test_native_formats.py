"""Plain formats on every SIMD level and thread count, to the bit: the cases of test_backends.py."""

import numpy as np
import pytest
import test_backends
from kernel_cases import equal, everywhere, native

from tersor.kernels import reference

OPERATIONS = (
    "first_nonfinite",
    "half_encode",
    "half_decode",
    "int4_encode",
    "int4_decode",
    "mx_encode",
    "mx_decode",
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_level(operation: str) -> None:
    case = getattr(test_backends, f"case_{operation}")
    with np.errstate(all="ignore"):
        wanted = list(case(reference))
        for where in everywhere(1, 2):
            made = list(case(native))
            assert len(made) == len(wanted)
            assert all(equal(a, b) for a, b in zip(made, wanted, strict=True)), where


def test_sizes_that_do_not_match() -> None:
    f32, u16 = np.zeros(8, np.float32), np.zeros(7, np.uint16)
    with pytest.raises(ValueError):
        native.half_encode(f32, 0, u16)
    with pytest.raises(ValueError):
        native.half_decode(u16, 0, 1.0, False, f32)
    u8 = np.zeros(8, np.uint8)
    for row, block, kind, codes, scales in (
        (8, 8, 0, 3, 4),  # codes too short
        (8, 8, 0, 4, 3),  # scales too short
        (8, 8, 1, 4, 4),
        (8, 12, 0, 4, 4),  # not a multiple of 8
        (8, 8192, 0, 4, 4),
        (8, 8, 3, 4, 2),  # no such type
        (3, 8, 0, 4, 4),  # rows that do not fill the array
        (0, 8, 0, 4, 4),
    ):
        with pytest.raises(ValueError):
            native.int4_encode(f32, row, block, kind, u8[:codes], np.zeros(scales, np.uint8))
        with pytest.raises(ValueError):
            native.int4_decode(u8[:codes], np.zeros(scales, np.uint8), row, block, kind, 1.0, False, f32)
    for row, element, codes, scales in (
        (8, 0, 7, 1),
        (8, 2, 8, 1),
        (8, 4, 4, 2),
        (8, 6, 8, 1),
        (8, -1, 8, 1),
        (5, 0, 8, 1),
    ):
        with pytest.raises(ValueError):
            native.mx_encode(f32, row, element, u8[:codes], np.zeros(scales, np.uint8))
        with pytest.raises(ValueError):
            native.mx_decode(u8[:codes], np.zeros(scales, np.uint8), row, element, 1.0, False, f32)
    for kind in (-1, 2):
        with pytest.raises(ValueError):
            native.half_encode(f32, kind, np.zeros(8, np.uint16))
