// The integer codecs over whole arrays: pieces of at most 4,096 coordinates, several of them a task.
#include "uniform.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dispatch.h"
#include "pieces.h"

namespace tersor {
namespace {

// Where a piece's codes start in a stream.
struct Stream {
  i64 stride;
  int bits;
  Stream(i64 d, i64 unit, int bits_) : stride(packed_bytes(std::min(unit, d), bits_)), bits(bits_) {}
  i64 at(i64 unit, i64 begin) const { return unit * stride + packed_bytes(begin, bits); }
};

}  // namespace

i64 stream_bytes(i64 d, i64 unit, int bits) {
  if (d == 0) return 0;
  unit = std::min(unit, d);
  return d / unit * packed_bytes(unit, bits) + packed_bytes(d % unit, bits);
}

void sq_encode(const f32u *x, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 first, u8 *codes) {
  const int top = (1 << bits) - 1;
  const double inverse = high > low ? top / (high - low) : 0.0;
  const Stream stream(d, unit, bits);
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    u8 chunk[kChunk];
    const i64 i = u * unit + begin;
    kernels().round(x + i, n, low, inverse, top, key, first + static_cast<u64>(i), chunk);
    kernels().pack(chunk, n, bits, codes + stream.at(u, begin));
  });
}

void sq_decode(const u8 *codes, i64 d, i64 unit, double low, double high, int bits, int width, const u32u *counts,
               double weight, bool add, f32u *out) {
  const double step = (high - low) / ((1 << bits) - 1);
  const Stream stream(d, unit, width);
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    f32u *to = out + u * unit + begin;
    if (counts[u] == 0) {
      for (i64 i = 0; i < n; ++i) to[i] = add ? to[i] + 0.0f : 0.0f;
      return;
    }
    u32 sums[kChunk];
    unpack_piece(codes + stream.at(u, begin), n, width, sums);
    kernels().mean(sums, n, counts[u], low, step, weight, add, to);
  });
}

void dither_encode(const f32u *x, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 start, bool by_rows,
                   u8 *codes) {
  const int top = (1 << bits) - 1;
  const double inverse = high > low ? top / (high - low) : 0.0;
  const Stream stream(d, unit, bits);
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    u8 chunk[kChunk];
    const i64 i = u * unit + begin;
    const u64 word = static_cast<u64>(begin) + (by_rows ? 0 : start + static_cast<u64>(u * unit));
    kernels().dither(x + i, n, low, inverse, top, key, word, chunk);
    kernels().pack(chunk, n, bits, codes + stream.at(u, begin));
  });
}

void dither_decode(const u8 *codes, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 start,
                   bool by_rows, double weight, bool add, const u8 *present, f32u *out) {
  const double step = (high - low) / ((1 << bits) - 1);
  const Stream stream(d, unit, bits);
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    f32u *to = out + u * unit + begin;
    if (present && !present[u]) {
      for (i64 i = 0; i < n; ++i) to[i] = add ? to[i] + 0.0f : 0.0f;
      return;
    }
    u8 chunk[kChunk];
    kernels().unpack(codes + stream.at(u, begin), n, bits, chunk);
    const u64 word = static_cast<u64>(begin) + (by_rows ? 0 : start + static_cast<u64>(u * unit));
    kernels().undither(chunk, n, low, step, key, word, weight, add, to);
  });
}

void sq_add(const u8 *a, int a_width, const u8 *b, int b_width, i64 d, i64 unit, u8 *out, int out_width) {
  const Stream from_a(d, unit, a_width), from_b(d, unit, b_width), to(d, unit, out_width);
  // What an aggregator does all day: a message of narrow codes into an accumulator of whole bytes.
  const bool accumulate = (out_width == 8 ? a_width <= 8 : a_width == out_width) && b_width <= 8 &&
                          (out_width == 8 || out_width == 16 || out_width == 32);
  each_piece(d, unit, [&](i64 u, i64 begin, i64 n) {
    if (accumulate) {
      u8 bytes[kChunk], narrow[kChunk];
      kernels().unpack(b + from_b.at(u, begin), n, b_width, bytes);
      const u8 *into = a + from_a.at(u, begin);
      if (a_width < 8) {
        kernels().unpack(into, n, a_width, narrow);
        into = narrow;
      }
      return kernels().add_bytes(into, bytes, n, out_width, out + to.at(u, begin));
    }
    u32 sum[kChunk], term[kChunk];
    unpack_piece(a + from_a.at(u, begin), n, a_width, sum);
    unpack_piece(b + from_b.at(u, begin), n, b_width, term);
    for (i64 i = 0; i < n; ++i) sum[i] += term[i];
    pack_piece(sum, n, out_width, out + to.at(u, begin));
  });
}

