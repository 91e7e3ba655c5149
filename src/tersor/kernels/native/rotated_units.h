// Walks over units with the draws of their rotation, several units a task.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "eden.h"
#include "pool.h"
#include "rotation.h"

namespace tersor {

struct RotationWorkspace {
  Draws draws;
  Buffer<float> values, other;
  void trim() {
    draws.trim();
    values.trim();
    other.trim();
  }
};
inline thread_local RotationWorkspace t_rotation;

inline int rounds_of(i64 padded, int rotations) { return padded == run_length(padded) ? rotations : mixing_rounds(padded); }

inline float norm_of(i64 padded, int rounds) {
  double power = 1;
  for (int r = 0; r < rounds; ++r) power *= static_cast<double>(run_length(padded));
  return static_cast<float>(1 / std::sqrt(power));
}

// Calls body(u, draws, scratch) for every unit, with the draws at its place.
template <class Body>
void each_unit(const Units &units, int rotations, const Body &body) {
  const i64 count = units.count();
  if (count == 0) return;
  std::shared_ptr<Draws> shared;
  if (units.by_rows) shared = row_draws(units.key, units.padded(0), rounds_of(units.padded(0), rotations));
  const i64 batch = std::max<i64>(1, 16 * kChunk / units.unit);
  parallel_for((count + batch - 1) / batch, [&](i64 task) {
    RotationWorkspace &scratch = t_rotation;
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
      body(u, units.by_rows ? *shared : scratch.draws, scratch);
    }
    scratch.trim();
  });
}

}  // namespace tersor
