// Philox4x32-10: 16 counter blocks at a time, so that the compiler can use vector multiplies.
//
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

constexpr int kPhiloxBlocks = 16;

// Blocks first .. first + 15 of a stream, as 64 words.
void philox_blocks(u64 key, u32 purpose, u32 rotation, u64 first, u32 *__restrict out) {
  u32 c0[kPhiloxBlocks], c1[kPhiloxBlocks], c2[kPhiloxBlocks], c3[kPhiloxBlocks];
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    const u64 c = first + static_cast<u64>(b);
    c0[b] = static_cast<u32>(c);
    c1[b] = static_cast<u32>(c >> 32);
    c2[b] = purpose;
    c3[b] = rotation;
  }
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int b = 0; b < kPhiloxBlocks; ++b) {
      const u64 p0 = u64{0xD2511F53} * c0[b], p1 = u64{0xCD9E8D57} * c2[b];
      c0[b] = static_cast<u32>(p1 >> 32) ^ c1[b] ^ k0;
      c1[b] = static_cast<u32>(p1);
      c2[b] = static_cast<u32>(p0 >> 32) ^ c3[b] ^ k1;
      c3[b] = static_cast<u32>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    out[4 * b] = c0[b];
    out[4 * b + 1] = c1[b];
    out[4 * b + 2] = c2[b];
    out[4 * b + 3] = c3[b];
  }
}

// Words start .. start + n - 1 of a stream.
void philox(u64 key, u32 purpose, u32 rotation, u64 start, i64 n, u32u *out) {
  u32 words[4 * kPhiloxBlocks];
  u64 block = start / 4;
  int skip = static_cast<int>(start % 4);
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
