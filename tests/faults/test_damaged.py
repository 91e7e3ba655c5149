"""Damaged bytes: bit flips, truncation, extension, splices of messages and bundles all give FormatError."""

import random

import pytest
import samples

import tersor

ORIGINALS = samples.messages() + samples.bundles()
DEFAULT, MANY = 6_000, 100_000


def flip(rng, raw):
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return raw


def overwrite(rng, raw):
    begin = rng.randrange(len(raw))
    n = rng.randrange(1, 17)
    raw[begin : begin + n] = rng.randbytes(min(n, len(raw) - begin))
    return raw


def truncate(rng, raw):
    return raw[: rng.randrange(len(raw))]


def behead(rng, raw):
    return raw[rng.randrange(1, len(raw)) :]


def extend(rng, raw):
    return raw + rng.choice((bytes(rng.randrange(1, 70)), rng.randbytes(rng.randrange(1, 70)), bytes(raw)))


def cut_out(rng, raw):
    begin = rng.randrange(len(raw))
    return raw[:begin] + raw[begin + rng.randrange(1, 40) :]


def insert(rng, raw):
    at = rng.randrange(len(raw))
    return raw[:at] + rng.randbytes(rng.randrange(1, 40)) + raw[at:]


def splice(rng, raw):
    other = bytearray(rng.choice(ORIGINALS))
    return raw[: rng.randrange(1, len(raw))] + other[rng.randrange(len(other)) :]


def swap(rng, raw):
    i, j = rng.randrange(len(raw)), rng.randrange(len(raw))
    raw[i], raw[j] = raw[j], raw[i]
    return raw


def zero(rng, raw):
    begin = rng.randrange(len(raw))
    end = min(begin + rng.choice((1, 4, 8, 64)), len(raw))
    raw[begin:end] = bytes(end - begin)
    return raw


DAMAGES = (flip, flip, flip, overwrite, truncate, behead, extend, cut_out, insert, splice, swap, zero)


def run(count, seed):
    rng = random.Random(seed)
    known = set(ORIGINALS)
    tried = 0
    while tried < count:
        raw = bytes(rng.choice(DAMAGES)(rng, bytearray(rng.choice(ORIGINALS))))
        if raw in known:
            continue
        tried += 1
        readers = (tersor.from_bytes, tersor.EncodedDict.from_bytes) if tried % 8 == 0 else (samples.parse,)
        for reader in readers:
            try:
                reader(raw)
            except tersor.FormatError:
                continue
            pytest.fail(f"{reader.__name__} took damaged bytes: {raw.hex()}")


def test_the_originals_are_read():
    assert len(ORIGINALS) > 60
    for raw in ORIGINALS:
        samples.parse(raw)


def test_damaged():
    run(DEFAULT, seed=1)


@pytest.mark.slow
def test_many_damaged():
    run(MANY, seed=2)


def test_every_single_bit_of_one_message():
    for raw in (ORIGINALS[0], samples.bundles()[1]):
        for bit in range(8 * len(raw)):
            damaged = bytearray(raw)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(tersor.FormatError):
                samples.parse(bytes(damaged))


def test_every_prefix_and_suffix():
    for raw in ORIGINALS[::5]:
        for n in range(len(raw)):
            for part in (raw[:n], raw[len(raw) - n :]):
                with pytest.raises(tersor.FormatError):
                    samples.parse(part)


def test_noise():
    rng = random.Random(3)
    for _ in range(2000):
        raw = rng.randbytes(rng.randrange(200))
        for magic in (b"", b"TERS\0", b"TERD\0"):
            with pytest.raises(tersor.FormatError):
                samples.parse(magic + raw)
