#include <gmock/gmock.h>

#include "memory_file.hpp"
#include "recorder.hpp"

/// Readers of models with attentions other than softmax: what they infer, require and refuse.
namespace tsdiag::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

template <class E>
std::string refusal(const Checkpoint& file, const std::string& config = "", Index heads = 0) {
    return thrown<E>([&] { spec_of(file, config, heads); });
}

/// The error message of a model of a golden directory for a sample of `n` tokens.
std::string run_error(const std::string& path, Index n, DetectOptions options = {},
                      std::vector<bool> keep = {}) {
    const Opened opened = Opened::from(golden / path, std::move(options));
    Input input = gaussian(n, opened.architecture.spec.width);
    if (opened.architecture.spec.embedding.vocabulary > 0) {
        input = {};
        input.ids.assign(std::size_t(n), 3);
    }
    input.keep = std::move(keep);
    Recorder seen;
    return thrown<UsageError>([&] { opened.model(Type::f64).run(std::span(&input, 1), seen); });
}

TEST(Variants, AreRecognisedByNamesAlone) {
    const std::vector<std::tuple<const char*, const char*, Index>> files{
        {"nystromformer", "nystromformer", 0},
        {"nystrom-attention", "nystrom_attention", 0},
        {"performer", "performer", 0},
        {"linformer", "linformer", 2},
        {"flash", "flash", 0},
        {"gau", "gau", 0}};
    for (const auto& [path, family, heads] : files)
        EXPECT_EQ(spec_of(*copy_of(path), "", heads).family, family);
}

TEST(BigBird, IsReadAsItRunsOutsideOfTraining) {
    const auto file = copy_of("big-bird");
    const auto config = [](const std::string& more) {
        return R"({"model_type": "big_bird", "num_attention_heads": 3)" + more + "}";
    };
    const ModelSpec s = spec_of(*file, config(R"(, "block_size": 4, "num_random_blocks": 2)"));
    EXPECT_EQ(s.family, "big_bird");
    EXPECT_EQ(s.embedding.scale, 1);
    const AttentionSpec& a = s.blocks[0].attention;
    EXPECT_EQ(a.variant, "bigbird");
    EXPECT_EQ(
        a.options,
        (AttentionOptions{{"block", "4"}, {"random", "2"}, {"choice", "first"}, {"full", "36"}}));
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("the first counted 3 times")));
    EXPECT_THAT(spec_of(*file, config("")).provenance.defaults,
                Contains(HasSubstr("block_size = 64")));
    const ModelSpec full =
        spec_of(*file, config(R"(, "attention_type": "original_full", "is_decoder": true)"));
    EXPECT_EQ(full.blocks[0].attention.variant, "softmax");
    EXPECT_TRUE(full.blocks[0].attention.causal);
    EXPECT_THAT(refusal<FormatError>(*file, config(R"(, "is_decoder": true)")),
                HasSubstr("is_decoder = true"));
    EXPECT_THAT(refusal<FormatError>(*file, config(R"(, "attention_type": "sparse")")),
                HasSubstr("attention_type"));
    EXPECT_EQ(spec_of(*file, "", 3).family, "bert");  // its names alone are BERT's
}

TEST(Nystromformer, TakesItsDefaultsAndSaysSo) {
    const ModelSpec s = spec_of(*copy_of("nystromformer"));
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("num_landmarks = 64")));
    EXPECT_EQ(s.blocks[0].attention.options.at("landmarks"), "n");  // 64 segments of 64
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("the exact softmax")));
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("a convolution of width 5")));
}

TEST(Nystromformer, RefusesWhatDoesNotFit) {
    const auto file = copy_of("nystromformer");
    EXPECT_THAT(refusal<FormatError>(*file, R"({"num_attention_heads": 2})"),
                HasSubstr("num_attention_heads = 2, but tensor"));
    const std::string conv = "nystromformer.encoder.layer.1.attention.self.conv.weight";
    file->add(conv, {3, 1, 7, 1});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("(3, 1, 7, 1), expected (3, 1, 5, 1)"));
    file->remove(conv);
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("is missing"));
    file->add("nystromformer.encoder.layer.0.attention.self.conv.weight", {3, 1, 4, 1});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("width 4, expected an odd width"));
    EXPECT_THAT(run_error("nystromformer", 10), HasSubstr("landmarks=4 does not divide the 10"));
}

