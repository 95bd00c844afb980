#include <gtest/gtest.h>
#include <omp.h>

#include <Eigen/Eigenvalues>
#include <cmath>
#include <limits>

#include "attention/heads.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;

Eigen::MatrixXd eigen(const Matrix& a) {
    return Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
        a.a.data(), a.rows, a.cols);
}

/// Moduli of all eigenvalues by another implementation, the largest first.
std::vector<double> dense_moduli(const Eigen::MatrixXd& a) {
    const Eigen::VectorXcd values = Eigen::EigenSolver<Eigen::MatrixXd>(a, false).eigenvalues();
    std::vector<double> moduli;
    for (const auto& value : values) moduli.push_back(std::abs(value));
    std::sort(moduli.rbegin(), moduli.rend());
    return moduli;
}

double dense_second(const Matrix& p) { return dense_moduli(eigen(p))[1]; }

/// |A|_2, the root of the largest eigenvalue of A^T A, independent of the library.
double spectral_norm(const Matrix& a) {
    return std::sqrt(dense_moduli(eigen(a).transpose() * eigen(a))[0]);
}

Estimate second(const Matrix& p, Type type = Type::f64) {
    return second_eigenvalue(*given(p, type)).front();
}
double delta(const Matrix& p) { return centred_norm(*given(p)).front().value; }

Matrix permutation(const std::vector<Index>& to) {
    Matrix p(Index(to.size()), Index(to.size()));
    for (std::size_t i = 0; i < to.size(); ++i) p(Index(i), to[i]) = 1;
    return p;
}

/// Tokens in another order: Q P Q^T.
Matrix permuted(const Matrix& p, std::uint64_t seed) {
    std::vector<Index> order;
    for (Index i = 0; i < p.rows; ++i) order.push_back(i);
    Rng rng(seed);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    Matrix q(p.rows, p.cols);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.cols; ++j)
            q(i, j) = p(order[std::size_t(i)], order[std::size_t(j)]);
    return q;
}

// Closed forms.

TEST(SecondEigenvalue, OfClosedForms) {
    const Index n = 12;
    EXPECT_EQ(second(Matrix(n, n, 1.0 / 12)).value, 0);  // uniform
    Matrix identity(n, n), rank_one(n, n);
    for (Index i = 0; i < n; ++i) {
        identity(i, i) = 1;
        for (Index j = 0; j < n; ++j) rank_one(i, j) = (1.0 + double(j)) / 78;
    }
    EXPECT_EQ(second(identity).value, 1);
    EXPECT_EQ(second(rank_one).value, 0);
    // Two states: 1 - a - b.
    EXPECT_CLOSE(second({2, 2, {0.7, 0.3, 0.4, 0.6}}).value, 0.3, rounding(4));
    EXPECT_CLOSE(second({2, 2, {0.1, 0.9, 0.8, 0.2}}).value, 0.7, rounding(4));
    // Lazy cycle (1 + C)/2: |1 + exp(2 pi i/n)| / 2.
    Matrix lazy(n, n);
    for (Index i = 0; i < n; ++i) lazy(i, i) = lazy(i, (i + 1) % n) = 0.5;
    EXPECT_CLOSE(second(lazy).value, std::cos(M_PI / double(n)), rounding(100 * n));
}

TEST(SecondEigenvalue, OfLargeRankOneAndUniformIsZeroInBothTypes) {
    const Index n = 300;
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) p(i, j) = 2 * (1.0 + double(j)) / double(n * (n + 1));
    for (Type type : {Type::f32, Type::f64}) {
        const Estimate e = second(p, type);
        EXPECT_EQ(e.value, 0) << e.method;
        EXPECT_TRUE(e.converged);
    }
}

TEST(SecondEigenvalue, OfPermutationsIsOne) {
    for (Index n : {2, 3, 16, 200, 333}) {
        std::vector<Index> cycle, swap;
        for (Index i = 0; i < n; ++i) cycle.push_back((i + 1) % n), swap.push_back(n - 1 - i);
        EXPECT_EQ(second(permutation(cycle)).value, 1);
        EXPECT_EQ(second(permutation(cycle)).method, "period");
        EXPECT_EQ(second(permutation(swap)).value, 1);
    }
}

