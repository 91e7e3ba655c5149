// DynamiQ's loops over one super-group of 256 coordinates: a hop (add, find scales, round, pack), and looking values up.
#pragma once

#include "level_codes_kernels.h"

namespace tersor {
namespace {

constexpr i64 kSuper = 256, kGroup = 16;

// 16-bit halves of 128 words as numbers: the lower ones are those of the first 128 coordinates.
TERSOR_INLINE I half_words(const u32 *words, i64 i) {
  const I w = *reinterpret_cast<const IU *>(words + (i & 127));
  return i < 128 ? w & all(0xffff) : (w >> 16) & all(0xffff);
}

TERSOR_INLINE std::int32_t greatest_lane(I v) {
  if constexpr (kLanes == 16) v = greater(v, (I)swap_lanes<kLanes == 16 ? 8 : 1>((F)v));
  if constexpr (kLanes >= 8) v = greater(v, (I)swap_lanes<kLanes >= 8 ? 4 : 1>((F)v));
  v = greater(v, (I)swap_lanes<2>((F)v));
  v = greater(v, (I)swap_lanes<1>((F)v));
  return v[0];
}

// The least multiple of 2^16 at or above the bits of a finite magnitude: rounded up to bfloat16.
TERSOR_INLINE float up_to_bfloat(float m, std::uint16_t &raw) {
  u32 bits;
  std::memcpy(&bits, &m, 4);
  bits = m < 0x1p-100f ? 0 : (bits + 0xffff) & 0xffff0000u;
  raw = static_cast<std::uint16_t>(bits >> 16);
  std::memcpy(&m, &bits, 4);
  return m;
}

// v (+)= the record's values; `values`: of all codes. n whole vectors.
template <int B, bool Add>
TERSOR_INLINE void super_values(const SuperLevels &levels, const u8 *record, float *v) {
  constexpr int kSize = (1 << B) < kLanes ? kLanes : 1 << B;
  alignas(64) u8 codes[kSuper];
  unpack_bits<B>(record, kSuper, codes);
  const Table<kSize> table(levels.values);
  const u8 *steps = record + 32 * B;
  u32 bits = static_cast<u32>(steps[16]) << 16 | static_cast<u32>(steps[17]) << 24;
  float step;
  std::memcpy(&step, &bits, 4);
  step /= 255.0f;
  for (i64 g = 0; g < kGroup; ++g) {
    const F scale = all(static_cast<float>(steps[g]) * step);
    for (int p = 0; p < kParts; ++p) {
      const i64 i = g * kGroup + p * kLanes;
      const F value = table[load_bytes(codes + i)] * scale;
      store(v + i, Add ? load(v + i) + value : value);
    }
  }
}

template <int B>
TERSOR_INLINE void super_round(const SuperLevels &levels, const SuperDraws &draws, u64 index, const float *v, u8 *record,
                               double *sums) {
  constexpr int kTop = (1 << (B - 1)) - 1, kSize = kTop + 1 < kLanes ? kLanes : kTop + 1;
  alignas(64) u32 shared[kGroup], private_words[128];
  philox(draws.shared, kDither, 0, index * 4, 0, kGroup, shared);
  philox(draws.private_key, kRounding, 0, index * 32, 0, 128, private_words);
  alignas(64) float groups[kGroup], scales[kGroup], inverses[kGroup];
  const I magnitude = all(INT32_MAX);
  for (i64 g = 0; g < kGroup; ++g) {
    I best = load_bits(v + g * kGroup) & magnitude;
    for (int p = 1; p < kParts; ++p) best = greater(best, load_bits(v + g * kGroup + p * kLanes) & magnitude);
    const std::int32_t most = greatest_lane(best);
    std::memcpy(groups + g, &most, 4);
  }
  I top = load_bits(groups);
  for (int p = 1; p < kParts; ++p) top = greater(top, load_bits(groups + p * kLanes));
  std::int32_t most = greatest_lane(top);
  const bool finite = most < 0x7f800000;
  float largest;
  std::memcpy(&largest, &most, 4);
  alignas(64) float tame[kSuper];
  if (!finite) {  // what is not finite counts as 0; the sums tell
    for (i64 i = 0; i < kSuper; ++i) {
      u32 bits;
      std::memcpy(&bits, v + i, 4);
      tame[i] = (bits & INT32_MAX) >= 0x7f800000 ? 0.0f : v[i];
    }
    largest = 0;
    for (i64 g = 0; g < kGroup; ++g) {
      groups[g] = 0;
      for (i64 i = g * kGroup; i < (g + 1) * kGroup; ++i) {
        const float m = tame[i] < 0 ? -tame[i] : tame[i];
        groups[g] = m > groups[g] ? m : groups[g];
      }
      largest = groups[g] > largest ? groups[g] : largest;
    }
  }
  const float *from = finite ? v : tame;
  std::uint16_t raw;
  const float step = up_to_bfloat(largest, raw) / 255.0f;
  alignas(64) u8 codes[kSuper];
  u8 *steps = record + 32 * B;
  const Table<kSize> magnitudes(levels.magnitudes), widths(levels.widths);
  const Table<512, I> cells(levels.cells);
  for (int p = 0; p < kParts; ++p) {
    F quotient = load(groups + p * kLanes) / all(step), most_steps = all(255.0f);
    quotient = quotient < most_steps ? quotient : most_steps;
    I count = __builtin_convertvector(quotient, I);
    count -= __builtin_convertvector(count, F) < quotient;  // rounded up; true is -1
    if (!(step > 0)) count = I{};
    store_bytes(steps + p * kLanes, count);
    const F scale = __builtin_convertvector(count, F) * all(step), none = {};
    store(scales + p * kLanes, scale);
    store(inverses + p * kLanes, scale > none ? all(1.0f) / scale : none);
  }
  const float each = static_cast<float>(1.0 / draws.size);
  LaneSum errors, energies;
  for (i64 g = 0; g < kGroup; ++g) {
    const F scale = all(scales[g]), inverse = all(inverses[g]);
    const u32 turned = static_cast<u32>((u64{shared[g]} * static_cast<u32>(draws.size)) >> 32) + static_cast<u32>(draws.rank);
    const F stratum = all(static_cast<float>(turned % static_cast<u32>(draws.size)));
    for (int p = 0; p < kParts; ++p) {
      const i64 i = g * kGroup + p * kLanes;
      const F value = load(from + i), one = all(1.0f);
      F t = (F)((I)value & magnitude) * inverse;
      t = t < one ? t : one;
      I below = {};
      if constexpr (B == 8) {
        const I cell = __builtin_convertvector(t * all(512.0f), I);
        below = cells[cell < all(511) ? cell : all(511)];
        below -= t >= magnitudes[below + 1];  // true is -1
        below = below < all(kTop - 1) ? below : all(kTop - 1);
      } else if constexpr (B > 2) {
#pragma GCC unroll 8
        for (int by = (kTop + 1) / 2; by > 0; by /= 2) {
          const I next = below + by;
          below += (t >= magnitudes[next]) & by;
        }
        below = below < all(kTop - 1) ? below : all(kTop - 1);
      }
      const F low = B > 2 ? magnitudes[below] : F{}, width = B > 2 ? widths[below] : one;
      const F inside = (__builtin_convertvector(half_words(private_words, i), F) + all(0.5f)) * all(0x1p-16f);
      F u = (stratum + inside) * all(each);
      const I negative = (I)value >> 31;  // -1 or 0
      u = negative ? one - u : u;
      const I up = u * width < t - low;
      const I level = below - up;
      const I code = (level ^ negative) - negative + kTop;
      store_bytes(codes + i, code);
      const F rest = (F)((I)((low + (F)((I)width & up)) * scale) ^ (negative & all(INT32_MIN))) - load(v + i);
      errors.add(p, rest * rest);
      energies.add(p, load(v + i) * load(v + i));
    }
  }
  steps[16] = static_cast<u8>(raw);
  steps[17] = static_cast<u8>(raw >> 8);
  pack_bits<B>(codes, kSuper, record);
  sums[0] = errors.total(nullptr, 0);
  sums[1] = energies.total(nullptr, 0);
}

// v = x * scale - mean, zeros from n on.
TERSOR_INLINE void super_load(const f32u *x, i64 n, float scale, float mean, float *v) {
  const F factor = all(scale), shift = all(mean);
  if (n < kSuper) {
    alignas(64) float copy[kSuper] = {};
    std::memcpy(copy, x, static_cast<std::size_t>(n) * 4);
    for (i64 i = 0; i < kSuper; i += kLanes) store(v + i, load(copy + i) * factor - shift);
    return;
  }
  for (i64 i = 0; i < kSuper; i += kLanes) store(v + i, load(x + i) * factor - shift);
}

template <class Body>
TERSOR_INLINE void with_width(int bits, Body &&body) {
  if (bits == 2) return body(std::integral_constant<int, 2>{});
  if (bits == 4) return body(std::integral_constant<int, 4>{});
  return body(std::integral_constant<int, 8>{});
}

void super_hop(const SuperLevels &levels, int bits, const SuperDraws &draws, u64 index, const f32u *x, i64 n, float scale,
               float mean, const u8 *received, u8 *record, double *sums) {
  alignas(64) float v[kSuper];
  super_load(x, n, scale, mean, v);
  with_width(bits, [&](auto b) {
    if (received) super_values<b.value, true>(levels, received, v);
    super_round<b.value>(levels, draws, index, v, record, sums);
  });
}

// out = (or +=) (values + shift) * factor, the first n.
void super_decode(const SuperLevels &levels, int bits, const u8 *record, i64 n, float shift, float factor, bool add,
                  f32u *out) {
  alignas(64) float v[kSuper];
  with_width(bits, [&](auto b) { super_values<b.value, false>(levels, record, v); });
  const F more = all(shift), times = all(factor);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F value = (load(v + i) + more) * times;
    store(out + i, add ? load(out + i) + value : value);
  }
  for (; i < n; ++i) {
    const float value = (v[i] + shift) * factor;
    out[i] = add ? out[i] + value : value;
  }
}

// Mean and squares around it of x * scale; zeros from n on count too.
void super_stats(const f32u *x, i64 n, float scale, float *mean, float *energy) {
  alignas(64) float v[kSuper];
  super_load(x, n, scale, 0, v);
  LaneSum sum, squares;
  for (i64 i = 0; i < kSuper; i += 16)
    for (int p = 0; p < kParts; ++p) sum.add(p, load(v + i + p * kLanes));
  *mean = static_cast<float>(sum.total(nullptr, 0) / kSuper);
  const F shift = all(*mean);
  for (i64 i = 0; i < kSuper; i += 16)
    for (int p = 0; p < kParts; ++p) {
      const F rest = load(v + i + p * kLanes) - shift;
      squares.add(p, rest * rest);
    }
  *energy = static_cast<float>(squares.total(nullptr, 0));
}

}  // namespace
}  // namespace tersor
