// The loops of EDEN over one chunk of at most 4,096 coordinates: pre-scale, quantise, look up, finish.
#pragma once

#include "hadamard.h"
#include "search.h"

namespace tersor {
namespace {

// The bits of max |x_i|: as integers, magnitudes order like values, infinity and NaN above all finite ones.
u32 max_magnitude(const f32u *x, i64 n) {
  constexpr int kStreams = 4;
  I best[kStreams] = {};
  const I magnitude = all(INT32_MAX);
  i64 i = 0;
  for (; i + kStreams * kLanes <= n; i += kStreams * kLanes)
    for (int s = 0; s < kStreams; ++s) {
      const I v = load_bits(x + i + s * kLanes) & magnitude;
      best[s] = v > best[s] ? v : best[s];
    }
  std::int32_t most = 0;
  for (int s = 0; s < kStreams; ++s)
    for (int l = 0; l < kLanes; ++l) most = best[s][l] > most ? best[s][l] : most;
  for (; i < n; ++i) {
    std::int32_t v;
    std::memcpy(&v, x + i, 4);
    v &= INT32_MAX;
    most = v > most ? v : most;
  }
  return static_cast<u32>(most);
}

// w = x * s, and zeros up to `padded`; adds sum(w w) and sum((w w) (w w)) to moments[0] and [1].
void scale_chunk(const f32u *x, i64 n, i64 padded, float s, float *w, double *moments) {
  LaneSum s2, s4;
  const F factor = all(s);
  i64 i = 0;
  for (; i + 16 <= n; i += 16)
    for (int p = 0; p < kParts; ++p) {
      const F v = load(x + i + p * kLanes) * factor;
      store(w + i + p * kLanes, v);
      const F square = v * v;
      s2.add(p, square);
      s4.add(p, square * square);
    }
  float tail2[16], tail4[16];
  int count = 0;
  for (; i < n; ++i, ++count) {
    w[i] = x[i] * s;
    tail2[count] = w[i] * w[i];
    tail4[count] = tail2[count] * tail2[count];
  }
  for (; i < padded; ++i) w[i] = 0;
  moments[0] += s2.total(tail2, count);
  moments[1] += s4.total(tail4, count);
}

// The first round of a unit of one run, n <= padded <= kChunk, in one go: w = H(signs * (x * s)), and the moments of x * s.
void scale_and_rotate(const f32u *x, i64 n, i64 padded, float s, const u32 *signs, float *w, double *moments) {
  if (n < padded || padded < 16) {
    scale_chunk(x, n, padded, s, w, moments);
    fwht_first(w, padded, padded, signs);
  } else {
    LaneSum s2, s4;
    const F factor = all(s);
    first_pass(w, padded, padded, [&](i64 i) __attribute__((always_inline)) {
      const F v = load(x + i) * factor, square = v * v;
      const int part = static_cast<int>(i / kLanes % kParts);
      s2.add(part, square);
      s4.add(part, square * square);
      return flip(v, signs, i);
    });
    moments[0] += s2.total(nullptr, 0);
    moments[1] += s4.total(nullptr, 0);
  }
  fwht_later(w, padded, padded);
}

// Adds sum(z q), sum(q q), sum((z - q)^2) to sums[0..2], with z = y * inv; packs the codes. Fetches n floats at `ahead`.
template <int Bits>
void quantise(const Quantizer &quantizer, const float *y, i64 n, float inv, const f32u *ahead, u8 *out, double *sums) {
  LaneSum a, c, d;
  i64 i = 0, left = 0;
  alignas(64) u8 codes[64];  // of the coordinates after the last 64
  with_search<Bits>(quantizer, [&](const auto &search) __attribute__((always_inline)) {
    const F factor = all(inv);
    const auto one = [&](i64 at, int part) __attribute__((always_inline)) {
      const Quantised v = search(load(y + at), factor);
      const F rest = v.z - v.q;
      a.add(part, v.z * v.q);
      c.add(part, v.q * v.q);
      d.add(part, rest * rest);
      return v.code;
    };
    for (; i + 64 <= n; i += 64, out += 8 * Bits) {
      I code[64 / kLanes];
#pragma GCC unroll 16
      for (int v = 0; v < 64 / kLanes; ++v) {
        if (v % kParts == 0) __builtin_prefetch(reinterpret_cast<const char *>(ahead) + 4 * (i + v * kLanes), 0, 2);
        code[v] = one(i + v * kLanes, v % kParts);
      }
      pack64<Bits>(to_bytes(code), out);
    }
    for (; i + 16 <= n; i += 16, left += 16) {
      I code[64 / kLanes] = {};
      for (int v = 0; v < kParts; ++v) code[v] = one(i + v * kLanes, v);
      const W bytes = to_bytes(code);
      std::memcpy(codes + left, &bytes, 16);
    }
  });
  float tail_a[16], tail_c[16], tail_d[16];
  int count = 0;
  for (; i < n; ++i, ++count) {
    const float z = y[i] * inv;
    const int code = search_one(quantizer, z);
    const float q = quantizer.levels[code], rest = z - q;
    codes[left++] = static_cast<u8>(code);
    tail_a[count] = z * q;
    tail_c[count] = q * q;
    tail_d[count] = rest * rest;
  }
  sums[0] += a.total(tail_a, count);
  sums[1] += c.total(tail_c, count);
  sums[2] += d.total(tail_d, count);
  pack_bits<Bits>(codes, left, out);
}

void quantise_chunk(const Quantizer &quantizer, const float *y, i64 n, float inv, const f32u *ahead, u8 *out,
                    double *sums) {
  with_bits(quantizer.bits, [&](auto b) { quantise<b.value>(quantizer, y, n, inv, ahead, out, sums); });
}

// kLanes codes of Bits bits at p, of which 16 bytes may be read; above the width there may be other bits.
template <int Bits>
TERSOR_INLINE I codes_at(const u8 *p) {
#if defined(__AVX2__)
  // Each lane takes the two bytes that hold its code, and moves it down.
  constexpr auto where = [] {
    struct {
      alignas(64) u8 pick[64];
      alignas(64) std::int32_t shift[16];
    } made{};
    for (int l = 0; l < kLanes; ++l)
      for (int b = 0; b < 4; ++b) {
        const int byte = l * Bits / 8 + b;
        made.pick[4 * l + b] = static_cast<u8>(b < 2 && byte < 16 ? byte : 0x80);
        made.shift[l] = l * Bits % 8;
      }
    return made;
  }();
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(p));
#if defined(__AVX512F__)
  const __m512i two = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), _mm512_load_si512(where.pick));
  return (I)_mm512_srlv_epi32(two, _mm512_load_si512(where.shift));
