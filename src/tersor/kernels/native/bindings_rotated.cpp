// The Python side of the rotation of units, and of the quantizers that baselines build on it.
#include "bindings.h"
#include "rotated.h"
#include "rotation.h"
#include "uniform.h"

namespace tersor {
namespace {

Units rotated_units(i64 d, i64 unit, u64 key, u64 start, bool by_rows, int rotations, bool full) {
  check(unit >= 1 || d == 0, "unit must be positive");
  check(rotations >= 1 && rotations <= kMaxRounds, "rotations must be 1 to 3");
  Units units;
  units.d = d;
  units.unit = d == 0 ? 1 : std::min(unit, d);
  check(!by_rows || d == 0 || d % unit == 0, "rows of `unit` coordinates do not fill the array");
  check(by_rows || start <= UINT64_MAX - 4 * static_cast<u64>(d) - 64, "start is too large");
  units.key = key;
  units.start = start;
  units.by_rows = by_rows;
  units.full = full;
  return units;
}

void py_rotate_units(In<float> x, i64 unit, u64 key, u64 start, bool by_rows, int rotations, bool full,
                     Out<float> out) {
  const Units units = rotated_units(length(x), unit, key, start, by_rows, rotations, full);
  check_length(out, rotated_size(units), "out");
  const f32u *from = x.data();
  f32u *to = out.data();
  Running running;
  rotate_units(units, rotations, from, to);
}

void py_unrotate_units(In<float> y, i64 unit, u64 key, u64 start, bool by_rows, int rotations, bool full,
                       double weight, bool add, In<u8> present, Out<float> out) {
  const Units units = rotated_units(length(out), unit, key, start, by_rows, rotations, full);
  check_length(y, rotated_size(units), "y");
  if (length(present) != 0) check_length(present, units.count(), "present");
  const f32u *from = y.data();
  const u8 *of_present = length(present) ? present.data() : nullptr;
  f32u *to = out.data();
  Running running;
  unrotate_units(units, rotations, from, weight, add, of_present, to);
}

void check_dither(i64 d, i64 unit, int bits, u64 start, bool by_rows) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  check(unit >= 1 || d == 0, "unit must be positive");
  check(!by_rows || d == 0 || d % unit == 0, "rows of `unit` coordinates do not fill the array");
  check(by_rows || start <= UINT64_MAX - static_cast<u64>(d), "start is too large");
}

void py_dither_encode(In<float> x, i64 unit, double low, double high, int bits, u64 key, u64 start, bool by_rows,
                      Out<u8> codes) {
  const i64 d = length(x);
  check_dither(d, unit, bits, start, by_rows);
  check_length(codes, stream_bytes(d, unit, bits), "codes");
  const f32u *from = x.data();
  u8 *to = codes.data();
  Running running;
  dither_encode(from, d, unit, low, high, bits, key, start, by_rows, to);
}

void py_dither_decode(In<u8> codes, i64 unit, double low, double high, int bits, u64 key, u64 start, bool by_rows,
                      double weight, bool add, In<u8> present, Out<float> out) {
  const i64 d = length(out);
  check_dither(d, unit, bits, start, by_rows);
  check_length(codes, stream_bytes(d, unit, bits), "codes");
  if (length(present) != 0) check_length(present, d == 0 ? 0 : (d - 1) / unit + 1, "present");
  const u8 *from = codes.data(), *of_present = length(present) ? present.data() : nullptr;
  f32u *to = out.data();
  Running running;
  dither_decode(from, d, unit, low, high, bits, key, start, by_rows, weight, add, of_present, to);
}

void py_draw_table(In<float> table, u64 key, u32 purpose, u64 start, Out<float> out) {
  check_length(table, 1 << 16, "table");
  const i64 n = length(out);
  check(start <= UINT64_MAX - static_cast<u64>(n), "start is too large");
  const f32u *from = table.data();
  f32u *to = out.data();
  Running running;
  draw_table(from, key, purpose, start, n, to);
}

}  // namespace

void bind_rotated(nb::module_ &m) {
  m.def("rotate_units", py_rotate_units, "x"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "rotations"_a,
        "full"_a, "out"_a.noconvert());
  m.def("unrotate_units", py_unrotate_units, "y"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a,
        "rotations"_a, "full"_a, "weight"_a, "add"_a, "present"_a.noconvert(), "out"_a.noconvert());
  m.def("dither_encode", py_dither_encode, "x"_a.noconvert(), "unit"_a, "low"_a, "high"_a, "bits"_a, "key"_a, "start"_a,
        "by_rows"_a, "codes"_a.noconvert());
  m.def("dither_decode", py_dither_decode, "codes"_a.noconvert(), "unit"_a, "low"_a, "high"_a, "bits"_a, "key"_a,
        "start"_a, "by_rows"_a, "weight"_a, "add"_a, "present"_a.noconvert(), "out"_a.noconvert());
  m.def("draw_table", py_draw_table, "table"_a.noconvert(), "key"_a, "purpose"_a, "start"_a, "out"_a.noconvert());
}

}  // namespace tersor
