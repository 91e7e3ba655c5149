"""Mean vNMSE of a codec over draws of a distribution, to compare with rows of published and of the project's tables."""

import numpy as np

import tersor


def draw(kind, d, g):
    """N(0, 1) for "normal", exp of it for "lognormal"."""
    return (g.standard_normal(d) if kind == "normal" else g.lognormal(0, 1, d)).astype(np.float32)


def errors(spec, kind, d, trials, **options):
    """vNMSE of `trials` draws, one seed each."""
    codec, g = tersor.get_codec(spec), np.random.default_rng(d)
    inputs = (draw(kind, d, g) for _ in range(trials))
    return np.array([tersor.nmse(x, codec.decode(codec.encode(x, seed=t, **options))) for t, x in enumerate(inputs)])


def agrees(made, figure, theirs):
    """Whether the mean of `made` is within 4 standard errors of a figure that is the mean of `theirs` trials.

    The figures of quantizers.md section 7 are means of 60 (d = 2**10) and 12 (2**14) trials, given to 3 digits.
    """
    sigma = made.std(ddof=1) * np.sqrt(1 / len(made) + 1 / theirs)
    return abs(made.mean() - figure) <= 4 * sigma + 0.005 * figure
