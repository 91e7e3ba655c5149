// The loops of the integer codecs over one chunk: uniform stochastic quantization, and int8 with a scale a block.
#pragma once

#include "eden_kernels.h"
#include "philox.h"

namespace tersor {
namespace {

constexpr double kUniform = 1.0 / 16777216;  // 2^-24

// code = floor(t), plus 1 with probability t - floor(t), where t = (x - low) * inverse; n <= 4096.
void round_chunk(const f32u *x, i64 n, double low, double inverse, int top, u64 key, u64 word, u8 *codes) {
  u32 drawn[kChunk];
  philox(key, kRounding, 0, word / 4, static_cast<int>(word % 4), n, drawn);
  for (i64 i = 0; i < n; ++i) {
    const double t = (static_cast<double>(x[i]) - low) * inverse;
    // Clamped before the conversion, which is undefined outside int; NaN gives 0. In range nothing changes.
    const double most = top;
    const double inside = t > 0 ? (t < most ? t : most) : 0;
    const int below = static_cast<int>(inside);
    const double u = static_cast<double>(static_cast<std::int32_t>(drawn[i] >> 8)) * kUniform;
    const int code = below + (u < inside - static_cast<double>(below));
    codes[i] = static_cast<u8>(code < top ? code : top);
  }
}

// out = (or +=) f32(weight * (low + step * (sum / count))).
void mean_chunk(const u32 *sums, i64 n, double count, double low, double step, double weight, bool add, f32u *out) {
  for (i64 i = 0; i < n; ++i) {
    const float value = static_cast<float>(weight * (low + step * (static_cast<double>(sums[i]) / count)));
    out[i] = add ? out[i] + value : value;
  }
}

// out = a + b, where a and out hold integers of `width` bits, 8, 16 or 32. (`auto *` would lose the alignment of 1.)
void add_bytes(const u8 *a, const u8 *b, i64 n, int width, u8 *out) {
  if (width == 8) {
    for (i64 i = 0; i < n; ++i) out[i] = static_cast<u8>(a[i] + b[i]);
  } else if (width == 16) {
    const u16u *from = reinterpret_cast<const u16u *>(a);
    u16u *to = reinterpret_cast<u16u *>(out);
    for (i64 i = 0; i < n; ++i) to[i] = static_cast<std::uint16_t>(from[i] + b[i]);
  } else {
    const u32u *from = reinterpret_cast<const u32u *>(a);
    u32u *to = reinterpret_cast<u32u *>(out);
    for (i64 i = 0; i < n; ++i) to[i] = from[i] + b[i];
  }
}

// code = rint(x * s * t) within -127 .. 127.
void int8_chunk(const f32u *x, i64 n, float s, float t, std::int8_t *codes) {
  // Adding and taking away 1.5 * 2^23 rounds to an integer, ties to even, for magnitudes below 2^22.
  constexpr float magic = 12582912.0f;
  for (i64 i = 0; i < n; ++i) {
    const float steps = x[i] * s * t;
    const float whole = (steps + magic) - magic;
    const float clipped = whole < -127 ? -127 : whole > 127 ? 127 : whole;
    codes[i] = static_cast<std::int8_t>(static_cast<int>(clipped));
  }
}

// out = (or +=) code * f; zeros are +0.
void int8_expand(const std::int8_t *codes, i64 n, float f, bool add, f32u *out) {
  for (i64 i = 0; i < n; ++i) {
    float value = static_cast<float>(codes[i]) * f;
    if (value == 0) value = 0;
    out[i] = add ? out[i] + value : value;
  }
}

}  // namespace
}  // namespace tersor
