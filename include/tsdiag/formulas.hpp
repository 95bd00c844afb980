#pragma once
#include <cstdint>

/// Element-wise formulas of the kernels of every backend, each written once.
///
/// A formula is an expression in x (and y), of type T.  exp_ and erf_ are those of the backend, the
/// other functions those of <cmath> or CUDA.
// clang-format off
#define TSDIAG_UNARY_FORMULAS(X)                                                        \
    X(copy, x)                                                                          \
    X(negate, -x)                                                                       \
    X(relu, x > 0 ? x : T(0))                                                           \
    X(gelu, T(0.5) * x * (T(1) + erf_(x * T(0.70710678118654752440))))                  \
    /* 0.5 x (1 + tanh u) = x sigmoid(2u) */                                            \
    X(gelu_tanh, x / (T(1) + exp_(T(-2) *                                               \
                                  (T(0.79788456080286535588) *                          \
                                   (x + T(0.044715) * x * x * x)))))                    \
    X(gelu_quick, x / (T(1) + exp_(T(-1.702) * x)))                                     \
    X(silu, x / (T(1) + exp_(-x)))                                                      \
    X(tanh, tanh(x))                                                                    \
    X(sigmoid, T(1) / (T(1) + exp_(-x)))                                                \
    X(exp, exp_(x))                                                                     \
    X(elu, x > 0 ? x : expm1(x))                                                        \
    X(elu_plus_one, x > 0 ? x + T(1) : exp_(x))                                         \
    X(square, x * x)                                                                    \
    X(sqrt, sqrt(x))                                                                    \
    X(reciprocal, T(1) / x)                                                             \
    X(sine, sin(x))                                                                     \
    X(cosine, cos(x))                                                                   \
    X(log, log(x))                                                                      \
    X(step, x > 0 ? T(1) : T(0))                                                        \
    X(normal_cdf, T(0.5) * (T(1) + erf_(x * T(0.70710678118654752440))))

#define TSDIAG_BINARY_FORMULAS(X)                                                       \
    X(add, x + y)                                                                       \
    X(subtract, x - y)                                                                  \
    X(multiply, x * y)                                                                  \
    X(divide, x / y)                                                                    \
    X(maximum, x < y ? y : x)

/// The derivative of each unary formula at x, y being its value: of those in the second list only y
/// is given, of the others only x.
#define TSDIAG_SLOPES_BY_ARGUMENT(X)                                                    \
    X(copy, T(1))                                                                       \
    X(negate, T(-1))                                                                    \
    X(relu, x > 0 ? T(1) : T(0))                                                        \
    X(gelu, T(0.5) * (T(1) + erf_(x * T(0.70710678118654752440))) +                     \
                x * exp_(T(-0.5) * x * x) * T(0.39894228040143267794))                  \
    X(gelu_tanh, gated_slope_(x,                                                        \
                              T(1) / (T(1) + exp_(T(-2) * T(0.79788456080286535588) *   \
                                                  (x + T(0.044715) * x * x * x))),      \
                              T(2) * T(0.79788456080286535588) *                        \
                                  (T(1) + T(3) * T(0.044715) * x * x)))                 \
    X(gelu_quick, gated_slope_(x, T(1) / (T(1) + exp_(T(-1.702) * x)), T(1.702)))       \
    X(silu, gated_slope_(x, T(1) / (T(1) + exp_(-x)), T(1)))                            \
    X(elu, x > 0 ? T(1) : exp_(x))                                                      \
    X(elu_plus_one, x > 0 ? T(1) : exp_(x))                                             \
    X(square, T(2) * x)                                                                 \
    X(sine, cos(x))                                                                     \
    X(cosine, -sin(x))                                                                  \
    X(log, T(1) / x)                                                                    \
    X(step, T(0))                                                                       \
    X(normal_cdf, exp_(T(-0.5) * x * x) * T(0.39894228040143267794))
/* at sqrt 0 it is large instead of infinite, so that 0 times it is 0 */
#define TSDIAG_SLOPES_BY_VALUE(X)                                                       \
    X(tanh, T(1) - y * y)                                                               \
    X(sigmoid, y * (T(1) - y))                                                          \
    X(exp, y)                                                                           \
    X(sqrt, T(0.5) / (y < T(1e-30) ? T(1e-30) : y))                                     \
    X(reciprocal, -y * y)
// clang-format on

#ifdef __CUDACC__
#define TSDIAG_ANYWHERE __host__ __device__
#else
#define TSDIAG_ANYWHERE
#endif

namespace tsdiag {

/// Of x s(u), s the logistic function: s + x s (1 - s) u'.
template <class T>
TSDIAG_ANYWHERE inline T gated_slope_(T x, T s, T slope) {
    return s + x * s * (T(1) - s) * slope;
}

/// One block of Philox4x32-10 [Philox] in place.  Static: each instruction set has its own.
TSDIAG_ANYWHERE static inline void philox_block(std::uint32_t& c0, std::uint32_t& c1,
                                                std::uint32_t& c2, std::uint32_t& c3,
                                                std::uint32_t k0, std::uint32_t k1) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0,
                            p1 = std::uint64_t{0xCD9E8D57U} * c2;
        c0 = std::uint32_t(p1 >> 32) ^ c1 ^ k0;
        c1 = std::uint32_t(p1);
        c2 = std::uint32_t(p0 >> 32) ^ c3 ^ k1;
        c3 = std::uint32_t(p0);
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

}  // namespace tsdiag
