// THC over whole arrays, several units a task; see thc.h.
#include "thc.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "pieces.h"
#include "rotated_units.h"
#include "unit_spans.h"

namespace tersor {
namespace {

// The power of two that brings `largest` to [1/2, 1), within the exponents of float32.
float pre_scale(float largest) {
  int exponent = 0;
  if (std::isfinite(largest)) std::frexp(static_cast<double>(largest), &exponent);
  return static_cast<float>(std::ldexp(1.0, std::clamp(-exponent, -126, 127)));
}

// The table's values as floats, which are exact, repeated to at least 16 entries.
void fill_table(const ThcGrid &grid, float *table) {
  const int size = 1 << grid.bits;
  for (int z = 0; z < size; ++z) table[z] = static_cast<float>(grid.table[z]);
  for (int z = size; z < 16; ++z) table[z] = table[z - size];
}

}  // namespace

void unit_rms(const Units &units, const f32u *x, f32u *out) {
  const i64 count = units.count(), batch = std::max<i64>(1, 16 * kChunk / units.unit);
  parallel_for((count + batch - 1) / batch, [&](i64 task) {
    alignas(64) float scaled[kChunk + 16];
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      const f32u *from = x + u * units.unit;
      const i64 n = units.size(u);
      const u32 magnitude = kernels().max_magnitude(from, n);
      if (magnitude >= 0x7f800000) {
        out[u] = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      const float s = pre_scale(std::bit_cast<float>(magnitude));
      double moments[2] = {0, 0};
      for (i64 i = 0; i < n; i += kChunk) {
        const i64 m = std::min(kChunk, n - i);
        kernels().scale(from + i, m, m, s, scaled, moments);
      }
      const double mean = moments[0] / static_cast<double>(units.padded(u));
      out[u] = static_cast<float>(std::sqrt(mean) / static_cast<double>(s));
    }
  });
}

double thc_encode(const Units &units, int rotations, const ThcGrid &grid, const f32u *x, const f32u *rms, u64 private_key,
                  u64 first, u8 *codes) {
  const int size = 1 << grid.bits;
  const double step = grid.step();
  std::vector<double> points(static_cast<std::size_t>(size));
  for (int z = 0; z < size; ++z) points[static_cast<std::size_t>(z)] = -grid.spread + step * grid.table[z];
  const i64 stride = units.count() ? packed_bytes(units.padded(0), grid.bits) : 0;
  std::vector<double> errors(static_cast<std::size_t>(2 * units.count()));
  each_unit(units, rotations, [&](i64 u, Draws &draws, RotationWorkspace &scratch) {
    const i64 padded = draws.padded(), n = units.size(u);
    const int rounds = rounds_of(padded, rotations);
    const float s = pre_scale(rms[u]), norm = norm_of(padded, rounds);
    float *w = scratch.values.get(padded + 16);
    const f32u *from = x + u * units.unit;
    each_chunk(padded, [&](i64 begin, i64 end) {
      const i64 valid = std::clamp<i64>(n - begin, 0, end - begin);
      for (i64 i = begin; i < begin + valid; ++i) w[i] = (from[i] * s) * norm;
      std::memset(w + begin + valid, 0, static_cast<std::size_t>(end - begin - valid) * 4);
    });
    f32u *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
    const f32u *y = rotate_forward(w, other, 0, rounds, draws);
    const double factor = static_cast<double>(rms[u] * s);
    alignas(64) float levels[256];
    for (int z = 0; z < size; ++z) levels[z] = static_cast<float>(factor * points[static_cast<std::size_t>(z)]);
    const u64 word = first + static_cast<u64>(u * units.padded(0));
    const float low = levels[0], high = levels[size - 1];
    // Of every chunk: errors of rounding, and of clamping.
    std::vector<double> parts(static_cast<std::size_t>(2 * ((padded - 1) / kChunk + 1)));
    each_chunk(padded, [&](i64 begin, i64 end) {
      const i64 m = end - begin;
      double sums[2], moments[2] = {0, 0};
      kernels().levels_round(y + begin, 1, m, levels, grid.bits, true, private_key, word + static_cast<u64>(begin),
                             codes + u * stride + packed_bytes(begin, grid.bits), sums);
      alignas(64) float beyond[kChunk + 16];
      for (i64 i = 0; i < m; ++i) {
        const float above = y[begin + i] - high, below = low - y[begin + i], most = above > below ? above : below;
        beyond[i] = most > 0 ? most : 0;
      }
      kernels().scale(beyond, m, m, 1, beyond, moments);
      double *part = parts.data() + 2 * (begin / kChunk);
      part[0] = sums[0];
      part[1] = moments[0];
    });
    double rounded = 0, clamped = 0;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      rounded += parts[i];
      clamped += parts[i + 1];
    }
    const double scale = static_cast<double>(s);
    errors[static_cast<std::size_t>(2 * u)] = (rounded + clamped) / scale / scale;
  });
  return ordered_sum(errors, 0);
}

