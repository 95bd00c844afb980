#pragma once
#include <cstring>

#include "tsdiag/tensor.hpp"

// Four columns at a time, in vector types that every supported compiler lowers to the available
// instructions. With FMA and AVX a product reads float32 at L2-cache speed; wider vectors gain
// nothing.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__)
#define TSDIAG_CLONES __attribute__((target_clones("fma", "default")))
#else
#define TSDIAG_CLONES
#endif
#define TSDIAG_INLINE inline __attribute__((always_inline))

namespace tsdiag::simd {

using Double4 = double __attribute__((vector_size(32)));
using Float4 = float __attribute__((vector_size(16)));

// Output by reference: returning a vector changes the ABI where its instructions are not enabled.
TSDIAG_INLINE void load(Double4& out, const double* p) { std::memcpy(&out, p, sizeof out); }
TSDIAG_INLINE void load(Double4& out, const float* p) {
    Float4 v;
    std::memcpy(&v, p, sizeof v);
    out = __builtin_convertvector(v, Double4);
}

}  // namespace tsdiag::simd
