// The best levels for given data: cheapest paths of a set number of edges over candidates (FORMAT.md section 11).
#pragma once

#include "simd_types.h"

namespace tersor {

typedef double f64u __attribute__((aligned(1), may_alias));

constexpr i64 kFewNodes = 256;  // up to which every candidate is tried

// Candidates in ascending order, and mass, first and second moment of the data up to each, from any origin. An edge
// costs, with clusters, the data's squared distance from their mean, else the variance of rounding to its two ends.
struct LevelProblem {
  i64 n;
  const f64u *points, *counts, *sums, *squares;
  bool clusters;
};

// What a priced search writes, one value a node; `moments` is counts * points - sums. Up to kFewNodes nodes all arrays, the
// problem's too, have room for a multiple of 8.
struct LevelNodes {
  const double *moments;
  double *start, *best;
  u32 *before;
};

// Writes the nodes of a cheapest path with at most `edges` edges (room for edges + 1) and returns how many edges it has.
i64 optimal_path(const LevelProblem &problem, i64 edges, i64 *path);

// The best levels of each row of n sorted values, ascending, the last one repeated where fewer are as good.
void optimal_rows(const f32u *x, i64 rows, i64 n, i64 levels, bool clusters, f32u *out);

// Adds to `counts` and `lows` how many x - centre fall into each of 2^16 cells, by the upper half of their bits in the
// order of values, and the sum of the lower halves. `ends`: least and greatest x, and the sum of squares of
// what the lower halves stand for.
// Returns 0, or 1 if there is a NaN or infinity; then nothing else is defined.
i64 key_histogram(const f32u *x, i64 n, float centre, u64u *counts, u64u *lows, f64u *ends);

// Copies those x - centre whose cell is wanted, in order; returns how many, or -1 if there are more than `room`.
i64 key_gather(const f32u *x, i64 n, float centre, const u8 *wanted, f32u *out, i64 room);

}  // namespace tersor