TEST(SecondEigenvalue, OfAPeriodicChainThatIsNoPermutationIsOne) {
    const Index n = 200;  // bipartite: even tokens see odd ones, odd ones see even ones
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 1 - i % 2; j < n; j += 2) p(i, j) = 2.0 / double(n);
    EXPECT_EQ(second(p).value, 1);
    EXPECT_EQ(second(p).method, "period");
}

TEST(SecondEigenvalue, OfReducibleChains) {
    const Matrix a = naive::softmax(noise(30, 1, 1)), b = naive::softmax(noise(20, 1, 2));
    Matrix two(50, 50), leaking(50, 50);
    for (Index i = 0; i < 30; ++i)
        for (Index j = 0; j < 30; ++j) two(i, j) = a(i, j), leaking(i, j) = 0.9 * a(i, j);
    for (Index i = 0; i < 20; ++i)
        for (Index j = 0; j < 20; ++j) two(30 + i, 30 + j) = leaking(30 + i, 30 + j) = b(i, j);
    for (Index i = 0; i < 30; ++i) leaking(i, 40) = 0.1;  // a closed class and a transient one
    for (std::uint64_t seed : {1, 2}) {
        EXPECT_EQ(second(permuted(two, seed)).value, 1);
        const Estimate e = second(permuted(leaking, seed));
        EXPECT_EQ(e.method, "classes");
        EXPECT_CLOSE(e.value, 0.9, rounding(1000));
        EXPECT_TRUE(e.converged);
    }
}

TEST(SecondEigenvalue, OfCausalHeadsIsTheDiagonal) {
    for (Index n : {2, 5, 64, 512}) {
        const Matrix p = naive::softmax(noise(n, 2, std::uint64_t(n)), true);
        double expected = 0;
        for (Index i = 1; i < n; ++i) expected = std::max(expected, p(i, i));
        const auto causal = given_attention(one_head(p), true, "softmax");
        const Estimate e = second_eigenvalue(*causal).front();
        EXPECT_EQ(e.value, expected);
        EXPECT_EQ(e.method, "diagonal");
        // Undeclared, and even with its tokens shuffled, it is recognised as triangular.
        EXPECT_EQ(second(p).value, expected);
        EXPECT_EQ(second(permuted(p, 3)).value, expected);
        EXPECT_EQ(second(permuted(p, 3)).method, "diagonal");
        std::vector<double> diagonal = row_statistics(causal->rows(0, n)).diagonal;
        EXPECT_EQ(second_eigenvalue(diagonal).value, expected);
    }
}

TEST(SecondEigenvalue, OfWindowedCausalHeadsIsTheDiagonal) {
    AttentionInput in = drawn_input(2, 40, 8, Type::f32, 1);
    in.causal = true;
    in.window = 6;
    const auto op = attention("softmax").make(in);
    const auto found = second_eigenvalue(*op);
    for (Index k = 0; k < 2; ++k) {
        const Matrix p = naive::matrix_of(op->matrix(), k);
        double expected = 0;
        for (Index i = 1; i < 40; ++i) expected = std::max(expected, p(i, i));
        EXPECT_EQ(found[std::size_t(k)].value, expected);
    }
}

TEST(SecondEigenvalue, OfADefectiveChain) {
    // lambda_2 = 1/2 with a Jordan block of two, irreducible: 1 pi^T + (v w^T structure) on 1-perp.
    const Matrix p(3, 3, {0.5, 0.25, 0.25, 0.0, 0.75, 0.25, 0.25, 0.25, 0.5});
    const Estimate e = second(p);
    EXPECT_CLOSE(e.value, dense_second(p), stopped_at(1e-6));
    // Triangular and defective: the diagonal, exactly.
    Matrix chain(40, 40);
    chain(0, 0) = 1;
    for (Index i = 1; i < 40; ++i) chain(i, i) = chain(i, i - 1) = 0.5;
    EXPECT_EQ(second(chain).value, 0.5);
    EXPECT_EQ(second(permuted(chain, 7)).value, 0.5);
}