TEST(NystromAttention, RefusesWhatDoesNotFit) {
    EXPECT_THAT(run_error("nystrom-attention", 10), HasSubstr("does not divide the 10 tokens"));
    EXPECT_THAT(run_error("nystrom-attention", 3), HasSubstr("does not divide the 3 tokens"));
    EXPECT_THAT(refusal<FormatError>(*copy_of("nystrom-attention"), R"({"pinv_iterations": 4})"),
                HasSubstr("pinv_iterations = 4"));
}

TEST(NystromAttention, WithoutItsConvolutionHasToBeTold) {
    const auto file = copy_of("nystrom-attention");
    for (const char* layer : {"0", "1"})
        file->remove(std::string("layers.") + layer + ".0.fn.res_conv.weight");
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("unknown layout"));
    const std::string config = R"({"model_type": "nystrom_attention"})";
    EXPECT_THAT(refusal<UsageError>(*file, config), HasSubstr("--n-heads"));
    const ModelSpec s = spec_of(*file, config, 3);
    EXPECT_TRUE(s.blocks[0].attention.own.empty());
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("no convolution over the values")));
}

TEST(Performer, TakesSizesFromItsRandomFeatures) {
    const ModelSpec s = spec_of(*copy_of("performer"));
    EXPECT_EQ(s.blocks[0].attention.heads, 3);
    EXPECT_EQ(s.blocks[0].attention.options.at("features"), "10");
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("causal = false")));
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("generalized_attention = false")));
}

TEST(Performer, RefusesWhatItCannotRun) {
    const auto file = copy_of("performer-causal");
    const std::string layer = "performer.net.layers.0.0.";
    const std::string features = layer + "fn.fast_attention.projection_matrix";
    file->add(features, {10, 9});  // 18 columns are 2 heads of 9: the pairs of columns do not fit
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("heads of 9 columns cannot rotate"));
    file->add(features, {10, 7});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("random features of 7 columns"));
    file->remove(features);
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("without random features"));
    file->add(layer + "g", {1});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("ReZero or ScaleNorm"));
}

TEST(Linformer, AsksForItsHeads) {
    EXPECT_THAT(refusal<UsageError>(*copy_of("linformer")), HasSubstr("--n-heads"));
    const ModelSpec s = spec_of(*copy_of("linformer-shared"));
    EXPECT_EQ(s.blocks[0].attention.heads, 2);
    EXPECT_EQ(s.blocks[0].attention.kv_heads, 1);
    EXPECT_EQ(s.blocks[0].attention.options.at("shared"), "1");
}

TEST(Linformer, RefusesLongerSamplesThanItsProjections) {
    EXPECT_THAT(run_error("linformer-shared", 11), HasSubstr("11 tokens"));
    EXPECT_THAT(run_error("linformer-shared", 3), HasSubstr("length=4 is more than the 3 tokens"));
    const auto file = copy_of("linformer-shared");
    file->add("linformer.net.layers.0.0.fn.to_k.weight", {5, 16});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("keys of 5 columns do not match"));
}

/// A stack without embedding.
TEST(Linformer, MayHaveNoEmbedding) {
    const auto file = std::make_shared<MemoryFile>();
    const auto whole = copy_of("linformer-shared");
    const std::string inside = "linformer.";
    for (const std::string& name : whole->names())
        if (name.starts_with(inside))
            file->add("body." + name.substr(inside.size()), whole->tensor(name).shape);
    const ModelSpec s = spec_of(*file);
    EXPECT_EQ(s.embedding.vocabulary, 0);
    EXPECT_EQ(s.blocks.size(), 2U);
    EXPECT_TRUE(s.provenance.ignored.empty());
}

