#include "tsdiag/spec.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>

#include "recorder.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

TEST(Rotary, FrequenciesAreAGeometricSeries) {
    Rotary r;
    r.columns = 8;
    const std::vector<double> expected{1, 0.1, 0.01, 0.001};  // 10000^(-2i/8)
    EXPECT_ALL_CLOSE(r.frequencies(5), expected, rounding(8));
}

TEST(Rotary, LinearScalingDividesAllFrequencies) {
    Rotary r;
    r.columns = 4;
    r.scaling = "linear";
    r.factor = 4;
    EXPECT_ALL_CLOSE(r.frequencies(5), std::vector<double>({0.25, 0.0025}), rounding(8));
}

TEST(Rotary, DynamicScalingRaisesTheBaseOfLongInputsOnly) {
    Rotary r;
    r.columns = 4;
    r.scaling = "dynamic";
    r.factor = 2;
    r.original_length = 8;
    EXPECT_ALL_CLOSE(r.frequencies(8), std::vector<double>({1, 0.01}), rounding(8));
    const double base = 10000 * std::pow(2.0 * 16 / 8 - 1, 4.0 / 2);  // base' = base 3^(w/(w-2))
    EXPECT_ALL_CLOSE(r.frequencies(16), std::vector<double>({1, 1 / std::sqrt(base)}), rounding(8));
}

TEST(Rotary, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
    Rotary r;
    r.columns = 4;
    r.scaling = "llama3";
    r.factor = 8;
    r.low_freq_factor = 1;
    r.high_freq_factor = 4;
    r.original_length = 100;
    EXPECT_ALL_CLOSE(r.frequencies(9), std::vector<double>({1, 0.01 / 8}), rounding(8));
    r.theta = std::pow(50 / (2 * std::numbers::pi), 2);  // second wavelength: 50 tokens
    const double f = 2 * std::numbers::pi / 50, s = (100.0 / 50 - 1) / 3;
    EXPECT_ALL_CLOSE(r.frequencies(9), std::vector<double>({1, (1 - s) * f / 8 + s * f}),
                     rounding(16));
}

TEST(ModelSpec, ParametersOfBertBaseAreThoseOfTheRelease) {
    const ModelSpec spec = random_model("bert-base").spec;
    Index count = 0;
    for (const Parameter& p : parameters(spec)) count += p.shape.count();
    EXPECT_EQ(count, 108'891'648);  // 109 482 240 with the pooler's 768 x 768 + 768
}

