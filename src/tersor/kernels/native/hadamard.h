// Walsh-Hadamard transforms of runs: radix-2 stages of stride 1, 2, 4, ... in that order, several of them per pass.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

// Vectors a pass keeps in registers: half of what the level has.
constexpr int kRadix = kLanes == 16 ? 16 : 8;
// The first pass does the stages below this stride.
constexpr i64 kFirstPass = kRadix * kLanes;

// a + b in the lower lanes of each pair, a - b in the upper ones. Times 1 or -1 is exact: the fused step rounds as an
// addition does, and is one instruction.
template <int S>
TERSOR_INLINE F add_or_subtract(F a, F b) {
  const I upper = ((kIota & S) != 0) & all(INT32_MIN);
#if defined(__FMA__)
  return multiply_add(b, flip(all(1.0f), upper), a);
#else
  return a + flip(b, upper);
#endif
}

// The stages of stride 1 .. Below / 2 within one vector: a lane pairs with lane ^ S; the upper one holds b, gets a - b.
template <int S, int Below>
TERSOR_INLINE F stages_inside(F v) {
  if constexpr (S < Below) {
    return stages_inside<2 * S, Below>(add_or_subtract<S>(swap_lanes<S>(v), v));
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

// All stages below R * kLanes of what from(i) returns for i = 0, kLanes, ..., into x.
template <int R, class From>
TERSOR_INLINE void low_pass(f32u *x, i64 size, From &&from) {
  for (i64 i = 0; i < size; i += R * kLanes) {
    F v[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) v[r] = stages_inside<1, kLanes>(from(i + r * kLanes));
    stages_between<R>(v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store(x + i + r * kLanes, v[r]);
  }
}

// The stages of stride `stride` .. R / 2 * stride, for columns [begin, end) of one run of R * stride; to(row, column, v)
// takes them.
template <int R, class To>
TERSOR_INLINE void high_pass(const f32u *x, i64 stride, i64 begin, i64 end, To &&to) {
  for (i64 c = begin; c < end; c += kLanes) {
    F v[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) v[r] = load(x + r * stride + c);
    stages_between<R>(v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) to(r, c, v[r]);
  }
}

// The stages below min(run, kFirstPass) of what `from` returns, into x. run >= kLanes.
template <class From>
TERSOR_INLINE void first_pass(f32u *x, i64 size, i64 run, From &&from) {
  switch (run / kLanes) {
    case 1: return low_pass<1>(x, size, from);
    case 2: return low_pass<2>(x, size, from);
    case 4: return low_pass<4>(x, size, from);
    default:
      if (kRadix == 8 || run >= 16 * kLanes) return low_pass<kRadix>(x, size, from);
      return low_pass<8>(x, size, from);
  }
}

// The radix of the pass at `stride`: as few passes as registers allow, and of about the same radix: 32 is 8 * 4, not 16 * 2.
TERSOR_INLINE int next_radix(i64 run, i64 stride) {
  const int most = kRadix == 16 && stride < 4096 ? 4 : 3;  // 16 lines 16 KiB apart do not fit into the ways of an L1
  const int stages = std::countr_zero(static_cast<u64>(run / stride));
  const int passes = (stages + most - 1) / most;
  return 1 << ((stages + passes - 1) / passes);
}

template <class To>
TERSOR_INLINE void high_passes(const f32u *x, int radix, i64 stride, i64 begin, i64 end, To &&to) {
  switch (radix) {
    case 2: return high_pass<2>(x, stride, begin, end, to);
    case 4: return high_pass<4>(x, stride, begin, end, to);
    case 8: return high_pass<8>(x, stride, begin, end, to);
    default: return high_pass<16>(x, stride, begin, end, to);
  }
}

// `radix` is at most kRadix; columns are multiples of 16.
void one_pass(f32u *x, int radix, i64 stride, i64 begin, i64 end) {
  high_passes(x, radix, stride, begin, end,
              [=](int r, i64 c, F v) __attribute__((always_inline)) { store(x + r * stride + c, v); });
}

// As one_pass, for a radix up to 512: a tile of a few columns goes through a buffer, so that rows far apart are read and
// written once, by whole cache lines.
void fwht_columns(f32u *x, int radix, i64 stride, i64 begin, i64 end) {
  if (radix <= kRadix) return one_pass(x, radix, stride, begin, end);
  constexpr i64 kSize = 1 << 14;  // 64 KiB
  alignas(64) float buffer[kSize];
  auto *tile = reinterpret_cast<f32u *>(buffer);
  const int log = std::countr_zero(static_cast<u64>(kSize / radix));
  const i64 width = i64{1} << log;  // divides the columns: both are powers of two
  const int first = next_radix(radix, 1);
  for (i64 c = begin; c < end; c += width) {
    for (int row = 0; row < radix; row += first) {
      const f32u *from = x + row * stride + c;
      f32u *to = tile + row * width;
      high_passes(from, first, stride, 0, width, [=](int r, i64 at, F v) __attribute__((always_inline)) {
        __builtin_prefetch(reinterpret_cast<const char *>(from) + 4 * (r * stride + at + width), 0, 2);  // the next tile
        store(to + r * width + at, v);
      });
    }
    for (int done = first; done < radix;) {
      const int next = next_radix(radix, done);
      if (done * next == radix) {
        high_passes(tile, next, done * width, 0, done * width, [=](int r, i64 at, F v) __attribute__((always_inline)) {
          store(x + (r * done + (at >> log)) * stride + c + (at & (width - 1)), v);
        });
      } else {
        for (int row = 0; row < radix; row += done * next)
          one_pass(tile + row * width, next, done * width, 0, done * width);
      }
      done *= next;
    }
  }
}

// The stages from kFirstPass on, in place.
void fwht_later(f32u *x, i64 size, i64 run) {
  for (i64 stride = kFirstPass; stride < run;) {
    const int radix = next_radix(run, stride);
    for (i64 base = 0; base < size; base += radix * stride) one_pass(x + base, radix, stride, 0, stride);
    stride *= radix;
  }
}

// Runs shorter than a vector: several of them share one; what is left over goes value by value.
template <int Run>
void short_runs(f32u *x, i64 size, const u32 *signs) {
  i64 i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    F v = load(x + i);
    if (signs) v = flip(v, signs, i);
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

// The signs, if not null, and the first pass; fwht_later does the rest.
void fwht_first(f32u *x, i64 size, i64 run, const u32 *signs) {
  if (run < kLanes) {
    switch (run) {
      case 1: return short_runs<1>(x, size, signs);
      case 2: return short_runs<2>(x, size, signs);
      case 4: return short_runs<(kLanes > 4 ? 4 : 1)>(x, size, signs);
      default: return short_runs<(kLanes > 8 ? 8 : 1)>(x, size, signs);
    }
  }
  if (signs) {
    first_pass(x, size, run, [=](i64 i) __attribute__((always_inline)) { return flip(load(x + i), signs, i); });
  } else {
    first_pass(x, size, run, [=](i64 i) __attribute__((always_inline)) { return load(x + i); });
  }
}

// Transforms each run of `run` (a power of two) in x[0, size), after flipping the signs if `signs` is not null.
void fwht(f32u *x, i64 size, i64 run, const u32 *signs) {
  fwht_first(x, size, run, signs);
  fwht_later(x, size, run);
}

}  // namespace
}  // namespace tersor
