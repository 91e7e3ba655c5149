"""The contract of codecs, continued: what arrays go in and come out, and what NaN, extremes and wrong types get."""

import numpy as np
import pytest
from conformance import SHAPES, axes, normal, same_bits

import tersor

TINY, HUGE = 1e-30, 1e30
# Unbiased without a rotation, or with few values sent: their error may be many times the signal.
COARSE = ("sq", "quicfl", "qsgd", "terngrad", "randk", "permk", "asq", "ecasq", "thc")


def check_numpy_dtypes(codec):
    """float16, float32 and float64 in any byte order: shape and dtype come back, float16 as if it were float32."""
    for dtype in (np.float16, np.float32, np.float64, ">f4", ">f8", ">f2"):
        x = normal(3, 50).astype(dtype)
        before = x.tobytes()
        enc = codec.encode(x, seed=1)
        assert x.tobytes() == before, "the input was modified"
        value = codec.decode(enc)
        native = np.dtype(dtype).newbyteorder("=")
        assert value.shape == x.shape and value.dtype == native and enc.dtype == native.name
        plain = codec.decode(codec.encode(x.astype(np.float32), seed=1))
        assert np.allclose(value.astype(np.float32), plain, rtol=2e-3 if native.itemsize == 2 else 1e-6, atol=1e-6)
    assert codec.decode(codec.encode([1.0, 2.0], seed=1)).dtype == np.float64


def check_layouts(codec):
    """Strides do not matter, only values do; nothing is written to."""
    base = normal(6, 10)
    wide = np.zeros((12, 30), np.float32)
    wide[::2, ::3] = base
    frozen = base.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"x" + base.tobytes(), np.float32, offset=0, count=0)
    unaligned = np.ndarray(base.shape, np.float32, buffer=bytearray(b"x" + base.tobytes()), offset=1)
    for axis in (None, -1):
        expected = codec.encode(base, seed=1, axis=axis).to_bytes()
        for x in (wide[::2, ::3], np.asfortranarray(base), base[::-1, ::-1].copy()[::-1, ::-1], frozen, unaligned):
            assert codec.encode(x, seed=1, axis=axis).to_bytes() == expected
    row = np.broadcast_to(base[0], (4, 10))
    assert codec.encode(row, seed=1).to_bytes() == codec.encode(row.copy(), seed=1).to_bytes()
    assert same_bits(base, normal(6, 10)) and same_bits(wide[::2, ::3], base)
    assert codec.encode(base, seed=1, axis=1).axis == -1
    for axis in (0, -2, 2):
        with pytest.raises(ValueError, match="axis"):
            codec.encode(base, seed=1, axis=axis)
    with pytest.raises(ValueError, match="axis"):
        codec.encode(np.float32(1), seed=1, axis=-1)


def check_shapes(codec):
    """Every shape, from no coordinate on, comes back with a sensible estimate."""
    for shape in [*SHAPES, (2,), (3,), (31,), (1, 1), (2, 1, 3), (0, 0), (5, 1)]:
        for axis in axes(shape):
            x = normal(*shape, seed=len(shape))
            value = codec.decode(codec.encode(x, seed=1, axis=axis))
            assert value.shape == shape and value.dtype == np.float32 and np.isfinite(value).all()
            # No other codec does worse than 3 times the signal on a handful of coordinates (sq:1 is the coarsest).
            most = max(3, (codec.expected_error() or 0) ** 2)
            assert np.sum((value - x) ** 2) <= 1.001 * most * np.sum(x**2) or codec.name in COARSE


def check_single(codec):
    """A vector of one coordinate is sent with the precision of a number (perm-k: by one of the workers)."""
    if codec.name == "permk":
        shared = tersor.Shared(1)
        sent = [codec.encode(np.array([3.0]), seed=1, sender=k, shared=shared) for k in range(codec.workers)]
        assert tersor.mean(sent).tolist() == [3.0]
        return
    if codec.name == "thc":  # between the grid points around it, which serve larger coordinates too
        enc = codec.encode(np.array([3.0]), seed=1)
        step = 2 * 3 * codec.range_in_rms * np.diff(codec.table.astype(float)).max() / codec.table[-1]
        assert abs(float(codec.decode(enc)[0]) - 3) <= step
        return
    for v in (3.0, -0.25, 1e-3):
        value = float(codec.decode(codec.encode(np.array([v], np.float32), seed=1))[0])
        ratio = value / v
        if getattr(codec, "scale", "unbiased") != "one":
            # The scale of a Microscaling block is a power of two: the number has the precision of an element. Natural
            # compression knows no others. ASQ without bias sends one of the two bfloat16 numbers around it.
            precision = {"natural": 0.5, "asq": 2**-7}.get(codec.name, 0.25 if codec.name.startswith("mx") else 2**-8)
            assert ratio == pytest.approx(1, abs=precision), (v, value)
        assert ratio > 0


