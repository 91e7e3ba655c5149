// Rounding onto levels of each unit's own with shared randomness, and looking values up.
#pragma once

#include "kernels.h"
#include "level_codes.h"

namespace tersor {

LevelsResult shared_encode(const SharedDraws &draws, const f32u *x, i64 d, i64 unit, const f32u *levels, int bits,
                           u64 start, u64 first, u8 *codes);
void shared_decode(const SharedDraws &draws, const u8 *codes, i64 d, i64 unit, const f32u *levels, int bits, u64 start,
                   double weight, bool add, const u8 *present, f32u *out);

}  // namespace tersor
