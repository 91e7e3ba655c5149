"""The native backend over many calls and messages: the cache of permutations, and several EDEN messages in one pass."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from kernel_cases import KEY, START, decode, encode, equal, everywhere, inputs, native

from tersor.kernels import reference
from tersor.quantize import lloyd_max

LENGTHS = (80, 576, 2100)


def test_rows_with_permutations_from_the_cache() -> None:
    """More keys than it holds, lengths in turn, from several threads: always the bytes of the reference."""
    x = {n: inputs(n)["normal"] for n in LENGTHS}
    cases = [(n, KEY + k) for k in range(5) for n in LENGTHS]
    wanted = {(n, key): encode(reference, x[n], 3, n, by_rows=True, key=key) for n, key in cases}
    values = {c: decode(reference, wanted[c], x[c[0]], 3, c[0], by_rows=True, key=c[1]) for c in cases}

    def same(case: tuple[int, int]) -> bool:
        n, key = case
        made = encode(native, x[n], 3, n, by_rows=True, key=key)
        back = decode(native, made, x[n], 3, n, by_rows=True, key=key)
        return all(map(equal, made, wanted[case])) and equal(back, values[case])

    order = np.random.default_rng(0).integers(0, len(cases), 400)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, [cases[i] for i in order]))
        assert all(pool.map(same, [case for case in cases[:3] for _ in range(20)]))


@pytest.mark.parametrize(
    "d, unit, by_rows", [(9000, 4096, False), (70, 32, False), (6 * 80, 80, True), (300000, 4096, False)]
)
def test_add_is_one_decode_after_the_other(d: int, unit: int, by_rows: bool) -> None:
    cases = [inputs(d, seed)[name] for seed, name in enumerate(("normal", "constant", "sparse", "nan"))]
    sent = [encode(native, x, 2, unit, by_rows, key=KEY + i // 2) for i, x in enumerate(cases)]
    out = np.random.default_rng(1).standard_normal(d).astype(np.float32)
    wanted = out
    for i, encoded in enumerate(sent):
        wanted = decode(native, encoded, wanted, 2, unit, by_rows, weight=i - 0.7, add=True, key=KEY + i // 2)
    messages = [(*e[:3], KEY + i // 2, START, i - 0.7) for i, e in enumerate(sent)]
    for where in everywhere(1, 2):
        made = out.copy()
        native.eden_add(messages, unit, by_rows, 2, lloyd_max.levels(2), False, made)
        assert equal(made, wanted), where


def test_what_add_refuses() -> None:
    codes, scales, rounds = encode(native, inputs(100)["normal"], 2, 32)[:3]
    good = (codes, scales, rounds, 1, 0, 1.0)
    out = np.zeros(100, np.float32)
    bad: list[tuple[Any, ...]] = [
        (codes[:-1].copy(), *good[1:]),
        (codes, scales[1:].copy(), *good[2:]),
        (codes, scales, rounds[1:].copy(), *good[3:]),
        (codes, scales, np.full_like(rounds, 4), *good[3:]),
        (*good[:4], 2**64 - 5, 1.0),
    ]
    for message in bad:
        with pytest.raises(ValueError):
            native.eden_add([good, message], 32, False, 2, lloyd_max.levels(2), False, out)
    for message in (good[:5], (codes, scales.astype(np.float64), *good[2:])):
        with pytest.raises(TypeError):
            native.eden_add([message], 32, False, 2, lloyd_max.levels(2), False, out[::2])
    assert not out.any()
