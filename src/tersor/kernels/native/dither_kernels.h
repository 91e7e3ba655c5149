// The loops of uniform quantization with a subtractive dither over one chunk of at most 4,096 coordinates.
#pragma once

#include "philox.h"
#include "uniform_kernels.h"

namespace tersor {
namespace {

// code = floor(t + u) within 0 .. top, where t = (x - low) * inverse.
void dither_chunk(const f32u *x, i64 n, double low, double inverse, int top, u64 key, u64 word, u8 *codes) {
  u32 drawn[kChunk];
  philox(key, kDither, 0, word / 4, static_cast<int>(word % 4), n, drawn);
  const double most = top;
  for (i64 i = 0; i < n; ++i) {
    const double u = static_cast<double>(static_cast<std::int32_t>(drawn[i] >> 8)) * kUniform;
    const double t = (static_cast<double>(x[i]) - low) * inverse + u;
    const double inside = t > 0 ? (t < most ? t : most) : 0;  // clamped before the conversion; NaN gives 0
    codes[i] = static_cast<u8>(static_cast<int>(inside));
  }
}

// out = (or +=) f32(weight * (low + ((code - u) + 1/2) * step)).
void undither_chunk(const u8 *codes, i64 n, double low, double step, u64 key, u64 word, double weight, bool add,
                    f32u *out) {
  u32 drawn[kChunk];
  philox(key, kDither, 0, word / 4, static_cast<int>(word % 4), n, drawn);
  for (i64 i = 0; i < n; ++i) {
    const double u = static_cast<double>(static_cast<std::int32_t>(drawn[i] >> 8)) * kUniform;
    const double at = (static_cast<double>(static_cast<int>(codes[i])) - u) + 0.5;
    const float value = static_cast<float>(weight * (low + at * step));
    out[i] = add ? out[i] + value : value;
  }
}

}  // namespace
}  // namespace tersor
