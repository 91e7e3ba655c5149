// The loops of the OCP Microscaling formats over one chunk: a power-of-two scale a block of 32, elements rounded to even
// or at random.
//
// B. D. Rouhani et al.: "Microscaling Data Formats for Deep Learning", 2023, arXiv 2310.10537; OCP Microscaling v1.0.
#pragma once

#include "kernels.h"
#include "philox.h"
#include "simd.h"

namespace tersor {
namespace {

constexpr std::int32_t kInfinity = 0x7f800000;
constexpr float kLargest = 3.40282346638528859812e38f;

typedef u8 B __attribute__((vector_size(kLanes)));  // a byte a lane
typedef u8 BU __attribute__((vector_size(kLanes), aligned(1), may_alias));

TERSOR_INLINE void store_bytes(u8 *to, I codes) { *reinterpret_cast<BU *>(to) = __builtin_convertvector(codes, B); }
TERSOR_INLINE I load_bytes(const u8 *from) {
  return __builtin_convertvector(static_cast<B>(*reinterpret_cast<const BU *>(from)), I);
}

TERSOR_INLINE I greater(I a, I b) { return a > b ? a : b; }
TERSOR_INLINE I less(I a, I b) { return a < b ? a : b; }

// Bits of the largest magnitude among n coordinates, n a multiple of 16.
TERSOR_INLINE std::int32_t block_magnitude(const f32u *x, i64 n) {
  I best = {};
  for (i64 i = 0; i < n; i += kLanes) best = greater(best, load_bits(x + i) & all(INT32_MAX));
  if constexpr (kLanes == 16) best = greater(best, (I)swap_lanes<kLanes == 16 ? 8 : 1>((F)best));
  if constexpr (kLanes >= 8) best = greater(best, (I)swap_lanes<kLanes >= 8 ? 4 : 1>((F)best));
  best = greater(best, (I)swap_lanes<2>((F)best));
  best = greater(best, (I)swap_lanes<1>((F)best));
  return best[0];
}

// 2^e for -127 <= e <= 127; the lowest is a denormal.
TERSOR_INLINE float power_of_two(int e) {
  const std::int32_t bits = e > -127 ? (e + 127) << 23 : 1 << 22;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// f32(scale * weight), within the finite floats unless it is NaN.
TERSOR_INLINE float factor_of(double scale, double weight) {
  const float f = static_cast<float>(scale * weight);
  return f > kLargest ? kLargest : f < -kLargest ? -kLargest : f;
}

// floor(steps), plus 1 with probability steps - floor(steps); `words` are 32 random bits a lane, steps is not negative.
TERSOR_INLINE I round_at_random(F steps, I words) {
  const I below = __builtin_convertvector(steps, I);
  const F u = __builtin_convertvector((words >> 8) & all(0xffffff), F) * all(0x1p-24f);
  return below - (u < steps - __builtin_convertvector(below, F));  // true is -1
}

// A sign, `exponent` bits and `mantissa` bits; the largest finite element is `top` * 2^emax.
template <int Exponent, int Mantissa, int Emax, int Top>
struct Element {
  static constexpr int kMantissa = Mantissa, kEmax = Emax, kSign = 1 << (Exponent + Mantissa);
  static constexpr int kBias = (1 << (Exponent - 1)) - 1;
  static constexpr std::int32_t kLeast = (128 - kBias) << 23;  // bits of the least normal float, 2^(1 - bias)
  static constexpr std::int32_t kTop = ((127 + Emax) << 23) | (Top << (23 - Mantissa));
  // E4M3 has NaN only, in the last code; E5M2 has infinity and NaN as IEEE has; the narrow ones have neither.
  static constexpr bool kIeee = Exponent == 5, kLastIsNan = Exponent == 4;

  // Added and taken away, 2^(e + 23 - mantissa) rounds a magnitude in [2^e, 2^(e + 1)) to the grid, ties to even; what
  // stands in the last bits of the sum is the code but for the exponent. Below the least normal float e stays.
  __attribute__((always_inline)) static I code(F scaled) {
    const I bits = (I)scaled, magnitude = less(bits & all(INT32_MAX), all(kTop));
    const I power = greater(magnitude & all(kInfinity), all(kLeast)), grid = power + all((23 - Mantissa) << 23);
    const I steps = (I)((F)magnitude + (F)grid) - grid;
    return (steps + ((power - all(kLeast)) >> (23 - Mantissa))) | ((bits >> 24) & all(0x80)) >> (7 - Exponent - Mantissa);
  }

  // The same grid in steps of 2^(e - mantissa), a product with a power of two and so exact. The largest element is on
  // the grid, so that nothing is rounded beyond it.
  __attribute__((always_inline)) static I code(F scaled, I words) {
    const I bits = (I)scaled, magnitude = less(bits & all(INT32_MAX), all(kTop));
    const I power = greater(magnitude & all(kInfinity), all(kLeast));
    const I steps = round_at_random((F)magnitude * (F)(all((127 + Mantissa) << 23) + (all(127 << 23) - power)), words);
    return (steps + ((power - all(kLeast)) >> (23 - Mantissa))) | ((bits >> 24) & all(0x80)) >> (7 - Exponent - Mantissa);
  }

  static float top() {
    const std::int32_t bits = kTop;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }

  __attribute__((always_inline)) static F value(I code) {
    const I magnitude = code & all(kSign - 1);
    const I bits = (magnitude << (23 - Mantissa)) + all((127 - kBias) << 23);
    const I small = (I)((F)(bits + all(1 << 23)) - (F)all(kLeast));  // exact; no denormal float on the way
    I made = magnitude < all(1 << Mantissa) ? small : bits;
    if constexpr (kIeee) made = magnitude >= all(0x7c) ? made | all(kInfinity) : made;
    if constexpr (kLastIsNan) made = magnitude == all(0x7f) ? all(0x7fc00000) : made;
    return (F)(made | (code & all(kSign)) << (31 - Exponent - Mantissa));
  }
};

// Two's complement with 6 fractional bits; -128 is not written.
struct IntegerElement {
  static constexpr int kEmax = 0;

  __attribute__((always_inline)) static I code(F scaled) {
    const F steps = scaled * all(64.0f), magic = all(12582912.0f);  // 1.5 * 2^23 rounds to integers
    const F whole = (steps + magic) - magic;
    const I code = __builtin_convertvector(whole, I);
    return greater(less(code, all(127)), all(-127)) & all(0xff);
  }
  __attribute__((always_inline)) static I code(F scaled, I words) {
    const F steps = scaled * all(64.0f), most = all(127.0f);
    const F magnitude = (F)((I)steps & all(INT32_MAX));
    const I sign = (I)steps >> 31;
    return ((round_at_random(magnitude < most ? magnitude : most, words) ^ sign) - sign) & all(0xff);
  }
  static float top() { return 127.0f / 64; }

  __attribute__((always_inline)) static F value(I code) {
    return __builtin_convertvector((code ^ all(128)) - all(128), F) * all(0x1p-6f);
  }
};

// Calls body(element type) for the number of an element.
template <class Body>
TERSOR_INLINE void with_element(int element, Body &&body) {
  switch (element) {
    case 0: return body(Element<4, 3, 8, 6>{});
    case 1: return body(Element<5, 2, 15, 3>{});
    case 2: return body(Element<2, 3, 2, 7>{});
    case 3: return body(Element<3, 2, 4, 3>{});
    case 4: return body(Element<2, 1, 2, 1>{});
    default: return body(IntegerElement{});
  }
}

// True if the block is not finite. `words` are those of the block if rounding is stochastic.
template <class E, bool Stochastic>
TERSOR_INLINE bool round_block(const f32u *x, bool up, const u32 *words, u8 *codes, u8 *scale) {
  const std::int32_t most = block_magnitude(x, kMxBlock);
  if (most == 0 || most >= kInfinity) {
    std::memset(codes, 0, kMxBlock);
    *scale = most == 0 ? 0 : 255;
    return most != 0;
  }
  const int exponent = most >= 1 << 23 ? (most >> 23) - 127 : -118 - __builtin_clz(static_cast<u32>(most));
  int k = exponent - E::kEmax < -127 ? -127 : exponent - E::kEmax;
  float largest;
  std::memcpy(&largest, &most, 4);
  if (up && k < 127 && largest * power_of_two(-k) > E::top()) ++k;
  *scale = static_cast<u8>(k + 127);
  const F inverse = all(power_of_two(-k));
  for (int i = 0; i < kMxBlock; i += kLanes) {
    const F scaled = load(x + i) * inverse;
    if constexpr (Stochastic) {
      store_bytes(codes + i, E::code(scaled, *reinterpret_cast<const IU *>(words + i)));
    } else {
      store_bytes(codes + i, E::code(scaled));
    }
  }
  return false;
}

template <class E, bool Stochastic>
bool round_blocks(bool up, const u32 *words, const f32u *x, i64 n, u8 *codes, u8 *scales) {
  bool bad = false;
  i64 i = 0;
  for (; i + kMxBlock <= n; i += kMxBlock)
    bad |= round_block<E, Stochastic>(x + i, up, Stochastic ? words + i : nullptr, codes + i, scales + i / kMxBlock);
  if (i == n) return bad;
  float padded[kMxBlock] = {};
  u8 made[kMxBlock];
  std::memcpy(padded, x + i, static_cast<std::size_t>(n - i) * 4);
  bad |= round_block<E, Stochastic>(padded, up, Stochastic ? words + i : nullptr, made, scales + i / kMxBlock);
  std::memcpy(codes + i, made, static_cast<std::size_t>(n - i));
  return bad;
}

bool mx_round(int element, const MxRounding &how, const f32u *x, i64 n, u8 *codes, u8 *scales) {
  bool bad = false;
  with_element(element, [&](auto kind) {
    using E = decltype(kind);
    if (!how.stochastic) {
      bad = round_blocks<E, false>(how.up, nullptr, x, n, codes, scales);
      return;
    }
    u32 words[kChunk];
    const i64 whole = (n + kMxBlock - 1) / kMxBlock * kMxBlock;
    philox(how.key, kRounding, 0, how.first / 4, static_cast<int>(how.first % 4), whole, words);
    bad = round_blocks<E, true>(how.up, words, x, n, codes, scales);
  });
  return bad;
}

template <class E, bool Add>
TERSOR_INLINE void expand_block(const u8 *codes, float f, f32u *out) {
  const F factor = all(f);
  for (int i = 0; i < kMxBlock; i += kLanes) {
    const F value = E::value(load_bytes(codes + i)) * factor;
    store(out + i, Add ? load(out + i) + value : value);
  }
}

template <class E, bool Add>
void expand_blocks(const u8 *codes, i64 n, const u8 *scales, double weight, f32u *out) {
  for (i64 i = 0; i < n; i += kMxBlock) {
    const u8 scale = scales[i / kMxBlock];
    const double nan = __builtin_nan("");
    const float f = factor_of(scale == 255 ? nan : static_cast<double>(power_of_two(scale - 127)), weight);
    if (i + kMxBlock <= n) {
      expand_block<E, Add>(codes + i, f, out + i);
      continue;
    }
    u8 padded[kMxBlock] = {};
    float made[kMxBlock];
    const std::size_t left = static_cast<std::size_t>(n - i);
    std::memcpy(padded, codes + i, left);
    if (Add) std::memcpy(made, out + i, left * 4);
    expand_block<E, Add>(padded, f, made);
    std::memcpy(out + i, made, left * 4);
  }
}

// out = (or +=) element * f32(scale * weight).
void mx_expand(int element, const u8 *codes, i64 n, const u8 *scales, double weight, bool add, f32u *out) {
  with_element(element, [&](auto kind) {
    if (add) {
      expand_blocks<decltype(kind), true>(codes, n, scales, weight, out);
    } else {
      expand_blocks<decltype(kind), false>(codes, n, scales, weight, out);
    }
  });
}

}  // namespace
}  // namespace tersor
