// EDEN's decoder, and what encoder and decoder share: the cut into units, and the rounding of scales.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "dispatch.h"
#include "eden.h"
#include "pool.h"
#include "rotation.h"

namespace tersor {

i64 Units::padded(i64 k) const { return padded_length(size(k), full); }

i64 Units::code_offset(i64 k) const { return k == 0 ? 0 : k * packed_bytes(padded_length(unit, full), bits); }

i64 Units::code_bytes() const {
  const i64 n = count();
  return n == 0 ? 0 : code_offset(n - 1) + packed_bytes(padded(n - 1), bits);
}

float round_to(float value, int dtype) {
  const u32 bits = std::bit_cast<u32>(value);
  if (dtype == kBFloat16) return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
  if (dtype == kFloat16) {
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.0f) return std::copysign(INFINITY, value);
    // Adding and taking away a power of two leaves multiples of its last place: the spacing of float16 at this value.
    int exponent;
    std::frexp(magnitude, &exponent);
    const float anchor = std::ldexp(1.0f, std::max(exponent, -13) + 12);
    return std::copysign((magnitude + anchor) - anchor, value);
  }
  return value;
}

namespace {

// Arrays from this size on are written past the caches: to fetch a line only to overwrite it halves the speed of memory.
constexpr i64 kStream = i64{1} << 22;

struct Workspace {
  Draws draws;
  Buffer<float> values, other;
  void trim() {
    draws.trim();
    values.trim();
    other.trim();
  }
};
thread_local Workspace t_workspace;

// f32(level / sqrt(B^rounds)) for each number of rounds.
struct Tables {
  alignas(64) float table[kMaxRounds + 1][256] = {};

  Tables(const float *levels, int bits, i64 run) {
    double power = 1;
    for (int r = 0; r <= kMaxRounds; ++r) {
      const double norm = 1 / std::sqrt(power);
      for (int i = 0; i < 256; ++i)  // periodic: a look-up may see bits above the width
        table[r][i] = static_cast<float>(static_cast<double>(levels[i & ((1 << bits) - 1)]) * norm);
      power *= static_cast<double>(run);
    }
  }
};

void decode_unit(const u8 *codes, i64 n, int bits, int rounds, const Tables &tables, Draws &draws, float factor,
                 bool add, bool stream, Workspace &scratch, f32u *out) {
  const i64 padded = draws.padded();
  const Kernels &k = kernels();
  float *v = scratch.values.get(padded + 16);
  if (padded == draws.run() && padded <= kChunk && rounds > 0) {
    // First and last pass go with the look-up and the scaling.
    k.look_up(tables.table[rounds], bits, codes, padded, padded, v);
    for (int r = rounds - 1; r > 0; --r) {
      k.fwht_later(v, padded, padded);
      k.fwht_first(v, padded, padded, draws.signs(r));
    }
    return k.rotate_and_finish(v, n, padded, draws.signs(0), factor, add, stream, out);
  }
  float *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
  each_chunk(padded, [&](i64 begin, i64 end) {
    k.look_up(tables.table[rounds], bits, codes + packed_bytes(begin, bits), end - begin, 1, v + begin);
  });
  const u32 *signs = nullptr;
  const float *x = reinterpret_cast<const float *>(rotate_back(v, other, rounds, draws, &signs));
  each_chunk(n, [&](i64 begin, i64 end) {
    k.finish(x + begin, end - begin, signs ? signs + begin / 32 : nullptr, factor, add, out + begin);
  });
}

}  // namespace

void eden_decode(const Units &units, const float *levels, const u8 *codes, const f32u *scales, const u8 *rounds,
                 double weight, bool add, const u8 *present, f32u *out) {
  const i64 count = units.count();
  if (count == 0) return;
  std::shared_ptr<Draws> shared;
  if (units.by_rows) shared = row_draws(units.key, units.padded(0), *std::max_element(rounds, rounds + count));
  const Tables tables(levels, units.bits, run_length(units.padded(0)));
  const Tables last_tables(levels, units.bits, run_length(units.padded(count - 1)));
  const bool stream = units.d >= kStream;
  const i64 batch = std::max<i64>(1, 16 * kChunk / units.unit);
  parallel_for((count + batch - 1) / batch, [&](i64 task) {
    Workspace &scratch = t_workspace;
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      const i64 n = units.size(u);
      f32u *to = out + u * units.unit;
      const float factor = static_cast<float>(static_cast<double>(scales[u]) * weight);
      if (factor == 0 || (present && !present[u])) {
        if (!add) std::memset(to, 0, static_cast<std::size_t>(n) * 4);
        continue;
      }
      if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
      decode_unit(codes + units.code_offset(u), n, units.bits, rounds[u], u == count - 1 ? last_tables : tables,
                  units.by_rows ? *shared : scratch.draws, factor, add, stream, scratch, to);
    }
    if (stream) std::atomic_thread_fence(std::memory_order_seq_cst);
    scratch.trim();
  });
}

void eden_add(const Units &units, const float *levels, const EdenMessage *messages, i64 n_messages, f32u *out) {
  const i64 count = units.count();
  if (count == 0) return;
  std::vector<std::shared_ptr<Draws>> shared;
  if (units.by_rows)
    for (const EdenMessage *m = messages; m < messages + n_messages; ++m)
      shared.push_back(row_draws(m->key, units.padded(0), *std::max_element(m->rounds, m->rounds + count)));
  const Tables tables(levels, units.bits, run_length(units.padded(0)));
  const Tables last_tables(levels, units.bits, run_length(units.padded(count - 1)));
  const bool stream = units.d >= kStream;
  const i64 batch = std::max<i64>(1, 16 * kChunk / units.unit);
  parallel_for((count + batch - 1) / batch, [&](i64 task) {
    Workspace &scratch = t_workspace;
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      for (i64 i = 0; i < n_messages; ++i) {
        const EdenMessage &m = messages[i];
        const float factor = static_cast<float>(static_cast<double>(m.scales[u]) * m.weight);
        if (factor == 0) continue;
        if (!units.by_rows) {
          const u64 position = m.start + static_cast<u64>(u) * static_cast<u64>(units.unit);
          scratch.draws.move_to(m.key, position, units.padded(u));
        }
        // Only the last leaves the caches.
        decode_unit(m.codes + units.code_offset(u), units.size(u), units.bits, m.rounds[u],
                    u == count - 1 ? last_tables : tables,
                    units.by_rows ? *shared[static_cast<std::size_t>(i)] : scratch.draws, factor, true,
                    stream && i == n_messages - 1, scratch, out + u * units.unit);
      }
    }
    if (stream) std::atomic_thread_fence(std::memory_order_seq_cst);
    scratch.trim();
  });
}

}  // namespace tersor
