#pragma once
#include <cstring>

#include "tsdiag/tensor.hpp"

// Four columns at a time, in vectors that every compiler of this library lowers to what the
// processor has. With FMA and AVX a product reads float32 at the speed of the second-level cache;
// wider vectors gain nothing.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__)
#define TSDIAG_CLONES __attribute__((target_clones("fma", "default")))
#else
#define TSDIAG_CLONES
#endif
#define TSDIAG_INLINE inline __attribute__((always_inline))

namespace tsdiag::simd {

using Double4 = double __attribute__((vector_size(32)));
using Float4 = float __attribute__((vector_size(16)));

// Out by reference: returning a vector from a function that is not compiled for it has another ABI.
TSDIAG_INLINE void load(Double4& out, const double* p) { std::memcpy(&out, p, sizeof out); }
TSDIAG_INLINE void load(Double4& out, const float* p) {
    Float4 v;
    std::memcpy(&v, p, sizeof v);
    out = __builtin_convertvector(v, Double4);
}

}  // namespace tsdiag::simd
