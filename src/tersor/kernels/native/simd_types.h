// Scalars in memory that NumPy hands over: any alignment, and free to alias.
#pragma once

#include "lengths.h"

namespace tersor {

typedef float f32u __attribute__((aligned(1), may_alias));
typedef std::uint16_t u16u __attribute__((aligned(1), may_alias));
typedef u32 u32u __attribute__((aligned(1), may_alias));
typedef u64 u64u __attribute__((aligned(1), may_alias));
typedef double f64u __attribute__((aligned(1), may_alias));

}  // namespace tersor
