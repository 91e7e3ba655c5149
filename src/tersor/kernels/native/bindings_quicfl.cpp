// The Python side of QUIC-FL.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "quicfl.h"

namespace tersor {
namespace {

Units quicfl_units(i64 d, i64 unit, u64 key, u64 start, bool by_rows, int bits, int shared_bits) {
  check(bits >= 1 && bits <= 4, "bits must be 1 to 4");
  check(shared_bits >= 0 && shared_bits <= Zones::most_shared(bits), "shared_bits is out of range");
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
  units.bits = bits;
  return units;
}

QuicflMessage checked(const Units &units, const In<u8> &codes, const In<float> &scales, const In<u32> &counts,
                      const In<u32> &positions, const In<float> &values, u64 symbols, double weight) {
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(counts, units.count(), "counts");
  check_length(values, length(positions), "values");
  const u32u *of_counts = counts.data(), *of_positions = positions.data();
  i64 total = 0;
  for (i64 u = 0; u < units.count(); ++u) {
    const i64 end = total + of_counts[u], padded = units.padded(u);
    check(end <= length(positions), "the counts are more than the positions");
    for (; total < end; ++total) check(of_positions[total] < padded, "a position is beyond its unit");
  }
  check(total == length(positions), "the counts are fewer than the positions");
  return {codes.data(), scales.data(), of_counts, of_positions, values.data(), symbols, weight};
}

std::tuple<i64, i64> py_quicfl_encode(In<float> x, i64 unit, u64 key, u64 start, bool by_rows, int bits, int shared_bits,
                                      In<float> low, In<float> width, double limit, u64 symbols, u64 private_key,
                                      Out<u8> codes, Out<float> scales, Out<u32> counts, Out<u32> positions,
                                      Out<float> values) {
  const Units units = quicfl_units(length(x), unit, key, start, by_rows, bits, shared_bits);
  const i64 zones = ((i64{1} << bits) - 1) << shared_bits, room = length(positions);
  check_length(low, zones, "low");
  check_length(width, zones, "width");
  check_length(codes, units.code_bytes(), "codes");
  check_length(scales, units.count(), "scales");
  check_length(counts, units.count(), "counts");
  check_length(values, room, "values");
  const Zones made = make_zones(bits, shared_bits, low.data(), width.data(), static_cast<float>(limit));
  const f32u *from = x.data();
  u8 *to_codes = codes.data();
  f32u *to_scales = scales.data(), *to_values = values.data();
  u32u *to_counts = counts.data(), *to_positions = positions.data();
  Running running;
  std::vector<QuicflEntries> lists;
  const i64 bad = quicfl_encode(units, made, symbols, private_key, from, to_codes, to_scales, to_counts, lists);
  i64 total = 0;
  for (const QuicflEntries &list : lists)
    for (std::size_t i = 0; i < list.positions.size(); ++i, ++total)
      if (total < room) {
        to_positions[total] = list.positions[i];
        to_values[total] = list.values[i];
      }
  return {bad, total};
}

void py_quicfl_decode(In<u8> codes, In<float> scales, In<u32> counts, In<u32> positions, In<float> values, i64 unit,
                      u64 key, u64 start, bool by_rows, int bits, int shared_bits, In<float> levels, u64 symbols,
                      double weight, bool add, In<u8> present, Out<float> out) {
  const Units units = quicfl_units(length(out), unit, key, start, by_rows, bits, shared_bits);
  check_length(levels, i64{1} << (bits + shared_bits), "levels");
  if (length(present) != 0) check_length(present, units.count(), "present");
  const QuicflMessage message = checked(units, codes, scales, counts, positions, values, symbols, weight);
  const u8 *of_present = length(present) ? present.data() : nullptr;
  const f32u *table = levels.data();
  f32u *to = out.data();
  Running running;
  quicfl_decode(units, shared_bits, table, message, add, of_present, to);
}

// codes, scales, counts, positions, values, symbols, weight
using QuicflTuple = std::tuple<In<u8>, In<float>, In<u32>, In<u32>, In<float>, u64, double>;

void py_quicfl_add(const std::vector<QuicflTuple> &messages, i64 unit, u64 key, u64 start, bool by_rows, int bits,
                   int shared_bits, In<float> levels, Out<float> out) {
  const Units units = quicfl_units(length(out), unit, key, start, by_rows, bits, shared_bits);
  check_length(levels, i64{1} << (bits + shared_bits), "levels");
  std::vector<QuicflMessage> views;
  for (const auto &[codes, scales, counts, positions, values, symbols, weight] : messages)
    views.push_back(checked(units, codes, scales, counts, positions, values, symbols, weight));
  const f32u *table = levels.data();
  f32u *to = out.data();
  Running running;
  quicfl_add(units, shared_bits, table, views.data(), static_cast<i64>(views.size()), to);
}

}  // namespace

void bind_quicfl(nb::module_ &m) {
  m.def("quicfl_encode", py_quicfl_encode, "x"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "bits"_a,
        "shared_bits"_a, "low"_a.noconvert(), "width"_a.noconvert(), "limit"_a, "symbols"_a, "private"_a,
        "codes"_a.noconvert(), "scales"_a.noconvert(), "counts"_a.noconvert(), "positions"_a.noconvert(),
        "values"_a.noconvert());
  m.def("quicfl_decode", py_quicfl_decode, "codes"_a.noconvert(), "scales"_a.noconvert(), "counts"_a.noconvert(),
        "positions"_a.noconvert(), "values"_a.noconvert(), "unit"_a, "key"_a, "start"_a, "by_rows"_a, "bits"_a,
        "shared_bits"_a, "levels"_a.noconvert(), "symbols"_a, "weight"_a, "add"_a, "present"_a.noconvert(),
        "out"_a.noconvert());
  m.def("quicfl_add", py_quicfl_add, "messages"_a, "unit"_a, "key"_a, "start"_a, "by_rows"_a, "bits"_a, "shared_bits"_a,
        "levels"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace tersor
