"""
The native backend: see tersor.kernels.reference, whose bytes it gives.
"""

from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


def philox(key: int, purpose: int, rotation: int, start: int, out: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def philox_blocks(key: int, purpose: int, rotation: int, first: int, out: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

def fwht(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

def rotate(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], key: int, start: int, rounds: int, inverse: bool) -> None: ...

@overload
def pack(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

@overload
def pack(codes: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

@overload
def pack(codes: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

@overload
def unpack(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

@overload
def unpack(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

@overload
def unpack(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], bits: int, out: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

def eden_encode(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit: int, key: int, start: int, by_rows: bool, bits: int, levels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], thresholds: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], scale_kind: int, scale_dtype: int, rotations: int, full: bool, codes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], rounds: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], norms: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> tuple[int, float, float]: ...

def eden_decode(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], rounds: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], unit: int, key: int, start: int, by_rows: bool, bits: int, levels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: float, add: bool, present: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], full: bool, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def sq_encode(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit: int, low: float, high: float, bits: int, key: int, first: int, codes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def sq_decode(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], unit: int, low: float, high: float, bits: int, width: int, counts: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: float, add: bool, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def sq_add(a: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], a_width: int, b: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], b_width: int, size: int, unit: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], out_width: int) -> None: ...

def int8_encode(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], row: int, block: int, codes: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu')], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> int: ...

def int8_decode(codes: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], row: int, block: int, weight: float, add: bool, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def set_num_threads(n: int) -> None:
    """Threads a call may use; 0 is the default."""

def get_num_threads() -> int: ...

def cpu_level() -> str:
    """The SIMD level in force."""

def cpu_levels() -> str:
    """The levels that this build and this CPU have, slowest first."""

def set_cpu_level(name: str) -> None:
    """Force a SIMD level; the bytes do not depend on it."""
