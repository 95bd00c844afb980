#include "by_hand.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

TEST(AttentionMaps, KeepsTheChosenOnes) {
    const std::vector<Matrix> heads = {random_attention(7, 1), random_attention(7, 2)};
    ProbeSettings settings;
    settings.maps = {{0, 1}, {3, 0}};
    const Table t = measure("maps", {.op = std::make_shared<Made>(heads)}, settings);
    ASSERT_EQ(t.maps().size(), 1U);
    EXPECT_EQ(t.maps()[0].at, head(1));
    EXPECT_EQ(t.maps()[0].rows, 7);
    EXPECT_EQ(t.maps()[0].cols, 7);
    EXPECT_EQ(t.maps()[0].values, heads[1].a);
}

TEST(AttentionMaps, AHeadThatIsNotThereIsSaid) {
    ProbeSettings settings;
    settings.maps = {{0, 2}};
    try {
        measure("maps", {.op = std::make_shared<Made>(std::vector(2, uniform(3)))}, settings);
        FAIL() << "no error";
    } catch (const UsageError& e) {
        EXPECT_STREQ(e.what(), "--maps 0:2: layer 0 has 2 heads, expected a head from 0 to 1.");
    }
}

}  // namespace
}  // namespace tsdiag::test
