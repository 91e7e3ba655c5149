"""QUIC-FL's tables: errors, symmetry, exact unbiasedness in float32, and that our own solver gives the frozen ones."""

import numpy as np
import pytest

from tersor.quantize import quicfl

# J of the project's specification, section 5. (Ours at 4 bits, 4 shared bits, is 0.07 % lower.)
ERRORS = {
    1: (8.59670, 3.296697327, 2.051604851, 1.676769356, 1.540779956, 1.487190887, 1.465404332),
    2: (0.573269617, 0.310845482, 0.243038602, 0.222714643, 0.215942997, 0.213501527),
    3: (0.092588766, 0.055535576, 0.046025746, 0.043410796, 0.042637621),
    4: (0.019467516, 0.012029535, 0.010141764, 0.00964781, 0.009519378),
}
IDS = {1: 637684557, 2: 3052847602, 3: 4192072281, 4: 1300169273}
ALL = [(bits, shared) for bits, most in quicfl.SHARED_BITS.items() for shared in range(most + 1)]
LIMIT = float(quicfl.LIMIT)


def expectation(table, z):
    """E[level | z] in float64, from the float32 tables, by the encoder's own rule."""
    low, width = (part.astype(np.float64) for part in table.zones)
    levels = table.levels.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.clip((z[:, None, None] - low) / width, 0, 1)  # P(z >= low + u width)
    up = np.where(width > 0, up, z[:, None, None] >= low)
    return (levels[:, 0] + (up * np.diff(levels, axis=1)).sum(axis=2)).mean(axis=1)


def mean_error(table, n=20_001):
    """J by quadrature from the encoder's rule, without the closed form."""
    z, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(-LIMIT, LIMIT, n // 40)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half + half * z).reshape(-1)
    weights = (half * weights).reshape(-1)
    low, width = (part.astype(np.float64) for part in table.zones)
    levels = table.levels.astype(np.float64)
    squares = levels**2
    up = np.clip((z[:, None, None] - low) / np.maximum(width, 1e-30), 0, 1)
    second = (squares[:, 0] + (up * np.diff(squares, axis=1)).sum(axis=2)).mean(axis=1)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return ((second - z * z) * density * weights).sum()


def test_the_limit():
    """T = Phi^-1(1 - p / 2) with p = 1/512, rounded to float32."""
    assert np.float32(3.0972690781987846) == quicfl.LIMIT


@pytest.mark.parametrize(("bits", "shared"), ALL)
def test_errors(bits, shared):
    """J to 1e-5 of the specification, by the closed form and the frozen levels."""
    table = quicfl.table(bits, shared)
    assert quicfl.error(table.levels) == pytest.approx(table.error, rel=1e-9)
    assert table.error <= ERRORS[bits][shared] * (1 + 1e-5)
    assert abs(table.error - ERRORS[bits][shared]) <= 1e-5
    assert table.levels.shape == (1 << shared, 1 << bits) and table.levels.dtype == np.float32


@pytest.mark.parametrize(("bits", "shared"), [(1, 2), (1, 6), (2, 5), (3, 4), (4, 0), (4, 4)])
def test_the_closed_form_is_what_the_encoder_does(bits, shared):
    table = quicfl.table(bits, shared)
    assert mean_error(table) == pytest.approx(table.error, rel=1e-5)


@pytest.mark.parametrize(("bits", "shared"), ALL)
def test_unbiased(bits, shared):
    """max |E[level | z] - z| <= 1e-7 over 10^4 z in [-T, T], with the float32 tables; T itself is met exactly."""
    table = quicfl.table(bits, shared)
    z = np.concatenate([np.linspace(-LIMIT, LIMIT, 10_000), np.concatenate(table.zones[0])])
    assert np.max(np.abs(expectation(table, z) - z)) <= 1e-7
    levels = table.levels.astype(np.float64)
    assert levels[:, -1].mean() == LIMIT and levels[:, 0].mean() == -LIMIT


@pytest.mark.parametrize(("bits", "shared"), ALL)
def test_zones(bits, shared):
    """Antisymmetric levels in ascending rows; zones tile [-T, T]; widths are jumps / 2**shared_bits exactly."""
    table = quicfl.table(bits, shared)
    low, width = table.zones
    assert np.array_equal(table.levels, -table.levels[::-1, ::-1])
    assert (np.diff(table.levels, axis=1) > 0).all()
    assert np.array_equal(width.astype(np.float64) * (1 << shared), np.diff(table.levels.astype(np.float64), axis=1))
    order = np.argsort(low.reshape(-1), kind="stable")
    ends = (low.astype(np.float64) + width).reshape(-1)[order]
    assert low.min() == -LIMIT and ends[-1] == LIMIT
    assert np.array_equal(ends[:-1], low.reshape(-1)[order][1:])


def test_known_levels():
    """The specification's check values at 1 and 2 bits with two shared bits."""
    wanted = {
        1: [[-8.014973, 0.315464], [-2.788414, 1.270225]],
        2: [[-5.577067, -1.225142, 0.163534, 1.665588], [-2.995554, -0.82395, 0.487251, 2.150867]],
    }
    for bits, rows in wanted.items():
        assert np.allclose(quicfl.table(bits, 2).levels[:2], rows, atol=2e-3)


def check_solver(bits, shared):
    solved, frozen = quicfl.solve(bits, shared), quicfl.table(bits, shared)
    assert solved.error == pytest.approx(frozen.error, rel=1e-5)
    assert np.allclose(solved.levels, frozen.levels, atol=2e-2)
    assert quicfl.solve(bits, shared) is solved


@pytest.mark.parametrize(("bits", "shared"), [(1, 0), (1, 4), (2, 3), (3, 2), (4, 2)])
def test_the_solver_gives_the_frozen_tables(bits, shared):
    check_solver(bits, shared)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "shared"), ALL)
def test_the_solver_gives_every_frozen_table(bits, shared):
    check_solver(bits, shared)


def test_a_table_cannot_be_improved():
    """No small step that keeps the constraint lowers the error: levels are a minimum, not just a low point."""
    rng = np.random.default_rng(0)
    levels = quicfl.table(2, 5).levels.astype(np.float64)
    for _ in range(50):
        step = rng.standard_normal(levels.shape) * 1e-3
        step -= step[::-1, ::-1]
        step[:, -1] -= step[:, -1].mean()
        step[:, 0] = -step[::-1, -1]
        assert quicfl.error(levels + step) >= quicfl.error(levels) - 1e-12


def test_ids():
    """Frozen: a change of any level is a change of the format."""
    assert {bits: quicfl.table(bits).id for bits in quicfl.SHARED_BITS} == IDS


def test_bad_arguments():
    for bits, shared in ((0, None), (5, None), (1, 7), (2, -1), (4, 5)):
        with pytest.raises(ValueError, match="bits"):
            quicfl.table(bits, shared)