#else
  const __m256i two = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes),
                                          _mm256_load_si256(reinterpret_cast<const __m256i *>(where.pick)));
  return (I)_mm256_srlv_epi32(two, _mm256_load_si256(reinterpret_cast<const __m256i *>(where.shift)));
#endif
#else
  static_cast<void>(p);
  return I{};
#endif
}

// v = table[code], and the first pass of H_run if run > 1; n <= kChunk. The table goes on periodically, as far as 16.
template <int Bits>
void look_up(const float *table, const u8 *packed, i64 n, i64 run, float *v) {
  const i64 whole = n / kLanes * kLanes;
  u8 copy[kChunk];
  const auto apply = [&](auto &&from) __attribute__((always_inline)) {
    if (run >= kLanes) {
      first_pass(v, whole, run, from);
    } else {
      for (i64 i = 0; i < whole; i += kLanes) store(v + i, from(i));
    }
  };
  i64 i = 0;
  if constexpr (kLanes > 4) {
    // The last vectors would read beyond the codes: they read a copy.
    constexpr int kStep = kLanes * Bits / 8;  // bytes of a vector's codes
    const i64 bytes = whole / kLanes * kStep, direct = bytes < 16 ? 0 : ((bytes - 16) / kStep + 1) * kLanes;
    std::memcpy(copy, packed + direct / kLanes * kStep, static_cast<std::size_t>(bytes - direct / kLanes * kStep));
    constexpr int kSize = (1 << Bits) < kLanes ? kLanes : 1 << Bits;
    const Table<kSize> levels(table);
    apply([&](i64 at) __attribute__((always_inline)) {
      I code = codes_at<Bits>((at < direct ? packed + at / kLanes * kStep : copy + (at - direct) / kLanes * kStep));
      if constexpr (decltype(levels)::kRegisters == 0) code &= (1 << Bits) - 1;
      return levels[code];
    });
    i = whole;
    unpack_bits<Bits>(packed + bytes, n - whole, copy + whole);
  } else {
    unpack_bits<Bits>(packed, n, copy);
    apply([&](i64 at) __attribute__((always_inline)) {
      F level;
      for (int l = 0; l < kLanes; ++l) level[l] = table[copy[at + l]];
      return level;
    });
    i = whole;
  }
  for (; i < n; ++i) v[i] = table[copy[i]];
  if (run > 1 && run < kLanes) fwht_first(v, n, run, nullptr);
}

