// QUIC-FL's encoder and decoders: a unit is rotated in cache, quantised with shared and private randomness, and packed.
//
// R. Ben-Basat, S. Vargaftik, A. Portnoy, G. Einziger, Y. Ben-Itzhak, M. Mitzenmacher: "Accelerating Federated Learning
// with Quick Distributed Mean Estimation", ICML 2024, arXiv 2205.13341.
#include "quicfl.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "dispatch.h"
#include "formats.h"
#include "pool.h"
#include "rotation.h"

namespace tersor {
namespace {

constexpr int kRounds = 2;
constexpr i64 kStream = i64{1} << 22;  // as in eden_decode.cpp

struct Workspace {
  Draws draws;
  Buffer<float> values, other;
  Buffer<u32> words;
  Buffer<float> kept;
  void trim() {
    draws.trim();
    values.trim();
    other.trim();
    kept.trim();
  }
};
thread_local Workspace t_workspace;

int rounds_of(i64 padded) { return padded == run_length(padded) ? kRounds : mixing_rounds(padded); }

double power_of(i64 padded) {
  double power = 1;
  for (int r = 0; r < rounds_of(padded); ++r) power *= static_cast<double>(run_length(padded));
  return std::sqrt(power);
}

// Words of the shared symbols of n coordinates.
i64 symbol_words(i64 n, int bits) { return bits <= 2 ? (n + 3) / 4 : (n + 7) / 8; }

u64 first_symbol_word(const Units &units, i64 u) {
  if (units.by_rows)
    return (units.start + static_cast<u64>(u)) * static_cast<u64>(symbol_words(units.padded(u), units.bits));
  return units.position(u) / (units.bits <= 2 ? 4 : 8);
}

u64 first_word(const Units &units, i64 u) {
  if (units.by_rows) return (units.start + static_cast<u64>(u)) * static_cast<u64>(units.padded(u));
  return units.position(u);
}

std::shared_ptr<Draws> draws_of_rows(const Units &units) {
  if (!units.by_rows) return nullptr;
  return row_draws(units.key, units.padded(0), rounds_of(units.padded(0)));
}

float round_up(double value) {
  float rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) < value) rounded = std::nextafter(rounded, std::numeric_limits<float>::infinity());
  return std::min(rounded, std::numeric_limits<float>::max());
}

const u8 *symbol_fields(u64 key, u64 first, i64 n, int bits, Workspace &scratch) {
  const i64 count = symbol_words(n, bits);
  u32 *words = scratch.words.get(2 * kChunk + 64);  // private words first
  random_words(key, kSymbols, 0, first, count, words + kChunk + 32);
  return reinterpret_cast<const u8 *>(words + kChunk + 32);
}

