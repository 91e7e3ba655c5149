// The index of each coordinate among evenly spaced levels, for one chunk.
#pragma once

#include "kernels.h"

namespace tersor {
namespace {

void uniform_index_chunk(const f32u *x, i64 n, double low, double scale, int top, u16u *out) {
  const double most = top;
  for (i64 i = 0; i < n; ++i) {
    const double t = (static_cast<double>(x[i]) - low) * scale;
    // Clamped before the conversion, which is undefined outside int; NaN gives 0.
    const double inside = t > 0 ? (t < most ? t : most) : 0;
    out[i] = static_cast<std::uint16_t>(static_cast<int>(inside));
  }
}

}  // namespace
}  // namespace tersor