TEST(SecondEigenvalue, OfADefectiveChainWithoutZerosIsRightOrSaysThatItIsNot) {
    // The chain above, mixed with the uniform one: lambda_2 = 0.5 * 0.9 of multiplicity 39 in one
    // Jordan block.
    for (Index n : {8, 40, 300}) {
        Matrix p(n, n);
        p(0, 0) = 1;
        for (Index i = 1; i < n; ++i) p(i, i) = p(i, i - 1) = 0.5;
        for (double& e : p.a) e = 0.9 * e + 0.1 / double(n);
        const Estimate e = second(p);
        if (e.converged) {
            EXPECT_CLOSE(e.value, 0.45, stopped_at(1e-6)) << n;
        } else {
            ASSERT_TRUE(e.low && e.high) << n;
            EXPECT_LE(*e.low, 0.45 * (1 + 1e-9)) << n;
            EXPECT_GE(*e.high, 0.45) << n;
        }
    }
}

/// Tokens in three equal groups; a token gives its own group 0.2 and the next one 0.8, spread at
/// random.  Such a chain is lumpable: the eigenvalues 0.2 + 0.8 w, w^3 = 1, are those of its
/// groups, the others are of the size of n^-1/2.
Matrix turning(Index n, std::uint64_t seed) {
    const Matrix logits = noise(n, 1, seed);
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index step : {0, 1}) {
            const Index first = (3 * i / n + step) % 3 * (n / 3);
            double sum = 0;
            for (Index j = first; j < first + n / 3; ++j) sum += p(i, j) = std::exp(logits(i, j));
            for (Index j = first; j < first + n / 3; ++j) p(i, j) *= (step ? 0.8 : 0.2) / sum;
        }
    return p;
}

TEST(SecondEigenvalue, OfAComplexPair) {
    for (Index n : {60, 300, 999}) {
        const Estimate e = second(turning(n, 4));
        EXPECT_TRUE(e.converged) << n;
        EXPECT_CLOSE(e.value, std::sqrt(0.52), stopped_at(1e-6)) << n << e.method;
    }
    // All eigenvalues on a curve, the leading pair close to others: a walk on a circle, mixed.
    const Index n = 300;
    Matrix p(n, n, 0.1 / double(n));
    for (Index i = 0; i < n; ++i) {
        p(i, (i + 1) % n) += 0.9 * 0.6;
        p(i, i) += 0.9 * 0.1;
        p(i, (i + n - 1) % n) += 0.9 * 0.3;
    }
    const double angle = 2 * M_PI / double(n);
    const Estimate e = second(p);
    EXPECT_TRUE(e.converged);
    EXPECT_CLOSE(e.value, 0.9 * std::hypot(0.1 + 0.9 * std::cos(angle), 0.3 * std::sin(angle)),
                 stopped_at(1e-6));
}

TEST(SecondEigenvalue, OfANearlyPeriodicChain) {
    // A cycle with a leak: every eigenvalue but 1 has the modulus 1 - leak.
    for (Index n : {50, 200})
        for (double leak : {1e-2, 1e-6}) {
            Matrix p(n, n, leak / double(n));
            for (Index i = 0; i < n; ++i) p(i, (i + 1) % n) += 1 - leak;
            const Estimate e = second(p);
            if (e.converged) {
                EXPECT_CLOSE(e.value, 1 - leak, stopped_at(1e-6)) << n;
            } else {
                ASSERT_TRUE(e.low && e.high) << n;
                EXPECT_LE(*e.low, (1 - leak) * (1 + 1e-9)) << n;
                EXPECT_GE(*e.high, (1 - leak) * (1 - 1e-9)) << n;
            }
        }
}

// Against another implementation.

class EveryFamily : public testing::TestWithParam<Family> {};

TEST_P(EveryFamily, SecondEigenvalueEqualsTheDenseOne) {
    for (Index n : {2, 7, 60, 200}) {
        const Matrix exact = naive::softmax(GetParam().logits(n, std::uint64_t(n)));
        const Matrix narrow = rounded_to_float(exact);
        const Estimate wide = second(exact), e = second(narrow, Type::f32);
        EXPECT_TRUE(wide.converged && e.converged) << n;
        EXPECT_CLOSE(wide.value, dense_second(exact), stopped_at(1e-6)) << n << wide.method;
        // In float32 rows sum to 1 only up to rounding, which limits the accuracy of lambda_2.
        Tolerance tolerance = stopped_at(1e-6);
        tolerance.absolute = epsilon(Type::f32);
        EXPECT_CLOSE(e.value, dense_second(narrow), tolerance) << n << e.method;
    }
}

