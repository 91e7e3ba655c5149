"""The rotation of units: orthogonal, invertible, that of rotation.Hadamard, and the same bytes on every level."""

import numpy as np
import pytest
from kernel_cases import everywhere
from rotated_cases import (
    KEY,
    case_dither_decode,
    case_dither_encode,
    case_draw_table,
    case_rotate_units,
    case_unrotate_units,
    rotated_size,
)

from tersor.kernels import ops, reference
from tersor.kernels.lengths import padded_length
from tersor.rotation import Hadamard

native = pytest.importorskip("tersor.kernels._native")
NONE = np.zeros(0, np.uint8)


@pytest.mark.parametrize(
    "case", [case_rotate_units, case_unrotate_units, case_dither_encode, case_dither_decode, case_draw_table]
)
def test_every_level_and_thread_count(case):
    wanted = list(case(reference))
    for where in everywhere(1, 3):
        for i, (a, b) in enumerate(zip(wanted, case(native), strict=True)):
            both = np.isnan(a) & np.isnan(b)
            assert np.where(both, 0, a).tobytes() == np.where(both, 0, b).tobytes(), (where, i)


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_is_the_rotation_of_rows_and_blocks(rotations):
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    y = np.empty(rotated_size(len(x), 4096, False), np.float32)
    ops.current().rotate_units(x, 4096, KEY, 8192, False, rotations, False, y)
    for k, at in enumerate(range(0, len(x), 4096)):
        block = x[at : at + 4096]
        h = Hadamard(len(block), KEY, rotations, 8192 + at)
        assert np.allclose(y[4096 * k :][: h.padded], h.apply(block), atol=1e-5)
    rows = x.reshape(100, 100)
    y = np.empty((100, padded_length(100)), np.float32)
    ops.current().rotate_units(x, 100, KEY, 0, True, rotations, False, y.reshape(-1))
    assert np.allclose(y, Hadamard(100, KEY, rotations).apply(rows), atol=1e-5)


@pytest.mark.parametrize("full", [False, True])
def test_inverse(full):
    for n, unit in ((1, 4096), (3, 3), (1000, 1000), (5000, 4096), (5000, 5000)):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        y, back = np.empty(rotated_size(n, unit, full), np.float32), np.ones(n, np.float32)
        ops.current().rotate_units(x, unit, KEY, 0, False, 2, full, y)
        assert np.linalg.norm(y) == pytest.approx(np.linalg.norm(x), rel=1e-5)
        ops.current().unrotate_units(y, unit, KEY, 0, False, 2, full, 0.5, True, NONE, back)
        assert np.allclose(back, 1 + x / 2, atol=1e-5)


def test_wrong_arguments():
    x, y = np.ones(100, np.float32), np.ones(104, np.float32)
    for unit, rotations, by_rows, out in ((100, 0, False, y), (100, 4, False, y), (99, 2, True, y), (100, 2, False, x)):
        with pytest.raises(ValueError):
            native.rotate_units(x, unit, KEY, 0, by_rows, rotations, False, out)
    with pytest.raises(ValueError):
        native.unrotate_units(x, 100, KEY, 0, False, 2, False, 1.0, False, NONE, x)
    with pytest.raises(ValueError):
        native.unrotate_units(y, 100, KEY, 0, False, 2, False, 1.0, False, np.ones(2, np.uint8), x)