void thc_decode(const Units &units, int rotations, const ThcGrid &grid, const u8 *codes, int width, i64 shift,
                const f32u *rms, const u32u *counts, double weight, bool add, f32u *out) {
  alignas(64) float table[256];
  fill_table(grid, table);
  const double step = grid.step();
  const i64 stride = units.count() ? packed_bytes(units.padded(0), width) : 0;
  each_unit(units, rotations, [&](i64 u, Draws &draws, RotationWorkspace &scratch) {
    const i64 padded = draws.padded(), n = units.size(u);
    f32u *to = out + u * units.unit;
    const float s = pre_scale(rms[u]);
    const float last = static_cast<float>(weight / static_cast<double>(s));
    if (counts[u] == 0 || last == 0) {
      if (!add) std::memset(to, 0, static_cast<std::size_t>(n) * 4);
      return;
    }
    const int rounds = rounds_of(padded, rotations);
    const float norm = norm_of(padded, rounds);
    const double factor = static_cast<double>(rms[u] * s);
    float *w = scratch.values.get(padded + 16);
    each_chunk(padded, [&](i64 begin, i64 end) {
      const i64 m = end - begin;
      u32 sums[kChunk];
      const u8 *from = codes + u * stride + packed_bytes(begin, width);
      if (width == grid.bits) {
        alignas(64) float values[kChunk];
        kernels().look_up(table, width, from, m, 1, values);
        for (i64 i = 0; i < m; ++i) sums[i] = static_cast<u32>(static_cast<std::int32_t>(values[i]));
      } else {
        unpack_piece(from, m, width, sums);
        if (shift)
          for (i64 i = 0; i < m; ++i) sums[i] += static_cast<u32>(shift);
      }
      kernels().mean(sums, m, counts[u], -grid.spread, step, factor, false, w + begin);
      for (i64 i = begin; i < end; ++i) w[i] *= norm;
    });
    f32u *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
    const u32 *signs = nullptr;
    const float *v = reinterpret_cast<const float *>(rotate_back(w, other, rounds, draws, &signs));
    each_chunk(n, [&](i64 begin, i64 end) {
      kernels().finish(v + begin, end - begin, signs ? signs + begin / 32 : nullptr, last, add, to + begin);
    });
  });
}

i64 thc_add(const ThcMessage *messages, i64 n_messages, i64 d, i64 unit, const ThcGrid &grid, i64 shift, bool clamp,
            u8 *out, int out_width) {
  if (d == 0) return 0;
  alignas(64) float table[256];
  fill_table(grid, table);
  std::atomic<i64> clamped{0};
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    alignas(64) float values[kChunk];
    u32 total[kChunk], term[kChunk];
    for (i64 k = 0; k < n_messages; ++k) {
      const int width = messages[k].width;
      const u8 *from = messages[k].codes + u * packed_bytes(std::min(unit, d), width) + packed_bytes(begin, width);
      if (width == grid.bits) {
        kernels().look_up(table, width, from, n, 1, values);
        for (i64 i = 0; i < n; ++i)
          total[i] = (k ? total[i] : 0) + static_cast<u32>(static_cast<std::int32_t>(values[i]));
        continue;
      }
      unpack_piece(from, n, width, term);
      for (i64 i = 0; i < n; ++i) total[i] = (k ? total[i] : 0) + term[i];
    }
    if (clamp) {
      const i64 most = (i64{1} << out_width) - 1;
      i64 here = 0;
      for (i64 i = 0; i < n; ++i) {
        const i64 exact = static_cast<i64>(total[i]) - shift, inside = std::clamp<i64>(exact, 0, most);
        here += inside != exact;
        total[i] = static_cast<u32>(inside);
      }
      clamped.fetch_add(here, std::memory_order_relaxed);
    } else if (shift) {
      for (i64 i = 0; i < n; ++i) total[i] -= static_cast<u32>(shift);
    }
    pack_piece(total, n, out_width, out + u * packed_bytes(std::min(unit, d), out_width) + packed_bytes(begin, out_width));
  });
  return clamped.load();
}

}  // namespace tersor
