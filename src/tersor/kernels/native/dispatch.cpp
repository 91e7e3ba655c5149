// Chooses the SIMD level: the best this CPU has, or the one that TERSOR_SIMD names.
#include "dispatch.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace tersor {

extern const Kernels kernels_scalar;
#if defined(TERSOR_X86)
extern const Kernels kernels_avx2, kernels_avx512;
#endif

namespace {

struct Level {
  const Kernels *kernels;
  bool (*supported)();
};

// Slowest first. Each level is compiled for a whole x86-64 feature level, so all of its features are asked for.
const Level kLevels[] = {
    {&kernels_scalar, [] { return true; }},
#if defined(TERSOR_X86)
    {&kernels_avx2, [] { return __builtin_cpu_supports("x86-64-v3") != 0; }},
    {&kernels_avx512, [] { return __builtin_cpu_supports("x86-64-v4") != 0; }},
#endif
};

const Kernels *find(const std::string &wanted) {
  for (const Level &level : kLevels) {
    if (wanted != level.kernels->name) continue;
    if (!level.supported()) throw std::invalid_argument("this CPU has no " + wanted);
    return level.kernels;
  }
  throw std::invalid_argument("no SIMD level '" + wanted + "'; this CPU has " + cpu_levels());
}

const Kernels *choose() {
  if (const char *name = std::getenv("TERSOR_SIMD"); name && *name) return find(name);
  const Kernels *best = nullptr;
  for (const Level &level : kLevels)
    if (level.supported()) best = level.kernels;
  return best;
}

std::atomic<const Kernels *> g_kernels{nullptr};

}  // namespace

const Kernels &kernels() {
  const Kernels *k = g_kernels.load(std::memory_order_relaxed);
  if (!k) {
    k = choose();
    g_kernels.store(k, std::memory_order_relaxed);
  }
  return *k;
}

void set_cpu_level(const std::string &name) { g_kernels.store(find(name)); }

std::string cpu_levels() {
  std::string names;
  for (const Level &level : kLevels)
    if (level.supported()) names += (names.empty() ? "" : " ") + std::string(level.kernels->name);
  return names;
}

}  // namespace tersor
