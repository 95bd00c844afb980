#include <gmock/gmock.h>

#include "support/files.hpp"
#include "support/memory.hpp"
#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/run.hpp"

/// Every attention inside a model, with every probe.
namespace tsdiag::test {
namespace {

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const AttentionEntry* entry : attentions()) all.emplace_back(entry->name);
    for (const AttentionPlan& plan : attention_plans()) all.emplace_back(plan.name);
    return all;
}

RunOptions options_for(const std::string& attention, const std::string& model = "post-norm") {
    RunOptions options;
    options.subject.model =
        "random:" + model + ",d=24,heads=3,layers=2,ffn=32,attention=" + attention;
    options.tokens = 64;
    options.dtype = Type::f64;
    return options;
}

class EveryAttentionInAModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryAttentionInAModel, HasEveryMetricOrItsReason) {
    for (const char* model : {"post-norm", "pre-norm"}) {
        const RunResult result = run(options_for(GetParam(), model));
        for (Index layer = 0; layer < 2; ++layer)
            for (const char* metric :
                 {"lambda2_abs", "delta", "omega", "mu1", "mu2", "attn_fro", "jac_fro", "jac_q_fro",
                  "dp_ds_max", "entropy", "row_max", "neg_mass", "row_sum_dev", "local_auc"}) {
                const Place at{.layer = layer, .stage = "attn", .head = 1};
                const auto row = result.table.find(at, metric);
                ASSERT_TRUE(row) << metric;
                EXPECT_TRUE(row->value || !row->note.empty()) << metric;
            }
    }
}

