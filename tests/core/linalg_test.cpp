#include "tsdiag/linalg.hpp"

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "support/naive.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;
using Row = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix gaussian(Index rows, Index cols, std::uint64_t seed) {
    Matrix a(rows, cols);
    Rng(seed).fill_normal(a.a, 0, 1);
    return a;
}

Eigen::Map<const Row> eigen(const Matrix& a) { return {a.a.data(), a.rows, a.cols}; }

/// Moduli in descending order.
std::vector<double> moduli(const std::vector<std::complex<double>>& values) {
    std::vector<double> out;
    for (auto v : values) out.push_back(std::abs(v));
    std::sort(out.rbegin(), out.rend());
    return out;
}

std::vector<double> eigen_moduli(const Matrix& a) {
    Eigen::EigenSolver<Eigen::MatrixXd> solver(eigen(a), false);
    std::vector<double> out;
    for (Index i = 0; i < a.rows; ++i) out.push_back(std::abs(solver.eigenvalues()[i]));
    std::sort(out.rbegin(), out.rend());
    return out;
}

LinearMap map_of(const Matrix& a) {
    return {.rows = a.rows,
            .cols = a.cols,
            .apply =
                [&a](std::span<const double> x, std::span<double> y) {
                    Eigen::VectorXd v =
                        eigen(a) * Eigen::Map<const Eigen::VectorXd>(x.data(), a.cols);
                    std::copy_n(v.data(), a.rows, y.begin());
                },
            .transpose =
                [&a](std::span<const double> x, std::span<double> y) {
                    Eigen::VectorXd v =
                        eigen(a).transpose() * Eigen::Map<const Eigen::VectorXd>(x.data(), a.rows);
                    std::copy_n(v.data(), a.cols, y.begin());
                }};
}

View view_of(const Matrix& a) {
    return {
        const_cast<double*>(a.a.data()), {1, a.rows, a.cols}, a.rows * a.cols, a.cols, Type::f64};
}

TEST(Eigenvalues, EqualThoseOfAnotherImplementation) {
    for (Index n : {1, 2, 3, 4, 5, 7, 16, 33, 100, 257}) {
        const Matrix a = gaussian(n, n, std::uint64_t(n));
        EXPECT_ALL_CLOSE(moduli(eigenvalues(a.a, n)), eigen_moduli(a), rounding(1000 * double(n)));
    }
}

TEST(Eigenvalues, ComeAsConjugatePairsAndSumToTheTrace) {
    const Index n = 60;
    const Matrix a = gaussian(n, n, 9);
    std::complex<double> sum = 0;
    double trace = 0;
    for (auto v : eigenvalues(a.a, n)) sum += v;
    for (Index i = 0; i < n; ++i) trace += a(i, i);
    EXPECT_CLOSE(sum.real(), trace, rounding(100 * double(n)));
    EXPECT_EQ(sum.imag(), 0);
}

TEST(Eigenvalues, OfClosedForms) {
    // Companion matrix of (x - 1)(x - 2)(x - 3).
    const std::vector<double> companion = {6, -11, 6, 1, 0, 0, 0, 1, 0};
    EXPECT_ALL_CLOSE(moduli(eigenvalues(companion, 3)), std::vector<double>({3, 2, 1}),
                     rounding(500));
    // Rotation by 90 degrees: +-i.
    EXPECT_ALL_CLOSE(moduli(eigenvalues(std::vector<double>{0, -1, 1, 0}, 2)),
                     std::vector<double>({1, 1}), rounding(4));
    // Cyclic permutation: the roots of unity, which ordinary shifts do not separate.
    Matrix cycle(16, 16);
    for (Index i = 0; i < 16; ++i) cycle(i, (i + 1) % 16) = 1;
    EXPECT_ALL_CLOSE(moduli(eigenvalues(cycle.a, 16)), std::vector<double>(16, 1.0), rounding(64));
    EXPECT_ALL_CLOSE(moduli(eigenvalues(std::vector<double>(9, 0.0), 3)),
                     std::vector<double>(3, 0.0), exactly);
    EXPECT_TRUE(eigenvalues({}, 0).empty());
}

/// Real eigenvalues of matrices that are Hessenberg matrices before any reduction.
TEST(Eigenvalues, OfHessenbergMatricesInClosedForm) {
    for (const Index n : {3, 4, 5, 12, 31}) {
        // Triangular, either way: the eigenvalues are the diagonal.
        for (const bool lower : {true, false}) {
            Matrix a(n, n);
            std::vector<double> expected;
            for (Index i = 0; i < n; ++i) {
                a(i, i) = double(n - i);
                expected.push_back(a(i, i));
                if (i > 0) (lower ? a(i, i - 1) : a(i - 1, i)) = 0.5;
            }
            EXPECT_ALL_CLOSE(moduli(eigenvalues(a.a, n)), expected, rounding(40 * double(n)));
        }
        // Three diagonals a, b above and c below: a + 2 sqrt(b c) cos(k pi/(n + 1)).
        Matrix bands(n, n), clement(n, n);
        std::vector<double> cosines, odd;
        for (Index i = 0; i < n; ++i) {
            bands(i, i) = 3;
            cosines.push_back(3 + 2 * std::cos(double(i + 1) * std::numbers::pi / double(n + 1)));
            odd.push_back(std::abs(double(n - 1 - 2 * i)));
            if (i == 0) continue;
            bands(i - 1, i) = 0.8, bands(i, i - 1) = 1.25;
            // Clement's, without a diagonal: n - 1, n - 3, ..., 1 - n.
            clement(i - 1, i) = double(i), clement(i, i - 1) = double(n - i);
        }
        std::ranges::sort(odd, std::greater());
        EXPECT_ALL_CLOSE(moduli(eigenvalues(bands.a, n)), cosines, rounding(1e4 * double(n)));
        const Tolerance loose{.absolute = 1e-6, .reason = "condition numbers of some 1e8"};
        EXPECT_ALL_CLOSE(moduli(eigenvalues(clement.a, n)), odd, loose);
    }
}

