// Draws and rounds of the keyed rotation; see rotation.h.
#include "rotation.h"

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dispatch.h"

namespace tersor {

constexpr i64 kCachedLength = 4096;  // the longest permutations that are kept and inverted

void random_words(u64 key, u32 purpose, u32 rotation, u64 start, i64 n, u32u *out) {
  kernels().philox(key, purpose, rotation, start / 4, static_cast<int>(start % 4), n, out);
}

void Draws::move_to(u64 key, u64 position, i64 padded) {
  if (key == key_ && position == position_ && padded == padded_) return;
  key_ = key;
  position_ = position;
  padded_ = padded;
  run_ = run_length(padded);
  signs_drawn_ = permutations_drawn_ = inverted_ = 0;
}

void Draws::prepare(int rounds) {
  for (int r = 0; r < rounds; ++r) {
    signs(r);
    if (padded_ == run_) continue;
    const u32 *perm = permutation(r);
    if (padded_ > kCachedLength || (inverted_ >> r & 1)) continue;
    u32 *inverse = inverses_[r].get(padded_);
    for (i64 i = 0; i < padded_; ++i) inverse[perm[i]] = static_cast<u32>(i);
    inverted_ |= 1 << r;
  }
}

const u32 *Draws::signs(int round) {
  const i64 count = (padded_ + 31) / 32;
  u32 *out = signs_[round].get(count + 1);
  if (signs_drawn_ >> round & 1) return out;
  const int shift = static_cast<int>(position_ % 32);
  random_words(key_, kSigns, static_cast<u32>(round), position_ / 32, count + (shift ? 1 : 0), out);
  if (shift)  // a unit that does not start on a word
    for (i64 i = 0; i < count; ++i) out[i] = out[i] >> shift | out[i + 1] << (32 - shift);
  signs_drawn_ |= 1 << round;
  return out;
}

const u32 *Draws::permutation(int round) {
  if (padded_ > i64{UINT32_MAX}) throw std::invalid_argument("a unit this long must have a power of two as its length");
  u32 *perm = permutations_[round].get(padded_);
  if (permutations_drawn_ >> round & 1) return perm;
  u32 *words = words_.get(padded_);
  random_words(key_, kPermutation, static_cast<u32>(round), position_, padded_, words);
  for (i64 i = 0; i < padded_; ++i) perm[i] = static_cast<u32>(i);
  for (i64 i = padded_ - 1; i > 0; --i) std::swap(perm[i], perm[words[i] * static_cast<u64>(i + 1) >> 32]);
  permutations_drawn_ |= 1 << round;
  return perm;
}

void Draws::trim() {
  for (int r = 0; r < kMaxRounds; ++r)
    if (signs_[r].trim() | permutations_[r].trim() | inverses_[r].trim()) padded_ = -1;
  words_.trim();
}

namespace {

// The last few permutations in use, the newest first: at most 8 times 100 KiB.
constexpr std::size_t kCachedCount = 8;
std::mutex g_cache_mutex;
auto &g_cache = *new std::vector<std::shared_ptr<Draws>>;  // leaked: threads may outlive static destructors

}  // namespace

std::shared_ptr<Draws> row_draws(u64 key, i64 padded, int rounds) {
  const bool cached = padded <= kCachedLength && padded != run_length(padded);
  if (cached) {
    // Never waits: a child forked while another thread held the mutex finds it locked for ever.
    const std::unique_lock lock(g_cache_mutex, std::try_to_lock);
    if (lock) {
      for (auto it = g_cache.begin(); it != g_cache.end(); ++it) {
        if (!(*it)->ready(key, 0, padded, rounds)) continue;
        std::rotate(g_cache.begin(), it, it + 1);
        return g_cache.front();
      }
    }
  }
  auto made = std::make_shared<Draws>();
  made->move_to(key, 0, padded);
  made->prepare(rounds);
  if (cached) {
    made->forget_words();
    const std::unique_lock lock(g_cache_mutex, std::try_to_lock);
    if (lock) {
      if (g_cache.size() == kCachedCount) g_cache.pop_back();
      g_cache.insert(g_cache.begin(), made);
    }
  }
  return made;
}

void fwht_all(f32u *x, i64 size, i64 run, const u32 *signs) {
  const Kernels &k = kernels();
  if (size < kBig) return k.fwht(x, size, run, signs);
  constexpr i64 kInner = i64{1} << 15;  // 128 KiB: stays in L2
  const i64 inner = std::min(run, kInner);
  // A task is a piece of whole runs, of at least 2^15 where runs are shorter.
  const i64 piece = std::max(inner, kInner);
  parallel_for((size + piece - 1) / piece, [&](i64 task) {
    const i64 begin = task * piece;
    k.fwht(x + begin, std::min(piece, size - begin), inner, signs ? signs + begin / 32 : nullptr);
  });
  // The stages above: up to 8 of them each time that memory is passed through.
  for (i64 stride = inner; stride < run;) {
    const int stages = std::countr_zero(static_cast<u64>(run / stride)), passes = (stages + 8) / 9;
    const int radix = 1 << ((stages + passes - 1) / passes);
    constexpr i64 kColumns = 1024;
    const i64 tiles = stride / kColumns;
    parallel_for(size / (radix * stride) * tiles, [&](i64 task) {
      const i64 begin = task % tiles * kColumns;
      k.fwht_columns(x + task / tiles * radix * stride, radix, stride, begin, begin + kColumns);
    });
    stride *= radix;
  }
}

f32u *rotate_forward(f32u *x, f32u *other, int first, int rounds, Draws &draws) {
  for (int r = first; r < rounds; ++r) {
    if (draws.padded() != draws.run()) {
      const u32 *perm = draws.permutation(r);
      each_chunk(draws.padded(), [&](i64 begin, i64 end) {
        kernels().gather(x, perm + begin, end - begin, other + begin);
      });
      std::swap(x, other);
    }
    fwht_all(x, draws.padded(), draws.run(), draws.signs(r));
  }
  return x;
}

f32u *rotate_back(f32u *x, f32u *other, int rounds, Draws &draws, const u32 **signs) {
  const u32 *pending = nullptr;
  for (int r = rounds - 1; r >= 0; --r) {
    fwht_all(x, draws.padded(), draws.run(), pending);
    pending = draws.signs(r);
    if (draws.padded() != draws.run()) {
      const u32 *perm = draws.permutation(r), *inverse = draws.inverse(r);
      if (inverse) {
        kernels().flip_signs(x, draws.padded(), pending);
        kernels().gather(x, inverse, draws.padded(), other);
        std::swap(x, other);
        pending = nullptr;
        continue;
      }
      each_chunk(draws.padded(), [&](i64 begin, i64 end) {
        kernels().flip_signs(x + begin, end - begin, pending + begin / 32);
        kernels().scatter(x + begin, perm + begin, end - begin, other);
      });
      std::swap(x, other);
      pending = nullptr;
    }
  }
  *signs = pending;
  return x;
}

void rotate_rows(f32u *x, i64 rows, i64 padded, u64 key, u64 position, int rounds, bool inverse) {
  if (rows == 0 || padded == 0) return;
  Draws draws;
  draws.move_to(key, position, padded);
  draws.prepare(rounds);
  const bool mixed = padded != draws.run();
  const i64 batch = std::max<i64>(1, 16 * kChunk / padded);
  parallel_for((rows + batch - 1) / batch, [&](i64 task) {
    Buffer<float> scratch;
    for (i64 row = task * batch; row < std::min(rows, (task + 1) * batch); ++row) {
      f32u *unit = x + row * padded;
      f32u *other = mixed ? scratch.get(padded) : nullptr;
      const u32 *signs = nullptr;
      f32u *result = inverse ? rotate_back(unit, other, rounds, draws, &signs)
                             : rotate_forward(unit, other, 0, rounds, draws);
      each_chunk(padded, [&](i64 begin, i64 end) {
        if (result != unit) std::memcpy(unit + begin, result + begin, static_cast<std::size_t>(end - begin) * 4);
        if (signs) kernels().flip_signs(unit + begin, end - begin, signs + begin / 32);
      });
    }
  });
}

}  // namespace tersor