i64 int8_encode(const f32u *x, i64 d, i64 row, i64 block, std::int8_t *codes, f32u *scales) {
  if (d == 0) return -1;
  const i64 per_row = (row - 1) / block + 1, blocks = d / row * per_row;
  constexpr i64 kNone = std::numeric_limits<i64>::max();
  std::atomic<i64> first_bad{kNone};
  const i64 batch = std::max<i64>(1, 16 * kChunk / std::min(block, row));
  parallel_for((blocks + batch - 1) / batch, [&](i64 task) {
    const Kernels &k = kernels();
    for (i64 b = task * batch; b < std::min(blocks, (task + 1) * batch); ++b) {
      const i64 column = b % per_row * block, n = std::min(block, row - column), i = b / per_row * row + column;
      const u32 magnitude = k.max_magnitude(x + i, n);
      const float amax = std::bit_cast<float>(magnitude);
      if (magnitude == 0 || magnitude >= 0x7f800000) {
        std::memset(codes + i, 0, static_cast<std::size_t>(n));
        scales[b] = magnitude == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        if (magnitude == 0) continue;
        i64 bad = i;
        while (k.max_magnitude(x + bad, 1) < 0x7f800000) ++bad;
        i64 before = first_bad.load(std::memory_order_relaxed);
        while (bad < before && !first_bad.compare_exchange_weak(before, bad, std::memory_order_relaxed)) {
        }
        continue;
      }
      int exponent;
      std::frexp(static_cast<double>(amax), &exponent);
      const float s = static_cast<float>(std::ldexp(1.0, std::clamp(-exponent, -126, 127)));
      k.int8_round(x + i, n, s, 127.0f / (amax * s), codes + i);
      scales[b] = static_cast<float>(static_cast<double>(amax) / 127);
    }
  });
  return first_bad.load() == kNone ? -1 : first_bad.load();
}

void int8_decode(const std::int8_t *codes, const f32u *scales, i64 d, i64 row, i64 block, double weight, bool add,
                 f32u *out) {
  if (d == 0) return;
  const i64 per_row = (row - 1) / block + 1, blocks = d / row * per_row;
  const i64 batch = std::max<i64>(1, 16 * kChunk / std::min(block, row));
  parallel_for((blocks + batch - 1) / batch, [&](i64 task) {
    for (i64 b = task * batch; b < std::min(blocks, (task + 1) * batch); ++b) {
      const i64 column = b % per_row * block, n = std::min(block, row - column), i = b / per_row * row + column;
      const float factor = static_cast<float>(static_cast<double>(scales[b]) * weight);
      kernels().int8_expand(codes + i, n, factor, add, out + i);
    }
  });
}

// A template argument loses attributes such as u32u's: the elements are read and written as what they are, unaligned.
template <class T>
void pack_rows(const T *codes, i64 rows, i64 n, int bits, u8 *out) {
  typedef T Loose __attribute__((aligned(1), may_alias));
  const i64 stride = packed_bytes(n, bits);
  each_piece(rows * n, n, [&](i64 row, i64 begin, i64 count) {
    u8 *to = out + row * stride + packed_bytes(begin, bits);
    const Loose *from = codes + row * n + begin;
    if constexpr (sizeof(T) == 1) {
      kernels().pack(from, count, bits, to);
    } else {
      u32 wide[kChunk];
      for (i64 i = 0; i < count; ++i) wide[i] = from[i];
      pack_piece(wide, count, bits, to);
    }
  });
}

template <class T>
void unpack_rows(const u8 *packed, i64 rows, i64 n, int bits, T *out) {
  typedef T Loose __attribute__((aligned(1), may_alias));
  const i64 stride = packed_bytes(n, bits);
  each_piece(rows * n, n, [&](i64 row, i64 begin, i64 count) {
    const u8 *from = packed + row * stride + packed_bytes(begin, bits);
    Loose *to = out + row * n + begin;
    if constexpr (sizeof(T) == 1) {
      kernels().unpack(from, count, bits, to);
    } else {
      u32 wide[kChunk];
      unpack_piece(from, count, bits, wide);
      for (i64 i = 0; i < count; ++i) to[i] = static_cast<T>(wide[i]);
    }
  });
}

template void pack_rows(const u8 *, i64, i64, int, u8 *);
template void pack_rows(const u16u *, i64, i64, int, u8 *);
template void pack_rows(const u32u *, i64, i64, int, u8 *);
template void unpack_rows(const u8 *, i64, i64, int, u8 *);
template void unpack_rows(const u8 *, i64, i64, int, u16u *);
template void unpack_rows(const u8 *, i64, i64, int, u32u *);

}  // namespace tersor