TEST(Flash, TakesItsDefaultsAndSaysSo) {
    const ModelSpec s = spec_of(*copy_of("flash"));
    for (const char* line : {"group_size = 256", "shift_tokens = true", "causal = false"})
        EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr(line)));
    EXPECT_TRUE(s.blocks[0].attention.gated_unit);
    EXPECT_EQ(s.blocks[0].norm.kind, NormKind::scale);
    EXPECT_EQ(s.last_norm(), NormKind::layer);
}

TEST(Flash, RefusesMasksAndOddWidths) {
    std::vector<bool> keep(8, true);
    keep[7] = false;
    EXPECT_THAT(run_error("flash", 8, {}, keep), HasSubstr("the mask hides 1 of 8 tokens"));
    const auto file = copy_of("flash");
    file->add("layers.0.to_qk.0.weight", {7, 14});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("8 columns rotate, but queries have 7"));
    file->add("layers.0.to_qk.0.weight", {8, 13});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("even width"));
    file->add("layers.0.to_hidden.0.weight", {57, 14});
    EXPECT_THAT(refusal<FormatError>(*file), HasSubstr("odd number of rows"));
}

TEST(Flash, HasNoGain) {
    const Opened opened = Opened::from(golden / "flash");
    EXPECT_TRUE(std::isnan(opened.model(Type::f64).branch_gain(0)));
}

constexpr const char* t1 = R"({"arch": "transnormer_t1"})";

TEST(TransNormer, HasToBeToldWhichItIs) {
    const auto file = copy_of("transnormer1-lm/checkpoint_best.pt");
    EXPECT_THAT(refusal<UsageError>(*file), HasSubstr("T1 and T2 have the same tensors"));
    const ModelSpec one = spec_of(*file, t1), two = spec_of(*file, R"({"arch": "transnormer_t2"})");
    const BlockSpec &early = one.blocks.front(), &late = one.blocks.back();
    EXPECT_EQ(early.attention.options.at("activation"), "rela");
    EXPECT_EQ(early.attention.output_norm, OutputNorm::simple_rms);
    EXPECT_EQ(late.attention.qk_activation, Unary::elu);
    EXPECT_TRUE(late.attention.rotary.learned && late.attention.rotary.reflected);
    EXPECT_EQ(two.blocks.front().attention.options.at("activation"), "softmax");
    EXPECT_EQ(two.blocks.front().attention.output_norm, OutputNorm::none);
    EXPECT_EQ(two.blocks.back().attention.qk_activation, Unary::elu_plus_one);
    EXPECT_EQ(two.blocks.front().placement, NormPlacement::pre);
    EXPECT_EQ(two.blocks[1].attention.variant, "norm_attention");  // layer 0 of 3 is the first half
}

TEST(TransNormer, SaysWhichReadingOfItsGateItTook) {
    const auto file = copy_of("transnormer1-lm/checkpoint_best.pt");
    const ModelSpec silu = spec_of(*file, t1);
    EXPECT_EQ(silu.blocks[0].ffn.activation, Unary::silu);
    EXPECT_THAT(silu.provenance.warnings,
                Contains(HasSubstr("glu_act 'swish' is computed as SiLU")));
    const ModelSpec identity =
        spec_of(*file, R"({"arch": "transnormer_t1", "glu_act": "identity"})");
    EXPECT_EQ(identity.blocks[0].ffn.activation, Unary::copy);
    EXPECT_THAT(identity.provenance.recognised, Contains(HasSubstr("activation identity")));
}

TEST(TransNormer, SaysThatZerosFillTheLastChunkAndMayLeaveThemOut) {
    const auto file = copy_of("transnormer2-mlm/checkpoint_best.pt");
    const std::string two = R"({"arch": "roberta_transnormer_t2")";
    const ModelSpec code = spec_of(*file, two + "}");
    EXPECT_THAT(code.provenance.defaults, Contains(HasSubstr("padded_chunks = true")));
    EXPECT_EQ(code.blocks[0].attention.options.at("padded"), "1");
    const ModelSpec text = spec_of(*file, two + R"(, "padded_chunks": false})");
    EXPECT_EQ(text.blocks[0].attention.options.at("padded"), "0");
    EXPECT_EQ(code.blocks[0].attention.head_dim, 7);
    EXPECT_EQ(code.blocks[0].attention.rotary.columns, 6);  // the last of an odd number stays
}