TEST(Eigenvalues, SurviveExtremeScales) {
    for (double scale : {1e-150, 1e150}) {
        Matrix a = gaussian(20, 20, 3);
        const std::vector<double> expected = eigen_moduli(a);
        for (double& e : a.a) e *= scale;
        std::vector<double> found = moduli(eigenvalues(a.a, 20));
        for (double& e : found) e /= scale;
        EXPECT_ALL_CLOSE(found, expected, rounding(20000));
    }
}

TEST(Eigenvalues, RefuseWhatIsNotFinite) {
    EXPECT_THROW(eigenvalues(std::vector<double>{1, NAN, 0, 1}, 2), NonFiniteError);
    EXPECT_THROW(eigenvalues(std::vector<double>{1, INFINITY, 0, 1}, 2), NonFiniteError);
    EXPECT_THROW(singular_values(std::vector<double>{1, NAN}, 1, 2), NonFiniteError);
    EXPECT_THROW(eigenvalues(std::vector<double>{1, 2, 3}, 2), ShapeError);
}

TEST(SingularValues, EqualThoseOfAnotherImplementation) {
    for (auto [m, n] :
         {std::pair<Index, Index>{1, 1}, {1, 5}, {5, 1}, {4, 4}, {40, 17}, {17, 40}, {90, 90}}) {
        const Matrix a = gaussian(m, n, std::uint64_t(m * 100 + n));
        const Eigen::VectorXd expected =
            Eigen::JacobiSVD<Eigen::MatrixXd>(eigen(a)).singularValues();
        EXPECT_ALL_CLOSE(singular_values(a.a, m, n),
                         std::span(expected.data(), std::size_t(expected.size())),
                         rounding(20 * double(m + n)));
    }
    EXPECT_TRUE(singular_values({}, 0, 3).empty());
}

TEST(SingularValues, OfRankOneAndOfZero) {
    Matrix a(6, 4);
    for (Index i = 0; i < 6; ++i)
        for (Index j = 0; j < 4; ++j) a(i, j) = double(i + 1) * double(j + 1);
    std::vector<double> expected = {std::sqrt(91.0 * 30.0), 0, 0, 0};
    EXPECT_ALL_CLOSE(singular_values(a.a, 6, 4), expected, rounding(24));
    EXPECT_ALL_CLOSE(singular_values(std::vector<double>(12, 0.0), 3, 4),
                     std::vector<double>(3, 0.0), exactly);
}

TEST(DenseEigenvalue, CertifiesWellConditionedOnes) {
    const Matrix a = gaussian(120, 120, 5);
    const std::vector<double> expected = eigen_moduli(a);
    const Estimate first = dense_eigenvalue(a.a, 120), third = dense_eigenvalue(a.a, 120, 3);
    EXPECT_TRUE(first.converged);
    EXPECT_EQ(first.method, "dense");
    EXPECT_CLOSE(first.value, expected[0], rounding(120000));
    EXPECT_CLOSE(third.value, expected[2], rounding(120000));
}

TEST(DenseEigenvalue, SaysWhenAnEigenvalueIsLostToRounding) {
    // A nilpotent matrix, hidden by a similarity: QR finds moduli of about eps^(1/n) instead of 0.
    const Index n = 24;
    Eigen::MatrixXd jordan = Eigen::MatrixXd::Zero(n, n);
    for (Index i = 0; i + 1 < n; ++i) jordan(i, i + 1) = 1;
    const Matrix g = gaussian(n, n, 8);
    const Eigen::MatrixXd q = Eigen::HouseholderQR<Eigen::MatrixXd>(eigen(g)).householderQ();
    const Row hidden = q * jordan * q.transpose();
    const Estimate e = dense_eigenvalue(std::span(hidden.data(), std::size_t(n * n)), n);
    EXPECT_GT(e.value, 0.05);
    EXPECT_FALSE(e.converged);
    ASSERT_TRUE(e.low && e.high);
    EXPECT_LE(*e.low, 0);
    EXPECT_GE(*e.high, e.value);
}

TEST(DenseEigenvalue, OfATensorIsTheSame) {
    for (const Index n : {1, 2, 30}) {
        const Matrix a = gaussian(n, n, 6);
        const Tensor tensor =
            Tensor::from_host(cpu(), {1, n, n}, std::span<const double>(a.a), Type::f64);
        for (const Index rank : {1, 2}) {
            const Estimate expected = dense_eigenvalue(a.a, n, rank),
                           found = dense_eigenvalue(tensor, rank).value();
            EXPECT_EQ(found.converged, expected.converged) << n;
            EXPECT_EQ(found.value, expected.value) << n;
            EXPECT_LE(found.residual, 1e-13) << n;
        }
    }
    const Tensor pair = zeros(cpu(), {2, 3, 3}, Type::f64),
                 wide = zeros(cpu(), {1, 3, 4}, Type::f64);
    EXPECT_THROW(dense_eigenvalue(pair), ShapeError);
    EXPECT_THROW(dense_eigenvalue(wide), ShapeError);
    EXPECT_EQ(dense_eigenvalue(zeros(cpu(), {1, 3, 3}, Type::f64))->value, 0);
}

