// EDEN's encoder: each unit is read once, rotated in cache, quantised and packed; the error is summed on the way.
//
// S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher: "EDEN: Communication-Efficient
// and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv 2108.08842.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "eden.h"
#include "formats.h"
#include "pool.h"
#include "rotation.h"

namespace tersor {
namespace {

constexpr i64 kGroup = 16;  // units whose errors are summed in order before the groups are

struct Workspace {
  Draws draws;
  Buffer<float> values, other;
  Buffer<double> sums;
  Buffer<u8> dropped;  // codes that nobody wants
  Quantizer own;       // of 1 bit, the unit's own
  void trim() {
    draws.trim();
    values.trim();
    other.trim();
    sums.trim();
    dropped.trim();
  }
};
thread_local Workspace t_workspace;

struct Made {
  float scale, norm;
  int rounds;
  double error, energy;
  bool finite;
  float values[2] = {0, 0};  // DRIVE+
};

// Where a unit stands after steps 1 to 6 of FORMAT.md section 4: z = y * inv.
struct Rotated {
  const float *y;
  float inv;
};

// sum(z q), sum(q q), sum((z - q)^2)
struct Sums {
  double a = 0, c = 0, d = 0;
};

// Adds `count` numbers a chunk in the order of the chunks.
void add_chunks(const double *sums, i64 chunks, int count, double *total) {
  for (int j = 0; j < count; ++j) total[j] = 0;
  for (i64 c = 0; c < chunks; ++c)
    for (int j = 0; j < count; ++j) total[j] += sums[c * count + j];
}

u32 max_magnitude(const f32u *x, i64 n) {
  if (n < kBig) return kernels().max_magnitude(x, n);
  std::atomic<u32> most{0};
  each_chunk(n, [&](i64 begin, i64 end) {
    const u32 here = kernels().max_magnitude(x + begin, end - begin);
    u32 before = most.load(std::memory_order_relaxed);
    while (before < here && !most.compare_exchange_weak(before, here, std::memory_order_relaxed)) {
    }
  });
  return most.load();
}

double scale_of(int kind, double unit, double padded, double a, double c) {
  switch (kind) {
    case kUnbiased: return unit * (padded / a);
    case kBiased: return unit * (a / c);
    case kNorm: return unit * std::sqrt(padded / c);
    default: return unit;
  }
}

// The codes of z[from, to), each part of a unit with sums of its own.
Sums quantise(const Quantizer &quantizer, const Rotated &unit, i64 from, i64 to, const f32u *ahead, Workspace &scratch,
              u8 *codes) {
  const i64 chunks = (to - from + kChunk - 1) / kChunk;
  double *sums = scratch.sums.get(3 * chunks);
  std::fill(sums, sums + 3 * chunks, 0.0);
  const float *y = unit.y + from;
  each_chunk(to - from, [&](i64 begin, i64 end) {
    kernels().quantise(quantizer, y + begin, end - begin, unit.inv, ahead, codes + packed_bytes(begin, quantizer.bits),
                       sums + 3 * (begin / kChunk));
  });
  double total[3];
  add_chunks(sums, chunks, 3, total);
  return {total[0], total[1], total[2]};
}

// What is not sent has the level 0: a quantizer of one bit and two such levels, whose codes are dropped.
Sums drop(const Rotated &unit, i64 from, i64 to, const f32u *ahead, Workspace &scratch) {
  scratch.own.bits = 1;
  scratch.own.levels[0] = scratch.own.levels[1] = scratch.own.thresholds[0] = 0;
  return quantise(scratch.own, unit, from, to, ahead, scratch, scratch.dropped.get(packed_bytes(to - from, 1)));
}

Sums quantise_parts(const Units &units, const Quantizers &quantizers, const Rotated &unit, i64 padded,
                    const f32u *ahead, Workspace &scratch, u8 *codes) {
  if (units.fraction == 0) return quantise(*quantizers.low, unit, 0, padded, ahead, scratch, codes);
  const i64 high = high_count(padded, units.fraction);
  const Sums first = quantise(*quantizers.high, unit, 0, high, ahead, scratch, codes);
  const Sums second = quantizers.low ? quantise(*quantizers.low, unit, high, padded, ahead, scratch,
                                                codes + packed_bytes(high, units.bits + 1))
                                     : drop(unit, high, padded, ahead, scratch);
  return {first.a + second.a, first.c + second.c, first.d + second.d};
}

// A float32 for certain: GCC 12 drops a pair of conversions to float and back to double once it has made a vector of them.
__attribute__((noinline)) float rounded(double value) { return static_cast<float>(value); }

// DRIVE+: two means of z by Lloyd's iteration, from the split at the mean; values[2] gets them. Sums over one part of
// the split come from levels 0 and 1.
Sums two_means(const Rotated &unit, i64 padded, const f32u *ahead, Workspace &scratch, u8 *codes, float *values) {
  Quantizer &q = scratch.own;
  q.bits = 1;
  const auto split = [&](float low, float high, float threshold) {
    q.levels[0] = low;
    q.levels[1] = high;
    q.thresholds[0] = threshold;
    return quantise(q, unit, 0, padded, ahead, scratch, codes);
  };
  const double size = static_cast<double>(padded);
  const double sum = split(1, 1, 0).a;
  float threshold = rounded(sum / size);
  for (int i = 0;; ++i) {
    const Sums upper = split(0, 1, threshold);
    if (upper.c == 0 || upper.c == size) {  // an empty cluster: DRIVE's levels
      constexpr float kLevel = 0.79788456080286536f;
      values[0] = -kLevel;
      values[1] = kLevel;
      threshold = 0;
      break;
    }
    values[0] = rounded((sum - upper.a) / (size - upper.c));
    values[1] = rounded(upper.a / upper.c);
    if (i == 3) break;
    threshold = rounded((static_cast<double>(values[0]) + static_cast<double>(values[1])) / 2);
  }
  return split(values[0], values[1], threshold);
}

// quantizers: null for DRIVE+.
Made encode_unit(const Units &units, const f32u *x, i64 n, Draws &draws, const Quantizers *quantizers,
                 const EncodeOptions &options, const f32u *ahead, Workspace &scratch, u8 *codes) {
  const i64 padded = draws.padded(), run = draws.run();
  const Kernels &k = kernels();

  const int smooth_rounds = padded == run ? std::max(options.rotations, 1) : mixing_rounds(padded);
  const u32 magnitude = max_magnitude(x, n);
  if (magnitude == 0 || magnitude >= kInfinityBits) {
    std::memset(codes, 0, static_cast<std::size_t>(units.unit_bytes(padded)));
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    if (magnitude == 0) return {0, 0, smooth_rounds, 0, 0, true};
    constexpr float none = std::numeric_limits<float>::quiet_NaN();
    return {none, none, smooth_rounds, nan, nan, false, {none, none}};
  }
  int exponent;
  std::frexp(static_cast<double>(std::bit_cast<float>(magnitude)), &exponent);
  const double s = std::ldexp(1.0, std::clamp(-exponent, -126, 127));

  float *w = scratch.values.get(padded + 16);
  const i64 chunks = (padded + kChunk - 1) / kChunk;
  double *sums = scratch.sums.get(3 * chunks);
  std::fill(sums, sums + 2 * chunks, 0.0);
  const bool at_once = padded == run && padded <= kChunk;  // the first round goes with the scaling
  if (at_once) {
    k.scale_and_rotate(x, n, padded, static_cast<float>(s), draws.signs(0), w, sums);
  } else {
    each_chunk(padded, [&](i64 begin, i64 end) {
      const i64 valid = std::clamp<i64>(n - begin, 0, end - begin);
      k.scale(x + begin, valid, end - begin, static_cast<float>(s), w + begin, sums + 2 * (begin / kChunk));
    });
  }
  double moments[2];
  add_chunks(sums, chunks, 2, moments);
  const double s2 = moments[0], s4 = moments[1];

  const double size = static_cast<double>(padded);
  int rounds = smooth_rounds;
  if (padded == run && options.rotations == 0)
    rounds = s4 <= std::max(std::ldexp(1.0, -10), 4.0 / size) * (s2 * s2) ? 1 : 2;
  float *other = padded == run ? nullptr : scratch.other.get(padded + 16);
  const float *y = reinterpret_cast<const float *>(rotate_forward(w, other, at_once ? 1 : 0, rounds, draws));

  const double r = std::sqrt(s2), root = std::sqrt(size);
  double power = 1;
  for (int i = 0; i < rounds; ++i) power *= static_cast<double>(run);
  const float inv = static_cast<float>(root / (r * std::sqrt(power)));
  const Rotated rotated{y, inv};
  float means[2] = {0, 0};
  const Sums sum = quantizers ? quantise_parts(units, *quantizers, rotated, padded, ahead, scratch, codes)
                              : two_means(rotated, padded, ahead, scratch, codes, means);
  const double a = sum.a, c = sum.c, d = sum.d;

  const double unit = r / root;
  const double g = a > 0 ? scale_of(options.scale_kind, unit, size, a, c) : 0;
  const float scale = round_to(static_cast<float>(g / s), options.scale_dtype);
  const double t = quantizers ? static_cast<double>(scale) * s / unit : g / unit;
  double error = d + 2 * (t - 1) * (c - a) + ((t - 1) * (t - 1)) * c;
  error = error * (unit * unit) * (static_cast<double>(n) / size) / (s * s);
  Made made{scale, static_cast<float>(r / s), rounds, error, s2 / (s * s), true};
  for (int i = 0; i < 2 && !quantizers; ++i) made.values[i] = rounded(g * static_cast<double>(means[i]) / s);
  return made;
}

void lower(std::atomic<i64> &least, i64 value) {
  i64 before = least.load(std::memory_order_relaxed);
  while (value < before && !least.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

// Gives `scales` one value a unit, or two if there are no quantizers.
EncodeResult encode_all(const Units &units, const Quantizers *quantizers, const EncodeOptions &options, const f32u *x,
                        u8 *codes, f32u *scales, u8 *rounds, f32u *norms) {
  const i64 count = units.count();
  // Rows share their draws, made here once.
  std::shared_ptr<Draws> shared;
  if (units.by_rows && count > 0) {
    const i64 padded = units.padded(0);
    const int rounds = options.rotations ? options.rotations : 2;
    shared = row_draws(units.key, padded, padded == run_length(padded) ? rounds : mixing_rounds(padded));
  }
  constexpr i64 kNone = std::numeric_limits<i64>::max();
  std::atomic<i64> first_bad{kNone};

  // Long units go one by one, others in groups: either way what is added in which order is the same.
  const bool single = units.unit >= 16 * kChunk;
  const i64 groups = (count + kGroup - 1) / kGroup;
  std::vector<double> errors(static_cast<std::size_t>(single ? count : groups));
  std::vector<double> energies(errors.size());

  const auto encode = [&](i64 u, Workspace &scratch, double &error, double &energy) {
    const i64 n = units.size(u);
    const f32u *from = x + u * units.unit;
    if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
    const f32u *ahead = u + 1 < count ? from + units.unit : from;
    const Made made = encode_unit(units, from, n, units.by_rows ? *shared : scratch.draws, quantizers, options, ahead,
                                  scratch, codes + units.code_offset(u));
    if (quantizers) {
      scales[u] = made.scale;
    } else {
      scales[2 * u] = made.values[0];
      scales[2 * u + 1] = made.values[1];
    }
    rounds[u] = static_cast<u8>(made.rounds);
    if (norms) norms[u] = made.norm;
    error += made.error;
    energy += made.energy;
    if (!made.finite) {
      i64 i = 0;
      while (kernels().max_magnitude(from + i, 1) < kInfinityBits) ++i;
      lower(first_bad, u * units.unit + i);
    }
  };
  if (single) {
    parallel_for(count, [&](i64 u) {
      const auto i = static_cast<std::size_t>(u);
      encode(u, t_workspace, errors[i], energies[i]);
      t_workspace.trim();
    });
  } else {
    const i64 batch = std::max<i64>(1, kChunk / units.unit);  // groups a task: some 65,536 coordinates
    parallel_for((groups + batch - 1) / batch, [&](i64 task) {
      for (i64 g = task * batch; g < std::min(groups, (task + 1) * batch); ++g) {
        const auto i = static_cast<std::size_t>(g);
        double error = 0, energy = 0;
        for (i64 u = g * kGroup; u < std::min(count, (g + 1) * kGroup); ++u) encode(u, t_workspace, error, energy);
        errors[i] = error;
        energies[i] = energy;
      }
    });
  }

  EncodeResult result{first_bad.load(), 0, 0};
  if (result.first_bad == kNone) result.first_bad = -1;
  const i64 in_group = single ? kGroup : 1;
  for (i64 g = 0; g < groups; ++g) {
    double error = 0, energy = 0;
    for (i64 u = g * in_group; u < std::min<i64>(static_cast<i64>(errors.size()), (g + 1) * in_group); ++u) {
      error += errors[static_cast<std::size_t>(u)];
      energy += energies[static_cast<std::size_t>(u)];
    }
    result.error += error;
    result.energy += energy;
  }
  return result;
}

}  // namespace

EncodeResult eden_encode(const Units &units, const Quantizers &quantizers, const EncodeOptions &options, const f32u *x,
                         u8 *codes, f32u *scales, u8 *rounds, f32u *norms) {
  return encode_all(units, &quantizers, options, x, codes, scales, rounds, norms);
}

EncodeResult drive_plus_encode(const Units &units, const EncodeOptions &options, const f32u *x, u8 *codes, f32u *values,
                               u8 *rounds, f32u *norms) {
  return encode_all(units, nullptr, options, x, codes, values, rounds, norms);
}

}  // namespace tersor
