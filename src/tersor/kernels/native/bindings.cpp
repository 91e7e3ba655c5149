// The Python module tersor.kernels._native: checks every size, then lets go of the GIL and calls the kernels.
//
// Arguments are those of tersor.kernels.reference. Wrong dtypes, layouts and read-only outputs raise nanobind's TypeError,
// wrong sizes and values ValueError, both before any output is touched.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "dispatch.h"
#include "eden.h"
#include "float_environment.h"
#include "formats.h"
#include "pool.h"
#include "rotation.h"
#include "uniform.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tersor {
namespace {

template <class T, int Dimensions>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <class T>
using In = Array<const T, 1>;
template <class T>
using Out = Array<T, 1>;

void check(bool good, const char *message) {
  if (!good) throw std::invalid_argument(message);
}

template <class A>
i64 length(const A &array) {
  return static_cast<i64>(array.shape(0));
}

template <class T>
void check_length(const T &array, i64 expected, const char *name) {
  if (length(array) != expected)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(length(array)) + " elements, not " +
                                std::to_string(expected));
}

// While a kernel runs: no GIL, and IEEE defaults. A bad TERSOR_SIMD raises here, before any output is touched (at import
// it would be an ImportError, which reads as "not installed").
struct Running {
  const Kernels &level = kernels();
  nb::gil_scoped_release release;
  FloatEnvironment environment;
};

Units make_units(i64 d, i64 unit, u64 key, u64 start, bool by_rows, int bits, bool full) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
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
                                               Out<float> scales, Out<u8> rounds, Out<float> norms) {
  const Units units = make_units(length(x), unit, key, start, by_rows, bits, full);
  check_length(levels, 1 << bits, "levels");
  check_length(thresholds, (1 << bits) - 1, "thresholds");
  check(scale_kind >= kUnbiased && scale_kind <= kOne, "scale_kind must be 0 to 3");
  check(scale_dtype >= kFloat32 && scale_dtype <= kBFloat16, "scale_dtype must be 0 to 2");
  check(rotations >= 0 && rotations <= kMaxRounds, "rotations must be 0 to 3");
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(rounds, units.count(), "rounds");
  if (length(norms) != 0) check_length(norms, units.count(), "norms");

  const Quantizer &quantizer = make_quantizer(bits, levels.data(), thresholds.data());
  const f32u *from = x.data();
  f32u *to_scales = scales.data(), *to_norms = length(norms) ? norms.data() : nullptr;
  u8 *to_codes = codes.data(), *to_rounds = rounds.data();
  EncodeResult result;
  {
    Running running;
    result = eden_encode(units, quantizer, {scale_kind, scale_dtype, rotations}, from, to_codes, to_scales, to_rounds,
                         to_norms);
  }
  return {result.first_bad, result.error, result.energy};
}

void py_eden_decode(In<u8> codes, In<float> scales, In<u8> rounds, i64 unit, u64 key, u64 start, bool by_rows, int bits,
                    In<float> levels, double weight, bool add, In<u8> present, bool full, Out<float> out) {
  const Units units = make_units(length(out), unit, key, start, by_rows, bits, full);
  check_length(levels, 1 << bits, "levels");
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(rounds, units.count(), "rounds");
  if (length(present) != 0) check_length(present, units.count(), "present");
  const u8 *of_rounds = rounds.data();
  for (i64 u = 0; u < units.count(); ++u) check(of_rounds[u] <= kMaxRounds, "rounds must be 0 to 3");

  float table[256] = {};
  copy_table(table, levels.data(), length(levels));
  const u8 *from = codes.data(), *of_present = length(present) ? present.data() : nullptr;
  const f32u *of_scales = scales.data();
  f32u *to = out.data();
  Running running;
  eden_decode(units, table, from, of_scales, of_rounds, weight, add, of_present, to);
}

i64 units_of(i64 d, i64 unit) {
  check(unit >= 1 || d == 0, "unit must be positive");
  return d == 0 ? 0 : (d - 1) / unit + 1;
}

void py_sq_encode(In<float> x, i64 unit, double low, double high, int bits, u64 key, u64 first, Out<u8> codes) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  units_of(length(x), unit);
  check_length(codes, stream_bytes(length(x), unit, bits), "codes");
  const f32u *from = x.data();
  const i64 d = length(x);
  u8 *to = codes.data();
  Running running;
  sq_encode(from, d, unit, low, high, bits, key, first, to);
}

void py_sq_decode(In<u8> codes, i64 unit, double low, double high, int bits, int width, In<u32> counts, double weight,
                  bool add, Out<float> out) {
  check(bits >= 1 && bits <= 8, "bits must be 1 to 8");
  check(width >= 1 && width <= 32, "width must be 1 to 32");
  const i64 d = length(out);
  check_length(counts, units_of(d, unit), "counts");
  check_length(codes, stream_bytes(d, unit, width), "codes");
  const u8 *from = codes.data();
  const u32u *of_counts = counts.data();
  f32u *to = out.data();
  Running running;
  sq_decode(from, d, unit, low, high, bits, width, of_counts, weight, add, to);
}

