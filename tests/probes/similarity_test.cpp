#include <gmock/gmock.h>

#include "by_hand.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag::test {
namespace {

Table similarity(const Matrix& x, Type type = Type::f64, Diagnostics* diagnostics = nullptr) {
    ProbeSettings settings;
    settings.diagnostics = diagnostics;
    return measure("similarity", {.states = {{"in", "", tensor(x, type)}}}, settings);
}

double mean_cosine_of_pairs(const Matrix& x) {
    double total = 0;
    for (Index i = 0; i < x.rows; ++i)
        for (Index j = 0; j < i; ++j) {
            double xy = 0, xx = 0, yy = 0;
            for (Index c = 0; c < x.cols; ++c) {
                xy += x(i, c) * x(j, c);
                xx += x(i, c) * x(i, c);
                yy += x(j, c) * x(j, c);
            }
            total += xy / std::sqrt(xx * yy);
        }
    return total / (double(x.rows * (x.rows - 1)) / 2);
}

TEST(Similarity, EqualRowsAreWhollySimilar) {
    const Table t = similarity(Matrix(5, 3, 2.0));
    EXPECT_CLOSE(value(t, state("in"), "t_sim"), 1, rounding(15));
    EXPECT_EQ(value(t, state("in"), "t_div"), 0);
    EXPECT_CLOSE(value(t, state("in"), "t_cos"), 1, rounding(15));
    EXPECT_CLOSE(value(t, state("in"), "fro"), std::sqrt(60.0), rounding(15));
    EXPECT_CLOSE(value(t, state("in"), "stable_rank"), 1, rounding(64));
}

TEST(Similarity, OrthogonalRowsHaveTheirKnownNumbers) {
    const Table t = similarity(identity(4));
    EXPECT_CLOSE(value(t, state("in"), "t_sim"), 0.25, rounding(16));
    EXPECT_CLOSE(value(t, state("in"), "t_div"), 0.75, rounding(16));
    EXPECT_CLOSE(value(t, state("in"), "t_cos") + 1, 1, rounding(16));
    EXPECT_CLOSE(value(t, state("in"), "stable_rank"), 4, rounding(64));
}

TEST(Similarity, AgreesWithExplicitProjections) {
    for (const auto& [n, d] : {std::pair<Index, Index>{7, 5}, {5, 9}, {2, 2}}) {
        const Matrix x = gaussian(n, d, 1, 0.5);
        const Table t = similarity(x);
        const double all = std::pow(naive::frobenius(x), 2);
        EXPECT_CLOSE(value(t, state("in"), "t_sim"),
                     std::pow(naive::frobenius(naive::mean_part(x)), 2) / all, rounding(64));
        EXPECT_CLOSE(value(t, state("in"), "t_div"),
                     std::pow(naive::frobenius(naive::centred(x)), 2) / all, rounding(64));
        EXPECT_CLOSE(value(t, state("in"), "t_cos"), mean_cosine_of_pairs(x), rounding(1000));
        const double s = singular_values(x.a, n, d).front();
        EXPECT_CLOSE(value(t, state("in"), "stable_rank"), all / s / s, stopped_at(1e-12));
    }
}

TEST(Similarity, DiversityKeepsItsDigitsWhenTokensAreNearlyAlike) {
    Matrix x(6, 4), noise = naive::centred(gaussian(6, 4, 2));
    for (Index i = 0; i < x.rows; ++i)
        for (Index c = 0; c < x.cols; ++c)
            x(i, c) = 1 + std::ldexp(std::round(noise(i, c) * 64), -30);
    const Matrix exact = naive::centred(naive::subtract(x, Matrix(6, 4, 1.0)));
    const Table t = similarity(x);
    EXPECT_CLOSE(value(t, state("in"), "t_div"),
                 std::pow(naive::frobenius(exact) / naive::frobenius(x), 2), rounding(1e4));
}

TEST(Similarity, WideStatesGoWithoutAGramMatrix) {
    const Index n = 1100;
    Matrix x = identity(n);
    x(3, 3) = 2;
    Diagnostics diagnostics;
    const Table t = similarity(x, Type::f32, &diagnostics);
    EXPECT_CLOSE(value(t, state("in"), "stable_rank"), double(n + 3) / 4, stopped_at(1e-12));
    ASSERT_EQ(diagnostics.entries.size(), 1U);
    EXPECT_EQ(diagnostics.entries[0].metric, "stable_rank");
    EXPECT_EQ(diagnostics.entries[0].at, state("in"));
    EXPECT_TRUE(diagnostics.entries[0].estimate.converged);
}

/// From 128 features and tokens on, by products with X.
TEST(Similarity, StableRankIsTheSameByProducts) {
    for (const auto& [n, d] : {std::pair<Index, Index>{300, 129}, {129, 300}, {128, 300}})
        for (const Type type : {Type::f32, Type::f64}) {
            Matrix x = gaussian(n, d, 1, 0.5);
            for (double& v : x.a) v = double(float(v));
            const double s = singular_values(x.a, n, d).front();
            EXPECT_CLOSE(value(similarity(x, type), state("in"), "stable_rank"), squared(x) / s / s,
                         stopped_at(1e-8));
        }
}

/// Fourth powers of float32's smallest numbers leave the range of double.
TEST(Similarity, StableRankOfTheSmallestNumbers) {
    for (const auto& [n, d] : {std::pair<Index, Index>{12, 5}, {5, 12}, {150, 140}}) {
        Matrix x = gaussian(n, d, 1);
        for (double& v : x.a) v = double(float(2e-42 * v));
        const double s = singular_values(x.a, n, d).front();
        EXPECT_CLOSE(value(similarity(x, Type::f32), state("in"), "stable_rank"),
                     squared(x) / s / s, stopped_at(1e-8));
    }
}

TEST(Similarity, IsUndefinedForZero) {
    const Table t = similarity(Matrix(3, 2));
    for (const char* metric : {"t_sim", "t_div", "stable_rank"})
        EXPECT_EQ(reason(t, state("in"), metric), "X = 0");
    EXPECT_EQ(reason(t, state("in"), "t_cos"), "zero row");
    EXPECT_EQ(value(t, state("in"), "fro"), 0);
}

TEST(Similarity, IsUndefinedForNaNWithThatReason) {
    Matrix x(2, 2, 1.0);
    x(0, 1) = NAN;
    for (const char* metric : {"t_sim", "t_div", "fro", "stable_rank"}) {
        ProbeSettings settings;
        settings.metrics = {metric};
        const Table t = measure("similarity", {.states = {{"in", "", tensor(x)}}}, settings);
        EXPECT_THAT(reason(t, state("in"), metric), testing::HasSubstr("NaN")) << metric;
    }
}

TEST(Similarity, CosineNeedsTwoRowsOfLength) {
    EXPECT_EQ(reason(similarity(Matrix(1, 2, 1.0)), state("in"), "t_cos"), "fewer than two rows");
    EXPECT_EQ(reason(similarity(Matrix(2, 2, {1, 0, 0, 0})), state("in"), "t_cos"), "zero row");
}

TEST(Similarity, ComputesOnlyWhatIsWanted) {
    ProbeSettings settings;
    settings.metrics = {"t_sim"};
    Diagnostics diagnostics;
    settings.diagnostics = &diagnostics;
    const Table t =
        measure("similarity", {.states = {{"in", "", tensor(gaussian(3, 2, 3))}}}, settings);
    EXPECT_EQ(t.metrics().size(), 1U);
    EXPECT_TRUE(diagnostics.entries.empty());
}

}  // namespace
}  // namespace tsdiag::test