// Returns the number of exact entries, -1 if a coordinate is not finite.
i64 encode_unit(const Units &units, i64 u, Draws &draws, const Zones &zones, u64 symbols, u64 private_key,
                const f32u *x, const f32u *ahead, Workspace &scratch, u8 *codes, f32u &scale, QuicflEntries &list) {
  const i64 n = units.size(u), padded = draws.padded();
  const Kernels &k = kernels();
  const u32 magnitude = k.max_magnitude(x, n);
  if (magnitude == 0 || magnitude >= kInfinityBits) {
    std::memset(codes, 0, static_cast<std::size_t>(packed_bytes(padded, zones.bits)));
    scale = magnitude == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return magnitude == 0 ? 0 : -1;
  }
  int exponent;
  std::frexp(static_cast<double>(std::bit_cast<float>(magnitude)), &exponent);
  const double s = std::ldexp(1.0, std::clamp(-exponent, -126, 127));

  float *w = scratch.values.get(padded + 16);
  double s2 = 0;
  const bool at_once = padded == draws.run() && padded <= kChunk;
  if (at_once) {
    double moments[2] = {};
    k.scale_and_rotate(x, n, padded, static_cast<float>(s), draws.signs(0), w, moments);
    s2 = moments[0];
  } else {
    for (i64 begin = 0; begin < padded; begin += kChunk) {
      double moments[2] = {};
      const i64 end = std::min(padded, begin + kChunk), valid = std::clamp<i64>(n - begin, 0, end - begin);
      k.scale(x + begin, valid, end - begin, static_cast<float>(s), w + begin, moments);
      s2 += moments[0];
    }
  }
  scale = round_up(std::sqrt(s2) / std::sqrt(static_cast<double>(padded)) / s);
  float *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
  const auto *y = reinterpret_cast<const float *>(rotate_forward(w, other, at_once ? 1 : 0, rounds_of(padded), draws));
  const float inv = static_cast<float>(1 / (static_cast<double>(scale) * s * power_of(padded)));

  const std::size_t before = list.positions.size();
  for (i64 begin = 0; begin < padded; begin += kChunk) {
    const i64 count = std::min(padded - begin, kChunk);
    u32 positions[kChunk];
    float values[kChunk];
    const u8 *fields =
        symbol_fields(symbols, first_symbol_word(units, u) + static_cast<u64>(symbol_words(begin, zones.bits)), count,
                      zones.bits, scratch);
    u32 *words = scratch.words.get(0);
    random_words(private_key, kRounding, 0, first_word(units, u) + static_cast<u64>(begin), count, words);
    i64 listed = k.quicfl_round(zones, y + begin, count, inv, words, fields, ahead,
                                codes + packed_bytes(begin, zones.bits), positions, values);
    if (padded == 1) {  // a single coordinate is exact
      positions[0] = 0;
      values[0] = y[0] * inv;
      listed = 1;
    }
    for (i64 i = 0; i < listed; ++i) {
      list.positions.push_back(static_cast<u32>(begin) + positions[i]);
      list.values.push_back(values[i]);
    }
  }
  return static_cast<i64>(list.positions.size() - before);
}

