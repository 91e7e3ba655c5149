// Walks over units of coordinates in spans of at most kChunk, and sums of theirs in one order.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace tersor {

// Calls body(unit, begin, units, n): n coordinates from `begin` on of each of some units; units * n <= kChunk. Only
// where n is the whole of each are there more than one.
template <class Body>
void each_span(i64 d, i64 unit, const Body &body) {
  const i64 count = (d - 1) / unit + 1, whole = d / unit;
  const i64 per_unit = (unit - 1) / kChunk + 1, at_once = std::max<i64>(1, kChunk / unit);
  const i64 spans = unit > kChunk ? count * per_unit : (count - 1) / at_once + 1;
  constexpr i64 kBatch = 16;
  parallel_for((spans - 1) / kBatch + 1, [&](i64 task) {
    for (i64 span = task * kBatch; span < std::min(spans, (task + 1) * kBatch); ++span) {
      if (unit > kChunk) {
        const i64 u = span / per_unit, begin = span % per_unit * kChunk;
        const i64 n = std::min({unit - begin, d - u * unit - begin, kChunk});
        if (n > 0) body(u, begin, i64{1}, n);
        continue;
      }
      const i64 u = span * at_once, stop = std::min(whole, u + at_once);
      if (u < stop) body(u, i64{0}, stop - u, unit);
      if (stop == whole && whole < count && u + at_once > whole) body(whole, i64{0}, i64{1}, d - whole * unit);
    }
  });
}

// In groups of 16, each in order, then the groups in order.
inline double ordered_sum(const std::vector<double> &values, std::size_t first) {
  double total = 0;
  for (std::size_t i = first; i < values.size(); i += 32) {
    double group = 0;
    for (std::size_t j = i; j < std::min(values.size(), i + 32); j += 2) group += values[j];
    total += group;
  }
  return total;
}

// Pairs of sums of `parts` parts of each of `count` units become pairs of units.
inline void sum_parts(std::vector<double> &sums, i64 count, i64 parts) {
  if (parts == 1) return;
  for (i64 u = 0; u < count; ++u)
    for (int which = 0; which < 2; ++which) {
      double total = 0;
      for (i64 p = 0; p < parts; ++p) total += sums[static_cast<std::size_t>(2 * (u * parts + p) + which)];
      sums[static_cast<std::size_t>(2 * u + which)] = total;
    }
  sums.resize(static_cast<std::size_t>(2 * count));
}

}  // namespace tersor
