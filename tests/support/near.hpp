#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "tsdiag/tensor.hpp"

/// Comparisons whose tolerance states its reason.
///
///     EXPECT_CLOSE(delta, 1.0, rounding(n));                       // two doubles
///     EXPECT_ALL_CLOSE(found, expected, rounding(n), Type::f32);   // two ranges of doubles
///     EXPECT_TENSOR_NEAR(y, expected, rounding(n));                // two tensors, or a tensor and
///     a range
namespace tsdiag::test {

/// |found - expected| <= (terms eps + relative) max|expected| + absolute.
struct Tolerance {
    double terms = 0, relative = 0, absolute = 0;
    const char* reason = "exactly";

    double allowed(double eps, double scale) const {
        return (terms * eps + relative) * scale + absolute;
    }
};

/// Bit for bit (0 and -0 are equal).
inline constexpr Tolerance exactly{};

/// Rounding of a sum of `terms` terms: terms * eps(type) * max|expected|.
inline Tolerance rounding(double terms) { return {.terms = terms, .reason = "rounding"}; }

/// f'(0) is the sum of weight f(at h) / h, to fourth order in h.
struct DifferenceTerm {
    double at, weight;
};
inline constexpr DifferenceTerm fourth_order[] = {
    {-2, 1.0 / 12}, {-1, -8.0 / 12}, {1, 8.0 / 12}, {2, -1.0 / 12}};

/// f'(0) by central differences of fourth order.
template <class Function>
double derivative(const Function& f, double h) {
    double sum = 0;
    for (const auto& [at, weight] : fourth_order) sum += weight * f(at * h);
    return sum / h;
}

/// Of squares of differences of fourth order, whose relative error is twice that of a difference:
/// truncation h^4 / 30 times a fifth derivative, at most 120 first ones (as of 1 / (1 + x)); and
/// rounding of an argument of modulus `size`, times the sum 3 / 2 of the weights' moduli, over h.
inline Tolerance squared_differences(double h, double size) {
    return {.terms = 2 * 3.0 / 2 * size / h,
            .relative = 2 * 120.0 / 30 * std::pow(h, 4),
            .reason = "differences of fourth order"};
}

/// An iteration that stops at a relative error of `relative`.
inline Tolerance stopped_at(double relative) {
    return {.terms = 64, .relative = relative, .reason = "stopping rule of an iteration"};
}

/// The mean of `count` trials of standard deviation `deviation`, at `level` standard errors.
inline Tolerance sampling(Index count, double deviation, double level = 5) {
    return {.absolute = level * deviation / std::sqrt(double(count)), .reason = "sampling"};
}

inline double epsilon(Type type) {
    return type == Type::f32 ? double(std::numeric_limits<float>::epsilon())
                             : std::numeric_limits<double>::epsilon();
}

inline testing::AssertionResult all_close(std::span<const double> found,
                                          std::span<const double> expected, Tolerance tolerance,
                                          Type type = Type::f64) {
    if (found.size() != expected.size())
        return testing::AssertionFailure()
               << found.size() << " numbers, expected " << expected.size();
    double scale = 0, worst = -1;
    std::size_t where = 0;
    for (double e : expected) scale = std::max(scale, std::abs(e));
    for (std::size_t i = 0; i < found.size(); ++i) {
        double error = std::abs(found[i] - expected[i]);
        if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
        if (error > worst) worst = error, where = i;
    }
    const double allowed = tolerance.allowed(epsilon(type), scale);
    if (worst <= allowed) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "element " << where << " is " << testing::PrintToString(found[where]) << ", expected "
           << testing::PrintToString(expected[where]) << ": off by " << worst << ", allowed "
           << allowed << " (" << tolerance.reason << ")";
}

inline testing::AssertionResult close(double found, double expected, Tolerance tolerance,
                                      Type type = Type::f64) {
    return all_close(std::span(&found, 1), std::span(&expected, 1), tolerance, type);
}

inline testing::AssertionResult tensor_near(const Tensor& found, std::span<const double> expected,
                                            Tolerance tolerance) {
    return all_close(found.to_host<double>(), expected, tolerance, found.type());
}

inline testing::AssertionResult tensor_near(const Tensor& found, const Tensor& expected,
                                            Tolerance tolerance) {
    if (found.shape() != expected.shape())
        return testing::AssertionFailure()
               << "shape (" << found.batch() << ", " << found.rows() << ", " << found.cols()
               << "), expected (" << expected.batch() << ", " << expected.rows() << ", "
               << expected.cols() << ")";
    const Type coarser =
        found.type() == Type::f32 || expected.type() == Type::f32 ? Type::f32 : Type::f64;
    return all_close(found.to_host<double>(), expected.to_host<double>(), tolerance, coarser);
}

}  // namespace tsdiag::test

#define EXPECT_CLOSE(...) EXPECT_TRUE(::tsdiag::test::close(__VA_ARGS__))
#define EXPECT_ALL_CLOSE(...) EXPECT_TRUE(::tsdiag::test::all_close(__VA_ARGS__))
#define EXPECT_TENSOR_NEAR(...) EXPECT_TRUE(::tsdiag::test::tensor_near(__VA_ARGS__))
