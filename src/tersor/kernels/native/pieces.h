// Walks over units in pieces of at most kChunk coordinates, and codes of 1 to 32 bits of one piece.
#pragma once

#include <algorithm>
#include <cstring>

#include "dispatch.h"
#include "pool.h"

namespace tersor {

// Calls body(unit, begin, n): n coordinates of a unit from `begin`, a multiple of kChunk, on.
template <class Body>
void each_piece(i64 d, i64 unit, const Body &body) {
  if (d == 0) return;
  unit = std::min(unit, d);
  const i64 per_unit = (unit + kChunk - 1) / kChunk, units = (d - 1) / unit + 1, pieces = units * per_unit;
  const i64 batch = std::max<i64>(1, 16 * kChunk / std::min(unit, kChunk));
  parallel_for((pieces + batch - 1) / batch, [&](i64 task) {
    for (i64 piece = task * batch; piece < std::min(pieces, (task + 1) * batch); ++piece) {
      const i64 u = piece / per_unit, begin = piece % per_unit * kChunk;
      const i64 n = std::min({unit - begin, d - u * unit - begin, kChunk});
      if (n > 0) body(u, begin, n);
    }
  });
}

// At most kChunk codes of 1 to 32 bits. Up to 8 bits go through the byte kernels.
inline void pack_piece(const u32 *codes, i64 n, int bits, u8 *out) {
  if (bits <= 8) {
    u8 bytes[kChunk];
    for (i64 i = 0; i < n; ++i) bytes[i] = static_cast<u8>(codes[i]);
    return kernels().pack(bytes, n, bits, out);
  }
  if (bits == 16) {
    for (i64 i = 0; i < n; ++i) reinterpret_cast<u16u *>(out)[i] = static_cast<std::uint16_t>(codes[i]);
    return;
  }
  if (bits == 32) {
    std::memcpy(out, codes, static_cast<std::size_t>(n) * 4);
    return;
  }
  u64 held = 0;  // fewer than 8 bits between codes
  int count = 0;
  const u64 mask = (u64{1} << bits) - 1;
  for (i64 i = 0; i < n; ++i) {
    held |= (codes[i] & mask) << count;
    for (count += bits; count >= 8; count -= 8, held >>= 8) *out++ = static_cast<u8>(held);
  }
  if (count > 0) *out = static_cast<u8>(held);
}

inline void unpack_piece(const u8 *in, i64 n, int bits, u32 *codes) {
  if (bits <= 8) {
    u8 bytes[kChunk];
    kernels().unpack(in, n, bits, bytes);
    for (i64 i = 0; i < n; ++i) codes[i] = bytes[i];
    return;
  }
  if (bits == 16) {
    for (i64 i = 0; i < n; ++i) codes[i] = reinterpret_cast<const u16u *>(in)[i];
    return;
  }
  if (bits == 32) {
    std::memcpy(codes, in, static_cast<std::size_t>(n) * 4);
    return;
  }
  u64 held = 0;
  int count = 0;
  const u64 mask = (u64{1} << bits) - 1;
  for (i64 i = 0; i < n; ++i) {
    for (; count < bits; count += 8) held |= static_cast<u64>(*in++) << count;
    codes[i] = static_cast<u32>(held & mask);
    held >>= bits;
    count -= bits;
  }
}

}  // namespace tersor
