// Fuzzes every native decoder below the checksum: random codes, scales and parameters that pass the checks of bindings.cpp.
//
// Usage: decoders EXECUTIONS [SEED]. Built and run by scripts/fuzz.sh under AddressSanitizer and UBSan. Every buffer is a
// heap block of exactly the size that the bindings ask for, at any alignment, so one byte too far is an error. Each input
// runs on one random SIMD level and thread count, and on the scalar level with one: the bytes must agree.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "blocks.h"
#include "dispatch.h"
#include "dynamiq.h"
#include "eden.h"
#include "formats.h"
#include "level_codes.h"
#include "pool.h"
#include "quicfl.h"
#include "rans.h"
#include "rotated.h"
#include "rotation.h"
#include "shared_codes.h"
#include "shared_levels.h"
#include "thc.h"
#include "uniform.h"

using namespace tersor;

namespace {

struct Random {  // splitmix64
  u64 state;
  u64 next() {
    u64 z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  i64 below(i64 n) { return static_cast<i64>(next() % static_cast<u64>(n)); }
  bool one_in(i64 n) { return below(n) == 0; }
};

// Floats that hurt: NaN, infinities, the largest, the least, zeros of both signs; else any bits, or a tame value.
float hostile(Random &r) {
  static const u32 edges[] = {0x7fc00000, 0x7f800001, 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff,
                              1,          0x80000000, 0x00800000, 0xffffffff, 0,          0x3f800000};
  if (r.one_in(4)) return std::bit_cast<float>(edges[r.below(12)]);
  if (r.one_in(3)) return std::bit_cast<float>(static_cast<u32>(r.next()));
  return static_cast<float>(r.below(2001) - 1000) / 512.0f;
}

double hostile_double(Random &r) {
  if (r.one_in(8)) return std::bit_cast<double>(r.next());
  return static_cast<double>(hostile(r));
}

// `count` values of T in a block that ends where they end, begun 0 to 7 bytes after an aligned place.
template <class T>
struct Block {
  i64 count;
  std::size_t skip;
  std::unique_ptr<char[]> memory;
  Block(Random &r, i64 n, int pattern = -1)
      : count(n), skip(static_cast<std::size_t>(r.below(8))), memory(new char[skip + bytes()]) {
    if (pattern >= 0) {
      if (n > 0) std::memset(memory.get() + skip, pattern, bytes());
    } else {
      for (std::size_t i = 0; i < bytes(); ++i) memory[skip + i] = static_cast<char>(r.next());
    }
  }
  std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(T); }
  template <class U>
  U *as() { return reinterpret_cast<U *>(memory.get() + skip); }
};

Block<float> floats(Random &r, i64 n) {
  Block<float> made(r, n, 0);
  f32u *at = made.as<f32u>();
  for (i64 i = 0; i < n; ++i) at[i] = hostile(r);
  return made;
}

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "%s: the levels differ\n", what);
  std::abort();
}

std::vector<std::string> g_levels;

// Runs body(out) twice on copies of the same output: on some level and threads, then on the scalar level with one.
template <class T, class Body>
void both(Random &r, const char *what, const Block<T> &initial, const Body &body) {
  std::vector<char> results[2];
  const std::string &level = g_levels[static_cast<std::size_t>(r.below(static_cast<i64>(g_levels.size())))];
  const int threads = r.one_in(64) ? 2 : 1;
  for (int second = 0; second < 2; ++second) {
    set_cpu_level(second ? "scalar" : level);
    set_num_threads(second ? 1 : threads);
    std::unique_ptr<char[]> copy(new char[initial.skip + initial.bytes()]);
    char *at = copy.get() + initial.skip;
    if (initial.bytes()) std::memcpy(at, initial.memory.get() + initial.skip, initial.bytes());
    body(at);
    results[second].assign(at, at + initial.bytes());
  }
  if constexpr (std::is_same_v<T, float>) {  // which NaN it is does not count
    for (std::size_t i = 0; i < results[0].size(); i += 4) {
      float a, b;
      std::memcpy(&a, results[0].data() + i, 4);
      std::memcpy(&b, results[1].data() + i, 4);
      if (std::memcmp(&a, &b, 4) != 0 && !(std::isnan(a) && std::isnan(b))) fail(what);
    }
  } else if (results[0] != results[1]) {
    fail(what);
  }
}

