#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/places.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string small = ",layers=2,d=16,heads=4,ffn=24";

Input ids(std::vector<Index> values, std::vector<bool> keep = {}) {
    Input out;
    out.ids = std::move(values);
    out.keep = std::move(keep);
    return out;
}

Recorder run(const Model& model, const Input& input, RunSettings settings = {}) {
    Recorder seen;
    model.run(std::span(&input, 1), seen, settings);
    return seen;
}

std::string run_error(const Model& model, const Input& input) {
    return thrown<UsageError>([&] { run(model, input); });
}

TEST(Stages, OfPostNormAreThoseOfTheDictionary) {
    const Recorder seen = run(random("post-norm,deesc=0.5" + small, Type::f64), gaussian(5, 16));
    EXPECT_THAT(std::vector(seen.order.begin(), seen.order.begin() + 8),
                ElementsAre("layer.0.in", "layer.0.sa", "layer.0.attn", "layer.0.norm1",
                            "layer.0.ffn", "layer.0.norm2", "layer.0.deesc", "layer.0.out"));
    EXPECT_EQ(seen.pred.at("layer.0.attn"), "in");
    EXPECT_EQ(seen.pred.at("layer.0.norm1"), "attn");
    EXPECT_EQ(seen.pred.at("layer.0.ffn"), "norm1");
    EXPECT_EQ(seen.pred.at("layer.0.norm2"), "ffn");
    EXPECT_EQ(seen.pred.at("layer.0.deesc"), "norm2");
    EXPECT_EQ(seen.pred.at("layer.0.out"), "");
    EXPECT_EQ(seen.states.at("layer.0.out"), seen.states.at("layer.1.in"));
}

TEST(Stages, OfPreNormAreThoseOfTheDictionary) {
    const Recorder seen = run(random("gpt2,vocab=9,tokens=8" + small, Type::f64), ids({1, 2, 3}));
    EXPECT_THAT(seen.order,
                ElementsAre("embed", "layer.0.in", "layer.0.norm1", "layer.0.sa", "layer.0.attn",
                            "layer.0.norm2", "layer.0.ffn", "layer.0.out", "layer.1.in",
                            "layer.1.norm1", "layer.1.sa", "layer.1.attn", "layer.1.norm2",
                            "layer.1.ffn", "layer.1.out", "final_norm"));
    EXPECT_EQ(seen.pred.at("layer.0.norm1"), "");
    EXPECT_EQ(seen.pred.at("layer.0.ffn"), "attn");
}

TEST(Stages, OfParallelAreThoseOfTheDictionary) {
    const Recorder seen =
        run(random("pythia-160m,vocab=9,tokens=8" + small, Type::f64), ids({1, 2, 3}));
    EXPECT_THAT(std::vector(seen.order.begin() + 1, seen.order.begin() + 7),
                ElementsAre("layer.0.in", "layer.0.norm1", "layer.0.sa", "layer.0.norm2",
                            "layer.0.ffn", "layer.0.out"));
    EXPECT_EQ(seen.pred.at("layer.0.ffn"), "in");
}

TEST(Stages, OfHiddenInputBeginWithoutAnEmbedding) {
    const Input hidden = gaussian(4, 16);
    const Recorder seen = run(random("gpt2,vocab=9" + small, Type::f64), hidden);
    EXPECT_FALSE(seen.states.contains("embed"));
    EXPECT_EQ(seen.states.at("layer.0.in"), hidden.hidden.to_host<double>());
}

TEST(Forward, DeescalationShrinksTheMeanAlone) {
    const Recorder seen = run(random("post-norm,deesc=0.25" + small, Type::f64), gaussian(5, 16));
    const auto upload = [](const std::vector<double>& v) {
        return Tensor::from_host(cpu(), {1, 5, 16}, std::span<const double>(v), Type::f64);
    };
    const Tensor x = upload(seen.states.at("layer.0.norm2")),
                 y = upload(seen.states.at("layer.0.deesc"));
    EXPECT_TENSOR_NEAR(column_mean(y), scale(column_mean(x), 0.75), rounding(16));
    EXPECT_TENSOR_NEAR(subtract_column_mean(y), subtract_column_mean(x), rounding(16));
}