TEST_P(EveryFamily, SecondEigenvalueEqualsTheDenseOneInExtendedPrecision) {
    using Wide = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
    const Index n = 140;  // found by Arnoldi
    const Matrix p = naive::softmax(GetParam().logits(n, 77));
    const auto values = Eigen::EigenSolver<Wide>(eigen(p).cast<long double>(), false).eigenvalues();
    std::vector<double> moduli;
    for (Index i = 0; i < n; ++i) moduli.push_back(double(std::abs(values[i])));
    std::sort(moduli.rbegin(), moduli.rend());
    const Estimate e = second(p);
    EXPECT_TRUE(e.converged);
    EXPECT_EQ(e.method, "arnoldi");
    EXPECT_CLOSE(e.value, moduli[1], stopped_at(1e-6));
}

TEST_P(EveryFamily, CentredNormEqualsTheDenseOne) {
    for (Index n : {2, 7, 60, 200}) {
        const Matrix p = naive::softmax(GetParam().logits(n, std::uint64_t(n)));
        const Estimate e = centred_norm(*given(p)).front();
        EXPECT_TRUE(e.converged) << n;
        EXPECT_CLOSE(e.value, spectral_norm(naive::centred(p)), stopped_at(1e-8)) << n;
    }
}

/// The stationary vector by squaring P, and the norm of D^1/2 (P - 1 pi^T) D^-1/2 by an SVD.
double naive_contraction(const Matrix& p) {
    Eigen::MatrixXd power = eigen(p);
    for (int k = 0; k < 40; ++k) {
        power *= power;
        for (Index i = 0; i < p.rows; ++i) power.row(i) /= power.row(i).sum();
    }
    Matrix b(p.rows, p.rows);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.rows; ++j)
            b(i, j) = std::sqrt(power(0, i)) * (p(i, j) - power(0, j)) / std::sqrt(power(0, j));
    return spectral_norm(b);
}

TEST_P(EveryFamily, StationaryNormEqualsTheDenseOneAndIsAtMostOne) {
    for (Index n : {2, 7, 60, 120}) {
        const Matrix p = naive::softmax(GetParam().logits(n, std::uint64_t(n)));
        const Contraction c = stationary_norm(*given(p)).front();
        ASSERT_TRUE(c.estimate.has_value()) << c.why_not;
        EXPECT_TRUE(c.estimate->converged);
        EXPECT_CLOSE(c.estimate->value, naive_contraction(p), stopped_at(1e-7)) << n;
        EXPECT_LE(c.estimate->value, 1 + 1e-12);
    }
}

