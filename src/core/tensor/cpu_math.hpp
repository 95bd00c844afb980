#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

// Elementary functions that the compiler can vectorise.  Included by cpu_kernels.cpp only, inside
// the namespace of one instruction set.  tests/core/kernels_test.cpp measures them against libm.

/// e^x, relative error below 2 ulp; 0 below 2^-125 (float), e^-708 (double).
inline float exp_(float x) {
    const float c = x < -86.64F ? -86.64F : (x > 88.72F ? 88.72F : x);
    const float t = c * 1.44269504F + 0x1.8p23F;
    const float n = t - 0x1.8p23F;
    const float r = (c - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.9875691500E-4F;
    p = p * r + 1.3981999507E-3F;
    p = p * r + 8.3334519073E-3F;
    p = p * r + 4.1665795894E-2F;
    p = p * r + 1.6666665459E-1F;
    p = p * r + 5.0000001201E-1F;
    p = p * r * r + r + 1.0F;
    // Two factors: 2^128 alone would overflow.
    const auto half =
        std::bit_cast<float>(((std::bit_cast<std::uint32_t>(t) - 1U) << 23) + 0x3F800000U);
    const float y = p * half * 2.0F;
    return x < -86.64F ? 0.0F : y;
}

inline double exp_(double x) {
    const double c = x < -708.0 ? -708.0 : (x > 709.7 ? 709.7 : x);
    const double t = c * 1.4426950408889634074 + 0x1.8p52;
    const double n = t - 0x1.8p52;
    const double r = (c - n * 6.93145751953125E-1) - n * 1.42860682030941723212E-6;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    const auto half =
        std::bit_cast<double>(((std::bit_cast<std::uint64_t>(t) - 1U) << 52) + 0x3FF0000000000000U);
    const double y = p * half * 2.0;
    return x < -708.0 ? 0.0 : y;
}

/// log x of a positive normal number: x = 2^e m with m near 1, log m = 2 atanh((m-1)/(m+1)).
inline float log_(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x) - 0x3F3504F3U;
    const float e = float(std::int32_t(bits) >> 23);
    const auto m = std::bit_cast<float>((bits & 0x007FFFFFU) + 0x3F3504F3U);
    const float s = (m - 1.0F) / (m + 1.0F);
    const float q = s * s;
    const float series = 1.0F + q * (1.0F / 3 + q * (1.0F / 5 + q * (1.0F / 7 + q * (1.0F / 9))));
    return e * 0.693359375F + (2.0F * s * series - e * 2.12194440e-4F);
}

inline double log_(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x) - 0x3FE6A09E667F3BCDU;
    const auto e = double(std::int32_t(std::int64_t(bits) >> 52));
    const auto m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFU) + 0x3FE6A09E667F3BCDU);
    const double s = (m - 1.0) / (m + 1.0);
    const double q = s * s;
    double series = 1.0 / 23;
    series = series * q + 1.0 / 21;
    series = series * q + 1.0 / 19;
    series = series * q + 1.0 / 17;
    series = series * q + 1.0 / 15;
    series = series * q + 1.0 / 13;
    series = series * q + 1.0 / 11;
    series = series * q + 1.0 / 9;
    series = series * q + 1.0 / 7;
    series = series * q + 1.0 / 5;
    series = series * q + 1.0 / 3;
    series = series * q + 1.0;
    return e * 6.93145751953125E-1 + (2.0 * s * series + e * 1.42860682030941723212E-6);
}

/// erf x.  float: the rational minimax x P(x^2)/Q(x^2) on [-4, 4] that Eigen and TensorFlow use.
inline float erf_(float x) {
    const float c = x < -4.0F ? -4.0F : (x > 4.0F ? 4.0F : x);
    const float q = c * c;
    float p = -2.72614225801306e-10F;
    p = p * q + 2.77068142495902e-08F;
    p = p * q - 2.10102402082508e-06F;
    p = p * q - 5.69250639462346e-05F;
    p = p * q - 7.34990630326855e-04F;
    p = p * q - 2.95459980854025e-03F;
    p = p * q - 1.60960333262415e-02F;
    float d = -1.45660718464996e-05F;
    d = d * q - 2.13374055278905e-04F;
    d = d * q - 1.68282697438203e-03F;
    d = d * q - 7.37332916720468e-03F;
    d = d * q - 1.42647390514189e-02F;
    return c * p / d;
}
inline double erf_(double x) { return std::erf(x); }

// Functions of the formulas without a vectorised version.
using std::cos, std::expm1, std::log, std::sin, std::sqrt, std::tanh;

/// sin and cos of 2 pi u, u in [0, 1].
inline void sincos_turn(double u, double& sine, double& cosine) {
    const double t = 4.0 * u + 0x1.8p52;
    const double n = t - 0x1.8p52;
    const auto quadrant = std::bit_cast<std::uint64_t>(t) & 3U;
    const double x = (4.0 * u - n) * 1.57079632679489661923;
    const double q = x * x;
    double s = -1.0 / 1307674368000.0;
    s = s * q + 1.0 / 6227020800.0;
    s = s * q - 1.0 / 39916800.0;
    s = s * q + 1.0 / 362880.0;
    s = s * q - 1.0 / 5040.0;
    s = s * q + 1.0 / 120.0;
    s = s * q - 1.0 / 6.0;
    s = s * q * x + x;
    double c = 1.0 / 20922789888000.0;
    c = c * q - 1.0 / 87178291200.0;
    c = c * q + 1.0 / 479001600.0;
    c = c * q - 1.0 / 3628800.0;
    c = c * q + 1.0 / 40320.0;
    c = c * q - 1.0 / 720.0;
    c = c * q + 1.0 / 24.0;
    c = c * q - 0.5;
    c = c * q + 1.0;
    const double a = (quadrant & 1U) != 0 ? c : s;
    const double b = (quadrant & 1U) != 0 ? s : c;
    sine = (quadrant & 2U) != 0 ? -a : a;
    cosine = quadrant == 1U || quadrant == 2U ? -b : b;
}
