// The Python side of rounding with shared randomness: the search of levels, and their codes.
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "shared_codes.h"
#include "shared_levels.h"
#include "uniform.h"

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

SharedDraws draws_of(i64 d, i64 unit, i64 levels, i64 codes, int bits, int shared, u64 key, u64 start, bool by_rows,
                     int turn, u64 private_key) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  check(shared >= 2 && shared <= 8, "shared must be 2 to 8");
  check(turn >= 0 && turn < shared, "turn is not below shared");
  check(unit >= 1 || d == 0, "unit must be positive");
  check(!by_rows || d == 0 || d % unit == 0, "rows of `unit` coordinates do not fill the array");
  check(by_rows || start <= UINT64_MAX - 4 * static_cast<u64>(d) - 64, "start is too large");
  const i64 units = d == 0 ? 0 : (d - 1) / unit + 1;
  check(levels == (units * shared) << bits, "levels: not shared * 2**bits a unit");
  check(codes == stream_bytes(d, unit, bits), "codes: not the size of the units' codes");
  return {key, private_key, shared, turn, by_rows};
}

std::pair<double, double> py_shared_encode(In<float> x, i64 unit, In<float> levels, int bits, int shared, u64 key,
                                           u64 start, bool by_rows, int turn, u64 private_key, u64 first,
                                           Out<u8> codes) {
  const i64 d = length(x);
  const SharedDraws draws = draws_of(d, unit, length(levels), length(codes), bits, shared, key, start, by_rows, turn,
                                     private_key);
  const f32u *from = x.data(), *of_levels = levels.data();
  u8 *to = codes.data();
  Running running;
  const LevelsResult made = shared_encode(draws, from, d, unit, of_levels, bits, start, first, to);
  return {made.error, made.energy};
}

void py_shared_decode(In<u8> codes, i64 unit, In<float> levels, int bits, int shared, u64 key, u64 start, bool by_rows,
                      int turn, double weight, bool add, In<u8> present, Out<float> out) {
  const i64 d = length(out);
  const SharedDraws draws = draws_of(d, unit, length(levels), length(codes), bits, shared, key, start, by_rows, turn, 0);
  if (length(present) != 0) check_length(present, d == 0 ? 0 : (d - 1) / unit + 1, "present");
  const u8 *from = codes.data(), *of_present = length(present) ? present.data() : nullptr;
  const f32u *of_levels = levels.data();
  f32u *to = out.data();
  Running running;
  shared_decode(draws, from, d, unit, of_levels, bits, start, weight, add, of_present, to);
}

}  // namespace

void bind_shared_levels(nb::module_ &m) {
  m.def("shared_search", py_shared_search, "points"_a.noconvert(), "weights"_a.noconvert(), "size"_a,
        "levels"_a.noconvert(), "count"_a, "shared"_a, "sweeps"_a);
  m.def("shared_encode", py_shared_encode, "x"_a.noconvert(), "unit"_a, "levels"_a.noconvert(), "bits"_a, "shared"_a,
        "key"_a, "start"_a, "by_rows"_a, "turn"_a, "private"_a, "first"_a, "codes"_a.noconvert());
  m.def("shared_decode", py_shared_decode, "codes"_a.noconvert(), "unit"_a, "levels"_a.noconvert(), "bits"_a,
        "shared"_a, "key"_a, "start"_a, "by_rows"_a, "turn"_a, "weight"_a, "add"_a, "present"_a.noconvert(),
        "out"_a.noconvert());
}

}  // namespace tersor
