// The Python side of THC.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "rotation.h"
#include "thc.h"
#include "uniform.h"

namespace tersor {
namespace {

Units thc_units(i64 d, i64 unit, u64 key, u64 start, bool by_rows) {
  check(unit >= 1 || d == 0, "unit must be positive");
  check(!by_rows || d == 0 || d % unit == 0, "rows of `unit` coordinates do not fill the array");
  check(by_rows || start <= UINT64_MAX - 4 * static_cast<u64>(d) - 64, "start is too large");
  Units units;
  units.d = d;
  units.unit = d == 0 ? 1 : std::min(unit, d);
  check(units.padded(0) <= i64{UINT32_MAX}, "unit is too long");
  units.key = key;
  units.start = start;
  units.by_rows = by_rows;
  return units;
}

i64 thc_bytes(const Units &units, int width) {
  const i64 count = units.count();
  return count == 0 ? 0
                    : (count - 1) * packed_bytes(units.padded(0), width) + packed_bytes(units.padded(count - 1), width);
}

ThcGrid thc_grid(const In<std::uint16_t> &table, double spread, int bits) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  check_length(table, i64{1} << bits, "table");
  const u16u *values = table.data();
  check(values[0] == 0, "the table must begin with 0");
  for (int z = 1; z < 1 << bits; ++z) check(values[z] > values[z - 1], "the table must ascend");
  check(std::isfinite(spread), "spread must be finite");
  return {values, spread, bits};
}

void check_width(int width) { check(width >= 1 && width <= 32, "widths must be 1 to 32"); }

void py_unit_rms(In<float> x, i64 unit, bool full, Out<float> out) {
  Units units = thc_units(length(x), unit, 0, 0, false);
  units.full = full;
  check_length(out, units.count(), "out");
  const f32u *from = x.data();
  f32u *to = out.data();
  Running running;
  unit_rms(units, from, to);
}

double py_thc_encode(In<float> x, i64 unit, u64 key, u64 start, bool by_rows, int rotations, In<float> rms, In<std::uint16_t> table,
                     double spread, int bits, u64 private_key, u64 first, Out<u8> codes) {
  const Units units = thc_units(length(x), unit, key, start, by_rows);
  check(rotations >= 1 && rotations <= kMaxRounds, "rotations must be 1 to 3");
  const ThcGrid grid = thc_grid(table, spread, bits);
  check_length(rms, units.count(), "rms");
  check_length(codes, thc_bytes(units, bits), "codes");
  const f32u *from = x.data(), *of_rms = rms.data();
  for (i64 u = 0; u < units.count(); ++u) check(of_rms[u] >= 0 && std::isfinite(of_rms[u]), "rms must be finite");
  u8 *to = codes.data();
  Running running;
  return thc_encode(units, rotations, grid, from, of_rms, private_key, first, to);
}

void py_thc_decode(In<u8> codes, i64 unit, u64 key, u64 start, bool by_rows, int rotations, In<float> rms, In<std::uint16_t> table,
                   double spread, int bits, int width, i64 shift, In<u32> counts, double weight, bool add, Out<float> out) {
  const Units units = thc_units(length(out), unit, key, start, by_rows);
  check(rotations >= 1 && rotations <= kMaxRounds, "rotations must be 1 to 3");
  check_width(width);
  const ThcGrid grid = thc_grid(table, spread, bits);
  check_length(rms, units.count(), "rms");
  check_length(counts, units.count(), "counts");
  check_length(codes, thc_bytes(units, width), "codes");
  const u8 *from = codes.data();
  const f32u *of_rms = rms.data();
  const u32u *of_counts = counts.data();
  f32u *to = out.data();
  Running running;
  thc_decode(units, rotations, grid, from, width, shift, of_rms, of_counts, weight, add, to);
}

i64 py_thc_add(const std::vector<std::tuple<In<u8>, int>> &messages, i64 unit, i64 size, In<std::uint16_t> table, int bits,
               i64 shift, bool clamp, Out<u8> out, int out_width) {
  check(size >= 0 && size < i64{1} << 50, "size is out of range");
  check(unit >= 1 && unit < i64{1} << 50, "unit must be positive");
  const ThcGrid grid = thc_grid(table, 0, bits);
  check_width(out_width);
  std::vector<ThcMessage> made;
  for (const auto &[codes, width] : messages) {
    check_width(width);
    check_length(codes, stream_bytes(size, unit, width), "codes");
    made.push_back({codes.data(), width});
  }
  check(!made.empty(), "there are no messages");
  check_length(out, stream_bytes(size, unit, out_width), "out");
  u8 *to = out.data();
  Running running;
  return thc_add(made.data(), static_cast<i64>(made.size()), size, unit, grid, shift, clamp, to, out_width);
}

}  // namespace

void bind_thc(nb::module_ &m) {
  m.def("unit_rms", py_unit_rms, "x"_a.noconvert(), "unit"_a, "full"_a, "out"_a.noconvert());
  m.def("thc_encode", py_thc_encode, "x"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "rotations"_a,
        "rms"_a.noconvert(), "table"_a.noconvert(), "spread"_a, "bits"_a, "private"_a, "first"_a, "codes"_a.noconvert());
  m.def("thc_decode", py_thc_decode, "codes"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "rotations"_a,
        "rms"_a.noconvert(), "table"_a.noconvert(), "spread"_a, "bits"_a, "width"_a, "shift"_a, "counts"_a.noconvert(), "weight"_a,
        "add"_a, "out"_a.noconvert());
  m.def("thc_add", py_thc_add, "messages"_a, "unit"_a, "size"_a, "table"_a.noconvert(), "bits"_a, "shift"_a,
        "clamp"_a, "out"_a.noconvert(), "out_width"_a);
}

}  // namespace tersor