/// Of a block of Jordan the left and right vectors are orthogonal: no condition number is finite,
/// also where inverse iteration begins its second step at the vector itself.
TEST(Sensitivity, OfADefectiveEigenvalueIsNoCertificate) {
    for (const Index n : {2, 3, 5})
        for (const double c : {1.0, 0.6, 0.28}) {  // 1: the block itself; else turned
            const double s = std::sqrt(1 - c * c);
            const auto size = std::size_t(n);
            std::vector<double> a(size * size, 0.0);
            for (std::size_t i = 0; i < size; ++i) {
                a[i * size + i] = 0.5;
                if (i + 1 < size) a[i * size + i + 1] = 1;
            }
            for (std::size_t k = 0; k + 1 < size; ++k) {
                for (std::size_t j = 0; j < size; ++j) {
                    double &x = a[k * size + j], &y = a[(k + 1) * size + j];
                    std::tie(x, y) = std::pair(c * x + s * y, c * y - s * x);
                }
                for (std::size_t i = 0; i < size; ++i) {
                    double &x = a[i * size + k], &y = a[i * size + k + 1];
                    std::tie(x, y) = std::pair(c * x + s * y, c * y - s * x);
                }
            }
            EXPECT_GT(sensitivity(a, n, 0.5).condition, 1e6) << n << ", " << c;
            const Estimate found = dense_eigenvalue(a, n, 1);
            EXPECT_TRUE(!found.converged || std::abs(found.value - 0.5) <= 0.5 * usual_accuracy)
                << n << ", " << c << ": " << found.value;
        }
}

TEST(Sensitivity, IsThatOfTheClosedForm) {
    for (const double c : {0.0, 1.0, 100.0}) {  // vectors (1, 0) and (1, c / 0.75)
        const std::vector<double> a = {1, c, 0, 0.25};
        for (const double theta : {1.0, 0.25})
            EXPECT_CLOSE(sensitivity(a, 2, theta).condition, std::hypot(1, c / 0.75),
                         rounding(1e6));
    }
    // Of a normal matrix the residual is the distance to the next eigenvalue.
    const std::vector<double> turn = {0, -1, 1, 0};
    const Sensitivity off = sensitivity(turn, 2, {0.003, 1.004});
    EXPECT_CLOSE(off.condition, 1.0, stopped_at(1e-10));  // (0.005 / 2)^4: two steps
    EXPECT_CLOSE(off.residual, 0.005, stopped_at(1e-5));
}

TEST(SymmetricEigenvalues, AreThoseOfSecondDifferences) {
    constexpr Index n = 20;
    Matrix a(n, n);
    std::vector<double> expected;
    for (Index i = 0; i < n; ++i) {
        a(i, i) = 2;
        if (i > 0) a(i - 1, i) = a(i, i - 1) = -1;
        expected.push_back(2 - 2 * std::cos(double(i + 1) * std::numbers::pi / double(n + 1)));
    }
    EXPECT_ALL_CLOSE(symmetric_eigenvalues(a.a, n), expected, rounding(double(n)));
    EXPECT_TRUE(symmetric_eigenvalues({}, 0).empty());
    EXPECT_THROW(symmetric_eigenvalues(std::vector<double>{NAN}, 1), NonFiniteError);
}

TEST(SymmetricEigenvalues, EqualThoseOfAnotherImplementation) {
    for (const Index n : {1, 2, 3, 5, 8, 41, 130})
        for (const double scale : {1.0, 0x1p-400, 0x1p400}) {
            Matrix a = gaussian(n, n, 4);
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j <= i; ++j) a(i, j) = a(j, i) = scale * (a(i, j) + a(j, i));
            const Eigen::VectorXd expected =
                Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(
                    Eigen::Map<const Eigen::MatrixXd>(a.a.data(), n, n) / scale)
                    .eigenvalues();
            std::vector<double> found = symmetric_eigenvalues(a.a, n);
            for (double& e : found) e /= scale;
            EXPECT_ALL_CLOSE(found, std::vector<double>(expected.begin(), expected.end()),
                             rounding(double(64 * n)));
        }
}

TEST(DenseNorm, IsTheLargestSingularValue) {
    for (auto [m, n] : {std::pair<Index, Index>{1, 1}, {1, 5}, {5, 1}, {40, 17}, {17, 40}}) {
        const Matrix a = gaussian(m, n, 9);
        const Tensor tensor =
            Tensor::from_host(cpu(), {1, m, n}, std::span<const double>(a.a), Type::f64);
        const Estimate found = dense_norm(tensor).value();
        EXPECT_TRUE(found.converged);
        EXPECT_CLOSE(found.value, singular_values(a.a, m, n)[0], rounding(double(m + n)));
        const Estimate unsure = dense_norm(tensor, 1e-18).value();  // less than rounding
        EXPECT_FALSE(unsure.converged);
        EXPECT_LT(*unsure.low, found.value);
        EXPECT_GT(*unsure.high, found.value);
    }
    EXPECT_EQ(dense_norm(zeros(cpu(), {1, 3, 2}, Type::f64))->value, 0);
}