void lower(std::atomic<i64> &least, i64 value) {
  i64 before = least.load(std::memory_order_relaxed);
  while (value < before && !least.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Zones make_zones(int bits, int shared_bits, const f32u *low, const f32u *width, float limit) {
  const int layers = (1 << bits) - 1, symbols = 1 << shared_bits, most = 1 << Zones::most_shared(bits);
  Zones zones;
  zones.bits = bits;
  zones.limit = limit;
  float thresholds[16] = {};
  const float levels[16] = {};
  double end = -std::numeric_limits<double>::infinity();
  for (int j = 0; j < layers; ++j) {
    thresholds[j] = low[j];
    for (int h = 0; h < symbols; ++h) {
      const int i = h * layers + j;
      if (!(width[i] >= 0 && low[i] >= end)) throw std::invalid_argument("the zones must ascend, layer by layer");
      end = static_cast<double>(low[i]) + static_cast<double>(width[i]);
    }
    for (int h = 0; h < most; ++h) {
      float *pair = zones.pairs[j * most + h];
      pair[0] = low[h % symbols * layers + j];
      pair[1] = std::ldexp(width[h % symbols * layers + j], -24);
    }
  }
  if (!std::isfinite(end)) throw std::invalid_argument("the zones must be finite");
  zones.layers = make_quantizer(bits, levels, thresholds);
  return zones;
}

i64 quicfl_encode(const Units &units, const Zones &zones, u64 symbols, u64 private_key, const f32u *x, u8 *codes,
                  f32u *scales, u32u *counts, std::vector<QuicflEntries> &lists) {
  const i64 count = units.count();
  if (count == 0) return -1;
  const std::shared_ptr<Draws> shared = draws_of_rows(units);
  constexpr i64 kNone = std::numeric_limits<i64>::max();
  std::atomic<i64> first_bad{kNone};
  const i64 batch = std::max<i64>(1, 16 * kChunk / units.unit), tasks = (count + batch - 1) / batch;
  lists.resize(static_cast<std::size_t>(tasks));
  parallel_for(tasks, [&](i64 task) {
    Workspace &scratch = t_workspace;
    QuicflEntries &list = lists[static_cast<std::size_t>(task)];
    for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) {
      const f32u *from = x + u * units.unit;
      if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
      const i64 listed = encode_unit(units, u, units.by_rows ? *shared : scratch.draws, zones, symbols, private_key, from,
                                     u + 1 < count ? from + units.unit : from, scratch, codes + units.code_offset(u),
                                     scales[u], list);
      counts[u] = static_cast<u32>(std::max<i64>(listed, 0));
      if (listed < 0) {
        i64 i = 0;
        while (kernels().max_magnitude(from + i, 1) < kInfinityBits) ++i;
        lower(first_bad, u * units.unit + i);
      }
    }
    scratch.trim();
  });
  return first_bad.load() == kNone ? -1 : first_bad.load();
}

namespace {

// f32(level / sqrt(B^rounds)) by code << most_shared | symbol.
struct Tables {
  alignas(64) float table[256] = {};
  double norm;

  Tables(const f32u *levels, int bits, int shared_bits, i64 padded) : norm(1 / power_of(padded)) {
    const int most = 1 << Zones::most_shared(bits);
    for (int code = 0; code < 1 << bits; ++code)
      for (int h = 0; h < most; ++h) {
        const double level = levels[(h & ((1 << shared_bits) - 1)) << bits | code];
        table[code * most + h] = static_cast<float>(level * norm);
      }
  }
};

struct Decoder {
  const Units &units;
  const Tables tables, last_tables;
  const std::shared_ptr<Draws> shared;
  const bool stream;

  Decoder(const Units &units_, int shared_bits, const f32u *levels)
      : units(units_),
        tables(levels, units_.bits, shared_bits, units_.padded(0)),
        last_tables(levels, units_.bits, shared_bits, units_.padded(units_.count() - 1)),
        shared(draws_of_rows(units_)),
        stream(units_.d >= kStream) {}

  // v = or += the levels of unit u of a message, the latter times f; its exact entries begin at `entry`.
  void look_up(const QuicflMessage &message, i64 u, i64 entry, bool add, float f, Workspace &scratch, float *v) const {
    const Tables &of = u == units.count() - 1 ? last_tables : tables;
    const i64 padded = units.padded(u), listed = message.counts[u];
    float *kept = scratch.kept.get(listed);
    for (i64 i = 0; add && i < listed; ++i) kept[i] = v[message.positions[entry + i]];
    for (i64 begin = 0; begin < padded; begin += kChunk) {
      const i64 count = std::min(padded - begin, kChunk);
      const u8 *fields = symbol_fields(
          message.symbols, first_symbol_word(units, u) + static_cast<u64>(symbol_words(begin, units.bits)), count,
          units.bits, scratch);
      kernels().quicfl_look_up(of.table, units.bits, message.codes + units.code_offset(u) + packed_bytes(begin, units.bits),
                               count, fields, add, f, v + begin);
    }
    for (i64 i = 0; i < listed; ++i) {
      const float value = static_cast<float>(static_cast<double>(message.values[entry + i]) * of.norm);
      v[message.positions[entry + i]] = add ? kept[i] + value * f : value;
    }
  }

  void rotate(float *v, i64 u, float f, bool add, Workspace &scratch, f32u *out) const {
    if (!units.by_rows) scratch.draws.move_to(units.key, units.position(u), units.padded(u));
    Draws &draws = units.by_rows ? *shared : scratch.draws;
    const i64 n = units.size(u), padded = draws.padded();
    const Kernels &k = kernels();
    if (padded == draws.run() && padded <= kChunk) {
      k.fwht_first(v, padded, padded, nullptr);
      for (int r = kRounds - 1; r > 0; --r) {
        k.fwht_later(v, padded, padded);
        k.fwht_first(v, padded, padded, draws.signs(r));
      }
      return k.rotate_and_finish(v, n, padded, draws.signs(0), f, add, stream, out);
    }
    float *other = padded == draws.run() ? nullptr : scratch.other.get(padded + 16);
    const u32 *signs = nullptr;
    const auto *x = reinterpret_cast<const float *>(rotate_back(v, other, rounds_of(padded), draws, &signs));
    each_chunk(n, [&](i64 begin, i64 end) {
      k.finish(x + begin, end - begin, signs ? signs + begin / 32 : nullptr, f, add, out + begin);
    });
  }

  // Calls body(unit, scratch) for all units.
  template <class Body>
  void each_unit(const Body &body) const {
    const i64 count = units.count(), batch = std::max<i64>(1, 16 * kChunk / units.unit);
    parallel_for((count + batch - 1) / batch, [&](i64 task) {
      for (i64 u = task * batch; u < std::min(count, (task + 1) * batch); ++u) body(u, t_workspace);
      if (stream) std::atomic_thread_fence(std::memory_order_seq_cst);
      t_workspace.trim();
    });
  }
};

std::vector<i64> first_entries(const QuicflMessage &message, i64 count) {
  std::vector<i64> first(static_cast<std::size_t>(count));
  i64 total = 0;
  for (i64 u = 0; u < count; ++u) {
    first[static_cast<std::size_t>(u)] = total;
    total += message.counts[u];
  }
  return first;
}

float factor_of(const QuicflMessage &message, i64 u) {
  return static_cast<float>(static_cast<double>(message.scales[u]) * message.weight);
}

}  // namespace

void quicfl_decode(const Units &units, int shared_bits, const f32u *levels, const QuicflMessage &message, bool add,
                   const u8 *present, f32u *out) {
  if (units.count() == 0) return;
  const Decoder decoder(units, shared_bits, levels);
  const std::vector<i64> first = first_entries(message, units.count());
  decoder.each_unit([&](i64 u, Workspace &scratch) {
    f32u *to = out + u * units.unit;
    const float factor = factor_of(message, u);
    if (factor == 0 || (present && !present[u])) {
      if (!add) std::memset(to, 0, static_cast<std::size_t>(units.size(u)) * 4);
      return;
    }
    float *v = scratch.values.get(units.padded(u) + 16);
    decoder.look_up(message, u, first[static_cast<std::size_t>(u)], false, 1, scratch, v);
    decoder.rotate(v, u, factor, add, scratch, to);
  });
}

void quicfl_add(const Units &units, int shared_bits, const f32u *levels, const QuicflMessage *messages, i64 n_messages,
                f32u *out) {
  if (units.count() == 0) return;
  const Decoder decoder(units, shared_bits, levels);
  std::vector<std::vector<i64>> first;
  for (i64 i = 0; i < n_messages; ++i) first.push_back(first_entries(messages[i], units.count()));
  decoder.each_unit([&](i64 u, Workspace &scratch) {
    const i64 padded = units.padded(u);
    float *v = scratch.values.get(padded + 16);
    std::fill(v, v + padded, 0.0f);
    for (i64 i = 0; i < n_messages; ++i) {
      if (i + 1 < n_messages) {  // each message is another place in memory
        const u8 *next = messages[i + 1].codes + units.code_offset(u);
        const i64 bytes = std::min<i64>(packed_bytes(padded, units.bits), kChunk);
        for (i64 at = 0; at < bytes; at += 64) __builtin_prefetch(next + at, 0, 3);
      }
      const float factor = factor_of(messages[i], u);
      if (factor == 0) continue;
      decoder.look_up(messages[i], u, first[static_cast<std::size_t>(i)][static_cast<std::size_t>(u)], true, factor,
                      scratch, v);
    }
    decoder.rotate(v, u, 1, true, scratch, out + u * units.unit);
  });
}

}  // namespace tersor
