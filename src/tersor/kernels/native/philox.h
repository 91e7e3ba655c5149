// Philox4x32-10, several counter blocks at a time: one a 64-bit lane, with the word that counts in its lower half.
//
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

constexpr int kBlocks = kLanes / 2;     // blocks a vector
constexpr int kStreams = 4;             // vectors in flight: a round is one long chain of dependent steps
constexpr int kPhiloxBlocks = kStreams * kBlocks;

typedef u64 L __attribute__((vector_size(8 * kBlocks)));
typedef u64 LU __attribute__((vector_size(8 * kBlocks), aligned(1), may_alias));

template <int... I>
constexpr L block_iota(std::integer_sequence<int, I...>) {
  return L{I...};
}
constexpr L kBlockIota = block_iota(std::make_integer_sequence<int, kBlocks>{});

// 64-bit products of the lower halves; the upper halves may hold anything.
TERSOR_INLINE L multiply(L a, u64 factor) {
  const L b = factor - L{};
#if defined(__AVX512F__)
  return (L)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (L)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (L)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffff) * b;
#endif
}

// Lane i of the two results: words 0, 1 and words 2, 3 of block i. Stored as the blocks one after the other.
template <int... I>
TERSOR_INLINE void store_blocks(u32 *out, L low, L high, std::integer_sequence<int, I...>) {
  *reinterpret_cast<LU *>(out) = __builtin_shufflevector(low, high, (I / 2 + I % 2 * kBlocks)...);
  *reinterpret_cast<LU *>(out + 2 * kBlocks) =
      __builtin_shufflevector(low, high, (I / 2 + kBlocks / 2 + I % 2 * kBlocks)...);
}

// Blocks first .. first + kPhiloxBlocks - 1 of a stream, four words each.
void philox_blocks(u64 key, u32 purpose, u32 rotation, u64 first, u32 *out) {
  L c0[kStreams], c1[kStreams], c2[kStreams], c3[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    c0[s] = (first + static_cast<u64>(s * kBlocks)) + kBlockIota;
    c1[s] = c0[s] >> 32;
    c2[s] = purpose - L{};
    c3[s] = rotation - L{};
  }
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const L p0 = multiply(c0[s], 0xD2511F53), p1 = multiply(c2[s], 0xCD9E8D57);
      c0[s] = (p1 >> 32) ^ c1[s] ^ k0;
      c1[s] = p1;
      c2[s] = (p0 >> 32) ^ c3[s] ^ k1;
      c3[s] = p0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int s = 0; s < kStreams; ++s) {
    const L low = (c0[s] & 0xffffffff) | (c1[s] << 32), high = (c2[s] & 0xffffffff) | (c3[s] << 32);
    store_blocks(out + 4 * kBlocks * s, low, high, std::make_integer_sequence<int, kBlocks>{});
  }
}

// n words of a stream, from word `skip` (0 to 3) of block `block` on.
void philox(u64 key, u32 purpose, u32 rotation, u64 block, int skip, i64 n, u32u *out) {
  u32 words[4 * kPhiloxBlocks];
  while (n > 0) {
    philox_blocks(key, purpose, rotation, block, words);
    const i64 count = n < 4 * kPhiloxBlocks - skip ? n : 4 * kPhiloxBlocks - skip;
    std::memcpy(out, words + skip, static_cast<std::size_t>(count) * 4);
    out += count;
    n -= count;
    block += kPhiloxBlocks;
    skip = 0;
  }
}

}  // namespace
}  // namespace tersor