TEST(Forward, DeescalatesTheInputOfTheFeedForwardStep) {
    for (const char* placement : {"post-norm", "pre-norm"}) {
        const std::string keys = placement + std::string(",deesc=0.25,deesc_at=ffn") + small;
        const Recorder seen = run(random(keys, Type::f64), gaussian(5, 16));
        const bool post = keys.starts_with("post");
        const std::string before = post ? "norm1" : "attn";
        EXPECT_EQ(seen.pred.at("layer.0.deesc"), before);
        EXPECT_EQ(seen.pred.at("layer.0.ffn"), "deesc");
        EXPECT_EQ(seen.states.at("layer.0.out"),
                  seen.states.at(post ? "layer.0.norm2" : "layer.0.ffn"));
        const std::vector<double>& x = seen.states.at("layer.0." + before);
        const std::vector<double>& y = seen.states.at("layer.0.deesc");
        std::vector<double> expected = x;
        for (std::size_t j = 0; j < 16; ++j) {
            double mean = 0;
            for (std::size_t i = 0; i < 5; ++i) mean += x[i * 16 + j] / 5;
            for (std::size_t i = 0; i < 5; ++i) expected[i * 16 + j] -= 0.25 * mean;
        }
        EXPECT_ALL_CLOSE(y, expected, rounding(16));
        const Recorder learned = run(random(keys + ",deesc_learned=1", Type::f64), gaussian(5, 16));
        EXPECT_ALL_CLOSE(learned.states.at("layer.1.out"), seen.states.at("layer.1.out"),
                         rounding(64));
    }
}

TEST(Forward, AlphaMultipliesTheBranch) {
    const Recorder seen = run(random("post-norm,alpha=3" + small, Type::f64), gaussian(5, 16));
    std::vector<double> expected = seen.states.at("layer.0.in");
    for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] += 3 * seen.states.at("layer.0.sa")[i];
    EXPECT_ALL_CLOSE(seen.states.at("layer.0.attn"), expected, rounding(4));
}

TEST(Forward, RunsEachSampleAsIfItWereAlone) {
    const Model model = random("bert-base,vocab=40,tokens=9" + small, Type::f64);
    const std::vector<Input> both{ids({1, 2, 3, 4}), ids({9, 8, 7})};
    Recorder seen;
    model.run(both, seen);
    EXPECT_EQ(seen.sample, 1);
    EXPECT_EQ(seen.ended, 2);
    EXPECT_EQ(seen.states, run(model, both[1]).states);
}

TEST(Forward, StopsBehindTheLastLayerAskedFor) {
    const Model model = random("gpt2,vocab=9,layers=4,d=16,heads=4", Type::f64);
    Recorder seen = run(model, ids({1, 2}), {.first_layer = 1, .last_layer = 2});
    EXPECT_EQ(seen.order.front(), "layer.1.in");
    EXPECT_EQ(seen.order.back(), "layer.2.out");
    EXPECT_EQ(seen.states.at("layer.2.out"), run(model, ids({1, 2})).states.at("layer.2.out"));
    EXPECT_THROW(run(model, ids({1, 2}), {.last_layer = 4}), UsageError);
    EXPECT_THROW(run(model, ids({1, 2}), {.first_layer = 3, .last_layer = 2}), UsageError);
}

TEST(Forward, ReportsEachLayer) {
    std::vector<Index> done;
    RunSettings settings;
    settings.progress = [&](Index now, Index total) {
        EXPECT_EQ(total, 2);
        done.push_back(now);
    };
    run(random("post-norm" + small, Type::f32), gaussian(3, 16), settings);
    EXPECT_THAT(done, ElementsAre(1, 2));
}

