// Levels for rounding with shared randomness: the search that lowers their expected error one level at a time.
#pragma once

#include "simd_types.h"

namespace tersor {

// Each of `units` units has `size` ascending points with weights (null: 1), and `count` ascending levels that are changed.
void shared_search(const double *points, const double *weights, i64 units, i64 size, double *levels, i64 count,
                   int shared, int sweeps);

}  // namespace tersor
