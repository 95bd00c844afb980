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

/// Row i of P is of token order[i]; the map has row i of token i, and the order is beside it.
TEST(AttentionMaps, AreInTheOrderOfTheTokens) {
    const std::vector<Index> order{2, 0, 4, 1, 3};
    const std::vector<Matrix> heads = {random_attention(5, 1), random_attention(5, 2)};
    Layer layer{.op = std::make_shared<Made>(heads)};
    layer.over.order = std::make_shared<const std::vector<Index>>(order);
    ProbeSettings settings;
    settings.maps = {{0, 1}};
    const Table t = measure("maps", layer, settings);
    ASSERT_EQ(t.maps().size(), 2U);
    const Map &map = t.maps()[0], &said = t.maps()[1];
    for (std::size_t i = 0; i < order.size(); ++i)
        for (std::size_t j = 0; j < order.size(); ++j)
            EXPECT_EQ(map.values[std::size_t(order[i] * 5 + order[j])],
                      heads[1](Index(i), Index(j)));
    EXPECT_EQ(said.at, head(-1));
    EXPECT_EQ(said.name, "windows");
    EXPECT_EQ(said.values, std::vector<double>(order.begin(), order.end()));
    EXPECT_TRUE(measure("maps", layer, {}).maps().empty());
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