/// The definition of the mask, independent of its implementation: columns of masked tokens are
/// hidden from the kept ones, so the contents of masked tokens do not matter.
TEST(Mask, LeavesTheKeptTokensAtTheirPositions) {
    const Model model = random("bert-base,vocab=40,tokens=9" + small, Type::f64);
    const std::vector<bool> keep{true, false, true, true, false};
    const Recorder one = run(model, ids({3, 5, 7, 9, 11}, keep)),
                   other = run(model, ids({3, 6, 7, 9, -100}, keep));
    EXPECT_EQ(one.states, other.states);
    EXPECT_EQ(one.states.at("embed").size(), 3U * 16);
    const Recorder whole = run(model, ids({3, 5, 7, 9, 11}));
    const std::vector<double>& embed = whole.states.at("embed");
    EXPECT_EQ(std::vector(embed.begin() + 2 * 16, embed.begin() + 4 * 16),
              std::vector(one.states.at("embed").begin() + 16, one.states.at("embed").end()));
}

TEST(Mask, KeepsRotaryPositions) {
    const Model model = random("llama-7b,vocab=40,tokens=9" + small, Type::f64);
    // Rotary attention depends on differences of positions: hiding the first token changes nothing.
    EXPECT_ALL_CLOSE(run(model, ids({1, 5, 7, 9}, {false, true, true, true})).matrix.at(1),
                     run(model, ids({5, 7, 9})).matrix.at(1), rounding(64));
    // A gap does.
    EXPECT_NE(run(model, ids({5, 1, 7, 9}, {true, false, true, true})).matrix.at(1),
              run(model, ids({5, 7, 9})).matrix.at(1));
}

TEST(Mask, OfNothingIsRefused) {
    const Model model = random("bert-base,vocab=40,tokens=9" + small, Type::f64);
    EXPECT_THAT(run_error(model, ids({1, 2}, {false, false})), HasSubstr("hides all 2 tokens"));
    EXPECT_THAT(run_error(model, ids({1, 2}, {true})), HasSubstr("1 entries"));
}

TEST(Input, IdsOutsideTheVocabularyAreNamed) {
    const Model model = random("bert-base,vocab=40,tokens=9" + small, Type::f64);
    EXPECT_THAT(run_error(model, ids({1, 40})),
                AllOf(HasSubstr("id 40 at position 1"), HasSubstr("vocabulary of 40")));
    EXPECT_THAT(run_error(model, ids({-1})), HasSubstr("id -1 at position 0"));
}

TEST(Input, ThatDoesNotFitIsRefused) {
    const Model model = random("bert-base,vocab=40,tokens=4" + small, Type::f64);
    EXPECT_THAT(run_error(model, ids({1, 2, 3, 4, 5})), HasSubstr("5 tokens"));
    EXPECT_THAT(run_error(model, gaussian(3, 15)), HasSubstr("(3, 15), expected (n, 16)"));
    EXPECT_THAT(run_error(model, Input()), HasSubstr("exactly one"));
    Input image;
    image.image = gaussian(4, 4).hidden;
    EXPECT_THAT(run_error(model, image), HasSubstr("takes tokens"));
    Recorder seen;
    EXPECT_THROW(model.run({}, seen), UsageError);
    const Model vision = random("vit-base,image=8,patch=4" + small, Type::f64);
    EXPECT_THAT(run_error(vision, image), HasSubstr("expected (3, 8, 8)"));
    EXPECT_THAT(run_error(vision, ids({1})), HasSubstr("no token embedding"));
}

TEST(Input, ThatIsNotFiniteIsNamed) {
    Input input = gaussian(3, 16);
    std::vector<double> values = input.hidden.to_host<double>();
    values[16 + 5] = std::numeric_limits<double>::quiet_NaN();
    input.hidden = Tensor::from_host(cpu(), {1, 3, 16}, std::span<const double>(values), Type::f64);
    const Model model = random("post-norm" + small, Type::f64);
    EXPECT_THAT(thrown<NonFiniteError>([&] { run(model, input); }), HasSubstr("[1, 5]"));
    EXPECT_NO_THROW(run(model, input, {.allow_nonfinite = true}));
}