/// Of A^T A with the eigenvalues 0 and s: the value is sqrt(s), and rounding of a product of 3 rows
/// and of a solver of 2 are (3 + 4 2) eps s of its square.
TEST(DenseNorm, IsCertainAsFarAsRoundingAndErrorAllow) {
    constexpr double eps = std::numeric_limits<double>::epsilon();
    for (const double s : {0x1p-40, 1.0, 0x1p40}) {
        const std::vector<double> squares = {0, s};
        const double value = std::sqrt(s);
        EXPECT_TRUE(dense_norm(squares, 3, 5.51 * eps).converged) << s;
        const Estimate rounded = dense_norm(squares, 3, 5.49 * eps);
        EXPECT_FALSE(rounded.converged) << s;
        EXPECT_EQ(rounded.value, value);
        // Each a root that is rounded: 11 eps of the square are 5.5 of the value.
        EXPECT_NEAR(*rounded.low, (1 - 5.5 * eps) * value, eps * value);
        EXPECT_NEAR(*rounded.high, (1 + 5.5 * eps) * value, eps * value);
        const double e = 1e-3;  // e (2 + e) of the square
        EXPECT_TRUE(dense_norm(squares, 3, 1.0006e-3, e * value).converged) << s;
        const Estimate apart = dense_norm(squares, 3, 1.0004e-3, e * value);
        EXPECT_FALSE(apart.converged) << s;
        EXPECT_NEAR(*apart.low, (1 - e) * value, 1e-14 * value);
        EXPECT_NEAR(*apart.high, (1 + e) * value, 1e-14 * value);
    }
    const std::vector<double> rounding = {-1e-20, 1e-20};
    const Estimate lost = dense_norm(rounding, 2, 1e-6, 2.0);
    EXPECT_FALSE(lost.converged);
    EXPECT_EQ(lost.low, 0);
    EXPECT_NEAR(*lost.high, 2, 1e-9);
    EXPECT_TRUE(dense_norm(std::vector<double>{0.0}, 1, 1e-6).converged);
}

/// Elsner's bound, 2 |A| (e / 2 |A|)^(1/n) for an error e, and what the norm says of all.
TEST(DenseEigenvalue, OfATensorThatIsNotCertainIsAnInterval) {
    const std::vector<double> entries = {1, 0, 0, 0.25};
    const Tensor a =
        Tensor::from_host(cpu(), {1, 2, 2}, std::span<const double>(entries), Type::f64);
    const double norm = std::sqrt(1.0625);
    for (const double e : {1e-4, 0.04}) {
        const double radius = 2 * norm * std::sqrt(e / (2 * norm));
        const Estimate first = dense_eigenvalue(a, 1, 1e-6, e).value(),
                       second = dense_eigenvalue(a, 2, 1e-6, e).value();
        EXPECT_FALSE(first.converged || second.converged);
        // Rounding is 5e-12 of an error of 1e-4.
        EXPECT_NEAR(*first.low, 1 - radius, 1e-9);
        EXPECT_NEAR(*first.high, std::min(norm, 1 + radius), 1e-9);
        EXPECT_NEAR(*second.low, std::max(0.0, 0.25 - radius), 1e-9);
        EXPECT_NEAR(*second.high, 0.25 + radius, 1e-9);
    }
    EXPECT_TRUE(dense_eigenvalue(a, 2, 1e-6, 2.4e-7).value().converged);  // of 2.5e-7
    EXPECT_FALSE(dense_eigenvalue(a, 2, 1e-6, 2.6e-7).value().converged);
}

/// By Bauer and Fike, with Frobenius norms, the eigenvalues of all matrices within e of (1, 1/2)
/// lie in discs of radius 2 e about these.  Where they meet, both are in their union, which the
/// norm bounds.
TEST(DenseEigenvalue, OfDiscsThatMeetIsInTheirUnion) {
    const std::vector<double> entries = {1, 0, 0, 0.5};
    const double norm = std::sqrt(1.25);
    const Estimate apart[] = {dense_eigenvalue(entries, 2, 1, 1e-6, 0.12),
                              dense_eigenvalue(entries, 2, 2, 1e-6, 0.12)};
    EXPECT_NEAR(apart[0].low.value(), 1 - 0.24, 1e-12);  // rounding of a few entries
    EXPECT_NEAR(apart[0].high.value(), norm + 0.12, 1e-12);
    EXPECT_NEAR(apart[1].low.value(), 0.5 - 0.24, 1e-12);
    EXPECT_NEAR(apart[1].high.value(), 0.5 + 0.24, 1e-12);
    for (const Index rank : {1, 2}) {
        const Estimate met = dense_eigenvalue(entries, 2, rank, 1e-6, 0.13);
        EXPECT_FALSE(met.converged);
        EXPECT_NEAR(met.low.value(), 0.5 - 0.26, 1e-12) << rank;
        EXPECT_NEAR(met.high.value(), norm + 0.13, 1e-12) << rank;
    }
}

/// All within e of one number: its modulus less and more e.
TEST(DenseEigenvalue, OfOneRowIsAnIntervalOfItsError) {
    for (const double scale : {0x1p-300, 1.0, 0x1p300}) {
        const std::vector<double> one = {-2 * scale}, zero = {0};
        const Estimate found = dense_eigenvalue(one, 1, 1, 1e-6, scale / 2);
        EXPECT_FALSE(found.converged) << scale;
        EXPECT_EQ(found.value, 2 * scale);
        EXPECT_NEAR(*found.low / scale, 1.5, 1e-14);  // some roundings outwards
        EXPECT_NEAR(*found.high / scale, 2.5, 1e-14);
        EXPECT_LE(*found.low, 1.5 * scale);
        EXPECT_GE(*found.high, 2.5 * scale);
        EXPECT_TRUE(dense_eigenvalue(one, 1, 1, 1e-6, 1.9e-6 * scale).converged) << scale;
        EXPECT_FALSE(dense_eigenvalue(one, 1, 1, 1e-6, 2.1e-6 * scale).converged) << scale;
        const Estimate none = dense_eigenvalue(zero, 1, 1, 1e-6, scale);
        EXPECT_FALSE(none.converged);
        EXPECT_EQ(none.low, 0);
        EXPECT_NEAR(*none.high / scale, 1, 1e-14);
    }
    EXPECT_TRUE(dense_eigenvalue(std::vector<double>{3}, 1, 2).converged);  // there is no second
    EXPECT_EQ(dense_eigenvalue(std::vector<double>{3}, 1, 2).value, 0);
}

