// The loops of levels with shared randomness over units of at most 4,096 coordinates: rounding, and looking values up.
#pragma once

#include "level_codes_kernels.h"

namespace tersor {
namespace {

constexpr int kMostShared = 8;

// h = floor(word * shared / 2^32) + turn, mod shared.
void shared_symbols(u64 key, u64 word, i64 n, int shared, int turn, u32 *h) {
  philox(key, kDither, 0, word / 4, static_cast<int>(word % 4), n, h);
  const u32 most = static_cast<u32>(shared), more = static_cast<u32>(turn);
  for (i64 i = 0; i < n; ++i) {
    const u32 drawn = static_cast<u32>((u64{h[i]} * most) >> 32) + more;
    h[i] = drawn >= most ? drawn - most : drawn;
  }
}

// One unit's tables: means of windows and levels, both times `up`.
struct SharedTables {
  alignas(64) float thresholds[256 * kMostShared + 16];
  alignas(64) float coarse[16 * kMostShared];        // the thresholds that decide the first 4 bits of a longer code
  alignas(64) float levels[256 * kMostShared + 16];  // times `smaller`, too
  float up, smaller;                                 // as in LevelTables
  double t;
};

void make_shared_tables(const f32u *v, int count, int shared, SharedTables &made) {
  std::int32_t most = 0;
  for (int i = 0; i < count; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, v + i, 4);
    bits &= INT32_MAX;
    most = bits > most ? bits : most;
  }
  const int e = most == 0 ? 0 : most >= 1 << 23 ? (most >> 23) - 126 : -117 - __builtin_clz(static_cast<u32>(most));
  const int t = -e > 127 ? 127 : -e < -126 ? -126 : -e;
  const int up = 126 - e > 127 ? 127 : 126 - e < -2 ? -2 : 126 - e;
  made.up = power_of_two(up);
  made.smaller = power_of_two(t - up);
  made.t = static_cast<double>(power_of_two(t));
  for (int i = 0; i < count; ++i) made.levels[i] = (v[i] * made.up) * made.smaller;
  for (int k = 0; k <= count - shared; ++k) {
    const double first = static_cast<double>(v[k]);
    double total = 0;
    for (int i = 1; i < shared; ++i) total += static_cast<double>(v[k + i]) - first;
    made.thresholds[k] = static_cast<float>((first + total / shared) * static_cast<double>(made.up));
  }
  const int part = count / 16;  // a sixteenth of all codes of all codebooks
  if (part > shared)
    for (int k = 0; k < 15; ++k)
      for (int h = 0; h < shared; ++h) made.coarse[k * shared + h] = made.thresholds[(k + 1) * part - shared + h];
}

// a + by where x > entry.
TERSOR_INLINE I add_above(I a, F x, F entry, int by) {
#if defined(__AVX512F__)
  const __mmask16 above = _mm512_cmp_ps_mask(x, entry, _CMP_GT_OQ);
  return (I)_mm512_mask_add_epi32((__m512i)a, above, (__m512i)a, _mm512_set1_epi32(by));
#else
  return a + ((x > entry) & by);
#endif
}

// A byte a coordinate, n <= kChunk; `codes` has room for 15 more. Size: of tables that registers may hold.
template <int Bits, int Size>
void shared_round_unit(const f32u *x, i64 n, const u32 *words, const u32 *h, int shared, const SharedTables &tables,
                       u8 *codes, double *sums) {
  constexpr bool kInMemory = Size > 128;
  constexpr int kFirst = kInMemory ? 4 : Bits;  // bits found by tables in registers
  const Table<Size> thresholds(tables.thresholds), levels(tables.levels);
  const Table<kInMemory ? 128 : Size> nearest(kInMemory ? tables.coarse : tables.thresholds);
  const F low = all(tables.thresholds[0]), high = all(tables.thresholds[((1 << Bits) - 1) * shared]);
  const F up = all(tables.up), smaller = all(tables.smaller);
  LaneSum errors, energies;
  const auto one = [&](F value, const u32 *drawn, const u32 *symbols, F &error, F &scaled)
      __attribute__((always_inline)) {
    value = value * up;
    value = value > low ? value : low;  // NaN becomes low
    value = value < high ? value : high;
    const I which = *reinterpret_cast<const IU *>(symbols);
    I code = {}, at = which;  // at: code * shared + which
#pragma GCC unroll 8
    for (int by = 1 << (kFirst - 1); by > 0; by /= 2) {
      const F entry = nearest[at + (by - 1) * shared];
      at = add_above(at, value, entry, by * shared);
      code = add_above(code, value, entry, by);
    }
    if constexpr (kFirst < Bits) {
      code <<= Bits - kFirst;
      at = code * shared + which;
#pragma GCC unroll 8
      for (int by = 1 << (Bits - kFirst) >> 1; by > 0; by /= 2) {
        const F entry = thresholds[at + (by - 1) * shared];
        at = add_above(at, value, entry, by * shared);
        code = add_above(code, value, entry, by);
      }
    }
    const I none = code == 0;
    code -= none;
    at += none & shared;  // true is -1
    const F from = thresholds[at - shared], to = thresholds[at - shared + 1];
    const I word = *reinterpret_cast<const IU *>(drawn);
    const F u = __builtin_convertvector((word >> 8) & all(0xffffff), F) * all(0x1p-24f);
    const I down = u * (to - from) < to - value;
    code += down;
    scaled = value * smaller;
    error = levels[at - (down & shared)] - scaled;
    return code;
  };
  i64 i = 0;
  for (; i + 16 <= n; i += 16)
    for (int p = 0; p < kParts; ++p) {
      F error, scaled;
      const i64 at = i + p * kLanes;
      store_bytes(codes + at, one(load(x + at), words + at, h + at, error, scaled));
      errors.add(p, error * error);
      energies.add(p, scaled * scaled);
    }
  float tail_errors[16], tail_energies[16];
  const int count = static_cast<int>(n - i);
  if (count > 0) {
    alignas(64) float rest[16] = {};
    alignas(64) u32 drawn[16] = {}, symbols[16] = {};
    std::memcpy(rest, x + i, static_cast<std::size_t>(count) * 4);
    std::memcpy(drawn, words + i, static_cast<std::size_t>(count) * 4);
    std::memcpy(symbols, h + i, static_cast<std::size_t>(count) * 4);
    for (int p = 0; p < kParts; ++p) {
      F error, scaled;
      const int at = p * kLanes;
      store_bytes(codes + i + at, one(load(rest + at), drawn + at, symbols + at, error, scaled));
      store(tail_errors + at, error * error);
      store(tail_energies + at, scaled * scaled);
    }
  }
  sums[0] = errors.total(tail_errors, count) / tables.t / tables.t;
  sums[1] = energies.total(tail_energies, count) / tables.t / tables.t;
}

// Calls body with the least size of tables, as a constant, that holds shared << Bits entries.
template <int Bits, class Body>
TERSOR_INLINE void with_size(int shared, const Body &body) {
  constexpr int kLeast = 2 << Bits, kMost = kMostShared << Bits;
  const int count = shared << Bits;
  if constexpr (kLeast <= 16)
    if (count <= 16) return body(std::integral_constant<int, 16>{});
  if constexpr (kLeast <= 32 && kMost > 16)
    if (count <= 32) return body(std::integral_constant<int, 32>{});
  if constexpr (kLeast <= 64 && kMost > 32)
    if (count <= 64) return body(std::integral_constant<int, 64>{});
  if constexpr (kLeast <= 128 && kMost > 64)
    if (count <= 128) return body(std::integral_constant<int, 128>{});
  if constexpr (kMost > 128) body(std::integral_constant<int, 256 * kMostShared>{});
}

// Whole units of n coordinates, or one part of a unit; units * n <= kChunk. sums: two a unit.
void shared_round(const SharedDraws &draws, const f32u *x, i64 units, i64 n, const f32u *levels, int bits, u64 symbol,
                  u64 word, u8 *codes, double *sums) {
  alignas(64) u32 words[kChunk], h[kChunk];
  philox(draws.private_key, kRounding, 0, word / 4, static_cast<int>(word % 4), units * n, words);
  shared_symbols(draws.key, symbol, draws.by_rows ? n : units * n, draws.shared, draws.turn, h);
  const i64 stride = packed_bytes(n, bits);
  SharedTables tables;
  alignas(64) u8 plain[kChunk + 16];
  const int count = draws.shared << bits;
  for (i64 k = 0; k < units; ++k) {
    make_shared_tables(levels + k * count, count, draws.shared, tables);
    const u32 *symbols = draws.by_rows ? h : h + k * n;
    with_bits(bits, [&](auto b) {
      with_size<b.value>(draws.shared, [&](auto size) {
        shared_round_unit<b.value, size.value>(x + k * n, n, words + k * n, symbols, draws.shared, tables, plain,
                                               sums + 2 * k);
      });
      pack_bits<b.value>(plain, n, codes + k * stride);
    });
  }
}

// out = (or +=) table[code * shared + h]; the table has the levels of one unit times the weight.
template <int Size>
void look_up_shared(int shared, const float *table, const u8 *plain, i64 n, const u32 *h, bool add, f32u *out) {
  const Table<Size> values(table);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F value = values[load_bytes(plain + i) * shared + *reinterpret_cast<const IU *>(h + i)];
    store(out + i, add ? load(out + i) + value : value);
  }
  for (; i < n; ++i) {
    const float value = table[plain[i] * shared + static_cast<int>(h[i])];
    out[i] = add ? out[i] + value : value;
  }
}

void shared_expand(int bits, int shared, const float *table, const u8 *plain, i64 n, const u32 *h, bool add,
                   f32u *out) {
  with_bits(bits, [&](auto b) {
    with_size<b.value>(shared, [&](auto size) {
      look_up_shared<size.value>(shared, table, plain, n, h, add, out);
    });
  });
}

}  // namespace
}  // namespace tersor