def check_zeros(codec):
    """Zeros, of either sign, are sent exactly; so is a unit of zeros among others."""
    for shape in ((0,), (1,), (100,), (4097,), (3, 20)):
        for axis in axes(shape):
            for zero in (0.0, -0.0):
                enc = codec.encode(np.full(shape, zero, np.float32), seed=1, axis=axis)
                assert np.array_equal(codec.decode(enc), np.zeros(shape)) and enc.error in (None, 0.0)
    x = normal(3, 64)
    x[1] = 0
    if codec.name != "sq":  # its levels are those of the whole message, 0 need not be one
        assert np.array_equal(codec.decode(codec.encode(x, seed=1, axis=-1))[1], np.zeros(64))


def check_nonfinite(codec):
    """NaN and infinity raise and name the first index, or are passed on as asked; the rest stays usable."""
    for bad in (np.nan, np.inf, -np.inf):
        for dtype in (np.float32, np.float64, np.float16):
            x = normal(40, 50).astype(dtype)
            x[2, 7], x[30, 1] = bad, np.nan
            for axis in (None, -1):
                with pytest.raises(tersor.NonFiniteError, match=r"x\[2, 7\]") as caught:
                    codec.encode(x, seed=1, axis=axis)
                assert caught.value.index == 107 and isinstance(caught.value, ValueError)
                enc = codec.encode(x, seed=1, axis=axis, nonfinite="propagate")
                size, promised = len(enc.to_bytes()), codec.nbytes(x.shape, x.dtype.name, axis)
                assert size == promised if codec.claims.fixed_size else size <= promised
                value = tersor.decode(tersor.from_bytes(enc.to_bytes()))
                assert not np.isfinite(value[2, 7]) and not np.isfinite(value[30, 1])
                if axis == -1 and codec.name != "sq":
                    good = np.ones(40, bool)
                    good[[2, 30]] = False
                    assert np.isfinite(value[good]).all()
    with pytest.raises(tersor.NonFiniteError, match=r"x\[0\]") as caught:
        codec.encode(np.float32(np.nan), seed=1)
    assert caught.value.index == 0
    mixed = np.array([1.0, 1e300, np.nan])
    with pytest.raises((tersor.NonFiniteError, tersor.RangeError)) as caught:
        codec.encode(mixed, seed=1)
    if codec.name == "none":
        assert isinstance(caught.value, tersor.NonFiniteError) and caught.value.index == 2
    with pytest.raises(ValueError, match="nonfinite"):
        codec.encode(normal(3), seed=1, nonfinite="ignore")


def check_extremes(codec, scale_free):
    """From denormals to the largest float the estimate is finite and, where the format has the range, no worse."""
    x = normal(500)
    usual = tersor.nmse(x, codec.decode(codec.encode(x, seed=1)))
    for factor, tolerance in ((TINY, 0.5), (2.0**-96, 1e-6), (2.0**96, 1e-6), (HUGE, 0.5)):
        scaled = x * np.float32(factor)
        try:
            value = codec.decode(codec.encode(scaled, seed=1))
        except tersor.RangeError:
            assert not scale_free and factor > 1
            continue
        assert np.isfinite(value).all()
        if scale_free:
            assert tersor.nmse(scaled, value) == pytest.approx(usual, rel=tolerance, abs=1e-12)
        else:
            assert np.max(np.abs(value - scaled)) <= max(2.0**-20, float(np.max(np.abs(scaled))))
    top = np.finfo(np.float32).max
    for x in (
        np.full(100, top),
        np.array([top, -top, top / 2]),
        np.array([top, 1.0]),
        np.eye(1, 64)[0] * top,
        normal(64) * 8e37,
    ):
        x = np.clip(x, -top, top).astype(np.float32)
        try:
            value = codec.decode(codec.encode(x, seed=1))
        except tersor.RangeError:
            # EDEN's scale and norm may be beyond float32 where x is not: g is up to 1.6 times its root mean square.
            # QSGD's is the norm itself.
            assert not scale_free or (codec.name in ("eden", "drive", "qsgd") and needs_wider_scale(codec, x))
            continue
        assert np.isfinite(value).all()
        if codec.name not in COARSE:
            assert tersor.nmse(x, value) < max(1, 4 * (codec.expected_error() or 0))
    for v in (1e-45, 1e-42, 1.1754942e-38):
        x = np.full(64, v, np.float32)
        x[::2] *= -1
        value = codec.decode(codec.encode(x, seed=1))
        # Stochastic rounding reaches the least step of a Microscaling grid, at most 2**-128, from anywhere below it.
        step = 2.0**-128 if getattr(codec, "rounding", "") == "stochastic" else 0
        assert np.isfinite(value).all() and np.max(np.abs(value)) <= max(8.1 * np.max(np.abs(x)), step)


