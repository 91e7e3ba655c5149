// The priced search: row minima of a matrix that becomes known from left to right, by halving.
#pragma once

#include <limits>

#include "level_search.h"
#include "simd.h"

namespace tersor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kDoubles = kLanes / 2;
typedef double D __attribute__((vector_size(kLanes * 4)));
typedef double DU __attribute__((vector_size(kLanes * 4), aligned(1), may_alias));
typedef std::int64_t N __attribute__((vector_size(kLanes * 4)));

TERSOR_INLINE D load_doubles(const f64u *p) { return *reinterpret_cast<const DU *>(p); }
TERSOR_INLINE D all_doubles(double v) { return v - D{}; }

template <bool Clusters>
struct PricedSearch {
  const LevelProblem &problem;
  const LevelNodes &nodes;
  double price;

  // The candidates first .. end for node j; of equal ones the earliest stays.
  void compare(i64 j, i64 first, i64 end) const {
    double least = nodes.best[j];
    i64 where = -1, k = first;
    const double xj = problem.points[j], mj = nodes.moments[j], nj = problem.counts[j], bj = problem.sums[j];
    if (end - first + 1 >= 2 * kDoubles) {
      D low[2] = {all_doubles(least), all_doubles(least)};
      N at[2] = {N{} - 1, N{} - 1};
      i64 step = 0;
      for (; k + 2 * kDoubles <= end + 1; k += 2 * kDoubles, ++step)
        for (int h = 0; h < 2; ++h) {
          const i64 i = k + h * kDoubles;
          D value;
          if constexpr (Clusters) {
            const D n = nj - load_doubles(problem.counts + i), b = bj - load_doubles(problem.sums + i);
            value = load_doubles(nodes.start + i) - b * b / (n > 0 ? n : all_doubles(1));
          } else {
            value = (load_doubles(nodes.start + i) - load_doubles(problem.points + i) * mj) +
                    load_doubles(nodes.moments + i) * xj;
          }
          const N better = value < low[h];
          low[h] = better ? value : low[h];
          at[h] = better ? N{} + step : at[h];
        }
      for (int h = 0; h < 2; ++h)
        for (int l = 0; l < kDoubles; ++l) {
          if (at[h][l] < 0) continue;
          const i64 i = first + (at[h][l] * 2 + h) * kDoubles + l;
          if (low[h][l] < least || (low[h][l] == least && where >= 0 && i < where)) {
            least = low[h][l];
            where = i;
          }
        }
    }
    for (; k <= end; ++k) {
      double value;
      if constexpr (Clusters) {
        const double n = nj - problem.counts[k], b = bj - problem.sums[k];
        value = nodes.start[k] - b * b / (n > 0 ? n : 1.0);
      } else {
        value = (nodes.start[k] - problem.points[k] * mj) + nodes.moments[k] * xj;
      }
      if (value < least) {
        least = value;
        where = k;
      }
    }
    if (where >= 0) {
      nodes.best[j] = least;
      nodes.before[j] = static_cast<u32>(where);
    }
  }

  // Node j has seen all its candidates and becomes one.
  void settle(i64 j) const {
    const double moment = problem.points[j] * problem.sums[j];
    if constexpr (Clusters)
      nodes.start[j] = j ? nodes.best[j] + price : problem.squares[0];
    else
      nodes.start[j] = (j ? nodes.best[j] + (moment + price) : problem.squares[0]) - moment;
  }

  // Settles the nodes between; `left` is settled, `right` has seen the candidates up to it.
  void halve(i64 left, i64 right) const {
    if (right - left == 1) return;
    const i64 middle = (left + right) / 2;
    compare(middle, nodes.before[left], nodes.before[right]);
    halve(left, middle);
    settle(middle);
    compare(right, left + 1, middle);
    halve(middle, right);
  }

  // Candidate k for all later nodes: the faster way round where nodes are few. Blocks always begin at the same nodes, so
  // that what one candidate stores the next one loads whole; settled nodes have -infinity there and stay as they are.
  void offer(i64 k) const {
    const double start = nodes.start[k], xk = problem.points[k], mk = nodes.moments[k], nk = problem.counts[k],
                 bk = problem.sums[k];
    for (i64 j = (k + 1) / kDoubles * kDoubles; j < problem.n; j += kDoubles) {
      D value;
      if constexpr (Clusters) {
        const D n = load_doubles(problem.counts + j) - nk, b = load_doubles(problem.sums + j) - bk;
        value = start - b * b / (n > 0 ? n : all_doubles(1));
      } else {
        value = (start - xk * load_doubles(nodes.moments + j)) + mk * load_doubles(problem.points + j);
      }
      keep_better(j, value, static_cast<u32>(k));
    }
  }

