// Codes of levels with shared randomness over whole arrays: spans of whole units, or parts of a long one.
//
// R. Ben Basat, Y. Ben-Itzhak, M. Mitzenmacher, S. Vargaftik: "Better than Optimal: Improving Adaptive Stochastic
// Quantization Using Shared Randomness", SIGMETRICS 2026; kernels/reference/shared_codes.py says every step.
#include "shared_codes.h"

#include <limits>

#include "dispatch.h"
#include "unit_spans.h"

namespace tersor {
namespace {

// The word of the shared stream of coordinate `begin` of unit u.
u64 symbol_word(const SharedDraws &draws, u64 start, i64 u, i64 unit, i64 begin) {
  return draws.by_rows ? static_cast<u64>(begin) : start + static_cast<u64>(u * unit + begin);
}

}  // namespace

LevelsResult shared_encode(const SharedDraws &draws, const f32u *x, i64 d, i64 unit, const f32u *levels, int bits,
                           u64 start, u64 first, u8 *codes) {
  if (d == 0) return {0, 0};
  unit = std::min(unit, d);
  const i64 stride = packed_bytes(unit, bits), parts = unit > kChunk ? (unit - 1) / kChunk + 1 : 1;
  const i64 count = (d - 1) / unit + 1, n_levels = i64{draws.shared} << bits;
  std::vector<double> sums(static_cast<std::size_t>(2 * count * parts));  // of units, or of their parts
  each_span(d, unit, [&](i64 u, i64 begin, i64 units, i64 n) {
    const i64 i = u * unit + begin;
    kernels().shared_round(draws, x + i, units, n, levels + u * n_levels, bits,
                           symbol_word(draws, start, u, unit, begin), first + static_cast<u64>(i),
                           codes + u * stride + packed_bytes(begin, bits), sums.data() + 2 * (u * parts + begin / kChunk));
  });
  sum_parts(sums, count, parts);
  return {ordered_sum(sums, 0), ordered_sum(sums, 1)};
}

void shared_decode(const SharedDraws &draws, const u8 *codes, i64 d, i64 unit, const f32u *levels, int bits, u64 start,
                   double weight, bool add, const u8 *present, f32u *out) {
  if (d == 0) return;
  unit = std::min(unit, d);
  const i64 stride = packed_bytes(unit, bits), n_levels = i64{draws.shared} << bits;
  each_span(d, unit, [&](i64 unit_first, i64 begin, i64 units, i64 n) {
    constexpr float kMost = std::numeric_limits<float>::max();
    alignas(64) float table[256 * 8];
    alignas(64) u8 plain[kChunk + 64];
    alignas(64) u32 h[kChunk];
    kernels().shared_symbols(draws.key, symbol_word(draws, start, unit_first, unit, begin),
                             draws.by_rows ? n : units * n, draws.shared, draws.turn, h);
    for (i64 u = unit_first; u < unit_first + units; ++u) {
      f32u *to = out + u * unit + begin;
      if (present && !present[u]) {
        for (i64 i = 0; i < n; ++i) to[i] = add ? to[i] + 0.0f : 0.0f;
        continue;
      }
      for (i64 k = 0; k < n_levels; ++k) {
        const float value = static_cast<float>(static_cast<double>(levels[u * n_levels + k]) * weight);
        table[k] = (value > kMost ? kMost : value < -kMost ? -kMost : value) + 0.0f;  // -0 becomes +0
      }
      kernels().unpack(codes + u * stride + packed_bytes(begin, bits), n, bits, plain);
      kernels().shared_expand(bits, draws.shared, table, plain, n, draws.by_rows ? h : h + (u - unit_first) * n, add, to);
    }
  });
}

}  // namespace tersor
