// One native vector of kLanes floats (AVX-512: 16, AVX2: 8, else 4) and the operations that C++ has no operator for.
//
// GNU vector types of the native width: +, -, *, comparisons and constant shuffles compile to single instructions; wider
// ones do not. Everything here has internal linkage: the same names are compiled once per level, and the linker must
// never fold them.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "simd_types.h"

#define TERSOR_INLINE static inline __attribute__((always_inline))

namespace tersor {

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int kParts = 16 / kLanes;  // vectors that hold the 16 lanes of a sum

typedef float F __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t I __attribute__((vector_size(kLanes * 4)));
typedef float FU __attribute__((vector_size(kLanes * 4), aligned(1), may_alias));
typedef std::int32_t IU __attribute__((vector_size(kLanes * 4), aligned(1), may_alias));

TERSOR_INLINE F load(const f32u *p) { return *reinterpret_cast<const FU *>(p); }
TERSOR_INLINE void store(f32u *p, F v) { *reinterpret_cast<FU *>(p) = v; }
TERSOR_INLINE I load_bits(const f32u *p) { return *reinterpret_cast<const IU *>(p); }
TERSOR_INLINE F all(float v) { return v - F{}; }  // v - (+0) is v for every v, -0 included
TERSOR_INLINE I all(std::int32_t v) { return v - I{}; }

template <int... L>
constexpr I iota(std::integer_sequence<int, L...>) {
  return I{L...};
}
constexpr I kIota = iota(std::make_integer_sequence<int, kLanes>{});

// Lane l of the result is lane l ^ S.
template <int S, int... L>
TERSOR_INLINE F swap_lanes(F v, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(v, v, (L ^ S)...);
}
template <int S>
TERSOR_INLINE F swap_lanes(F v) {
  return swap_lanes<S>(v, std::make_integer_sequence<int, kLanes>{});
}

// The sign bits of coordinates i .. i + kLanes - 1, i a multiple of kLanes.
TERSOR_INLINE I sign_mask(const u32 *signs, i64 i) {
  const I word = all(static_cast<std::int32_t>(signs[i >> 5] >> (i & 31)));
  const I bit = all(1) << kIota;
  return ((word & bit) != 0) & all(INT32_MIN);
}
TERSOR_INLINE F flip(F v, I mask) { return (F)((I)v ^ mask); }
TERSOR_INLINE float flip1(float v, const u32 *signs, i64 i) {
  u32 bits;
  std::memcpy(&bits, &v, 4);
  bits ^= signs[i >> 5] >> (i & 31) << 31;
  std::memcpy(&v, &bits, 4);
  return v;
}

// A table of Size floats, held in registers where the level can look values up there.
template <int Size>
struct Table {
#if defined(__AVX512F__)
  static constexpr int kRegisters = Size <= 16 ? 1 : Size <= 32 ? 2 : 0;
#elif defined(__AVX2__)
  static constexpr int kRegisters = Size <= 8 ? 1 : Size <= 16 ? 2 : 0;
#else
  static constexpr int kRegisters = 0;
#endif
  const float *memory;  // padded to 2 kLanes floats
  F low{}, high{};

  explicit Table(const float *p) : memory(p) {
    if constexpr (kRegisters > 0) low = load(p);
    if constexpr (kRegisters > 1) high = load(p + kLanes);
  }

  __attribute__((always_inline)) F operator[](I index) const {
#if defined(__AVX512F__)
    if constexpr (kRegisters == 1) return _mm512_permutexvar_ps((__m512i)index, low);
    if constexpr (kRegisters == 2) return _mm512_permutex2var_ps(low, (__m512i)index, high);
    return _mm512_i32gather_ps((__m512i)index, memory, 4);
#elif defined(__AVX2__)
    if constexpr (kRegisters == 0) return _mm256_i32gather_ps(memory, (__m256i)index, 4);
    const F first = _mm256_permutevar8x32_ps(low, (__m256i)index);
    if constexpr (kRegisters == 1) return first;
    const F second = _mm256_permutevar8x32_ps(high, (__m256i)index);
    return _mm256_blendv_ps(first, second, (__m256)(index << 28));  // bit 3 chooses
#else
    F v;
    for (int l = 0; l < kLanes; ++l) v[l] = memory[index[l]];
    return v;
#endif
  }
};

// 16 codes below 256, as bytes.
TERSOR_INLINE void store_codes(u8 *p, const I *code) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i_u *>(p), _mm512_cvtepi32_epi8((__m512i)code[0]));
#elif defined(__AVX2__)
  const __m256i words = _mm256_packs_epi32((__m256i)code[0], (__m256i)code[1]);  // 128-bit halves interleaved
  const __m256i sorted = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i_u *>(p),
                   _mm_packus_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1)));
#elif defined(__SSE2__)
  const __m128i low = _mm_packs_epi32((__m128i)code[0], (__m128i)code[1]);
  const __m128i high = _mm_packs_epi32((__m128i)code[2], (__m128i)code[3]);
  _mm_storeu_si128(reinterpret_cast<__m128i_u *>(p), _mm_packus_epi16(low, high));
#else
  for (int l = 0; l < 16; ++l) p[l] = static_cast<u8>(code[l / kLanes][l % kLanes]);
#endif
}

TERSOR_INLINE I load_codes(const u8 *p) {
#if defined(__AVX512F__)
  return (I)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u *>(p)));
#elif defined(__AVX2__)
  return (I)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u *>(p)));
#else
  I v;
  for (int l = 0; l < kLanes; ++l) v[l] = p[l];
  return v;
#endif
}

// The one order of float sums (FORMAT.md section 4): 16 lanes, then a fixed tree. It covers one chunk (at most 4,096).
struct LaneSum {
  F part[kParts] = {};

  __attribute__((always_inline)) void add(int p, F v) { part[p] = part[p] + v; }

  // `tail` terms go into lanes 0, 1, ...; they are what is left after the last 16.
  __attribute__((always_inline)) double total(const float *tail, int count) const {
    float lane[16];
    std::memcpy(lane, part, sizeof lane);
    for (int l = 0; l < count; ++l) lane[l] += tail[l];
    for (int half = 8; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    return lane[0];
  }
};

}  // namespace
}  // namespace tersor
