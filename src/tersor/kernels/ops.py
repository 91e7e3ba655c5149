"""Every operation declared once: its name, signature and contract, sent to the backend in force.

All operations are exact: each backend gives the bytes of `tersor.kernels.reference`, whose docstrings say what each one
does. Arrays are C-contiguous NumPy arrays of the stated dtype; outputs are filled in place.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tersor.errors import TersorError

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
EdenMessage = tuple[U8, F32, U8, int, int, float]
U32 = NDArray[np.uint32]
QuicflMessage = tuple[U8, F32, U32, U32, F32, int, float]
Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]


class Backend(Protocol):
    """What a backend provides; see the function of the same name in `tersor.kernels.reference`."""

    def fwht(self, x: F32, /) -> None: ...

    def rotate(self, x: F32, key: int, start: int, rounds: int, inverse: bool, /) -> None: ...

    def philox(self, key: int, purpose: int, rotation: int, start: int, out: NDArray[np.uint32], /) -> None: ...

    def pack(self, codes: Codes, bits: int, out: U8, /) -> None: ...

    def unpack(self, packed: U8, bits: int, out: Codes, /) -> None: ...

    def eden_encode(
        self,
        x: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        bits: int,
        levels: F32,
        thresholds: F32,
        scale_kind: int,
        scale_dtype: int,
        rotations: int,
        full: bool,
        codes: U8,
        scales: F32,
        rounds: U8,
        norms: F32,
        fraction: float = 0.0,
        /,
    ) -> tuple[int, float, float]: ...

    def drive_plus_encode(
        self,
        x: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        scale_kind: int,
        rotations: int,
        full: bool,
        codes: U8,
        values: F32,
        rounds: U8,
        norms: F32,
        /,
    ) -> tuple[int, float, float]: ...

    def eden_decode(
        self,
        codes: U8,
        scales: F32,
        rounds: U8,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        bits: int,
        levels: F32,
        weight: float,
        add: bool,
        present: U8,
        full: bool,
        out: F32,
        fraction: float = 0.0,
        pieces: int = 1,
        /,
    ) -> None: ...

    def eden_add(
        self,
        messages: Sequence[EdenMessage],
        unit: int,
        by_rows: bool,
        bits: int,
        levels: F32,
        full: bool,
        out: F32,
        fraction: float = 0.0,
        /,
    ) -> None: ...

    def sq_encode(
        self, x: F32, unit: int, low: float, high: float, bits: int, key: int, first: int, codes: U8, /
    ) -> None: ...

    def sq_decode(
        self,
        codes: U8,
        unit: int,
        low: float,
        high: float,
        bits: int,
        width: int,
        counts: NDArray[np.uint32],
        weight: float,
        add: bool,
        out: F32,
        /,
    ) -> None: ...

    def sq_add(
        self, a: U8, a_width: int, b: U8, b_width: int, size: int, unit: int, out: U8, out_width: int, /
    ) -> None: ...

    def first_nonfinite(self, x: F32, /) -> int: ...

    def half_encode(self, x: F32, kind: int, out: NDArray[np.uint16], /) -> tuple[int, int]: ...

    def half_decode(self, codes: NDArray[np.uint16], kind: int, weight: float, add: bool, out: F32, /) -> None: ...

    def int8_encode(self, x: F32, row: int, block: int, codes: NDArray[np.int8], scales: F32, /) -> int: ...

    def int8_decode(
        self, codes: NDArray[np.int8], scales: F32, row: int, block: int, weight: float, add: bool, out: F32, /
    ) -> None: ...

    def int4_encode(self, x: F32, row: int, block: int, scale_kind: int, codes: U8, scales: U8, /) -> int: ...

    def int4_decode(
        self, codes: U8, scales: U8, row: int, block: int, scale_kind: int, weight: float, add: bool, out: F32, /
    ) -> None: ...

    def mx_encode(
        self,
        x: F32,
        row: int,
        element: int,
        codes: U8,
        scales: U8,
        up: bool = False,
        stochastic: bool = False,
        key: int = 0,
        first: int = 0,
        /,
    ) -> int: ...

    def mx_decode(
        self, codes: U8, scales: U8, row: int, element: int, weight: float, add: bool, out: F32, /
    ) -> None: ...

    def count_symbols(self, symbols: U8, counts: NDArray[np.uint64], /) -> None: ...

    def rans_encode(self, symbols: U8, freqs: NDArray[np.uint32], out: U8, /) -> int: ...

    def rans_decode(self, data: U8, freqs: NDArray[np.uint32], out: U8, /) -> int: ...

    def quicfl_encode(
        self,
        x: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        bits: int,
        shared_bits: int,
        low: F32,
        width: F32,
        limit: float,
        symbols: int,
        private: int,
        codes: U8,
        scales: F32,
        counts: U32,
        positions: U32,
        values: F32,
        /,
    ) -> tuple[int, int]: ...

    def quicfl_decode(
        self,
        codes: U8,
        scales: F32,
        counts: U32,
        positions: U32,
        values: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        bits: int,
        shared_bits: int,
        levels: F32,
        symbols: int,
        weight: float,
        add: bool,
        present: U8,
        out: F32,
        /,
    ) -> None: ...

    def quicfl_add(
        self,
        messages: Sequence[QuicflMessage],
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        bits: int,
        shared_bits: int,
        levels: F32,
        out: F32,
        /,
    ) -> None: ...

    def draw_table(self, table: F32, key: int, purpose: int, start: int, out: F32, /) -> None: ...

    def dither_encode(
        self, x: F32, unit: int, low: float, high: float, bits: int, key: int, start: int, by_rows: bool, codes: U8, /
    ) -> None: ...

    def dither_decode(
        self,
        codes: U8,
        unit: int,
        low: float,
        high: float,
        bits: int,
        key: int,
        start: int,
        by_rows: bool,
        weight: float,
        add: bool,
        present: U8,
        out: F32,
        /,
    ) -> None: ...

    def rotate_units(
        self, x: F32, unit: int, key: int, start: int, by_rows: bool, rotations: int, full: bool, out: F32, /
    ) -> None: ...

    def unrotate_units(
        self,
        y: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        rotations: int,
        full: bool,
        weight: float,
        add: bool,
        present: U8,
        out: F32,
        /,
    ) -> None: ...

    def uniform_indices(self, x: F32, low: float, scale: float, levels: int, out: NDArray[np.uint16], /) -> None: ...

    def uniform_counts(self, x: F32, low: float, scale: float, counts: NDArray[np.uint64], /) -> None: ...

    def split_symbols(self, symbols: NDArray[np.uint16], high: U8, low: U8, /) -> None: ...

    def join_symbols(self, high: U8, low: U8, out: NDArray[np.uint16], /) -> None: ...

    def key_histogram(
        self, x: F32, centre: float, counts: NDArray[np.uint64], lows: NDArray[np.uint64], ends: F64, /
    ) -> bool: ...

    def key_gather(self, x: F32, centre: float, wanted: U8, out: F32, /) -> int: ...

    def optimal_path(
        self,
        points: F64,
        counts: F64,
        sums: F64,
        squares: F64,
        edges: int,
        clusters: bool,
        path: NDArray[np.int64],
        /,
    ) -> int: ...

    def optimal_rows(self, x: F32, row: int, levels: int, clusters: bool, out: F32, /) -> None: ...

    def levels_encode(
        self, x: F32, unit: int, levels: F32, bits: int, key: int, first: int, stochastic: bool, codes: U8, /
    ) -> tuple[float, float]: ...

    def levels_decode(
        self, codes: U8, unit: int, levels: F32, bits: int, weight: float, add: bool, present: U8, out: F32, /
    ) -> None: ...
    def log2(self, x: F64, out: F64, /) -> None: ...
    def entropy_costs(self, t: F64, n: F64, b: F64, g: F64, cost: F64, up: F64, joint: F64, /) -> None: ...
    def joint_path(
        self,
        cost: F64,
        up: F64,
        joint: F64,
        n: F64,
        multiplier: float,
        most: int,
        starts: int,
        ends: int,
        path: NDArray[np.int32],
        /,
    ) -> tuple[int, float]: ...
    def coded_path(
        self,
        cost: F64,
        up: F64,
        n: F64,
        lengths: F64,
        low: NDArray[np.int32],
        high: NDArray[np.int32],
        multiplier: float,
        starts: int,
        ends: int,
        path: NDArray[np.int32],
        /,
    ) -> tuple[int, float]: ...
    def pair_path(
        self,
        cost: F64,
        up: F64,
        n: F64,
        multiplier: float,
        most: int,
        starts: int,
        ends: int,
        path: NDArray[np.int32],
        /,
    ) -> tuple[int, float]: ...

    def shared_search(
        self, points: F64, weights: F64, size: int, levels: F64, count: int, shared: int, sweeps: int, /
    ) -> None: ...

    def shared_encode(
        self,
        x: F32,
        unit: int,
        levels: F32,
        bits: int,
        shared: int,
        key: int,
        start: int,
        by_rows: bool,
        turn: int,
        private: int,
        first: int,
        codes: U8,
        /,
    ) -> tuple[float, float]: ...

    def shared_decode(
        self,
        codes: U8,
        unit: int,
        levels: F32,
        bits: int,
        shared: int,
        key: int,
        start: int,
        by_rows: bool,
        turn: int,
        weight: float,
        add: bool,
        present: U8,
        out: F32,
        /,
    ) -> None: ...

    def dynamiq_stats(self, x: F32, scale: float, means: F32, energies: F32, /) -> None: ...

    def dynamiq_hop(
        self,
        x: F32,
        scale: float,
        means: F32,
        widths: U8,
        received: U8,
        rank: int,
        size: int,
        shared: int,
        private: int,
        first: int,
        out: U8,
        /,
    ) -> tuple[float, float]: ...

    def dynamiq_decode(
        self, data: U8, widths: U8, means: F32, times: float, factor: float, add: bool, out: F32, /
    ) -> None: ...

    def unit_rms(self, x: F32, unit: int, full: bool, out: F32, /) -> None: ...

    def thc_encode(
        self,
        x: F32,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        rotations: int,
        rms: F32,
        table: U16,
        spread: float,
        bits: int,
        private: int,
        first: int,
        codes: U8,
        /,
    ) -> float: ...

    def thc_decode(
        self,
        codes: U8,
        unit: int,
        key: int,
        start: int,
        by_rows: bool,
        rotations: int,
        rms: F32,
        table: U16,
        spread: float,
        bits: int,
        width: int,
        shift: int,
        counts: U32,
        weight: float,
        add: bool,
        out: F32,
        /,
    ) -> None: ...

    def thc_add(
        self,
        messages: Sequence[tuple[U8, int]],
        unit: int,
        size: int,
        table: U16,
        bits: int,
        shift: int,
        clamp: bool,
        out: U8,
        out_width: int,
        /,
    ) -> int: ...


_MODULES = {"reference": "tersor.kernels.reference", "native": "tersor.kernels._native"}
_current: tuple[str, Backend] | None = None


def load(name: str) -> Backend:
    """Import the backend `name`.

    Raises
    ------
    TersorError
        If there is no such backend, or it is not installed.
    """
    if name not in _MODULES:
        raise TersorError(f"no backend {name!r}; choose one of {', '.join(sorted(_MODULES))}")
    try:
        return cast(Backend, import_module(_MODULES[name]))
    except ImportError as error:
        raise TersorError(
            f"the {name} backend is not installed ({error}); reinstall tersor with a C++20 compiler on the path"
        ) from error


def _select(name: str) -> None:
    global _current
    _current = (name, load(name))


def _default() -> tuple[str, Backend]:
    global _current
    wanted = os.environ.get("TERSOR_BACKEND")
    if wanted:
        _select(wanted)
    else:
        try:
            _select("native")
        except TersorError as error:
            warnings.warn(f"tersor uses its slow NumPy backend: {error}", RuntimeWarning, stacklevel=3)
            _select("reference")
    assert _current is not None
    return _current


def current() -> Backend:
    """Return the backend in force, loading the default on first use."""
    return (_current or _default())[1]


def backend_name() -> str:
    """Return the name of the backend in force."""
    return (_current or _default())[0]


def backend(name: str) -> AbstractContextManager[None]:
    """Use the backend `name` from now on, or inside a ``with`` block.

    Parameters
    ----------
    name : {"reference", "native"}
        "reference" is readable NumPy; "native" is the C++ core. Both give the same bytes. The environment variable
        ``TERSOR_BACKEND`` sets the default.

    Raises
    ------
    TersorError
        If the backend is unknown or not installed.

    Examples
    --------
    >>> import numpy as np, tersor
    >>> x = np.ones(8, np.float32)
    >>> with tersor.backend("reference"):
    ...     a = tersor.Eden(bits=4).encode(x, seed=1)
    """
    before = _current or _default()
    _select(name)

    @contextmanager
    def restore() -> Iterator[None]:
        global _current
        try:
            yield
        finally:
            _current = before

    return restore()


def set_num_threads(n: int) -> None:
    """Set how many threads the native backend may use; the bytes do not depend on it.

    Raises
    ------
    ValueError
        If `n` is not positive.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    _native("set_num_threads", n)


def get_num_threads() -> int:
    """Return how many threads the native backend may use; 1 if it is not installed."""
    return int(_native("get_num_threads") or 1)


def _native(function: str, *args: Any) -> Any:
    try:
        return getattr(load("native"), function)(*args)
    except TersorError:
        return None
