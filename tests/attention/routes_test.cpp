#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attention/heads.hpp"
#include "attention/spectra/one_matrix.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

/// The list of routes to a spectrum, each against the others.
namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;
using testing::HasSubstr;

constexpr double memory = 2e9;
const char* const solvers[] = {"arnoldi", "dense", "spectra"};

Matrix head(const Family& family, Index n) { return naive::softmax(family.logits(n, 900)); }

std::vector<Estimate> second_eigenvalue_of(const AttentionOperator& p, double bytes,
                                           const char* solver) {
    return second_eigenvalue(p, bytes, 1e-6, solver);
}
std::vector<Estimate> centred_norm_of(const AttentionOperator& p, double bytes,
                                      const char* solver) {
    return centred_norm(p, bytes, 1e-6, solver);
}

TEST(Routes, HaveNamesWordsAndSolversThatCanBeAskedFor) {
    std::set<std::string_view> names, on_request;
    for (const SpectralRoute& route : spectral_routes()) {
        EXPECT_TRUE(names.insert(route.name).second) << route.name;
        EXPECT_FALSE(route.applies.empty() || route.certifies.empty() || route.cost.empty());
        if (route.on_request) on_request.insert(route.name);
    }
    EXPECT_EQ(on_request, std::set<std::string_view>(std::begin(solvers), std::end(solvers)));
}

TEST(Routes, TheOneAskedForIsTaken) {
    const auto p = given(head(families()[0], 60));
    for (const char* solver : solvers) {
        EXPECT_EQ(second_eigenvalue(*p, memory, 1e-6, solver).front().method, solver);
        const Estimate norm = centred_norm(*p, memory, 1e-6, solver).front();
        EXPECT_EQ(norm.method, std::string_view(solver) == "arnoldi" ? "golub-kahan" : solver);
    }
}

class EveryHead : public testing::TestWithParam<Family> {};

/// At sizes where a dense oracle takes minutes, the library Spectra is the oracle.
TEST_P(EveryHead, IsTheSameBySpectraAtSizesOfModels) {
    for (Index n : {512, 1024}) {
        const auto p = given(head(GetParam(), n));
        const Estimate found = second_eigenvalue(*p).front(), norm = centred_norm(*p).front();
        EXPECT_TRUE(found.converged && norm.converged) << n;
        const Estimate other = second_eigenvalue(*p, memory, 1e-8, "spectra").front();
        EXPECT_TRUE(other.converged) << n;
        EXPECT_CLOSE(found.value, other.value, stopped_at(1e-6)) << n;
        EXPECT_CLOSE(norm.value, centred_norm(*p, memory, 1e-8, "spectra").front().value,
                     stopped_at(1e-7))
            << n;
    }
}

TEST_P(EveryHead, IsTheSameByTheDenseMethod) {
    const auto p = given(head(GetParam(), 200));
    EXPECT_CLOSE(second_eigenvalue(*p).front().value,
                 second_eigenvalue(*p, memory, 1e-6, "dense").front().value, stopped_at(1e-6));
    EXPECT_CLOSE(centred_norm(*p).front().value,
                 centred_norm(*p, memory, 1e-6, "dense").front().value, stopped_at(1e-7));
}

