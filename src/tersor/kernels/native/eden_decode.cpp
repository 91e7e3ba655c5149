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

i64 Units::code_offset(i64 k) const { return k == 0 ? 0 : k * unit_bytes(padded_length(unit, full)); }

i64 Units::code_bytes() const {
  const i64 n = count();
  return n == 0 ? 0 : code_offset(n - 1) + unit_bytes(padded(n - 1));
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

// The tables of both widths; without a fraction there is no high one.
struct BothTables {
  Tables low;
  std::unique_ptr<Tables> high;

  BothTables(const Units &units, const float *levels, i64 run) : low(levels, units.bits, run) {
    if (units.fraction > 0) high = std::make_unique<Tables>(levels + (i64{1} << units.bits), units.bits + 1, run);
  }
};

// What one unit is decoded with: levels over sqrt(B^rounds) of both widths, and flags of pieces unless all are there.
struct Unit {
  const float *low, *high;
  const u8 *present;
  i64 pieces;

  Unit(const BothTables &tables, int rounds, const u8 *flags = nullptr, i64 n_pieces = 1)
      : low(tables.low.table[rounds]), high(tables.high ? tables.high->table[rounds] : nullptr), present(flags),
        pieces(n_pieces) {}
};

// Levels of v[from, to) by the codes; 0 bits are zeros.
void look_up_part(const float *table, int bits, const u8 *codes, i64 from, i64 to, float *v) {
  if (bits == 0) {
    std::fill(v + from, v + to, 0.0f);
    return;
  }
  each_chunk(to - from, [&](i64 begin, i64 end) {
    kernels().look_up(table, bits, codes + packed_bytes(begin, bits), end - begin, 1, v + from + begin);
  });
}

// Levels of all P rotated coordinates, zeros for pieces that were lost.
void look_up_all(const Units &units, const Unit &unit, const u8 *codes, i64 padded, float *v) {
  const i64 high = high_count(padded, units.fraction);
  if (high > 0) look_up_part(unit.high, units.bits + 1, codes, 0, high, v);
  look_up_part(unit.low, units.bits, codes + packed_bytes(high, units.bits + 1), high, padded, v);
  if (!unit.present) return;
  const i64 piece = (padded - 1) / unit.pieces + 1;
  for (i64 j = 0, begin = 0; begin < padded; ++j, begin += piece)
    if (!unit.present[j]) std::fill(v + begin, v + std::min(padded, begin + piece), 0.0f);
}

// Levels and first pass of a unit of one run, P <= kChunk.
void look_up_and_rotate(const Units &units, const Unit &unit, const u8 *codes, i64 padded, float *v) {
  constexpr i64 kLongest = 256;  // first pass of any level
  const Kernels &k = kernels();
  const i64 high = high_count(padded, units.fraction);
  if (unit.present || high % kLongest != 0) {
    look_up_all(units, unit, codes, padded, v);
    return k.fwht_first(v, padded, padded, nullptr);
  }
  if (high > 0) k.look_up(unit.high, units.bits + 1, codes, high, padded, v);
  if (units.bits > 0) {
    k.look_up(unit.low, units.bits, codes + packed_bytes(high, units.bits + 1), padded - high, padded, v + high);
  } else {
    std::fill(v + high, v + padded, 0.0f);
  }
}

void decode_unit(const Units &units, const Unit &unit, const u8 *codes, i64 n, int rounds, Draws &draws, float factor,
                 bool add, bool stream, Workspace &scratch, f32u *out) {
  const i64 padded = draws.padded();
  const Kernels &k = kernels();
  float *v = scratch.values.get(padded + 16);
  if (padded == draws.run() && padded <= kChunk && rounds > 0) {
    // First and last pass go with the look-up and the scaling.
    look_up_and_rotate(units, unit, codes, padded, v);
    for (int r = rounds - 1; r > 0; --r) {
      k.fwht_later(v, padded, padded);
      k.fwht_first(v, padded, padded, draws.signs(r));
    }
    return k.rotate_and_finish(v, n, padded, draws.signs(0), factor, add, stream, out);
  }
  float *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
  look_up_all(units, unit, codes, padded, v);
  const u32 *signs = nullptr;
  const float *x = reinterpret_cast<const float *>(rotate_back(v, other, rounds, draws, &signs));
  each_chunk(n, [&](i64 begin, i64 end) {
    k.finish(x + begin, end - begin, signs ? signs + begin / 32 : nullptr, factor, add, out + begin);
  });
}

}  // namespace

void eden_decode(const Units &units, const float *levels, const u8 *codes, const f32u *scales, const u8 *rounds,
                 double weight, bool add, const u8 *present, f32u *out, i64 pieces, bool own) {
  const i64 count = units.count();
  if (count == 0) return;
  std::shared_ptr<Draws> shared;
  if (units.by_rows) shared = row_draws(units.key, units.padded(0), *std::max_element(rounds, rounds + count));
  const BothTables tables(units, levels, run_length(units.padded(0)));
  const BothTables last_tables(units, levels, run_length(units.padded(count - 1)));
  const bool stream = units.d >= kStream;
  const i64 batch = std::max<i64>(1, 16 * kChunk / units.unit);
  parallel_for((count + batch - 1) / batch, [&](i64 task) {
    Workspace &scratch = t_workspace;
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      const i64 n = units.size(u);
      f32u *to = out + u * units.unit;
      const float factor = static_cast<float>(static_cast<double>(scales[u]) * weight);
      const u8 *flags = present ? present + u * pieces : nullptr;
      const auto arrived = flags ? pieces - std::count(flags, flags + pieces, u8{0}) : pieces;
      if (factor == 0 || arrived == 0) {
        if (!add) std::memset(to, 0, static_cast<std::size_t>(n) * 4);
        continue;
      }
      if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
      Unit unit(u == count - 1 ? last_tables : tables, rounds[u], arrived == pieces ? nullptr : flags, pieces);
      alignas(64) float table[16];
      if (own) {
        double power = 1;
        for (int r = 0; r < rounds[u]; ++r) power *= static_cast<double>(run_length(units.padded(u)));
        for (int i = 0; i < 16; ++i)
          table[i] = static_cast<float>(static_cast<double>(levels[2 * u + i % 2]) * (1 / std::sqrt(power)));
        unit.low = table;
      }
      decode_unit(units, unit, codes + units.code_offset(u), n, rounds[u], units.by_rows ? *shared : scratch.draws,
                  factor, add, stream, scratch, to);
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
  const BothTables tables(units, levels, run_length(units.padded(0)));
  const BothTables last_tables(units, levels, run_length(units.padded(count - 1)));
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
        const Unit unit(u == count - 1 ? last_tables : tables, m.rounds[u]);
        decode_unit(units, unit, m.codes + units.code_offset(u), units.size(u), m.rounds[u],
                    units.by_rows ? *shared[static_cast<std::size_t>(i)] : scratch.draws, factor, true,
                    stream && i == n_messages - 1, scratch, out + u * units.unit);
      }
    }
    if (stream) std::atomic_thread_fence(std::memory_order_seq_cst);
    scratch.trim();
  });
}

}  // namespace tersor
