// The Python side of the plain formats: uniform quantization, 16-bit floats, blocks of integers, Microscaling.
#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "blocks.h"
#include "formats.h"
#include "uniform.h"

namespace tersor {
namespace {

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

// Rows cut in blocks of their own, with packed codes and the bytes of the scales.
template <class Bytes>
BlockShape block_shape(i64 d, i64 row, i64 block, int bits, const Bytes &codes, const Bytes &scales, i64 scale_bytes) {
  check_length(scales, int8_blocks(d, row, block) * scale_bytes, "scales");
  check_length(codes, stream_bytes(d, row, bits), "codes");
  return {d, row, block};
}

template <class Bytes>
BlockShape int4_shape(i64 d, i64 row, i64 block, int scale_kind, const Bytes &codes, const Bytes &scales) {
  check(block >= 8 && block <= kChunk && block % 8 == 0, "block must be a multiple of 8 from 8 to 4096");
  check(scale_kind >= 0 && scale_kind <= 2, "scale_kind must be 0 to 2");
  return block_shape(d, row, block, 4, codes, scales, scale_kind == 0 ? 4 : 2);
}

i64 py_int4_encode(In<float> x, i64 row, i64 block, int scale_kind, Out<u8> codes, Out<u8> scales) {
  const BlockShape shape = int4_shape(length(x), row, block, scale_kind, codes, scales);
  const f32u *from = x.data();
  u8 *to = codes.data(), *to_scales = scales.data();
  Running running;
  return int4_encode(from, shape, scale_kind, to, to_scales);
}

void py_int4_decode(In<u8> codes, In<u8> scales, i64 row, i64 block, int scale_kind, double weight, bool add,
                    Out<float> out) {
  const BlockShape shape = int4_shape(length(out), row, block, scale_kind, codes, scales);
  const u8 *from = codes.data(), *of_scales = scales.data();
  f32u *to = out.data();
  Running running;
  int4_decode(from, of_scales, shape, scale_kind, weight, add, to);
}

template <class Bytes>
BlockShape mx_shape(i64 d, i64 row, int element, const Bytes &codes, const Bytes &scales) {
  check(element >= 0 && element < kElements, "element must be 0 to 5");
  return block_shape(d, row, kMxBlock, mx_bits(element), codes, scales, 1);
}

i64 py_mx_encode(In<float> x, i64 row, int element, Out<u8> codes, Out<u8> scales, bool up, bool stochastic, u64 key,
                 u64 first) {
  const BlockShape shape = mx_shape(length(x), row, element, codes, scales);
  const f32u *from = x.data();
  u8 *to = codes.data(), *to_scales = scales.data();
  Running running;
  return mx_encode(from, shape, element, MxRounding{up, stochastic, key, first}, to, to_scales);
}

void py_mx_decode(In<u8> codes, In<u8> scales, i64 row, int element, double weight, bool add, Out<float> out) {
  const BlockShape shape = mx_shape(length(out), row, element, codes, scales);
  const u8 *from = codes.data(), *of_scales = scales.data();
  f32u *to = out.data();
  Running running;
  mx_decode(from, of_scales, shape, element, weight, add, to);
}

}  // namespace

void bind_formats(nb::module_ &m) {
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
  m.def("int4_encode", py_int4_encode, "x"_a.noconvert(), "row"_a, "block"_a, "scale_kind"_a, "codes"_a.noconvert(),
        "scales"_a.noconvert());
  m.def("int4_decode", py_int4_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "row"_a, "block"_a,
        "scale_kind"_a, "weight"_a, "add"_a, "out"_a.noconvert());
  m.def("mx_encode", py_mx_encode, "x"_a.noconvert(), "row"_a, "element"_a, "codes"_a.noconvert(),
        "scales"_a.noconvert(), "up"_a = false, "stochastic"_a = false, "key"_a = 0, "first"_a = 0);
  m.def("mx_decode", py_mx_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "row"_a, "element"_a, "weight"_a,
        "add"_a, "out"_a.noconvert());
}

}  // namespace tersor
