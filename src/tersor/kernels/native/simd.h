// One native vector of kLanes floats (AVX-512: 16, AVX2: 8, else 4) and the operations that C++ has no operator for.
//
// GNU vector types of the native width: +, -, *, comparisons and constant shuffles compile to single instructions; wider
// ones do not. Everything here has internal linkage: the same names are compiled once per level, and the linker must
// never fold them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
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

#if defined(__FMA__)
// a * b + c, rounded once.
TERSOR_INLINE F multiply_add(F a, F b, F c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  return _mm256_fmadd_ps(a, b, c);
#endif
}
#endif

TERSOR_INLINE F flip(F v, I mask) { return (F)((I)v ^ mask); }

// Flips the signs that stand in bits i .. i + kLanes - 1, i a multiple of kLanes.
TERSOR_INLINE F flip(F v, const u32 *signs, i64 i) {
#if defined(__AVX512F__)
  std::uint16_t bits;
  std::memcpy(&bits, reinterpret_cast<const u8 *>(signs) + i / 8, 2);
  return (F)_mm512_mask_xor_epi32((__m512i)v, bits, (__m512i)v, _mm512_set1_epi32(INT32_MIN));
#else
  const I word = all(static_cast<std::int32_t>(signs[i >> 5] >> (i & 31)));
  return flip(v, ((word & all(1) << kIota) != 0) & all(INT32_MIN));
#endif
}
TERSOR_INLINE float flip1(float v, const u32 *signs, i64 i) {
  u32 bits;
  std::memcpy(&bits, &v, 4);
  bits ^= signs[i >> 5] >> (i & 31) << 31;
  std::memcpy(&v, &bits, 4);
  return v;
}

// A table of Size values of 4 bytes, held in registers where the level can look values up there; a table in registers
// ignores the bits of an index above its size.
template <int Size, class V = F>
struct Table {
#if defined(__AVX512F__)
  static constexpr int kRegisters = Size <= 16 ? 1 : Size <= 128 ? Size / 16 : 0;
#elif defined(__AVX2__)
  static constexpr int kRegisters = Size <= 8 ? 1 : Size <= 16 ? 2 : 0;
#else
  static constexpr int kRegisters = 0;
#endif
  const void *memory;  // padded to whole registers
  V part[kRegisters > 0 ? kRegisters : 1];

  explicit Table(const void *p) : memory(p) {
    for (int r = 0; r < kRegisters; ++r) part[r] = (V)load(static_cast<const f32u *>(p) + r * kLanes);
  }

  __attribute__((always_inline)) V operator[](I index) const {
#if defined(__AVX512F__)
    if constexpr (kRegisters == 0) return (V)_mm512_i32gather_epi32((__m512i)index, memory, 4);
    return look_up<0, kRegisters>(index);
#elif defined(__AVX2__)
    if constexpr (kRegisters == 0)
      return (V)_mm256_i32gather_epi32(static_cast<const int *>(memory), (__m256i)index, 4);
    const F first = _mm256_permutevar8x32_ps((F)part[0], (__m256i)index);
    if constexpr (kRegisters < 2) return (V)first;
    const F second = _mm256_permutevar8x32_ps((F)part[kRegisters - 1], (__m256i)index);
    return (V)_mm256_blendv_ps(first, second, (__m256)(index << 28));  // bit 3 chooses
#else
    V v;
    for (int l = 0; l < kLanes; ++l) std::memcpy(&v[l], static_cast<const char *>(memory) + 4 * index[l], 4);
    return v;
#endif
  }

#if defined(__AVX512F__)
 private:
  // Registers Begin .. Begin + Count - 1: halves looked up apart, then a bit of the index chooses.
  template <int Begin, int Count>
  __attribute__((always_inline)) V look_up(I index) const {
    if constexpr (Count == 1) {
      return (V)_mm512_permutexvar_epi32((__m512i)index, (__m512i)part[Begin]);
    } else if constexpr (Count == 2) {
      return (V)_mm512_permutex2var_epi32((__m512i)part[Begin], (__m512i)index, (__m512i)part[Begin + 1]);
    } else {
      const V low = look_up<Begin, Count / 2>(index), high = look_up<Begin + Count / 2, Count / 2>(index);
      const __mmask16 upper = _mm512_test_epi32_mask((__m512i)index, _mm512_set1_epi32(8 * Count));
      return (V)_mm512_mask_blend_epi32(upper, (__m512i)low, (__m512i)high);
    }
  }
#endif
};

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
