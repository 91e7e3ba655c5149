// Rotates units of whole arrays, several units a task; see rotated.h.
#include "rotated.h"

#include <algorithm>
#include <cstring>

#include "dispatch.h"
#include "rotated_units.h"

namespace tersor {
namespace {

// w = x * norm, zeros behind it.
void fill(const f32u *x, i64 n, i64 padded, float norm, f32u *w) {
  each_chunk(padded, [&](i64 begin, i64 end) {
    const i64 valid = std::clamp<i64>(n - begin, 0, end - begin);
    for (i64 i = begin; i < begin + valid; ++i) w[i] = x[i] * norm;
    std::memset(w + begin + valid, 0, static_cast<std::size_t>(end - begin - valid) * 4);
  });
}

}  // namespace

i64 rotated_size(const Units &units) {
  const i64 count = units.count();
  return count == 0 ? 0 : (count - 1) * units.padded(0) + units.padded(count - 1);
}

void rotate_units(const Units &units, int rotations, const f32u *x, f32u *out) {
  each_unit(units, rotations, [&](i64 u, Draws &draws, RotationWorkspace &scratch) {
    const i64 padded = draws.padded();
    const int rounds = rounds_of(padded, rotations);
    f32u *w = out + u * units.padded(0);
    fill(x + u * units.unit, units.size(u), padded, norm_of(padded, rounds), w);
    f32u *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
    const f32u *y = rotate_forward(w, other, 0, rounds, draws);
    if (y == w) return;
    each_chunk(padded, [&](i64 begin, i64 end) {
      std::memcpy(w + begin, y + begin, static_cast<std::size_t>(end - begin) * 4);
    });
  });
}

void unrotate_units(const Units &units, int rotations, const f32u *y, double weight, bool add, const u8 *present,
                    f32u *out) {
  const float factor = static_cast<float>(weight);
  each_unit(units, rotations, [&](i64 u, Draws &draws, RotationWorkspace &scratch) {
    const i64 padded = draws.padded(), n = units.size(u);
    f32u *to = out + u * units.unit;
    if (factor == 0 || (present && !present[u])) {
      if (!add) std::memset(to, 0, static_cast<std::size_t>(n) * 4);
      return;
    }
    const int rounds = rounds_of(padded, rotations);
    f32u *w = scratch.values.get(padded + 16);
    fill(y + u * units.padded(0), padded, padded, norm_of(padded, rounds), w);
    f32u *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
    const u32 *signs = nullptr;
    // Scratch memory, so aligned as the kernel wants it.
    const float *v = reinterpret_cast<const float *>(rotate_back(w, other, rounds, draws, &signs));
    each_chunk(n, [&](i64 begin, i64 end) {
      kernels().finish(v + begin, end - begin, signs ? signs + begin / 32 : nullptr, factor, add, to + begin);
    });
  });
}

void draw_table(const f32u *table, u64 key, u32 purpose, u64 start, i64 n, f32u *out) {
  constexpr i64 kTask = 16 * kChunk;
  parallel_for((n + kTask - 1) / kTask, [&](i64 task) {
    u32 words[kChunk / 2];
    for (i64 i = task * kTask; i < std::min(n, (task + 1) * kTask); i += kChunk) {
      const i64 count = std::min(kChunk, n - i);
      random_words(key, purpose, 0, start + static_cast<u64>(i / 2), (count + 1) / 2, words);
      for (i64 j = 0; j < count; ++j) out[i + j] = table[words[j / 2] >> (j % 2 * 16) & 0xffff];
    }
  });
}

}  // namespace tersor