TEST(SpectralRadius, EqualsTheDenseOne) {
    for (Index n : {1, 2, 3, 20, 31, 32, 33, 64, 150}) {
        const Matrix a = gaussian(n, n, 70 + std::uint64_t(n));
        const Estimate e = spectral_radius(map_of(a));
        EXPECT_TRUE(e.converged) << n;
        EXPECT_CLOSE(e.value, eigen_moduli(a)[0], stopped_at(1e-7));
        EXPECT_LE(e.residual, 1e-8 * e.value + 1e-12);
        EXPECT_LE(e.iterations, n);
    }
}

TEST(SpectralRadius, OfZeroAndOfTheIdentity) {
    const Matrix zero(40, 40);
    EXPECT_EQ(spectral_radius(map_of(zero)).value, 0);
    EXPECT_TRUE(spectral_radius(map_of(zero)).converged);
    Matrix identity(40, 40);
    for (Index i = 0; i < 40; ++i) identity(i, i) = 1;
    const Estimate e = spectral_radius(map_of(identity));
    EXPECT_CLOSE(e.value, 1, rounding(40));
    EXPECT_EQ(e.iterations, 1);
}

/// A diagonal of 1/4 that begins with these numbers.
Matrix diagonal(Index n, const std::vector<double>& first) {
    Matrix a(n, n);
    for (Index i = 0; i < n; ++i) a(i, i) = i < std::ssize(first) ? first[std::size_t(i)] : 0.25;
    return a;
}

TEST(SpectralRadius, OfRankTwoCountsALeadingEigenvalueAsOftenAsItIsThere) {
    const auto second = [](const Matrix& a) { return spectral_radius(map_of(a), 1e-8, 384, 2); };
    for (const Index n : {2, 3, 40, 200}) {
        for (const double other : {1.0, 1 - 1e-12, -1.0, 0.5}) {
            const Estimate e = second(diagonal(n, {1, other}));
            EXPECT_TRUE(e.converged) << n << ", " << other;
            EXPECT_CLOSE(e.value, std::abs(other), stopped_at(1e-6));
        }
        EXPECT_CLOSE(second(diagonal(n, {})).value, 0.25, stopped_at(1e-6));
        EXPECT_CLOSE(second(diagonal(n, {1})).value, 0.25, stopped_at(1e-6));
    }
    Matrix pair = diagonal(40, {0, 0});  // i and -i
    pair(0, 1) = 1, pair(1, 0) = -1;
    EXPECT_TRUE(second(pair).converged);
    EXPECT_CLOSE(second(pair).value, 1, stopped_at(1e-6));
}

TEST(SpectralRadius, ReportsThatItDidNotConverge) {
    const Matrix a = gaussian(200, 200, 12);  // a dense edge
    const Estimate e = spectral_radius(map_of(a), 1e-8, 20);
    EXPECT_FALSE(e.converged);
    EXPECT_EQ(e.iterations, 20);
    EXPECT_GT(e.residual, 1e-8 * e.value);
    EXPECT_EQ(e.low, 0);
}

TEST(SpectralRadius, IsNotFooledByAStronglyNonNormalMap) {
    // Triangular with a small diagonal and large entries above: the radius is 0.5, the
    // pseudospectrum is not.
    const Index n = 120;
    Matrix a(n, n);
    for (Index i = 0; i < n; ++i) {
        a(i, i) = 0.5 * double(i) / double(n - 1);
        for (Index j = i + 1; j < n; ++j) a(i, j) = 1;
    }
    const Estimate e = spectral_radius(map_of(a));
    EXPECT_TRUE(!e.converged || std::abs(e.value - 0.5) < 1e-6) << e.value;
}

TEST(LargestSingularValue, EqualsTheDenseOne) {
    for (auto [m, n] :
         {std::pair<Index, Index>{1, 1}, {3, 8}, {8, 3}, {60, 60}, {200, 90}, {90, 200}}) {
        const Matrix a = gaussian(m, n, std::uint64_t(m + 1000 * n));
        const Estimate e = largest_singular_value(map_of(a));
        EXPECT_TRUE(e.converged);
        EXPECT_CLOSE(e.value, singular_values(a.a, m, n)[0], stopped_at(1e-8));
    }
}

TEST(LargestSingularValue, OfZeroRankOneAndOrthogonal) {
    EXPECT_EQ(largest_singular_value(map_of(Matrix(30, 30))).value, 0);
    Matrix one(30, 20, 1.0);
    EXPECT_CLOSE(largest_singular_value(map_of(one)).value, std::sqrt(600.0), rounding(60));
    Matrix cycle(30, 30);
    for (Index i = 0; i < 30; ++i) cycle(i, (i + 1) % 30) = 3;
    EXPECT_CLOSE(largest_singular_value(map_of(cycle)).value, 3, rounding(60));
}

TEST(LargestSingularValue, ReportsALowerBoundWhenStopped) {
    const Matrix a = gaussian(300, 300, 4);
    const Estimate e = largest_singular_value(map_of(a), 1e-12, 6);
    const double exact = singular_values(a.a, 300, 300)[0];
    EXPECT_FALSE(e.converged);
    EXPECT_LT(e.value, exact);
    EXPECT_CLOSE(*e.low, e.value, rounding(10000));
}