TEST_P(EveryFamily, DobrushinEqualsTheNaiveOneAndBoundsTheSecondEigenvalue) {
    for (Index n : {2, 7, 60, 130}) {
        const Matrix p = naive::softmax(GetParam().logits(n, std::uint64_t(n)));
        const Matrix narrow = rounded_to_float(p);
        const double found = dobrushin(*given(p)).front();
        EXPECT_CLOSE(found, naive::dobrushin(p), rounding(double(n)));
        EXPECT_CLOSE(dobrushin(*given(narrow, Type::f32)).front(), naive::dobrushin(narrow),
                     rounding(double(n)));
        EXPECT_LE(second(p).value, found * (1 + 1e-6));
    }
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(families()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SecondEigenvalue, OfPIsThatOfItsOwnSpectrumWhereRowsDoNotSumToOne) {
    for (Index n : {2, 9, 120, 220}) {
        Matrix p = noise(n, 1, std::uint64_t(n));
        const Estimate e = second(p);
        EXPECT_TRUE(e.converged);
        EXPECT_CLOSE(e.value, dense_second(p), stopped_at(1e-6)) << n;
        for (Index i = 0; i < n; ++i)
            for (Index j = i + 1; j < n; ++j) p(i, j) = 0;
        std::vector<double> diagonal;
        for (Index i = 0; i < n; ++i) diagonal.push_back(p(i, i));
        EXPECT_EQ(second(permuted(p, 5)).value, second_eigenvalue(diagonal).value);
    }
}

TEST(SecondEigenvalue, IsRightAtTheSizeOfBert) {
    for (std::size_t f : {0, 3, 5}) {
        const Matrix p = naive::softmax(families()[f].logits(512, 9));
        const Estimate e = second(p);
        EXPECT_EQ(e.method, "arnoldi") << families()[f].name;
        EXPECT_CLOSE(e.value, dense_second(p), stopped_at(1e-6)) << families()[f].name;
    }
}

TEST(SecondEigenvalue, TreatsHeadsOneByOne) {
    const auto op = attention("softmax").make(drawn_input(5, 180, 8, Type::f32, 11));
    const auto found = second_eigenvalue(*op);
    const auto norms = centred_norm(*op);
    ASSERT_EQ(found.size(), 5U);
    for (Index k = 0; k < 5; ++k) {
        const Matrix p = naive::matrix_of(op->matrix(), k);
        EXPECT_CLOSE(found[std::size_t(k)].value, dense_second(p), stopped_at(1e-6));
        EXPECT_CLOSE(norms[std::size_t(k)].value, spectral_norm(naive::centred(p)),
                     stopped_at(1e-7));
    }
}

TEST_P(EveryFamily, NearlyCausalHeadsAreRightOrSayThatTheyAreNot) {
    // Causal but for a leak, (1 - leak) P + leak 1 1^T / n: lambda_2 is (1 - leak) times that of P.
    // It is so far from normal that Krylov and QR methods lose up to all digits, with residuals
    // at rounding level.
    for (Index n : {100, 200}) {
        Matrix p = naive::softmax(GetParam().logits(n, std::uint64_t(n)), true);
        const double leak = 1e-6;
        double expected = 0;
        for (Index i = 1; i < n; ++i) expected = std::max(expected, (1 - leak) * p(i, i));
        for (double& e : p.a) e = (1 - leak) * e + leak / double(n);
        const Estimate e = second(p);
        if (e.converged) {
            EXPECT_CLOSE(e.value, expected, stopped_at(1e-6)) << n << e.method;
        } else {
            ASSERT_TRUE(e.low && e.high);
            EXPECT_LE(*e.low, expected);
            EXPECT_GE(*e.high, expected);
        }
    }
}

TEST(Spectra, AreTheSameWhereEveryProductMakesPAnew) {
    for (Type type : {Type::f32, Type::f64})
        for (bool causal : {false, true}) {
            constexpr Index n = 300;
            AttentionInput in = drawn_input(3, n, 8, type, 21);
            in.causal = causal;
            const auto kept = attention("softmax").make(in),
                       streamed = attention("softmax").make(in);
            const double none = 96.0 * 3 * kept->bytes() / n;  // 96 rows at a time
            const auto second = second_eigenvalue(*kept),
                       again = second_eigenvalue(*streamed, none);
            const auto norm = centred_norm(*kept), anew = centred_norm(*streamed, none);
            for (std::size_t k = 0; k < 3; ++k) {
                EXPECT_TRUE(again[k].converged && anew[k].converged);
                EXPECT_EQ(again[k].value, second[k].value);  // to the last bit
                EXPECT_EQ(anew[k].value, norm[k].value);
            }
            EXPECT_FALSE(stationary_norm(*streamed, none).front().estimate.has_value());
        }
    const auto general = given(noise(150, 1, 3));
    EXPECT_CLOSE(second_eigenvalue(*general, 1e5).front().value, dense_second(noise(150, 1, 3)),
                 stopped_at(1e-6));
}

void expect_same(const std::vector<Estimate>& found, const std::vector<Estimate>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
        EXPECT_EQ(found[k].value, expected[k].value);  // to the last bit
        EXPECT_EQ(found[k].residual, expected[k].residual);
        EXPECT_EQ(found[k].iterations, expected[k].iterations);
        EXPECT_EQ(found[k].method, expected[k].method);
        EXPECT_EQ(found[k].low, expected[k].low);
        EXPECT_EQ(found[k].high, expected[k].high);
    }
}

