#include <gtest/gtest.h>

#include <cmath>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/table.hpp"

/// What a report calls certain of the spectra of a given P holds against exact arithmetic.
namespace tsdiag::test {
namespace {

using Words = std::vector<std::string>;

class CertifiedSpectra : public testing::Test {
  protected:
    /// The row of this metric of a head of P, row-major.
    MetricRow measured(std::string_view metric, Index n, const std::vector<double>& p,
                       const Words& more = {}, Index heads = 1, Index head = 0) {
        const std::vector<NamedArray> arrays = {{"attentions.0", {heads, n, n}, {}, p}};
        write_npz(folder / "p.npz", arrays);
        Words words = {"probe", "p.npz", "--no-report", "--out", "out", "--force"};
        words.insert(words.end(), more.begin(), more.end());
        const Finished found = tsdiag(folder, words);
        EXPECT_EQ(found.code, 0) << found.err;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.metric == metric && row.at.head == head) return row;
        ADD_FAILURE() << metric << " was not measured";
        return {};
    }
    /// Whether the number is this one, or open with it in between.
    static void expect_holds(const MetricRow& row, double exact, double accuracy) {
        if (row.value) {
            EXPECT_NEAR(*row.value, exact, accuracy * exact);
            return;
        }
        ASSERT_TRUE(row.low && row.high);
        EXPECT_LE(*row.low, exact);
        EXPECT_GE(*row.high, exact);
    }
    TemporaryDirectory folder;
};

/// Only 0 and 1 are eigenvalues, the 0 of one block of three: rounding makes 1e-5 of it.
TEST_F(CertifiedSpectra, OfADefectiveZero) {
    const std::vector<double> p = {0, .5, 0, .5, 0, .5, .5, 0, .5, .5, 0, 0, 0, .5, 0, .5};
    for (const char* route : {"auto", "dense", "arnoldi"})
        expect_holds(measured("lambda2_abs", 4, p, {"--spectra", route}), 0, 1e-6);
}

/// Uniform attention to a prefix, and to all tokens by those behind it: 1, the share of these, and
/// zeros.  The class of each has equal rows.
TEST_F(CertifiedSpectra, OfClassesWhoseRowsAreEqual) {
    for (const auto& [n, m] : {std::pair<Index, Index>{8, 4}, {8, 1}, {150, 60}}) {
        std::vector<double> p(std::size_t(n * n));
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < (i < m ? m : n); ++j)
                p[std::size_t(i * n + j)] = 1 / double(i < m ? m : n);
        for (const char* route : {"auto", "dense", "arnoldi"}) {
            SCOPED_TRACE(route);
            const MetricRow row = measured("lambda2_abs", n, p, {"--spectra", route});
            expect_holds(row, double(n - m) / double(n), 1e-6);
        }
    }
}

/// A head whose rows do not sum to 1 takes nothing from the one beside it.
TEST_F(CertifiedSpectra, OfAHeadBesideOneWhoseRowsAreOff) {
    const std::vector<double> p = {.5, .3, .2, .1, .8, .1, .25, .25, .5};
    const MetricRow alone = measured("delta_pi", 3, p);
    ASSERT_TRUE(alone.value.has_value());
    const std::vector<double> off = {.5, .3, .2, .1, .8, .2, .25, .25, .5},
                              negative = {1.5, -.3, -.2, .1, .8, .1, .25, .25, .5};
    for (const bool sums_to_one : {false, true}) {
        const std::vector<double>& other = sums_to_one ? negative : off;
        std::vector<double> both = p;
        both.insert(both.end(), other.begin(), other.end());
        const MetricRow beside = measured("delta_pi", 3, both, {}, 2);
        EXPECT_EQ(beside.value, alone.value);
        EXPECT_EQ(measured("delta_pi", 3, both, {}, 2, 1).note,
                  sums_to_one ? "P has negative entries" : "rows do not sum to 1 (off by 1.0e-01)");
    }
}

/// Rows that sum to 1 with negative entries may have eigenvalues beyond 1, and no gap.
TEST_F(CertifiedSpectra, OfSignedRowsHaveNoGapBeyondOne) {
    const std::vector<double> p = {4, 0, -3, 0, 1, 0, 0, -2, 3};  // 4, 3 and 1
    EXPECT_NEAR(measured("lambda2_abs", 3, p).value.value_or(0), 3, 1e-6);
    for (const char* metric : {"gap", "spectral_gap"}) {
        const MetricRow row = measured(metric, 3, p);
        EXPECT_FALSE(row.value || row.low);
        EXPECT_EQ(row.note, "|lambda_2| > 1: P has negative entries");
    }
}