TEST(Input, OfEmbeddingsGetsPositionsAndNorm) {
    const RandomModel drawn = random_model("bert-base,vocab=40,tokens=9" + small);
    const std::shared_ptr<const Weights> weights = random_weights(drawn, Rng(1), cpu(), Type::f64);
    const Model model(drawn.spec, weights, cpu(), Type::f64);
    const std::vector<Index> tokens{4, 5, 6};
    Input direct;
    direct.embeddings = weights->rows("embed.token", tokens);
    EXPECT_EQ(run(model, direct).states, run(model, ids(tokens)).states);
}

TEST(Memory, ChangesNoNumber) {
    constexpr Index n = 300;
    const Model model = random("gpt2,vocab=40,tokens=300" + small, Type::f64);
    std::vector<Index> tokens(n);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = Index(i * 7 % 40);
    const auto run_with = [&](Index memory) {
        Recorder seen;
        seen.rows = true;
        const Input input = ids(tokens);
        model.run(std::span(&input, 1), seen, {.memory = memory});
        return seen;
    };
    const Recorder whole = run_with(0);
    const Index matrix = 8 * n * n;
    for (const Index memory : {Index{1}, matrix, 100 * matrix}) {
        const Recorder seen = run_with(memory);
        EXPECT_TRUE(memory > 1 || seen.blocks == 2 * 4) << seen.blocks;  // of 96 rows
        EXPECT_EQ(seen.states, whole.states);
        EXPECT_EQ(seen.matrix.at(1), whole.matrix.at(1));
    }
}

TEST(NonFinite, WeightsAreNamedWithTheirIndex) {
    auto file = tiny_bert();
    file->values("encoder.layer.1.output.dense.weight")[3 * 16 + 7] =
        std::numeric_limits<float>::quiet_NaN();
    DetectOptions options;
    options.heads = 2;
    const Architecture a = detect(*file, options);
    for (const Type type : {Type::f32, Type::f64}) {
        const Model model(a.spec, checkpoint_weights(file, a, cpu(), type, false), cpu(), type);
        EXPECT_THAT(thrown<NonFiniteError>([&] {
                        run(model, ids({1, 2}));
                    }),
                    AllOf(HasSubstr("encoder.layer.1.output.dense.weight"), HasSubstr("[3, 7]")));
    }
}

TEST(NonFinite, RowsOfATableAreNamedWhereTheyAreUsed) {
    auto file = tiny_bert();
    file->values("embeddings.word_embeddings.weight")[4 * 8 + 2] =
        std::numeric_limits<float>::infinity();
    DetectOptions options;
    options.heads = 2;
    const Architecture a = detect(*file, options);
    const Model model(a.spec, checkpoint_weights(file, a, cpu(), Type::f32, false), cpu(),
                      Type::f32);
    EXPECT_NO_THROW(run(model, ids({1, 2})));
    EXPECT_THAT(thrown<NonFiniteError>([&] { run(model, ids({1, 4})); }), HasSubstr("[4, 2]"));
}

TEST(NonFinite, StatesNameLayerAndStage) {
    auto file = tiny_bert();
    auto& up = file->values("encoder.layer.1.intermediate.dense.weight");
    for (std::size_t row = 0; row < 16; ++row) up[row * 8] = 1e38F;  // finite until summed
    for (float& v : file->values("encoder.layer.1.output.dense.weight")) v = 1e5F;
    DetectOptions options;
    options.heads = 2;
    const Architecture a = detect(*file, options);
    const std::shared_ptr<const Weights> weights =
        checkpoint_weights(file, a, cpu(), Type::f32, false);
    const Model model(a.spec, weights, cpu(), Type::f32);
    Input input = gaussian(16, 8, Type::f32);
    EXPECT_THAT(thrown<NonFiniteError>([&] { run(model, input); }),
                HasSubstr("layer 1, stage 'ffn'"));
}