i64 a_size(Random &r, i64 most) {
  switch (r.below(8)) {
    case 0: return r.below(4);
    case 1: return most - r.below(most / 8 + 1);
    case 2: return i64{1} << r.below(std::bit_width(static_cast<u64>(most)));
    default: return r.below(most / 4 + 1);
  }
}

void fuzz_eden(Random &r) {
  Units units;
  units.bits = 1 + static_cast<int>(r.below(8));
  if (r.one_in(3)) {
    units.bits -= 1;
    units.fraction = static_cast<double>(1 + r.below(1023)) / 1024;
  }
  const i64 pieces = r.one_in(3) ? 1 + r.below(70) : 1;
  units.by_rows = r.one_in(2);
  units.full = r.one_in(8);
  units.key = r.next();
  if (units.by_rows) {
    units.unit = 1 + a_size(r, 600);
    units.d = units.unit * r.below(5);
  } else {
    units.d = a_size(r, r.one_in(16) ? 9000 : 1200);
    units.unit = units.full && r.one_in(2) ? std::max<i64>(units.d, 1) : i64{32} << r.below(8);
    units.start = r.one_in(4) ? UINT64_MAX - 4 * static_cast<u64>(units.d) - 64 - r.next() % 999 : r.next() >> r.below(64);
  }
  units.unit = units.d == 0 ? 1 : std::min(units.unit, units.d);
  Block<u8> codes(r, units.code_bytes()), rounds(r, units.count()), present(r, units.count() * pieces);
  for (i64 u = 0; u < units.count(); ++u) rounds.as<u8>()[u] %= kMaxRounds + 1;
  for (i64 i = 0; i < units.count() * pieces; ++i) present.as<u8>()[i] &= 1;
  Block<float> scales = floats(r, units.count()), out = floats(r, units.d);
  float levels[512];
  for (i64 i = 0; i < units.levels(); ++i) levels[i] = hostile(r);
  const bool add = r.one_in(2);
  const u8 *some = r.one_in(2) ? present.as<u8>() : nullptr;
  const double weight = hostile_double(r);
  if (r.one_in(2)) {
    both(r, "eden_decode", out, [&](char *to) {
      eden_decode(units, levels, codes.as<u8>(), scales.as<f32u>(), rounds.as<u8>(), weight, add, some,
                  reinterpret_cast<f32u *>(to), pieces);
    });
    return;
  }
  std::vector<EdenMessage> messages;
  for (i64 i = r.below(4); i >= 0; --i)
    messages.push_back({codes.as<u8>(), scales.as<f32u>(), rounds.as<u8>(), r.one_in(2) ? units.key : r.next(),
                        units.start + 4 * static_cast<u64>(r.below(9)), hostile_double(r)});
  both(r, "eden_add", out, [&](char *to) {
    eden_add(units, levels, messages.data(), static_cast<i64>(messages.size()), reinterpret_cast<f32u *>(to));
  });
}