INSTANTIATE_TEST_SUITE_P(LikeTrained, EveryHead, testing::ValuesIn(families()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Routes, AreTheSameAtTwoThousandTokens) {
    for (const std::size_t family : {0U, 4U}) {  // random; local with a sink
        const auto p = given(head(families()[family], 2048));
        const SecondOpinion opinion = second_opinion(*p, 0, second_eigenvalue(*p).front());
        ASSERT_TRUE(opinion.difference.has_value()) << opinion.why_not;
        EXPECT_LE(*opinion.difference, 1e-6) << families()[family].name;
    }
}

TEST(Routes, StructureThatIsExactStays) {
    AttentionInput in = drawn_input(2, 40, 8, Type::f64, 3);
    in.causal = true;
    const auto causal = attention("softmax").make(in);
    Matrix parts(40, 40);  // two closed classes
    for (Index i = 0; i < 40; ++i)
        for (Index j = 0; j < 40; ++j)
            if (i % 2 == j % 2) parts(i, j) = 1.0 / 20;
    for (const char* solver : solvers) {
        EXPECT_EQ(second_eigenvalue(*causal, memory, 1e-6, solver).front().method, "diagonal");
        const Estimate classes = second_eigenvalue(*given(parts), memory, 1e-6, solver).front();
        EXPECT_EQ(classes.method, "classes");
        EXPECT_EQ(classes.value, 1);
    }
}

TEST(Routes, ThatNeedAllOfPSaySoWhereItDoesNotFit) {
    const auto p = attention("softmax").make(drawn_input(2, 300, 8, Type::f32, 9));
    const double none = p->bytes() / 4;
    for (const char* solver : {"dense", "spectra"})
        for (const auto of : {second_eigenvalue_of, centred_norm_of}) try {
                of(*p, none, solver);
                ADD_FAILURE() << solver;
            } catch (const UsageError& refused) {
                EXPECT_THAT(refused.what(), HasSubstr("P of 300 tokens takes")) << solver;
                EXPECT_THAT(refused.what(), HasSubstr(std::string("--spectra ") + solver));
            }
    EXPECT_TRUE(second_eigenvalue(*p, none, 1e-6, "arnoldi").front().converged);
}

/// A number that passed a test, and one that is proven or an interval.
TEST(Routes, AreCertainOfWhatPassedATestWhereAProofAgrees) {
    const auto of = [](double value, bool converged) {
        Estimate e = one_matrix::exact(value, "");
        e.converged = converged;
        return e;
    };
    for (const double s : {0x1p-10, 1.0, 0x1p10}) {
        for (const double off : {-1.1e-6, -0.9e-6, 0.9e-6, 1.1e-6}) {
            const double value = (1 + off) * s;
            const Estimate near = one_matrix::confirmed(of(value, true), of(s, true), 1e-6);
            EXPECT_EQ(near.converged, std::abs(off) < 1e-6) << s << ", " << off;
            if (near.converged) {
                EXPECT_EQ(near.value, value);
                EXPECT_FALSE(near.low || near.high);
            } else {
                EXPECT_CLOSE(near.low.value(), (1 - 1e-6) * s, rounding(4));
                EXPECT_CLOSE(near.high.value(), (1 + 1e-6) * s, rounding(4));
                EXPECT_EQ(near.value, off < 0 ? near.low : near.high);
            }
        }
        EXPECT_FALSE(one_matrix::confirmed(of(s, false), of(s, true), 1e-6).converged);
        Estimate open = of(s, false);
        open.low = s / 2, open.high = 2 * s;
        for (const double value : {0.25, 1.25, 3.0}) {
            const Estimate e = one_matrix::confirmed(of(value * s, true), open, 1e-6);
            EXPECT_FALSE(e.converged);
            EXPECT_EQ(e.low, s / 2);
            EXPECT_EQ(e.high, 2 * s);
            EXPECT_EQ(e.value, std::clamp(value, 0.5, 2.0) * s);
        }
    }
}

/// By the smaller of both Gram matrices, of numbers near 1.
TEST(Routes, KnowTheNormOfAMatrixOfAnyShapeAndSize) {
    const std::vector<double> entries = {1, -2, 3, 4, 5, -6};
    for (const auto& [rows, cols] : {std::pair<Index, Index>{2, 3}, {3, 2}, {1, 6}, {6, 1}})
        for (const int exponent : {-700, 0, 700}) {
            std::vector<double> a = entries;
            for (double& e : a) e = std::ldexp(e, exponent);
            const double expected = singular_values(entries, rows, cols)[0];
            const Estimate found = one_matrix::norm_of(a, rows, cols, 1e-8, 0);
            EXPECT_TRUE(found.converged) << rows << ", " << exponent;
            EXPECT_CLOSE(std::ldexp(found.value, -exponent), expected, rounding(64));
            const double error = std::ldexp(0.5, exponent);
            const Estimate open = one_matrix::norm_of(a, rows, cols, 1e-8, error);
            EXPECT_FALSE(open.converged);
            EXPECT_CLOSE(std::ldexp(open.low.value(), -exponent), expected - 0.5, rounding(64));
            EXPECT_CLOSE(std::ldexp(open.high.value(), -exponent), expected + 0.5, rounding(64));
        }
    EXPECT_EQ(one_matrix::norm_of(std::vector<double>(6, 0.0), 2, 3, 1e-8, 0).value, 0);
    const Estimate zero = one_matrix::norm_of(std::vector<double>(6, 0.0), 2, 3, 1e-8, 0.25);
    EXPECT_FALSE(zero.converged);
    EXPECT_EQ(zero.low, 0);
    EXPECT_CLOSE(zero.high.value(), 0.25, rounding(4));
}

/// 1 c^T has the eigenvalue c^T 1: as many roundings of the sum of moduli as c has entries may be
/// all of it.
TEST(Routes, OfEqualRowsThatAreNotStochasticKnowTheSum) {
    const auto leading = [](const std::vector<double>& c, Index rank, bool deflated) {
        const Index n = std::ssize(c);
        Matrix p(n, n);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) p(i, j) = c[std::size_t(j)];
        return one_matrix::by_arnoldi(one_head(p).view(), {deflated, rank}, 1e-6);
    };
    for (const double sign : {-1.0, 1.0}) {
        const std::vector<double> c = {sign, 2 * sign, 3 * sign};
        EXPECT_TRUE(leading(c, 1, false).converged);
        EXPECT_EQ(leading(c, 1, false).value, 6);
        EXPECT_EQ(leading(c, 2, false).value, 0);
        EXPECT_EQ(leading(c, 1, true).value, 0);
        const Estimate left = leading({sign, -sign, 0x1p-60}, 1, false);
        const double error = 3 * double(std::numeric_limits<Wide>::epsilon()) * 2;
        EXPECT_FALSE(left.converged);
        EXPECT_EQ(left.value, 0x1p-60);
        EXPECT_NEAR(left.low.value(), std::max(0.0, 0x1p-60 - error), 1e-12 * error);
        EXPECT_NEAR(left.high.value(), 0x1p-60 + error, 1e-12 * error);
    }
}

