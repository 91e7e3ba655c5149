"""A second EDEN in float64 and plain Python, from FORMAT.md and quantizers.md alone: slow, and shares no code."""

import itertools
import math
import struct
import zlib
from fractions import Fraction
from functools import lru_cache

import numpy as np

MASK32 = np.uint64(0xFFFFFFFF)


def words(key, purpose, rotation, first, count):
    """Words of a Philox4x32-10 stream, FORMAT.md section 1."""
    block = np.arange(first // 4, (first + count) // 4 + 1, dtype=np.uint64)
    c = [
        block & MASK32,
        block >> np.uint64(32),
        np.full(len(block), purpose, np.uint64),
        np.full(len(block), rotation, np.uint64),
    ]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            b & MASK32,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            a & MASK32,
        ]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return np.stack(c, axis=1).reshape(-1)[first % 4 :][:count]


def signs(key, rotation, first, count):
    w = words(key, 0, rotation, first // 32, count // 32 + 2)
    j = np.arange(first, first + count) - first // 32 * 32
    return 1.0 - 2.0 * ((w[j // 32] >> (j % 32).astype(np.uint64)) & np.uint64(1))


@lru_cache(maxsize=256)
def permutation(key, rotation, first, count):
    w = words(key, 1, rotation, first, count)
    p = list(range(count))
    for i in reversed(range(1, count)):
        j = int(w[i]) * (i + 1) // 2**32
        p[i], p[j] = p[j], p[i]
    return np.array(p)


def lengths(n, full=False):
    """(P, B, rounds if P > B), FORMAT.md section 3."""
    if full:
        p = 2 ** math.ceil(math.log2(n)) if n > 1 else 1
    else:
        u = 2 ** math.ceil(math.log2(n) / 2) if n > 1 else 1
        p = math.ceil(n / u) * u
    b = 1
    while p % (2 * b) == 0:
        b *= 2
    return p, b, (2 if b * b >= 16 * p else 3)


@lru_cache(maxsize=16)
def hadamard(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.kron(np.array([[1, 1], [1, -1]]), h)
    return h / math.sqrt(n)


def rotate(v, key, first, rounds):
    p = len(v)
    _, b, _ = lengths(p)
    for r in range(rounds):
        if b < p:
            v = v[permutation(key, r, first, p)]
        v = (v * signs(key, r, first, p)).reshape(-1, b) @ hadamard(b)
        v = v.reshape(-1)
    return v


def unrotate(y, key, first, rounds):
    p = len(y)
    _, b, _ = lengths(p)
    for r in reversed(range(rounds)):
        y = (y.reshape(-1, b) @ hadamard(b)).reshape(-1) * signs(key, r, first, p)
        if b < p:
            back = np.empty_like(y)
            back[permutation(key, r, first, p)] = y
            y = back
    return y


@lru_cache(maxsize=8)
def levels(bits):
    """Lloyd-Max levels of N(0, 1) by Newton's method on the centroid equations, quantizers.md section 1."""
    if bits == 0:
        return np.zeros(1)
    m = 2 ** (bits - 1)
    c = math.sqrt(3) * np.array([_quantile(0.5 + (i + 0.5) / (2 * m)) for i in range(m)])
    for _ in range(60):
        t = np.concatenate([[0], (c[1:] + c[:-1]) / 2, [np.inf]])
        density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
        mass = np.array([_above(a) - _above(b) for a, b in itertools.pairwise(t)])
        centroid = (density[:-1] - density[1:]) / mass
        jacobian = np.eye(m)
        for i in range(m):
            for side, j in ((0, i - 1), (1, i + 1)):
                if 0 <= j < m:
                    at = t[i + side]
                    slope = density[i + side] * (at - centroid[i]) / mass[i] * (1 if side else -1) / 2
                    jacobian[i, i] -= slope
                    jacobian[i, j] -= slope
        step = np.linalg.solve(jacobian, centroid - c)
        c = c + step
        if np.max(np.abs(step)) < 1e-14:
            break
    return np.concatenate([-c[::-1], c])


def _above(t):
    return 0.5 * math.erfc(t / math.sqrt(2)) if t < np.inf else 0.0


def _quantile(p):
    low, high = -9.0, 9.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - _above(middle) < p else (low, middle)
    return low


def encode(x, key, first, bits, scale, rotations, full=False):
    """One unit: (rounds, z, codes, scale), the scale by quantizers.md section 0."""
    n = len(x)
    p, b, mixing = lengths(n, full)
    v = np.zeros(p)
    v[:n] = x
    if b < p:
        rounds = mixing
    elif rotations == "auto":
        smooth = np.sum(v**4) / np.sum(v**2) ** 2 <= max(2**-10, 4 / p)
        rounds = 1 if smooth else 2
    else:
        rounds = rotations
    norm = math.sqrt(np.sum(v**2))
    y = rotate(v, key, first, rounds)
    z = y * math.sqrt(p) / norm
    code, q = np.zeros(p, int), np.zeros(p)
    for part, width in widths(p, bits):
        c = levels(width)
        code[part] = np.sum(z[part][:, None] >= (c[1:] + c[:-1])[None, :] / 2, axis=1)
        q[part] = c[code[part]]
    s = {
        "unbiased": norm**2 / (y @ q),
        "biased": (y @ q) / (q @ q),
        "norm": norm / math.sqrt(q @ q),
        "one": norm / math.sqrt(p),
    }[scale]
    return rounds, z, code, s


def widths(p, bits):
    """The parts of P rotated coordinates and the widths of their codes, FORMAT.md section 5."""
    low = math.floor(bits)
    if low == bits:
        return [(slice(0, p), int(bits))]
    share = Fraction(str(bits)) - low
    high = min(p, 8 * math.ceil(share * p / 8))
    return [(slice(0, high), low + 1), (slice(high, p), low)]


def parse(raw):
    """The parts of a message, FORMAT.md section 6, without any check but the checksum."""
    head = struct.unpack_from("<4sBBBBIIQQQIIBBBBHH", raw)
    magic, version, dtype, axis, _, crc, header, size, key, start, _, _, ndim, spec, planes, align, _, _ = head
    assert (magic, version, size) == (b"TERS", 0, len(raw)) and crc == zlib.crc32(raw[12:], zlib.crc32(raw[:8]))
    numbers = struct.unpack_from(f"<{ndim + planes}Q", raw, 56)
    at = 56 + 8 * (ndim + planes)
    text = raw[at : at + spec].decode()
    parts, offset = [], header
    for nbytes in numbers[ndim:]:
        offset = -(-offset // 2**align) * 2**align
        parts.append(raw[offset : offset + nbytes])
        offset += nbytes
    return text, numbers[:ndim], dtype, axis, key, start, parts


def options(spec):
    """Bits and the options of an eden spec string."""
    name, _, rest = spec.replace("drive", "drive:1" if "drive:" not in spec else "drive", 1).partition(":")
    assert name in ("eden", "drive")
    first, *more = rest.split(",")
    return float(first) if "." in first else int(first), dict(item.split("=") for item in more)


def unpack_unit(data, bits, p):
    """(codes, levels, bytes taken) of one unit, its parts of two widths one after the other."""
    code, q, offset = np.zeros(p, int), np.zeros(p), 0
    for part, width in widths(p, bits):
        n = part.stop - part.start
        nbytes = -(-n * width // 8)
        code[part] = unpack(data[offset : offset + nbytes], width, n)
        q[part] = levels(width)[code[part]]
        offset += nbytes
    return code, q, offset


def unpack(data, bits, count):
    number = int.from_bytes(data, "little")
    return np.array([number >> (i * bits) & (2**bits - 1) for i in range(count)])


def units(shape, axis, options):
    """(first coordinate, length, random position before `start`) of every unit."""
    size = math.prod(shape)
    if axis == 1:
        return [(i, shape[-1], 0) for i in range(0, size, shape[-1])] if size else []
    block = options.get("block", "4096")
    block = size if block == "full" else int(block)
    return [(i, min(block, size - i), i) for i in range(0, size, block)] if size else []


def decode(raw):
    """A whole message to float64."""
    spec, shape, _, axis, key, start, parts = parse(raw)
    bits, more = options(spec)
    kind = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}[more.get("scale_dtype", "float32")]
    scales = np.frombuffer(parts[1], kind)
    if kind == "<u2":
        scales = (scales.astype(np.uint32) << 16).view(np.float32)
    rotations = more.get("rotations", "auto")
    out, offset = np.zeros(math.prod(shape)), 0
    for k, (first, n, position) in enumerate(units(shape, axis, more)):
        p, b, mixing = lengths(n, more.get("block") == "full" and axis == 0)
        _, q, nbytes = unpack_unit(parts[0][offset:], bits, p)
        offset += nbytes
        if rotations == "auto" and axis == 0 and bits == int(bits):
            rounds = int(unpack(parts[-1], 2, k + 1)[k])
        else:
            rounds = mixing if b < p else 2 if rotations == "auto" else int(rotations)
        at = position + (start if axis == 0 else 0)
        y = float(scales[k]) * q
        out[first : first + n] = unrotate(y, key, at, rounds)[:n]
    assert offset == len(parts[0])
    return out.reshape(shape)