void fuzz_quicfl(Random &r) {
  Units units;
  units.bits = 1 + static_cast<int>(r.below(4));
  units.by_rows = r.one_in(2);
  units.key = r.next();
  units.unit = units.by_rows ? 1 + a_size(r, 600) : i64{32} << r.below(9);
  units.d = units.by_rows ? units.unit * r.below(5) : a_size(r, r.one_in(16) ? 9000 : 1200);
  units.start = units.by_rows ? r.next() : UINT64_MAX - 4 * static_cast<u64>(units.d) - 64 - (r.next() >> r.below(64)) / 2;
  units.unit = units.d == 0 ? 1 : std::min(units.unit, units.d);
  const int shared = static_cast<int>(r.below(Zones::most_shared(units.bits) + 1));
  Block<u8> codes(r, units.code_bytes()), present(r, units.count());
  Block<u32> counts(r, units.count(), 0);
  std::vector<u32> listed;
  u32u *to_counts = counts.as<u32u>();
  for (i64 u = 0; u < units.count(); ++u) {
    const i64 count = r.one_in(2) ? r.below(2 * units.padded(u)) : r.below(3);
    to_counts[u] = static_cast<u32>(count);
    for (i64 i = 0; i < count; ++i) listed.push_back(static_cast<u32>(r.below(units.padded(u))));
  }
  Block<u32> positions(r, static_cast<i64>(listed.size()), 0);
  if (!listed.empty()) std::memcpy(positions.as<char>(), listed.data(), positions.bytes());
  Block<float> values = floats(r, positions.count), scales = floats(r, units.count()), out = floats(r, units.d);
  Block<float> levels = floats(r, i64{1} << (units.bits + shared));
  const auto message = [&] {
    return QuicflMessage{codes.as<u8>(),        scales.as<f32u>(), counts.as<u32u>(), positions.as<u32u>(),
                         values.as<f32u>(), r.next(),          hostile_double(r)};
  };
  const bool add = r.one_in(2);
  const u8 *some = r.one_in(2) ? present.as<u8>() : nullptr;
  std::vector<QuicflMessage> messages;
  for (i64 i = r.below(4); i >= 0; --i) messages.push_back(message());
  if (r.one_in(2)) {
    both(r, "quicfl_decode", out, [&](char *to) {
      quicfl_decode(units, shared, levels.as<f32u>(), messages[0], add, some, reinterpret_cast<f32u *>(to));
    });
    return;
  }
  both(r, "quicfl_add", out, [&](char *to) {
    quicfl_add(units, shared, levels.as<f32u>(), messages.data(), static_cast<i64>(messages.size()),
               reinterpret_cast<f32u *>(to));
  });
}

void fuzz_sq(Random &r) {
  const i64 d = a_size(r, 3000), unit = 1 + a_size(r, 4096);
  const int bits = 1 + static_cast<int>(r.below(8)), width = 1 + static_cast<int>(r.below(32));
  Block<u8> codes(r, stream_bytes(d, unit, width));
  Block<u32> counts(r, d == 0 ? 0 : (d - 1) / unit + 1);
  Block<float> out = floats(r, d);
  const double low = hostile_double(r), high = hostile_double(r), weight = hostile_double(r);
  const bool add = r.one_in(2);
  both(r, "sq_decode", out, [&](char *to) {
    sq_decode(codes.as<u8>(), d, unit, low, high, bits, width, counts.as<u32u>(), weight, add,
              reinterpret_cast<f32u *>(to));
  });
}

void fuzz_dither(Random &r) {
  const bool by_rows = r.one_in(2), add = r.one_in(2);
  const i64 unit = 1 + a_size(r, 4096), d = by_rows ? unit * r.below(4) : a_size(r, 3000);
  const int bits = 1 + static_cast<int>(r.below(8));
  const u64 key = r.next(), start = r.one_in(4) ? UINT64_MAX - static_cast<u64>(d) : r.next() >> 8;
  Block<u8> codes(r, stream_bytes(d, unit, bits)), present(r, d == 0 ? 0 : (d - 1) / unit + 1);
  Block<float> out = floats(r, d);
  const double low = hostile_double(r), high = hostile_double(r), weight = hostile_double(r);
  const u8 *some = r.one_in(2) ? present.as<u8>() : nullptr;
  both(r, "dither_decode", out, [&](char *to) {
    dither_decode(codes.as<u8>(), d, unit, low, high, bits, key, start, by_rows, weight, add, some,
                  reinterpret_cast<f32u *>(to));
  });
}