TEST(Weights, OfIntegersAreRefused) {
    auto file = tiny_bert();
    file->set_dtype("encoder.layer.0.output.dense.weight", DType::i32);
    DetectOptions options;
    options.heads = 2;
    const Architecture a = detect(*file, options);
    const auto weights = checkpoint_weights(file, a, cpu(), Type::f32, false);
    EXPECT_THAT(thrown<FormatError>([&] { weights->get("layer.0.ffn.down.weight"); }),
                HasSubstr("encoder.layer.0.output.dense.weight"));
    EXPECT_THROW(weights->get("layer.9.ffn.down.weight"), FormatError);
}

TEST(Weights, OfTheRightTypeAreTheFilesOwnMemory) {
    auto file = tiny_bert();
    DetectOptions options;
    options.heads = 2;
    const Architecture a = detect(*file, options);
    const auto weights = checkpoint_weights(file, a, cpu(), Type::f32, false);
    const Tensor t = weights->get("layer.0.ffn.down.weight");
    EXPECT_EQ(t.view().data, file->values("encoder.layer.0.output.dense.weight").data());
}

/// |W_V^k W_O^k|_F^2 by three loops.
double naive_gain(const BlockSpec& b, const std::vector<double>& v, const std::vector<double>& o,
                  Index d) {
    const Index w = b.attention.head_dim, inner = b.attention.heads * w;
    double sum = 0;
    for (Index k = 0; k < b.attention.heads; ++k)
        for (Index i = 0; i < d; ++i)
            for (Index j = 0; j < d; ++j) {
                double entry = 0;
                const Index kv = k / (b.attention.heads / b.attention.kv_heads);
                for (Index c = 0; c < w; ++c)
                    entry += v[std::size_t((kv * w + c) * d + i)] *
                             o[std::size_t(j * inner + k * w + c)];
                sum += entry * entry;
            }
    return b.alpha * b.alpha * sum / double(d);
}

TEST(BranchGain, IsTheNormOfValueAndOutputProjections) {
    for (const std::string text : {"llama-7b,kv_heads=2,vocab=9", "bert-base,vocab=9"}) {
        const RandomModel drawn = random_model(text + small);
        const std::shared_ptr<const Weights> weights =
            random_weights(drawn, Rng(1), cpu(), Type::f64);
        const Model model(drawn.spec, weights, cpu(), Type::f64);
        const double expected = naive_gain(
            drawn.spec.blocks[1], weights->get("layer.1.attn.v.weight").to_host<double>(),
            weights->get("layer.1.attn.o.weight").to_host<double>(), 16);
        EXPECT_CLOSE(model.branch_gain(1), expected, rounding(256));
        EXPECT_EQ(run(model, ids({1, 2})).a2.at(1), model.branch_gain(1));
    }
}

TEST(BranchGain, IncludesTheLayerScale) {
    DetectOptions options;
    options.heads = 4;
    const Opened opened = Opened::from(
        std::filesystem::path(test_data()) / "golden/timm-vit-ls/model.safetensors", options);
    const auto weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);
    const Index d = opened.architecture.spec.width;
    const std::vector<double> gamma = weights->get("layer.1.scale1").to_host<double>();
    std::vector<double> o = weights->get("layer.1.attn.o.weight").to_host<double>();
    for (std::size_t i = 0; i < o.size(); ++i) o[i] *= gamma[i / std::size_t(d)];
    const double expected =
        naive_gain(opened.architecture.spec.blocks[1],
                   weights->get("layer.1.attn.v.weight").to_host<double>(), o, d);
    EXPECT_CLOSE(opened.model(Type::f64).branch_gain(1), expected, rounding(256));
}

