// What all bindings share: array types, checks of sizes, and the state in which kernels run.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "dispatch.h"
#include "float_environment.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tersor {

template <class T, int Dimensions>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <class T>
using In = Array<const T, 1>;
template <class T>
using Out = Array<T, 1>;

inline void check(bool good, const char *message) {
  if (!good) throw std::invalid_argument(message);
}

template <class A>
i64 length(const A &array) {
  return static_cast<i64>(array.shape(0));
}

template <class T>
void check_length(const T &array, i64 expected, const char *name) {
  if (length(array) != expected)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(length(array)) + " elements, not " +
                                std::to_string(expected));
}

// While a kernel runs: no GIL, and IEEE defaults. A bad TERSOR_SIMD raises here, before any output is touched (at import
// it would be an ImportError, which reads as "not installed").
struct Running {
  const Kernels &level = kernels();
  nb::gil_scoped_release release;
  FloatEnvironment environment;
};

// Adds the operations of bindings_formats.cpp.
void bind_formats(nb::module_ &m);
// ... of bindings_rans.cpp.
void bind_rans(nb::module_ &m);

// Adds those of bindings_quicfl.cpp.
void bind_quicfl(nb::module_ &m);
// And those of bindings_rotated.cpp.
void bind_rotated(nb::module_ &m);
// And those of bindings_uniform_levels.cpp.
void bind_uniform_levels(nb::module_ &m);
// And those of bindings_levels.cpp.
void bind_levels(nb::module_ &m);
// And those of bindings_level_codes.cpp.
void bind_level_codes(nb::module_ &m);
// And those of bindings_entropy.cpp.
void bind_entropy(nb::module_ &m);
// And that of bindings_shared_levels.cpp.
void bind_shared_levels(nb::module_ &m);
// And those of bindings_dynamiq.cpp.
void bind_dynamiq(nb::module_ &m);
// And those of bindings_thc.cpp.
void bind_thc(nb::module_ &m);

}  // namespace tersor
