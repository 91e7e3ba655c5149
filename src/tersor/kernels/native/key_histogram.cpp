// The histogram over whole arrays: a table a thread, in integers, so that neither order nor threads change a sum.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "level_search.h"
#include "pool.h"

namespace tersor {
namespace {

constexpr i64 kCells = 65536, kKeyChunk = 65536;
constexpr i64 kFlush = 128;  // chunks after which a table is emptied: 2^23 values, whose count and sum fit in 64 bits

struct Tally {
  std::vector<u64> even = std::vector<u64>(kCells), odd = std::vector<u64>(kCells);
  std::vector<u64> counts = std::vector<u64>(kCells), lows = std::vector<u64>(kCells);
  float ends[2] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  bool good = true;

  void flush() {
    for (auto *table : {&even, &odd})
      for (std::size_t i = 0; i < kCells; ++i) {
        const u64 cell = (*table)[i];
        counts[i] += cell >> 40;
        lows[i] += cell & ((u64{1} << 40) - 1);
        (*table)[i] = 0;
      }
  }
};

u32 cell_of(float v) {
  std::int32_t bits;
  std::memcpy(&bits, &v, 4);
  return static_cast<u32>(bits ^ ((bits >> 31) | INT32_MIN)) >> 16;
}

}  // namespace

i64 key_histogram(const f32u *x, i64 n, float centre, u64u *counts, u64u *lows, f64u *ends) {
  const i64 chunks = (n + kKeyChunk - 1) / kKeyChunk;
  const i64 parts = std::max<i64>(1, std::min<i64>(get_num_threads(), chunks / 8));
  std::vector<Tally> tallies(static_cast<std::size_t>(parts));
  std::vector<double> rests(static_cast<std::size_t>(chunks));
  parallel_for(parts, [&](i64 part) {
    Tally &t = tallies[static_cast<std::size_t>(part)];
    i64 since = 0;
    for (i64 c = chunks * part / parts; c < chunks * (part + 1) / parts && t.good; ++c) {
      t.good = kernels().key_count(x + c * kKeyChunk, std::min(kKeyChunk, n - c * kKeyChunk), centre, t.even.data(),
                                   t.odd.data(), t.ends, &rests[static_cast<std::size_t>(c)]);
      if (++since == kFlush) {
        t.flush();
        since = 0;
      }
    }
    t.flush();
  });
  float low = tallies[0].ends[0], high = tallies[0].ends[1];
  for (const Tally &t : tallies) {
    if (!t.good) return 1;
    for (std::size_t i = 0; i < kCells; ++i) {
      counts[i] += t.counts[i];
      lows[i] += t.lows[i];
    }
    low = std::min(low, t.ends[0]);
    high = std::max(high, t.ends[1]);
  }
  double total = 0;
  for (const double rest : rests) total += rest;
  ends[0] = low;
  ends[1] = high;
  ends[2] = total;
  return 0;
}

i64 key_gather(const f32u *x, i64 n, float centre, const u8 *wanted, f32u *out, i64 room) {
  i64 count = 0;
  for (i64 i = 0; i < n; ++i) {
    const float moved = x[i] - centre;
    if (!wanted[cell_of(moved)]) continue;
    if (count == room) return -1;
    out[count++] = moved;
  }
  return count;
}

}  // namespace tersor