TEST(BranchGain, WithoutOutputProjectionIsThatOfTheValues) {
    const RandomModel drawn = random_model("post-norm,alpha=2,layers=1,d=256,heads=4");
    const std::shared_ptr<const Weights> weights = random_weights(drawn, Rng(1), cpu(), Type::f64);
    const Model model(drawn.spec, weights, cpu(), Type::f64);
    EXPECT_CLOSE(model.branch_gain(0),
                 4 * squared_norm(weights->get("layer.0.attn.v.weight")) / 256, rounding(64));
    EXPECT_CLOSE(model.branch_gain(0), 4, sampling(256 * 256, 4 * 1.42));  // alpha^2 d sigma^2
}

TEST(Projections, AreWhatTheLogitsSee) {
    struct Keeper : Observer {
        std::vector<double> logits, p;
        bool wants_attention(Index) const override { return true; }
        void on_attention(const Attention& e) override {
            const Projections& j = *e.projections;
            logits = matmul(j.q, j.k, Transpose::second, j.scale).to_host<double>();
            p = e.op.matrix().to_host<double>();
            EXPECT_EQ(j.frequency.size(), 2U);
            EXPECT_EQ(j.position.size(), 3U);
            EXPECT_TRUE(j.q_norm.defined());
            const Tensor q = rotate(rms_norm(j.q_raw, j.q_norm, j.norm_eps), j.position,
                                    j.frequency, j.interleaved);
            EXPECT_TENSOR_NEAR(q, j.q, exactly);
            EXPECT_TRUE(e.pre_norm);
        }
    } keeper;
    const Model model = random("qwen3-0.6b,vocab=9,layers=1,d=16,heads=4", Type::f64);
    const Input input = ids({1, 2, 3});
    model.run(std::span(&input, 1), keeper);
    for (std::size_t h = 0; h < 4; ++h) {  // last row sees all three tokens
        const double* s = keeper.logits.data() + h * 9 + 6;
        const double z = std::exp(s[0]) + std::exp(s[1]) + std::exp(s[2]);
        for (std::size_t j = 0; j < 3; ++j)
            EXPECT_CLOSE(keeper.p[h * 9 + 6 + j], std::exp(s[j]) / z, rounding(64));
    }
}

/// The golden file's first layer again: p of each token is a softmax, the chosen are its greatest.
TEST(Mixture, TellsTheRoutingOfEachSample) {
    struct Routings : Observer {
        std::map<Index, std::vector<double>> p;
        std::map<Index, std::vector<Index>> chosen;
        void on_routing(const Routing& e) override {
            p[e.layer] = e.p.to_host<double>();
            chosen[e.layer].assign(e.chosen.begin(), e.chosen.end());
            EXPECT_EQ(e.each, 2);
        }
    };
    const Opened opened = Opened::from(golden / "mixtral");
    std::vector<Input> inputs(2);
    inputs[0].ids = {3, 1, 4, 1, 5, 9};
    inputs[1].ids = {2, 7, 1, 8, 2, 8};
    Routings seen, alone;
    opened.model(Type::f64).run(inputs, seen, {.batch = 2});
    opened.model(Type::f64).run(std::span(&inputs[1], 1), alone);
    EXPECT_EQ(seen.p, alone.p);  // of the last sample, whatever the batch
    EXPECT_EQ(seen.chosen, alone.chosen);
    ASSERT_EQ(seen.p.size(), 2U);
    const std::vector<double>& p = seen.p[0];
    for (std::size_t i = 0; i < 6; ++i) {
        std::vector<std::size_t> order{0, 1, 2, 3, 4};
        std::ranges::sort(order, std::greater<>(), [&](std::size_t e) { return p[5 * i + e]; });
        double sum = 0;
        for (std::size_t e = 0; e < 5; ++e) sum += p[5 * i + e];
        EXPECT_NEAR(sum, 1, 1e-14);
        for (std::size_t k = 0; k < 2; ++k)
            EXPECT_EQ(seen.chosen[0][2 * i + k], Index(order[k])) << i;
    }
}

}  // namespace
}  // namespace tsdiag::test
