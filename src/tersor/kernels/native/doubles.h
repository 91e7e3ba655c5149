// One native vector of kDoubles doubles: half as many lanes as floats.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

constexpr double kInfinite = __builtin_inf();
constexpr int kDoubles = kLanes / 2;
typedef double D __attribute__((vector_size(kLanes * 4)));
typedef double DU __attribute__((vector_size(kLanes * 4), aligned(1), may_alias));
typedef std::int64_t N __attribute__((vector_size(kLanes * 4)));

TERSOR_INLINE D load_doubles(const f64u *p) { return *reinterpret_cast<const DU *>(p); }
TERSOR_INLINE D all_doubles(double v) { return v - D{}; }

}  // namespace
}  // namespace tersor
