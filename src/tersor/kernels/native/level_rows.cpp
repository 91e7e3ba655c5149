// The best levels of many short rows: three and four levels in closed form, others by the search over candidates.
#include <algorithm>
#include <cmath>
#include <vector>

#include "dispatch.h"
#include "level_search.h"
#include "pool.h"

namespace tersor {
namespace {

// The power of two that brings a magnitude into [1/2, 1).
double scale_of(double magnitude) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  return std::ldexp(1.0, -exponent);
}

struct RowWork {
  std::vector<double> points, counts, sums, squares;
  std::vector<float> values;
  std::vector<i64> path;
};

// Turns the cells of n nodes into prefix sums counted from a middle node: what lies far out on one side does not blur the
// other. Returns the sum before the first node.
double from_middle(double *a, std::size_t n, std::size_t middle) {
  double total = 0, next = a[middle];
  for (std::size_t i = middle + 1; i < n; ++i) a[i] = total += a[i];
  total = 0;
  for (std::size_t i = middle; i-- > 0;) {
    const double cell = a[i];
    a[i] = total -= next;
    next = cell;
  }
  a[middle] = 0;
  return total - next;
}

// Three or four levels: their places in the row.
i64 few_levels(const f32u *x, i64 n, i64 levels, RowWork &w, f32u *out) {
  const double centre = x[n / 2];
  const double scale = scale_of(std::max(std::fabs(x[0] - centre), std::fabs(x[n - 1] - centre)));
  w.points.resize(static_cast<std::size_t>(n));
  w.sums.resize(static_cast<std::size_t>(n));
  double *p = w.points.data(), *sums = w.sums.data(), sum = 0;
  for (i64 i = 0; i < n; ++i) p[i] = (x[i] - centre) * scale;
  sums[0] = 0;
  for (i64 i = 1; i < n; ++i) sums[i] = sum += p[i];
  i64 places[2];
  kernels().few_levels(p, sums, n, levels, places);
  const float found[4] = {x[0], x[places[0]], x[places[1]], x[n - 1]};
  i64 m = 0;
  for (const float v : found)
    if (!m || v != out[m - 1]) out[m++] = v;
  return m;
}

i64 searched(const f32u *x, i64 n, i64 levels, bool clusters, i64 distinct, RowWork &w, f32u *out) {
  const auto m = static_cast<std::size_t>(distinct), extra = static_cast<std::size_t>(clusters);
  w.values.resize(m);
  for (auto *a : {&w.points, &w.counts, &w.sums, &w.squares}) a->resize(m + extra);
  double *p = w.points.data() + extra, *counts = w.counts.data() + extra, *sums = w.sums.data() + extra,
         *squares = w.squares.data() + extra;
  std::size_t at = 0;
  for (i64 i = 0; i < n; ++i) {
    if (i == 0 || x[i] != x[i - 1]) {
      w.values[at] = x[i];
      counts[at++] = 0;
    }
    counts[at - 1] += 1;
  }
  const std::size_t middle = m / 2;
  const double centre = w.values[middle];
  const double scale = scale_of(std::max(std::fabs(w.values[0] - centre), std::fabs(w.values[m - 1] - centre)));
  for (std::size_t i = 0; i < m; ++i) {
    p[i] = (w.values[i] - centre) * scale;
    sums[i] = counts[i] * p[i];
    squares[i] = sums[i] * p[i];
  }
  for (double *a : {counts, sums, squares}) {
    const double front = from_middle(a, m, middle);
    if (clusters) a[-1] = front;
  }
  if (clusters) w.points[0] = p[0];
  const i64 edges = clusters ? levels : levels - 1;
  w.path.resize(static_cast<std::size_t>(edges) + 1);
  const LevelProblem problem{static_cast<i64>(m + extra), w.points.data(), w.counts.data(), w.sums.data(),
                             w.squares.data(), clusters};
  const i64 used = optimal_path(problem, edges, w.path.data());
  i64 made = 0;
  if (!clusters) {
    for (; made <= used; ++made) out[made] = w.values[static_cast<std::size_t>(w.path[static_cast<std::size_t>(made)])];
  } else {
    for (; made < used; ++made) {
      const auto k = static_cast<std::size_t>(w.path[static_cast<std::size_t>(made)]),
                 j = static_cast<std::size_t>(w.path[static_cast<std::size_t>(made) + 1]);
      out[made] = static_cast<float>(centre + (w.sums[j] - w.sums[k]) / (w.counts[j] - w.counts[k]) / scale);
    }
  }
  return made;
}

void one_row(const f32u *x, i64 n, i64 levels, bool clusters, RowWork &w, f32u *out) {
  i64 distinct = 1;
  for (i64 i = 1; i < n; ++i) distinct += x[i] != x[i - 1];
  i64 made = 0;
  if (distinct <= levels) {
    for (i64 i = 0; i < n; ++i)
      if (i == 0 || x[i] != x[i - 1]) out[made++] = x[i];
  } else if (!clusters && levels == 2) {
    out[made++] = x[0];
    out[made++] = x[n - 1];
  } else if (!clusters && levels <= 4) {
    made = few_levels(x, n, levels, w, out);
  } else {
    made = searched(x, n, levels, clusters, distinct, w, out);
  }
  for (; made < levels; ++made) out[made] = out[made - 1];
}

}  // namespace

void optimal_rows(const f32u *x, i64 rows, i64 n, i64 levels, bool clusters, f32u *out) {
  const i64 group = std::max<i64>(1, 8192 / n), groups = (rows + group - 1) / group;
  parallel_for(groups, [&](i64 g) {
    thread_local RowWork work;
    for (i64 r = g * group; r < std::min(rows, (g + 1) * group); ++r)
      one_row(x + r * n, n, levels, clusters, work, out + r * levels);
  });
}

}  // namespace tersor
