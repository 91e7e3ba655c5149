// Paths through candidate levels for squared error plus entropy; see reference/entropy.py.
#pragma once

#include "simd_types.h"

namespace tersor {

constexpr i64 kMostCandidates = 4096;       // three matrices of 128 MiB
constexpr i64 kMostPairs = i64{1} << 24;    // doubles that pair_path keeps: layers * m * (m - 1) / 2

struct EntropyProblem {
  i64 m;
  const double *cost, *up, *joint, *n;  // joint: not for pair_path and coded_path
  double multiplier;
  i64 most, starts, ends;
};

// Doubles of workspace.
constexpr i64 joint_room(i64 m, i64 most, i64 starts) { return ((most > 2 ? most - 1 : 1) + starts + 2) * m; }
constexpr i64 coded_room(i64 m, i64 levels) { return levels * m; }
constexpr i64 pair_best(i64 m, i64 most) { return (most > 2 ? most - 1 : 1) * (m * (m - 1) / 2); }
constexpr i64 pair_room(i64 m, i64 most) { return pair_best(m, most) + 3 * m; }

}  // namespace tersor
