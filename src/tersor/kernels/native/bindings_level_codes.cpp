// The Python side of levels of each unit's own.
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "level_codes.h"
#include "uniform.h"

namespace tersor {
namespace {

void check_levels(i64 d, i64 unit, i64 levels, i64 codes, int bits) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  check(unit >= 1 || d == 0, "unit must be positive");
  const i64 units = d == 0 ? 0 : (d - 1) / unit + 1;
  check(levels == units << bits, "levels: not 2**bits a unit");
  check(codes == stream_bytes(d, unit, bits), "codes: not the size of the units' codes");
}

std::pair<double, double> py_levels_encode(In<float> x, i64 unit, In<float> levels, int bits, u64 key, u64 first,
                                           bool stochastic, Out<u8> codes) {
  const i64 d = length(x);
  check_levels(d, unit, length(levels), length(codes), bits);
  const f32u *from = x.data(), *of_levels = levels.data();
  u8 *to = codes.data();
  Running running;
  const LevelsResult made = levels_encode(from, d, unit, of_levels, bits, key, first, stochastic, to);
  return {made.error, made.energy};
}

void py_levels_decode(In<u8> codes, i64 unit, In<float> levels, int bits, double weight, bool add, In<u8> present,
                      Out<float> out) {
  const i64 d = length(out);
  check_levels(d, unit, length(levels), length(codes), bits);
  if (length(present) != 0) check_length(present, d == 0 ? 0 : (d - 1) / unit + 1, "present");
  const u8 *from = codes.data(), *of_present = length(present) ? present.data() : nullptr;
  const f32u *of_levels = levels.data();
  f32u *to = out.data();
  Running running;
  levels_decode(from, d, unit, of_levels, bits, weight, add, of_present, to);
}

}  // namespace

void bind_level_codes(nb::module_ &m) {
  m.def("levels_encode", py_levels_encode, "x"_a.noconvert(), "unit"_a, "levels"_a.noconvert(), "bits"_a, "key"_a,
        "first"_a, "stochastic"_a, "codes"_a.noconvert());
  m.def("levels_decode", py_levels_decode, "codes"_a.noconvert(), "unit"_a, "levels"_a.noconvert(), "bits"_a,
        "weight"_a, "add"_a, "present"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace tersor