TEST(TransNormer, RefusesWhatItCannotRun) {
    const auto file = copy_of("transnormer1-lm/checkpoint_best.pt");
    const auto with = [](const std::string& more) {
        return R"({"arch": "transnormer_t1", )" + more + "}";
    };
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("decoder_attention_types": [2, 1])")),
                HasSubstr("the attention of 2 layers, but it has 3"));
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("decoder_attention_types": [3, 1, 1])")),
                HasSubstr("attention type 3"));
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("linear_act_fun": "gelu")")),
                HasSubstr("linear_act_fun 'gelu'"));
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("glu_act": "cosine")")),
                HasSubstr("glu_act 'cosine'"));
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("norm_type": "gatedrmsnorm")")),
                HasSubstr("norm_type 'gatedrmsnorm'"));
    EXPECT_THAT(refusal<FormatError>(*file, with(R"("decoder_attention_heads": 4)")),
                HasSubstr("decoder_attention_heads = 4"));
    const std::string theta = "decoder.layers.0.self_attn.urpe.theta";
    file->add(theta, {1, 1, 5});
    EXPECT_THAT(refusal<FormatError>(*file, t1), HasSubstr("5 frequencies"));
    file->add(theta, {1, 1, 4});
    file->add("decoder.layers.0.self_attn.layer_norm.weight", {16});
    EXPECT_THAT(refusal<FormatError>(*file, t1), HasSubstr("a norm inside the attention"));
}

/// relu(S) can be 0 in a whole row: the branch is 0 there, and norms of zeros are 0.
TEST(TransNormer, RunsRowsWithoutAttention) {
    const RandomModel drawn = random_model("transnormer1-lm,layers=2,d=16,heads=4,ffn=24,vocab=9");
    const auto weights = random_weights(drawn, Rng(1), cpu(), Type::f64);
    const Model model(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64), cpu(),
                      Type::f64);
    Input input;
    input.ids = {4, 5, 6, 7, 8, 2};
    Recorder seen;
    model.run(std::span(&input, 1), seen);
    const std::vector<double>&p = seen.matrix.at(0), &sa = seen.states.at("layer.0.sa");
    bool zero = false;  // the first token sees itself alone, through one logit
    for (std::size_t k = 0; k < 4; ++k) zero = zero || p[k * 36] == 0;
    EXPECT_TRUE(zero);
    for (const double x : sa) EXPECT_TRUE(std::isfinite(x));
}

// --- What attentions draw at random

constexpr Index drawn_tokens = 12;

/// Options that leave something to the draw.
std::string with_something_to_draw(std::string_view name) {
    const std::map<std::string_view, std::string_view> options{
        {"performer", ",features=6"},
        {"bigbird", ",block=2,global=0,neighbours=0,random=1"},
        {"informer", ",factor=1"},
        {"reformer", ",chunk=4,rounds=1"},
        {"transformer_ls", ",segment=2,rank=2"},
        {"skyformer", ",landmarks=4"},
        {"nystrom", ",landmarks=4,conv=3"},
        {"polynomial", ",scale=none"}};
    const auto found = options.find(name);
    return std::string(name) + std::string(found == options.end() ? "" : found->second);
}

Model model_with(const std::string& attention) {
    return random("post-norm,layers=2,d=12,heads=2,ffn=16,attention=" + attention, Type::f64);
}

/// P of layer 0, whose queries and keys depend on no attention.
std::vector<double> matrix_of(const Model& model, std::uint64_t seed) {
    const Input input = gaussian(drawn_tokens, 12);
    Recorder seen;
    model.run(std::span(&input, 1), seen, {.rng = Rng(seed)});
    return seen.matrix.at(0);
}

bool draws(const AttentionEntry& entry) {
    return std::ranges::find(entry.options, "seed", &AttentionOption::name) != entry.options.end();
}