void fuzz_unrotate(Random &r) {
  Units units;
  units.by_rows = r.one_in(2);
  units.full = r.one_in(8);
  units.key = r.next();
  units.unit = 1 + a_size(r, 600);
  units.d = units.by_rows ? units.unit * r.below(5) : a_size(r, 1200);
  units.start = r.one_in(4) ? UINT64_MAX - 4 * static_cast<u64>(units.d) - 64 : r.next() >> 8;
  units.unit = units.d == 0 ? 1 : std::min(units.unit, units.d);
  const int rotations = 1 + static_cast<int>(r.below(kMaxRounds));
  Block<u8> present(r, units.count());
  Block<float> y = floats(r, rotated_size(units)), out = floats(r, units.d);
  const double weight = hostile_double(r);
  const bool add = r.one_in(2);
  const u8 *some = r.one_in(2) ? present.as<u8>() : nullptr;
  both(r, "unrotate_units", out, [&](char *to) {
    unrotate_units(units, rotations, y.as<f32u>(), weight, add, some, reinterpret_cast<f32u *>(to));
  });
}

void fuzz_sq_add(Random &r) {
  const i64 d = a_size(r, 3000), unit = 1 + a_size(r, 4096);
  const int a_width = 1 + static_cast<int>(r.below(32)), b_width = 1 + static_cast<int>(r.below(32));
  const int width = 1 + static_cast<int>(r.below(32));
  Block<u8> a(r, stream_bytes(d, unit, a_width)), b(r, stream_bytes(d, unit, b_width));
  Block<u8> out(r, stream_bytes(d, unit, width));
  both(r, "sq_add", out, [&](char *to) {
    sq_add(a.as<u8>(), a_width, b.as<u8>(), b_width, d, unit, reinterpret_cast<u8 *>(to), width);
  });
}

void fuzz_int8(Random &r) {
  const i64 row = 1 + a_size(r, 900), block = 1 + a_size(r, 600), d = row * r.below(4);
  Block<std::int8_t> codes(r, d);
  Block<float> scales = floats(r, d / row * ((row - 1) / block + 1)), out = floats(r, d);
  const double weight = hostile_double(r);
  const bool add = r.one_in(2);
  both(r, "int8_decode", out, [&](char *to) {
    int8_decode(codes.as<std::int8_t>(), scales.as<f32u>(), d, row, block, weight, add, reinterpret_cast<f32u *>(to));
  });
}

void fuzz_int4(Random &r) {
  const i64 row = 1 + a_size(r, 900), block = 8 + 8 * a_size(r, 100), d = row * r.below(4);
  const int kind = static_cast<int>(r.below(3));
  Block<u8> codes(r, stream_bytes(d, row, 4)), scales(r, d / row * ((row - 1) / block + 1) * (kind == 0 ? 4 : 2));
  Block<float> out = floats(r, d);
  const double weight = hostile_double(r);
  const bool add = r.one_in(2);
  both(r, "int4_decode", out, [&](char *to) {
    int4_decode(codes.as<u8>(), scales.as<u8>(), {d, row, block}, kind, weight, add, reinterpret_cast<f32u *>(to));
  });
}

void fuzz_mx(Random &r) {
  const i64 row = 1 + a_size(r, 900), d = row * r.below(4);
  const int element = static_cast<int>(r.below(kElements));
  Block<u8> codes(r, stream_bytes(d, row, mx_bits(element))), scales(r, d / row * ((row - 1) / kMxBlock + 1));
  Block<float> out = floats(r, d);
  const double weight = hostile_double(r);
  const bool add = r.one_in(2);
  both(r, "mx_decode", out, [&](char *to) {
    mx_decode(codes.as<u8>(), scales.as<u8>(), {d, row, kMxBlock}, element, weight, add, reinterpret_cast<f32u *>(to));
  });
}

void fuzz_half(Random &r) {
  const i64 d = a_size(r, 3000);
  Block<std::uint16_t> codes(r, d);
  Block<float> out = floats(r, d);
  const bool bfloat = r.one_in(2), add = r.one_in(2);
  const float factor = hostile(r);
  both(r, "half_decode", out, [&](char *to) {
    half_decode(codes.as<u16u>(), d, bfloat, factor, add, reinterpret_cast<f32u *>(to));
  });
}

template <class T>
void fuzz_unpack(Random &r) {
  typedef T Loose __attribute__((aligned(1), may_alias));
  const i64 rows = r.below(4), n = a_size(r, 1000);
  const int bits = 1 + static_cast<int>(r.below(8 * static_cast<int>(sizeof(T))));
  Block<u8> packed(r, rows * packed_bytes(n, bits));
  Block<T> out(r, rows * n);
  both(r, "unpack", out, [&](char *to) {
    unpack_rows(packed.as<u8>(), rows, n, bits, reinterpret_cast<Loose *>(to));
  });
}