  __attribute__((always_inline)) void keep_better(i64 j, D value, u32 k) const {
#if defined(__AVX512F__)
    const __m512d best = _mm512_loadu_pd(nodes.best + j);
    const __mmask8 better = _mm512_cmp_pd_mask((__m512d)value, best, _CMP_LT_OQ);
    __m256i *before = reinterpret_cast<__m256i *>(nodes.before + j);
    _mm512_storeu_pd(nodes.best + j, _mm512_mask_mov_pd(best, better, (__m512d)value));
    _mm256_storeu_si256(before, _mm256_mask_mov_epi32(_mm256_loadu_si256(before), better,
                                                      _mm256_set1_epi32(static_cast<int>(k))));
#else
    for (int l = 0; l < kDoubles; ++l) {
      const bool better = value[l] < nodes.best[j + l];
      nodes.best[j + l] = better ? value[l] : nodes.best[j + l];
      nodes.before[j + l] = better ? k : nodes.before[j + l];
    }
#endif
  }

  void run() const {
    for (i64 j = 0; j < problem.n; ++j) nodes.best[j] = kInfinite;
    nodes.before[0] = 0;
    settle(0);
    if (problem.n <= kFewNodes) {
      nodes.best[0] = -kInfinite;
      for (i64 k = 0; k + 1 < problem.n; ++k) {
        offer(k);
        settle(k + 1);
        nodes.best[k + 1] = -kInfinite;
      }
    } else {
      compare(problem.n - 1, 0, 0);
      halve(0, problem.n - 1);
    }
  }
};

// Fills `nodes` with the cheapest way to every node at `price` an edge.
void price_nodes(const LevelProblem &problem, double price, const LevelNodes &nodes) {
  if (problem.clusters)
    PricedSearch<true>{problem, nodes, price}.run();
  else
    PricedSearch<false>{problem, nodes, price}.run();
}

// A level between those at nodes k and n - 1 in closed form: the first value with as many at or below it as the
// slope of the cost asks for ("Optimal and Approximate Adaptive Stochastic Quantization", Section 5).
struct MiddleLevel {
  const double *x, *sums;
  i64 last;

  TERSOR_INLINE D gather(const double *from, N at) {
#if defined(__AVX512F__)
    return (D)_mm512_i64gather_pd((__m512i)at, from, 8);
#elif defined(__AVX2__)
    return (D)_mm256_i64gather_pd(from, (__m256i)at, 8);
#else
    D v;
    for (int l = 0; l < kDoubles; ++l) v[l] = from[at[l]];
    return v;
#endif
  }
  TERSOR_INLINE D ceiling(D v) {
#if defined(__AVX512F__)
    return (D)_mm512_roundscale_pd((__m512d)v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (D)_mm256_ceil_pd((__m256d)v);
#else
    for (int l = 0; l < kDoubles; ++l) v[l] = __builtin_ceil(v[l]);
    return v;
#endif
  }

  // `k` holds kDoubles successive nodes as doubles, `ki` as integers.
  __attribute__((always_inline)) void place(D xk, D bk, D k, N ki, D &cost, N &at) const {
    const D xj = all_doubles(x[last]), bj = all_doubles(sums[last]), left = static_cast<double>(last) - k;
    const D gap = xj - xk, need = left * xj - (bj - bk);
    D up = ceiling(need / (gap > 0 ? gap : all_doubles(1)));
    up = up < 0 ? D{} : up;
    up = up > left ? left : up;
    const D one = all_doubles(0x1p52);
    at = ki + ((N)(up + one) - (N)one);
    const D xb = gather(x, at), bb = gather(sums, at);
    cost = ((xk + xb) * (bb - bk) - xk * xb * up) + ((xb + xj) * (bj - bb) - xb * xj * (left - up));
  }
};

// Three or four levels of n sorted values x, with prefix sums from the first on: the places of those inside.
void few_levels(const double *x, const double *sums, i64 n, i64 levels, i64 *places) {
  const MiddleLevel middle{x, sums, n - 1};
  D cost, low = all_doubles(kInfinite);
  N at, best{}, best_at{}, lane;
  for (int l = 0; l < kDoubles; ++l) lane[l] = l;
  if (levels == 3) {
    middle.place(all_doubles(x[0]), all_doubles(sums[0]), D{}, N{}, cost, at);
    places[0] = places[1] = at[0];
    return;
  }
  double least = kInfinite;
  i64 begin = 0;
  for (; begin + kDoubles <= n; begin += kDoubles) {
    const N ki = lane + begin;
    const D k = __builtin_convertvector(ki, D), xk = load_doubles(x + begin), bk = load_doubles(sums + begin);
    middle.place(xk, bk, k, ki, cost, at);
    const D total = ((x[0] + xk) * bk - x[0] * xk * k) + cost;
    const N better = total < low;
    low = better ? total : low;
    best = better ? ki : best;
    best_at = better ? at : best_at;
  }
  for (int l = 0; l < kDoubles; ++l)
    if (low[l] < least || (low[l] == least && best[l] < places[0])) {
      least = low[l];
      places[0] = best[l];
      places[1] = best_at[l];
    }
  for (i64 i = begin; i < n; ++i) {
    const D k = all_doubles(static_cast<double>(i)), xk = all_doubles(x[i]), bk = all_doubles(sums[i]);
    middle.place(xk, bk, k, N{} + i, cost, at);
    const double total = ((x[0] + x[i]) * sums[i] - x[0] * x[i] * static_cast<double>(i)) + cost[0];
    if (total < least) {
      least = total;
      places[0] = i;
      places[1] = at[0];
    }
  }
}

}  // namespace
}  // namespace tersor
