// The loops of QUIC-FL over one chunk of at most 4,096 coordinates: quantise with shared and private randomness, look up.
#pragma once

#include "eden_kernels.h"

namespace tersor {
namespace {

// kLanes symbols from coordinate i on, a multiple of kLanes; `fields` holds 8 or 4 bits each. Higher bits may be set.
template <int Bits>
TERSOR_INLINE I symbols_at(const u8 *fields, i64 i) {
  if constexpr (Bits <= 2) {
#if defined(__AVX512F__)
    return (I)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u *>(fields + i)));
#elif defined(__AVX2__)
    return (I)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u *>(fields + i)));
#else
    I h;
    for (int l = 0; l < kLanes; ++l) h[l] = fields[i + l];
    return h;
#endif
  } else {
#if defined(__AVX512F__)
    const __m512i words = _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i_u *>(fields + i / 2)));
    const __m512i which = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return (I)_mm512_srlv_epi32(_mm512_permutexvar_epi32(which, words), (__m512i)(kIota % 8 * 4));
#else
    std::int32_t word = 0;
    std::memcpy(&word, fields + i / 2, kLanes / 2);
    return all(word) >> (kIota * 4);
#endif
  }
}

template <int Bits>
TERSOR_INLINE int symbol_one(const u8 *fields, i64 i) {
  return Bits <= 2 ? fields[i] : fields[i / 2] >> (i % 2 * 4);
}

// The lanes where |z| > limit, as bits.
TERSOR_INLINE u32 lanes_beyond(F z, F limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(_mm512_abs_ps(z), limit, _CMP_GT_OQ);
#else
  const I beyond = (F)((I)z & all(INT32_MAX)) > limit;
#if defined(__AVX2__)
  return static_cast<u32>(_mm256_movemask_ps((__m256)beyond));
#elif defined(__SSE2__)
  return static_cast<u32>(_mm_movemask_ps((__m128)beyond));
#else
  u32 mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= beyond[l] ? 1u << l : 0;
  return mask;
#endif
#endif
}

// Low end and width (times 2^-24) of zone j << most_shared | symbol.
struct Pair {
  F low, width;
};
TERSOR_INLINE Pair pair_at(const float (*pairs)[2], I index) {
#if defined(__AVX512F__)
  const __m512i all16 = (__m512i)index;
  const __m512 first = (__m512)_mm512_i32gather_epi64(_mm512_castsi512_si256(all16), pairs, 8);
  const __m512 last = (__m512)_mm512_i32gather_epi64(_mm512_extracti64x4_epi64(all16, 1), pairs, 8);
  return {_mm512_permutex2var_ps(first, (__m512i)(2 * kIota), last),
          _mm512_permutex2var_ps(first, (__m512i)(2 * kIota + 1), last)};
#elif defined(__AVX2__)
  return {(F)_mm256_i32gather_ps(pairs[0], (__m256i)index, 8), (F)_mm256_i32gather_ps(pairs[0] + 1, (__m256i)index, 8)};
#else
  Pair pair;
  for (int l = 0; l < kLanes; ++l) {
    pair.low[l] = pairs[index[l]][0];
    pair.width[l] = pairs[index[l]][1];
  }
  return pair;
#endif
}

// The code: layers below z, less one, whose zone of symbol h z may be in; it decides. `drawn` is 2^24 u.
template <int Bits, class Search>
TERSOR_INLINE I code_of(const Zones &zones, const Search &search, F y, F factor, F drawn, I h) {
  const Quantised v = search(y, factor);
  const I layer = v.code - 1 - (v.code == 0);  // 0 if z is below all
  const Pair zone = pair_at(zones.pairs, (layer << Zones::most_shared(Bits)) | h);
  const F step = drawn * zone.width;
  return layer - (v.z >= zone.low + step);
}

