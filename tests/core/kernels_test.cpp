#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/tensor/cpu_kernels.hpp"
#include "support/near.hpp"
#include "tsdiag/backend.hpp"

/// Every instruction set of this processor, against libm and plain loops.
namespace tsdiag {
namespace {

std::vector<const kernels::Table*> tables() {
    std::vector<const kernels::Table*> all = {&kernels::base::kernel_table};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        all.push_back(&kernels::avx2::kernel_table);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        all.push_back(&kernels::avx512::kernel_table);
#endif
    return all;
}

class EveryInstructionSet : public testing::TestWithParam<const kernels::Table*> {
  protected:
    template <class T>
    const kernels::Of<T>& of() const {
        if constexpr (std::is_same_v<T, float>)
            return GetParam()->f32;
        else
            return GetParam()->f64;
    }
    template <class T>
    std::vector<T> apply(Unary op, const std::vector<T>& x) const {
        std::vector<T> y(x.size());
        of<T>().unary(int(op), x.data(), y.data(), Index(x.size()));
        return y;
    }
};

INSTANTIATE_TEST_SUITE_P(Cpu, EveryInstructionSet, testing::ValuesIn(tables()),
                         [](const auto& i) { return std::string(i.param->name); });

template <class T>
std::vector<T> grid(double low, double high, int count) {
    auto x = std::vector<T>(std::size_t(count));
    for (int i = 0; i < count; ++i) x[std::size_t(i)] = T(low + (high - low) * i / (count - 1));
    return x;
}

template <class T>
double worst_relative(const std::vector<T>& x, const std::vector<T>& y, double (*f)(double)) {
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = f(double(x[i]));
        worst = std::max(worst, std::abs(double(y[i]) - expected) / std::abs(expected));
    }
    return worst;
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

TEST_P(EveryInstructionSet, ExponentialIsWithinTwoUlp) {
    const auto f = grid<float>(-86.6, 88.5, 100001);
    EXPECT_LT(worst_relative<float>(f, apply(Unary::exp, f), std::exp), 2 * 0x1p-23);
    const auto d = grid<double>(-707, 709, 100001);
    EXPECT_LT(worst_relative<double>(d, apply(Unary::exp, d), std::exp), 2 * 0x1p-52);
    EXPECT_EQ(apply<float>(Unary::exp, {0.0F})[0], 1.0F);
    EXPECT_EQ(apply<float>(Unary::exp, {-200.0F})[0], 0.0F);
    EXPECT_EQ(apply<double>(Unary::exp, {-1e4})[0], 0.0);
}

TEST_P(EveryInstructionSet, GeluIsTheErrorFunctionForm) {
    for (const double bound : {0.1, 3.0, 8.0}) {
        const auto f = grid<float>(-bound, bound, 20001);
        const auto y = apply(Unary::gelu, f);
        for (std::size_t i = 0; i < f.size();
             ++i)  // 1 + erf is within 4 ulp of 1, and cancels for x << 0
            ASSERT_NEAR(y[i], gelu(f[i]), 8 * 0x1p-23 * std::max(1.0, bound / 4)) << f[i];
        const auto d = grid<double>(-bound, bound, 20001);
        const auto z = apply(Unary::gelu, d);
        for (std::size_t i = 0; i < d.size(); ++i)
            ASSERT_NEAR(z[i], gelu(d[i]), 4 * 0x1p-52 * bound) << d[i];
    }
}

TEST_P(EveryInstructionSet, OtherActivationsMatchTheirFormulas) {
    const auto x = grid<double>(-30, 30, 4001);
    const auto near = [&](Unary op, auto f) {
        const auto y = apply(op, x);
        for (std::size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(y[i], f(x[i]), 8 * 0x1p-52 * std::max(1.0, std::abs(f(x[i]))))
                << int(op) << " at " << x[i];
    };
    near(Unary::gelu_tanh, [](double t) {
        return 0.5 * t * (1 + std::tanh(std::sqrt(2 / M_PI) * (t + 0.044715 * t * t * t)));
    });
    near(Unary::silu, [](double t) { return t / (1 + std::exp(-t)); });
    near(Unary::relu, [](double t) { return std::max(t, 0.0); });
    near(Unary::elu, [](double t) { return t > 0 ? t : std::expm1(t); });
    near(Unary::elu_plus_one, [](double t) { return t > 0 ? t + 1 : std::exp(t); });
    near(Unary::sigmoid, [](double t) { return 1 / (1 + std::exp(-t)); });
    near(Unary::tanh, [](double t) { return std::tanh(t); });
    near(Unary::square, [](double t) { return t * t; });
}

TEST_P(EveryInstructionSet, SoftmaxSumsToOneAndShrugsAtShifts) {
    for (const Index n : {1, 2, 7, 64, 1001}) {
        auto row = std::vector<float>(std::size_t(n));
        for (Index i = 0; i < n; ++i) row[std::size_t(i)] = float(1e4 + std::sin(double(i)));
        of<float>().softmax(row.data(), n);
        double z = 0;
        for (Index i = 0; i < n; ++i) z += std::exp(double(float(1e4 + std::sin(double(i)))) - 1e4);
        double total = 0;
        for (Index i = 0; i < n; ++i) {
            const double logit = double(float(1e4 + std::sin(double(i)))) - 1e4;
            ASSERT_NEAR(row[std::size_t(i)], std::exp(logit) / z,
                        4 * 0x1p-23 * std::exp(logit) / z);
            total += row[std::size_t(i)];
        }
        EXPECT_NEAR(total, 1, 2 * 0x1p-23);
    }
}

TEST_P(EveryInstructionSet, RowStatisticsMatchThreeLoops) {
    for (const Index n : {1, 2, 5, 33, 257}) {
        std::vector<double> p(std::size_t(n), 0.0), slope(p.size());
        double z = 0;
        for (std::size_t i = 0; i < p.size(); ++i)
            z += p[i] = std::exp(3 * std::sin(1.7 * double(i) + double(n)));
        for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] /= z;
            slope[i] = p[i] * (1 + 0.5 * std::cos(double(i)));
        }
        const kernels::RowResult r = of<double>().row_statistics(p.data(), slope.data(), true, n);
        double jacobian = 0, largest = 0, entropy = 0, squares = 0, top = 0;
        for (std::size_t j = 0; j < p.size(); ++j) {
            for (std::size_t k = 0; k < p.size(); ++k) {
                const double g = slope[k] * ((j == k ? 1 : 0) - p[j]);
                jacobian += g * g;
                largest = std::max(largest, std::abs(g));
            }
            entropy -= p[j] * std::log(p[j]);
            squares += p[j] * p[j];
            top = std::max(top, p[j]);
        }
        const double few = 8 * double(n) * 0x1p-52;
        EXPECT_NEAR(r.jacobian, jacobian, few);
        EXPECT_NEAR(r.jacobian_max, largest, few);
        EXPECT_NEAR(r.entropy, entropy, few * 4);
        EXPECT_NEAR(r.squares, squares, few);
        EXPECT_NEAR(r.sum, 1, few);
        EXPECT_EQ(r.max_modulus, top);
        EXPECT_EQ(r.negative, 0);
    }
}

TEST_P(EveryInstructionSet, JacobianOfANearlyOneHotRowKeepsItsRelativeAccuracy) {
    // p = (1 - e, e): |diag(p) - p p^T|_F^2 = 4 e^2 (1 - e)^2; s2 - 2 s3 + s2^2 would lose it to
    // rounding.
    const double e = 0x1p-30;
    const std::vector<double> p = {1 - e, e};
    const kernels::RowResult r = of<double>().row_statistics(p.data(), p.data(), true, 2);
    EXPECT_NEAR(r.jacobian / (4 * e * e * (1 - e) * (1 - e)), 1, 1e-15 * 8);
}

TEST_P(EveryInstructionSet, NegativeMassIsCounted) {
    const std::vector<float> p = {0.5F, -0.25F, 1.0F, -0.125F, 0.0F};
    const kernels::RowResult r = of<float>().row_statistics(p.data(), nullptr, false, 5);
    EXPECT_EQ(r.negative, 0.375);
    EXPECT_EQ(r.modulus, 1.875);
    EXPECT_EQ(r.sum, 1.125);
}

TEST_P(EveryInstructionSet, ProductsMatchThreeLoops) {
    const Index m = 13, n = 17, k = 29;
    std::vector<double> a(std::size_t(m * k)), b(std::size_t(k * n)), c(std::size_t(m * n));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(double(i));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::cos(double(3 * i));
    for (const int t : {0, 1, 2}) {
        of<double>().gemm(t == 1, t == 2, m, n, k, 0.5, a.data(), t == 1 ? m : k, b.data(),
                          t == 2 ? k : n, c.data(), n);
        for (Index i = 0; i < m; ++i)
            for (Index j = 0; j < n; ++j) {
                double s = 0;
                for (Index l = 0; l < k; ++l)
                    s += a[std::size_t(t == 1 ? l * m + i : i * k + l)] *
                         b[std::size_t(t == 2 ? j * k + l : l * n + j)];
                ASSERT_NEAR(c[std::size_t(i * n + j)], 0.5 * s, double(k) * 0x1p-52 * double(k));
            }
    }
}

TEST_P(EveryInstructionSet, DrawsTheSameNumbersAsTheScalarGenerator) {
    std::vector<double> u(2 * 37), z(2 * 37);
    GetParam()->uniform(7, 11, 5, 37, u.data());
    GetParam()->normal(7, 11, 5, 37, z.data());
    for (std::size_t i = 0; i < 37; ++i) {
        const double radius = std::sqrt(-2 * std::log(u[2 * i])), angle = 2 * M_PI * u[2 * i + 1];
        EXPECT_NEAR(z[2 * i], radius * std::cos(angle), 1e-14 * 8);
        EXPECT_NEAR(z[2 * i + 1], radius * std::sin(angle), 1e-14 * 8);
        EXPECT_GT(u[2 * i], 0);
        EXPECT_LT(u[2 * i], 1);
    }
}

TEST_P(EveryInstructionSet, RoundsToTheNearestBfloat16) {
    struct Rounded {
        std::uint32_t bits;
        std::uint16_t to;
    };
    // Below, at and above the half; with a carry into the exponent, to infinity; subnormal; NaN
    // whose upper bits are those of infinity.
    const std::vector<Rounded> cases = {
        {0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81},
        {0x3F818000, 0x3F82}, {0x3FFF8000, 0x4000}, {0xBF808001, 0xBF81}, {0x7F7FFFFF, 0x7F80},
        {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x00008001, 0x0001}, {0x80000000, 0x8000},
        {0x7F800001, 0x7FC0}, {0xFFFFFFFF, 0xFFFF}, {0x7FC00000, 0x7FC0}};
    std::vector<float> x;
    for (int copy = 0; copy < 3; ++copy)  // in the loop's body and in its rest
        for (const Rounded& one : cases) x.push_back(std::bit_cast<float>(one.bits));
    std::vector<std::uint16_t> y(x.size());
    GetParam()->bfloat16(x.data(), 1, y.data(), Index(x.size()));
    for (std::size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(y[i], cases[i % cases.size()].to) << std::hex << cases[i % cases.size()].bits;
    GetParam()->bfloat16(x.data(), -2, y.data(), 1);
    EXPECT_EQ(y[0], 0xC000);
}

TEST_P(EveryInstructionSet, FindsTheFirstNonFiniteEntry) {
    std::vector<float> x(10000, 1.0F);
    EXPECT_EQ(of<float>().first_nonfinite(x.data(), 10000), -1);
    x[9998] = INFINITY;
    x[4097] = NAN;
    EXPECT_EQ(of<float>().first_nonfinite(x.data(), 10000), 4097);
    std::vector<double> y = {1, -INFINITY};
    EXPECT_EQ(of<double>().first_nonfinite(y.data(), 2), 1);
}

}  // namespace
}  // namespace tsdiag
