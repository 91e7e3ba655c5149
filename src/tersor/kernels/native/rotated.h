// The orthonormal rotation of all units of an array, and its inverse (FORMAT.md section 3).
#pragma once

#include "eden.h"

namespace tersor {

// Floats of all rotated units.
i64 rotated_size(const Units &units);

// `bits` of `units` does not count. rotations: 1 to kMaxRounds.
void rotate_units(const Units &units, int rotations, const f32u *x, f32u *out);

// present: null, or one flag a unit.
void unrotate_units(const Units &units, int rotations, const f32u *y, double weight, bool add, const u8 *present,
                    f32u *out);

// out[i] = table[v], v = half (i mod 2) of word start + i / 2 of the stream (key, purpose, 0); the table has 2^16 values.
void draw_table(const f32u *table, u64 key, u32 purpose, u64 start, i64 n, f32u *out);

}  // namespace tersor
