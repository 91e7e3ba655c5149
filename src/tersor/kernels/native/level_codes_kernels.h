// The loops of levels of a unit's own over units of at most 4,096 coordinates: rounding at random or to the nearest.
#pragma once

#include "mx_kernels.h"

namespace tersor {
namespace {

// Lane l of the result is lane l - 1; lane 0 stays.
template <int... L>
TERSOR_INLINE F lane_before(F v, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(v, v, (L > 0 ? L - 1 : 0)...);
}
TERSOR_INLINE F lane_before(F v) { return lane_before(v, std::make_integer_sequence<int, kLanes>{}); }

// One unit's tables, ascending; what is beyond its 2^Bits levels is padding that no code reaches.
struct LevelTables {
  alignas(64) float search[256 + 16];  // levels, or for nearest rounding the thresholds
  alignas(64) float coarse[32];        // every eighth of the thresholds of 256 levels
  alignas(64) float upper[256 + 16];   // levels times `up`
  alignas(64) float widths[256 + 16];  // upper[k] - upper[k - 1], 0 for k = 0
  float low, high;                     // the ends
  float up, smaller;                   // powers of two: for differences; from there to what is about 1 and squared
  double back;                         // 1 over their product
};

template <int Bits, bool Stochastic>
TERSOR_INLINE void make_tables(const f32u *levels, LevelTables &made) {
  constexpr int kSize = 1 << Bits, kPadded = kSize < kLanes ? kLanes : kSize;
  F first = {};  // kept in a register: a load across stores waits for them
#if defined(__AVX512F__)
  first = (F)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << (kSize < 16 ? kSize : 16)) - 1), levels);
  store(made.search, first);
  if constexpr (kSize > kLanes) std::memcpy(made.search + kLanes, levels + kLanes, (kSize - kLanes) * 4);
#else
  if constexpr (kSize < kLanes) store(made.search, first);
  std::memcpy(made.search, levels, kSize * 4);
  first = load(made.search);
#endif
  I best = (I)first & all(INT32_MAX);
  for (int i = kLanes; i < kPadded; i += kLanes) best = greater(best, load_bits(made.search + i) & all(INT32_MAX));
  if constexpr (kLanes == 16) best = greater(best, (I)swap_lanes<kLanes == 16 ? 8 : 1>((F)best));
  if constexpr (kLanes >= 8) best = greater(best, (I)swap_lanes<kLanes >= 8 ? 4 : 1>((F)best));
  best = greater(best, (I)swap_lanes<2>((F)best));
  best = greater(best, (I)swap_lanes<1>((F)best));
  const std::int32_t most = best[0];
  // 2^(e - 1) <= largest magnitude < 2^e; 0 for zeros.
  const int e = most == 0 ? 0 : most >= 1 << 23 ? (most >> 23) - 126 : -117 - __builtin_clz(static_cast<u32>(most));
  const int t = -e > 127 ? 127 : -e < -126 ? -126 : -e;
  const int up = !Stochastic ? t : 126 - e > 127 ? 127 : 126 - e < -2 ? -2 : 126 - e;
  made.up = power_of_two(up);
  made.smaller = power_of_two(t - up);
  made.back = static_cast<double>(power_of_two(-t));
  made.low = levels[0];
  made.high = levels[kSize - 1];
  const F factor = all(made.up);
  first = first * factor;
  store(made.upper, first);
  for (int i = kLanes; i < kPadded; i += kLanes) store(made.upper + i, load(made.search + i) * factor);
  if constexpr (Stochastic) {
    store(made.widths, first - lane_before(first));
    for (int i = kLanes; i < kPadded; i += kLanes)
      store(made.widths + i, load(made.upper + i) - load(made.upper + i - 1));
  } else {
    float next = __builtin_inff();
    for (int k = kSize - 1; k >= 0; --k) {
      const float here = levels[k], after = k + 1 < kSize ? levels[k + 1] : next;
      if (k + 1 == kSize) {
        made.search[k] = next;
        continue;
      }
      if (here != after) {
        const float middle = static_cast<float>((static_cast<double>(here) + static_cast<double>(after)) / 2);
        next = middle > here ? middle : after;  // no level is rounded away from itself
      }
      made.search[k] = next;
    }
  }
  if constexpr (Bits > 7)
    for (int k = 0; k < 31; ++k) made.coarse[k] = made.search[8 * k + 7];
}

// How many of the first 2^Bits - 1 entries are below the values of a vector; for nearest rounding, or equal to them.
template <int Bits, bool Stochastic>
struct LevelSearch {
  static constexpr int kFirst = Bits < 8 ? Bits : 5;
  static constexpr int kSize = (1 << kFirst) < kLanes ? kLanes : 1 << kFirst;
  const Table<kSize> first;
  const Table<256> fine;
  const F middle;

  explicit LevelSearch(const LevelTables &t)
      : first(Bits < 8 ? t.search : t.coarse), fine(t.search), middle(all(t.search[(1 << (Bits - 1)) - 1])) {}

  __attribute__((always_inline)) static I step(I code, F x, F entry, int by) {
#if defined(__AVX512F__)
    const __mmask16 more = _mm512_cmp_ps_mask(x, entry, Stochastic ? _CMP_GT_OQ : _CMP_GE_OQ);
    return (I)_mm512_mask_add_epi32((__m512i)code, more, (__m512i)code, _mm512_set1_epi32(by));
#else
    return code + ((Stochastic ? x > entry : x >= entry) & by);
#endif
  }