TEST(LargestSingularValue, DoesNotTakeTheMeanOfAClusterForItsLargest) {
    // Two values 1e-5 apart, the others far below: a Ritz value between them has a residual of 1e-5
    // and a gap of 1.
    const Index n = 200;
    Matrix a(n, n);
    for (Index i = 0; i < n; ++i) a(i, i) = 0.5 * double(i) / double(n);
    a(3, 3) = 1;
    a(7, 7) = 1 - 1e-5;
    const Estimate e = largest_singular_value(map_of(a), 1e-8, 384);
    EXPECT_TRUE(e.converged);
    EXPECT_CLOSE(e.value, 1, stopped_at(1e-8));
}

// The library Spectra.

TEST(Restarted, EigenvalueEqualsTheDenseOne) {
    for (Index n : {least_restarted, Index(40), Index(300)}) {
        const Matrix a = gaussian(n, n, 31 + std::uint64_t(n));
        const std::vector<double> expected = eigen_moduli(a);
        for (Index rank : {1, 2}) {
            const Estimate e = restarted_eigenvalue(map_of(a), 1e-10, rank);
            EXPECT_TRUE(e.converged) << n;
            EXPECT_EQ(e.method, "spectra");
            EXPECT_LE(e.residual, 1e-8 * e.value) << n;
            EXPECT_CLOSE(e.value, expected[std::size_t(rank - 1)], stopped_at(1e-8)) << n;
        }
    }
}

TEST(Restarted, SingularValueEqualsTheDenseOne) {
    for (Index n : {least_restarted, Index(40), Index(300)}) {
        const Matrix a = gaussian(n + 3, n, 57 + std::uint64_t(n));
        const Estimate e = restarted_singular_value(map_of(a));
        EXPECT_LE(e.residual, 1e-5 * e.value) << n;  // of A^T A, over the singular value
        EXPECT_TRUE(e.converged) << n;
        EXPECT_CLOSE(e.value, singular_values(a.a, n + 3, n)[0], stopped_at(1e-10));
    }
}

/// Two blocks of equal entries: 2, twice, and zeros, where Spectra has said 216.
TEST(Restarted, AValueIsAtMostTheNorm) {
    for (const Index n : {130, 150, 300})
        for (const double dust : {0.0, 1e-20, 1e-14}) {
            Matrix a(n, n);
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < n; ++j)
                    a(i, j) = (i < n / 2) == (j < n / 2) ? 4 / double(n) : dust;
            EXPECT_LE(restarted_eigenvalue(map_of(a), 1e-10, 2).value, 2 + 1e-6)
                << n << ", " << dust;
            EXPECT_LE(restarted_singular_value(map_of(a)).value, 2 + 1e-6) << n << ", " << dust;
        }
}

TEST(Restarted, ValuesOfTheZeroMapAreZero) {
    const Matrix zero(20, 20);
    for (const Estimate& e :
         {restarted_eigenvalue(map_of(zero)), restarted_singular_value(map_of(zero))}) {
        EXPECT_TRUE(e.converged);
        EXPECT_EQ(e.value, 0);
    }
}

/// `a` as a linear map that counts its products in `count`.
LinearMap counted(const Matrix& a, Index& count) {
    const LinearMap inner = map_of(a);
    LinearMap map = inner;
    map.normal = nullptr;
    map.apply = [&count, apply = inner.apply](std::span<const double> x, std::span<double> y) {
        ++count;
        apply(x, y);
    };
    return map;
}

TEST(Restarted, CountsItsProducts) {
    // One product detects a zero map; every other map needs that one first.
    const Matrix zero(20, 20), a = gaussian(40, 40, 12);
    Index count = 0;
    EXPECT_EQ(restarted_eigenvalue(counted(zero, count)).iterations, 1);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(restarted_singular_value(counted(zero, count)).iterations, 1);
    EXPECT_EQ(count, 2);
    count = 0;
    const Index eigen = restarted_eigenvalue(counted(a, count)).iterations;
    EXPECT_EQ(count, eigen + 1);
    count = 0;
    const Index singular = restarted_singular_value(counted(a, count)).iterations;
    EXPECT_EQ(count, singular + 1);
}

TEST(Restarted, ResidualOfASingularValueHasItsScale) {
    // A power of two changes no digit of the iteration; stopped early, its residual is not 0.
    Matrix a(600, 600);  // singular values too close to be separated quickly
    for (Index i = 0; i < 600; ++i) a(i, i) = 1 + double(i) / 600;
    const Estimate one = restarted_singular_value(map_of(a), 1e-3);
    ASSERT_GT(one.residual, 1e-9 * one.value);
    for (const int k : {-20, 20}) {
        Matrix far = a;
        for (double& e : far.a) e = std::ldexp(e, k);
        const Estimate e = restarted_singular_value(map_of(far), 1e-3);
        EXPECT_CLOSE(std::ldexp(e.value, -k), one.value, rounding(64));
        EXPECT_CLOSE(std::ldexp(e.residual, -k), one.residual, stopped_at(1e-6));
    }
}

TEST(Restarted, ValuesOfASmallMapAreThoseOfALargeOne) {
    const Matrix a = gaussian(150, 150, 8);
    const Estimate second = restarted_eigenvalue(map_of(a), 1e-10, 2),
                   singular = restarted_singular_value(map_of(a));
    for (const int k : {-66, -300}) {
        Matrix far = a;
        for (double& e : far.a) e = std::ldexp(e, k);
        const Estimate small = restarted_eigenvalue(map_of(far), 1e-10, 2);
        EXPECT_TRUE(small.converged) << k;
        EXPECT_CLOSE(std::ldexp(small.value, -k), second.value, stopped_at(1e-8));
        EXPECT_CLOSE(std::ldexp(restarted_singular_value(map_of(far)).value, -k), singular.value,
                     stopped_at(1e-8));
    }
}