TEST(Spectra, OfBothTogetherAreThoseOfEachAlone) {
    for (const Type type : {Type::f32, Type::f64})
        for (const Index n : {90, 303})
            for (const bool causal : {false, true}) {
                AttentionInput in = drawn_input(3, n, 8, type, 22);
                in.causal = causal;
                for (const double memory : {2e9, 96.0 * 3 * 3 * double(n) * 8}) {
                    const auto p = attention("softmax").make(in), q = attention("softmax").make(in);
                    const Spectra both = second_eigenvalue_and_norm(*p, memory);
                    expect_same(both.second, second_eigenvalue(*q, memory));
                    expect_same(both.norm, centred_norm(*q, memory));
                }
            }
    const auto general = given(noise(150, 1, 3));  // rows do not sum to 1: nothing is deflated
    const Spectra both = second_eigenvalue_and_norm(*general);
    expect_same(both.second, second_eigenvalue(*general));
    expect_same(both.norm, centred_norm(*general));
}

/// One head is shared by all threads, if it is large.
TEST(Spectra, OfOneLargeHeadDoNotDependOnTheThreads) {
    const int before = omp_get_max_threads();
    constexpr Index n = 1501;
    const auto found = [](double memory, double accuracy) {
        std::vector<Spectra> all;
        for (const int threads : {1, 3}) {
            omp_set_num_threads(threads);
            const auto p = attention("softmax").make(drawn_input(1, n, 8, Type::f32, 23));
            all.push_back(second_eigenvalue_and_norm(*p, memory, accuracy, "arnoldi"));
        }
        expect_same(all[1].second, all[0].second);
        expect_same(all[1].norm, all[0].norm);
        return all[0];
    };
    constexpr double enough = 2e9, streamed = 5e6, unattainable = 1e-17;
    EXPECT_TRUE(found(enough, usual_accuracy).second.front().converged);
    EXPECT_TRUE(found(streamed, usual_accuracy).second.front().converged);
    EXPECT_FALSE(found(enough, unattainable).second.front().converged);  // its interval, too
    omp_set_num_threads(before);
}

TEST(SecondEigenvalue, NeedsTwoTokensAndFiniteEntries) {
    EXPECT_THROW(second(Matrix(1, 1, 1.0)), Error);
    for (Index n : {20, 300}) {
        Matrix p = naive::softmax(noise(n, 1, 1));
        p(3, 4) = NAN;
        EXPECT_THROW(second(p), NonFiniteError) << n;
        EXPECT_THROW(centred_norm(*given(p)), NonFiniteError) << n;
        EXPECT_THROW(dobrushin(*given(p)), NonFiniteError);
    }
}

TEST(CentredNorm, OfClosedForms) {
    const Index n = 24;
    EXPECT_EQ(delta(Matrix(n, n, 1.0 / 24)), 0);
    Matrix identity(n, n), sink(n, n);
    for (Index i = 0; i < n; ++i) identity(i, i) = 1;
    EXPECT_CLOSE(delta(identity), 1, rounding(n));
    // Half of the rows see token 0, half see token 1: Pi2 P = u (e_0 - e_1)^T, |u| = sqrt(n)/2.
    for (Index i = 0; i < n; ++i) sink(i, i % 2) = 1;
    EXPECT_CLOSE(delta(sink), std::sqrt(double(n) / 2), rounding(n));
    EXPECT_GT(delta(sink), 1);  // no contraction bound by itself
}

TEST(CentredNorm, KeepsItsAccuracyWhereItIsTiny) {
    const Index n = 200;
    Matrix p(n, n, 1.0 / 256);  // 1 s^T, and a perturbation of 2^-40 that is exact in double
    p(3, 5) += std::ldexp(1, -40);
    // Pi2 e_3 e_5^T 2^-40: |Pi2 e_3| = sqrt(1 - 1/n).
    EXPECT_CLOSE(delta(p), std::ldexp(std::sqrt(1 - 1 / double(n)), -40), stopped_at(1e-4));
}

TEST(StationaryNorm, SaysWhyThereIsNone) {
    const Matrix causal = naive::softmax(noise(10, 1, 1), true);
    EXPECT_EQ(stationary_norm(*given_attention(one_head(causal), true, "")).front().why_not,
              "pi = e_1 is not positive");
    EXPECT_EQ(stationary_norm(*given(causal)).front().why_not, "pi is not positive");
    Matrix identity(10, 10);
    for (Index i = 0; i < 10; ++i) identity(i, i) = 1;
    EXPECT_EQ(stationary_norm(*given(identity)).front().why_not, "pi is not unique");
    EXPECT_EQ(stationary_norm(*given(Matrix(4, 4, 0.5))).front().why_not,
              "rows of P do not sum to 1");
}

