// The tables of a quantizer: what search.h needs to find codes fast, after checks that it then finds them exactly.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "eden.h"

namespace tersor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Walks through cells in ascending order: how many thresholds are at or below a cell's lower end, and what is inside it.
class Walk {
 public:
  Walk(const float *thresholds, int count) : thresholds_(thresholds), count_(count) {}

  int below = 0, inside = 0;
  float threshold = kInfinity;  // the first one inside, if any

  void enter(float low, float high) {
    while (below < count_ && thresholds_[below] <= low) ++below;
    inside = 0;
    while (below + inside < count_ && thresholds_[below + inside] < high) ++inside;
    threshold = inside ? thresholds_[below] : kInfinity;
  }

 private:
  const float *thresholds_;
  int count_;
};

// Up to 4 bits: cells -16 .. 15 times the width; the outermost ones go on for ever.
bool make_cells(Quantizer &q) {
  const float scale = Quantizer::cells_a_unit(q.bits);
  q.limit = std::nextafter(16 / scale, 0.0f);
  Walk cell(q.thresholds, (1 << q.bits) - 1);
  for (int c = -16; c < 16; ++c) {
    const float low = static_cast<float>(c) / scale, high = static_cast<float>(c + 1) / scale;
    cell.enter(c == -16 ? -kInfinity : low, c == 15 ? kInfinity : high);
    if (cell.inside > 1) return false;
    q.cell_thresholds[c & 31] = cell.threshold;
    q.cell_codes[c & 31] = cell.below;
  }
  return true;
}

// Above: cells of the magnitude; the thresholds must mirror one another.
bool make_entries(Quantizer &q) {
  const int half = 1 << (q.bits - 1), cells = Quantizer::cells(q.bits);
  const float scale = Quantizer::cells_a_unit(q.bits), end = static_cast<float>(cells) / scale;
  for (int i = 0; i < half; ++i) {
    if (q.levels[half + i] != -q.levels[half - 1 - i]) return false;
    if (q.thresholds[half - 1 + i] != -q.thresholds[half - 1 - i]) return false;
  }
  const float *positive = q.thresholds + half;
  if (!(positive[0] > 1 / scale && positive[half - 2] < end)) return false;
  q.limit = std::nextafter(end, 0.0f);
  Walk cell(positive, half - 1);
  for (int c = 1; c < cells; ++c) {
    const float low = static_cast<float>(c) / scale;
    cell.enter(low, static_cast<float>(c + 1) / scale);
    if (cell.inside > 1) return false;
    const u32 carry = cell.inside ? (u32{1} << 23) - std::bit_cast<u32>(cell.threshold) : 0 - std::bit_cast<u32>(low);
    q.entries[c] = (static_cast<u32>(half + cell.below) << 23) + carry;
  }
  return true;
}

// 8 bits: cells -128 .. 127 times a width that is a power of two, the widest of which none holds two thresholds.
bool make_wide(Quantizer &q) {
  for (float scale = 0.25f; scale <= 64; scale *= 2) {
    Walk cell(q.thresholds, 255);
    bool single = true;
    for (int c = -128; c < 128 && single; ++c) {
      const float low = static_cast<float>(c) / scale, high = static_cast<float>(c + 1) / scale;
      cell.enter(c == -128 ? -kInfinity : low, c == 127 ? kInfinity : high);
      single = cell.inside <= 1;
      q.wide_thresholds[c & 255] = cell.threshold;
      q.wide_codes[c & 255] = cell.below;
    }
    q.wide_scale = scale;
    q.wide_limit = std::nextafter(128 / scale, 0.0f);
    if (single) return true;
  }
  return false;
}

void prepare(Quantizer &q) {
  for (int i = 0; i < (1 << q.bits) - 1; ++i)  // false for NaN too
    if (!(q.thresholds[i] >= q.thresholds[i == 0 ? 0 : i - 1])) throw std::invalid_argument("thresholds must ascend");
  for (int i = 0; i < 15 && q.bits > 4; ++i) q.first4[i] = q.thresholds[((i + 1) << (q.bits - 4)) - 1];
  for (int i = 0; i < 31 && q.bits > 5; ++i) q.first5[i] = q.thresholds[((i + 1) << (q.bits - 5)) - 1];
  q.grid = q.bits < 5 ? make_cells(q) : make_entries(q);
  q.wide = q.bits == 8 && !q.grid && make_wide(q);
}

}  // namespace

const Quantizer &make_quantizer(int bits, const f32u *levels, const f32u *thresholds, int slot) {
  thread_local Quantizer made[2];  // what the last calls made: most callers have few quantizers
  Quantizer &q = made[slot];
  const std::size_t size = sizeof(float) << bits;
  if (q.bits == bits && std::memcmp(q.levels, levels, size) == 0 &&
      std::memcmp(q.thresholds, thresholds, size - sizeof(float)) == 0)
    return q;
  q = {};
  std::memcpy(q.levels, levels, size);
  if (bits > 0) std::memcpy(q.thresholds, thresholds, size - sizeof(float));
  q.bits = bits;
  try {
    prepare(q);
  } catch (...) {
    q.bits = 0;
    throw;
  }
  return q;
}

}  // namespace tersor
