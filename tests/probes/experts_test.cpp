#include <cmath>

#include "by_hand.hpp"

/// Routings written down, whose numbers are worked out by hand.
namespace tsdiag::test {
namespace {

Table routed(const std::vector<std::vector<double>>& p, std::vector<Index> chosen, Index each) {
    Matrix m(Index(p.size()), Index(p.front().size()));
    for (Index i = 0; i < m.rows; ++i)
        for (Index j = 0; j < m.cols; ++j) m(i, j) = p[std::size_t(i)][std::size_t(j)];
    Layer layer;
    layer.p = tensor(m);
    layer.chosen = std::move(chosen);
    layer.each = each;
    return measure("experts", layer);
}

double of_layer(const Table& table, const char* name) {
    return test::value(table, state("out"), name);
}

TEST(Experts, AreMeasuredByHand) {
    const Table t = routed({{0.5, 0.25, 0.25, 0}, {0.7, 0.1, 0.1, 0.1}, {0, 0.5, 0.5, 0}},
                           {0, 1, 0, 2, 1, 2}, 2);
    EXPECT_DOUBLE_EQ(of_layer(t, "expert_load"), 4.0 / 3);
    EXPECT_DOUBLE_EQ(of_layer(t, "expert_unused"), 0.25);
    EXPECT_DOUBLE_EQ(of_layer(t, "expert_entropy"), std::log(3.0) / std::log(4.0));
    EXPECT_NEAR(of_layer(t, "routing_dropped"), (0.25 + 0.2 + 0) / 3, 1e-15);
    const double h =
        1.5 * std::log(2.0) - 0.7 * std::log(0.7) - 0.3 * std::log(0.1) + std::log(2.0);
    EXPECT_NEAR(of_layer(t, "routing_entropy"), h / 3 / std::log(4.0), 1e-15);
}

TEST(Experts, AreEvenOrCollapsedAtTheEndsOfTheRange) {
    const std::vector<double> even{0.25, 0.25, 0.25, 0.25};
    const Table all = routed({even, even, even, even}, {0, 1, 2, 3}, 1);
    EXPECT_DOUBLE_EQ(of_layer(all, "expert_load"), 1);
    EXPECT_DOUBLE_EQ(of_layer(all, "expert_entropy"), 1);
    EXPECT_DOUBLE_EQ(of_layer(all, "routing_entropy"), 1);
    EXPECT_DOUBLE_EQ(of_layer(all, "routing_dropped"), 0.75);
    const Table one = routed({{1, 0, 0, 0}, {1, 0, 0, 0}}, {0, 0}, 1);
    EXPECT_DOUBLE_EQ(of_layer(one, "expert_load"), 4);
    EXPECT_DOUBLE_EQ(of_layer(one, "expert_unused"), 0.75);
    EXPECT_DOUBLE_EQ(of_layer(one, "expert_entropy"), 0);
    EXPECT_DOUBLE_EQ(of_layer(one, "routing_dropped"), 0);
    EXPECT_EQ(reason(routed({{1}}, {0}, 1), state("out"), "expert_entropy"), "there is one expert");
}

}  // namespace
}  // namespace tsdiag::test
