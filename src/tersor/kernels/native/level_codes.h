// Rounding onto levels of each unit's own, and looking them up, over whole arrays.
#pragma once

#include "kernels.h"

namespace tersor {

struct LevelsResult {
  double error, energy;  // sums of the squared errors and of the squares of the values
};

LevelsResult levels_encode(const f32u *x, i64 d, i64 unit, const f32u *levels, int bits, u64 key, u64 first,
                           bool stochastic, u8 *codes);
// present: null, or one flag a unit.
void levels_decode(const u8 *codes, i64 d, i64 unit, const f32u *levels, int bits, double weight, bool add,
                   const u8 *present, f32u *out);

}  // namespace tersor
