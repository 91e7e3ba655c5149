// The search of levels for rounding with shared randomness; kernels/reference/shared_levels.py says what it does.
//
// The estimator is that of R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik: "Better than Optimal: Improving
// Adaptive Stochastic Quantization Using Shared Randomness", SIGMETRICS 2026.
#include "shared_levels.h"

#include <algorithm>
#include <vector>

#include "pool.h"

namespace tersor {
namespace {

constexpr int kProbes = 2;
constexpr double kFirstProbe = 0.25, kInside = 0.05, kNarrow = 1e-9, kTolerance = 1e-4, kNoise = 1e-12;

struct Cost {
  double error, slope;
};

// One unit: windows of `l` among `n` levels `v`; window k has the mean t_k, and data in [t_k, t_(k+1)) are in segment k.
struct Search {
  i64 size, n;
  int l;
  double *v;
  std::vector<double> points, counts, sums, squares;
  std::vector<i64> hints;  // where thresholds were among the points when last seen

  Search(const double *x, const double *weights, i64 size_, double *levels, i64 count, int shared)
      : size(size_), n(count), l(shared), v(levels), points(static_cast<std::size_t>(size_)),
        counts(points.size() + 1), sums(counts.size()), squares(counts.size()),
        hints(static_cast<std::size_t>(count - shared + 1)) {
    const i64 middle = size / 2;
    const double centre = x[middle];
    for (i64 i = 0; i < size; ++i) points[at(i)] = x[i] - centre;
    for (i64 k = 0; k < n; ++k) v[k] -= centre;
    const auto weight = [=](i64 i) { return weights ? weights[i] : 1.0; };
    for (i64 i = middle; i < size; ++i) {
      const double w = weight(i), b = w * points[at(i)];
      counts[at(i + 1)] = counts[at(i)] + w;
      sums[at(i + 1)] = sums[at(i)] + b;
      squares[at(i + 1)] = squares[at(i)] + b * points[at(i)];
    }
    for (i64 i = middle - 1; i >= 0; --i) {
      const double w = weight(i), b = w * points[at(i)];
      counts[at(i)] = counts[at(i + 1)] - w;
      sums[at(i)] = sums[at(i + 1)] - b;
      squares[at(i)] = squares[at(i + 1)] - b * points[at(i)];
    }
  }

  static std::size_t at(i64 i) { return static_cast<std::size_t>(i); }
  i64 last() const { return n - l - 1; }  // segment

  double mean(i64 k) const {
    double total = v[k];
    for (i64 i = k + 1; i < k + l; ++i) total += v[i];
    return total / l;
  }

  // How many points are at most t, the mean of window k.
  i64 below(double t, i64 k) {
    if (k == 0) return 0;
    if (k == n - l) return size;
    i64 &hint = hints[at(k)];
    i64 low = 0, high = size, step = 1;  // points below `low` are at most t, those from `high` on are not
    if (hint < size && points[at(hint)] <= t) {
      low = hint + 1;
      while (low + step <= size && points[at(low + step - 1)] <= t) low += step, step *= 2;
      high = std::min(size, low + step);
    } else {
      high = hint;
      while (high - step >= 0 && !(points[at(high - step)] <= t)) high -= step, step *= 2;
      low = std::max<i64>(0, high - step);
    }
    while (low < high) {
      const i64 half = low + (high - low) / 2;
      if (points[at(half)] <= t) {
        low = half + 1;
      } else {
        high = half;
      }
    }
    return hint = low;
  }

