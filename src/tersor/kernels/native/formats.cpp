// Finite checks and 16-bit floats over whole arrays: pieces of 4,096, several of them a task.
#include "formats.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "dispatch.h"
#include "pool.h"

namespace tersor {
namespace {

constexpr i64 kNone = std::numeric_limits<i64>::max();

template <class Body>
void each_piece(i64 d, const Body &body) {
  constexpr i64 kTask = 16 * kChunk;
  parallel_for((d + kTask - 1) / kTask, [&](i64 task) {
    const i64 stop = std::min(d, (task + 1) * kTask);
    for (i64 i = task * kTask; i < stop; i += kChunk) body(i, std::min(kChunk, stop - i));
  });
}

// Indices from many threads; the least one stays.
class Least {
 public:
  void lower(i64 value) {
    i64 before = value_.load(std::memory_order_relaxed);
    while (value < before && !value_.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
  }
  i64 now() const { return value_.load(std::memory_order_relaxed); }
  i64 result() const { return now() == kNone ? -1 : now(); }

 private:
  std::atomic<i64> value_{kNone};
};

// Of n values, of which one is known to have a magnitude of `low` or more.
void find(const f32u *x, i64 begin, i64 n, u32 low, u32 high, Least &least) {
  for (i64 i = begin; i < begin + n; ++i) {
    const u32 magnitude = kernels().max_magnitude(x + i, 1);
    if (magnitude >= low && magnitude < high) return least.lower(i);
  }
}

}  // namespace

i64 first_between(const f32u *x, i64 d, u32 low, u32 high) {
  Least least;
  each_piece(d, [&](i64 i, i64 n) {
    if (i < least.now() && kernels().max_magnitude(x + i, n) >= low) find(x, i, n, low, high, least);
  });
  return least.result();
}

HalfResult half_encode(const f32u *x, i64 d, bool bfloat, u16u *out) {
  constexpr u32 kBeyondFloat16 = 0x477ff000, kBeyondBFloat16 = 0x7f7f8000;
  Least bad, lost;
  each_piece(d, [&](i64 i, i64 n) {
    const u32 most = kernels().max_magnitude(x + i, n);
    if (most >= kInfinityBits) find(x, i, n, kInfinityBits, UINT32_MAX, bad);
    if (!bfloat && most >= kBeyondFloat16) find(x, i, n, kBeyondFloat16, kInfinityBits, lost);
    kernels().half_encode(x + i, n, bfloat, most < kBeyondBFloat16, out + i);
  });
  return {bad.result(), lost.result()};
}

void half_decode(const u16u *codes, i64 d, bool bfloat, float factor, bool add, f32u *out) {
  each_piece(d, [&](i64 i, i64 n) { kernels().half_decode(codes + i, n, bfloat, factor, add, out + i); });
}

}  // namespace tersor
