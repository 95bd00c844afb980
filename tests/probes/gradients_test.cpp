#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Place tensor_at(std::string name, Index layer = 0) {
    return {.layer = layer, .tensor = std::move(name)};
}

TEST(Gradients, AreNormsOfStatesAndParametersAndTheRootSumOfSquares) {
    Layer layer;
    layer.gradients = {{"in", "", tensor(gaussian(3, 4, 1))},
                       {"", "attn.q.weight", tensor(Matrix(2, 2, 3))},  // norm 6
                       {"", "attn.q.bias", tensor(Matrix(1, 4, 4))}};   // norm 8
    const Table t = measure("gradients", layer);
    EXPECT_CLOSE(value(t, state("in"), "grad_norm"), std::sqrt(squared_norm(layer.gradients[0].x)),
                 rounding(12));
    EXPECT_EQ(value(t, tensor_at("attn.q.weight"), "grad_norm"), 6);
    EXPECT_EQ(value(t, tensor_at("attn.q.bias"), "grad_norm"), 8);
    EXPECT_EQ(value(t, {.layer = 0}, "grad_norm"), 10);
    EXPECT_EQ(t.metrics().size(), 4U);
}

TEST(Gradients, OfNoLayerBelongToNone) {
    Layer layer;
    layer.layer = -1;
    layer.gradients = {{"", "embed.token", tensor(Matrix(1, 1, 2))}};
    const Table t = measure("gradients", layer);
    EXPECT_EQ(value(t, tensor_at("embed.token", -1), "grad_norm"), 2);
    EXPECT_EQ(t.metrics().size(), 1U);
}

}  // namespace
}  // namespace tsdiag::test
