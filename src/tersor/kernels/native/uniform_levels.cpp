// Evenly spaced levels over whole arrays: indices in parallel, counts in a table a task.
#include "uniform_levels.h"

#include <algorithm>
#include <vector>

#include "dispatch.h"
#include "pool.h"
#include "rans.h"

namespace tersor {
namespace {

constexpr i64 kTask = i64{1} << 16, kTables = 16;

// Where the lower bytes of each upper byte begin.
void group_begins(const u8 *high, i64 n, i64 *begins) {
  u64 counts[256];
  count_symbols(high, n, reinterpret_cast<u64u *>(counts));
  i64 at = 0;
  for (int v = 0; v < 256; ++v) {
    begins[v] = at;
    at += static_cast<i64>(counts[v]);
  }
}

}  // namespace

void uniform_indices(const f32u *x, i64 n, double low, double scale, i64 levels, u16u *out) {
  const int top = static_cast<int>(levels - 1);
  parallel_for((n + kTask - 1) / kTask, [&](i64 task) {
    const i64 begin = task * kTask;
    kernels().uniform_index(x + begin, std::min(kTask, n - begin), low, scale, top, out + begin);
  });
}

void uniform_counts(const f32u *x, i64 n, double low, double scale, i64 levels, u64u *counts) {
  const int top = static_cast<int>(levels - 1);
  const i64 chunks = (n + kChunk - 1) / kChunk;
  // Few tables, as each may be large; sums of integers do not depend on how many.
  const i64 tasks = std::min(kTables, (n + kTask - 1) / kTask), share = tasks == 0 ? 0 : (chunks + tasks - 1) / tasks;
  std::vector<std::vector<u64>> parts(static_cast<std::size_t>(tasks));
  parallel_for(tasks, [&](i64 task) {
    const bool few = levels <= 1024;  // four tables: equal neighbours do not wait for each other's stores
    std::vector<u64> table(static_cast<std::size_t>(levels * (few ? 4 : 1)));
    u64 *t0 = table.data(), *t1 = few ? t0 + levels : t0, *t2 = few ? t1 + levels : t0, *t3 = few ? t2 + levels : t0;
    std::uint16_t indices[kChunk];
    for (i64 c = task * share; c < std::min(chunks, (task + 1) * share); ++c) {
      const i64 m = std::min(kChunk, n - c * kChunk);
      kernels().uniform_index(x + c * kChunk, m, low, scale, top, reinterpret_cast<u16u *>(indices));
      i64 i = 0;
      for (; i + 4 <= m; i += 4) {
        ++t0[indices[i]];
        ++t1[indices[i + 1]];
        ++t2[indices[i + 2]];
        ++t3[indices[i + 3]];
      }
      for (; i < m; ++i) ++t0[indices[i]];
    }
    for (i64 v = 0; few && v < levels; ++v) t0[v] += t1[v] + t2[v] + t3[v];
    parts[static_cast<std::size_t>(task)] = std::move(table);
  });
  for (i64 v = 0; v < levels; ++v) counts[v] = 0;
  for (const auto &part : parts)
    for (i64 v = 0; v < levels; ++v) counts[v] += part[static_cast<std::size_t>(v)];
}

void split_symbols(const u16u *symbols, i64 n, u8 *high, u8 *low) {
  for (i64 i = 0; i < n; ++i) high[i] = static_cast<u8>(symbols[i] >> 8);
  i64 next[256];
  group_begins(high, n, next);
  for (i64 i = 0; i < n; ++i) low[next[high[i]]++] = static_cast<u8>(symbols[i]);
}

void join_symbols(const u8 *high, const u8 *low, i64 n, u16u *symbols) {
  i64 next[256];
  group_begins(high, n, next);
  for (i64 i = 0; i < n; ++i)
    symbols[i] = static_cast<std::uint16_t>(high[i] << 8 | low[next[high[i]]++]);
}

}  // namespace tersor
