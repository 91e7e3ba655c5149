// The Python module tersor.kernels._native: checks every size, then lets go of the GIL and calls the kernels.
//
// Arguments are those of tersor.kernels.reference. Wrong dtypes, layouts and read-only outputs raise nanobind's TypeError,
// wrong sizes and values ValueError, both before any output is touched.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.h"
#include "eden.h"
#include "pool.h"
#include "rotation.h"
#include "uniform.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tersor {
namespace {

Units make_units(i64 d, i64 unit, u64 key, u64 start, bool by_rows, int bits, bool full, double fraction = 0) {
  check(fraction >= 0 && fraction < 1, "fraction must be at least 0 and less than 1");
  check(bits >= (fraction > 0 ? 0 : 1) && bits <= (fraction > 0 ? 7 : 8), "bits must be 1 to 8");
  check(unit >= 1 || d == 0, "unit must be positive");
  Units units;
  units.d = d;
  units.unit = d == 0 ? 1 : std::min(unit, d);
  check(!by_rows || d == 0 || d % unit == 0, "rows of `unit` coordinates do not fill the array");
  check(by_rows || start <= UINT64_MAX - 4 * static_cast<u64>(d) - 64, "start is too large");
  units.key = key;
  units.start = start;
  units.by_rows = by_rows;
  units.full = full;
  units.bits = bits;
  units.fraction = fraction;
  return units;
}

// memcpy: a NumPy view may be unaligned.
void copy_table(float *to, const float *from, i64 count) {
  if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

void py_philox(u64 key, u32 purpose, u32 rotation, u64 start, Out<u32> out) {
  const i64 n = length(out);
  check(n == 0 || start <= UINT64_MAX - static_cast<u64>(n - 1), "start is too large");
  u32u *to = out.data();
  Running running;
  random_words(key, purpose, rotation, start, n, to);
}

// By blocks, of which there are four times as many: the published test vectors reach there.
void py_philox_blocks(u64 key, u32 purpose, u32 rotation, u64 first, Array<u32, 2> out) {
  check(out.shape(1) == 4, "out must have 4 columns");
  const i64 n = 4 * length(out);
  u32u *to = out.data();
  Running running;
  kernels().philox(key, purpose, rotation, first, 0, n, to);
}

void py_fwht(Array<float, 2> x) {
  const i64 rows = length(x), n = static_cast<i64>(x.shape(1));
  check((n & (n - 1)) == 0, "the length of a row must be a power of two");
  f32u *data = x.data();
  Running running;
  if (n > 0) fwht_all(data, rows * n, n, nullptr);
}

void py_rotate(Array<float, 2> x, u64 key, u64 start, int rounds, bool inverse) {
  const i64 rows = length(x), padded = static_cast<i64>(x.shape(1));
  check(rounds >= 0 && rounds <= kMaxRounds, "rounds must be 0 to 3");
  check(start <= UINT64_MAX - static_cast<u64>(padded) - 64, "start is too large");
  f32u *data = x.data();
  Running running;
  rotate_rows(data, rows, padded, key, start, rounds, inverse);
}

template <class T>
void py_pack(Array<const T, 2> codes, int bits, Array<u8, 2> out) {
  check(bits >= 1 && bits <= 8 * static_cast<int>(sizeof(T)), "bits must be 1 to the width of the codes");
  const i64 rows = length(codes), n = static_cast<i64>(codes.shape(1));
  check(length(out) == rows && static_cast<i64>(out.shape(1)) == packed_bytes(n, bits), "out has the wrong shape");
  typedef T Loose __attribute__((aligned(1), may_alias));
  const Loose *from = codes.data();
  u8 *to = out.data();
  Running running;
  pack_rows(from, rows, n, bits, to);
}

template <class T>
void py_unpack(Array<const u8, 2> packed, int bits, Array<T, 2> out) {
  check(bits >= 1 && bits <= 8 * static_cast<int>(sizeof(T)), "bits must be 1 to the width of the codes");
  const i64 rows = length(out), n = static_cast<i64>(out.shape(1));
  check(length(packed) == rows && static_cast<i64>(packed.shape(1)) == packed_bytes(n, bits),
        "packed has the wrong shape");
  typedef T Loose __attribute__((aligned(1), may_alias));
  const u8 *from = packed.data();
  Loose *to = out.data();
  Running running;
  unpack_rows(from, rows, n, bits, to);
}

std::tuple<i64, double, double> py_eden_encode(In<float> x, i64 unit, u64 key, u64 start, bool by_rows, int bits,
                                               In<float> levels, In<float> thresholds, int scale_kind,
                                               int scale_dtype, int rotations, bool full, Out<u8> codes,
                                               Out<float> scales, Out<u8> rounds, Out<float> norms,
                                               double fraction) {
  const Units units = make_units(length(x), unit, key, start, by_rows, bits, full, fraction);
  check_length(levels, units.levels(), "levels");
  check_length(thresholds, units.thresholds(), "thresholds");
  check(scale_kind >= kUnbiased && scale_kind <= kOne, "scale_kind must be 0 to 3");
  check(scale_dtype >= kFloat32 && scale_dtype <= kBFloat16, "scale_dtype must be 0 to 2");
  check(rotations >= 0 && rotations <= kMaxRounds, "rotations must be 0 to 3");
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(rounds, units.count(), "rounds");
  if (length(norms) != 0) check_length(norms, units.count(), "norms");

  Quantizers quantizers{nullptr, nullptr};
  if (bits > 0) quantizers.low = &make_quantizer(bits, levels.data(), thresholds.data());
  const i64 below = i64{1} << bits;
  if (fraction > 0)
    quantizers.high = &make_quantizer(bits + 1, levels.data() + below, thresholds.data() + below - 1, 1);
  const f32u *from = x.data();
  f32u *to_scales = scales.data(), *to_norms = length(norms) ? norms.data() : nullptr;
  u8 *to_codes = codes.data(), *to_rounds = rounds.data();
  EncodeResult result;
  {
    Running running;
    result = eden_encode(units, quantizers, {scale_kind, scale_dtype, rotations}, from, to_codes, to_scales, to_rounds,
                         to_norms);
  }
  return {result.first_bad, result.error, result.energy};
}

std::tuple<i64, double, double> py_drive_plus_encode(In<float> x, i64 unit, u64 key, u64 start, bool by_rows,
                                                     int scale_kind, int rotations, bool full, Out<u8> codes,
                                                     Out<float> values, Out<u8> rounds, Out<float> norms) {
  const Units units = make_units(length(x), unit, key, start, by_rows, 1, full);
  check(scale_kind >= kUnbiased && scale_kind <= kOne, "scale_kind must be 0 to 3");
  check(rotations >= 0 && rotations <= kMaxRounds, "rotations must be 0 to 3");
  check_length(codes, units.code_bytes(), "codes");
  check_length(values, 2 * units.count(), "values");
  check_length(rounds, units.count(), "rounds");
  if (length(norms) != 0) check_length(norms, units.count(), "norms");
  const f32u *from = x.data();
  f32u *to_values = values.data(), *to_norms = length(norms) ? norms.data() : nullptr;
  u8 *to_codes = codes.data(), *to_rounds = rounds.data();
  EncodeResult result;
  {
    Running running;
    result = drive_plus_encode(units, {scale_kind, kFloat32, rotations}, from, to_codes, to_values, to_rounds, to_norms);
  }
  return {result.first_bad, result.error, result.energy};
}

void py_eden_decode(In<u8> codes, In<float> scales, In<u8> rounds, i64 unit, u64 key, u64 start, bool by_rows, int bits,
                    In<float> levels, double weight, bool add, In<u8> present, bool full, Out<float> out,
                    double fraction, i64 pieces) {
  const Units units = make_units(length(out), unit, key, start, by_rows, bits, full, fraction);
  const bool own = bits == 1 && fraction == 0 && length(levels) != 2;
  check_length(levels, own ? 2 * units.count() : units.levels(), "levels");
  check(pieces >= 1 && pieces <= INT64_MAX / std::max<i64>(units.count(), 1), "pieces must be positive");
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(rounds, units.count(), "rounds");
  if (length(present) != 0) check_length(present, units.count() * pieces, "present");
  const u8 *of_rounds = rounds.data();
  for (i64 u = 0; u < units.count(); ++u) check(of_rounds[u] <= kMaxRounds, "rounds must be 0 to 3");

  std::vector<float> table(static_cast<std::size_t>(std::max<i64>(length(levels), 512)));
  copy_table(table.data(), levels.data(), length(levels));
  const u8 *from = codes.data(), *of_present = length(present) ? present.data() : nullptr;
  const f32u *of_scales = scales.data();
  f32u *to = out.data();
  Running running;
  eden_decode(units, table.data(), from, of_scales, of_rounds, weight, add, of_present, to, pieces, own);
}

// codes, scales, rounds, key, start, weight
using EdenTuple = std::tuple<In<u8>, In<float>, In<u8>, u64, u64, double>;

void py_eden_add(const std::vector<EdenTuple> &messages, i64 unit, bool by_rows, int bits, In<float> levels, bool full,
                 Out<float> out, double fraction) {
  const Units units = make_units(length(out), unit, 0, 0, by_rows, bits, full, fraction);
  check_length(levels, units.levels(), "levels");
  std::vector<EdenMessage> views;
  for (const auto &[codes, scales, rounds, key, start, weight] : messages) {
    make_units(length(out), unit, key, start, by_rows, bits, full, fraction);
    check_length(codes, units.code_bytes(), "codes");
    check_length(scales, units.count(), "scales");
    check_length(rounds, units.count(), "rounds");
    const u8 *of_rounds = rounds.data();
    for (i64 u = 0; u < units.count(); ++u) check(of_rounds[u] <= kMaxRounds, "rounds must be 0 to 3");
    views.push_back({codes.data(), scales.data(), of_rounds, key, start, weight});
  }
  float table[512] = {};
  copy_table(table, levels.data(), length(levels));
  f32u *to = out.data();
  Running running;
  eden_add(units, table, views.data(), static_cast<i64>(views.size()), to);
}

template <class T>
void bind_packing(nb::module_ &m) {
  m.def("pack", py_pack<T>, "codes"_a.noconvert(), "bits"_a, "out"_a.noconvert());
  m.def("unpack", py_unpack<T>, "packed"_a.noconvert(), "bits"_a, "out"_a.noconvert());
}

}  // namespace
}  // namespace tersor

