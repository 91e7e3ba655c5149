// The Python side of the paths through candidate levels.
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "bindings.h"
#include "entropy.h"

namespace tersor {
namespace {

using Matrix = Array<const double, 2>;
using Path = Out<std::int32_t>;

void check_matrix(const Matrix &a, i64 m, const char *name) {
  if (static_cast<i64>(a.shape(0)) != m || static_cast<i64>(a.shape(1)) != m)
    throw std::invalid_argument(std::string(name) + " must be a square matrix with a row for each candidate");
}

// What every search needs: a backtrack ends only where the numbers are those of entropy_costs.
EntropyProblem problem(const Matrix &cost, const Matrix &up, const In<double> &n, double multiplier, i64 most,
                       i64 starts, i64 ends, const Path &path) {
  const i64 m = length(n);
  check(m >= 2 && m <= kMostCandidates, "there must be 2 to 4096 candidates");
  check_matrix(cost, m, "cost");
  check_matrix(up, m, "up");
  check_length(path, m, "path");
  check(multiplier >= 0 && multiplier < 1e100, "multiplier must be 0 to 1e100");
  check(most == 0 || (most >= 2 && most <= 256), "most must be 0, or 2 to 256");
  check(starts >= 1 && ends >= 1 && starts + ends <= m, "starts and ends must be positive and not overlap");
  for (i64 i = 0; i < m; ++i)
    check(std::isfinite(n.data()[i]) && n.data()[i] >= (i ? n.data()[i - 1] : 0.0), "n must ascend from 0 or more");
  check(n.data()[m - 1] > 0 && n.data()[m - 1] < 1e100, "n must end above 0");
  const double *c = cost.data(), *u = up.data(), *mass = n.data();
  bool good = true;  // of all, without a branch
  for (i64 i = 0; i < m; ++i)
    for (i64 j = i + 1; j < m; ++j)
      good &= (c[i * m + j] >= 0) & (c[i * m + j] < 1e100) & (u[i * m + j] >= 0) & (u[i * m + j] <= mass[j] - mass[i]);
  check(good, "cost or up is out of range");
  return {m, cost.data(), up.data(), nullptr, n.data(), multiplier, most, starts, ends};
}

std::unique_ptr<double[]> room_of(i64 doubles) { return std::make_unique<double[]>(static_cast<std::size_t>(doubles)); }

void py_log2(In<double> x, Out<double> out) {
  check_length(out, length(x), "out");
  const i64 n = length(x);
  const double *from = x.data();
  double *to = out.data();
  Running running;
  running.level.log2(from, n, to);
}

void py_entropy_costs(In<double> t, In<double> n, In<double> b, In<double> g, Array<double, 2> cost,
                      Array<double, 2> up, Array<double, 2> joint) {
  const i64 m = length(t);
  check(m >= 1 && m <= kMostCandidates, "there must be 1 to 4096 candidates");
  for (const auto *a : {&n, &b, &g}) check_length(*a, m, "a prefix sum");
  for (const auto *a : {&cost, &up, &joint})
    check(static_cast<i64>(a->shape(0)) == m && static_cast<i64>(a->shape(1)) == m, "results must be (m, m)");
  const double *pt = t.data(), *pn = n.data(), *pb = b.data(), *pg = g.data();
  double *pc = cost.data(), *pu = up.data(), *pj = joint.data();
  Running running;
  running.level.entropy_costs(pt, pn, pb, pg, m, pc, pu, pj);
}

std::tuple<i64, double> py_joint_path(Matrix cost, Matrix up, Matrix joint, In<double> n, double multiplier, i64 most, i64 starts,
                        i64 ends, Path path) {
  EntropyProblem p = problem(cost, up, n, multiplier, most, starts, ends, path);
  check_matrix(joint, p.m, "joint");
  p.joint = joint.data();
  bool good = true;
  for (i64 i = 0; i < p.m * p.m; ++i) good &= (p.joint[i] >= -1e100) & (p.joint[i] < 1e100);
  check(good, "joint is out of range");
  const auto room = room_of(joint_room(p.m, most, starts));
  std::int32_t *to = path.data();
  double minimum;
  i64 count;
  {
    Running running;
    count = running.level.joint_search(p, room.get(), to, &minimum);
  }
  return {count, minimum};
}

std::tuple<i64, double> py_coded_path(Matrix cost, Matrix up, In<double> n, In<double> lengths, In<std::int32_t> low,
                        In<std::int32_t> high, double multiplier, i64 starts, i64 ends, Path path) {
  const EntropyProblem p = problem(cost, up, n, multiplier, 0, starts, ends, path);
  const i64 levels = length(lengths);
  check(levels >= 2 && levels <= 256, "there must be 2 to 256 lengths");
  const double *from = lengths.data();
  for (i64 i = 0; i < levels; ++i) check(from[i] >= 0 && from[i] < 1e6, "lengths must be finite and not negative");
  check_length(low, levels, "low");
  check_length(high, levels, "high");
  const std::int32_t *first = low.data(), *last = high.data();
  for (i64 i = 0; i < levels; ++i) check(first[i] >= 0 && first[i] <= last[i] && last[i] < p.m, "low or high is out of range");
  const auto room = room_of(coded_room(p.m, levels));
  std::int32_t *to = path.data();
  double minimum;
  i64 count;
  {
    Running running;
    count = running.level.coded_search(p, from, first, last, levels, room.get(), to, &minimum);
  }
  return {count, minimum};
}

std::tuple<i64, double> py_pair_path(Matrix cost, Matrix up, In<double> n, double multiplier, i64 most, i64 starts, i64 ends,
                       Path path) {
  const EntropyProblem p = problem(cost, up, n, multiplier, most, starts, ends, path);
  check(pair_best(p.m, most) <= kMostPairs, "too many candidates and levels for an exact search");
  const auto room = room_of(pair_room(p.m, most));
  std::int32_t *to = path.data();
  double minimum;
  i64 count;
  {
    Running running;
    count = running.level.pair_search(p, room.get(), to, &minimum);
  }
  return {count, minimum};
}

}  // namespace

void bind_entropy(nb::module_ &m) {
  m.def("log2", py_log2, "x"_a.noconvert(), "out"_a.noconvert());
  m.def("entropy_costs", py_entropy_costs, "t"_a.noconvert(), "n"_a.noconvert(), "b"_a.noconvert(), "g"_a.noconvert(),
        "cost"_a.noconvert(), "up"_a.noconvert(), "joint"_a.noconvert());
  m.def("joint_path", py_joint_path, "cost"_a.noconvert(), "up"_a.noconvert(), "joint"_a.noconvert(),
        "n"_a.noconvert(), "multiplier"_a, "most"_a, "starts"_a, "ends"_a, "path"_a.noconvert());
  m.def("coded_path", py_coded_path, "cost"_a.noconvert(), "up"_a.noconvert(), "n"_a.noconvert(),
        "lengths"_a.noconvert(), "low"_a.noconvert(), "high"_a.noconvert(), "multiplier"_a, "starts"_a, "ends"_a, "path"_a.noconvert());
  m.def("pair_path", py_pair_path, "cost"_a.noconvert(), "up"_a.noconvert(), "n"_a.noconvert(), "multiplier"_a,
        "most"_a, "starts"_a, "ends"_a, "path"_a.noconvert());
}

}  // namespace tersor
