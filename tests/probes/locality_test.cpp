#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Table locality(std::vector<Matrix> heads, Index block = 3) {
    return measure("locality", {.op = std::make_shared<Made>(std::move(heads)), .block = block});
}

TEST(Locality, HasItsKnownCurves) {  // docs/references.md
    const Table t = locality({uniform(8), identity(8), causal_uniform(8)});
    EXPECT_ALL_CLOSE(heights(t, 0), std::vector<double>({.125, .25, .375, .5, .625, .75, .875, 1}),
                     rounding(64));
    EXPECT_ALL_CLOSE(heights(t, 1), std::vector<double>(8, 1.0), rounding(64));
    EXPECT_ALL_CLOSE(
        heights(t, 2),
        std::vector<double>({.339732, .554464, .570089, .722321, .755804, .866369, .920685, 1}),
        Tolerance{.absolute = 5e-7, .reason = "six printed digits"});
    EXPECT_CLOSE(value(t, head(0), "local_auc"), 0.5625, rounding(64));
    EXPECT_CLOSE(value(t, head(1), "local_auc"), 1, rounding(64));
    EXPECT_CLOSE(value(t, head(2), "local_auc"), .716183,
                 Tolerance{.absolute = 5e-7, .reason = "six printed digits"});
}

TEST(Locality, AgreesWithExplicitWindows) {
    const std::vector<Matrix> heads = {random_attention(11, 1), random_attention(11, 2, true)};
    const Table t = locality(heads, 4);
    std::vector<double> mean(11, 0.0);
    for (Index k = 0; k < 2; ++k) {
        const std::vector<double> expected = naive::accumulated(heads[std::size_t(k)]);
        EXPECT_ALL_CLOSE(heights(t, k), expected, rounding(121));
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += expected[i] / 2;
    }
    EXPECT_ALL_CLOSE(heights(t, -1), mean, rounding(121));
    EXPECT_CLOSE(curve(t, 0).front().x, 1.0 / 11, exactly);
    EXPECT_EQ(curve(t, 0).back().x, 1);
}

TEST(Locality, LongInputsHave256PointsAndTheLast) {
    const Index n = 300;
    const Table t = locality({uniform(n)}, n);
    const auto rows = curve(t, 0);
    ASSERT_EQ(rows.size(), 256U);
    EXPECT_EQ(rows.back().x, 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_CLOSE(*rows[i].y, rows[i].x, rounding(double(n)));
        EXPECT_GT(rows[i].x, i > 0 ? rows[i - 1].x : 0);
    }
    EXPECT_CLOSE(value(t, head(0), "local_auc"), double(n + 1) / (2 * double(n)), rounding(300));
}

/// At whole lengths, those next to 1/256, 2/256 ... of the sample.
TEST(Locality, LongInputsHaveTheirPointsAtWholeLengths) {
    const Index n = 300;
    const auto rows = curve(locality({uniform(n)}, n), 0);
    for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(rows[i].x, std::round(double(i + 1) * 300 / 256) / 300) << i;
}

/// C(1) = 5/8 and C(2) = 1 of a sample of 2 tokens, beside one of 5: at 0.4, 0.8 ... 2 tokens.
TEST(Locality, OfAShorterSampleIsReadBetweenItsLengths) {
    ProbeSettings settings;
    settings.longest = 5;
    const Matrix p(2, 2, {0.75, 0.25, 0.5, 0.5});
    const Table t =
        measure("locality", {.op = std::make_shared<Made>(std::vector{p, p})}, settings);
    for (const Index k : {-1, 0, 1}) {
        EXPECT_ALL_CLOSE(heights(t, k), std::vector<double>({0.25, 0.5, 0.7, 0.85, 1}),
                         rounding(16));
        for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(curve(t, k).at(i).x, double(i + 1) / 5);
        EXPECT_CLOSE(value(t, head(k), "local_auc"), 0.8125, rounding(16));
    }
}

TEST(Locality, OneTokenSeesItself) {
    const Table t = locality({uniform(1)});
    EXPECT_EQ(value(t, head(0), "local_auc"), 1);
    EXPECT_EQ(heights(t, 0), std::vector<double>{1});
}

TEST(Locality, SomeRowsAreNamed) {
    const Table t = measure(
        "locality", {.op = std::make_shared<Made>(std::vector{uniform(8)}), .block = 2, .rows = 4});
    EXPECT_EQ(t.find(head(0), "local_auc")->note, "from 4 of 8 rows");
    EXPECT_CLOSE(value(t, head(0), "local_auc"), 0.5625, rounding(64));
}

}  // namespace
}  // namespace tsdiag::test
