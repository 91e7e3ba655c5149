// One chunk of a histogram over the upper halves of floats, as order-preserving integers (FORMAT.md section 11).
#pragma once

#include "simd.h"

namespace tersor {
namespace {

// Bits of a float in the order of values: all flipped for a negative one, else the sign set.
TERSOR_INLINE I ordered(I bits) { return bits ^ ((bits >> 31) | all(INT32_MIN)); }

// Counts the chunk's n values of x - centre: adds 2^40 + (lower half) to the cell of the upper half, in two tables in
// turn, so that equal neighbours do not wait for one another. `rest` receives the sum of squares of what the lower halves
// stand for. Returns false if there is a NaN or infinity.
bool key_count(const f32u *x, i64 n, float centre, u64 *even, u64 *odd, float *ends, double *rest) {
  constexpr i64 kBatch = 512;
  constexpr u64 kOne = u64{1} << 40;
  constexpr std::int32_t kExponent = 0x7f800000;
  alignas(64) u32 keys[kBatch];
  alignas(64) double lanes[16] = {};
  alignas(64) float w[16];
  F low = all(ends[0]), high = all(ends[1]);
  I bad{};
  const F c = all(centre);
  for (i64 begin = 0; begin < n; begin += kBatch) {
    const i64 m = n - begin < kBatch ? n - begin : kBatch;
    i64 i = 0;
    for (; i + 16 <= m; i += 16) {
      for (int p = 0; p < kParts; ++p) {
        const F v = load(x + begin + i + p * kLanes), moved = v - c;
        low = v < low ? v : low;
        high = v > high ? v : high;
        bad |= ((I)moved & all(kExponent)) == all(kExponent);
        store(w + p * kLanes, moved - (F)((I)moved & all(-65536)));
        store(reinterpret_cast<f32u *>(keys) + i + p * kLanes, (F)ordered((I)moved));
      }
      for (int l = 0; l < 16; ++l) lanes[l] += static_cast<double>(w[l]) * w[l];
    }
    for (; i < m; ++i) {
      const float v = x[begin + i], moved = v - centre;
      std::int32_t bits;
      std::memcpy(&bits, &moved, 4);
      if ((bits & kExponent) == kExponent) return false;
      if (v < ends[0]) ends[0] = v;
      if (v > ends[1]) ends[1] = v;
      keys[i] = static_cast<u32>(bits ^ ((bits >> 31) | INT32_MIN));
      bits &= -65536;
      float upper;
      std::memcpy(&upper, &bits, 4);
      lanes[i % 16] += static_cast<double>(moved - upper) * (moved - upper);
    }
    for (i = 0; i + 2 <= m; i += 2) {
      even[keys[i] >> 16] += kOne + (keys[i] & 0xffff);
      odd[keys[i + 1] >> 16] += kOne + (keys[i + 1] & 0xffff);
    }
    if (i < m) even[keys[i] >> 16] += kOne + (keys[i] & 0xffff);
  }
  for (int l = 0; l < kLanes; ++l) {
    if (bad[l]) return false;
    if (low[l] < ends[0]) ends[0] = low[l];
    if (high[l] > ends[1]) ends[1] = high[l];
  }
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  *rest = lanes[0];
  return true;
}

}  // namespace
}  // namespace tersor