void look_up_chunk(const float *table, int bits, const u8 *codes, i64 n, i64 run, float *v) {
  with_bits(bits, [=](auto b) { look_up<b.value>(table, codes, n, run, v); });
}

template <bool Add>
TERSOR_INLINE void finish(const float *v, i64 n, const u32 *signs, float f, f32u *out) {
  const F factor = all(f);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F value = load(v + i);
    if (signs) value = flip(value, signs, i);
    value = value * factor;
    if constexpr (Add) value = load(out + i) + value;
    store(out + i, value);
  }
  for (; i < n; ++i) {
    const float value = (signs ? flip1(v[i], signs, i) : v[i]) * f;
    out[i] = Add ? out[i] + value : value;
  }
}

// out = (or +=) v * f, after the signs if there are any.
void finish_chunk(const float *v, i64 n, const u32 *signs, float f, bool add, f32u *out) {
  if (add) {
    finish<true>(v, n, signs, f, out);
  } else {
    finish<false>(v, n, signs, f, out);
  }
}

// Copies past the caches, if `stream` and the level can; the caller fences afterwards.
TERSOR_INLINE void copy_out(const float *v, i64 n, bool stream, f32u *out) {
#if defined(__AVX2__)
  if (stream) {
    i64 i = 0;
    for (; i < n && reinterpret_cast<std::uintptr_t>(out + i) % sizeof(F) != 0; ++i) out[i] = v[i];
    for (; i + kLanes <= n; i += kLanes) {
#if defined(__AVX512F__)
      _mm512_stream_ps(reinterpret_cast<float *>(out + i), load(v + i));
#else
      _mm256_stream_ps(reinterpret_cast<float *>(out + i), load(v + i));
#endif
    }
    for (; i < n; ++i) out[i] = v[i];
    return;
  }
#endif
  static_cast<void>(stream);
  std::memcpy(out, v, static_cast<std::size_t>(n) * sizeof(float));
}

// The passes of H_padded after the first, then as above; n <= padded <= kChunk. Scratch is finished in place and then
// copied: writing the columns of the last pass to `out` would spread over its pages.
void rotate_and_finish(float *v, i64 n, i64 padded, const u32 *signs, float f, bool add, bool stream, f32u *out) {
  if (padded <= kFirstPass) return finish_chunk(v, n, signs, f, add, out);
  i64 stride = kFirstPass;
  int radix = next_radix(padded, stride);
  for (; stride * radix < padded; stride *= radix, radix = next_radix(padded, stride))
    for (i64 base = 0; base < padded; base += radix * stride) one_pass(v + base, radix, stride, 0, stride);
  const F factor = all(f);
  high_passes(v, radix, stride, 0, stride,
              [=](int r, i64 c, F u) __attribute__((always_inline)) {
                const i64 i = r * stride + c;
                store(v + i, flip(u, signs, i) * factor);
              });
  if (!add) return copy_out(v, n, stream, out);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(out + i) + load(v + i));
  for (; i < n; ++i) out[i] += v[i];
}

void flip_signs(f32u *x, i64 n, const u32 *signs) {
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, flip(load(x + i), signs, i));
  for (; i < n; ++i) x[i] = flip1(x[i], signs, i);
}

// Unrolled, since the loop itself would take most of the time; no gather instruction, which some processors have slow.
void gather(const f32u *v, const u32 *perm, i64 n, f32u *out) {
#pragma GCC unroll 8
  for (i64 i = 0; i < n; ++i) out[i] = v[perm[i]];
}

void scatter(const f32u *v, const u32 *perm, i64 n, f32u *out) {
#pragma GCC unroll 8
  for (i64 i = 0; i < n; ++i) out[perm[i]] = v[i];
}

}  // namespace
}  // namespace tersor
