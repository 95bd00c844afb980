#include "../../probes/support.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace tsdiag::probe {
namespace {

Value added(const std::vector<std::vector<double>>& blocks, Index n, bool root = false) {
    RowMean mean;
    for (const std::vector<double>& block : blocks)
        mean.add(std::span<const double>(block), Index(block.size()));
    return root ? mean.root_of_sum(n) : mean.value(n);
}

TEST(RowMean, OfAllRowsIsExact) {
    const Value v = added({{1, 2}, {3, 4}, {10}}, 5);
    EXPECT_DOUBLE_EQ(*v.value, 4);
    EXPECT_FALSE(v.low || v.high);
    EXPECT_EQ(v.note, "");
    EXPECT_DOUBLE_EQ(*added({{1, 2}, {3, 4}, {10}}, 5, true).value, std::sqrt(20.0));
    EXPECT_FALSE(added({}, 5).value);
}

/// Blocks of equal size are a sample of their means m_b without replacement: its standard error is
/// s / sqrt(B) sqrt(1 - rows / n), s^2 the variance of the m_b, of B - 1 degrees of freedom.
TEST(RowMean, OfSomeBlocksHasStudentsInterval) {
    const Value three = added({{1, 3}, {5, 3}, {8, 10}}, 20);  // means 2 4 9: mean 5, variance 13
    const double two_degrees = 0.95 * std::sqrt(2 / (1 - 0.95 * 0.95));
    const double half = two_degrees * std::sqrt(13.0 / 3 * (1 - 6.0 / 20));
    EXPECT_DOUBLE_EQ(*three.value, 5);
    EXPECT_NEAR(*three.low, 5 - half, 1e-9 * half);  // of a library's quantile
    EXPECT_NEAR(*three.high, 5 + half, 1e-9 * half);
    EXPECT_TRUE(three.note.starts_with("from 6 of 20 rows, standard error")) << three.note;

    const Value two = added({{1}, {3}}, 4);  // variance 2
    const double one_degree = std::tan(0.95 * std::numbers::pi / 2);
    EXPECT_NEAR(*two.high - *two.low, 2 * one_degree * std::sqrt(2.0 / 2 * (1 - 2.0 / 4)), 1e-6);

    const Value root = added({{1, 3}, {5, 3}, {8, 10}}, 20, true);
    EXPECT_DOUBLE_EQ(*root.value, 10);
    EXPECT_EQ(*root.low, 0);  // 5 - half is below
    EXPECT_NEAR(*root.high, std::sqrt(20 * (5 + half)), 1e-9);
}

TEST(RowMean, OfOneBlockHasNoInterval) {
    const Value v = added({{1, 3}}, 20);
    EXPECT_DOUBLE_EQ(*v.value, 2);
    EXPECT_FALSE(v.low || v.high);
    EXPECT_EQ(v.note, "from 2 of 20 rows");
}

TEST(MeanOverHeads, HasNoBoundsOfAHeadThatDoesNotCount) {
    Value interval = undefined("not converged");
    interval.low = 1;
    interval.high = 2;
    const Value mean = mean_over_heads({Value(3.0), interval});
    EXPECT_EQ(mean.value, 3.0);
    EXPECT_FALSE(mean.low || mean.high);
}

TEST(MeanOverHeads, IsOfThoseThatHaveAValue) {
    const Value mean = mean_over_heads({Value(1.0), undefined("a"), Value(5.0), undefined("a")});
    EXPECT_EQ(mean.value, 3.0);
    EXPECT_EQ(mean.note, "undefined in heads 1 3: a");
    EXPECT_EQ(mean_over_heads({undefined("a"), undefined("a")}).note, "a");
    EXPECT_EQ(mean_over_heads({undefined("a"), undefined("b")}).note,
              "undefined in head 0: a; undefined in head 1: b");
    EXPECT_EQ(mean_over_heads({}).note, "no heads");
}

TEST(MeanOverHeads, OfIntervalsIsTheIntervalOfTheirMean) {
    const Value all = mean_over_heads({interval(1, 2, "open"), interval(3, 8, "open")});
    EXPECT_FALSE(all.value);
    EXPECT_EQ(all.low, 2.0);
    EXPECT_EQ(all.high, 5.0);
    Value estimate(4.0);
    estimate.low = 3, estimate.high = 6, estimate.note = "from 2 of 9 rows";
    const Value mixed = mean_over_heads({estimate, Value(2.0)});
    EXPECT_EQ(mixed.value, 3.0);
    EXPECT_EQ(mixed.low, 2.5);
    EXPECT_EQ(mixed.high, 4.0);
    EXPECT_EQ(mixed.note, "from 2 of 9 rows");
    const Value none = mean_over_heads({interval(1, 2, "open"), undefined("a")});
    EXPECT_FALSE(none.value || none.low || none.high);
}

TEST(ToValue, TellsWhatIsCertified) {
    Estimate e;
    e.value = 3;
    EXPECT_EQ(to_value(e).value, 3.0);
    e.converged = false;
    EXPECT_FALSE(to_value(e).value || to_value(e).low);
    e.low = 2;
    EXPECT_FALSE(to_value(e).low);
    e.high = 4;
    EXPECT_EQ(to_value(e).low, 2.0);
    EXPECT_EQ(to_value(e).high, 4.0);
    e.low.reset();
    EXPECT_FALSE(to_value(e).high);
    const Value falling = transform(interval(2, 4, "open"), [](double x) { return 1 / x; });
    EXPECT_EQ(falling.low, 0.25);
    EXPECT_EQ(falling.high, 0.5);
}

TEST(Narrow, KeepsWhatIsADouble) {
    EXPECT_EQ(narrow(Wide(0)).value, 0.0);
    EXPECT_EQ(narrow(Wide(1e-300)).value, 1e-300);
    EXPECT_EQ(narrow(std::ldexp(Wide(1), 5000)).note, "beyond the range of float64");
    EXPECT_EQ(narrow(std::ldexp(Wide(1), -5000)).note, "below the range of float64");
    EXPECT_EQ(narrow(std::numeric_limits<Wide>::infinity()).value, double(INFINITY));
}

}  // namespace
}  // namespace tsdiag::probe
