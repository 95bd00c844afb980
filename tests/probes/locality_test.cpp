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
