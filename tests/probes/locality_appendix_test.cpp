#include "by_hand.hpp"

/// The pseudo-code of [DEVIL] appendix F, with its quirks.
namespace tsdiag::test {
namespace {

Table appendix(std::vector<Matrix> heads, Index block = 3, ProbeSettings settings = {}) {
    return measure("locality_appendix",
                   {.op = std::make_shared<Made>(std::move(heads)), .block = block}, settings);
}

/// What the code prints at thresholds 1, 10, 25, 50, 75, 90 and 99 of 0 .. 99.
std::vector<double> printed(const Table& t, Index k) {
    const std::vector<double> all = heights(t, k);
    std::vector<double> out;
    for (const std::size_t j : {1, 10, 25, 50, 75, 90, 99}) out.push_back(all.at(j));
    return out;
}

Matrix all_on_column(Index n, Index column) {
    Matrix m(n, n);
    for (Index i = 0; i < n; ++i) m(i, column) = 1;
    return m;
}

/// Ten times 0.1 is less than 1 in floating point: the tenth collects all scores above 0.9.
TEST(LocalityAppendix, IsNotDecidedByRoundingAtATie) {
    Matrix tenths(24, 24);
    for (Index i = 0; i < 24; ++i)
        for (Index j = 1; j <= 10; ++j) tenths(i, j) = 0.1;
    const std::vector<double> all = heights(appendix({tenths}), 0);
    EXPECT_LT(all.at(98), 1);
    EXPECT_EQ(all.at(99), all.at(98));
}

TEST(LocalityAppendix, HasTheNumbersOfThePrintedCode) {
    for (const Index block : {1, 3, 8}) {
        const Table t = appendix({uniform(8), identity(8), causal_uniform(8)}, block);
        EXPECT_EQ(printed(t, 0), (std::vector{.125, .125, .59375, .84375, .984375, 1., 1.}));
        EXPECT_EQ(printed(t, 1), std::vector<double>(7, .125));
        EXPECT_EQ(printed(t, 2),
                  (std::vector{.125, .125, .375, .734375, .890625, .890625, .890625}));
    }
}

TEST(LocalityAppendix, IsAFunctionOfTheScore) {
    const Table t = appendix({uniform(8)});
    std::vector<double> x;
    for (const CurveRow& row : t.curves())
        if (row.at == head(0)) x.push_back(row.x);
    ASSERT_EQ(x.size(), 100U);
    EXPECT_EQ(x.front(), 0);
    EXPECT_EQ(x.back(), 1);
    EXPECT_EQ(x[50], double(1.0F - 49 * (1.0F / 99)));  // float32, from the end
    EXPECT_EQ(heights(t, 0).front(), 0);
}

/// Rows after the first never reach column 0: only the first row has its window of one token.
TEST(LocalityAppendix, NeverTakesTheFirstColumn) {
    EXPECT_EQ(heights(appendix({all_on_column(4, 0)}), 0).at(50), 0.8125);
}

/// The first row's first step to the left is column -1, the last one, and no column before it.
TEST(LocalityAppendix, TakesTheLastColumnForTheFirstRow) {
    Matrix last(4, 4), before(4, 4);
    last(0, 3) = before(0, 2) = 1;
    // Row 0 reports 2 of 4; and 4 of 4, as it stops before it is there.  The other rows are 0.
    EXPECT_EQ(heights(appendix({last}), 0).at(50), (0.5 + 3) / 4);
    EXPECT_EQ(heights(appendix({before}), 0).at(50), (1.0 + 3) / 4);
}

TEST(LocalityAppendix, OfOneTokenIsWhole) {
    const std::vector<double> y = heights(appendix({uniform(1)}), 0);
    EXPECT_EQ(y.front(), 0);
    EXPECT_EQ(y.at(1), 1);
}

TEST(LocalityAppendix, OfManyTokensIsThereWhereItIsNamed) {
    const Index n = 257;
    EXPECT_TRUE(appendix({uniform(n)}, n).curves().empty());
    ProbeSettings named;
    named.by_name = {"local_acc_appendix"};
    EXPECT_EQ(heights(appendix({uniform(n)}, n, named), 0).size(), 100U);
}

TEST(LocalityAppendix, MeansOverHeads) {
    const Table t = appendix({uniform(8), identity(8)});
    const std::vector<double> mean = heights(t, -1);
    for (std::size_t j = 0; j < mean.size(); ++j)
        EXPECT_CLOSE(mean[j], (heights(t, 0)[j] + heights(t, 1)[j]) / 2, rounding(4));
}

}  // namespace
}  // namespace tsdiag::test
