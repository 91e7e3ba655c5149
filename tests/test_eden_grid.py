"""EDEN's entropy-coded uniform grid: its step and table against math.erf, rate and error, sizes, forged fields."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from test_eden import vector

import tersor
from tersor.codecs.grid_coder import coder_of
from tersor.kernels import ops
from tersor.quantize.uniform_grid import SCALE_BITS, density, grid_of, mass

# quantizers.md section 4: bits to step and unbiased vNMSE.
FIGURES = {
    0.5: (3.45618, 1.6133),
    1: (2.42162, 0.53470),
    2: (1.08245, 0.09764),
    3: (0.52243, 0.02274),
    4: (0.25902, 0.00559),
}


def test_normal_distribution_without_a_library():
    for i in range(900):
        x = i / 100
        assert mass(x) == pytest.approx(math.erf(x / math.sqrt(2)) / 2, abs=1e-12)
        assert density(x) == pytest.approx(math.exp(-x * x / 2) / math.sqrt(2 * math.pi), rel=1e-11)


@pytest.mark.parametrize("bits", [0.01, 0.3, *FIGURES, 6])
def test_grid(bits):
    """The entropy is that asked for, by math.erf; steps and errors are those of the spec."""
    grid = grid_of(bits)
    edges = [-math.inf, *((j - grid.last + 0.5) * grid.step for j in range(2 * grid.last)), math.inf]
    cdf = [(1 + math.erf(e / math.sqrt(2))) / 2 for e in edges]
    p = [b - a for a, b in itertools.pairwise(cdf)]
    assert np.allclose(p, grid.probabilities, atol=1e-12)
    assert -sum(q * math.log2(q) for q in p if q > 0) == pytest.approx(bits, abs=1e-7)
    zq, qq = grid.moments
    assert qq == pytest.approx(sum(q * ((j - grid.last) * grid.step) ** 2 for j, q in enumerate(p)), rel=1e-9)
    if bits in FIGURES:
        step, error = FIGURES[bits]
        assert grid.step == pytest.approx(step, abs=6e-6) and qq / zq**2 - 1 == pytest.approx(error, rel=2e-3)
    coder = coder_of(float(bits))
    assert int(coder.freqs.sum()) == 1 << SCALE_BITS and coder.freqs.min() >= 1
    assert np.array_equal(coder.freqs, coder.freqs[::-1]) or abs(coder.freqs.astype(int) - coder.freqs[::-1]).max() <= 1


def test_tables_of_every_width():
    """Where one symbol has nearly all, rounded logarithms must not keep it moving (0.58 never ended)."""
    for bits in [*np.arange(0.05, 1, 0.05).round(2).tolist(), 0.55, 0.58, 4.08]:
        freqs = coder_of(bits).freqs
        assert int(freqs.sum()) == 1 << SCALE_BITS and freqs.min() >= 1


@pytest.mark.parametrize("bits", list(FIGURES))
def test_rate_and_error(bits):
    """N(0, 1): within 0.01 bit of b, and every scale within 2 % of its law."""
    n = 2**20 if ops.backend_name() == "native" else 2**15
    x = vector("normal", n)
    for scale in ("unbiased", "biased", "norm", "one"):
        codec = tersor.Eden(bits=bits, scale=scale, grid="uniform")
        enc = codec.encode(x, seed=1)
        if n == 2**20:
            assert abs(8 * enc.planes["codes"].data.nbytes / n - bits) < 0.01
        measured = tersor.nmse(x, codec.decode(enc))
        assert measured == pytest.approx(codec.expected_error(), rel=0.02 if n == 2**20 else 0.06)
        assert enc.error == pytest.approx(measured, rel=1e-4)
    assert len(enc.to_bytes()) == enc.nbytes <= codec.nbytes(x.shape)


def test_gain_over_fixed_length():
    """27 %, 36 %, 42 % less error than Lloyd-Max codes at 2, 3, 4 bits (quantizers.md section 4)."""
    for bits, gain in ((2, 0.27), (3, 0.36), (4, 0.42)):
        a, b = (tersor.Eden(bits=bits, grid=grid).expected_error() for grid in ("uniform", "lloyd"))
        assert 1 - a / b == pytest.approx(gain, abs=0.01)


def test_codes_round_to_the_nearest_level():
    """Decoded by hand: code = floor(z / step + 1/2), the table from the bits alone."""
    from tersor.rotation import Hadamard

    codec = tersor.Eden(bits=2, grid="uniform", rotations=2)
    x = vector("normal", 4096)
    enc = codec.encode(x, seed=3)
    step, last = grid_of(2).step, grid_of(2).last
    z = Hadamard(4096, enc.key).apply(x).astype(np.float64)
    z /= np.sqrt(np.mean(z**2))
    codes = codec._codes(enc, enc.units)
    wanted = np.clip(np.floor(z / step + 0.5), -last, last) + last
    assert np.count_nonzero(codes != wanted) <= 4
    assert len(codec.levels) == 2 * last + 1


def test_zeros_cost_little_and_stay_zeros():
    codec = tersor.Eden(bits=3, grid="uniform")
    x = np.zeros(3 * 4096 + 7, np.float32)
    enc = codec.encode(x, seed=1)
    assert not codec.decode(enc).any() and enc.bits_per_coordinate < 3
    x[4100] = np.nan
    made = codec.decode(codec.encode(x, seed=1, nonfinite="propagate"))
    assert np.isnan(made[4096:8192]).all() and not made[:4096].any() and not made[8192:].any()


def test_means():
    codec = tersor.Eden(bits=2, grid="uniform")
    x = vector("normal", 2**14)
    sent = [codec.encode(x, seed=1, sender=k) for k in range(10)]
    assert tersor.nmse(x, tersor.mean(sent)) == pytest.approx(codec.expected_error() / 10, rel=0.1)


def test_options():
    assert tersor.get_codec("eden:2.0,grid=uniform").spec == "eden:2,grid=uniform"
    for options in ({"bits": 6.5, "grid": "uniform"}, {"bits": 2, "grid": "square"}):
        with pytest.raises(ValueError, match="grid"):
            tersor.Eden(**options)
    with pytest.raises(ValueError, match="grid"):
        tersor.Drive(grid="uniform")
    claims = tersor.Eden(bits=2, grid="uniform").claims
    assert (claims.fixed_size, claims.row_addressable, claims.tolerates_loss) == (False, False, False)
    assert not tersor.Eden(bits=2, grid="uniform", scale="biased").claims.unbiased
    enc = tersor.Eden(bits=2, grid="uniform").encode(vector("normal", 9000), seed=1)
    with pytest.raises(ValueError, match="pieces"):
        tersor.Eden(bits=2, grid="uniform").decode(enc, received=np.ones((3, 4), bool))


def test_damaged_symbols_are_refused():
    """With the checksum right, a changed size or symbol is a FormatError on parsing."""
    enc = tersor.Eden(bits=2, grid="uniform").encode(vector("normal", 5000), seed=1)
    data = enc.planes["codes"].data
    for at in (0, 3, 9, len(data) // 2, len(data) - 1):
        other = data.copy()
        other[at] ^= 0x55
        planes = {**enc.planes, "codes": replace(enc.planes["codes"], data=other)}
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(replace(enc, planes=planes).to_bytes())
    for nbytes in (0, len(data) - 1, len(data) + 1, 2**63, 2**64 - 1):
        with pytest.raises(tersor.FormatError):
            tersor.from_bytes(replace(enc, fields=nbytes.to_bytes(8, "little")).to_bytes())