TEST(Restarted, SaysThatItDidNotConverge) {
    // Orthogonal: all moduli are 1, and none dominates.
    const Matrix drawn = gaussian(300, 300, 5);
    Matrix q(300, 300);
    Eigen::Map<Row>(q.a.data(), 300, 300) =
        Eigen::HouseholderQR<Eigen::MatrixXd>(eigen(drawn)).householderQ();
    EXPECT_FALSE(restarted_eigenvalue(map_of(q)).converged);
}

TEST(Stacks, AdvanceTheirMapsTogether) {
    const Matrix a = gaussian(50, 50, 1), b = gaussian(50, 50, 2);
    const LinearMap one = map_of(a), two = map_of(b);
    const auto both = [](const auto& f, const auto& g) {
        return [&f, &g](std::span<const double> x, std::span<double> y) {
            f(x.first(50), y.first(50));
            g(x.subspan(50), y.subspan(50));
        };
    };
    const LinearMap stack{.rows = 100,
                          .cols = 100,
                          .apply = both(one.apply, two.apply),
                          .transpose = both(one.transpose, two.transpose)};
    const auto radii = spectral_radii(stack, 2);
    EXPECT_CLOSE(radii[0].value, spectral_radius(one).value, exactly);
    EXPECT_CLOSE(radii[1].value, spectral_radius(two).value, exactly);
    const auto norms = largest_singular_values(stack, 2);
    EXPECT_CLOSE(norms[1].value, largest_singular_value(two).value, exactly);
}

/// The first search of one map ends long before that of the other.
TEST(Stacks, SearchBesideTheLeadersOfTheirMaps) {
    Matrix a = gaussian(50, 50, 1);
    for (Index i = 0; i < 50; ++i) a(i, i) += 20;
    const Matrix b = diagonal(50, {1, 1});
    const LinearMap one = map_of(a), two = map_of(b);
    const LinearMap stack{.rows = 100,
                          .cols = 100,
                          .apply =
                              [&](std::span<const double> x, std::span<double> y) {
                                  one.apply(x.first(50), y.first(50));
                                  two.apply(x.subspan(50), y.subspan(50));
                              },
                          .transpose = {}};
    const auto found = spectral_radii(stack, 2, 1e-8, 384, 2);
    EXPECT_CLOSE(found[0].value, spectral_radius(one, 1e-8, 384, 2).value, exactly);
    EXPECT_CLOSE(found[1].value, 1, stopped_at(1e-6));
    std::vector<double> entries = a.a;
    entries.insert(entries.end(), b.a.begin(), b.a.end());
    const Tensor tensor =
        Tensor::from_host(cpu(), {2, 50, 50}, std::span<const double>(entries), Type::f64);
    const StackMap map{.backend = cpu(), .count = 2, .n = 50, .apply = [&](const Tensor& x) {
                           return matvec(tensor, x);
                       }};
    const auto of_tensors = spectral_radii(map, 1e-8, 384, 2);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(of_tensors[i].converged);
        EXPECT_CLOSE(of_tensors[i].value, found[i].value, stopped_at(1e-6));
    }
}

TEST(Products, EqualTheNaiveOnesInBothTypesAndForEveryRemainder) {
    for (Index n : {1, 3, 4, 5, 8, 15, 16, 17, 33, 64, 67}) {
        const Index m = n + 2;
        const Matrix a = gaussian(m, n, std::uint64_t(n)), x = gaussian(n, 1, 2),
                     z = gaussian(m, 1, 3);
        std::vector<float> narrow(a.a.begin(), a.a.end());
        Matrix widened(m, n, std::vector<double>(narrow.begin(), narrow.end()));
        const View views[] = {view_of(a), {narrow.data(), {1, m, n}, m * n, n, Type::f32}};
        const Matrix* exact[] = {&a, &widened};
        for (int k = 0; k < 2; ++k) {
            std::vector<double> y(std::size_t(m), 7.0), t(std::size_t(n), 0.0), l = t;
            multiply(views[k], x.a, y);
            EXPECT_ALL_CLOSE(y, naive::product(*exact[k], x).a, rounding(double(n)));
            add_transposed(views[k], 2, z.a, t);
            for (double& e : t) e /= 2;
            EXPECT_ALL_CLOSE(t, naive::product(naive::transposed(*exact[k]), z).a,
                             rounding(double(m)));
            std::vector<double> w(std::size_t(m), 1.0), column(std::size_t(n), 0.0);
            add_transposed(views[k], 1, w, column);
            normal_product(views[k], w, column, x.a, l);
            const Matrix c = naive::centred(*exact[k]);
            EXPECT_ALL_CLOSE(l, naive::product(naive::transposed(c), naive::product(c, x)).a,
                             rounding(20 * double(m)));
            EXPECT_CLOSE(largest_row_distance(views[k]), 2 * naive::dobrushin(*exact[k]),
                         rounding(double(n)));
        }
    }
}

