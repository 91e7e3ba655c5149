// The code of a value: how many thresholds are at or below it. Exact on every level, ties included.
//
// Two ways. In general, a binary search. On AVX-512 a grid: cells of one width hold at most one threshold each (the
// widths are those of Lloyd-Max levels; quantizer.cpp checks, else the search is used), so a look-up by cell gives the
// code of the cell's lower end and the threshold that may add 1. Bytes for a uniform grid have cells of their own width.
#pragma once

#include "bits.h"
#include "kernels.h"

namespace tersor {
namespace {

struct Quantised {
  F z, q;  // the value and the level of its code
  I code;
};

// The number of thresholds <= z, for one vector.
template <int Bits>
struct BinarySearch {
  // Bits that tables in registers decide; the others take a load a lane each.
  static constexpr int kFirst = kLanes == 16 ? (Bits < 5 ? Bits : 5) : (Bits < 4 ? Bits : 4);
  const Table<1 << kFirst> first;
  const Table<1 << Bits> levels;
  const float *thresholds;

  explicit BinarySearch(const Quantizer &q)
      : first(kFirst == Bits ? q.thresholds : kFirst == 5 ? q.first5 : q.first4),
        levels(q.levels),
        thresholds(q.thresholds) {}

  __attribute__((always_inline)) Quantised operator()(F y, F inv) const {
    const F z = y * inv;
    I code{};
    if constexpr (Table<1 << kFirst>::kRegisters == 0) {
      const auto *one = static_cast<const float *>(first.memory);
      for (int k = 0; k < (1 << kFirst) - 1; ++k) code -= z >= all(one[k]);  // no look-up: count
    } else {
      constexpr int half = 1 << (kFirst - 1);
      code = (z >= all(static_cast<const float *>(first.memory)[half - 1])) & half;
#pragma GCC unroll 4
      for (int step = half / 2; step > 0; step /= 2) code += (z >= first[code + (step - 1)]) & step;
    }
    if constexpr (kFirst < Bits) {
      const Table<256> fine(thresholds);
      code <<= Bits - kFirst;
#pragma GCC unroll 4
      for (int step = 1 << (Bits - kFirst - 1); step > 0; step /= 2) code += (z >= fine[code + (step - 1)]) & step;
    }
    return {z, levels[code], code};
  }
};

#if defined(__AVX512F__)
// 1 to 4 bits: 32 cells; the code of the lower end and the threshold come from registers.
template <int Bits>
struct GridSearch {
  const Table<32> thresholds;
  const Table<32, I> codes;
  const Table<16> levels;
  const __m512 limit;
  const float threshold, low, high;  // of 1 bit

  explicit GridSearch(const Quantizer &q)
      : thresholds(q.cell_thresholds),
        codes(q.cell_codes),
        levels(q.levels),
        limit(_mm512_set1_ps(q.limit)),
        threshold(q.thresholds[0]),
        low(q.levels[0]),
        high(q.levels[1]) {}

  __attribute__((always_inline)) Quantised operator()(F y, F inv) const {
    const F z = y * inv;
    if constexpr (Bits == 1) {
      const __mmask16 up = _mm512_cmp_ps_mask(z, all(threshold), _CMP_GE_OQ);
      return {z, _mm512_mask_blend_ps(up, all(low), all(high)), (I)_mm512_maskz_set1_epi32(up, 1)};
    } else {
      const __m512 inside = _mm512_range_ps(z, limit, 0b0010);  // the lesser magnitude, with the sign of z
      // Rounding down the sum with 1.5 * 2^23 leaves floor(z / width) in the lowest bits.
      const I cell = (I)_mm512_fmadd_round_ps(inside, all(Quantizer::cells_a_unit(Bits)), all(12582912.0f),
                                              _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
      const I low = codes[cell];
      const __mmask16 more = _mm512_cmp_ps_mask(z, thresholds[cell], _CMP_GE_OQ);
      const I code = (I)_mm512_mask_add_epi32((__m512i)low, more, (__m512i)low, _mm512_set1_epi32(1));
      return {z, levels[code], code};
    }
  }
};

// 5 to 8 bits, thresholds and levels symmetric: cells of the magnitude. An entry is the code of the lower end << 23, plus
// 2^23 less the bits of the threshold: adding the bits of the magnitude carries into the code if it is at or above it.
// (Within a cell magnitudes have one exponent, so they differ by less than 2^23.) A negative value is quantised as the
// next smaller magnitude, since on a tie it must go up, and then mirrored.
template <int Bits>
struct MagnitudeSearch {
  const Table<Quantizer::cells(Bits), I> entries;
  const Table<1 << (Bits - 1)> levels;
  const F limit;

  explicit MagnitudeSearch(const Quantizer &q)
      : entries(q.entries), levels(q.levels + (1 << (Bits - 1))), limit(all(q.limit)) {}

