// The SIMD level in force and how to force another.
#pragma once

#include <string>

#include "kernels.h"

namespace tersor {

const Kernels &kernels();                     // of the level in force
void set_cpu_level(const std::string &name);  // throws std::invalid_argument if unknown, or if this CPU lacks it
std::string cpu_levels();                     // what this build and this CPU have, slowest first

}  // namespace tersor
