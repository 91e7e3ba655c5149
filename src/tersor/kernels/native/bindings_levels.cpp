// The Python side of the search for levels.
#include <vector>

#include "bindings.h"
#include "level_search.h"

namespace tersor {
namespace {

i64 py_optimal_path(In<double> points, In<double> counts, In<double> sums, In<double> squares, i64 edges, bool clusters,
                    Out<i64> path) {
  const i64 n = length(points);
  check(n >= 1 && n <= i64{0xffffffff}, "points must have 1 to 2**32 - 1 elements");
  check_length(counts, n, "counts");
  check_length(sums, n, "sums");
  check_length(squares, n, "squares");
  check(edges >= 1, "edges must be positive");
  check_length(path, edges + 1, "path");
  const LevelProblem problem{n, points.data(), counts.data(), sums.data(), squares.data(), clusters};
  i64 *to = path.data();
  Running running;
  return optimal_path(problem, edges, to);
}

void py_optimal_rows(In<float> x, i64 row, i64 levels, bool clusters, Out<float> out) {
  const i64 n = length(x);
  check(row >= 1 && n % row == 0, "x must be whole rows of at least one value");
  check(levels >= 1 + !clusters && levels <= 256, "levels must be 2 to 256");
  check_length(out, n / row * levels, "out");
  const f32u *from = x.data();
  f32u *to = out.data();
  Running running;
  optimal_rows(from, n / row, row, levels, clusters, to);
}

bool py_key_histogram(In<float> x, float centre, Out<u64> counts, Out<u64> lows, Out<double> ends) {
  check_length(counts, 65536, "counts");
  check_length(lows, 65536, "lows");
  check_length(ends, 3, "ends");
  const f32u *from = x.data();
  const i64 n = length(x);
  u64u *to_counts = counts.data(), *to_lows = lows.data();
  f64u *to_ends = ends.data();
  Running running;
  return key_histogram(from, n, centre, to_counts, to_lows, to_ends) == 0;
}

i64 py_key_gather(In<float> x, float centre, In<u8> wanted, Out<float> out) {
  check_length(wanted, 65536, "wanted");
  const f32u *from = x.data();
  const i64 n = length(x), room = length(out);
  f32u *to = out.data();
  const u8 *flags = wanted.data();
  Running running;
  return key_gather(from, n, centre, flags, to, room);
}

}  // namespace

void bind_levels(nb::module_ &m) {
  m.def("optimal_path", py_optimal_path, "points"_a.noconvert(), "counts"_a.noconvert(), "sums"_a.noconvert(),
        "squares"_a.noconvert(), "edges"_a, "clusters"_a, "path"_a.noconvert());
  m.def("optimal_rows", py_optimal_rows, "x"_a.noconvert(), "row"_a, "levels"_a, "clusters"_a, "out"_a.noconvert());
  m.def("key_histogram", py_key_histogram, "x"_a.noconvert(), "centre"_a, "counts"_a.noconvert(), "lows"_a.noconvert(),
        "ends"_a.noconvert());
  m.def("key_gather", py_key_gather, "x"_a.noconvert(), "centre"_a, "wanted"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace tersor
