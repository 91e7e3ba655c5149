// The loops of EDEN over one chunk of at most 4,096 coordinates: pre-scale, quantise, look up, finish.
#pragma once

#include "kernels.h"
#include "simd.h"

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

// The number of thresholds <= z, for one vector.
template <int Bits>
struct Search {
  // Bits that tables in registers decide; the others take a load a lane each.
  static constexpr int kFirst = kLanes == 16 ? (Bits < 5 ? Bits : 5) : (Bits < 4 ? Bits : 4);
  const Table<1 << kFirst> first;
  const float *thresholds;

  explicit Search(const Quantizer &q)
      : first(kFirst == Bits ? q.thresholds : kFirst == 5 ? q.first5 : q.first4), thresholds(q.thresholds) {}

  __attribute__((always_inline)) I operator()(F z) const {
    I code{};
    if constexpr (Table<1 << kFirst>::kRegisters == 0) {
      for (int k = 0; k < (1 << kFirst) - 1; ++k) code -= z >= all(first.memory[k]);  // no look-up: count
    } else {
      constexpr int half = 1 << (kFirst - 1);
      code = (z >= all(first.memory[half - 1])) & half;
#pragma GCC unroll 4
      for (int step = half / 2; step > 0; step /= 2) code += (z >= first[code + (step - 1)]) & step;
    }
    if constexpr (kFirst < Bits) {
      const Table<256> fine(thresholds);
      code <<= Bits - kFirst;
#pragma GCC unroll 4
      for (int step = 1 << (Bits - kFirst - 1); step > 0; step /= 2) code += (z >= fine[code + (step - 1)]) & step;
    }
    return code;
  }
};

TERSOR_INLINE int search_one(const Quantizer &quantizer, float z) {
  int code = 0;
  for (int step = 1 << (quantizer.bits - 1); step > 0; step /= 2)
    code += z >= quantizer.thresholds[code + step - 1] ? step : 0;
  return code;
}

template <int Bits>
void quantise(const Quantizer &quantizer, const float *y, i64 n, float inv, u8 *codes, double *sums) {
  const Search<Bits> search(quantizer);
  const Table<1 << Bits> levels(quantizer.levels);
  LaneSum a, c, d;
  const F factor = all(inv);
  i64 i = 0;
  for (; i + 16 <= n; i += 16) {
    I code[kParts];
    for (int p = 0; p < kParts; ++p) {
      const F z = load(y + i + p * kLanes) * factor;
      code[p] = search(z);
      const F q = levels[code[p]];
      a.add(p, z * q);
      c.add(p, q * q);
      const F rest = z - q;
      d.add(p, rest * rest);
    }
    store_codes(codes + i, code);
  }
  float tail_a[16], tail_c[16], tail_d[16];
  int count = 0;
  for (; i < n; ++i, ++count) {
    const float z = y[i] * inv;
    const int code = search_one(quantizer, z);
    const float q = quantizer.levels[code];
    codes[i] = static_cast<u8>(code);
    tail_a[count] = z * q;
    tail_c[count] = q * q;
    tail_d[count] = (z - q) * (z - q);
  }
  sums[0] += a.total(tail_a, count);
  sums[1] += c.total(tail_c, count);
  sums[2] += d.total(tail_d, count);
}

// Adds sum(z q), sum(q q), sum((z - q)^2) to sums[0..2], with z = y * inv; fills codes.
void quantise_chunk(const Quantizer &quantizer, const float *y, i64 n, float inv, u8 *codes, double *sums) {
  switch (quantizer.bits) {
    case 1: return quantise<1>(quantizer, y, n, inv, codes, sums);
    case 2: return quantise<2>(quantizer, y, n, inv, codes, sums);
    case 3: return quantise<3>(quantizer, y, n, inv, codes, sums);
    case 4: return quantise<4>(quantizer, y, n, inv, codes, sums);
    case 5: return quantise<5>(quantizer, y, n, inv, codes, sums);
    case 6: return quantise<6>(quantizer, y, n, inv, codes, sums);
    case 7: return quantise<7>(quantizer, y, n, inv, codes, sums);
    default: return quantise<8>(quantizer, y, n, inv, codes, sums);
  }
}

template <int Bits>
void look_up(const float *table, const u8 *codes, i64 n, float *v) {
  const Table<1 << Bits> levels(table);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // Bits above the width are never set by unpack: the index stays inside the table.
    if constexpr (kLanes == 4) {
      for (int l = 0; l < kLanes; ++l) v[i + l] = table[codes[i + l]];
    } else {
      store(v + i, levels[load_codes(codes + i)]);
    }
  }
  for (; i < n; ++i) v[i] = table[codes[i]];
}

void look_up_chunk(const float *table, int bits, const u8 *codes, i64 n, float *v) {
  switch (bits) {
    case 1: return look_up<1>(table, codes, n, v);
    case 2: return look_up<2>(table, codes, n, v);
    case 3: return look_up<3>(table, codes, n, v);
    case 4: return look_up<4>(table, codes, n, v);
    case 5: return look_up<5>(table, codes, n, v);
    default: return look_up<8>(table, codes, n, v);  // from memory, whatever its size
  }
}

template <bool Add>
TERSOR_INLINE void finish(const float *v, i64 n, const u32 *signs, float f, f32u *out) {
  const F factor = all(f);
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F value = load(v + i);
    if (signs) value = flip(value, sign_mask(signs, i));
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

void flip_signs(f32u *x, i64 n, const u32 *signs) {
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, flip(load(x + i), sign_mask(signs, i)));
  for (; i < n; ++i) x[i] = flip1(x[i], signs, i);
}

void gather(const f32u *v, const u32 *perm, i64 n, f32u *out) {
  for (i64 i = 0; i < n; ++i) out[i] = v[perm[i]];
}

void scatter(const f32u *v, const u32 *perm, i64 n, f32u *out) {
  for (i64 i = 0; i < n; ++i) out[perm[i]] = v[i];
}

}  // namespace
}  // namespace tersor
