// rANS over whole arrays: tables, the directory of chunks, and the chunks in parallel.
#include "rans.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "dispatch.h"
#include "pool.h"

namespace tersor {
namespace {

i64 chunks_of(i64 n) { return (n + kRansChunk - 1) / kRansChunk; }
i64 symbols_of(i64 n, i64 chunk) { return std::min(kRansChunk, n - chunk * kRansChunk); }
i64 room_of(i64 m) { return 4 * rans_lanes(m) + 2 * m; }  // a symbol sends at most one word

// With k = 32 + shift, m = ceil(2^k / f) has the excess e = m f - 2^k < f, and floor(x m / 2^k) is exact while x e < 2^k;
// with floor(2^k / f) and x + 1 for x, the deficit takes the place of e. States are below f 2^(32 - bits), so either will
// do for f <= 2^(bits - 1); above it the one whose e is at most f / 2.
void make_encode_table(RansEncodeTable &table, const u32 *freqs, int s, int bits) {
  table.bits = bits;
  table.symbols = s;
  u32 start = 0;
  for (int i = 0; i < s; ++i) {
    const u32 f = freqs[i];
    if (f == 0) continue;
    const u64 power = u64{1} << (32 + rans_shift(f)), down = power / f, rest = power % f;
    u64 reciprocal, inc = 0;
    if (f == 1) {
      reciprocal = UINT32_MAX;
      inc = 1;
    } else if (rest == 0 || f - rest <= f / 2) {
      reciprocal = down + (rest != 0);
    } else {
      reciprocal = down;
      inc = 1;
    }
    table.reciprocal[i] = static_cast<u32>(reciprocal);
    table.packed[i] = f | start << 16 | static_cast<u32>(inc) << 31;
    start += f;
  }
}

void make_decode_table(RansDecodeTable &table, const u32 *freqs, int s, int bits) {
  table.bits = bits;
  u32 start = 0;
  for (int i = 0; i < s; ++i) {
    const u32 f = freqs[i];
    table.packed[i] = f | start << 16;
    if (bits <= kRansNarrowBits) {
      for (u32 k = 0; k < f; ++k) table.entry[start + k] = static_cast<u32>(i) | (f - 1) << 8 | k << 20;
    } else {
      std::memset(table.symbol + start, i, f);
    }
    start += f;
  }
  std::memset(table.packed + s, 0, static_cast<std::size_t>(256 - s) * 4);
  if (bits > kRansNarrowBits) std::memset(table.symbol + start, 0, 4);
}

}  // namespace

i64 rans_room(i64 n) {
  const i64 chunks = chunks_of(n);
  return n == 0 ? 0 : 4 * chunks + (chunks - 1) * room_of(kRansChunk) + room_of(symbols_of(n, chunks - 1));
}

i64 rans_encode(const u8 *symbols, i64 n, const u32 *freqs, int s, int bits, u8 *out) {
  const i64 chunks = chunks_of(n);
  RansEncodeTable table;
  make_encode_table(table, freqs, s, bits);
  std::vector<i64> sizes(static_cast<std::size_t>(chunks));
  // Each chunk into a place of its own, from the back to the front; then together.
  parallel_for(chunks, [&](i64 c) {
    const i64 m = symbols_of(n, c);
    sizes[static_cast<std::size_t>(c)] = kernels().rans_encode(
        table, symbols + c * kRansChunk, m, out + 4 * chunks + c * room_of(kRansChunk) + room_of(m));
  });
  u8 *to = out + 4 * chunks;
  for (i64 c = 0; c < chunks; ++c) {
    const i64 size = sizes[static_cast<std::size_t>(c)];
    if (size < 0) return -1;
    reinterpret_cast<u32u *>(out)[c] = static_cast<u32>(size);
    std::memmove(to, out + 4 * chunks + c * room_of(kRansChunk) + room_of(symbols_of(n, c)) - size,
                 static_cast<std::size_t>(size));
    to += size;
  }
  return to - out;
}

int rans_decode(const u8 *data, i64 nbytes, const u32 *freqs, int s, int bits, u8 *out, i64 n) {
  const i64 chunks = chunks_of(n);
  if (nbytes < 4 * chunks) return 1;
  std::vector<i64> begins(static_cast<std::size_t>(chunks) + 1);
  i64 at = 4 * chunks;
  for (i64 c = 0; c < chunks; ++c) {
    const i64 size = reinterpret_cast<const u32u *>(data)[c];
    if (size < 4 * rans_lanes(symbols_of(n, c)) || size % 2 != 0 || size > nbytes - at) return 1;
    begins[static_cast<std::size_t>(c)] = at;
    at += size;
  }
  if (at != nbytes) return 1;
  begins[static_cast<std::size_t>(chunks)] = at;
  const std::unique_ptr<RansDecodeTable> table(new RansDecodeTable);
  make_decode_table(*table, freqs, s, bits);
  std::atomic<bool> good{true};
  parallel_for(chunks, [&](i64 c) {
    const i64 begin = begins[static_cast<std::size_t>(c)], end = begins[static_cast<std::size_t>(c) + 1];
    if (!kernels().rans_decode(*table, data + begin, end - begin, symbols_of(n, c), out + c * kRansChunk))
      good.store(false, std::memory_order_relaxed);
  });
  return good.load() ? 0 : 2;
}

void count_symbols(const u8 *symbols, i64 n, u64u *counts) {
  constexpr i64 kTask = i64{1} << 18;
  const i64 tasks = (n + kTask - 1) / kTask;
  std::vector<u32> parts(static_cast<std::size_t>(tasks) * 256);
  parallel_for(tasks, [&](i64 task) {
    // Four tables: equal neighbours do not wait for each other's stores.
    u32 table[4][256] = {};
    const u8 *at = symbols + task * kTask;
    const i64 m = std::min(kTask, n - task * kTask);
    i64 i = 0;
    for (; i + 8 <= m; i += 8) {
      u64 eight;
      std::memcpy(&eight, at + i, 8);
      for (int k = 0; k < 8; ++k) ++table[k % 4][eight >> (8 * k) & 255];
    }
    for (; i < m; ++i) ++table[0][at[i]];
    for (int v = 0; v < 256; ++v)
      parts[static_cast<std::size_t>(256 * task + v)] = table[0][v] + table[1][v] + table[2][v] + table[3][v];
  });
  for (int v = 0; v < 256; ++v) counts[v] = 0;
  for (i64 k = 0; k < 256 * tasks; ++k) counts[k % 256] += parts[static_cast<std::size_t>(k)];
}

}  // namespace tersor