/// x_t+1 = 2 x_t or 2 x_t + 1 modulo n: the uniform distribution is reached after log2 n steps.
TEST_F(CertifiedSpectra, OfAShiftRegister) {
    for (const Index n : {8, 32, 64}) {
        std::vector<double> p(std::size_t(n * n));
        for (Index i = 0; i < n; ++i)
            for (const Index j : {2 * i % n, (2 * i + 1) % n}) p[std::size_t(i * n + j)] += 0.5;
        for (const char* route : {"auto", "dense", "arnoldi"})
            expect_holds(measured("lambda2_abs", n, p, {"--spectra", route}), 0, 1e-6);
    }
}

/// Tokens that attend to one other, with dust: the chain is reversible only up to 1e-30, and
/// entries of pi reach from 1 to 1e-200.
TEST_F(CertifiedSpectra, AContractionStaysInItsRange) {
    constexpr Index n = 8;
    for (const double dust : {1e-12, 1e-30, 1e-80})
        for (int draw = 0; draw < 8; ++draw) {
            std::vector<double> p(std::size_t(n * n), dust);
            for (Index i = 0; i < n; ++i)
                p[std::size_t(i * n + (i * i + 3 * i * draw + draw) % n)] = 1;
            const MetricRow row = measured("delta_pi", n, p);
            const double found = row.value.value_or(row.low.value_or(0));
            EXPECT_GE(found, 0) << dust << ", " << draw;
            EXPECT_LE(found, 1 + 1e-8) << dust << ", " << draw;
        }
}

/// A birth and death process is reversible, so delta_pi is |lambda_2|; its pi reaches from 1 to
/// 300^-127.
TEST_F(CertifiedSpectra, OfABandWhosePiLeavesTheRangeOfNumbers) {
    constexpr Index n = 128;
    std::vector<double> p(std::size_t(n * n));
    for (Index i = 0; i < n; ++i) {
        const double up = i + 1 < n ? 0.3 : 0, down = i > 0 ? 1e-3 : 0;
        if (i + 1 < n) p[std::size_t(i * n + i + 1)] = up;
        if (i > 0) p[std::size_t(i * n + i - 1)] = down;
        p[std::size_t(i * n + i)] = 1 - up - down;
    }
    const double pi = std::acos(-1.0), step = std::cos(pi / double(n));
    const double exact = 1 - 0.3 - 1e-3 + 2 * std::sqrt(0.3 * 1e-3) * step;
    expect_holds(measured("delta_pi", n, p), exact, 1e-8);
    expect_holds(measured("lambda2_abs", n, p), exact, 1e-6);
}

/// A symmetric P with the eigenvalues 1, s, s - 1e-5 and small ones, on the cosines: delta and
/// delta_pi are s.
TEST_F(CertifiedSpectra, OfAClusterOfSingularValues) {
    constexpr double s = 0.1;
    for (const Index n : {17, 150}) {
        std::vector<double> p(std::size_t(n * n), 1 / double(n));
        for (Index k = 1; k < n; ++k) {
            const double value = k == 3 ? s : k == 4 ? s - 1e-5 : 0.01 / double(k * k);
            const auto at = [&](Index i) {
                return std::cos(std::acos(-1.0) * double(k) * (double(i) + 0.5) / double(n)) *
                       std::sqrt(2 / double(n));
            };
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < n; ++j) p[std::size_t(i * n + j)] += value * at(i) * at(j);
        }
        expect_holds(measured("delta", n, p), s, 1e-7);
        expect_holds(measured("delta_pi", n, p), s, 1e-8);
        expect_holds(measured("lambda2_abs", n, p), s, 1e-6);
    }
}

/// Rows that do not sum to 1, on the cosines: 0.5 and 0.375, or 0.5 twice, and many below 0.15, so
/// that no search comes to its end; also of small entries.
TEST_F(CertifiedSpectra, OfManyEigenvaluesOfRowsThatDoNotSumToOne) {
    constexpr Index n = 150;
    for (const double second : {0.375, 0.5})
        for (const double factor : {1.0, 1e-20}) {
            std::vector<double> p(std::size_t(n * n), factor * 0.5 / double(n));
            for (Index k = 1; k < n; ++k) {
                const double value = factor * (k == 3 ? second : double(k) / 1024);
                const auto at = [&](Index i) {
                    return std::cos(std::acos(-1.0) * double(k) * (double(i) + 0.5) / double(n)) *
                           std::sqrt(2 / double(n));
                };
                for (Index i = 0; i < n; ++i)
                    for (Index j = 0; j < n; ++j)
                        p[std::size_t(i * n + j)] += value * at(i) * at(j);
            }
            for (const char* route : {"auto", "arnoldi", "spectra"}) {
                // The library meets an eigenvalue twice by rounding alone.
                if (second == 0.5 && route == std::string_view("spectra")) continue;
                SCOPED_TRACE(route);
                const MetricRow row = measured("lambda2_abs", n, p, {"--spectra", route});
                ASSERT_TRUE(row.value) << row.note;
                expect_holds(row, factor * second, 1e-6);
            }
        }
}

}  // namespace
}  // namespace tsdiag::test
