"""Every operation of kernels/ops.py on every installed backend and every edge input: the bytes of the reference."""

import inspect

import numpy as np
import pytest
from block_cases import case_int4_decode, case_int4_encode, case_mx_decode, case_mx_encode  # noqa: F401
from dynamiq_cases import case_dynamiq_decode, case_dynamiq_hop, case_dynamiq_stats  # noqa: F401
from edge_inputs import edge_inputs
from entropy_cases import (  # noqa: F401
    case_coded_path,
    case_entropy_costs,
    case_joint_path,
    case_log2,
    case_pair_path,
)
from level_cases import (  # noqa: F401
    case_key_gather,
    case_key_histogram,
    case_optimal_path,
    case_optimal_rows,
)
from level_code_cases import case_levels_decode, case_levels_encode  # noqa: F401
from quicfl_cases import case_quicfl_add, case_quicfl_decode, case_quicfl_encode  # noqa: F401
from rans_cases import case_count_symbols, case_rans_decode, case_rans_encode  # noqa: F401
from rotated_cases import (  # noqa: F401
    case_dither_decode,
    case_dither_encode,
    case_draw_table,
    case_rotate_units,
    case_unrotate_units,
)
from shared_cases import case_shared_decode, case_shared_encode, case_shared_search  # noqa: F401
from thc_cases import case_thc_add, case_thc_decode, case_thc_encode, case_unit_rms  # noqa: F401
from uniform_levels_cases import (  # noqa: F401
    case_join_symbols,
    case_split_symbols,
    case_uniform_counts,
    case_uniform_indices,
)

import tersor
from tersor.errors import TersorError
from tersor.kernels import ops, reference
from tersor.kernels.lengths import code_bytes, padded_length
from tersor.quantize import lloyd_max

OPERATIONS = sorted(name for name, _ in inspect.getmembers(ops.Backend, inspect.isfunction) if not name.startswith("_"))
KEY = 0xFEDCBA9876543210


def installed():
    found = []
    for name in ops._MODULES:
        if name != "reference":
            try:
                ops.load(name)
                found.append(name)
            except TersorError:
                pass
    return found


BACKENDS = installed() or [pytest.param("native", marks=pytest.mark.skip(reason="no backend but the reference"))]


def case_philox(backend):
    for start in (0, 1, 2, 3, 9, 2**32 - 5, 2**34 - 5, 2**62 + 2):
        for n in (0, 1, 5, 4099):
            out = np.zeros(n, np.uint32)
            backend.philox(KEY, 2, 1, start, out)
            yield out


def case_fwht(backend):
    for n in (1, 2, 4, 8, 16, 64, 1024, 4096, 8192):
        for x in edge_inputs(3 * n).values():
            work = x.reshape(3, n).copy()
            with np.errstate(all="ignore"):
                backend.fwht(work)
            yield work
    yield backend.fwht(np.zeros((0, 16), np.float32))


def case_rotate(backend):
    for n in (1, 2, 4, 12, 16, 80, 96, 576, 992, 1024, 2112, 4096):
        assert padded_length(n) == n
        for start in (0, 1, 31, 4096, 2**32 - 4, 2**63 - 8192):
            for rounds in (1, 2, 3):
                for inverse in (False, True):
                    x = edge_inputs(2 * n)["normal"].reshape(2, n).copy()
                    backend.rotate(x, KEY, start, rounds, inverse)
                    yield x


