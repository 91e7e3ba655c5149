// Evenly spaced levels of one range, and 16-bit symbols as two streams of bytes.
#pragma once

#include "kernels.h"

namespace tersor {

constexpr i64 kMostLevels = i64{1} << 16;

// out = floor((x - low) * scale) in double, clamped to 0 .. levels - 1; NaN gives 0.
void uniform_indices(const f32u *x, i64 n, double low, double scale, i64 levels, u16u *out);
void uniform_counts(const f32u *x, i64 n, double low, double scale, i64 levels, u64u *counts);

// The upper bytes in order; the lower ones behind one another by their upper byte.
void split_symbols(const u16u *symbols, i64 n, u8 *high, u8 *low);
void join_symbols(const u8 *high, const u8 *low, i64 n, u16u *symbols);

}  // namespace tersor