TEST(ModelSpec, ParametersOfLlama7bAreThoseOfTheRelease) {
    Index count = 0;
    for (const Parameter& p : parameters(random_model("llama-7b").spec)) count += p.shape.count();
    EXPECT_EQ(count, 6'738'415'616 - 32000 * 4096);  // without the output head
}

TEST(ModelSpec, FlopsOfBertBaseAreThoseOfItsProducts) {
    const double n = 512, d = 768;
    const double layer = 2 * n * d * (4 * d + 2 * 4 * d) + 4 * n * n * d;
    EXPECT_CLOSE(forward_flops(random_model("bert-base").spec, 512), 12 * layer, rounding(64));
}

/// Besides those of softmax, or less than those: all products by which the rows of P are made.
TEST(ModelSpec, FlopsAreThoseOfTheProductsOfEachAttention) {
    const double n = 512, d = 768, heads = 12, width = 64, rank = 32, k = 48;
    const auto more = [&](const char* attention) {
        const auto of = [](const std::string& text) {
            return forward_flops(random_model(text).spec, 512);
        };
        return (of(std::string("bert-base,attention=") + attention) - of("bert-base")) / 12;
    };
    // X W, T K and the logits with it, B T
    EXPECT_CLOSE(more("transformer_ls"),
                 2 * n * d * heads * rank + 4 * n * d * rank + 2 * n * n * heads * rank,
                 rounding(64));
    // E^T K and the logits with it; products of n x k with F^T in place of n x width with K^T
    EXPECT_CLOSE(more("linformer,length=48"), 4 * n * k * d + 2 * n * n * heads * (k - width),
                 rounding(64));
    EXPECT_CLOSE(more("performer,features=100"),
                 4 * n * d * 100 + 2 * n * n * heads * (100 - width), rounding(64));
    EXPECT_CLOSE(more("cosformer"), 2 * n * n * d, rounding(64));
    EXPECT_CLOSE(more("relative_key"), 2 * n * d * (2 * n - 1), rounding(64));
    for (const char* same : {"polynomial", "linear", "diag_attention", "bigbird", "flash"})
        EXPECT_EQ(more(same), 0) << same;
}

/// Of a gated unit for flash: it has two pairs of queries and keys.
TEST(ModelSpec, FlopsOfFlashHaveBothParts) {
    const auto of = [](const char* name) {
        const AttentionSpec a = random_model(name).spec.blocks.front().attention;
        const AttentionCost cost = attention_cost(a, 64, 100, Type::f32);
        return cost.flops / (2 * 100.0 * 100.0 * double(a.heads * a.head_dim));
    };
    EXPECT_EQ(of("flash,layers=1"), 2);
    EXPECT_EQ(of("gau,layers=1"), 1);
}

/// The table of distances is the first layer's, and each layer maps it.
TEST(ModelSpec, FlopsOfDebertaAreThoseOfItsLayers) {
    const auto of = [](const char* name) { return forward_flops(random_model(name).spec, 100); };
    EXPECT_CLOSE(of("deberta-base,layers=3"), 3 * of("deberta-base,layers=1"), rounding(64));
    const double n = 100, d = 768, distances = 2 * n - 1;
    EXPECT_CLOSE(of("deberta-base,layers=1") - of("bert-base,layers=1"),
                 4 * distances * d * d + 4 * n * d * distances, rounding(64));
}

/// Two attentions side by side have half of the heads each.
TEST(ModelSpec, FlopsOfTwoAttentionsAreTheirSum) {
    AttentionSpec a;
    a.heads = a.kv_heads = 4;
    a.head_dim = 8;
    a.second = SecondAttention{.variant = "cosformer", .options = {}};
    EXPECT_EQ(attention_cost(a, 32, 10, Type::f32).flops, 2 * 100 * (2 * 8 + 2 * 16));
}

/// "in, sa, attn (in), out"
std::string stages_in_words(const BlockSpec& block) {
    std::string out;
    for (const Stage& stage : stages_of(block))
        out += fmt::format("{}{}{}", out.empty() ? "" : ", ", stage.name,
                           stage.from.empty() ? "" : fmt::format(" ({})", stage.from));
    return out;
}

TEST(Stages, OfEachLayoutAreThoseOfTheDictionary) {
    BlockSpec post, pre, local, parallel, branch, behind, before, merging, further;
    post.ffn.width = 1;
    for (BlockSpec* other :
         {&pre, &local, &parallel, &branch, &behind, &before, &merging, &further})
        *other = post;
    pre.placement = local.placement = before.placement = merging.placement = NormPlacement::pre;
    parallel.placement = NormPlacement::parallel;
    branch.placement = NormPlacement::branch;
    local.local.kernel = 3;
    behind.deesc.tau = before.deesc.tau = 0.5;
    before.deesc.before_ffn = true;
    merging.merge.width = 1;
    for (const StepEntry* entry : further_steps())
        further.steps.push_back({std::string(entry->name)});
    std::string table = "| layout | stages |\n|---|---|\n";
    for (const auto& [layout, block] :
         {std::pair("post-norm [TSE] Alg. 1", &post),
          {"pre-norm [TSE] (19)", &pre},
          {"pre-norm with a local step (XCiT)", &local},
          {"parallel (NeoX, GPT-J)", &parallel},
          {"norms in the branches (OLMo 2)", &branch},
          {"post-norm, de-escalated behind its steps", &behind},
          {"pre-norm, de-escalated before the feed-forward step", &before},
          {"post-norm with all [further steps](steps.md) behind its own", &further},
          {"pre-norm whose patches merge (Swin): `merge` is the next layer's `in`", &merging}})
        table += fmt::format("| {} | {} |\n", layout, stages_in_words(*block));
    const std::filesystem::path file = std::filesystem::path(test_data()) / "../../docs/metrics.md";
    const auto text = [&file] {
        std::ifstream in(file);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    std::string after = text();
    const std::string begin = "<!-- stages -->\n", end = "<!-- end -->\n";
    const std::size_t from = after.find(begin), to = after.find(end, from);
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    after.replace(from + begin.size(), to - from - begin.size(), table);
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << after;
    EXPECT_EQ(text(), after) << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write it";
    for (const std::string_view stage : all_stages())
        EXPECT_THAT(after, HasSubstr(fmt::format("`{}`", stage)));
}

TEST(ModelSpec, JsonHoldsEveryBlock) {
    const Json json = random_model("llama-3.2-1b").spec.json();
    EXPECT_EQ(json["blocks"].array().size(), 16U);
    EXPECT_EQ(json["blocks"].array()[0]["rotary"]["scaling"].string(), "llama3");
    EXPECT_EQ(json["blocks"].array()[3]["kv_heads"].integer(), 8);
    EXPECT_FALSE(json["trained"].boolean());
    EXPECT_THAT(json.dump(), HasSubstr("\"placement\": \"pre\""));
}

}  // namespace
}  // namespace tsdiag::test