NB_MODULE(_native, m) {
  using namespace tersor;
  m.doc() = "The native backend: see tersor.kernels.reference, whose bytes it gives.";

  m.def("philox", py_philox, "key"_a, "purpose"_a, "rotation"_a, "start"_a, "out"_a.noconvert());
  m.def("philox_blocks", py_philox_blocks, "key"_a, "purpose"_a, "rotation"_a, "first"_a, "out"_a.noconvert());
  m.def("fwht", py_fwht, "x"_a.noconvert());
  m.def("rotate", py_rotate, "x"_a.noconvert(), "key"_a, "start"_a, "rounds"_a, "inverse"_a);
  bind_packing<u8>(m);
  bind_packing<std::uint16_t>(m);
  bind_packing<u32>(m);
  m.def("eden_encode", py_eden_encode, "x"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "bits"_a,
        "levels"_a.noconvert(), "thresholds"_a.noconvert(), "scale_kind"_a, "scale_dtype"_a, "rotations"_a, "full"_a,
        "codes"_a.noconvert(), "scales"_a.noconvert(), "rounds"_a.noconvert(), "norms"_a.noconvert(),
        "fraction"_a = 0.0);
  m.def("drive_plus_encode", py_drive_plus_encode, "x"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a,
        "scale_kind"_a, "rotations"_a, "full"_a, "codes"_a.noconvert(), "values"_a.noconvert(), "rounds"_a.noconvert(),
        "norms"_a.noconvert());
  m.def("eden_decode", py_eden_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "rounds"_a.noconvert(), "unit"_a,
        "key"_a, "start"_a, "by_rows"_a, "bits"_a, "levels"_a.noconvert(), "weight"_a, "add"_a,
        "present"_a.noconvert(), "full"_a, "out"_a.noconvert(), "fraction"_a = 0.0, "pieces"_a = 1);
  m.def("eden_add", py_eden_add, "messages"_a, "unit"_a, "by_rows"_a, "bits"_a, "levels"_a.noconvert(), "full"_a,
        "out"_a.noconvert(), "fraction"_a = 0.0);
  bind_formats(m);
  bind_rans(m);
  bind_quicfl(m);
  bind_rotated(m);
  bind_levels(m);
  bind_level_codes(m);
  bind_entropy(m);
  bind_uniform_levels(m);
  bind_shared_levels(m);
  bind_thc(m);
  bind_dynamiq(m);

  m.def("set_num_threads", set_num_threads, "n"_a, "Threads a call may use; 0 is the default.");
  m.def("get_num_threads", get_num_threads);
  m.def("cpu_level", [] { return std::string(kernels().name); }, "The SIMD level in force.");
  m.def("cpu_levels", cpu_levels, "The levels that this build and this CPU have, slowest first.");
  m.def("set_cpu_level", set_cpu_level, "name"_a, "Force a SIMD level; the bytes do not depend on it.");
}
