// Walsh-Hadamard transforms of runs: radix-2 stages of stride 1, 2, 4, ... in that order, several of them per pass.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

// Vectors a pass keeps in registers: half of what the level has.
constexpr int kRadix = kLanes == 16 ? 16 : 8;

// The stages of stride 1 .. Below / 2 within one vector: a lane pairs with lane ^ S; the upper one holds b, gets a - b.
template <int S, int Below>
TERSOR_INLINE F stages_inside(F v) {
  if constexpr (S < Below) {
    const I upper = ((kIota & S) != 0) & all(INT32_MIN);
    return stages_inside<2 * S, Below>(swap_lanes<S>(v) + flip(v, upper));
  } else {
    return v;
  }
}

// The stages between R vectors.
template <int R>
TERSOR_INLINE void stages_between(F *v) {
#pragma GCC unroll 4
  for (int s = 1; s < R; s *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      if (i & s) continue;
      const F a = v[i], b = v[i + s];
      v[i] = a + b;
      v[i + s] = a - b;
    }
  }
}

// All stages below R * kLanes, after the signs if there are any.
template <int R, bool Signs>
void low_pass(f32u *x, i64 size, const u32 *signs) {
  for (i64 i = 0; i < size; i += R * kLanes) {
    F v[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      v[r] = load(x + i + r * kLanes);
      if constexpr (Signs) v[r] = flip(v[r], sign_mask(signs, i + r * kLanes));
      v[r] = stages_inside<1, kLanes>(v[r]);
    }
    stages_between<R>(v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store(x + i + r * kLanes, v[r]);
  }
}

// The stages of stride `stride` .. R / 2 * stride, for columns [begin, end) of one run of R * stride.
template <int R>
void high_pass(f32u *x, i64 stride, i64 begin, i64 end) {
  for (i64 c = begin; c < end; c += kLanes) {
    F v[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) v[r] = load(x + r * stride + c);
    stages_between<R>(v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store(x + r * stride + c, v[r]);
  }
}

// `radix` is 2, 4, 8 or 16; columns are multiples of 16.
void fwht_columns(f32u *x, int radix, i64 stride, i64 begin, i64 end) {
  switch (radix) {
    case 2: return high_pass<2>(x, stride, begin, end);
    case 4: return high_pass<4>(x, stride, begin, end);
    case 8: return high_pass<8>(x, stride, begin, end);
    default: return high_pass<16>(x, stride, begin, end);
  }
}

template <int R>
TERSOR_INLINE void low_pass(f32u *x, i64 size, const u32 *signs) {
  if (signs) {
    low_pass<R, true>(x, size, signs);
  } else {
    low_pass<R, false>(x, size, signs);
  }
}

// Runs shorter than a vector: several of them share one; what is left over goes value by value.
template <int Run>
void short_runs(f32u *x, i64 size, const u32 *signs) {
  i64 i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    F v = load(x + i);
    if (signs) v = flip(v, sign_mask(signs, i));
    store(x + i, stages_inside<1, Run>(v));
  }
  if (signs)
    for (i64 j = i; j < size; ++j) x[j] = flip1(x[j], signs, j);
  for (; i < size; i += Run)
    for (int s = 1; s < Run; s *= 2)
      for (int j = 0; j < Run; ++j)
        if (!(j & s)) {
          const float a = x[i + j], b = x[i + j + s];
          x[i + j] = a + b;
          x[i + j + s] = a - b;
        }
}

// Transforms each run of `run` (a power of two) in x[0, size), after flipping the signs if `signs` is not null.
void fwht(f32u *x, i64 size, i64 run, const u32 *signs) {
  if (run < kLanes) {
    switch (run) {
      case 1: return short_runs<1>(x, size, signs);
      case 2: return short_runs<2>(x, size, signs);
      case 4: return short_runs<(kLanes > 4 ? 4 : 1)>(x, size, signs);
      default: return short_runs<(kLanes > 8 ? 8 : 1)>(x, size, signs);
    }
  }
  const i64 vectors = run / kLanes;
  if (vectors >= kRadix) {
    low_pass<kRadix>(x, size, signs);
  } else {
    switch (vectors) {
      case 1: return low_pass<1>(x, size, signs);
      case 2: return low_pass<2>(x, size, signs);
      case 4: return low_pass<4>(x, size, signs);
      default: return low_pass<8>(x, size, signs);
    }
  }
  for (i64 stride = kRadix * kLanes; stride < run;) {
    // As few passes as registers allow, and of about the same radix: 32 is 8 * 4, not 16 * 2.
    constexpr int most = kRadix == 16 ? 4 : 3;
    const int stages = std::countr_zero(static_cast<u64>(run / stride));
    const int passes = (stages + most - 1) / most;
    const int radix = 1 << ((stages + passes - 1) / passes);
    for (i64 base = 0; base < size; base += radix * stride) fwht_columns(x + base, radix, stride, 0, stride);
    stride *= radix;
  }
}

}  // namespace
}  // namespace tersor
