// THC: rotated units on a grid that all senders share, and the sum of their codes as integers (FORMAT.md section 4).
#pragma once

#include "eden.h"

namespace tersor {

// Root mean squares of units of n coordinates over their padded lengths; NaN where one holds NaN or infinity.
void unit_rms(const Units &units, const f32u *x, f32u *out);

// Code z stands for rms * (-spread + 2 spread / table[last] * table[z]).
struct ThcGrid {
  const u16u *table;
  double spread;
  int bits;
  double step() const { return 2 * spread / static_cast<double>(table[(1 << bits) - 1]); }
};

// Returns the sum of the squared errors, over all rotated coordinates.
double thc_encode(const Units &units, int rotations, const ThcGrid &grid, const f32u *x, const f32u *rms, u64 private_key,
                  u64 first, u8 *codes);
// counts: how many messages each unit adds up; 0 gives zeros. shift: was taken off the sums.
void thc_decode(const Units &units, int rotations, const ThcGrid &grid, const u8 *codes, int width, i64 shift,
                const f32u *rms, const u32u *counts, double weight, bool add, f32u *out);

struct ThcMessage {
  const u8 *codes;
  int width;  // that of the grid: codes of one message; another one: sums
};

// d: rotated coordinates, in units of `unit`. `shift` is taken off the sums; returns how many were clamped to out_width.
i64 thc_add(const ThcMessage *messages, i64 n_messages, i64 d, i64 unit, const ThcGrid &grid, i64 shift, bool clamp,
            u8 *out, int out_width);

}  // namespace tersor
