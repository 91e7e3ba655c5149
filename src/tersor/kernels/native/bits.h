// Packing codes of 1 to 8 bits, 64 at a time: 8 byte codes are one 64-bit word, closed up in three shift-and-mask steps.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

typedef u64 W __attribute__((vector_size(64)));  // 64 byte codes
typedef u64 WU __attribute__((vector_size(64), aligned(1), may_alias));

// A mask of `Width` ones at the bottom of every `Step` bits, moved up by `Shift`.
template <int Width, int Step, int Shift>
constexpr u64 comb() {
  u64 mask = 0;
  for (int i = 0; i < 64; i += Step)
    for (int j = 0; j < Width; ++j) mask |= u64{1} << (i + j + Shift);
  return mask;
}

// Closes up pairs of fields of B bits at distance Step; T is u64 or W.
template <int B, int Step, class T>
TERSOR_INLINE T close_pairs(T x) {
  return (x & comb<B, 2 * Step, 0>()) | ((x & comb<B, 2 * Step, Step>()) >> (Step - B));
}
template <int B, int Step, class T>
TERSOR_INLINE T open_pairs(T x) {
  return (x & comb<B, 2 * Step, 0>()) | ((x << (Step - B)) & comb<B, 2 * Step, Step>());
}
template <int B, class T>
TERSOR_INLINE T close_up(T x) {
  if constexpr (B == 8) return x;
  return close_pairs<4 * B, 32>(close_pairs<2 * B, 16>(close_pairs<B, 8>(x)));
}
template <int B, class T>
TERSOR_INLINE T open_up(T x) {
  if constexpr (B == 8) return x;
  return open_pairs<B, 8>(open_pairs<2 * B, 16>(open_pairs<4 * B, 32>(x)));
}

// 64 codes into exactly 8 B bytes; bits above the width are dropped.
template <int B>
TERSOR_INLINE void pack64(W codes, u8 *out) {
#if defined(__AVX512F__)
  if constexpr (B == 8) {
    *reinterpret_cast<WU *>(out) = codes;
    return;
  }
  const __m512i x = (__m512i)(codes & comb<B, 8, 0>());
  if constexpr (B == 1) {
    const u64 bits = _mm512_test_epi8_mask(x, x);
    std::memcpy(out, &bits, 8);
  } else if constexpr (B == 2) {
    const __m512i pairs = _mm512_maddubs_epi16(x, _mm512_set1_epi16(0x0401));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    _mm_storeu_si128(reinterpret_cast<__m128i_u *>(out), _mm512_cvtepi32_epi8(fours));
  } else if constexpr (B == 4) {
    const __m512i pairs = _mm512_maddubs_epi16(x, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(out), _mm512_cvtepi16_epi8(pairs));
  } else if constexpr (B != 8) {
    // Each 128-bit lane holds two words of B bytes: closed up, then four stores, each writing over what the one before
    // left behind its 2 B bytes. The last ones are exact.
    constexpr auto order = [] {
      struct {
        alignas(16) u8 at[16];
      } made{};
      for (int i = 0; i < 16; ++i) made.at[i] = static_cast<u8>(i < B ? i : i < 2 * B ? 8 + i - B : 0x80);
      return made;
    }();
    const __m128i one = _mm_load_si128(reinterpret_cast<const __m128i *>(order.at));
    const __m512i y = _mm512_shuffle_epi8((__m512i)close_up<B>((W)x), _mm512_broadcast_i32x4(one));
    constexpr __mmask16 kAll = 0xffff, kExact = (1 << 2 * B) - 1;
    _mm_mask_storeu_epi8(out, kAll, _mm512_castsi512_si128(y));
    _mm_mask_storeu_epi8(out + 2 * B, kAll, _mm512_extracti32x4_epi32(y, 1));
    _mm_mask_storeu_epi8(out + 4 * B, B < 4 ? kExact : kAll, _mm512_extracti32x4_epi32(y, 2));
    _mm_mask_storeu_epi8(out + 6 * B, kExact, _mm512_extracti32x4_epi32(y, 3));
  }
#else
  const W x = close_up<B>(codes);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const u64 word = x[g];  // what a store leaves behind its B bytes, the next one overwrites
    std::memcpy(out + g * B, &word, g * B + 8 <= 8 * B ? 8 : B);
  }
#endif
}

// 64 codes from exactly 8 B bytes.
template <int B>
TERSOR_INLINE W unpack64(const u8 *in) {
  W x;
  if constexpr (kLanes == 16 && (B == 1 || B == 2 || B == 4)) {
    typedef std::conditional_t<B == 1, u8, std::conditional_t<B == 2, std::uint16_t, u32>> Word;
    typedef Word V __attribute__((vector_size(8 * B), aligned(1), may_alias));
    x = __builtin_convertvector(*reinterpret_cast<const V *>(in), W);
  } else {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      u64 word = 0;
      std::memcpy(&word, in + g * B, g * B + 8 <= 8 * B ? 8 : B);
      x[g] = word;
    }
  }
  return open_up<B>(x);
}

// Never writes beyond the packed bytes of n codes: the unit that follows may belong to another thread.
template <int B>
void pack_bits(const u8 *codes, i64 n, u8 *out) {
  i64 i = 0;
  for (; i + 64 <= n; i += 64, out += 8 * B) pack64<B>(*reinterpret_cast<const WU *>(codes + i), out);
  for (; i < n; i += 8, out += B) {
    const int count = static_cast<int>(n - i < 8 ? n - i : 8);
    u64 x = 0;
    std::memcpy(&x, codes + i, static_cast<std::size_t>(count));
    x = close_up<B>(x);
    std::memcpy(out, &x, static_cast<std::size_t>((count * B + 7) / 8));
  }
}

// Never reads beyond the packed bytes of n codes.
template <int B>
void unpack_bits(const u8 *in, i64 n, u8 *codes) {
  i64 i = 0;
  for (; i + 64 <= n; i += 64, in += 8 * B) *reinterpret_cast<WU *>(codes + i) = unpack64<B>(in);
  for (; i < n; i += 8, in += B) {
    const int count = static_cast<int>(n - i < 8 ? n - i : 8);
    u64 x = 0;
    std::memcpy(&x, in, static_cast<std::size_t>((count * B + 7) / 8));
    x = open_up<B>(x);
    std::memcpy(codes + i, &x, static_cast<std::size_t>(count));
  }
}

// Calls body(std::integral_constant<int, bits>) for bits = 1 .. 8.
template <class Body>
TERSOR_INLINE void with_bits(int bits, Body &&body) {
  switch (bits) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 3: return body(std::integral_constant<int, 3>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 5: return body(std::integral_constant<int, 5>{});
    case 6: return body(std::integral_constant<int, 6>{});
    case 7: return body(std::integral_constant<int, 7>{});
    default: return body(std::integral_constant<int, 8>{});
  }
}

void pack_codes(const u8 *codes, i64 n, int bits, u8 *out) {
  with_bits(bits, [=](auto b) { pack_bits<b.value>(codes, n, out); });
}

void unpack_codes(const u8 *in, i64 n, int bits, u8 *codes) {
  with_bits(bits, [=](auto b) { unpack_bits<b.value>(in, n, codes); });
}

}  // namespace
}  // namespace tersor