// Any records, and any values to add to them.
void fuzz_dynamiq(Random &r) {
  const i64 d = r.one_in(4) ? a_size(r, 20000) : a_size(r, 2000), count = (d + kSuperGroup - 1) / kSuperGroup;
  Block<u8> widths(r, count);
  for (i64 j = 0; j < count; ++j) widths.as<u8>()[j] = static_cast<u8>(2 << r.below(3));
  const i64 bytes = record_offsets(widths.as<u8>(), count).back();
  Block<u8> data(r, bytes), made(r, bytes);
  Block<float> x = floats(r, d), means = floats(r, count), energies = floats(r, count), out = floats(r, d);
  const bool add = r.one_in(2), some = r.one_in(2), given = r.one_in(2);
  const double scale = hostile_double(r), times = hostile_double(r);
  const int size = 1 + static_cast<int>(r.below(r.one_in(4) ? 32767 : 64));
  const SuperDraws draws{r.next(), r.next(), static_cast<int>(r.below(size)), size};
  const u64 first = r.next() >> 10;
  both(r, "dynamiq_decode", out, [&](char *to) {
    dynamiq_decode(data.as<u8>(), widths.as<u8>(), some ? means.as<f32u>() : nullptr, times, scale, add, d,
                   reinterpret_cast<f32u *>(to));
  });
  both(r, "dynamiq_hop", made, [&](char *to) {
    dynamiq_hop(x.as<f32u>(), d, scale, some ? means.as<f32u>() : nullptr, widths.as<u8>(),
                given ? data.as<u8>() : nullptr, draws, first, reinterpret_cast<u8 *>(to));
  });
  both(r, "dynamiq_stats", energies, [&](char *to) {
    dynamiq_stats(x.as<f32u>(), d, scale, means.as<f32u>(), reinterpret_cast<f32u *>(to));
  });
}

// Any codes, ranges and counts; sums of any widths; then the encoder on any values.
void fuzz_thc(Random &r) {
  Units units;
  units.unit = 1 + (r.one_in(4) ? a_size(r, 12000) : a_size(r, 400));
  units.by_rows = r.one_in(3);
  units.d = units.by_rows ? units.unit * r.below(8) : a_size(r, 9000);
  units.unit = units.d == 0 ? 1 : std::min(units.unit, units.d);
  units.key = r.next();
  units.start = r.next() >> 2;
  const i64 count = units.count(), size = rotated_size(units);
  const i64 length = count == 0 ? 1 : units.padded(0);
  const int bits = 1 + static_cast<int>(r.below(8)), width = 1 + static_cast<int>(r.below(32));
  const int rotations = 1 + static_cast<int>(r.below(3));
  Block<std::uint16_t> table(r, i64{1} << bits);
  u16u *entries = table.as<u16u>();  // a template argument loses the alignment of 1
  for (i64 z = 1, value = 0; z < i64{1} << bits; ++z) entries[z] = static_cast<std::uint16_t>(value += 1 + r.below(3));
  entries[0] = 0;
  const ThcGrid grid{entries, hostile_double(r), bits};
  Block<float> rms = floats(r, count), x = floats(r, units.d), out = floats(r, units.d), sizes = floats(r, count);
  Block<u32> counts(r, count);
  Block<u8> codes(r, stream_bytes(size, length, width)), single(r, stream_bytes(size, length, bits));
  Block<u8> sums(r, stream_bytes(size, length, width));
  const bool add = r.one_in(2), clamp = r.one_in(2);
  const double weight = hostile_double(r);
  const i64 shift = r.one_in(2) ? 0 : static_cast<i64>(r.next() >> 40) - 1000;
  const u64 key = r.next(), first = r.next() >> 2;
  both(r, "thc_decode", out, [&](char *to) {
    thc_decode(units, rotations, grid, codes.as<u8>(), width, shift, rms.as<f32u>(), counts.as<u32u>(), weight, add,
               reinterpret_cast<f32u *>(to));
  });
  const ThcMessage messages[2] = {{codes.as<u8>(), width}, {single.as<u8>(), bits}};
  both(r, "thc_add", sums, [&](char *to) {
    thc_add(messages, 2, size, length, grid, shift, clamp, reinterpret_cast<u8 *>(to), width);
  });
  both(r, "unit_rms", sizes, [&](char *to) { unit_rms(units, x.as<f32u>(), reinterpret_cast<f32u *>(to)); });
  both(r, "thc_encode", single, [&](char *to) {
    thc_encode(units, rotations, grid, x.as<f32u>(), rms.as<f32u>(), key, first, reinterpret_cast<u8 *>(to));
  });
}