  __attribute__((always_inline)) I operator()(F x) const {
    I code = step(I{}, x, middle, 1 << (kFirst - 1));
#pragma GCC unroll 8
    for (int by = 1 << (kFirst - 1) >> 1; by > 0; by /= 2) code = step(code, x, first[code + (by - 1)], by);
    if constexpr (kFirst < Bits) {
      code <<= Bits - kFirst;
#pragma GCC unroll 8
      for (int by = 1 << (Bits - kFirst) >> 1; by > 0; by /= 2) code = step(code, x, fine[code + (by - 1)], by);
    }
    return code;
  }
};

// A byte a coordinate, n <= kChunk; `codes` has room for 15 more. Adds to sums[0..1] the squared errors and squares.
template <int Bits, bool Stochastic>
TERSOR_INLINE void round_unit(const f32u *x, i64 n, const u32 *words, const LevelTables &tables, u8 *codes,
                              double *sums) {
  constexpr int kSize = (1 << Bits) < kLanes ? kLanes : 1 << Bits;
  const LevelSearch<Bits, Stochastic> search(tables);
  const Table<kSize> upper(tables.upper), widths(Stochastic ? tables.widths : tables.upper);
  const F low = all(tables.low), high = all(tables.high), up = all(tables.up), smaller = all(tables.smaller);
  LaneSum errors, energies;
  // The code of a vector, and what is to be squared.
  const auto one = [&](F value, const u32 *drawn, F &error, F &scaled) __attribute__((always_inline)) {
    if constexpr (!Stochastic) {
      const I code = search(value);
      scaled = value * up;
      error = upper[code] - scaled;
      return code;
    }
    value = value > low ? value : low;  // NaN becomes low
    value = value < high ? value : high;
    I code = search(value);
    scaled = value * up;
    const F rest = upper[code] - scaled, width = widths[code];
    const I word = *reinterpret_cast<const IU *>(drawn);
#if defined(__AVX512F__)
    const F u = (F)_mm512_cvtepu32_ps(_mm512_srli_epi32((__m512i)word, 8)) * all(0x1p-24f);
    const __mmask16 down = _mm512_cmp_ps_mask(u * width, rest, _CMP_LT_OQ);
    error = (F)_mm512_mask_sub_ps(rest, down, width, rest);
    code = (I)_mm512_mask_sub_epi32((__m512i)code, down, (__m512i)code, _mm512_set1_epi32(1));
#else
    const F u = __builtin_convertvector((word >> 8) & all(0xffffff), F) * all(0x1p-24f);
    const I down = u * width < rest;
    error = down ? width - rest : rest;
    code += down;  // true is -1
#endif
    error = error * smaller;
    scaled = scaled * smaller;
    return code;
  };
  i64 i = 0;
#pragma GCC unroll 2
  for (; i + 16 <= n; i += 16)
    for (int p = 0; p < kParts; ++p) {
      F error, scaled;
      const i64 at = i + p * kLanes;
      store_bytes(codes + at, one(load(x + at), words + at, error, scaled));
      errors.add(p, error * error);
      energies.add(p, scaled * scaled);
    }
  float tail_errors[16], tail_energies[16];
  const int count = static_cast<int>(n - i);
  if (count > 0) {
    alignas(64) float rest[16];
    alignas(64) u32 drawn[16] = {};
    for (int l = 0; l < 16; ++l) rest[l] = tables.low;
    std::memcpy(rest, x + i, static_cast<std::size_t>(count) * 4);
    if constexpr (Stochastic) std::memcpy(drawn, words + i, static_cast<std::size_t>(count) * 4);
    for (int p = 0; p < kParts; ++p) {
      F error, scaled;
      store_bytes(codes + i + p * kLanes, one(load(rest + p * kLanes), drawn + p * kLanes, error, scaled));
      store(tail_errors + p * kLanes, error * error);
      store(tail_energies + p * kLanes, scaled * scaled);
    }
  }
  sums[0] = errors.total(tail_errors, count) * tables.back * tables.back;
  sums[1] = energies.total(tail_energies, count) * tables.back * tables.back;
}

template <int Bits, bool Stochastic>
void round_units(const f32u *x, i64 units, i64 n, const f32u *levels, u64 key, u64 word, u8 *out, double *sums) {
  alignas(64) u32 words[Stochastic ? kChunk : 1];
  if constexpr (Stochastic) philox(key, kRounding, 0, word / 4, static_cast<int>(word % 4), units * n, words);
  const i64 stride = packed_bytes(n, Bits);
  alignas(64) LevelTables tables;
  alignas(64) u8 codes[kChunk + 16];
  for (i64 k = 0; k < units; ++k) {
    make_tables<Bits, Stochastic>(levels + (k << Bits), tables);
    round_unit<Bits, Stochastic>(x + k * n, n, Stochastic ? words + k * n : words, tables, codes, sums + 2 * k);
    pack_bits<Bits>(codes, n, out + k * stride);
  }
}

// Whole units of n coordinates, or one part of a unit; units * n <= kChunk. sums: two a unit.
void levels_round(const f32u *x, i64 units, i64 n, const f32u *levels, int bits, bool stochastic, u64 key, u64 word,
                  u8 *codes, double *sums) {
  with_bits(bits, [=](auto b) {
    if (stochastic) {
      round_units<b.value, true>(x, units, n, levels, key, word, codes, sums);
    } else {
      round_units<b.value, false>(x, units, n, levels, key, word, codes, sums);
    }
  });
}

}  // namespace
}  // namespace tersor
