// The Python side of levels for rounding with shared randomness.
#include "bindings.h"
#include "shared_levels.h"

namespace tersor {
namespace {

void py_shared_search(In<double> points, In<double> weights, i64 size, Out<double> levels, i64 count, int shared,
                      int sweeps) {
  check(shared >= 1 && count >= 2 * i64{shared}, "there must be two levels for each shared value");
  check(length(levels) % count == 0, "levels do not fill units");
  const i64 units = length(levels) / count;
  check(size >= 1 || units == 0, "a unit has no points");
  check(units == 0 || (length(points) % units == 0 && length(points) / units == size), "points do not fill the units");
  if (length(weights) != 0) check_length(weights, length(points), "weights");
  const double *of_points = points.data(), *of_weights = length(weights) ? weights.data() : nullptr;
  double *to = levels.data();
  Running running;
  shared_search(of_points, of_weights, units, size, to, count, shared, sweeps);
}

}  // namespace

void bind_shared_levels(nb::module_ &m) {
  m.def("shared_search", py_shared_search, "points"_a.noconvert(), "weights"_a.noconvert(), "size"_a,
        "levels"_a.noconvert(), "count"_a, "shared"_a, "sweeps"_a);
}

}  // namespace tersor
