"""Hypothesis strategies: codecs, arrays of any shape, dtype and strides, and which units arrived."""

import numpy as np
from hypothesis import strategies as st

import tersor

DTYPES = ("float16", "float32", "float64")

edens = st.builds(
    tersor.Eden,
    bits=st.one_of(st.integers(1, 8), st.sampled_from((0.1, 0.5, 1.5, 2.6, 7.3))),
    scale=st.sampled_from(("unbiased", "biased", "norm", "one")),
    rotations=st.sampled_from(("auto", 1, 2, 3)),
    block=st.sampled_from((32, 64, 4096, "full")),
    scale_dtype=st.sampled_from(("float32", "bfloat16")),
    store_norm=st.booleans(),
)
drives = st.builds(
    tersor.Drive,
    scale=st.sampled_from(("unbiased", "biased")),
    block=st.sampled_from((32, 4096, "full")),
    plus=st.booleans(),
)
plain = st.sampled_from([tersor.get_codec(s) for s in ("none", "bf16", "fp16")])
codecs = st.one_of(
    edens,
    drives,
    plain,
    st.builds(tersor.Int8, block=st.integers(8, 300)),
    st.builds(tersor.Int4, block=st.sampled_from((8, 32, 256)), scale_dtype=st.sampled_from(("float32", "bfloat16"))),
    st.sampled_from([tersor.get_codec(s) for s in ("mxfp8", "mxfp8:e5m2", "mxfp6", "mxfp6:e3m2", "mxfp4", "mxint8")]),
    st.builds(tersor.StochasticQuantization, bits=st.integers(1, 8)),
)
seeds = st.integers(0, 2**64 - 1)
# Within the range of float16, so that every codec takes them.
numbers = st.one_of(
    st.floats(-1000, 1000, width=16),
    st.sampled_from((0.0, -0.0, 1.0, -1.0, 6e-8, -6e-8, 65504.0, -65504.0)),
    st.floats(-2, 2, width=16),
)


@st.composite
def arrays(draw, min_ndim=0, max_side=9, long=True):
    """An array and a C-contiguous copy: sliced, reversed, transposed or broadcast views of any float dtype."""
    dtype = draw(st.sampled_from(DTYPES))
    ndim = draw(st.integers(min_ndim, 4))
    shape = [draw(st.integers(0, max_side)) for _ in range(ndim)]
    if long and ndim == 1 and draw(st.booleans()):
        shape[0] = draw(st.integers(0, 9000))
    size = int(np.prod(shape))
    if size <= 40:
        values = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype)
    else:
        values = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(size).astype(dtype)
    x = values.reshape(shape)
    how = draw(st.sampled_from(("as is", "steps", "reversed", "transposed", "swapped bytes", "read-only")))
    if how == "steps" and ndim:
        wide = np.full([2 * n + 1 for n in shape], np.nan, dtype)
        view = wide[tuple(slice(1, None, 2) for _ in shape)]
        view[...] = x
        x = view
    elif how == "reversed" and ndim:
        x = x[tuple(slice(None, None, -1) for _ in shape)]
    elif how == "transposed":
        x = x.T
    elif how == "swapped bytes":
        x = x.astype(x.dtype.newbyteorder())
    elif how == "read-only":
        x = x.copy()
        x.flags.writeable = False
    return x, np.array(x, dtype, order="C")


def axes(x):
    return st.sampled_from((None, -1) if x.ndim else (None,))


def flags(n):
    return st.lists(st.booleans(), min_size=n, max_size=n).map(lambda v: np.array(v, bool))