void py_sq_add(In<u8> a, int a_width, In<u8> b, int b_width, i64 size, i64 unit, Out<u8> out, int out_width) {
  for (const int width : {a_width, b_width, out_width}) check(width >= 1 && width <= 32, "a width must be 1 to 32");
  check(size >= 0 && size < i64{1} << 56, "size is out of range");
  units_of(size, unit);
  check_length(a, stream_bytes(size, unit, a_width), "a");
  check_length(b, stream_bytes(size, unit, b_width), "b");
  check_length(out, stream_bytes(size, unit, out_width), "out");
  const u8 *from_a = a.data(), *from_b = b.data();
  u8 *to = out.data();
  Running running;
  sq_add(from_a, a_width, from_b, b_width, size, unit, to, out_width);
}

i64 int8_blocks(i64 d, i64 row, i64 block) {
  if (d == 0) return 0;
  check(row >= 1 && block >= 1, "row and block must be positive");
  check(d % row == 0, "rows do not fill the array");
  return d / row * ((row - 1) / block + 1);
}

i64 py_int8_encode(In<float> x, i64 row, i64 block, Out<std::int8_t> codes, Out<float> scales) {
  const i64 d = length(x);
  check_length(scales, int8_blocks(d, row, block), "scales");
  check_length(codes, d, "codes");
  const f32u *from = x.data();
  std::int8_t *to = codes.data();
  f32u *to_scales = scales.data();
  Running running;
  return int8_encode(from, d, row, block, to, to_scales);
}

void py_int8_decode(In<std::int8_t> codes, In<float> scales, i64 row, i64 block, double weight, bool add,
                    Out<float> out) {
  const i64 d = length(out);
  check_length(scales, int8_blocks(d, row, block), "scales");
  check_length(codes, d, "codes");
  const std::int8_t *from = codes.data();
  const f32u *of_scales = scales.data();
  f32u *to = out.data();
  Running running;
  int8_decode(from, of_scales, d, row, block, weight, add, to);
}

i64 py_first_nonfinite(In<float> x) {
  const f32u *from = x.data();
  const i64 d = length(x);
  Running running;
  return first_between(from, d, kInfinityBits, UINT32_MAX);
}

std::tuple<i64, i64> py_half_encode(In<float> x, int kind, Out<std::uint16_t> out) {
  check(kind == 0 || kind == 1, "kind must be 0 or 1");
  check_length(out, length(x), "out");
  const f32u *from = x.data();
  u16u *to = out.data();
  const i64 d = length(x);
  HalfResult result;
  {
    Running running;
    result = half_encode(from, d, kind == 1, to);
  }
  return {result.first_bad, result.first_lost};
}

void py_half_decode(In<std::uint16_t> codes, int kind, double weight, bool add, Out<float> out) {
  check(kind == 0 || kind == 1, "kind must be 0 or 1");
  check_length(codes, length(out), "codes");
  const u16u *from = codes.data();
  f32u *to = out.data();
  const i64 d = length(out);
  Running running;
  half_decode(from, d, kind == 1, static_cast<float>(weight), add, to);
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
        "codes"_a.noconvert(), "scales"_a.noconvert(), "rounds"_a.noconvert(), "norms"_a.noconvert());
  m.def("eden_decode", py_eden_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "rounds"_a.noconvert(), "unit"_a,
        "key"_a, "start"_a, "by_rows"_a, "bits"_a, "levels"_a.noconvert(), "weight"_a, "add"_a,
        "present"_a.noconvert(), "full"_a, "out"_a.noconvert());
  m.def("sq_encode", py_sq_encode, "x"_a.noconvert(), "unit"_a, "low"_a, "high"_a, "bits"_a, "key"_a, "first"_a,
        "codes"_a.noconvert());
  m.def("sq_decode", py_sq_decode, "codes"_a.noconvert(), "unit"_a, "low"_a, "high"_a, "bits"_a, "width"_a,
        "counts"_a.noconvert(), "weight"_a, "add"_a, "out"_a.noconvert());
  m.def("sq_add", py_sq_add, "a"_a.noconvert(), "a_width"_a, "b"_a.noconvert(), "b_width"_a, "size"_a, "unit"_a,
        "out"_a.noconvert(), "out_width"_a);
  m.def("first_nonfinite", py_first_nonfinite, "x"_a.noconvert());
  m.def("half_encode", py_half_encode, "x"_a.noconvert(), "kind"_a, "out"_a.noconvert());
  m.def("half_decode", py_half_decode, "codes"_a.noconvert(), "kind"_a, "weight"_a, "add"_a, "out"_a.noconvert());
  m.def("int8_encode", py_int8_encode, "x"_a.noconvert(), "row"_a, "block"_a, "codes"_a.noconvert(),
        "scales"_a.noconvert());
  m.def("int8_decode", py_int8_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "row"_a, "block"_a, "weight"_a,
        "add"_a, "out"_a.noconvert());

  m.def("set_num_threads", set_num_threads, "n"_a, "Threads a call may use; 0 is the default.");
  m.def("get_num_threads", get_num_threads);
  m.def("cpu_level", [] { return std::string(kernels().name); }, "The SIMD level in force.");
  m.def("cpu_levels", cpu_levels, "The levels that this build and this CPU have, slowest first.");
  m.def("set_cpu_level", set_cpu_level, "name"_a, "Force a SIMD level; the bytes do not depend on it.");
}
