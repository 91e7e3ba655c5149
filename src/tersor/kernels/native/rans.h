// Interleaved rANS with one static table (FORMAT.md section 9): the tables, and whole arrays cut into chunks.
#pragma once

#include "kernels.h"

namespace tersor {

constexpr i64 kRansChunk = i64{1} << 20;
constexpr int kRansMaxLanes = 16, kRansMinBits = 1, kRansMaxBits = 15;
// Up to here one 32-bit entry a slot holds symbol, frequency and offset.
constexpr int kRansNarrowBits = 12;
constexpr u32 kRansLow = 1u << 16;  // the least state, and the one that a lane starts from

// A chunk of m > 0 symbols has so many lanes: one for 4,096 symbols, a power of two.
constexpr int rans_lanes(i64 m) {
  int lanes = 1;
  while (lanes < kRansMaxLanes && m >= 8192 * lanes) lanes *= 2;
  return lanes;
}

// x / f by multiplication: (x + inc) * reciprocal >> 32 >> shift, exact for every state x < f 2^(32 - bits) of a lane.
struct RansEncodeTable {
  int bits = 0, symbols = 0;
  alignas(64) u32 reciprocal[256] = {};
  alignas(64) u32 packed[256] = {};  // frequency | start << 16 | inc << 31; 0 for symbols that do not occur
};
inline int rans_shift(u32 f) { return f <= 2 ? 0 : 31 - __builtin_clz(f - 1); }

struct RansDecodeTable {
  int bits = 0;
  alignas(64) u32 entry[1 << kRansNarrowBits];  // symbol | (frequency - 1) << 8 | (slot - start) << 20
  alignas(64) u8 symbol[(1 << kRansMaxBits) + 4];  // beyond kRansNarrowBits, with what a 32-bit gather reads
  alignas(64) u32 packed[256];                     // frequency | start << 16
};

// The bytes that rans_encode may touch in `out`.
i64 rans_room(i64 n);

// `freqs` sum to 1 << bits, bits 1 to 15. The number of bytes written, or -1 if a symbol has no frequency.
i64 rans_encode(const u8 *symbols, i64 n, const u32 *freqs, int s, int bits, u8 *out);

// 0, or 1 if the directory is wrong, 2 if a chunk is damaged. Any bytes are safe.
int rans_decode(const u8 *data, i64 nbytes, const u32 *freqs, int s, int bits, u8 *out, i64 n);

void count_symbols(const u8 *symbols, i64 n, u64u *counts);  // of 256 elements

}  // namespace tersor
