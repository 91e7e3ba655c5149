// The keyed rotation of one unit (FORMAT.md section 3): its random draws, and the rounds.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels.h"
#include "workspace.h"

namespace tersor {

constexpr int kMaxRounds = 3;
constexpr i64 kBig = i64{1} << 18;  // from here on a single unit is worth several threads

// Words start .. start + n - 1 of a random stream.
void random_words(u64 key, u32 purpose, u32 rotation, u64 start, i64 n, u32u *out);

// Sign words and permutations of a unit at one random position. Not thread-safe while it still draws.
class Draws {
 public:
  void move_to(u64 key, u64 position, i64 padded);
  // Draws now: after this, up to `rounds` rounds may be read from many threads. Short permutations are inverted too.
  void prepare(int rounds);

  // Words whose bit i % 32 of word i / 32 is the sign of coordinate i.
  const u32 *signs(int round);
  const u32 *permutation(int round);  // only if P > B
  // Null unless prepared: to invert a permutation takes as long as to apply it once.
  const u32 *inverse(int round) const { return inverted_ >> round & 1 ? inverses_[round].data() : nullptr; }

  void trim();                            // give large buffers back
  void forget_words() { words_.clear(); }  // what permutations are made from

  // Whether these are the draws of that place, and `rounds` rounds are drawn.
  bool ready(u64 key, u64 position, i64 padded, int rounds) const {
    const int wanted = (1 << rounds) - 1;
    return key == key_ && position == position_ && padded == padded_ && (signs_drawn_ & wanted) == wanted &&
           (padded_ == run_ || (permutations_drawn_ & wanted) == wanted);
  }

  i64 padded() const { return padded_; }
  i64 run() const { return run_; }

 private:
  u64 key_ = 0, position_ = 0;
  i64 padded_ = -1, run_ = 1;
  int signs_drawn_ = 0, permutations_drawn_ = 0, inverted_ = 0;  // as bit sets
  Buffer<u32> signs_[kMaxRounds], permutations_[kMaxRounds], inverses_[kMaxRounds], words_;
};

// The draws of rows (random position 0), ready for up to `rounds` rounds and from then on only read. Small permutations,
// which cost more than the rest of encoding one row, come from a cache.
std::shared_ptr<Draws> row_draws(u64 key, i64 padded, int rounds);

// H_run on each run of x[0, size), after the signs if not null; on several threads if it is big.
void fwht_all(f32u *x, i64 size, i64 run, const u32 *signs);

// Rounds `first` .. rounds - 1 forwards. The result is in x or in `other` (also P floats, used if P > B): the pointer that
// is returned.
f32u *rotate_forward(f32u *x, f32u *other, int first, int rounds, Draws &draws);

// All rounds backwards; as above. The flips of the last step are left to the caller if `*signs` comes back not null.
f32u *rotate_back(f32u *x, f32u *other, int rounds, Draws &draws, const u32 **signs);

// Calls body(begin, end) on pieces of [0, size) whose ends are multiples of kChunk; on several threads if it is big.
template <class Body>
void each_chunk(i64 size, const Body &body);

// x: shape (rows, P), in place.
void rotate_rows(f32u *x, i64 rows, i64 padded, u64 key, u64 position, int rounds, bool inverse);

}  // namespace tersor

#include "pool.h"

namespace tersor {

template <class Body>
void each_chunk(i64 size, const Body &body) {
  if (size < kBig) {
    for (i64 i = 0; i < size; i += kChunk) body(i, std::min(size, i + kChunk));
    return;
  }
  constexpr i64 kTask = 16 * kChunk;
  parallel_for((size + kTask - 1) / kTask, [&](i64 task) {
    const i64 end = std::min(size, (task + 1) * kTask);
    for (i64 i = task * kTask; i < end; i += kChunk) body(i, std::min(end, i + kChunk));
  });
}

}  // namespace tersor
