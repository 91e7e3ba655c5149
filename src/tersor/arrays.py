"""Arrays in and out: NumPy or torch, any float dtype, any strides - without importing a framework.

torch is touched only when the caller's own array shows that it is already loaded.
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.errors import RangeError

FLOAT_DTYPES = ("float32", "float64", "float16", "bfloat16")
_STORAGE = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": np.uint16}
_LIMITS = {"float32": 3.4028234663852886e38, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}
_PIECE = 1 << 16


@dataclass(frozen=True)
class Host:
    """A C-contiguous copy or view of a float array in host memory.

    Attributes
    ----------
    data : ndarray
        The values; bfloat16 as its uint16 bit pattern.
    dtype : str
        One of FLOAT_DTYPES.
    """

    data: NDArray[Any]
    dtype: str

    def value(self, index: int) -> float:
        """Return one coordinate."""
        one = Host(self.data.reshape(-1)[index : index + 1], self.dtype)
        return float(one.data[0] if self.dtype == "float64" else one.float32()[0])

    def float32(self) -> NDArray[np.float32]:
        """Return the values as a flat float32 array; shares memory if the dtype is float32.

        Raises
        ------
        RangeError
            If a finite float64 value is beyond float32.
        """
        flat = self.data.reshape(-1)
        if self.dtype == "bfloat16":
            return bfloat16_to_float32(flat)
        with np.errstate(over="ignore", under="ignore"):
            values = flat.astype(np.float32, copy=False)
        if self.dtype == "float64":
            lost = np.isinf(values) & np.isfinite(flat)
            if lost.any():
                i = int(np.argmax(lost))
                raise RangeError(f"x[{i}] = {flat[i]} is beyond float32; scale the array first, or use the codec none")
        return values


@dataclass(frozen=True)
class Origin:
    """Where an array came from, so that its estimate can go back there."""

    framework: str = "numpy"
    device: str = "cpu"


def is_torch(x: Any) -> bool:
    """Say whether `x` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def origin_of(x: Any) -> Origin:
    """Return the framework and device of `x`."""
    return Origin("torch", str(x.device)) if is_torch(x) else Origin()


def to_host(x: Any) -> tuple[Host, tuple[int, ...]]:
    """Bring an array to host memory; returns it and its shape. A Host passes as it is.

    Raises
    ------
    TypeError
        If it is not a dense array of floats.
    """
    if isinstance(x, Host):
        return x, x.data.shape
    if is_torch(x):
        return _torch_to_host(x)
    array = np.asarray(x)
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError("masked arrays are not supported; fill the masked values first, x.filled(0)")
    name = array.dtype.name
    if name not in FLOAT_DTYPES:
        raise TypeError(
            f"tersor encodes arrays of {', '.join(FLOAT_DTYPES)}, got {name}; convert first, e.g. "
            "np.asarray(x, 'float32')"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    shape = array.shape
    data = np.ascontiguousarray(array).reshape(shape)
    return Host(data.view(np.uint16) if name == "bfloat16" else data, name), shape


def _torch_to_host(x: Any) -> tuple[Host, tuple[int, ...]]:
    torch = sys.modules["torch"]
    name = str(x.dtype).removeprefix("torch.")
    if name not in FLOAT_DTYPES or x.layout is not torch.strided:
        raise TypeError(
            f"tersor encodes dense tensors of {', '.join(FLOAT_DTYPES)}, got {name} ({x.layout}); "
            f"convert first, e.g. {'x.float()' if x.layout is torch.strided else 'x.to_dense()'}"
        )
    data = x.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = data.view(torch.uint16) if name == "bfloat16" else data
    return Host(data.numpy(), name), tuple(x.shape)


def from_host(values: NDArray[Any], shape: tuple[int, ...], dtype: str, origin: Origin) -> Any:
    """Give flat float values the shape, dtype and framework of the array they estimate.

    A finite value never becomes infinite: narrower types saturate, in `values` itself. NumPy without a bfloat16 type
    gets float32.
    """
    if dtype in _LIMITS and values.dtype.itemsize > np.dtype(_STORAGE[dtype]).itemsize:
        saturate(values, _LIMITS[dtype])
    shaped = values.reshape(shape)
    if origin.framework == "torch":
        import torch

        tensor = torch.from_numpy(np.require(shaped, requirements="W"))
        return tensor.to(device=origin.device, dtype=getattr(torch, dtype))
    if dtype == "bfloat16":
        ml_dtypes = sys.modules.get("ml_dtypes")
        if ml_dtypes is None:
            return shaped.astype(np.float32, copy=False)
        return float32_to_bfloat16(shaped.astype(np.float32, copy=False)).view(ml_dtypes.bfloat16)
    if dtype == "float16":
        return shaped.astype(np.float16)
    return shaped.astype(_STORAGE[dtype], copy=False)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype that holds `dtype`'s bytes (uint16 for bfloat16)."""
    return np.dtype(_STORAGE[dtype])


def saturate(values: NDArray[Any], limit: float) -> None:
    """Clip the finite ones of flat `values` to [-limit, limit] in place, a piece at a time; NaN and infinity pass."""
    for begin in range(0, len(values), _PIECE):
        piece = values[begin : begin + _PIECE]
        np.copyto(piece, np.clip(piece, -limit, limit), where=np.isfinite(piece))


def bfloat16_to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16 bit patterns to float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to bfloat16 bit patterns: nearest, ties to even, finite values saturate, NaN stays NaN."""
    x = np.ascontiguousarray(x)
    bits = x.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    overflow = np.isfinite(x) & ((rounded & np.uint16(0x7FFF)) == np.uint16(0x7F80))
    rounded = np.where(overflow, rounded - np.uint16(1), rounded)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.asarray(np.where(np.isnan(x), quiet, rounded), np.uint16)


def dtype_name(x: Any) -> str:
    """Return the dtype name of an array of floats; another raises TypeError."""
    return checked_dtype(x.dtype)


def checked_dtype(dtype: Any) -> str:
    """Return the name of a NumPy or torch dtype, or of the name of one.

    Raises
    ------
    TypeError
        If it is not a dtype of floats that tersor knows.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in FLOAT_DTYPES:
        raise TypeError(f"the dtype must be one of {', '.join(FLOAT_DTYPES)}, got {name}")
    return name


def assign(out: Any, values: Any, add: bool) -> None:
    """Write `values` into `out` of the same framework, or add them."""
    if is_torch(out):
        import torch

        with torch.no_grad():
            out.add_(values) if add else out.copy_(values)
    elif add:
        out += values
    else:
        out[...] = values
