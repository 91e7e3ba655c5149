// DynamiQ's super-groups over whole ranges, many a task (kernels/reference/dynamiq.py).
#pragma once

#include <vector>

#include "kernels.h"

namespace tersor {

constexpr i64 kSuperGroup = 256;
constexpr i64 record_bytes(int bits) { return 32 * bits + 18; }

// Where the records of these widths begin, and where the last one ends.
std::vector<i64> record_offsets(const u8 *widths, i64 count);

// means, received: null if there are none. Returns the sums of squared errors and squares.
struct HopSums {
  double error, energy;
};
HopSums dynamiq_hop(const f32u *x, i64 d, double scale, const f32u *means, const u8 *widths, const u8 *received,
                    const SuperDraws &draws, u64 first, u8 *out);
void dynamiq_decode(const u8 *data, const u8 *widths, const f32u *means, double times, double factor, bool add, i64 d,
                    f32u *out);
void dynamiq_stats(const f32u *x, i64 d, double scale, f32u *means, f32u *energies);

}  // namespace tersor
