#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/naive.hpp"
#include "support/near.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

/// Multiplying x by a power of two changes no digit of a result, however large or small.
namespace tsdiag {
namespace {

using namespace test;

Tensor gaussian(Shape shape, std::uint64_t seed, Type type = Type::f64) {
    std::vector<double> v(std::size_t(shape.count()));
    Rng(seed).fill_normal(v, 0, 1);
    return Tensor::from_host(cpu(), shape, std::span<const double>(v), type);
}

/// Multiplies each row of x (1, r, c) by its own power of two.
Tensor with_powers(const Tensor& x, const std::vector<int>& powers) {
    std::vector<double> v = x.to_host<double>();
    for (std::size_t i = 0; i < v.size(); ++i)
        v[i] = std::ldexp(v[i], powers[i / std::size_t(x.cols())]);
    return Tensor::from_host(cpu(), x.shape(), std::span<const double>(v), Type::f64);
}

constexpr int powers_of_all[] = {-950, -500, -160, 0, 160, 500, 950};
const std::vector<int> powers_of_rows = {-900, 300, 0, 700, -10};

TEST(Range, NormsOfAnySize) {
    const Tensor x = gaussian({2, 5, 7}, 1);
    std::vector<double> squares(10, 0.0);
    const std::vector<double> values = x.to_host<double>();
    for (std::size_t i = 0; i < values.size(); ++i) squares[i / 7] += values[i] * values[i];
    double sum = 0;
    std::vector<double> norms;
    for (const double s : squares) sum += s, norms.push_back(std::sqrt(s));
    EXPECT_ALL_CLOSE(row_norms(x), norms, rounding(7));
    EXPECT_CLOSE(double(squared_norm(x)), sum, rounding(70));
    for (const int k : powers_of_all) {
        const Tensor far = scale(x, std::ldexp(1.0, k));
        EXPECT_EQ(squared_norm(far), std::ldexp(squared_norm(x), 2 * k)) << k;
        const std::vector<double> found = row_norms(far);
        for (std::size_t i = 0; i < found.size(); ++i)
            EXPECT_CLOSE(std::ldexp(found[i], -k), norms[i], rounding(7)) << k;
    }
    const std::vector<double> found =
        row_norms(with_powers(gaussian({1, 5, 7}, 1), powers_of_rows));
    for (std::size_t i = 0; i < 5; ++i)
        EXPECT_CLOSE(std::ldexp(found[i], -powers_of_rows[i]), norms[i], rounding(7));
    EXPECT_EQ(row_norms(zeros(cpu(), {1, 2, 3}, Type::f64)), (std::vector<double>{0, 0}));
}

TEST(Range, MomentsOfStatesOfAnySize) {
    const Tensor x = gaussian({1, 5, 7}, 2);
    const StateMoments m = state_moments(x);
    for (const int k : powers_of_all) {
        const StateMoments far = state_moments(scale(x, std::ldexp(1.0, k)));
        EXPECT_CLOSE(double(std::ldexp(far.squared, -2 * k)), double(m.squared), rounding(8)) << k;
        EXPECT_CLOSE(double(std::ldexp(far.mean_part, -2 * k)), double(m.mean_part), rounding(8));
        EXPECT_CLOSE(double(std::ldexp(far.centred, -2 * k)), double(m.centred), rounding(8));
        EXPECT_CLOSE(far.unit_sum, m.unit_sum, rounding(8)) << k;
    }
    // Of unit rows, whatever their lengths.
    EXPECT_CLOSE(state_moments(with_powers(x, powers_of_rows)).unit_sum, m.unit_sum, rounding(64));
}

StateMoments of_backend(const Tensor& x) {
    return cpu().state_moments(std::span(&x.view(), 1)).get().front();
}

TEST(Range, MomentsOfStatesThatAreNotFiniteAreThoseOfTheBackend) {
    for (const double entry : {double(INFINITY), -double(INFINITY), double(NAN)}) {
        std::vector<double> v(35, 1e200);
        v[3] = entry;
        const Tensor x = Tensor::from_host(cpu(), {1, 5, 7}, std::span<const double>(v), Type::f64);
        const StateMoments m = state_moments(x), own = of_backend(x);
        const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
        EXPECT_PRED2(same, double(m.squared), double(own.squared));
        EXPECT_PRED2(same, double(m.mean_part), double(own.mean_part));
        EXPECT_PRED2(same, double(m.centred), double(own.centred));
        EXPECT_PRED2(same, m.unit_sum, own.unit_sum);
    }
    // A row whose squares underflow is called zero, and is skipped afterwards.
    std::vector<double> v(35, 1e-200);
    v[3] = NAN;
    const Tensor x = Tensor::from_host(cpu(), {1, 5, 7}, std::span<const double>(v), Type::f64);
    EXPECT_EQ(state_moments(x).zero_row, of_backend(x).zero_row);
}

TEST(Range, StatisticsOfRowsOfAnySize) {
    const Tensor p = gaussian({1, 5, 7}, 3), slope = gaussian({1, 5, 7}, 4);
    const RowStatistics s = row_statistics(p, slope, true, 0, {});
    const RowStatistics far =
        row_statistics(with_powers(p, powers_of_rows), Tensor(), false, 0, {});
    const RowStatistics steep = row_statistics(p, with_powers(slope, powers_of_rows), true, 0, {});
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_CLOSE(double(std::ldexp(far.squares[i], -2 * powers_of_rows[i])),
                     double(s.squares[i]), rounding(16));
        EXPECT_CLOSE(double(std::ldexp(steep.jacobian[i], -2 * powers_of_rows[i])),
                     double(s.jacobian[i]), rounding(64));
    }
}

TEST(Range, ExponentsAreThoseOfTheLargestModulus) {
    EXPECT_EQ(exponent_of(8.0), 3);
    EXPECT_EQ(exponent_of(7.9), 2);
    EXPECT_EQ(exponent_of(0.25), -2);
    EXPECT_EQ(exponent_of(5e-324), -1000);
    EXPECT_EQ(exponent_of(1.7e308), 1000);
    for (const double none : {0.0, double(INFINITY), double(NAN)}) EXPECT_EQ(exponent_of(none), 0);
    const std::vector<double> values{1, -9, 0.5, 0.25, 0, 0};
    const Tensor x =
        Tensor::from_host(cpu(), {3, 1, 2}, std::span<const double>(values), Type::f64);
    EXPECT_EQ(largest_moduli(x), (std::vector<double>{9, 0.5, 0}));
    EXPECT_EQ(exponents_of(x), (std::vector<int>{3, -1, 0}));
    EXPECT_EQ(exponent_of(x), 3);
    EXPECT_EQ(without_exponents(x, exponents_of(x)).to_host<double>(),
              (std::vector<double>{0.125, -1.125, 1, 0.5, 0, 0}));
    EXPECT_EQ(without_exponent(x, 3).to_host<double>()[1], -1.125);
    const Tensor narrow = cast(x, Type::f32);
    EXPECT_EQ(exponents_of(narrow), (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(exponent_of(narrow), 0);
}

TEST(Matvec, IsTheNaiveProductInDouble) {
    for (const Type type : {Type::f32, Type::f64})
        for (const bool transposed : {false, true}) {
            const Tensor a = gaussian({3, 6, 5}, 5, type);
            const Tensor x = gaussian({3, transposed ? 6 : 5, 1}, 6);
            const Tensor y = matvec(a, x, transposed);
            for (Index b = 0; b < 3; ++b) {
                const naive::Matrix m = naive::matrix_of(a, b);
                EXPECT_ALL_CLOSE(
                    y.batch_range(b, 1).to_host<double>(),
                    naive::product(transposed ? naive::transposed(m) : m, naive::matrix_of(x, b)).a,
                    rounding(16));
            }
        }
}

}  // namespace
}  // namespace tsdiag
