// DynamiQ's super-groups over whole ranges; see dynamiq.h.
#include "dynamiq.h"

#include <algorithm>

#include "dispatch.h"
#include "pool.h"
#include "unit_spans.h"

namespace tersor {
namespace {

constexpr i64 kBatch = 64;

SuperLevels make_levels(int bits, double epsilon) {
  SuperLevels made;
  const int top = (1 << (bits - 1)) - 1;
  const double q = 1 + 2 * (epsilon * epsilon);
  double powers[128] = {1};
  for (int r = 1; r <= top; ++r) powers[r] = powers[r - 1] * q;
  for (int r = 0; r <= top; ++r) made.magnitudes[r] = static_cast<float>((powers[r] - 1) / (powers[top] - 1));
  for (int r = 0; r < top; ++r) made.widths[r] = made.magnitudes[r + 1] - made.magnitudes[r];
  for (int i = 0, r = 0; i < 512; ++i) {
    while (r < top - 1 && made.magnitudes[r + 1] <= static_cast<float>(i) / 512) ++r;
    made.cells[i] = r;
  }
  for (int c = 0; c < 2 * top + 1; ++c)
    made.values[c] = c < top ? -made.magnitudes[top - c] : made.magnitudes[c - top];
  made.values[2 * top + 1] = made.magnitudes[top];
  for (int c = 1 << bits; c < 16; ++c) made.values[c] = made.values[c - (1 << bits)];  // as far as a register
  return made;
}

const SuperLevels &levels_of(int bits) {
  static const SuperLevels two = make_levels(2, 0.27), four = make_levels(4, 0.20), eight = make_levels(8, 0.08);
  return bits == 2 ? two : bits == 4 ? four : eight;
}

template <class Body>
void each_super(i64 d, const Body &body) {
  const i64 count = (d + kSuperGroup - 1) / kSuperGroup;
  parallel_for((count + kBatch - 1) / kBatch, [&](i64 task) {
    for (i64 j = task * kBatch; j < std::min(count, (task + 1) * kBatch); ++j)
      body(j, std::min(kSuperGroup, d - j * kSuperGroup));
  });
}

}  // namespace

std::vector<i64> record_offsets(const u8 *widths, i64 count) {
  std::vector<i64> made(static_cast<std::size_t>(count) + 1);
  for (i64 j = 0; j < count; ++j)
    made[static_cast<std::size_t>(j) + 1] = made[static_cast<std::size_t>(j)] + record_bytes(widths[j]);
  return made;
}

HopSums dynamiq_hop(const f32u *x, i64 d, double scale, const f32u *means, const u8 *widths, const u8 *received,
                    const SuperDraws &draws, u64 first, u8 *out) {
  const i64 count = (d + kSuperGroup - 1) / kSuperGroup;
  const std::vector<i64> at = record_offsets(widths, count);
  std::vector<double> errors(static_cast<std::size_t>(2 * count)), energies(errors.size());
  each_super(d, [&](i64 j, i64 n) {
    double sums[2];
    const i64 offset = at[static_cast<std::size_t>(j)];
    kernels().super_hop(levels_of(widths[j]), widths[j], draws, first + static_cast<u64>(j), x + j * kSuperGroup, n,
                        static_cast<float>(scale), means ? means[j] : 0.0f, received ? received + offset : nullptr,
                        out + offset, sums);
    errors[static_cast<std::size_t>(2 * j)] = sums[0];
    energies[static_cast<std::size_t>(2 * j)] = sums[1];
  });
  return {ordered_sum(errors, 0), ordered_sum(energies, 0)};
}

void dynamiq_decode(const u8 *data, const u8 *widths, const f32u *means, double times, double factor, bool add, i64 d,
                    f32u *out) {
  const std::vector<i64> at = record_offsets(widths, (d + kSuperGroup - 1) / kSuperGroup);
  each_super(d, [&](i64 j, i64 n) {
    const float shift = means ? means[j] * static_cast<float>(times) : 0.0f;
    kernels().super_decode(levels_of(widths[j]), widths[j], data + at[static_cast<std::size_t>(j)], n, shift,
                           static_cast<float>(factor), add, out + j * kSuperGroup);
  });
}

void dynamiq_stats(const f32u *x, i64 d, double scale, f32u *means, f32u *energies) {
  each_super(d, [&](i64 j, i64 n) {
    float mean, energy;
    kernels().super_stats(x + j * kSuperGroup, n, static_cast<float>(scale), &mean, &energy);
    means[j] = mean;
    energies[j] = energy;
  });
}

}  // namespace tersor
