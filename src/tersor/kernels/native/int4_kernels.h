// The loops of 4-bit integer blocks over one chunk: a float scale a block, codes -7 .. 7 rounded to nearest even.
#pragma once

#include "half.h"
#include "mx_kernels.h"

namespace tersor {
namespace {

// Rounds a scale to its type on the wire, stores it there, and gives it back as float32.
TERSOR_INLINE float store_scale(float scale, int kind, u8 *to) {
  u32 bits;
  std::memcpy(&bits, &scale, 4);
  if (kind == 0) {
    std::memcpy(to, &scale, 4);
    return scale;
  }
  const std::uint16_t half = kind == 1 ? to_float16(bits) : to_bfloat16(bits);
  std::memcpy(to, &half, 2);
  if (kind == 1) return from_float16(half);
  bits = static_cast<u32>(half) << 16;
  std::memcpy(&scale, &bits, 4);
  return scale;
}

TERSOR_INLINE float load_scale(int kind, const u8 *from) {
  float scale;
  if (kind == 0) {
    std::memcpy(&scale, from, 4);
    return scale;
  }
  std::uint16_t half;
  std::memcpy(&half, from, 2);
  if (kind == 1) return from_float16(half);
  const u32 bits = static_cast<u32>(half) << 16;
  std::memcpy(&scale, &bits, 4);
  return scale;
}

// n a multiple of 16. True if the block is not finite.
TERSOR_INLINE bool int4_block(const f32u *x, i64 n, int kind, u8 *codes, u8 *scale) {
  const std::int32_t most = block_magnitude(x, n);
  const bool bad = most >= kInfinity;
  float amax, rounded = 0;
  std::memcpy(&amax, &most, 4);
  rounded = store_scale(bad ? __builtin_nanf("") : static_cast<float>(static_cast<double>(amax) / 7), kind, scale);
  if (bad || !(rounded > 0) || rounded > kLargest) {
    std::memset(codes, 0, static_cast<std::size_t>(n));
    return bad;
  }
  // s = 2^clamp(-e, -126, 127), where amax = f 2^e with 1/2 <= f < 1; 127 for denormals.
  const int e = (most >> 23) - 126;
  const float s = power_of_two(-e > 127 ? 127 : -e < -126 ? -126 : -e);
  const F first = all(s), second = all(static_cast<float>(1.0 / (static_cast<double>(rounded) * static_cast<double>(s))));
  const F magic = all(12582912.0f);  // 1.5 * 2^23 rounds to integers
  for (i64 i = 0; i < n; i += kLanes) {
    const F steps = load(x + i) * first * second;
    const I code = __builtin_convertvector((steps + magic) - magic, I);
    store_bytes(codes + i, greater(less(code, all(7)), all(-7)) & all(15));
  }
  return false;
}

bool int4_round(const f32u *x, i64 n, i64 block, int kind, u8 *codes, u8 *scales) {
  bool bad = false;
  const i64 size = kind == 0 ? 4 : 2;
  for (i64 i = 0; i < n; i += block, scales += size) {
    const i64 count = n - i < block ? n - i : block;
    if (count == 32) {  // the default: loops of known length
      bad |= int4_block(x + i, 32, kind, codes + i, scales);
    } else if (count % 16 == 0) {
      bad |= int4_block(x + i, count, kind, codes + i, scales);
    } else {
      float padded[kChunk];
      u8 made[kChunk];
      const i64 whole = (count + 15) / 16 * 16;
      std::memcpy(padded, x + i, static_cast<std::size_t>(count) * 4);
      std::memset(padded + count, 0, static_cast<std::size_t>(whole - count) * 4);
      bad |= int4_block(padded, whole, kind, made, scales);
      std::memcpy(codes + i, made, static_cast<std::size_t>(count));
    }
  }
  return bad;
}

template <bool Add>
TERSOR_INLINE void int4_values(const u8 *codes, i64 n, float f, f32u *out) {
  i64 i = 0;
  const F factor = all(f), zero = {};
  for (; i + kLanes <= n; i += kLanes) {
    const I code = (load_bytes(codes + i) ^ all(8)) - all(8);
    const F value = __builtin_convertvector(code, F) * factor + zero;  // -0 becomes +0
    store(out + i, Add ? load(out + i) + value : value);
  }
  for (; i < n; ++i) {
    const float value = static_cast<float>((codes[i] ^ 8) - 8) * f + 0.0f;
    out[i] = Add ? out[i] + value : value;
  }
}

// out = (or +=) code * f32(scale * weight); zeros are +0.
void int4_expand(const u8 *codes, i64 n, i64 block, int kind, const u8 *scales, double weight, bool add, f32u *out) {
  const i64 size = kind == 0 ? 4 : 2;
  for (i64 i = 0; i < n; i += block, scales += size) {
    const i64 count = n - i < block ? n - i : block;
    const float f = factor_of(static_cast<double>(load_scale(kind, scales)), weight);
    if (add) {
      int4_values<true>(codes + i, count, f, out + i);
    } else {
      int4_values<false>(codes + i, count, f, out + i);
    }
  }
}

}  // namespace
}  // namespace tersor