template <int Bits>
TERSOR_INLINE int zone_one(const Zones &zones, float z, float drawn, int h) {
  int layer = 0;
  for (int j = 1; j < (1 << Bits) - 1; ++j) layer += z >= zones.layers.thresholds[j];
  const float *zone = zones.pairs[layer << Zones::most_shared(Bits) | h];
  const float step = drawn * zone[1];
  return layer + (z >= zone[0] + step);
}

// code_at(y, drawn, h): the codes of kLanes coordinates.
template <int Bits, class CodeAt>
TERSOR_INLINE i64 quicfl_round(const Zones &zones, const float *y, i64 n, float inv, const u32 *words, const u8 *fields,
                               const f32u *ahead, u8 *out, u32 *positions, float *values, const CodeAt &code_at) {
  constexpr std::int32_t kMask = (1 << Zones::most_shared(Bits)) - 1;
  i64 i = 0, left = 0, listed = 0;
  alignas(64) u8 codes[64];  // of the coordinates after the last 64
  const F factor = all(inv), limit = all(zones.limit);
  const auto one = [&](i64 at) __attribute__((always_inline)) {
    const F rotated = load(y + at), z = rotated * factor;
    const I word = *reinterpret_cast<const IU *>(words + at);
    const F drawn = __builtin_convertvector((word >> 8) & 0xffffff, F);
    u32 beyond = lanes_beyond(z, limit);
    if (__builtin_expect(beyond != 0, 0)) {
      float lanes[kLanes];
      std::memcpy(lanes, &z, sizeof lanes);
      for (; beyond; beyond &= beyond - 1) {
        const int l = __builtin_ctz(beyond);
        positions[listed] = static_cast<u32>(at + l);
        values[listed++] = lanes[l];
      }
    }
    return code_at(rotated, factor, drawn, symbols_at<Bits>(fields, at) & kMask);
  };
  for (; i + 64 <= n; i += 64, out += 8 * Bits) {
    I code[64 / kLanes];
#pragma GCC unroll 16
    for (int v = 0; v < 64 / kLanes; ++v) {
      if (v % kParts == 0) __builtin_prefetch(reinterpret_cast<const char *>(ahead) + 4 * (i + v * kLanes), 0, 2);
      code[v] = one(i + v * kLanes);
    }
    pack64<Bits>(to_bytes(code), out);
  }
  for (; i + 16 <= n; i += 16, left += 16) {
    I code[64 / kLanes] = {};
    for (int v = 0; v < kParts; ++v) code[v] = one(i + v * kLanes);
    const W bytes = to_bytes(code);
    std::memcpy(codes + left, &bytes, 16);
  }
  for (; i < n; ++i) {
    const float z = y[i] * inv, drawn = static_cast<float>(words[i] >> 8);
    codes[left++] = static_cast<u8>(zone_one<Bits>(zones, z, drawn, symbol_one<Bits>(fields, i) & kMask));
    if (__builtin_fabsf(z) > zones.limit) {
      positions[listed] = static_cast<u32>(i);
      values[listed++] = z;
    }
  }
  pack_bits<Bits>(codes, left, out);
  return listed;
}

template <class Body>
TERSOR_INLINE void with_few_bits(int bits, Body &&body) {
  switch (bits) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 3: return body(std::integral_constant<int, 3>{});
    default: return body(std::integral_constant<int, 4>{});
  }
}

