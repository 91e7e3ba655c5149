// float32 to and from the two 16-bit formats, IEEE float16 and bfloat16: nearest, ties to even, NaN made quiet.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace tersor {
namespace {

// Finite values beyond float16 become infinity.
TERSOR_INLINE std::uint16_t to_float16(u32 bits) {
  const u32 sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
  u32 half;
  if (a > 0x7f800000) {
    half = 0x7e00 | (a >> 13 & 0x3ff);
  } else if (a >= 0x477ff000) {  // 65520, half way to 65536
    half = 0x7c00;
  } else if (a < 0x38800000) {  // below 2^-14: the last place of 0.5f is that of float16's denormals
    float value;
    std::memcpy(&value, &a, 4);
    value += 0.5f;
    std::memcpy(&half, &value, 4);
    half -= 0x3f000000;
  } else {
    half = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

TERSOR_INLINE float from_float16(std::uint16_t half) {
  u32 bits = static_cast<u32>(half & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &bits, 4);
  value *= 0x1p112f;  // the difference of the biases; exact, denormals too
  std::memcpy(&bits, &value, 4);
  if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000 | static_cast<u32>((half & 0x3ff) != 0) << 22;
  bits |= static_cast<u32>(half & 0x8000) << 16;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Finite values never become infinity: the largest saturate.
TERSOR_INLINE std::uint16_t to_bfloat16(u32 bits) {
  const u32 a = bits & 0x7fffffff;
  if (a > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  if (a < 0x7f800000 && a >= 0x7f7f8000) return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x7f7f);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// `tame`: no magnitude reaches 0x7f7f8000, where bfloat16 stops to be a plain sum.
void half_encode(const f32u *x, i64 n, bool bfloat, bool tame, u16u *out) {
  const u32u *bits = reinterpret_cast<const u32u *>(x);
  i64 i = 0;
  if (bfloat && tame) {
    for (; i < n; ++i) out[i] = static_cast<std::uint16_t>((bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16);
  } else if (bfloat) {
    for (; i < n; ++i) out[i] = to_bfloat16(bits[i]);
  } else {
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(out + i),
                          _mm512_cvtps_ph(load(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i_u *>(out + i), _mm256_cvtps_ph(load(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; ++i) out[i] = to_float16(bits[i]);
  }
}

template <bool Add>
TERSOR_INLINE void half_expand(const u16u *codes, i64 n, bool bfloat, float f, f32u *out) {
  i64 i = 0;
  if (bfloat) {
    for (; i < n; ++i) {
      const u32 bits = static_cast<u32>(codes[i]) << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      out[i] = Add ? out[i] + value * f : value * f;
    }
    return;
  }
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const F value = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(codes + i))) * all(f);
    store(out + i, Add ? load(out + i) + value : value);
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const F value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u *>(codes + i))) * all(f);
    store(out + i, Add ? load(out + i) + value : value);
  }
#endif
  for (; i < n; ++i) out[i] = Add ? out[i] + from_float16(codes[i]) * f : from_float16(codes[i]) * f;
}

// out = (or +=) value * f.
void half_decode(const u16u *codes, i64 n, bool bfloat, float f, bool add, f32u *out) {
  if (add) {
    half_expand<true>(codes, n, bfloat, f, out);
  } else {
    half_expand<false>(codes, n, bfloat, f, out);
  }
}

}  // namespace
}  // namespace tersor