  __attribute__((always_inline)) Quantised operator()(F y, F inv) const {
    constexpr float scale = Quantizer::cells_a_unit(Bits);
    const F z = y * inv;
    const __mmask16 negative = _mm512_cmp_ps_mask(z, F{}, _CMP_LT_OQ);  // false for -0
    const __m512i magnitude = (__m512i)((I)z & all(INT32_MAX)), one = _mm512_set1_epi32(1);
    __m512i m = _mm512_mask_sub_epi32(magnitude, negative, magnitude, one);
    // What is below the first cell has its code.
    m = _mm512_min_epi32(_mm512_max_epi32(m, (__m512i)all(1 / scale)), (__m512i)limit);
    const F sum = (F)_mm512_fmadd_round_ps((__m512)m, all(scale), all(8388608.0f),
                                           _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    I cell = (I)sum;
    if constexpr (decltype(entries)::kRegisters == 0) cell &= Quantizer::cells(Bits) - 1;
    const I upper = (I)_mm512_srli_epi32((__m512i)(entries[cell] + (I)m), 23);  // of the upper half: 2^(Bits-1) + ...
    const F q = levels[decltype(levels)::kRegisters == 0 ? upper & ((1 << (Bits - 1)) - 1) : upper];
    const __m512i sign = _mm512_set1_epi32(INT32_MIN), mirror = _mm512_set1_epi32((1 << Bits) - 1);
    return {z, (F)_mm512_mask_xor_epi32((__m512i)q, negative, (__m512i)q, sign),
            (I)_mm512_mask_xor_epi32((__m512i)upper, negative, (__m512i)upper, mirror)};
  }
};

// 8 bits of any kind with a wide grid: as GridSearch, with tables in memory.
struct WideSearch {
  const Table<256> thresholds, levels;
  const Table<256, I> codes;
  const __m512 scale, limit;

  explicit WideSearch(const Quantizer &q)
      : thresholds(q.wide_thresholds),
        levels(q.levels),
        codes(q.wide_codes),
        scale(_mm512_set1_ps(q.wide_scale)),
        limit(_mm512_set1_ps(q.wide_limit)) {}

  __attribute__((always_inline)) Quantised operator()(F y, F inv) const {
    const F z = y * inv;
    const __m512 inside = _mm512_range_ps(z, limit, 0b0010);
    const I cell = (I)_mm512_fmadd_round_ps(inside, scale, _mm512_set1_ps(12582912.0f),
                                            _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC) & all(255);
    const I low = codes[cell];
    const __mmask16 more = _mm512_cmp_ps_mask(z, thresholds[cell], _CMP_GE_OQ);
    const I code = (I)_mm512_mask_add_epi32((__m512i)low, more, (__m512i)low, _mm512_set1_epi32(1));
    return {z, levels[code], code};
  }
};
#endif

// Calls body(search), with the fastest search that is exact for this quantizer.
template <int Bits, class Body>
TERSOR_INLINE void with_search(const Quantizer &q, Body &&body) {
#if defined(__AVX512F__)
  if (q.grid) {
    if constexpr (Bits < 5) {
      return body(GridSearch<Bits>(q));
    } else {
      return body(MagnitudeSearch<Bits>(q));
    }
  }
  if constexpr (Bits == 8) {
    if (q.wide) return body(WideSearch(q));
  }
#endif
  body(BinarySearch<Bits>(q));
}

TERSOR_INLINE int search_one(const Quantizer &quantizer, float z) {
  int code = 0;
  for (int step = 1 << (quantizer.bits - 1); step > 0; step /= 2)
    code += z >= quantizer.thresholds[code + step - 1] ? step : 0;
  return code;
}

// 64 codes, in 64 / kLanes vectors, as bytes.
TERSOR_INLINE W to_bytes(const I *code) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_packs_epi32((__m512i)code[0], (__m512i)code[1]);
  const __m512i high = _mm512_packs_epi32((__m512i)code[2], (__m512i)code[3]);
  // 128-bit lane l holds the l-th quarter of each of the four vectors.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (W)_mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
#else
  alignas(64) u8 bytes[64];
#if defined(__AVX2__)
  for (int i = 0; i < 4; ++i, code += 2) {
    const __m256i words = _mm256_packs_epi32((__m256i)code[0], (__m256i)code[1]);  // 128-bit halves interleaved
    const __m256i sorted = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_store_si128(reinterpret_cast<__m128i *>(bytes + 16 * i),
                    _mm_packus_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1)));
  }
#elif defined(__SSE2__)
  for (int i = 0; i < 4; ++i, code += 4) {
    const __m128i low = _mm_packs_epi32((__m128i)code[0], (__m128i)code[1]);
    const __m128i high = _mm_packs_epi32((__m128i)code[2], (__m128i)code[3]);
    _mm_store_si128(reinterpret_cast<__m128i *>(bytes + 16 * i), _mm_packus_epi16(low, high));
  }
#else
  for (int l = 0; l < 64; ++l) bytes[l] = static_cast<u8>(code[l / kLanes][l % kLanes]);
#endif
  return *reinterpret_cast<const WU *>(bytes);
#endif
}

}  // namespace
}  // namespace tersor
