// Cheapest paths of a set number of edges: prices, one priced search after the other, and ties.
#include "level_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "workspace.h"

namespace tersor {
namespace {

constexpr i64 kLeast = 256, kPerEdge = 16;  // nodes of the coarser problem: at least, and at least for each edge
constexpr i64 kStep = 8;                    // but no coarser than this at once
constexpr double kNoise = 0x1p-48;          // costs below this share of their terms are rounding

struct Path {
  std::vector<i64> nodes;
  double cost = 0, price = 0;
  i64 edges() const { return static_cast<i64>(nodes.size()) - 1; }
};

double path_cost(const LevelProblem &p, const std::vector<i64> &path) {
  double total = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const i64 k = path[i], j = path[i + 1];
    const double n = p.counts[j] - p.counts[k], b = p.sums[j] - p.sums[k], g = p.squares[j] - p.squares[k];
    double first = 0, second, cost;
    if (p.clusters) {
      second = b * b / (n > 0 ? n : 1.0);
      cost = g - second;
    } else {
      first = (p.points[k] + p.points[j]) * b;
      second = p.points[k] * p.points[j] * n;
      cost = (first - second) - g;
    }
    if (cost > kNoise * (std::fabs(first) + std::fabs(second) + std::fabs(g))) total += cost;
  }
  return total;
}

// About the cube root of v, 0 if it is not positive: five steps of Newton's from a power of two above.
double cube_root(double v) {
  if (!(v > 0)) return 0.0;
  int exponent;
  std::frexp(v, &exponent);
  double y = std::ldexp(1.0, exponent >= 0 ? (exponent + 2) / 3 : -(-exponent / 3));
  for (int i = 0; i < 5; ++i) y = (2.0 * y + v / (y * y)) / 3.0;
  return y;
}

// Joins the start of one path and the end of another, both best for one price: as good, with `edges` edges. Between two
// edges of which one spans the other, the ends may be swapped at no cost (the quadrangle inequality).
std::vector<i64> splice(const std::vector<i64> &few, const std::vector<i64> &many, i64 edges) {
  const std::size_t ahead = many.size() - 1 - static_cast<std::size_t>(edges);
  std::size_t i = 0;
  while (many[i + ahead + 1] > few[i + 1]) ++i;
  std::vector<i64> joined(few.begin(), few.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  joined.insert(joined.end(), many.begin() + static_cast<std::ptrdiff_t>(i + ahead) + 1, many.end());
  return joined;
}

class Search {
 public:
  Search(const LevelProblem &problem, i64 edges) : p_(problem), edges_(edges) {}

  // The cheapest path; its price is one that gives its number of edges, or one near it.
  Path run() {
    const i64 last = p_.n - 1;
    Path few, many;  // of too few and of too many edges
    many.nodes.resize(static_cast<std::size_t>(p_.n));
    for (i64 i = 0; i <= last; ++i) many.nodes[static_cast<std::size_t>(i)] = i;
    if (last <= edges_) return many;
    few.nodes = {0, last};
    few.cost = path_cost(p_, few.nodes);
    few.price = std::numeric_limits<double>::infinity();
    many.cost = path_cost(p_, many.nodes);
    const double count = static_cast<double>(edges_);
    double price = first_price();
    prepare();
    for (int turn = 1; few.edges() != edges_ && few.cost > 0; ++turn) {
      // A guess, with costs as 1 / edges^2; or, last or where guesses help no more, the price at which both paths are
      // equally good: if it gives no path between them, none is better by more than rounding.
      const bool inside = many.price < price && price < few.price;
      const bool tied = !inside || (turn > 6 && turn % 2 == 0) || (many.price > 0 && many.edges() - few.edges() < 4);
      if (tied) price = (few.cost - many.cost) / static_cast<double>(many.edges() - few.edges());
      Path path = priced(price);
      const i64 n = path.edges();
      if (n == edges_) return path;
      if (tied && !(few.edges() < n && n < many.edges())) {
        path.nodes = splice(few.nodes, many.nodes, edges_);
        return path;
      }
      if (n < edges_ && n > few.edges()) {
        path.cost = path_cost(p_, path.nodes);
        few = std::move(path);
      } else if (n > edges_ && n < many.edges()) {
        path.cost = path_cost(p_, path.nodes);
        many = std::move(path);
      }
      const double ratio = static_cast<double>(n) / count;
      price *= ratio * ratio * ratio;
    }
    few.price = price;
    return few;
  }

 private:
  // The first price: that of a coarser problem, exact for the same data over fewer candidates. Of few candidates one from
  // the density of the data: with many edges they cost A / edges^2, A = (integral of density^(1/3))^3 / 6 (clusters: / 12).
  double first_price() const {
    i64 step = p_.n / std::max(kLeast, kPerEdge * edges_);
    if (step < 4) {
      const i64 last = p_.n - 1;
      double total = 0;
      for (i64 g = 0; g < 16; ++g) {
        const i64 k = last * g / 16, j = last * (g + 1) / 16;
        const double width = p_.points[j] - p_.points[k];
        total += cube_root((p_.counts[j] - p_.counts[k]) * width * width);
      }
      const double count = static_cast<double>(edges_);
      return total * total * total / (p_.clusters ? 6.0 : 3.0) / (count * count * count);
    }
    step = std::min(step, kStep);
    std::vector<double> kept[4];
    const f64u *const from[4] = {p_.points, p_.counts, p_.sums, p_.squares};
    for (int a = 0; a < 4; ++a) {
      for (i64 i = 0; i < p_.n - 1; i += step) kept[a].push_back(from[a][i]);
      kept[a].push_back(from[a][p_.n - 1]);
    }
    const LevelProblem coarser{static_cast<i64>(kept[0].size()), kept[0].data(), kept[1].data(),
                               kept[2].data(), kept[3].data(), p_.clusters};
    return Search(coarser, edges_).run().price;
  }

  void prepare() {
    const i64 n = p_.n, room = (n + 7) / 8 * 8;
    if (n <= kFewNodes) {
      double *to = copies_.get(3 * room);
      for (const f64u **from : {&p_.points, &p_.counts, &p_.sums}) {
        std::fill(std::copy(*from, *from + n, to), to + room, 0.0);
        *from = to;
        to += room;
      }
    }
    double *moments = moments_.get(room), *best = best_.get(room);
    start_.get(room);
    std::fill(before_.get(room), before_.get(room) + room, 0);
    for (i64 i = 0; i < n; ++i) moments[i] = p_.counts[i] * p_.points[i] - p_.sums[i];
    std::fill(moments + n, moments + room, 0.0);
    std::fill(best + n, best + room, 0.0);
  }

  Path priced(double price) {
    const u32 *before = before_.get(p_.n);
    kernels().price_nodes(p_, price, {moments_.data(), start_.get(p_.n), best_.get(p_.n), before_.get(p_.n)});
    Path path;
    path.price = price;
    for (i64 j = p_.n - 1; j; j = before[j]) path.nodes.push_back(j);
    path.nodes.push_back(0);
    std::reverse(path.nodes.begin(), path.nodes.end());
    return path;
  }

  LevelProblem p_;
  i64 edges_;
  Buffer<double> copies_, moments_, start_, best_;
  Buffer<u32> before_;
};

}  // namespace

i64 optimal_path(const LevelProblem &problem, i64 edges, i64 *path) {
  const Path found = Search(problem, edges).run();
  std::copy(found.nodes.begin(), found.nodes.end(), path);
  return found.edges();
}

}  // namespace tersor