def case_pack(backend):
    for bits in range(1, 33):
        dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
        for m, n in ((1, 0), (0, 3), (1, 1), (3, 7), (2, 64), (1, 4097)):
            codes = np.random.default_rng(n).integers(0, 1 << bits, (m, n), dtype=np.uint64).astype(dtype)
            out = np.full((m, (n * bits + 7) // 8), 0xAA, np.uint8)
            backend.pack(codes, bits, out)
            yield out


def case_unpack(backend):
    for bits in range(1, 33):
        dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
        for m, n in ((1, 0), (0, 3), (1, 1), (3, 7), (2, 64), (1, 4097)):
            packed = np.random.default_rng(n).integers(0, 256, (m, (n * bits + 7) // 8)).astype(np.uint8)
            out = np.full((m, n), 7, dtype)
            backend.unpack(packed, bits, out)
            yield out


def eden_arguments():
    """(x, unit, start, by_rows, bits, scale kind, scale dtype, rotations, full, store norm)"""
    for n in (0, 1, 2, 3, 16, 80, 100, 1000, 4096, 4097, 9000):
        for i, x in enumerate(edge_inputs(n).values()):
            yield x, 4096, 4096 * (i % 3), False, 1 + i % 8, i % 4, i % 3, i % 4, False, i % 2
    for n in (1, 5, 64, 80):
        for i, x in enumerate(edge_inputs(6 * n).values()):
            yield x, n, 0, True, 1 + (i + n) % 8, i % 4, i % 3, 2, False, i % 2
    for n in (3, 1000, 5000):
        for i, x in enumerate(edge_inputs(n).values()):
            yield x, n, 0, False, 1 + (i + 3) % 8, i % 4, 0, i % 4, True, 1
    for bits in range(1, 9):
        for kind in range(4):
            yield edge_inputs(700)["normal"], 32, 2**40, False, bits, kind, 0, 0, False, 1
    for start in (2**32 - 4096, 2**63 - 8192):
        yield edge_inputs(8192)["heavy"], 4096, start, False, 4, 0, 0, 0, False, 0


def eden_encode(backend, x, unit, start, by_rows, bits, kind, dtype, rotations, full, norm):
    count = -(-len(x) // unit) if unit else 0
    sizes = [(padded_length(min(unit, len(x) - k * unit), full) * bits + 7) // 8 for k in range(count)]
    codes, scales = np.full(sum(sizes), 0xAA, np.uint8), np.full(count, 7, np.float32)
    rounds, norms = np.full(count, 9, np.uint8), np.full(count * norm, 7, np.float32)
    tables = lloyd_max.levels(bits), lloyd_max.thresholds(bits)
    with np.errstate(all="ignore"):
        found = backend.eden_encode(
            x, unit, KEY, start, by_rows, bits, *tables, kind, dtype, rotations, full, codes, scales, rounds, norms
        )
    return codes, scales, rounds, norms, found


def case_eden_encode(backend):
    for arguments in eden_arguments():
        codes, scales, rounds, norms, found = eden_encode(backend, *arguments)
        yield from (codes, scales, rounds, norms, np.array(found, np.float64))


def mixed_arguments():
    """As eden_arguments, with fractions: (..., fraction)"""
    for n in (0, 1, 7, 12, 80, 1000, 4096, 4097, 9000):
        for i, x in enumerate(edge_inputs(n).values()):
            fraction = (0.5, 0.1, 0.9, 0.25, 2.6 - 2)[(i + n) % 5]
            yield x, 4096, 4096 * (i % 3), False, i % 8, i % 4, i % 3, i % 4, bool(i % 2), 1, fraction
    for n in (1, 5, 64, 80):
        for i, x in enumerate(edge_inputs(6 * n).values()):
            yield x, n, 0, True, (i + n) % 8, i % 4, 0, 2, False, 0, 0.3
    for bits in range(8):
        yield edge_inputs(5000)["normal"], 512, 2**40, False, bits, bits % 4, 0, 2, False, 1, 0.5


def mixed_encode(backend, x, unit, start, by_rows, bits, kind, dtype, rotations, full, norm, fraction):
    count = -(-len(x) // unit) if unit else 0
    sizes = [code_bytes(padded_length(min(unit, len(x) - k * unit), full), bits, fraction) for k in range(count)]
    codes, scales = np.full(sum(sizes), 0xAA, np.uint8), np.full(count, 7, np.float32)
    rounds, norms = np.full(count, 9, np.uint8), np.full(count * norm, 7, np.float32)
    levels = np.concatenate([lloyd_max.levels(bits), lloyd_max.levels(bits + 1)])
    thresholds = np.concatenate([lloyd_max.thresholds(bits), lloyd_max.thresholds(bits + 1)])
    head = (x, unit, KEY, start, by_rows, bits, levels, thresholds, kind, dtype, rotations, full)
    with np.errstate(all="ignore"):
        found = backend.eden_encode(*head, codes, scales, rounds, norms, fraction)
    return codes, scales, rounds, norms, found, levels


@pytest.mark.parametrize("name", BACKENDS)
def test_fractions(name):
    """Units of two widths, and pieces that were lost."""
    backend = ops.load(name)
    for i, arguments in enumerate(mixed_arguments()):
        x, unit, start, by_rows, bits, *_, full, _, fraction = arguments
        expected, made = (mixed_encode(b, *arguments) for b in (reference, backend))
        for a, b in zip(expected[:4], made[:4], strict=True):
            assert np.array_equal(a, b, equal_nan=a.dtype == np.float32), arguments
        assert repr(expected[4]) == repr(made[4])
        codes, scales, rounds, _, _, levels = expected
        pieces = (1, 3, 64)[i % 3]
        present = np.random.default_rng(i).integers(0, 2, len(scales) * pieces).astype(np.uint8)
        results = []
        for b in (reference, backend):
            for flags, n, add, weight in ((present, pieces, True, -0.3), (present[:0], 1, False, 1.0)):
                out = np.full(len(x), 0.25, np.float32)
                tail = (unit, KEY, start, by_rows, bits, levels, weight, add, flags, full, out, fraction, n)
                with np.errstate(all="ignore"):
                    b.eden_decode(codes, scales, rounds, *tail)
                results.append(out)
            out = np.full(len(x), 0.25, np.float32)
            messages = [(codes, scales, rounds, KEY, start, 0.5), (codes[::-1].copy(), scales, rounds, 7, start, 2.0)]
            with np.errstate(all="ignore"):
                b.eden_add(messages, unit, by_rows, bits, levels, full, out, fraction)
            results.append(out)
        for a, b in zip(results[:3], results[3:], strict=True):
            assert np.array_equal(a, b, equal_nan=True), arguments


def case_drive_plus_encode(backend):
    for arguments in eden_arguments():
        x, unit, start, by_rows, _, kind, _, rotations, full, norm = arguments
        count = -(-len(x) // unit) if unit else 0
        sizes = [(padded_length(min(unit, len(x) - k * unit), full) + 7) // 8 for k in range(count)]
        codes, values = np.full(sum(sizes), 0xAA, np.uint8), np.full(2 * count, 7, np.float32)
        rounds, norms = np.full(count, 9, np.uint8), np.full(count * norm, 7, np.float32)
        with np.errstate(all="ignore"):
            found = backend.drive_plus_encode(
                x, unit, KEY, start, by_rows, kind, rotations, full, codes, values, rounds, norms
            )
        yield from (codes, values, rounds, norms, np.array(found, np.float64))


def case_eden_decode(backend):
    for i, arguments in enumerate(eden_arguments()):
        x, unit, start, by_rows, bits, _, _, _, full, _ = arguments
        codes, scales, rounds, *_ = eden_encode(reference, *arguments)
        present = np.arange(len(scales), dtype=np.uint8) % 2 if i % 3 == 0 else np.zeros(0, np.uint8)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False))[i % 2 :: 2]:
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.eden_decode(
                    codes,
                    scales,
                    rounds,
                    unit,
                    KEY,
                    start,
                    by_rows,
                    bits,
                    lloyd_max.levels(bits),
                    weight,
                    add,
                    present,
                    full,
                    out,
                )
            yield out


def case_eden_add(backend):
    """Messages of several keys, starts and weights, rows and blocks, over what is there."""
    for i, arguments in enumerate(eden_arguments()):
        x, unit, start, by_rows, bits, _, _, _, full, _ = arguments
        codes, scales, rounds, *_ = eden_encode(reference, *arguments)
        again = [codes[::-1].copy(), scales[::-1].copy(), rounds]
        for n_messages in (0, 1, 3)[i % 2 :]:
            messages = [
                (codes, scales, rounds, KEY, start, 0.5),
                (*again, KEY, start, -1.25),
                (codes, scales, rounds, 7, start + 8192, 1e30 if i % 3 else 0.0),
            ][:n_messages]
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.eden_add(messages, unit, by_rows, bits, lloyd_max.levels(bits), full, out)
            yield out


def sq_arguments():
    for n, unit in ((0, 5), (1, 1), (9, 4), (4097, 4096), (700, 70)):
        for bits in range(1, 9):
            for name in ("normal", "zeros", "constant", "max", "least", "ties"):
                x = edge_inputs(n)[name]
                yield x, unit, float(x.min(initial=0)), float(x.max(initial=0)), bits


def sq_codes(backend, x, unit, low, high, bits):
    count = -(-len(x) // unit)
    out = np.full(sum((min(unit, len(x) - k * unit) * bits + 7) // 8 for k in range(count)), 0xAA, np.uint8)
    backend.sq_encode(x, unit, low, high, bits, KEY, 2**33 + 1, out)
    return out


def case_sq_encode(backend):
    for arguments in sq_arguments():
        yield sq_codes(backend, *arguments)


def case_sq_decode(backend):
    for i, (x, unit, low, high, bits) in enumerate(sq_arguments()):
        count = -(-len(x) // unit)
        codes = sq_codes(reference, x, unit, low, high, bits)
        counts = np.arange(count, dtype=np.uint32) % 3 if i % 2 else np.ones(count, np.uint32)
        for weight, add in ((1.0, False), (0.3, True)):
            out = np.full(len(x), 0.25, np.float32)
            with np.errstate(all="ignore"):
                backend.sq_decode(codes, unit, low, high, bits, bits, counts, weight, add, out)
            yield out


def case_sq_add(backend):
    g = np.random.default_rng(0)
    for n, unit in ((0, 5), (1, 1), (9, 4), (4097, 4096), (700, 70)):
        count = -(-n // unit)
        for a_width, b_width, width in (
            (1, 1, 8),
            (3, 8, 16),
            (7, 5, 8),
            (8, 16, 32),
            (32, 4, 32),
            (16, 16, 16),
            (1, 1, 1),
        ):

            def codes(w, top, n=n, unit=unit, count=count):
                rows = [g.integers(0, 1 << top, (1, min(unit, n - k * unit))).astype(np.uint32) for k in range(count)]
                packed = []
                for row in rows:
                    out = np.empty((1, (row.shape[1] * w + 7) // 8), np.uint8)
                    reference.pack(row, w, out)
                    packed.append(out[0])
                return np.concatenate(packed) if packed else np.zeros(0, np.uint8)

            tops = (min(a_width, width - 1), min(b_width, width - 1)) if width > 1 else (0, 1)
            a, b = codes(a_width, tops[0]), codes(b_width, tops[1])
            size = sum((min(unit, n - k * unit) * width + 7) // 8 for k in range(count))
            out = np.full(size, 0xAA, np.uint8)
            backend.sq_add(a, a_width, b, b_width, n, unit, out, width)
            yield out


HALF_LENGTHS = (0, 1, 7, 8, 17, 100, 4097, 70_000)


def half_edges():
    """Both sides of every border of the 16-bit formats."""
    borders = [0x33000000, 0x33000001, 0x387FC000, 0x387FDFFF, 0x387FE000, 0x38800000, 0x477FE000, 0x477FEFFF]
    borders += [0x477FF000, 0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF]
    special = [0, 1, 0x00800000, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    bits = np.array([b + k for b in borders for k in (-1, 0, 1)] + special, np.uint32)
    return np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)


def half_inputs():
    for n in HALF_LENGTHS:
        yield from edge_inputs(n).values()
    yield half_edges()


def case_first_nonfinite(backend):
    for x in half_inputs():
        yield np.array(backend.first_nonfinite(x))


def case_half_encode(backend):
    for x in half_inputs():
        for kind in (0, 1):
            out = np.full(len(x), 7, np.uint16)
            found = backend.half_encode(x, kind, out)
            yield out
            yield np.array(found)


def case_half_decode(backend):
    for kind in (0, 1):
        for n in HALF_LENGTHS[:-1]:
            codes = np.random.default_rng(n).integers(0, 2**16, n).astype(np.uint16)
            for weight, add in ((1.0, False), (-0.3, True), (0.0, False)):
                out = np.full(n, 0.25, np.float32)
                backend.half_decode(codes, kind, weight, add, out)
                yield out
        out = np.zeros(2**16, np.float32)
        backend.half_decode(np.arange(2**16, dtype=np.uint16), kind, 1.0, False, out)
        yield out


def int8_arguments():
    for n, row, block in (
        (0, 0, 8),
        (1, 1, 8),
        (100, 100, 32),
        (4097, 4097, 256),
        (300, 30, 8),
        (300, 3, 256),
        (96, 32, 32),
    ):
        for x in edge_inputs(n).values():
            yield x, row, block


def int8_codes(backend, x, row, block):
    n = len(x) // row * -(-row // block) if row else 0
    codes, scales = np.full(len(x), 99, np.int8), np.full(n, 7, np.float32)
    with np.errstate(all="ignore"):
        bad = backend.int8_encode(x, row, block, codes, scales)
    return codes, scales, np.array(bad)


def case_int8_encode(backend):
    for arguments in int8_arguments():
        yield from int8_codes(backend, *arguments)


def case_int8_decode(backend):
    for x, row, block in int8_arguments():
        if not len(x):
            continue  # the codec does not call it then
        codes, scales, _ = int8_codes(reference, x, row, block)
        for weight, add in ((1.0, False), (-0.3, True), (0.0, False), (1e30, False)):
            out = np.full(len(x), 0.25, np.float32)
            backend.int8_decode(codes, scales, row, block, weight, add, out)
            yield out


def equal(a, b, wire):
    """Equal bytes; any NaN equals any other, except in the float32 planes that go on the wire."""
    if a.dtype.kind == "f" and not (wire and a.dtype == np.float32):
        a, b = (np.where(np.isnan(v), v.dtype.type(np.nan), v) for v in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_operation_has_a_case():
    assert sorted(name.removeprefix("case_") for name in globals() if name.startswith("case_")) == OPERATIONS


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_same_bytes(operation, name):
    backend = ops.load(name)
    count = 0
    case = globals()[f"case_{operation}"]
    for expected, got in zip(case(reference), case(backend), strict=True):
        count += 1
        if expected is None:
            continue
        assert equal(expected, got, wire=operation.endswith("encode")), f"output {count} of {operation}"
    assert count >= 29


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "spec",
    [
        "eden:3",
        "eden:2.5,store_norm=true",
        "eden:0.3,scale_dtype=float16",
        "drive,plus=true",
        "eden:4,scale_dtype=bfloat16,store_norm=true",
        "int8:32",
        "sq:4",
        "int4",
        "mxfp6",
        "quicfl:2",
        "sq:3,dither=subtractive,rotations=2",
        "asq:3",
        "kmeans:2",
    ],
)
def test_same_messages(name, spec):
    """The public way, with NaN passed on and for any number of threads."""
    codec = tersor.get_codec(spec)
    for n in (0, 1, 100, 4096 * 5 + 77):
        for x in edge_inputs(n).values():
            made = []
            for backend, threads in (("reference", 1), (name, 1), (name, 3)):
                with tersor.backend(backend), np.errstate(all="ignore"):
                    before = tersor.get_num_threads()
                    tersor.set_num_threads(threads)
                    try:
                        enc = codec.encode(x, seed=3, nonfinite="propagate")
                        made.append(
                            (enc.to_bytes(), np.nan_to_num(codec.decode(enc), nan=1.5).tobytes(), repr(enc.error))
                        )
                    except tersor.RangeError as error:
                        made.append(str(error))
                    finally:
                        tersor.set_num_threads(before)
            assert made[0] == made[1] == made[2]


def test_choosing_a_backend():
    before = ops.backend_name()
    with tersor.backend("reference"):
        assert ops.backend_name() == "reference"
        with pytest.raises(TersorError, match="backend"):
            tersor.backend("cuda")
        assert ops.backend_name() == "reference"
    assert ops.backend_name() == before
    for n in (0, -1):
        with pytest.raises(ValueError):
            tersor.set_num_threads(n)
    assert tersor.get_num_threads() >= 1
