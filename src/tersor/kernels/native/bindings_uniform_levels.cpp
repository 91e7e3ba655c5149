// The Python side of evenly spaced levels and of symbols in two streams.
#include "bindings.h"
#include "uniform_levels.h"

namespace tersor {
namespace {

void check_levels(i64 levels) { check(levels >= 1 && levels <= kMostLevels, "levels must be 1 to 65536"); }

void py_uniform_indices(In<float> x, double low, double scale, i64 levels, Out<std::uint16_t> out) {
  const i64 n = length(x);
  check_levels(levels);
  check_length(out, n, "out");
  const f32u *from = x.data();
  u16u *to = out.data();
  Running running;
  uniform_indices(from, n, low, scale, levels, to);
}

void py_uniform_counts(In<float> x, double low, double scale, Out<u64> counts) {
  const i64 n = length(x), levels = length(counts);
  check_levels(levels);
  const f32u *from = x.data();
  u64u *to = counts.data();
  Running running;
  uniform_counts(from, n, low, scale, levels, to);
}

void py_split_symbols(In<std::uint16_t> symbols, Out<u8> high, Out<u8> low) {
  const i64 n = length(symbols);
  check_length(high, n, "high");
  check_length(low, n, "low");
  const u16u *from = symbols.data();
  u8 *first = high.data(), *second = low.data();
  Running running;
  split_symbols(from, n, first, second);
}

void py_join_symbols(In<u8> high, In<u8> low, Out<std::uint16_t> out) {
  const i64 n = length(out);
  check_length(high, n, "high");
  check_length(low, n, "low");
  const u8 *first = high.data(), *second = low.data();
  u16u *to = out.data();
  Running running;
  join_symbols(first, second, n, to);
}

}  // namespace

void bind_uniform_levels(nb::module_ &m) {
  m.def("uniform_indices", py_uniform_indices, "x"_a.noconvert(), "low"_a, "scale"_a, "levels"_a, "out"_a.noconvert());
  m.def("uniform_counts", py_uniform_counts, "x"_a.noconvert(), "low"_a, "scale"_a, "counts"_a.noconvert());
  m.def("split_symbols", py_split_symbols, "symbols"_a.noconvert(), "high"_a.noconvert(), "low"_a.noconvert());
  m.def("join_symbols", py_join_symbols, "high"_a.noconvert(), "low"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace tersor
