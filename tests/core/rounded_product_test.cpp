#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

/// Products with factors rounded to bfloat16, on a processor that has them.
namespace tsdiag {
namespace {

/// The nearest number with 8 bits, of two as near the even one.
double rounded(double x) {
    if (x == 0) return 0;
    const double unit = std::ldexp(1.0, std::ilogb(x) - 7);
    return unit * std::nearbyint(x / unit);
}

struct Case {
    Index batch, of_b, m, k, n;
    Transpose t;
};

Tensor drawn(const Backend& backend, Shape shape, std::uint64_t seed) {
    return random_tensor(backend, shape, Type::f32, Law::normal, Rng(seed), 0, 1);
}

/// Sums of float32 in any order differ from the exact one by at most k ulp of the sum of moduli.
void expect_product(const Tensor& out, const Tensor& a, const Tensor& b, Transpose t,
                    double alpha) {
    const std::vector<double> found = out.to_host<double>(), x = a.to_host<double>(),
                              y = b.to_host<double>();
    const Index inner = t == Transpose::first ? a.rows() : a.cols();
    for (Index s = 0; s < out.batch(); ++s)
        for (Index i = 0; i < out.rows(); ++i)
            for (Index j = 0; j < out.cols(); ++j) {
                double sum = 0, moduli = 0;
                const Index of_b = s / (a.batch() / b.batch());
                for (Index l = 0; l < inner; ++l) {
                    const Index row = t == Transpose::first ? l : i;
                    const Index col = t == Transpose::first ? i : l;
                    const double u = x[std::size_t((s * a.rows() + row) * a.cols() + col)];
                    const double v = y[std::size_t(
                        (of_b * b.rows() + (t == Transpose::second ? j : l)) * b.cols() +
                        (t == Transpose::second ? l : j))];
                    const double term = rounded(alpha * u) * rounded(v);
                    sum += term;
                    moduli += std::abs(term);
                }
                ASSERT_NEAR(found[std::size_t((s * out.rows() + i) * out.cols() + j)], sum,
                            double(inner) * 0x1p-24 * moduli)
                    << s << ' ' << i << ' ' << j;
            }
}

TEST(RoundedProduct, IsThatOfRoundedFactors) {
    if (rounding_cpu() == nullptr) GTEST_SKIP() << "this processor multiplies no bfloat16";
    const Backend& there = *rounding_cpu();
    using enum Transpose;
    for (const auto& [batch, of_b, m, k, n, t] : {Case{1, 1, 5, 7, 3, none},
                                                  {3, 1, 17, 33, 65, none},
                                                  {6, 2, 130, 64, 31, second},
                                                  {6, 3, 40, 50, 70, first},
                                                  {9, 1, 32, 48, 100, second},
                                                  {1, 1, 2, 20000, 150, none},  // in parts
                                                  {3, 1, 130, 8193, 33, second},
                                                  {2, 2, 3, 8200, 131, first},
                                                  {2, 2, 257, 31, 2, first}}) {
        const Tensor a = drawn(there, t == first ? Shape{batch, k, m} : Shape{batch, m, k}, 1);
        const Tensor b = drawn(there, t == second ? Shape{of_b, n, k} : Shape{of_b, k, n}, 2);
        // A power of two, so that alpha a has the rounding of a in the reference as well.
        expect_product(matmul(a, b, t, 0.125), a, b, t, 0.125);
        EXPECT_FALSE(testing::Test::HasFatalFailure()) << m << " x " << k << " x " << n;
    }
}

TEST(RoundedProduct, ReadsAndWritesViews) {
    if (rounding_cpu() == nullptr) GTEST_SKIP() << "this processor multiplies no bfloat16";
    const Tensor x = drawn(*rounding_cpu(), {2, 30, 96}, 3),
                 y = drawn(*rounding_cpu(), {2, 41, 96}, 4);
    const Tensor a = x.col_range(5, 40).row_range(2, 20), b = y.col_range(50, 40);
    expect_product(matmul(a, b, Transpose::second), contiguous(a), contiguous(b), Transpose::second,
                   1);
}

TEST(RoundedProduct, HasTheSameBitsOnAnyNumberOfThreadsAndInAnyBatch) {
    if (rounding_cpu() == nullptr) GTEST_SKIP() << "this processor multiplies no bfloat16";
    struct Threads {
        ~Threads() { omp_set_num_threads(omp_get_num_procs()); }
    } restored;
    for (const auto [m, k, n] : {std::array<Index, 3>{17, 1024, 640},
                                 {256, 1024, 200},
                                 {300, 4096, 270},
                                 {32, 768, 768},
                                 {257, 64, 193},
                                 {2, 100, 50}}) {
        const Tensor a = drawn(*rounding_cpu(), {11, m, k}, 5),
                     b = drawn(*rounding_cpu(), {1, n, k}, 6);
        omp_set_num_threads(1);
        const std::vector<float> expected = matmul(a, b, Transpose::second).to_host<float>();
        for (const int threads : {2, 3, 8}) {
            omp_set_num_threads(threads);
            EXPECT_EQ(matmul(a, b, Transpose::second).to_host<float>(), expected)
                << m << " x " << k << " x " << n << ", " << threads << " threads";
        }
        for (const Index sample : {0, 4, 10})
            EXPECT_EQ(matmul(a.batch_range(sample, 1), b, Transpose::second).to_host<float>(),
                      std::vector<float>(expected.begin() + sample * m * n,
                                         expected.begin() + (sample + 1) * m * n));
    }
}

TEST(RoundedProduct, LeavesFloat64AndVectorsExact) {
    if (rounding_cpu() == nullptr) GTEST_SKIP() << "this processor multiplies no bfloat16";
    const auto bits = [](const Backend& backend, Type type, Index rows) {
        const Rng rng(7);
        const Tensor a = random_tensor(backend, {2, rows, 33}, type, Law::normal, rng, 0, 1);
        const Tensor b = random_tensor(backend, {1, 33, 21}, type, Law::normal, rng.fork(1), 0, 1);
        return matmul(a, b).to_host<double>();
    };
    EXPECT_EQ(bits(*rounding_cpu(), Type::f64, 9), bits(cpu(), Type::f64, 9));
    EXPECT_EQ(bits(*rounding_cpu(), Type::f32, 1), bits(cpu(), Type::f32, 1));
    EXPECT_NE(bits(*rounding_cpu(), Type::f32, 9), bits(cpu(), Type::f32, 9));
}

TEST(RoundedProduct, PassesOnWhatIsNotFinite) {
    if (rounding_cpu() == nullptr) GTEST_SKIP() << "this processor multiplies no bfloat16";
    const float inf = INFINITY, nan = std::bit_cast<float>(0x7FFFFFFFU);
    const std::vector<float> x = {1, inf, 2, 3, nan, 4};  // rows of 2
    const Tensor a =
        Tensor::from_host(*rounding_cpu(), {1, 3, 2}, std::span<const float>(x), Type::f32);
    const std::vector<float> ones = {1, 1, 1, 1};
    const Tensor b =
        Tensor::from_host(*rounding_cpu(), {1, 2, 2}, std::span<const float>(ones), Type::f32);
    const std::vector<float> found = matmul(a, b).to_host<float>();
    EXPECT_EQ(found[0], inf);
    EXPECT_EQ(found[2], 5);
    EXPECT_TRUE(std::isnan(found[4]));
}

}  // namespace
}  // namespace tsdiag