TEST(StationaryNorm, OfClosedForms) {
    // Uniform: 0.  A cycle, pi uniform: all singular values but the first are 1.
    EXPECT_EQ(stationary_norm(*given(Matrix(16, 16, 1.0 / 16))).front().estimate->value, 0);
    std::vector<Index> cycle;
    for (Index i = 0; i < 16; ++i) cycle.push_back((i + 1) % 16);
    EXPECT_CLOSE(stationary_norm(*given(permutation(cycle))).front().estimate->value, 1,
                 rounding(100));
    // A reversible chain: the norm is |lambda_2|.  Two states are always reversible.
    EXPECT_CLOSE(
        stationary_norm(*given(Matrix(2, 2, {0.7, 0.3, 0.4, 0.6}))).front().estimate->value, 0.3,
        rounding(100));
}

/// (1 - v) 1 1^T / n + v: pi is uniform and delta_pi = v, so small that what may be wrong with pi
/// decides (the bound in contraction.cpp).  Rounding in its norm is below 2e-4 of that here.
TEST(StationaryNorm, IsCertainAsFarAsTheErrorOfPiAllows) {
    const double v = 0x1p-20;
    for (const Index n : {2, 8, 64}) {
        Matrix p(n, n, (1 - v) / double(n));  // exactly
        for (Index i = 0; i < n; ++i) p(i, i) += v;
        const auto size = double(n);
        constexpr double wide = double(std::numeric_limits<Wide>::epsilon());
        const double error = epsilon(Type::f64) * v * std::sqrt(size - 1) +
                             2 * size * size * (std::log2(size) + 4) * wide * (std::sqrt(size) + 1);
        const auto found = [&](double part) {  // to a hundredth of the accuracy
            return stationary_norm(*given(p), 2e9, 100 * part * error / v).front().estimate.value();
        };
        const Estimate sure = found(1.05), unsure = found(0.95);
        EXPECT_TRUE(sure.converged) << n;
        EXPECT_NEAR(sure.value, v, error) << n;
        EXPECT_FALSE(unsure.converged) << n;
        ASSERT_TRUE(unsure.low && unsure.high) << n;
        EXPECT_NEAR(*unsure.low, v - error, 0.1 * error) << n;
        EXPECT_NEAR(*unsure.high, v + error, 0.1 * error) << n;
    }
}

TEST(StationaryVector, IsRightInItsSmallestEntries) {
    // A birth-death chain: pi_{i+1} = pi_i * up / down, over 13 orders of magnitude; too slow for
    // powers.
    const Index n = 30;
    Matrix p(n, n);
    const double up = 0.1, down = 0.3;
    for (Index i = 0; i < n; ++i) {
        if (i + 1 < n) p(i, i + 1) = up;
        if (i > 0) p(i, i - 1) = down;
        p(i, i) = 1 - (i + 1 < n ? up : 0) - (i > 0 ? down : 0);
    }
    const Tensor t = one_head(p);
    const std::vector<double> pi = stationary_vector(t.view());
    for (Index i = 0; i + 1 < n; ++i)
        EXPECT_CLOSE(pi[std::size_t(i + 1)] / pi[std::size_t(i)], up / down, rounding(1000 * n));
    std::vector<Index> cycle;
    for (Index i = 0; i < 9; ++i) cycle.push_back((i + 1) % 9);
    const Tensor c = one_head(permutation(cycle));
    EXPECT_ALL_CLOSE(stationary_vector(c.view()), std::vector<double>(9, 1.0 / 9), rounding(9));
}

TEST(Dobrushin, OfClosedForms) {
    EXPECT_EQ(dobrushin(*given(Matrix(8, 8, 0.125))).front(), 0);
    Matrix identity(8, 8);
    for (Index i = 0; i < 8; ++i) identity(i, i) = 1;
    EXPECT_EQ(dobrushin(*given(identity)).front(), 1);
    EXPECT_CLOSE(dobrushin(*given(Matrix(2, 2, {0.7, 0.3, 0.4, 0.6}))).front(), 0.3, rounding(4));
}

}  // namespace
}  // namespace tsdiag