// Any codes and levels; then those of an encoder that gets any values, and levels in any order.
void fuzz_levels(Random &r) {
  const int bits = 1 + static_cast<int>(r.below(8));
  const i64 unit = 1 + (r.one_in(4) ? a_size(r, 12000) : a_size(r, 400)), d = r.one_in(4) ? unit : a_size(r, 9000);
  const i64 units = d == 0 ? 0 : (d - 1) / unit + 1;
  Block<float> levels = floats(r, units << bits), x = floats(r, d), out = floats(r, d);
  Block<u8> codes(r, stream_bytes(d, unit, bits)), present(r, units);
  const bool add = r.one_in(2), some = r.one_in(3), stochastic = r.one_in(2);
  const double weight = hostile_double(r);
  const u64 key = r.next(), first = r.next() >> 1;
  both(r, "levels_decode", out, [&](char *to) {
    levels_decode(codes.as<u8>(), d, unit, levels.as<f32u>(), bits, weight, add, some ? present.as<u8>() : nullptr,
                  reinterpret_cast<f32u *>(to));
  });
  both(r, "levels_encode", codes, [&](char *to) {
    levels_encode(x.as<f32u>(), d, unit, levels.as<f32u>(), bits, key, first, stochastic, reinterpret_cast<u8 *>(to));
  });
}

// As fuzz_levels, with shared randomness; and the search, from points and levels of any order.
void fuzz_shared(Random &r) {
  const int bits = 1 + static_cast<int>(r.below(8)), shared = 2 + static_cast<int>(r.below(7));
  const bool by_rows = r.one_in(2), add = r.one_in(2), some = r.one_in(3);
  const i64 unit = 1 + (r.one_in(4) ? a_size(r, 12000) : a_size(r, 400));
  const i64 d = r.one_in(4) ? unit : by_rows ? unit * r.below(9) : a_size(r, 9000);
  const i64 units = d == 0 ? 0 : (d - 1) / unit + 1;
  Block<float> levels = floats(r, (units * shared) << bits), x = floats(r, d), out = floats(r, d);
  Block<u8> codes(r, stream_bytes(d, unit, bits)), present(r, units);
  const SharedDraws draws{r.next(), r.next(), shared, static_cast<int>(r.below(shared)), by_rows};
  const double weight = hostile_double(r);
  const u64 start = r.next() >> 1, first = r.next() >> 1;
  both(r, "shared_decode", out, [&](char *to) {
    shared_decode(draws, codes.as<u8>(), d, unit, levels.as<f32u>(), bits, start, weight, add,
                  some ? present.as<u8>() : nullptr, reinterpret_cast<f32u *>(to));
  });
  both(r, "shared_encode", codes, [&](char *to) {
    shared_encode(draws, x.as<f32u>(), d, unit, levels.as<f32u>(), bits, start, first, reinterpret_cast<u8 *>(to));
  });
  const i64 size = 1 + a_size(r, 60), count = 2 * shared + r.below(9);
  std::vector<double> points(static_cast<std::size_t>(3 * size)), v(static_cast<std::size_t>(3 * count));
  for (double &value : points) value = hostile_double(r);
  for (double &value : v) value = hostile_double(r);
  shared_search(points.data(), nullptr, 3, size, v.data(), count, shared, 3);
}

