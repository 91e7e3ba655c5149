// Rounding onto levels of each unit's own over whole arrays: spans of whole units, or parts of a long one, several a task.
#include "level_codes.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "unit_spans.h"

namespace tersor {
LevelsResult levels_encode(const f32u *x, i64 d, i64 unit, const f32u *levels, int bits, u64 key, u64 first,
                           bool stochastic, u8 *codes) {
  if (d == 0) return {0, 0};
  unit = std::min(unit, d);
  const i64 stride = packed_bytes(unit, bits), parts = unit > kChunk ? (unit - 1) / kChunk + 1 : 1;
  const i64 count = (d - 1) / unit + 1;
  std::vector<double> sums(static_cast<std::size_t>(2 * count * parts));  // of units, or of their parts
  each_span(d, unit, [&](i64 u, i64 begin, i64 units, i64 n) {
    const i64 i = u * unit + begin;
    kernels().levels_round(x + i, units, n, levels + (u << bits), bits, stochastic, key, first + static_cast<u64>(i),
                           codes + u * stride + packed_bytes(begin, bits), sums.data() + 2 * (u * parts + begin / kChunk));
  });
  sum_parts(sums, count, parts);
  return {ordered_sum(sums, 0), ordered_sum(sums, 1)};
}

void levels_decode(const u8 *codes, i64 d, i64 unit, const f32u *levels, int bits, double weight, bool add,
                   const u8 *present, f32u *out) {
  if (d == 0) return;
  unit = std::min(unit, d);
  const i64 stride = packed_bytes(unit, bits), size = i64{1} << bits;
  each_span(d, unit, [&](i64 unit_first, i64 begin, i64 units, i64 n) {
    constexpr float kMost = std::numeric_limits<float>::max();
    alignas(64) float table[256], values[kChunk];
    for (i64 u = unit_first; u < unit_first + units; ++u) {
      f32u *to = out + u * unit + begin;
      if (present && !present[u]) {
        for (i64 i = 0; i < n; ++i) to[i] = add ? to[i] + 0.0f : 0.0f;
        continue;
      }
      for (i64 k = 0; k < size; ++k) {
        const float value = static_cast<float>(static_cast<double>(levels[(u << bits) + k]) * weight);
        table[k] = (value > kMost ? kMost : value < -kMost ? -kMost : value) + 0.0f;  // -0 becomes +0
      }
      for (i64 k = size; k < 16; ++k) table[k] = table[k - size];
      const u8 *from = codes + u * stride + packed_bytes(begin, bits);
      if (add) {
        kernels().look_up(table, bits, from, n, 1, values);
        kernels().finish(values, n, nullptr, 1.0f, true, to);
      } else if (reinterpret_cast<std::uintptr_t>(to) % alignof(float) == 0) {
        kernels().look_up(table, bits, from, n, 1, reinterpret_cast<float *>(to));
      } else {
        kernels().look_up(table, bits, from, n, 1, values);
        std::memcpy(to, values, static_cast<std::size_t>(n) * 4);
      }
    }
  });
}

}  // namespace tersor
