// The Python side of DynamiQ's super-groups.
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings.h"
#include "dynamiq.h"

namespace tersor {
namespace {

i64 super_groups(i64 d) { return d / kSuperGroup + (d % kSuperGroup != 0); }

// Checks the widths and returns the bytes of their records.
i64 checked_bytes(const In<u8> &widths, i64 d) {
  check_length(widths, super_groups(d), "widths");
  const u8 *values = widths.data();
  for (i64 j = 0; j < length(widths); ++j)
    check(values[j] == 2 || values[j] == 4 || values[j] == 8, "widths must be 2, 4 or 8");
  return record_offsets(values, length(widths)).back();
}

void py_dynamiq_stats(In<float> x, double scale, Out<float> means, Out<float> energies) {
  const i64 d = length(x);
  check_length(means, super_groups(d), "means");
  check_length(energies, super_groups(d), "energies");
  const f32u *from = x.data();
  f32u *to = means.data(), *squares = energies.data();
  Running running;
  dynamiq_stats(from, d, scale, to, squares);
}

std::tuple<double, double> py_dynamiq_hop(In<float> x, double scale, In<float> means, In<u8> widths, In<u8> received,
                                          int rank, int size, u64 shared, u64 private_key, u64 first, Out<u8> out) {
  const i64 d = length(x), bytes = checked_bytes(widths, d);
  check(size >= 1 && size <= 32767 && rank >= 0 && rank < size, "rank and size do not fit");
  check(first <= (UINT64_MAX >> 8) - static_cast<u64>(d), "first is too large");
  if (length(means)) check_length(means, length(widths), "means");
  if (length(received)) check_length(received, bytes, "received");
  check_length(out, bytes, "out");
  const f32u *from = x.data(), *of_means = length(means) ? means.data() : nullptr;
  const u8 *of_widths = widths.data(), *of_received = length(received) ? received.data() : nullptr;
  u8 *to = out.data();
  Running running;
  const HopSums sums = dynamiq_hop(from, d, scale, of_means, of_widths, of_received, {shared, private_key, rank, size},
                                   first, to);
  return {sums.error, sums.energy};
}

void py_dynamiq_decode(In<u8> data, In<u8> widths, In<float> means, double times, double factor, bool add,
                       Out<float> out) {
  const i64 d = length(out);
  check_length(data, checked_bytes(widths, d), "data");
  if (length(means)) check_length(means, length(widths), "means");
  const u8 *from = data.data(), *of_widths = widths.data();
  const f32u *of_means = length(means) ? means.data() : nullptr;
  f32u *to = out.data();
  Running running;
  dynamiq_decode(from, of_widths, of_means, times, factor, add, d, to);
}

}  // namespace

void bind_dynamiq(nb::module_ &m) {
  m.def("dynamiq_stats", py_dynamiq_stats, "x"_a.noconvert(), "scale"_a, "means"_a.noconvert(),
        "energies"_a.noconvert());
  m.def("dynamiq_hop", py_dynamiq_hop, "x"_a.noconvert(), "scale"_a, "means"_a.noconvert(), "widths"_a.noconvert(),
        "received"_a.noconvert(), "rank"_a, "size"_a, "shared"_a, "private"_a, "first"_a, "out"_a.noconvert());
  m.def("dynamiq_decode", py_dynamiq_decode, "data"_a.noconvert(), "widths"_a.noconvert(), "means"_a.noconvert(),
        "times"_a, "factor"_a, "add"_a, "out"_a.noconvert());
}

}  // namespace tersor
