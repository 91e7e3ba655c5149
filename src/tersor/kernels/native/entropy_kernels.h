// Binary logarithms of basic operations, and the loops over pairs of candidates of reference/entropy.py.
#pragma once

#include <cfloat>

#include "doubles.h"
#include "entropy.h"

namespace tersor {
namespace {

TERSOR_INLINE D least(D a, D b) { return a < b ? a : b; }
TERSOR_INLINE D load_doubles(const double *p, i64 count, double rest) {
  if (count >= kDoubles) return *reinterpret_cast<const DU *>(p);
  D v = all_doubles(rest);
  for (i64 l = 0; l < count; ++l) v[l] = p[l];
  return v;
}
TERSOR_INLINE void store_doubles(double *p, i64 count, D v) {
  if (count >= kDoubles) {
    *reinterpret_cast<DU *>(p) = v;
  } else {
    for (i64 l = 0; l < count; ++l) p[l] = v[l];
  }
}

// 0 for what is not positive and normal.
TERSOR_INLINE D log2_of(D x) {
  x = x >= all_doubles(DBL_MIN) ? x : all_doubles(1.0);
  const N bits = (N)x;
  // The exponent's bits as the last of a double above 2^52, exact.
  const D e = (D)((bits >> 52) | (N)all_doubles(4503599627370496.0)) - (4503599627370496.0 + 1022.0);
  D m = (D)((bits & ((std::int64_t{1} << 52) - 1)) | (N)all_doubles(0.5));
  const N low = m < all_doubles(0.7071067811865476);
  m = low ? m + m : m;
  const D y = (m - 1.0) / (m + 1.0), z = y * y;
  D total = all_doubles(2.8853900817779268 / 21);
#pragma GCC unroll 10
  for (int k = 9; k >= 0; --k) total = total * z + 2.8853900817779268 / (2 * k + 1);
  return (e - (low ? all_doubles(1.0) : D{})) + y * total;
}
TERSOR_INLINE double log2_of(double x) { return log2_of(all_doubles(x))[0]; }
TERSOR_INLINE D phi(D mass, double whole) { return mass * (whole - log2_of(mass)); }
TERSOR_INLINE double phi(double mass, double whole) { return phi(all_doubles(mass), whole)[0]; }

void log2_chunk(const double *x, i64 n, double *out) {
  for (i64 i = 0; i < n; i += kDoubles) store_doubles(out + i, n - i, log2_of(load_doubles(x + i, n - i, 1.0)));
}

void entropy_costs_rows(const double *t, const double *n, const double *b, const double *g, i64 m, double *cost,
                        double *up, double *joint) {
  const double whole = log2_of(n[m - 1]);
  for (i64 k = 0; k < m; ++k) {
    for (i64 j = 0; j <= k; ++j) cost[k * m + j] = up[k * m + j] = joint[k * m + j] = 0;
    const D low = all_doubles(t[k]);
    for (i64 j = k + 1; j < m; j += kDoubles) {
      const i64 c = m - j;
      const D high = load_doubles(t + j, c, t[m - 1]);
      const D count = load_doubles(n + j, c, n[m - 1]) - n[k], first = load_doubles(b + j, c, b[m - 1]) - b[k],
              second = load_doubles(g + j, c, g[m - 1]) - g[k];
      const D price = ((low + high) * first - (low * high) * count) - second;
      D mass = (first - low * count) / (high - low);
      mass = mass > D{} ? mass : D{};
      mass = least(mass, count);
      store_doubles(cost + k * m + j, c, price > D{} ? price : D{});
      store_doubles(up + k * m + j, c, mass);
      store_doubles(joint + k * m + j, c, phi(mass, whole) + phi(count - mass, whole));
    }
  }
}

// The row and column of the least value among the last `ends` columns: the last column and the first row win.
TERSOR_INLINE double find_end(const double *best, i64 rows, i64 m, i64 ends, i64 &row, i64 &column) {
  double value = kInfinite;
  row = 0, column = m - 1;
  for (i64 j = m - 1; j >= m - ends; --j)
    for (i64 i = 0; i < rows; ++i)
      if (best[i * m + j] < value) value = best[i * m + j], row = i, column = j;
  return value;
}

TERSOR_INLINE i64 reverse(std::int32_t *path, i64 count) {
  for (i64 i = 0; i < count / 2; ++i) {
    const std::int32_t kept = path[i];
    path[i] = path[count - 1 - i], path[count - 1 - i] = kept;
  }
  return count;
}

i64 joint_search(const EntropyProblem &p, double *room, std::int32_t *path, double *minimum) {
  const i64 m = p.m, rows = p.most > 2 ? p.most - 1 : 1;
  const double whole = log2_of(p.n[m - 1]);
  double *best = room, *begin = room + rows * m, *step = begin + p.starts * m;
  for (i64 i = 0; i < (rows + p.starts) * m; ++i) room[i] = kInfinite;
  for (i64 k = 0; k < p.starts; ++k)
    for (i64 j = k + 1; j < m; j += kDoubles) {
      const i64 c = m - j;
      const D u = load_doubles(p.up + k * m + j, c, 0), n = load_doubles(p.n + j, c, 0);
      const D v = load_doubles(p.cost + k * m + j, c, 0) + p.multiplier * (phi(u, whole) + phi(n - u, whole));
      store_doubles(begin + k * m + j, c, v);
      store_doubles(best + j, c, least(load_doubles(best + j, c, 0), v));
    }
  for (i64 k = 0; k < m - 1; ++k) {
    const double *cost = p.cost + k * m, *joint = p.joint + k * m;
    for (i64 j = k + 1; j < m; ++j) step[j] = cost[j] + p.multiplier * joint[j];
    for (i64 i = 0; i < (p.most ? rows - 1 : 1); ++i) {
      const double before = best[i * m + k];
      if (before == kInfinite) continue;
      double *after = best + (p.most ? i + 1 : 0) * m;
      for (i64 j = k + 1; j < m; ++j) after[j] = before + step[j] < after[j] ? before + step[j] : after[j];
    }
  }
  i64 i, j, count = 0;
  *minimum = find_end(best, rows, m, p.ends, i, j);
  path[count++] = static_cast<std::int32_t>(j);
  for (;;) {
    i64 k = -1;
    if (i == 0)
      for (k = p.starts - 1; k >= 0 && begin[k * m + j] != best[j];) --k;
    if (k >= 0) {
      for (i64 lower = 0; lower < k; ++lower)
        if (begin[lower * m + j] == best[j]) k = lower;
      path[count++] = static_cast<std::int32_t>(k);
      return reverse(path, count);
    }
    const i64 before = p.most ? i - 1 : 0;
    for (k = 0; best[before * m + k] + (p.cost[k * m + j] + p.multiplier * p.joint[k * m + j]) != best[i * m + j];) ++k;
    j = k, i = before;
    path[count++] = static_cast<std::int32_t>(j);
  }
}

TERSOR_INLINE double coded(double cost, double up, double count, double low, double high) {
  return cost + (up * high + (count - up) * low);
}

i64 coded_search(const EntropyProblem &p, const double *lengths, const std::int32_t *from,
                 const std::int32_t *to, i64 levels, double *best, std::int32_t *path,
                 double *minimum) {
  const i64 m = p.m;
  for (i64 i = 0; i < levels * m; ++i) best[i] = kInfinite;
  for (i64 j = from[0]; j <= to[0] && j < p.starts; ++j) best[j] = p.n[j] * (p.multiplier * lengths[0]);
  for (i64 i = 1; i < levels; ++i) {
    const double low = p.multiplier * lengths[i - 1], high = p.multiplier * lengths[i];
    const double *before = best + (i - 1) * m;
    double *after = best + i * m;
    for (i64 j = from[i]; j <= to[i]; ++j) after[j] = before[j];
    for (i64 k = from[i - 1]; k <= to[i - 1] && k < to[i]; ++k) {
      const double start = before[k], below = p.n[k];
      if (start == kInfinite) continue;
      const double *cost = p.cost + k * m, *up = p.up + k * m;
      for (i64 j = k + 1 > from[i] ? k + 1 : from[i]; j <= to[i]; ++j) {
        const double v = start + coded(cost[j], up[j], p.n[j] - below, low, high);
        after[j] = v < after[j] ? v : after[j];
      }
    }
  }
  i64 i, j, count = 0;
  *minimum = find_end(best + (levels - 1) * m, 1, m, p.ends, i, j);
  if (*minimum == kInfinite) return 0;
  path[count++] = static_cast<std::int32_t>(j);
  for (i = levels - 1; i > 0; --i) {
    const double *before = best + (i - 1) * m;
    const double value = best[i * m + j];
    if (value == before[j]) continue;
    const double low = p.multiplier * lengths[i - 1], high = p.multiplier * lengths[i];
    i64 k = 0;
    while (before[k] + coded(p.cost[k * m + j], p.up[k * m + j], p.n[j] - p.n[k], low, high) != value) ++k;
    j = k;
    path[count++] = static_cast<std::int32_t>(j);
  }
  return reverse(path, count);
}

i64 pair_search(const EntropyProblem &p, double *room, std::int32_t *path, double *minimum) {
  const i64 m = p.m, rows = p.most > 2 ? p.most - 1 : 1, steps = p.most ? rows - 1 : 1, shift = p.most ? 1 : 0;
  const double whole = log2_of(p.n[m - 1]);
  double *best = room;  // [j, k, i]: paths of i + 2 levels that end with k < j
  double *column = room + pair_best(m, p.most), *bits = column + m;
  const auto at = [&](i64 j, i64 k) { return best + (j * (j - 1) / 2 + k) * rows; };
  for (i64 i = 0; i < pair_best(m, p.most); ++i) best[i] = kInfinite;
  for (i64 k = 0; k < p.starts; ++k)
    for (i64 j = k + 1; j < m; ++j)
      *at(j, k) = p.cost[k * m + j] + p.multiplier * phi(p.n[j] - p.up[k * m + j], whole);
  D sums[256];
  for (i64 j = 1; j < m - 1; ++j) {
    for (i64 k = 0; k < j; ++k) column[k] = p.up[k * m + j];
    const double *from = at(j, 0);
    for (i64 l = j + 1; l < m; l += kDoubles) {
      const i64 c = m - l < kDoubles ? m - l : kDoubles;
      const D down = (load_doubles(p.n + l, c, p.n[m - 1]) - p.n[j]) - load_doubles(p.up + j * m + l, c, 0);
      for (i64 i = 0; i < steps; ++i) sums[i] = all_doubles(kInfinite);
      if (steps == 1) {
        D sum = all_doubles(kInfinite);
        for (i64 k = 0; k < j; ++k) sum = least(sum, from[k * rows] + p.multiplier * phi(column[k] + down, whole));
        sums[0] = sum;
      } else {
        for (i64 k = 0; k < j; ++k) {
          const D v = p.multiplier * phi(column[k] + down, whole);
          const double *f = from + k * rows;
          for (i64 i = 0; i < steps; ++i) sums[i] = least(sums[i], f[i] + v);
        }
      }
      const D cost = load_doubles(p.cost + j * m + l, c, 0);
      for (i64 lane = 0; lane < c; ++lane) {
        double *to = at(l + lane, j) + shift;
        for (i64 i = 0; i < steps; ++i) {
          const double v = cost[lane] + sums[i][lane];
          to[i] = v < to[i] ? v : to[i];
        }
      }
    }
  }
  i64 i = 0, j = m - 1, k = 0, count = 0;
  *minimum = kInfinite;
  for (i64 e = m - 1; e >= m - p.ends && e > 0; --e) {
    for (i64 q = 0; q < e; ++q) bits[q] = p.multiplier * phi(p.up[q * m + e], whole);
    for (i64 r = 0; r < rows; ++r)
      for (i64 q = 0; q < e; ++q)
        if (at(e, q)[r] + bits[q] < *minimum) *minimum = at(e, q)[r] + bits[q], i = r, j = e, k = q;
  }
  path[count++] = static_cast<std::int32_t>(j);
  path[count++] = static_cast<std::int32_t>(k);
  for (;;) {
    const double value = at(j, k)[i];
    if (i == 0 && k < p.starts &&
        p.cost[k * m + j] + p.multiplier * phi(p.n[j] - p.up[k * m + j], whole) == value)
      return reverse(path, count);
    const i64 before = p.most ? i - 1 : 0;
    const double down = (p.n[j] - p.n[k]) - p.up[k * m + j];
    i64 q = 0;
    while (p.cost[k * m + j] + (at(k, q)[before] + p.multiplier * phi(p.up[q * m + k] + down, whole)) != value) ++q;
    j = k, k = q, i = before;
    path[count++] = static_cast<std::int32_t>(k);
  }
}

}  // namespace
}  // namespace tersor
