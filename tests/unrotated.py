"""What the tests of the unrotated baselines share: the vectors of the reference table and Monte Carlo against a law."""

import numpy as np

import tersor


def vector(name, log2d, seed):
    """N(0, 1) ("N") or LogNormal(0, 1) ("LogN") of 2**log2d coordinates."""
    g = np.random.default_rng((seed, log2d))
    x = g.standard_normal(1 << log2d) if name == "N" else g.lognormal(0, 1, 1 << log2d)
    return x.astype(np.float32)


def mean_vnmse(spec, name, log2d, vectors, draws=1):
    """The mean vNMSE over fresh vectors, as the table of the specification has it."""
    codec = tersor.get_codec(spec)
    made = []
    for seed in range(vectors):
        x = vector(name, log2d, seed)
        made += [tersor.nmse(x, codec.decode(codec.encode(x, seed=100 * seed + k))) for k in range(draws)]
    return np.mean(made)


def check_law(codec, x, law, draws=500, **options):
    """The mean of many squared errors is `law` (of x's energy), and the mean estimate is x, each within 4 sigma."""
    estimates = np.stack([codec.decode(codec.encode(x, seed=s, **options)) for s in range(draws)]).astype(np.float64)
    energy = np.sum(x.astype(np.float64) ** 2)
    errors = np.sum((estimates - x) ** 2, axis=1) / energy
    slack = 4 * errors.std() / np.sqrt(draws) + 1e-7 * law + 1e-12
    assert abs(errors.mean() - law) <= slack, (errors.mean(), law, slack)
    return estimates


def check_unbiased(estimates, x):
    """4 sigma in sum (of the squared bias) and 5 in every coordinate."""
    n, chance = len(estimates), estimates.var(0, ddof=1) / len(estimates)
    off = estimates.mean(0) - x
    floor = 1e-12 * float(np.max(np.abs(x)))
    assert (np.abs(off) <= 5 * np.sqrt(chance) + 1e-6 * np.abs(x) + floor).all()
    assert (off**2).sum() - chance.sum() <= 4 * np.sqrt(2 * (chance**2).sum()) + floor**2, n