  // The error of segments first .. final, and its derivative when v[m] rises, and v[other] (if not -1) falls as much.
  Cost cost(i64 first, i64 final, i64 m, i64 other) {
    Cost made{0, 0};
    double t = mean(first);
    i64 begin = below(t, first);
    for (i64 k = first; k <= final; ++k) {
      const double next = mean(k + 1);
      const i64 end = std::max(begin, below(next, k + 1));
      const double count = counts[at(end)] - counts[at(begin)];
      const double beyond = (sums[at(end)] - sums[at(begin)]) - t * count, ends = v[k] + v[k + l];
      double square = v[k] * v[k];
      for (i64 i = k + 1; i < k + l; ++i) square += v[i] * v[i];
      made.error += (square / l * count + ends * beyond) - (squares[at(end)] - squares[at(begin)]);
      made.slope += slope(k, m, count, beyond, ends);
      if (other >= 0) made.slope -= slope(k, other, count, beyond, ends);
      begin = end;
      t = next;
    }
    return made;
  }

  double slope(i64 k, i64 m, double count, double beyond, double ends) const {
    double made = 0;
    if (m >= k && m < k + l) made += count * (2 * v[m] - ends) / l;
    if (m == k || m == k + l) made += beyond;
    return made;
  }

  // Moves v[m] to a lower cost between its neighbours; one of the first l (last l) levels with v[0] (v[n - 1]) against it.
  void improve(i64 m) {
    const bool front = l > 1 && m < l, back = l > 1 && m >= n - l;
    const i64 other = front ? 0 : back ? n - 1 : -1, first = front ? 0 : m - l, final = back ? last() : std::min(m, last());
    double low = v[m - 1], high = v[m + 1];
    if (front) low = m == 1 ? v[1] - (v[1] - v[0]) / 2 : std::max(low, v[m] - (v[1] - v[0]));
    if (back) high = m == n - 2 ? v[m] + (v[n - 1] - v[m]) / 2 : std::min(high, v[m] + (v[n - 1] - v[n - 2]));
    if (!(high - low > kNarrow * (v[n - 1] - v[0]))) return;
    const double here = v[m], there = other >= 0 ? v[other] : 0;
    const Cost start = cost(first, final, m, other);
    const double end = start.slope > 0 ? low : high;
    if (start.slope == 0 || end == here) return;
    double best = here, least = start.error, y = here + (end - here) * kFirstProbe;
    double near = here, near_slope = start.slope, far = end, far_slope = 0;
    bool between = false;  // the minimum is between `near` and `far`
    for (int probe = 0; probe < kProbes; ++probe) {
      move(m, y, other, there - (y - here));
      const Cost now = cost(first, final, m, other);
      if (now.error < least) {
        least = now.error;
        best = y;
      }
      if (now.slope == 0) break;
      if ((now.slope > 0) == (start.slope > 0)) {
        near = y;
        near_slope = now.slope;
        if (!between) {
          if (y == end) break;
          y = end;
          continue;
        }
      } else {
        far = y;
        far_slope = now.slope;
        between = true;
      }
      const double share = near_slope / (near_slope - far_slope);
      y = near + (far - near) * std::min(std::max(share, kInside), 1 - kInside);
    }
    move(m, best, other, there - (best - here));
  }

  void move(i64 m, double to, i64 other, double other_to) {
    v[m] = to;
    if (other >= 0) v[other] = other_to;
  }

  void run(int sweeps) {
    const double centre_error = squares[at(size)] - squares[0];
    double before = cost(0, last(), 0, -1).error;
    for (int sweep = 0; sweep < sweeps && before > kNoise * centre_error; ++sweep) {
      for (i64 i = 1; i < n - 1; ++i) improve(sweep % 2 ? n - 1 - i : i);
      const double error = cost(0, last(), 0, -1).error;
      const bool enough = !(before - error > kTolerance * before);
      before = error;
      if (enough) break;
    }
  }
};

}  // namespace

void shared_search(const double *points, const double *weights, i64 units, i64 size, double *levels, i64 count,
                   int shared, int sweeps) {
  parallel_for(units, [=](i64 u) {
    const double *x = points + u * size;
    double *v = levels + u * count;
    Search search(x, weights ? weights + u * size : nullptr, size, v, count, shared);
    search.run(sweeps);
    for (i64 k = 0; k < count; ++k) v[k] += x[size / 2];
  });
}

}  // namespace tersor
