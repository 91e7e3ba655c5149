"""Random numbers: the published Philox vectors, word order, signs, uniforms, permutations and the mixing of keys."""

import numpy as np
import pytest

from tersor import rng

# Random123, kat_vectors, philox4x32 with 10 rounds: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
MASK = (1 << 64) - 1


def philox(counter, key):
    """Philox4x32-10 in plain integers, from the paper's text."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return tuple(c)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_published_vectors(counter, key, result):
    """Our counter words are (block lo, block hi, purpose, rotation), our key (lo, hi)."""
    assert philox(counter, key) == result
    blocks = rng.philox_blocks(key[0] | key[1] << 32, counter[2], counter[3], counter[0] | counter[1] << 32, 1)
    assert tuple(int(w) for w in blocks[0]) == result and blocks.dtype == np.uint32


def test_blocks_follow_the_counter():
    """Across the carry from the low to the high counter word, and around 2**64."""
    for first in (0, 2**32 - 3, 2**63, MASK - 2):
        blocks = rng.philox_blocks(77, 2, 1, first, 6)
        for i, block in enumerate(blocks):
            c = (first + i) & MASK
            assert tuple(int(w) for w in block) == philox((c & 0xFFFFFFFF, c >> 32, 2, 1), (77, 0))


@pytest.mark.parametrize("start", [0, 1, 3, 4, 31, 4093, 2**33 + 5])
def test_words_start_anywhere(start):
    for count in (0, 1, 2, 3, 4, 5, 9, 16):
        whole = rng.words(5, rng.SIGNS, 2, start // 4 * 4, 24)
        assert np.array_equal(rng.words(5, rng.SIGNS, 2, start, count), whole[start % 4 :][:count])


@pytest.mark.parametrize("start", [0, 1, 31, 32, 33, 127, 128, 4096, 2**40 + 7])
def test_signs_are_bits_of_words(start):
    """Sign j is bit j % 32 of word j // 32; 1 is minus."""
    for count in (0, 1, 31, 32, 33, 100):
        expected = []
        for j in range(start, start + count):
            word = int(rng.words(9, rng.SIGNS, 1, j // 32, 1)[0])
            expected.append(-1.0 if word >> (j % 32) & 1 else 1.0)
        got = rng.signs(9, 1, start, count)
        assert got.dtype == np.float32 and got.tolist() == expected


def test_uniforms():
    """(word >> 8) * 2**-24, one word each: in [0, 1), exact in float32."""
    words = rng.words(3, rng.ROUNDING, 0, 11, 10_000)
    u = rng.uniform(3, rng.ROUNDING, 11, 10_000)
    assert u.dtype == np.float32 and np.array_equal(u.astype(np.float64) * 2**24, words >> 8)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 4 / np.sqrt(12e4)


def test_permutation_is_fisher_yates_on_the_stream():
    for count in (0, 1, 2, 7, 100):
        for start in (0, 64):
            perm = list(range(count))
            for i in range(count - 1, 0, -1):
                word = int(rng.words(21, rng.PERMUTATION, 1, start + i, 1)[0])
                j = word * (i + 1) >> 32
                perm[i], perm[j] = perm[j], perm[i]
            assert rng.permutation(21, 1, start, count).tolist() == perm
    seen = {tuple(rng.permutation(key, 0, 0, 3).tolist()) for key in range(200)}
    assert len(seen) == 6


def splitmix(z):
    z &= MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def test_mix64_is_what_format_md_says():
    golden = 0x9E3779B97F4A7C15
    # the first outputs of splitmix64 seeded with 0 and 1234567 (Vigna's reference code)
    assert (
        rng.mix64(0) != 0
        and splitmix(golden) == 0xE220A8397B1DCDAF
        and splitmix(1234567 + golden) == 6457827717110365317
    )
    for args in ((0, 0, 0, 0), (7, 1, 2, 3), (MASK, MASK, MASK, MASK), (-1, 0, 5, 2**70)):
        h = splitmix(args[0] + golden)
        for value in args[1:]:
            h = splitmix((h ^ (value & MASK)) + golden)
        assert rng.mix64(*args) == h
    assert rng.mix64(np.int64(7), np.int32(1), np.uint8(2), np.int64(3)) == rng.mix64(7, 1, 2, 3)


def test_keys_do_not_collide():
    """Neighbouring seeds, steps, senders and tensors, and exchanged arguments, have keys of their own."""
    keys = {rng.mix64(a, b, c, d) for a in range(8) for b in range(8) for c in range(8) for d in range(8)}
    assert len(keys) == 8**4
    signs = np.stack([rng.signs(rng.mix64(1, sender=s), r, 0, 1024) for s in range(40) for r in (0, 1)])
    correlation = np.abs(signs @ signs.T / 1024 - np.eye(80))
    assert correlation.max() < 5.5 / np.sqrt(1024)


def test_fresh_seeds_differ():
    assert len({rng.fresh_seed() for _ in range(100)}) == 100
    assert max(rng.fresh_seed() for _ in range(100)) >= 2**60