def needs_wider_scale(codec, x):
    """Whether the norm that is to be stored, or 1.6 times the root mean square, is beyond float32."""
    norm = np.sqrt(np.sum(x.astype(np.float64) ** 2))
    if codec.name == "qsgd":
        return codec.norm == "l2" and norm > np.finfo(np.float32).max
    return max(1.6 * norm / np.sqrt(x.size), norm * codec.store_norm) > np.finfo(np.float32).max


def check_float64_range(codec):
    """A float64 beyond float32 is refused, not turned into infinity; `none` keeps it."""
    x = np.array([0.5, -1e300])
    if codec.name == "none":
        assert same_bits(codec.decode(codec.encode(x, seed=1)), x)
    else:
        with pytest.raises(tersor.RangeError, match=r"x\[1\]"):
            codec.encode(x, seed=1)


def check_types(codec):
    """What is no array of floats raises TypeError."""
    for x in (
        np.arange(4),
        np.zeros(3, bool),
        np.zeros(3, complex),
        np.zeros(3, object),
        np.array(["1.0"]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, [("a", "f4")]),
        np.zeros(3, np.longdouble),
        np.ma.masked_array([1.0, 2.0], [0, 1]),
        [1, 2],
        3,
        None,
        "1.0",
        {},
    ):
        with pytest.raises(TypeError):
            codec.encode(x, seed=1)


def check_torch(codec, torch):
    """Tensors of every float dtype, leaf or not, any strides: a tensor without a graph comes back, x is as it was."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        base = torch.from_numpy(normal(6, 10)).to(dtype)
        expected = codec.encode(base, seed=1).to_bytes()
        graph = base.float().clone().requires_grad_(True)
        for x in (
            torch.nn.Parameter(base.clone()),
            base.clone().requires_grad_(True),
            (graph * 1).to(dtype),
            base.t().contiguous().t(),
            torch.stack([base, base])[1],
            torch.flip(base, (0,)).flip((0,)),
        ):
            kept = x.detach().clone()
            enc = codec.encode(x, seed=1)
            assert enc.to_bytes() == expected and torch.equal(x.detach(), kept)
            value = codec.decode(enc)
            assert isinstance(value, torch.Tensor) and not value.requires_grad and type(value) is torch.Tensor
            assert value.dtype == dtype and value.shape == x.shape and torch.isfinite(value).all()
        from_wire = tersor.from_bytes(expected)
        assert isinstance(tersor.decode(from_wire), np.ndarray)
        assert torch.equal(tersor.decode(from_wire, like=base), value)
        out = torch.nn.Parameter(torch.full((6, 10), 2.0, dtype=dtype))
        assert codec.decode(enc, out=out) is out and torch.equal(out.detach(), value) and out.requires_grad
        assert codec.decode(enc, out=out, add=True) is out
        assert torch.allclose(out.detach(), 2 * value, rtol=2e-2, atol=1e-6)
        strided = torch.zeros(10, 6, dtype=dtype).t()
        assert torch.equal(codec.decode(enc, out=strided), value)
    with pytest.raises(tersor.NonFiniteError, match=r"x\[1, 2\]"):
        codec.encode(torch.tensor([[1.0, 2, 3], [4, 5, torch.inf]]), seed=1)
    assert codec.decode(codec.encode(torch.tensor(2.5), seed=1)).shape == ()
    top = torch.tensor([3.3e38, -3.3e38, 1e38], dtype=torch.bfloat16)
    wide = "float16" not in (getattr(codec, name, "") for name in ("scale_dtype", "values"))
    if wide and codec.name not in ("fp16", "eden", "drive", "qsgd"):  # EDEN's range: check_extremes
        assert torch.isfinite(codec.decode(codec.encode(top, seed=1))).all()
    half = torch.tensor([65504.0, -65504.0, 65504.0, 100.0], dtype=torch.float16)
    assert torch.isfinite(codec.decode(codec.encode(half, seed=1))).all()
    for x in (
        torch.arange(3),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.complex64),
        torch.eye(3).to_sparse(),
    ):
        with pytest.raises(TypeError):
            codec.encode(x, seed=1)