TEST_P(EveryAttentionInAModel, GivesTheSameNumbersWithLittleMemory) {
    RunOptions options = options_for(GetParam());
    options.probes = {"core"};
    const std::vector<MetricRow> roomy = run(options).table.metrics();
    options.memory = least_memory(options);
    const std::vector<MetricRow> tight = run(options).table.metrics();
    ASSERT_EQ(roomy.size(), tight.size());
    for (std::size_t i = 0; i < roomy.size(); ++i) {
        ASSERT_EQ(roomy[i].value.has_value(), tight[i].value.has_value()) << roomy[i].metric;
        if (roomy[i].value) {
            EXPECT_NEAR(*roomy[i].value, *tight[i].value, 1e-6 * (1e-3 + std::abs(*roomy[i].value)))
                << roomy[i].metric;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(List, EveryAttentionInAModel, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

std::string reason(const std::string& attention, const char* metric) {
    const auto row =
        run(options_for(attention)).table.find({.layer = 0, .stage = "attn", .head = 0}, metric);
    return !row ? "(no row)" : row->value ? "(defined)" : row->note;
}

TEST(AttentionInAModel, UndefinedMetricsSayWhy) {
    EXPECT_EQ(reason("polynomial", "entropy"), "an entry of P is negative");
    EXPECT_THAT(reason("relu", "entropy"), testing::StartsWith("rows do not sum to 1"));
    EXPECT_THAT(reason("norm_attention", "spectral_gap"),
                testing::StartsWith("rows do not sum to 1"));
    EXPECT_EQ(reason("norm_attention", "est1"), "P V is normalised");
    EXPECT_EQ(reason("norm_attention", "est_mu"), "P V is normalised");
    EXPECT_EQ(reason("norm_attention,output_norm=none", "est_mu"), "(defined)");
    EXPECT_EQ(reason("linformer", "jac_fro"), "P is a softmax of n x k logits times F^T");
    EXPECT_EQ(reason("kernelized", "jac_fro"),
              "P is a function of |q - k|, not of the logits alone");
    EXPECT_EQ(reason("skyformer", "jac_fro"), "P is a product of Gaussian kernels");
    for (const char* metric : {"lambda2_abs", "jac_fro", "jac_q_fro", "jac_k_fro", "entropy"}) {
        EXPECT_EQ(reason("bigbird,block=4", metric), "(defined)") << metric;
        EXPECT_EQ(reason("informer,factor=1", metric), "(defined)") << metric;
    }
    EXPECT_THAT(reason("informer,factor=1,causal=1", "entropy"),
                testing::StartsWith("rows do not sum to 1"));
    EXPECT_EQ(reason("informer,factor=1,causal=1,lazy=mean", "entropy"), "(defined)");
    EXPECT_EQ(reason("linear", "jac_fro"), "(defined)");
    EXPECT_EQ(reason("linear", "entropy"), "(defined)");
    EXPECT_EQ(reason("linear", "jac_q_fro"), "P is not a function of the logits scale q k^T only");
}

/// Values of every layer and head of a metric as text, without the numbers.
std::vector<std::string> notes_of(const Table& table, std::string_view metric) {
    std::vector<std::string> all;
    for (const MetricRow& row : table.metrics())
        if (row.metric == metric && row.at.head >= 0)
            all.push_back(row.value ? "defined" : row.note);
    return all;
}

TEST(TransNormer, HasEveryMetricOrItsReason) {
    for (const char* name :
         {"transnormer1", "transnormer1-mlm", "transnormer2", "transnormer2-mlm"}) {
        RunOptions options;
        options.subject.model =
            std::string("random:") + name + ",d=24,heads=3,layers=4,ffn=32,vocab=50,block=16";
        options.tokens = 40;
        options.dtype = Type::f64;
        const Table table = run(options).table;
        for (const char* metric : {"lambda2_abs", "delta", "attn_fro", "jac_fro", "jac_q_fro",
                                   "jac_k_fro", "est_mu", "row_max", "local_auc"}) {
            const std::vector<std::string> all = notes_of(table, metric);
            ASSERT_EQ(all.size(), 12U) << metric;
            for (const std::string& text : all) EXPECT_FALSE(text.empty()) << metric;
        }
        const std::vector<std::string> jacobians = notes_of(table, "jac_q_fro");
        EXPECT_EQ(jacobians.front(), "defined") << name;
        EXPECT_EQ(jacobians.back(), "P is not a function of the logits scale q k^T only") << name;
        EXPECT_EQ(notes_of(table, "est_mu").back(), "P V is normalised");
    }
}

/// Trials draw what an attention draws, too: its variance is in the standard errors.
TEST(AttentionDraws, FollowTheTrial) {
    constexpr std::uint64_t seed = 5;
    RunOptions options = options_for("performer,features=5");
    options.tokens = 16;
    options.seed = seed;
    options.trials = 2;
    options.own_input = OwnInput{
        .kind = "given",
        .origin = "a wave",
        .digest = "",
        .make = [](Index, Index n, const ModelSpec& spec, const Backend& backend, Type type) {
            Input input;
            input.hidden =
                random_tensor(backend, {1, n, spec.width}, type, Law::normal, Rng(9), 0, 1);
            return input;
        }};
    class Norm final : public Observer {
      public:
        bool wants_attention(Index layer) const override { return layer == 0; }
        void on_attention(const Attention& e) override {
            squares = squared_norm(e.op.matrix().batch_range(1, 1));
        }
        double squares = 0;
    };
    const RandomModel drawn = random_model(options.subject.model.substr(7));
    const auto norm = [&](Index of_weights, Index of_draws) {
        const Model model(drawn.spec,
                          random_weights(drawn, weights_rng(seed, of_weights), cpu(), Type::f64),
                          cpu(), Type::f64);
        const Input input = options.own_input->make(0, 16, drawn.spec, cpu(), Type::f64);
        Norm seen;
        model.run(std::span(&input, 1), seen, {.rng = weights_rng(seed, of_draws)});
        return std::sqrt(seen.squares);
    };
    const auto row = run(options).table.find({.layer = 0, .stage = "attn", .head = 1}, "attn_fro");
    ASSERT_TRUE(row && row->value);
    EXPECT_CLOSE(*row->value, (norm(0, 0) + norm(1, 1)) / 2, rounding(1000));
    EXPECT_GT(std::abs(norm(1, 1) - norm(1, 0)), 1e-6);
}

TEST(GatedUnit, HasNoGainAndNoEstimate) {
    for (const char* path : {"flash", "gau"}) {
        RunOptions options;
        options.subject.model = test_data() + "/golden/" + path;
        options.tokens = 30;
        const RunResult result = run(options);
        for (const std::string& text : notes_of(result.table, "est_mu"))
            EXPECT_EQ(text, "P V is gated");
        for (const std::string& text : notes_of(result.table, "jac_q_fro"))
            EXPECT_EQ(text, "no projections");
        for (const std::string& text : notes_of(result.table, "lambda2_abs"))
            EXPECT_EQ(text, "defined");
        for (const Json& gain : result.run["model"]["a2"].array()) EXPECT_TRUE(gain.is_null());
    }
}

std::string refusal(const std::string& attention, Index tokens = 64) {
    try {
        RunOptions options = options_for(attention);
        options.tokens = tokens;
        run(options);
    } catch (const UsageError& e) {
        return e.what();
    }
    return "";
}

TEST(AttentionInAModel, RefusesInOneSentence) {
    EXPECT_EQ(refusal("nystrom", 63),
              "attention 'nystrom': landmarks=64 does not divide the 63 tokens of the sample; "
              "expected a multiple of 64 tokens");
    EXPECT_EQ(refusal("linformer,length=65"),
              "attention 'linformer': length=65 is more than the 64 tokens of the sample");
    EXPECT_EQ(refusal("polynomial,p=0"),
              "attention 'polynomial': p=0 is not a whole number from 1 to 6");
    EXPECT_THAT(refusal("polynomial,scal=none"), testing::HasSubstr("did you mean 'scale'?"));
    EXPECT_THAT(refusal("softmax,landmarks=3"), testing::HasSubstr("unknown key 'landmarks'"));
    EXPECT_THAT(refusal("linformer,causal=1"), testing::HasSubstr("cannot be causal"));
    EXPECT_THAT(refusal("linear,window=4"), testing::HasSubstr("no sliding window"));
    EXPECT_THAT(refusal("softmax,output_norm=batch"), testing::HasSubstr("output_norm=batch"));
    EXPECT_THAT(refusal("transnorme1"), testing::HasSubstr("Did you mean 'transnormer1'?"));
}

TEST(AttentionPlan, ChangesInTheMiddleOfTheLayers) {
    const ModelSpec spec =
        random_model("post-norm,d=24,heads=3,layers=5,ffn=32,attention=transnormer1,block=8").spec;
    for (std::size_t l = 0; l < 5; ++l) {
        EXPECT_EQ(spec.blocks[l].attention.variant, l < 2 ? "diag_attention" : "norm_attention");
        EXPECT_EQ(spec.blocks[l].attention.output_norm, OutputNorm::simple_rms);
    }
    EXPECT_EQ(spec.blocks[0].attention.options.at("block"), "8");
    EXPECT_EQ(spec.blocks[0].attention.options.at("activation"), "rela");
}

TEST(AttentionMix, GivesEachLayerItsOwn) {
    const ModelSpec spec =
        random_model(
            "gpt2,d=24,heads=3,layers=5,attention=3-4:norm_attention;0:softmax;1-2:diag_attention:"
            "block=4,map=1+elu,activation=rela")
            .spec;
    const std::vector<std::string> expected{"softmax", "diag_attention", "diag_attention",
                                            "norm_attention", "norm_attention"};
    for (std::size_t l = 0; l < 5; ++l) EXPECT_EQ(spec.blocks[l].attention.variant, expected[l]);
    EXPECT_EQ(spec.blocks[0].attention.options, AttentionOptions());
    EXPECT_EQ(spec.blocks[1].attention.options,
              (AttentionOptions{{"activation", "rela"}, {"block", "4"}}));
    EXPECT_EQ(spec.blocks[3].attention.options, (AttentionOptions{{"map", "1+elu"}}));
    EXPECT_EQ(spec.blocks[2].attention.output_norm, OutputNorm::none);
    EXPECT_EQ(spec.blocks[3].attention.output_norm,
              output_norm_named(attention("norm_attention").output_norm));
}

TEST(AttentionMix, OfOneVariantIsThatVariant) {
    const ModelSpec mix = random_model("gpt2,layers=3,attention=0-2:polynomial:p=2").spec;
    const ModelSpec plain = random_model("gpt2,layers=3,attention=polynomial,p=2").spec;
    EXPECT_EQ(mix.json()["blocks"].dump(), plain.json()["blocks"].dump());
}

TEST(AttentionMix, OfTransNormerIsThatOfItsHalves) {
    const ModelSpec plan = random_model("transnormer1-lm").spec;
    const ModelSpec mix =
        random_model("transnormer1-lm,attention=0-2:diag_attention;3-5:norm_attention").spec;
    EXPECT_EQ(mix.json()["blocks"].dump(), plan.json()["blocks"].dump());
}

std::string mix_refusal(const std::string& text) {
    try {
        random_model(text);
    } catch (const UsageError& e) {
        return e.what();
    }
    return "";
}

TEST(AttentionMix, RefusesLayersThatDoNotAddUp) {
    const std::string four = "gpt2,layers=4,attention=";
    EXPECT_EQ(mix_refusal(four + "0-1:softmax;3:linear"),
              "attention=0-1:softmax;3:linear: layer 2 is missing; expected 0 to 3");
    EXPECT_EQ(mix_refusal(four + "0-2:softmax;2-3:linear"),
              "attention=0-2:softmax;2-3:linear: layer 2 is given twice");
    EXPECT_EQ(mix_refusal(four + "0-4:softmax"),
              "attention=0-4:softmax: '0-4' names layers that the model does not have; expected "
              "layers 0 to 3");
    EXPECT_THAT(mix_refusal(four + "3-0:softmax"), testing::HasSubstr("'3-0' names layers"));
    EXPECT_THAT(mix_refusal(four + "0-3"), testing::HasSubstr("'0-3' is not FIRST-LAST:NAME"));
    EXPECT_THAT(mix_refusal(four + "0-1:softmax;"), testing::HasSubstr("'' is not FIRST-LAST"));
    EXPECT_THAT(mix_refusal(four + "0-x:softmax"), testing::HasSubstr("'0-x:softmax' is not"));
    EXPECT_THAT(mix_refusal(four + "0-3:softmx"), testing::HasSubstr("Did you mean 'softmax'?"));
    EXPECT_THAT(mix_refusal(four + "0-3:linear:feature=elu"),
                testing::HasSubstr("unknown option 'feature'"));
    EXPECT_THAT(mix_refusal(four + "0-3:polynomial:p"), testing::HasSubstr("not OPTION=VALUE"));
    EXPECT_THAT(mix_refusal(four + "0:softmax;1-3:linformer"),
                testing::HasSubstr("attention=linformer cannot be causal"));
    EXPECT_THAT(mix_refusal("post-norm,layers=2,window=3,attention=0:softmax;1:linear"),
                testing::HasSubstr("attention=linear has no sliding window"));
    EXPECT_THAT(mix_refusal("transnormer1-lm,attention=softmax"),
                testing::HasSubstr(
                    "unsupported attention softmax, expected diag_attention or norm_attention"));
    EXPECT_THAT(mix_refusal("transnormer1-lm,map=relu"), testing::HasSubstr("'map'"));
    EXPECT_THAT(mix_refusal("transnormer2-lm,attention=transnormer1"),
                testing::HasSubstr("that of transnormer2, not transnormer1"));
    EXPECT_THAT(mix_refusal("transnormer1-mlm,padded=1"), testing::HasSubstr("'padded'"));
    EXPECT_THAT(mix_refusal("transnormer2-lm,padded=1"), testing::HasSubstr("'padded'"));
    EXPECT_THAT(mix_refusal("transnormer1-lm,attention=norm_attention,block=7"),
                testing::HasSubstr("'block': no layer has chunks"));
    EXPECT_THAT(mix_refusal(four + "0-3:polynomial:p=5:p=2"),
                testing::HasSubstr("option 'p' was given twice"));
    EXPECT_THAT(mix_refusal(four + "0-3:polynomial:p=2,p=5"),
                testing::HasSubstr("p has no effect"));
    EXPECT_EQ(mix_refusal(four + "0-1:polynomial:p=2;2-3:polynomial,p=5"), "");
    EXPECT_THAT(mix_refusal(four + "0-3:transnormer1"),
                testing::HasSubstr("transnormer1 is a plan for all layers"));
}

TEST(AttentionMix, LeavesAFamilysOwnKeysAlone) {
    const ModelSpec spec =
        random_model("vit-base,layers=2,image=32,init=torch,attention=skyformer:init=exact").spec;
    EXPECT_EQ(spec.blocks[0].attention.options.at("init"), "exact");
    EXPECT_EQ(random_model("vit-base,layers=2,image=32,init=torch,attention=skyformer")
                  .spec.blocks[0]
                  .attention.options.count("init"),
              0U);
}

TEST(AttentionMix, OfAlbertSharesParametersAlone) {
    const ModelSpec spec =
        random_model("albert-base-v2,layers=3,attention=0:softmax;1-2:linear").spec;
    EXPECT_EQ(spec.blocks[0].attention.variant, "softmax");
    EXPECT_EQ(spec.blocks[2].attention.variant, "linear");
    EXPECT_EQ(spec.blocks[0].shares, -1);
    EXPECT_EQ(spec.blocks[2].shares, 0);
}

TEST(Deescalation, NeedsAStepToStandBefore) {
    EXPECT_THAT(mix_refusal("vit-base,placement=parallel,deesc=0.5,deesc_at=ffn"),
                testing::HasSubstr("pass deesc_at=end"));
    EXPECT_THAT(mix_refusal("post-norm,deesc=0.5,deesc_at=middle"),
                testing::HasSubstr("deesc_at=middle"));
    EXPECT_THAT(mix_refusal("post-norm,deesc_learned=1"), testing::HasSubstr("need deesc=TAU"));
    EXPECT_EQ(mix_refusal("vit-base,placement=parallel,deesc=0.5"), "");
}

/// The configuration of a written model with its first `from` replaced.
std::string reading(const std::string& random, const std::string& from, const std::string& to) {
    TemporaryDirectory folder;
    const RandomModel drawn = random_model(random);
    write_model(drawn.spec, *random_weights(drawn, Rng(1), cpu(), Type::f32), folder.path());
    std::string text = read_file(folder.path() / "config.json");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_atomically(folder.path() / "config.json", text.replace(at, from.size(), to));
    SubjectOptions options;
    options.model = folder.path().string();
    try {
        open_subject(options);
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

TEST(WrittenModel, IsRefusedWhereItsKeysAreNotUnderstood) {
    const std::string mix = "post-norm,d=8,heads=2,layers=2,ffn=8,attention=0:softmax;1:linear";
    EXPECT_EQ(reading(mix, "\"linear\"", "\"linear\""), "");
    EXPECT_THAT(reading(mix, "\"attention\"", "\"attenton\""), testing::HasSubstr("'attenton'"));
    EXPECT_THAT(reading(mix, "\"layers\": [", "\"layers\": [{}, "),
                testing::HasSubstr("the attention of 3 layers"));
    EXPECT_THAT(reading("post-norm,d=8,heads=2,layers=2,ffn=8,deesc=0.5,deesc_at=ffn", "\"ffn\"",
                        "\"FFN\""),
                testing::HasSubstr("deesc_at=FFN"));
    const std::string step = "post-norm,d=8,heads=2,layers=2,ffn=8,step=contranorm:norm=0";
    EXPECT_EQ(reading(step, "norm=0", "norm=0"), "");
    EXPECT_THAT(reading(step, "\"contranorm:norm=0\"", "[\"contranorm:norm=0\"]"),
                testing::HasSubstr("'steps' of its configuration's 'tsdiag' is "));
    EXPECT_THAT(reading(step, "contranorm:norm=0", "contrast"),
                testing::HasSubstr("'steps' of its configuration: unknown step 'contrast'"));
    EXPECT_THAT(reading(step, "contranorm:norm=0", "contranorm:norm=2"),
                testing::HasSubstr("norm=2 is not one of 0, 1"));
    EXPECT_THAT(reading(mix, "\"layers\": [", "\"steps\": \"contranorm\", \"layers\": ["),
                testing::HasSubstr("'steps' beside 'layers'"));
}

TEST(OutputNorm, MakesRowsOfTheBranchOfUnitMeanSquare) {
    for (const char* norm : {"rms", "simple_rms", "layer"}) {
        const RunResult result =
            run(options_for("norm_attention,output_norm=" + std::string(norm)));
        const auto row = result.table.find({.layer = 0, .stage = "sa"}, "fro");
        ASSERT_TRUE(row && row->value);
        EXPECT_NEAR(*row->value, std::sqrt(64.0 * 24.0), 1e-2) << norm;
    }
}

TEST(WrittenModel, KeepsItsAttention) {
    for (const char* text :
         {"post-norm,d=24,heads=3,layers=2,ffn=32,attention=polynomial,p=2,scale=1/14,window=5",
          "post-norm,d=24,heads=3,layers=2,ffn=32,attention=transnormer2,block=8",
          "gpt2,d=24,heads=3,layers=2,ffn=32,vocab=40,attention=performer,features=9",
          "post-norm,d=24,heads=3,layers=2,glu=1,attention=0:softmax;1:polynomial:p=2",
          "transnormer2-lm,d=24,heads=3,layers=2,vocab=40,glu=0,block=8,"
          "attention=0:norm_attention;1:diag_attention",
          "pre-norm,d=24,heads=3,layers=2,deesc=0.5,deesc_at=ffn,deesc_learned=1",
          "vit-base,d=24,heads=3,layers=2,image=32,deesc=0.5,deesc_learned=1",
          "albert-base-v2,d=24,heads=3,layers=2,vocab=40,embedding=8,attention=0:softmax;1:"
          "linear"}) {
        TemporaryDirectory folder;
        const RandomModel drawn = random_model(text);
        write_model(drawn.spec, *random_weights(drawn, Rng(1), cpu(), Type::f32), folder.path());
        SubjectOptions options;
        options.model = folder.path().string();
        const Subject read = open_subject(options);
        for (std::size_t l = 0; l < 2; ++l) {
            const AttentionSpec &a = drawn.spec.blocks[l].attention,
                                &b = read.spec().blocks[l].attention;
            EXPECT_EQ(a.variant, b.variant);
            EXPECT_EQ(a.options, b.options);
            EXPECT_EQ(a.output_norm, b.output_norm);
            EXPECT_EQ(a.window, b.window);
            const BlockSpec &drew = drawn.spec.blocks[l], &found = read.spec().blocks[l];
            EXPECT_EQ(drew.ffn.gated, found.ffn.gated);
            EXPECT_EQ(drew.ffn.width, found.ffn.width);
            EXPECT_EQ(drew.deesc.tau, found.deesc.tau);
            EXPECT_EQ(drew.deesc.before_ffn, found.deesc.before_ffn);
            EXPECT_EQ(drew.deesc.learned, found.deesc.learned);
        }
    }
}

}  // namespace
}  // namespace tsdiag::test
