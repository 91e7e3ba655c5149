// Plain formats over whole arrays: the first value that is not finite, and 16-bit floats.
#pragma once

#include "kernels.h"

namespace tersor {

constexpr u32 kInfinityBits = 0x7f800000;  // of float32: magnitudes from here on are not finite

// The first i with low <= bits of |x_i| < high, or -1.
i64 first_between(const f32u *x, i64 d, u32 low, u32 high);

struct HalfResult {
  i64 first_bad, first_lost;  // NaN or infinity; a finite value that became infinite; or -1
};
HalfResult half_encode(const f32u *x, i64 d, bool bfloat, u16u *out);
void half_decode(const u16u *codes, i64 d, bool bfloat, float factor, bool add, f32u *out);

}  // namespace tersor