TEST(AttentionDraws, FollowTheSeedOfTheRunWhereThereAreAny) {
    Index drawing = 0;
    for (const AttentionEntry* entry : attentions()) {
        SCOPED_TRACE(entry->name);
        const Model model = model_with(with_something_to_draw(entry->name));
        EXPECT_EQ(matrix_of(model, 1), matrix_of(model, 1));
        const bool drawn = draws(*entry) && model.spec().blocks[0].attention.own.empty();
        EXPECT_EQ(matrix_of(model, 1) != matrix_of(model, 2), drawn);
        drawing += drawn ? 1 : 0;
    }
    EXPECT_GT(drawing, 8);
}

/// The derivative is that of the draw of the forward pass.
TEST(AttentionDraws, AreThoseOfTheForwardPassInASweep) {
    class Gradients final : public Observer {
      public:
        void on_loss(double value) override { loss = value; }
        void on_gradient(const Gradient& g) override {
            if (g.stage.empty() && g.tensor == "attn.v.weight") of_values = g.g;
        }
        double loss = 0;
        Tensor of_values;
    };
    const Input input = gaussian(drawn_tokens, 12);
    const Loss loss{.kind = Loss::Kind::square};
    for (const char* name : {"performer", "reformer", "bigbird"}) {
        const Model model = model_with(with_something_to_draw(name));
        const auto swept = [&](std::uint64_t seed, Index update) {
            Gradients seen;
            model.differentiate(std::span(&input, 1), std::span(&loss, 1), seen,
                                {.rng = Rng(seed), .update = update});
            return seen;
        };
        const auto stepped = [&](std::uint64_t seed, Index update) {
            return model.step(input, loss, {.attention_rng = Rng(seed), .update = update});
        };
        for (const auto& [seed, update] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 5000)}) {
            const Gradients back = swept(std::uint64_t(seed), update);
            const StepResult step = stepped(std::uint64_t(seed), update);
            EXPECT_CLOSE(back.loss, step.loss, rounding(64)) << name;
            const auto of_values = std::ranges::find(step.gradients, "layer.0.attn.v.weight",
                                                     &std::pair<std::string, Tensor>::first);
            ASSERT_NE(of_values, step.gradients.end());
            EXPECT_TENSOR_NEAR(back.of_values, of_values->second, rounding(1024)) << name;
        }
        EXPECT_GT(std::abs(stepped(1, 0).loss - stepped(2, 0).loss), 1e-9) << name;
    }
}

/// What the authors draw at each forward pass is drawn in each step of a training, what they fix is
/// not.
TEST(AttentionDraws, AreRepeatedInATrainingWhereTheOptionSaysSo) {
    const Input input = gaussian(drawn_tokens, 12);
    const Loss loss{.kind = Loss::Kind::product,
                    .cotangent = gaussian(drawn_tokens, 12, Type::f64, 3).hidden};
    const auto same = [&](const std::string& attention, Index a, Index b) {
        const Model model = model_with(attention);
        const auto at = [&](Index update) {
            return model.step(input, loss, {.attention_rng = Rng(1), .update = update}).loss;
        };
        EXPECT_EQ(at(a), at(a));
        return at(a) == at(b);
    };
    for (const std::string name : {"reformer", "skyformer", "informer"}) {
        EXPECT_FALSE(same(with_something_to_draw(name), 0, 1)) << name;
        EXPECT_FALSE(same(with_something_to_draw(name), 1, 2)) << name;
        EXPECT_TRUE(same(with_something_to_draw(name) + ",redraw=0", 0, 1)) << name;
    }
    EXPECT_TRUE(same(with_something_to_draw("performer"), 0, 999));
    EXPECT_FALSE(same(with_something_to_draw("performer"), 999, 1000));
    for (const std::string name : {"bigbird", "linformer", "transformer_ls", "nystrom"})
        EXPECT_TRUE(same(with_something_to_draw(name), 0, 1000)) << name;
}

}  // namespace
}  // namespace tsdiag::test