// What the coder made, then some bytes changed or cut, or bytes of no meaning. The output of refused bytes does not count.
void fuzz_rans(Random &r) {
  const int bits = kRansMinBits + static_cast<int>(r.below(kRansMaxBits));
  const int s = 1 + static_cast<int>(r.below(std::min(256, 1 << bits)));
  u32 freqs[256] = {};
  i64 left = i64{1} << bits;
  for (int i = 0; i < s; ++i) {
    freqs[i] = static_cast<u32>(i == s - 1 ? left : r.one_in(3) ? r.below(2) % (left + 1) : r.below(left / 2 + 1));
    left -= freqs[i];
  }
  const i64 n = r.one_in(64) ? 65536 + a_size(r, 70000) : a_size(r, 9000);
  Block<u8> symbols(r, n), room(r, rans_room(n));
  for (i64 i = 0; i < n; ++i) {
    u8 &symbol = symbols.as<u8>()[i];
    symbol %= s;
    while (freqs[symbol] == 0) symbol = static_cast<u8>((symbol + 1) % s);
  }
  set_cpu_level(g_levels[static_cast<std::size_t>(r.below(static_cast<i64>(g_levels.size())))]);
  i64 size = rans_encode(symbols.as<u8>(), n, freqs, s, bits, room.as<u8>());
  if (size < 0) fail("rans_encode");
  const bool whole = r.one_in(3);
  if (!whole && r.one_in(2)) size = r.below(size + 1);
  Block<u8> data(r, size);  // of exactly this size
  const bool noise = !whole && r.one_in(4);
  if (!noise && size) std::memcpy(data.as<u8>(), room.as<u8>(), static_cast<std::size_t>(size));
  const u32 only = static_cast<u32>(size - 4);  // a directory that fits one chunk
  if (noise && size >= 4) std::memcpy(data.as<u8>(), &only, 4);
  if (!whole && size)
    for (i64 k = r.below(4); k > 0; --k) data.as<u8>()[r.below(size)] ^= static_cast<u8>(1 << r.below(8));
  both(r, "rans_decode", symbols, [&](char *to) {
    if (n) std::memset(to, 0xee, static_cast<std::size_t>(n));
    const int status = rans_decode(data.as<u8>(), size, freqs, s, bits, reinterpret_cast<u8 *>(to), n);
    if (whole && (status != 0 || std::memcmp(to, symbols.as<u8>(), static_cast<std::size_t>(n)) != 0))
      fail("rans_decode");
    if (status != 0 && n) std::memset(to, status, static_cast<std::size_t>(n));
  });
}

}  // namespace

int main(int argc, char **argv) {
  const long long count = argc > 1 ? std::atoll(argv[1]) : 10000;
  const u64 seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
  std::istringstream names(cpu_levels());
  for (std::string name; names >> name;) g_levels.push_back(name);
  const auto begun = std::chrono::steady_clock::now();
  for (long long i = 0; i < count; ++i) {
    Random r{seed * 0x2545f4914f6cdd1d + static_cast<u64>(i)};  // any one input again: its i, here
    switch (r.below(20)) {
      case 0: fuzz_sq(r); break;
      case 1: fuzz_sq_add(r); break;
      case 2: fuzz_int8(r); break;
      case 3: fuzz_half(r); break;
      case 4: fuzz_unpack<u8>(r); break;
      case 5: fuzz_unpack<std::uint16_t>(r); break;
      case 6: fuzz_unpack<u32>(r); break;
      case 7: fuzz_int4(r); break;
      case 8: fuzz_mx(r); break;
      case 9: fuzz_rans(r); break;
      case 10:
      case 11: fuzz_quicfl(r); break;
      case 12: fuzz_dither(r); break;
      case 13: fuzz_unrotate(r); break;
      case 14: fuzz_levels(r); break;
      case 15: fuzz_shared(r); break;
      case 16: fuzz_thc(r); break;
      case 17: fuzz_dynamiq(r); break;
      default: fuzz_eden(r);
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("decoders: %lld executions clean in %.0f s (seed %llu)\n", count, took.count(),
              static_cast<unsigned long long>(seed));
}