TEST(Products, CentredNormalKeepsItsAccuracyNearRankOne) {
    // Rows 1 s^T + 1e-9 G, s of norm 1: A^T A taken without centring first would lose all digits.
    const Index n = 64;
    Matrix g = gaussian(n, n, 6), a(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            a(i, j) = (j == 0) + std::ldexp(std::round(g(i, j) * 64), -36);
    const std::vector<double> w(std::size_t(n), 1.0);
    std::vector<double> column(std::size_t(n), 0.0), y = column;
    add_transposed(view_of(a), 1, w, column);
    const Matrix x = gaussian(n, 1, 7), c = naive::centred(a);
    normal_product(view_of(a), w, column, x.a, y);
    const Matrix exact = naive::product(naive::transposed(c), naive::product(c, x));
    EXPECT_ALL_CLOSE(y, exact.a, rounding(double(n) / 1e-8));
}

TEST(ToeplitzForms, EqualTheNaiveOnesForEveryRemainder) {
    for (Index m : {1, 2, 5, 8, 23})
        for (Index rows : {1, 3, 4, 9}) {
            Matrix g = gaussian(m + 2, m + 2, 1);
            for (Index k = 0; k < g.rows; ++k)
                for (Index l = 0; l < k; ++l) g(k, l) = g(l, k);
            const Matrix a = gaussian(rows, m, 2), b = gaussian(rows, m, 3),
                         c = gaussian(rows, m, 4);
            std::vector<double> expected;
            for (Index i = 0; i < rows; ++i) {
                double sum = 0;
                for (Index k = 0; k < m; ++k)
                    for (Index l = 0; l < m; ++l)
                        sum += a(i, k) * g(k, l) * c(i, std::abs(k - l)) * b(i, l);
                expected.push_back(sum);
            }
            // Sums of m^2 products of four normal numbers, whose moduli reach a few hundred.
            const Tolerance sums = {.absolute = 1e-13 * double(m * m), .reason = "rounding"};
            EXPECT_ALL_CLOSE(toeplitz_forms(view_of(g), view_of(a), view_of(b), view_of(c)),
                             expected, sums);
        }
}

TEST(LargestRowDistance, IsRightToDoubleWhereFloatSumsTie) {
    const Index n = 300;
    std::vector<float> p(std::size_t(n * n),
                         0.0F);  // identity but for one entry above 1 by one rounding
    for (Index i = 0; i < n; ++i) p[std::size_t(i * n + i)] = 1;
    p[std::size_t(7 * n + 7)] = std::nextafter(1.0F, 2.0F);
    const View view{p.data(), {1, n, n}, n * n, n, Type::f32};
    EXPECT_CLOSE(largest_row_distance(view), 2 + double(std::numeric_limits<float>::epsilon()),
                 exactly);
}

/// The largest of all distances, in the sums of each row's own order.
double naive_row_distance(const Tensor& a) {
    const std::vector<double> x = a.to_host<double>();
    const Index n = a.cols();
    double worst = 0;
    for (Index i = 0; i < a.rows(); ++i)
        for (Index j = 0; j < i; ++j) {
            double sum = 0;
            for (Index c = 0; c < n; ++c)
                sum += std::abs(x[std::size_t(i * n + c)] - x[std::size_t(j * n + c)]);
            worst = std::max(worst, sum);
        }
    return worst;
}

/// Rows whose bytes are far from them, equal to them, or mean nothing.
TEST(LargestRowDistance, EqualsTheNaiveOneForRowsOfEveryKind) {
    const auto kinds =
        std::vector<std::pair<const char*, std::function<double(Index, Index, double)>>>{
            {"drawn", [](Index, Index, double u) { return u; }},
            {"signed", [](Index, Index, double u) { return u - 0.5; }},
            {"saturated", [](Index, Index, double u) { return std::exp(40 * u); }},
            {"one hot", [](Index i, Index c, double) { return c == 7 * i % 5 ? 1.0 : 0.0; }},
            {"equal", [](Index, Index c, double) { return 1 / double(c + 1); }},
            {"nearly equal", [](Index, Index, double u) { return 0.25 + std::ldexp(u, -20); }},
            {"sink", [](Index, Index c, double u) { return c == 3 ? 1 - u / 64 : u / 1024; }},
            {"one row apart", [](Index i, Index, double u) { return i == 9 ? u : 0.0; }}};
    for (const auto& [name, entry] : kinds)
        for (const double scale : {1.0, 0x1p60, 0x1p-60})
            for (const auto& [rows, cols] :
                 {std::pair<Index, Index>{1, 9}, {2, 1}, {33, 64}, {150, 70}, {140, 300}})
                for (const Type type : {Type::f32, Type::f64}) {
                    auto values = std::vector<double>(std::size_t(rows * cols));
                    Rng(std::uint64_t(rows)).fill_uniform(values, 0, 1);
                    for (Index i = 0; i < rows; ++i)
                        for (Index c = 0; c < cols; ++c) {
                            double& x = values[std::size_t(i * cols + c)];
                            x = scale * entry(i, c, x);
                        }
                    const Tensor a = Tensor::from_host(cpu(), {1, rows, cols},
                                                       std::span<const double>(values), type);
                    EXPECT_CLOSE(largest_row_distance(a.view()), naive_row_distance(a),
                                 rounding(double(cols)))
                        << name << ' ' << scale << ' ' << rows << " x " << cols;
                }
}

TEST(LargestRowDistance, IsThatOfNumbersBeyondTheSquaresOfDoubles) {
    for (const double scale : {0x1p-1000, 0x1p1000}) {
        const std::vector<double> x = {0, scale, 3 * scale, scale, 2 * scale, 0};
        const Tensor a = Tensor::from_host(cpu(), {1, 3, 2}, std::span<const double>(x), Type::f64);
        EXPECT_EQ(largest_row_distance(a.view()), 3 * scale);
    }
}

}  // namespace
}  // namespace tsdiag