TEST(SecondOpinion, IsTheRelativeDifference) {
    const auto p = given(head(families()[2], 100));
    Estimate found = second_eigenvalue(*p).front();
    EXPECT_LE(second_opinion(*p, 0, found).difference.value(), 1e-6);
    found.value *= 1.25;
    EXPECT_NEAR(second_opinion(*p, 0, found).difference.value(), 0.2, 1e-6);
    found.converged = false;
    EXPECT_THAT(second_opinion(*p, 0, found).why_not, HasSubstr("not certified"));
}

TEST(SecondOpinion, HoldsForEntriesOfAnySize) {
    for (const int exponent : {-900, 0, 900}) {
        Matrix p = noise(60, 1, 8);  // not stochastic
        for (double& e : p.a) e = std::ldexp(e, exponent);
        const auto op = given(p);
        const SecondOpinion opinion = second_opinion(*op, 0, second_eigenvalue(*op).front());
        ASSERT_TRUE(opinion.difference.has_value()) << exponent << opinion.why_not;
        EXPECT_LE(*opinion.difference, 1e-6) << exponent;
    }
}

TEST(SecondOpinion, SaysWhyThereIsNone) {
    AttentionInput in = drawn_input(1, 40, 8, Type::f64, 3);
    Estimate any;
    const auto whole = attention("softmax").make(in);
    EXPECT_THAT(second_opinion(*whole, 0, any, 100).why_not, HasSubstr("fit into memory"));
    in.causal = true;
    EXPECT_THAT(second_opinion(*attention("softmax").make(in), 0, any).why_not,
                HasSubstr("causal"));
    EXPECT_THAT(second_opinion(*given(head(families()[0], 5)), 0, any).why_not,
                HasSubstr("fewer than 8 tokens"));
}

}  // namespace
}  // namespace tsdiag