// y * inv quantised and packed into `out`; `words` and `fields` hold the private and the shared draws, each readable 64
// bytes beyond n. Lists the coordinates beyond the limit and returns their number; fetches n floats at `ahead`.
i64 quicfl_round_chunk(const Zones &zones, const float *y, i64 n, float inv, const u32 *words, const u8 *fields,
                       const f32u *ahead, u8 *out, u32 *positions, float *values) {
  i64 listed = 0;
  with_few_bits(zones.bits, [&](auto b) {
    constexpr int Bits = b.value;
    if constexpr (Bits == 1) {
      alignas(64) float parts[2][64];  // one layer: registers can hold it
      for (int h = 0; h < 64; ++h)
        for (int part = 0; part < 2; ++part) parts[part][h] = zones.pairs[h][part];
      const Table<64> low(parts[0]), width(parts[1]);
      const auto code_at = [&](F rotated, F factor, F drawn, I h) __attribute__((always_inline)) {
        const F step = drawn * width[h];
        return -(rotated * factor >= low[h] + step);
      };
      listed = quicfl_round<1>(zones, y, n, inv, words, fields, ahead, out, positions, values, code_at);
    } else {
      with_search<Bits>(zones.layers, [&](const auto &search) __attribute__((always_inline)) {
        const auto code_at = [&](F rotated, F factor, F drawn, I h) __attribute__((always_inline)) {
          return code_of<Bits>(zones, search, rotated, factor, drawn, h);
        };
        listed = quicfl_round<Bits>(zones, y, n, inv, words, fields, ahead, out, positions, values, code_at);
      });
    }
  });
  return listed;
}

// Levels by code << most_shared | symbol: 128 or 256.
template <int Bits>
struct Levels {
  static constexpr int kSize = 1 << (Bits + Zones::most_shared(Bits));
#if defined(__AVX512F__)
  const Table<128> low, high;
  explicit Levels(const float *table) : low(table), high(table + kSize - 128) {}
  __attribute__((always_inline)) F operator[](I index) const {
    const F first = low[index];
    if constexpr (kSize == 128) return first;
    const __mmask16 upper = _mm512_test_epi32_mask((__m512i)index, _mm512_set1_epi32(128));
    return (F)_mm512_mask_blend_ps(upper, (__m512)first, (__m512)high[index]);
  }
#else
  const Table<kSize> all_of_them;
  explicit Levels(const float *table) : all_of_them(table) {}
  __attribute__((always_inline)) F operator[](I index) const { return all_of_them[index]; }
#endif
};

// 64 symbols from coordinate i on, as bytes.
template <int Bits>
TERSOR_INLINE W symbol_bytes(const u8 *fields, i64 i) {
  constexpr u64 kMask = comb<Zones::most_shared(Bits), 8, 0>();
  if constexpr (Bits <= 2) return *reinterpret_cast<const WU *>(fields + i) & kMask;
  return unpack64<4>(fields + i / 2);
}

// v = table[...], or v += table[...] * f.
template <int Bits, bool Add>
void quicfl_look_up(const float *table, const u8 *codes, i64 n, const u8 *fields, float f, float *v) {
  constexpr int kShared = Zones::most_shared(Bits), kSize = 1 << (Bits + kShared);
  alignas(64) float scaled[kSize];
  if constexpr (Add) {
    for (int i = 0; i < kSize; ++i) scaled[i] = table[i] * f;
    table = scaled;
  }
  const Levels<Bits> levels(table);
  i64 i = 0;
  for (; i + 64 <= n; i += 64, codes += 8 * Bits) {
    alignas(64) u8 index[64];  // the shift moves no bit into the next byte
    *reinterpret_cast<W *>(index) = (unpack64<Bits>(codes) << kShared) | symbol_bytes<Bits>(fields, i);
#pragma GCC unroll 16
    for (int at = 0; at < 64; at += kLanes) {
      const F level = levels[symbols_at<1>(index, at)];
      store(v + i + at, Add ? load(v + i + at) + level : level);
    }
  }
  u8 code[64];
  unpack_bits<Bits>(codes, n - i, code);
  for (i64 at = 0; i < n; ++i, ++at) {
    const float level = table[code[at] << kShared | (symbol_one<Bits>(fields, i) & ((1 << kShared) - 1))];
    v[i] = Add ? v[i] + level : level;
  }
}

void quicfl_look_up_chunk(const float *table, int bits, const u8 *codes, i64 n, const u8 *fields, bool add, float f,
                          float *v) {
  with_few_bits(bits, [=](auto b) {
    if (add) {
      quicfl_look_up<b.value, true>(table, codes, n, fields, f, v);
    } else {
      quicfl_look_up<b.value, false>(table, codes, n, fields, f, v);
    }
  });
}

}  // namespace
}  // namespace tersor
