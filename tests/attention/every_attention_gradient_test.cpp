#include <gtest/gtest.h>

#include "attention/settings.hpp"
#include "support/differences.hpp"

/// The gradient of P V with respect to queries, keys and values, for every entry of the list.
namespace tsdiag {
namespace {

using namespace test;

std::vector<Setting> differentiated_settings() {
    std::vector<Setting> all;
    for (const Case& variant : cases())
        for (bool causal : {false, true}) {
            const AttentionFacts& facts = variant.entry->facts;
            if (causal && !facts.causal()) continue;
            all.push_back({variant, Type::f64, causal});
            if (!variant.is_default()) continue;
            all.push_back({variant, Type::f64, causal, 0, heads / 2});
            if (facts.window) all.push_back({variant, Type::f64, causal, 5, heads / 2});
        }
    return all;
}

std::string untyped_title(const testing::TestParamInfo<Setting>& info) { return title(info.param); }

class EveryAttentionGradient : public testing::TestWithParam<Setting> {
  protected:
    const Setting& s = GetParam();
    /// Few enough that no logit is within a step of the kink of a relu.
    const Index n = !s.variant.is_default()              ? s.variant.n
                    : s.variant.entry->name == "nystrom" ? 64
                                                         : 12;
    /// Features of either sign may sum to nearly 0, where differences are inaccurate.
    const double mean = s.variant.entry->name == "linear" ? 1 : 0;

    std::unique_ptr<AttentionOperator> make(const Inputs& x) const {
        AttentionInput in;
        in.q = x[0];
        in.k = x[1];
        in.scale = 1 / std::sqrt(double(width));
        in.options = s.variant.options;
        in.causal = s.causal;
        in.window = s.window;
        return s.variant.entry->make(std::move(in));
    }
    Inputs drawn_inputs() const {
        return {drawn({heads, n, width}, 5, mean), drawn({s.key_heads, n, width}, 6, mean),
                drawn({s.key_heads, n, 3}, 7)};
    }
    Function output(Index block) const {
        return [this, block](const Inputs& x) { return make(x)->apply(x[2], block); };
    }
};

TEST_P(EveryAttentionGradient, IsThatOfDifferences) { expect_gradient(output(n), drawn_inputs()); }

TEST_P(EveryAttentionGradient, CanBeDifferentiated) {
    expect_second_gradient(output(n), drawn_inputs());
}

TEST_P(EveryAttentionGradient, DoesNotDependOnTheRowBlock) {
    const Inputs x = drawn_inputs();
    const Tensor u = drawn({heads, n, 3}, 8);
    const Inputs expected = gradient_of(output(n), x, u);
    const Function streamed = [&](const Inputs& t) {
        return make(t)->apply(t[2], 7, [](const RowBlock&) {});
    };
    const Inputs found = gradient_of(streamed, x, u);
    for (std::size_t k = 0; k < x.size(); ++k)
        EXPECT_TENSOR_NEAR(found[k], expected[k], rounding(64 * double(n)));
}

/// Tracking gradients changes no value.
TEST_P(EveryAttentionGradient, HasTheValueOfTheForwardPass) {
    const Inputs x = drawn_inputs();
    EXPECT_TENSOR_NEAR(output(n)(variables(x)), output(n)(x), rounding(double(n)));
    EXPECT_TRUE(output(n)(variables(x)).tracked());
}

INSTANTIATE_TEST_SUITE_P(List, EveryAttentionGradient, testing::ValuesIn(differentiated_settings()),
                         untyped_title);

/// Gradients of the attention's own parameters.
TEST(AttentionGradient, ReachesTheParametersOfTheVariant) {
    struct Own {
        const char* attention;
        std::vector<std::pair<const char*, Shape>> parameters;
        AttentionOptions options = {};
    };
    const Index n = 20;
    const std::vector<Own> all = {
        {"polynomial", {{"scale", {1, 1, heads}}}, {{"scale", "learned"}}},
        {"polynomial", {{"scale", {1, 1, 1}}}, {{"scale", "learned"}, {"p", "6"}}},
        {"nystrom",
         {{"scale", {1, 1, 1}}},
         {{"landmarks", "4"}, {"activation", "polynomial"}, {"scale", "learned"}}},
        {"nystrom",
         {{"scale", {1, 1, heads}}},
         {{"landmarks", "n"}, {"activation", "polynomial"}, {"scale", "learned"}}},
        {"linformer", {{"proj_k", {1, n, 5}}, {"proj_v", {1, n, 5}}}, {{"length", "5"}}},
        {"performer", {{"projection_matrix", {1, 9, width}}}},
        {"transformer_ls", {{"proj", {heads, width, 3}}}, {{"segment", "4"}}},
        {"nystrom", {{"conv", {1, heads, 3}}}, {{"landmarks", "4"}}},
        {"transformer_xl",
         {{"position", {1, heads * width, 8}},
          {"content_bias", {1, heads, width}},
          {"position_bias", {1, heads, width}}}},
        {"bucketed", {{"relative", {1, 8, heads}}}, {{"buckets", "8"}, {"longest", "6"}}},
        {"relative_key", {{"distance", {1, 2 * n - 1, width}}}, {{"keys", "1"}}},
        {"disentangled",
         {{"distances", {1, 16, 6}},
          {"distances_norm.weight", {1, 1, 6}},
          {"distances_norm.bias", {1, 1, 6}},
          {"k.weight", {1, heads * width, 6}},
          {"k.bias", {1, 1, heads * width}},
          {"q.weight", {1, heads * width, 6}},
          {"q.bias", {1, 1, heads * width}}},
         {{"buckets", "8"}, {"longest", "12"}, {"shared", "1"}, {"eps", "1e-5"}}},
    };
    for (const Own& own : all) {
        SCOPED_TRACE(own.attention);
        Inputs x = {drawn({heads, n, width}, 5)};
        for (const auto& [name, shape] : own.parameters) x.push_back(drawn(shape, 9, 0, 0.5));
        const Tensor v = drawn({heads, n, 3}, 7), k = drawn({heads, n, width}, 6);
        const Function f = [&](const Inputs& t) {
            AttentionInput in;
            in.q = t[0];
            in.k = k;
            in.scale = 0.4;
            in.options = own.options;
            in.parameter = [&](std::string_view name) {
                for (std::size_t i = 0; i < own.parameters.size(); ++i)
                    if (name == own.parameters[i].first) return t[i + 1];
                return Tensor();
            };
            return attention(own.attention).make(std::move(in))->apply(v, n);
        };
        expect_gradient(f, x);
    }
}

/// A row whose features are all 0 is a row of zeros, and stays one.
TEST(AttentionGradient, OfRowsWithoutFeaturesIsZero) {
    const Index n = 6;
    std::vector<double> values(std::size_t(n * width), 1.0);
    std::fill_n(values.begin(), width, -1.0);
    const Tensor q = variable(
        Tensor::from_host(cpu(), {1, n, width}, std::span<const double>(values), Type::f64));
    for (const bool causal : {false, true}) {
        AttentionInput in;
        in.q = q;
        in.k = drawn({1, n, width}, 3, 1);
        in.causal = causal;
        in.options = {{"map", "relu"}};
        const Tensor y = attention("linear").make(in)->apply(drawn({1, n, 2}, 4), n);
        const Tensor g = grad(y, drawn(y.shape(), 5), std::span(&q, 1))[0];
        EXPECT_EQ(first_nonfinite(g), -1);
        EXPECT_EQ(squared_norm(g.row_range(0, 1)), 0);
        EXPECT_GT(squared_norm(g), 0);
    }
}

}  // namespace
}  // namespace tsdiag
