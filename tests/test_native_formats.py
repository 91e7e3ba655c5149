"""Plain formats on every SIMD level and thread count, to the bit: the cases of test_backends.py."""

import numpy as np
import pytest
import test_backends
from kernel_cases import equal, everywhere, native

from tersor.kernels import reference

OPERATIONS = ("first_nonfinite", "half_encode", "half_decode")


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
    for kind in (-1, 2):
        with pytest.raises(ValueError):
            native.half_encode(f32, kind, np.zeros(8, np.uint16))
