// One chunk of rANS: encoded from the last symbol to the first, decoded forwards. Lane i % lanes codes symbol i.
#pragma once

#include "rans.h"
#include "simd.h"

namespace tersor {
namespace {

// Encoding one symbol on one lane; `to` moves down by a word or stays.
TERSOR_INLINE u32 rans_put(const RansEncodeTable &t, u32 x, u32 symbol, u8 *&to) {
  const u32 packed = t.packed[symbol], f = packed & 0xffff;
  const bool full = x >> (32 - t.bits) >= f;
  reinterpret_cast<u16u *>(to)[-1] = static_cast<std::uint16_t>(x);  // there is room: the states follow below
  to -= 2 * full;
  x = full ? x >> 16 : x;
  const u64 product = (u64{x} + (packed >> 31)) * t.reciprocal[symbol];
  const u32 q = static_cast<u32>(product >> 32) >> rans_shift(f);
  return x + (packed >> 16 & 0x7fff) + q * ((1u << t.bits) - f);
}

// Decoding one symbol; the word that may be needed is not read.
template <bool Narrow>
TERSOR_INLINE u32 rans_get(const RansDecodeTable &t, u32 x, u8 &symbol) {
  const u32 slot = x & ((1u << t.bits) - 1), q = x >> t.bits;
  if constexpr (Narrow) {
    const u32 entry = t.entry[slot];
    symbol = static_cast<u8>(entry);
    return q * ((entry >> 8 & 0xfff) + 1) + (entry >> 20);
  } else {
    symbol = t.symbol[slot];
    const u32 packed = t.packed[symbol];
    return q * (packed & 0xffff) + slot - (packed >> 16);
  }
}

#if defined(__AVX512F__)

// 16 symbols at a time, as many as end at `i`, a multiple of 16; false if a symbol has no frequency.
template <bool Small>
TERSOR_INLINE bool rans_put_rows(const RansEncodeTable &t, const u8 *symbols, i64 i, u32 *states, u8 *&end) {
  const __m512i first_packed = _mm512_load_si512(t.packed), first_reciprocal = _mm512_load_si512(t.reciprocal);
  const __m512i one = _mm512_set1_epi32(1), total = _mm512_set1_epi32(1 << t.bits);
  const __m128i down = _mm_cvtsi32_si128(32 - t.bits);
  __m512i x = _mm512_load_si512(states), seen = _mm512_setzero_si512();
  __mmask16 absent = 0;
  u8 *to = end;
  for (i -= 16; i >= 0; i -= 16) {
    const __m512i symbol =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(symbols + i)));
    __m512i packed, reciprocal;
    if constexpr (Small) {
      seen = _mm512_or_si512(seen, symbol);
      packed = _mm512_permutexvar_epi32(symbol, first_packed);
      reciprocal = _mm512_permutexvar_epi32(symbol, first_reciprocal);
    } else {
      packed = _mm512_i32gather_epi32(symbol, t.packed, 4);
      reciprocal = _mm512_i32gather_epi32(symbol, t.reciprocal, 4);
    }
    const __m512i f = _mm512_and_si512(packed, _mm512_set1_epi32(0xffff));
    absent |= _mm512_testn_epi32_mask(f, f);
    const __m512i start = _mm512_and_si512(_mm512_srli_epi32(packed, 16), _mm512_set1_epi32(0x7fff));
    const __m512i inc = _mm512_srli_epi32(packed, 31);
    const __m512i shift = _mm512_sub_epi32(
        _mm512_set1_epi32(31), _mm512_lzcnt_epi32(_mm512_max_epi32(_mm512_sub_epi32(f, one), one)));
    const __m512i gap = _mm512_sub_epi32(total, f);

    const __mmask16 full = _mm512_cmpge_epu32_mask(_mm512_srl_epi32(x, down), f);
    const int count = __builtin_popcount(full);
    to -= 2 * count;
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1),
                             _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, x)));
    x = _mm512_mask_srli_epi32(x, full, x, 16);
    // The upper halves of (x + inc) * reciprocal; the sum does not overflow, or its quotient does not count (f = total).
    const __m512i y = _mm512_add_epi32(x, inc);
    const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(y, reciprocal), 32);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(y, 32), _mm512_srli_epi64(reciprocal, 32));
    const __m512i q = _mm512_srlv_epi32(_mm512_mask_blend_epi32(0xaaaa, even, odd), shift);
    x = _mm512_add_epi32(_mm512_add_epi32(x, start), _mm512_mullo_epi32(q, gap));
  }
  _mm512_store_si512(states, x);
  end = to;
  return absent == 0 && _mm512_test_epi32_mask(seen, _mm512_set1_epi32(0xf0)) == 0;
}

// 16 symbols at a time while 16 words are left; moves `i` and `at`.
template <bool Narrow>
TERSOR_INLINE void rans_get_rows(const RansDecodeTable &t, u32 *states, const u8 *&at, const u8 *end, i64 m, i64 &i,
                                 u8 *out) {
  const __m512i mask = _mm512_set1_epi32((1 << t.bits) - 1), low = _mm512_set1_epi32(kRansLow);
  const __m128i bits = _mm_cvtsi32_si128(t.bits);
  __m512i x = _mm512_load_si512(states);
  const u8 *from = at;
  i64 k = i;
  for (; k + 16 <= m && end - from >= 32; k += 16) {
    const __m512i slot = _mm512_and_si512(x, mask), q = _mm512_srl_epi32(x, bits);
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    __m512i symbol;
    if constexpr (Narrow) {
      symbol = _mm512_i32gather_epi32(slot, t.entry, 4);
      const __m512i less = _mm512_and_si512(_mm512_srli_epi32(symbol, 8), _mm512_set1_epi32(0xfff));
      x = _mm512_add_epi32(_mm512_mullo_epi32(q, less), _mm512_add_epi32(q, _mm512_srli_epi32(symbol, 20)));
    } else {
      symbol = _mm512_and_si512(_mm512_i32gather_epi32(slot, t.symbol, 1), _mm512_set1_epi32(0xff));
      const __m512i packed = _mm512_i32gather_epi32(symbol, t.packed, 4);
      const __m512i offset = _mm512_sub_epi32(slot, _mm512_srli_epi32(packed, 16));
      x = _mm512_add_epi32(_mm512_mullo_epi32(q, _mm512_and_si512(packed, _mm512_set1_epi32(0xffff))), offset);
    }
    const __mmask16 empty = _mm512_cmplt_epu32_mask(x, low);
    from += 2 * __builtin_popcount(empty);
    x = _mm512_mask_or_epi32(x, empty, _mm512_slli_epi32(x, 16), _mm512_maskz_expand_epi32(empty, words));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out + k), _mm512_cvtepi32_epi8(symbol));
  }
  _mm512_store_si512(states, x);
  at = from;
  i = k;
}

#endif

template <int Lanes>
i64 rans_encode_lanes(const RansEncodeTable &t, const u8 *symbols, i64 m, u8 *end) {
  alignas(64) u32 x[Lanes];
  for (int l = 0; l < Lanes; ++l) x[l] = kRansLow;
  u8 *to = end;
  i64 i = m / Lanes * Lanes;
  u32 absent = 0;
  for (int l = static_cast<int>(m - i) - 1; l >= 0; --l) {
    absent |= t.packed[symbols[i + l]] == 0;
    x[l] = rans_put(t, x[l], symbols[i + l], to);
  }
#if defined(__AVX512F__)
  if constexpr (Lanes == 16) {
    absent |= !(t.symbols <= 16 ? rans_put_rows<true>(t, symbols, i, x, to) : rans_put_rows<false>(t, symbols, i, x, to));
    i = 0;
  }
#endif
  while (i > 0) {
    i -= Lanes;
    for (int l = Lanes - 1; l >= 0; --l) {
      absent |= t.packed[symbols[i + l]] == 0;
      x[l] = rans_put(t, x[l], symbols[i + l], to);
    }
  }
  if (absent) return -1;
  to -= sizeof x;
  std::memcpy(to, x, sizeof x);
  return end - to;
}

template <int Lanes, bool Narrow>
bool rans_decode_lanes(const RansDecodeTable &t, const u8 *data, i64 nbytes, i64 m, u8 *out) {
  const u8 *at = data + 4 * Lanes, *end = data + nbytes;
  alignas(64) u32 x[Lanes];
  std::memcpy(x, data, sizeof x);
  u32 bad = 0;
  for (int l = 0; l < Lanes; ++l) bad |= x[l] < kRansLow;
  if (bad) return false;
  i64 i = 0;
#if defined(__AVX512F__)
  if constexpr (Lanes == 16) rans_get_rows<Narrow>(t, x, at, end, m, i, out);
#endif
  // A row takes at most a word a lane, so none of its words need a check while that many are left.
  for (; i + Lanes <= m && end - at >= 2 * Lanes; i += Lanes) {
    for (int l = 0; l < Lanes; ++l) {
      const u32 y = rans_get<Narrow>(t, x[l], out[i + l]);
      const u32 longer = y << 16 | *reinterpret_cast<const u16u *>(at);
      const bool empty = y < kRansLow;
      x[l] = empty ? longer : y;
      at += 2 * empty;
    }
  }
  for (; i < m; ++i) {
    u32 &y = x[i % Lanes];
    y = rans_get<Narrow>(t, y, out[i]);
    if (y >= kRansLow) continue;
    if (at == end) return false;
    y = y << 16 | *reinterpret_cast<const u16u *>(at);
    at += 2;
  }
  for (int l = 0; l < Lanes; ++l) bad |= x[l] != kRansLow;
  return !bad && at == end;
}

i64 rans_encode_chunk(const RansEncodeTable &t, const u8 *symbols, i64 m, u8 *end) {
  switch (rans_lanes(m)) {
    case 1: return rans_encode_lanes<1>(t, symbols, m, end);
    case 2: return rans_encode_lanes<2>(t, symbols, m, end);
    case 4: return rans_encode_lanes<4>(t, symbols, m, end);
    case 8: return rans_encode_lanes<8>(t, symbols, m, end);
    default: return rans_encode_lanes<16>(t, symbols, m, end);
  }
}

template <bool Narrow>
bool rans_decode_any(const RansDecodeTable &t, const u8 *data, i64 nbytes, i64 m, u8 *out) {
  switch (rans_lanes(m)) {
    case 1: return rans_decode_lanes<1, Narrow>(t, data, nbytes, m, out);
    case 2: return rans_decode_lanes<2, Narrow>(t, data, nbytes, m, out);
    case 4: return rans_decode_lanes<4, Narrow>(t, data, nbytes, m, out);
    case 8: return rans_decode_lanes<8, Narrow>(t, data, nbytes, m, out);
    default: return rans_decode_lanes<16, Narrow>(t, data, nbytes, m, out);
  }
}

bool rans_decode_chunk(const RansDecodeTable &t, const u8 *data, i64 nbytes, i64 m, u8 *out) {
  return t.bits <= kRansNarrowBits ? rans_decode_any<true>(t, data, nbytes, m, out)
                                   : rans_decode_any<false>(t, data, nbytes, m, out);
}

}  // namespace
}  // namespace tersor
