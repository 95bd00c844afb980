#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/naive.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

std::vector<std::string> all_names() {
    std::vector<std::string> out;
    for (const ArchitectureEntry* entry : architectures())
        if (entry->random_names)
            for (const std::string_view name : entry->random_names()) out.emplace_back(name);
    return out;
}

std::unique_ptr<Weights> weights_of(const std::string& text, std::uint64_t seed = 3) {
    return random_weights(random_model(text), Rng(seed), cpu(), Type::f64);
}

/// Checks that the mean square of `name` is `variance`, up to the relative deviation sqrt(2) of
/// `count` squares.
void expect_variance(const Weights& weights, const std::string& name, double variance) {
    const std::vector<double> values = weights.get(name).to_host<double>();
    EXPECT_CLOSE(naive::mean_square(values), variance,
                 sampling(std::ssize(values), 1.42 * variance))
        << name;
}

TEST(RandomModel, HasAllSizesOfItsKeys) {
    const ModelSpec s = random_model(
                            "bert-base,layers=3,d=32,heads=4,ffn=40,tokens=17,vocab=99,eps=1e-3,"
                            "act=relu,causal=1")
                            .spec;
    EXPECT_EQ(s.blocks.size(), 3U);
    EXPECT_EQ(s.width, 32);
    EXPECT_EQ(s.blocks[0].attention.heads, 4);
    EXPECT_EQ(s.blocks[0].attention.head_dim, 8);
    EXPECT_EQ(s.blocks[0].ffn.width, 40);
    EXPECT_EQ(s.embedding.max_tokens, 17);
    EXPECT_EQ(s.embedding.vocabulary, 99);
    EXPECT_EQ(s.blocks[0].norm.eps, 1e-3);
    EXPECT_EQ(s.blocks[0].ffn.activation, Unary::relu);
    EXPECT_TRUE(s.blocks[0].attention.causal);
}

TEST(RandomModel, KeepsTheRatioOfTheFeedForwardWhereOnlyTheWidthIsGiven) {
    EXPECT_EQ(random_model("gpt2,d=48").spec.blocks[0].ffn.width, 192);
}

TEST(RandomModel, NamesTheNearestNameAndKey) {
    EXPECT_THAT(thrown<UsageError>([] { random_model("bert-bass"); }), HasSubstr("'bert-base'"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("bert-base,layer=3"); }),
                HasSubstr("'layers'"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("post-norm,alhpa=2"); }),
                HasSubstr("'alpha'"));
}

TEST(RandomModel, RefusesSizesThatCannotBe) {
    EXPECT_THAT(thrown<UsageError>([] { random_model("bert-base,heads=7"); }),
                HasSubstr("heads=7 does not divide d=768"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("gpt2,layers=0"); }), HasSubstr("layers=0"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("gpt2,layers=x"); }), HasSubstr("layers=x"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("llama-7b,kv_heads=5"); }),
                HasSubstr("kv_heads=5"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("post-norm,var_v=big"); }),
                HasSubstr("var_v=big"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("post-norm,d=8,d=9"); }), HasSubstr("twice"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("post-norm,d"); }), HasSubstr("key=value"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("post-norm,act=sine"); }),
                HasSubstr("act=sine"));
    EXPECT_THROW(random_model("post-norm,attention=none-such"), UsageError);
    EXPECT_THROW(random_model("gpt2,layers=99999999999999999999"), UsageError);
}

TEST(RandomWeights, OfBertHaveVarianceAndPaddingRowOfItsInitialisation) {
    const auto w = weights_of("bert-base,layers=1,d=96,heads=4,vocab=200");
    expect_variance(*w, "layer.0.ffn.up.weight", 4e-4);
    expect_variance(*w, "embed.position", 4e-4);
    EXPECT_EQ(naive::mean_square(w->get("layer.0.ffn.up.bias").to_host<double>()), 0);
    EXPECT_EQ(w->get("layer.0.norm1.weight").to_host<double>(), std::vector<double>(96, 1.0));
    const Tensor table = w->get("embed.token");
    EXPECT_EQ(naive::mean_square(table.row_range(0, 1).to_host<double>()), 0);
    EXPECT_GT(naive::mean_square(table.row_range(1, 1).to_host<double>()), 1e-4);
}

/// N(0, s^2) within two deviations has the variance s^2 (1 - 4 phi(2) / (Phi(2) - Phi(-2))), phi
/// and Phi of the standard normal law.
TEST(RandomWeights, OfModernBertEndAtTwoDeviations) {
    const auto w = weights_of("modernbert-base,layers=2,d=96,heads=4,ffn=200,vocab=200");
    const double share = 0.7737413, first = 0.02, last = 0.02 / 2;
    expect_variance(*w, "layer.0.attn.q.weight", share * first * first);
    expect_variance(*w, "layer.1.ffn.gate.weight", share * first * first);
    expect_variance(*w, "layer.0.attn.o.weight", share * last * last);
    expect_variance(*w, "layer.1.ffn.down.weight", share * last * last);
    double largest = 0;
    for (const double x : w->get("embed.token").to_host<double>())
        largest = std::max(largest, std::abs(x));
    EXPECT_LE(largest, 2 * first);
    EXPECT_GT(largest, 1.98 * first);
    EXPECT_FALSE(w->has("layer.0.norm1.weight"));
    EXPECT_TRUE(w->has("layer.1.norm1.weight"));
}

/// A table of all layers is drawn, read and updated once, as a parameter of the first.
TEST(RandomModel, HasOneTableOfDistances) {
    for (const char* name : {"mpnet-base,tokens=12", "deberta-v3-base,tokens=12"}) {
        const RandomModel model =
            random_model(name + std::string(",layers=3,d=16,heads=4,ffn=24,vocab=40"));
        Index tables = 0;
        for (const DrawnTensor& t : model.tensors)
            tables += t.name.ends_with("attn.relative") || t.name.ends_with("attn.distances");
        EXPECT_EQ(tables, 1) << name;
        EXPECT_EQ(model.spec.blocks[2].attention.own_of, 0);
    }
    EXPECT_THAT(thrown<UsageError>([] { random_model("deberta-v3-base,tokens=6"); }),
                HasSubstr("tokens=6"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("mpnet-base,attention=linear"); }),
                HasSubstr("expected bucketed"));
}

TEST(RandomWeights, OfVisionMayHavePyTorchsDefaults) {
    const auto w =
        weights_of("deit-tiny,layers=1,d=96,heads=4,ffn=192,image=32,patch=8,init=torch");
    expect_variance(*w, "layer.0.attn.q.weight", 1.0 / (3 * 96));
    expect_variance(*w, "layer.0.ffn.down.weight", 1.0 / (3 * 192));
    expect_variance(*w, "embed.patch.weight", 1.0 / (3 * 3 * 8 * 8));
    expect_variance(*w, "embed.position", 1);
    EXPECT_GT(naive::mean_square(w->get("layer.0.ffn.up.bias").to_host<double>()), 0);
    EXPECT_EQ(w->get("layer.0.norm1.weight").to_host<double>(), std::vector<double>(96, 1.0));
}

TEST(RandomModel, TakesOblongPatches) {
    EXPECT_EQ(random_model("deit-tiny,image=64,patch=32x16").spec.embedding.image.patches(), 8);
    EXPECT_EQ(random_model("deit-tiny,image=64,patch=16").spec.embedding.image.patches(), 16);
    EXPECT_THAT(thrown<UsageError>([] { random_model("deit-tiny,image=64,patch=32x"); }),
                HasSubstr("patch=32x must be a size"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("deit-tiny,image=64,patch=24x16"); }),
                HasSubstr("does not divide"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("deit-tiny,init=zero"); }),
                HasSubstr("init=zero"));
}

/// N: the patches of an image, or the longest input.
TEST(RandomModel, BeginsALearnedScaleWhereThePaperDoes) {
    const auto scale_of = [](const std::string& text, const std::string& layer = "layer.0.") {
        return weights_of(text)->get(layer + "attn.scale").to_host<double>();
    };
    const std::string learned = ",attention=polynomial,scale=learned";
    EXPECT_EQ(scale_of("deit-tiny,image=16,patch=4" + learned), std::vector{0.25});
    EXPECT_EQ(scale_of("bert-base,tokens=64" + learned), std::vector{0.125});
    EXPECT_EQ(scale_of("post-norm" + learned + ",start=1/4"), std::vector{0.25});
    EXPECT_EQ(scale_of("bert-base,tokens=64,attention=nystrom,landmarks=8,activation=polynomial,"
                       "scale=learned"),
              std::vector{0.125});
    EXPECT_THAT(thrown<UsageError>([&] { random_model("post-norm" + learned); }),
                HasSubstr("pass start=NUMBER"));
    const auto mix =
        weights_of("post-norm,layers=2,attention=0:softmax;1:polynomial:scale=learned:start=3");
    EXPECT_FALSE(mix->has("layer.0.attn.scale"));
    EXPECT_TRUE(mix->has("layer.1.attn.scale"));
    EXPECT_THAT(
        random_model("deit-tiny,image=16,patch=4" + learned).spec.provenance.defaults.back(),
        HasSubstr("learned attention scale 0.25"));
}

/// A layer that shares the parameters of one without a scale has it there all the same.
TEST(RandomModel, KeepsALearnedScaleWhereItsLayerHasItsParameters) {
    const auto w = weights_of(
        "albert-base-v2,layers=3,tokens=16,attention=0:softmax;1-2:polynomial:scale=learned");
    EXPECT_TRUE(w->has("layer.0.attn.scale"));
    EXPECT_FALSE(w->has("layer.1.attn.scale"));
}

/// One definition of FLASH: the logits are q k^T, and what a file of it has is drawn.
TEST(RandomModel, OfFlashHasItsUnitsAndNoLongerGroupsThanItsInputs) {
    for (const std::string name : {"flash", "gau"}) {
        const RandomModel drawn = random_model(name + ",layers=2,d=16,tokens=12,vocab=40");
        const AttentionSpec& a = drawn.spec.blocks[1].attention;
        EXPECT_TRUE(a.gated_unit);
        EXPECT_EQ(a.scale, 1);
        EXPECT_EQ(a.heads, 1);
        EXPECT_EQ(a.value_dim, 32);
        EXPECT_EQ(drawn.spec.blocks[1].ffn.width, 0);
        const auto w = weights_of(name + ",layers=2,d=16,tokens=12,vocab=40");
        expect_variance(*w, "layer.1.attn.offset.gamma", 4e-4);
        expect_variance(*w, "layer.1.attn.rel_pos_bias", 1);
        expect_variance(*w, "layer.1.attn.gate.weight", 1.0 / (3 * 16));
        expect_variance(*w, "layer.1.attn.o.weight", 1.0 / (3 * 32));
    }
    const auto group = [](const std::string& keys) {
        return random_model("flash,d=16" + keys).spec.blocks[0].attention.options.at("group");
    };
    EXPECT_EQ(group(",tokens=12"), "12");
    EXPECT_EQ(group(",tokens=1024"), "256");
    EXPECT_EQ(group(",tokens=12,group=5"), "5");
    EXPECT_THAT(thrown<UsageError>([] { random_model("flash,d=16,heads=2"); }),
                HasSubstr("one head"));
    EXPECT_THAT(thrown<UsageError>([] { random_model("gau,d=16,attention=softmax"); }),
                HasSubstr("expected flash_quad"));
}

TEST(RandomWeights, OfGpt2HaveSmallerResidualProjections) {
    const auto w = weights_of("gpt2,layers=8,d=96,heads=4,vocab=50");
    expect_variance(*w, "layer.7.attn.q.weight", 4e-4);
    expect_variance(*w, "layer.7.attn.o.weight", 4e-4 / 16);
    expect_variance(*w, "layer.0.ffn.down.weight", 4e-4 / 16);
}

TEST(RandomWeights, OfPostNormFollowTheEncoderOfThePaper) {
    const auto w = weights_of("post-norm,layers=1,d=64,heads=4");
    expect_variance(*w, "layer.0.attn.v.weight", 1.0 / 64);
    expect_variance(*w, "layer.0.attn.q.weight", 1.0 / (3 * 64));
    expect_variance(*w, "layer.0.ffn.down.weight", 1.0 / (3 * 256));
    expect_variance(*w, "layer.0.ffn.up.bias", 1.0 / (3 * 64));
    EXPECT_FALSE(w->has("layer.0.attn.o.weight"));
    EXPECT_FALSE(w->has("layer.0.attn.q.bias"));
    expect_variance(*weights_of("post-norm,layers=1,d=64,heads=4,var_v=h/d"),
                    "layer.0.attn.v.weight", 4.0 / 64);
    expect_variance(*weights_of("post-norm,layers=1,d=64,heads=4,var_v=xavier"),
                    "layer.0.attn.v.weight", 2.0 / (64 + 16));
    expect_variance(*weights_of("post-norm,layers=1,d=64,heads=4,var_v=torch"),
                    "layer.0.attn.v.weight", 1.0 / (3 * 64));
    expect_variance(*weights_of("post-norm,layers=1,d=64,heads=4,out_proj=1"),
                    "layer.0.attn.o.weight", 1.0 / (3 * 64));
}

TEST(RandomWeights, DependOnSeedAndNameAlone) {
    const auto one = weights_of("gpt2,layers=2,d=16,heads=2,vocab=30"),
               same = weights_of("gpt2,layers=2,d=16,heads=2,vocab=30"),
               other = weights_of("gpt2,layers=2,d=16,heads=2,vocab=30", 4);
    const std::string name = "layer.1.attn.k.weight";
    other->get("embed.token");
    EXPECT_TENSOR_NEAR(one->get(name), same->get(name), exactly);
    EXPECT_NE(one->get(name).to_host<double>(), other->get(name).to_host<double>());
    EXPECT_NE(one->get(name).to_host<double>(),
              one->get("layer.0.attn.k.weight").to_host<double>());
}

TEST(RandomWeights, RowsOfTheVocabularyAreThoseOfTheWholeTable) {
    const auto w = weights_of("bert-base,layers=1,d=16,heads=2,vocab=30");
    const std::vector<Index> rows{5, 0, 29, 5};
    EXPECT_TENSOR_NEAR(w->rows("embed.token", rows), gather_rows(w->get("embed.token"), rows),
                       exactly);
}

TEST(RandomModel, OfAlbertSharesOneLayer) {
    const RandomModel model = random_model("albert-base-v2,layers=3");
    EXPECT_EQ(model.spec.blocks[0].shares, -1);
    EXPECT_EQ(model.spec.blocks[2].shares, 0);
    EXPECT_EQ(model.spec.embedding.width, 128);
    for (const DrawnTensor& t : model.tensors) EXPECT_THAT(t.name, testing::Not(HasSubstr(".1.")));
    EXPECT_EQ(random_model("albert-xxlarge-v2").spec.width, 4096);
}

/// Every random model, at its smallest size.
class EveryRandomModel : public testing::TestWithParam<std::string> {
  protected:
    static std::string small(const std::string& name) {
        if (name.starts_with("swin"))
            return name + ",depths=1-1,d=16,heads=4,ffn=24,image=8,window=2,patch=4";
        if (name == "flash" || name == "gau")  // of one head
            return name + ",layers=2,d=16,ffn=24,tokens=12,vocab=40";
        std::string text = name + ",layers=2,d=16,heads=4,ffn=24";
        if (name.find("-norm") != std::string::npos) return text;
        const bool image =
            name.starts_with("vit") || name.starts_with("deit") || name.starts_with("xcit");
        if (image) return text + ",image=8,patch=4";
        return text + ",tokens=12,vocab=40" + (name.starts_with("albert") ? ",embedding=6" : "");
    }
    /// The key that adds all further steps, with all parameters that they may have.
    static std::string every_step() {
        std::string out;
        for (const StepEntry* entry : further_steps()) {
            out += (out.empty() ? ",step=" : "+") + std::string(entry->name);
            for (const NamedOption& option : entry->options)
                if (option.name == "learned") out += ":learned=1";
        }
        return out;
    }
    static Input input_of(const ModelSpec& s, Type type) {
        Input in;
        if (s.embedding.vocabulary > 0) {
            in.ids = {3, 7, 1, 39, 0, 12};
        } else if (s.embedding.image.channels > 0) {
            const std::vector<double> pixels = gaussian(8, 24).hidden.to_host<double>();
            in.image = Tensor::from_host(cpu(), {3, 8, 8}, std::span<const double>(pixels), type);
        } else {
            in = gaussian(6, s.width, type);
        }
        return in;
    }
};

TEST_P(EveryRandomModel, RunsAndStaysFinite) {
    const Model model = random(small(GetParam()), Type::f32);
    const Input input = input_of(model.spec(), Type::f32);
    Recorder seen;
    model.run(std::span(&input, 1), seen);
    EXPECT_EQ(seen.ended, 2);
    EXPECT_TRUE(seen.states.contains("layer.1.out"));
}

TEST_P(EveryRandomModel, EmitsTheStagesOfItsSteps) {
    const Model model = random(small(GetParam()) + every_step(), Type::f32);
    const Input input = input_of(model.spec(), Type::f32);
    Recorder seen;
    model.run(std::span(&input, 1), seen);
    for (Index l = 0; l < std::ssize(model.spec().blocks); ++l) {
        std::vector<std::string> declared, emitted;
        for (const Stage& stage : stages_of(model.spec().blocks[std::size_t(l)])) {
            declared.push_back(Recorder::key(l, stage.name));
            EXPECT_THAT(all_stages(), testing::Contains(stage.name));
            const auto pred = seen.pred.find(declared.back());
            ASSERT_NE(pred, seen.pred.end()) << declared.back();
            EXPECT_EQ(pred->second, stage.from) << declared.back();
        }
        for (const std::string& key : seen.order)
            if (key.starts_with(fmt::format("layer.{}.", l)) && !key.ends_with(".class"))
                emitted.push_back(key);
        EXPECT_EQ(declared, emitted);
    }
}

/// No state of a token depends on later ones.
void expect_no_look_ahead(const Model& model, Input input, Index kept) {
    Recorder before, after;
    model.run(std::span(&input, 1), before);
    if (!input.ids.empty()) {
        for (std::size_t i = std::size_t(kept); i < input.ids.size(); ++i)
            input.ids[i] = (input.ids[i] + 17) % 40;
    } else {
        std::vector<double> x = input.hidden.to_host<double>();
        const Index cols = input.hidden.cols();
        for (auto i = std::size_t(kept * cols); i < x.size(); ++i) x[i] = -2 * x[i];
        input.hidden =
            Tensor::from_host(cpu(), input.hidden.shape(), std::span<const double>(x), Type::f64);
    }
    model.run(std::span(&input, 1), after);
    for (const auto& [name, x] : before.states) {
        const std::vector<double>& y = after.states.at(name);
        const std::size_t seen =
            x.size() / std::size_t(tokens_of(model.spec(), input)) * std::size_t(kept);
        EXPECT_ALL_CLOSE(std::vector(y.begin(), y.begin() + std::ptrdiff_t(seen)),
                         std::vector(x.begin(), x.begin() + std::ptrdiff_t(seen)), rounding(256))
            << name;
    }
}

TEST_P(EveryRandomModel, SeesNoLaterTokenWhereItIsCausal) {
    const Model model = random(small(GetParam()) + every_step(), Type::f64);
    const ModelSpec& spec = model.spec();
    if (!std::ranges::all_of(spec.blocks, [](const BlockSpec& b) { return b.attention.causal; }))
        GTEST_SKIP() << "is not causal";
    Input input;
    for (Index i = 0; i < 12; ++i) input.ids.push_back((7 * i + 3) % 40);
    for (const Index kept : {1, 4, 7, 11}) expect_no_look_ahead(model, input, kept);
}

TEST(CausalAttention, OfGatedUnitsSeesNoLaterToken) {
    for (const char* keys : {"flash,group=4", "flash,group=12", "flash,group=5,shift=0", "gau"}) {
        SCOPED_TRACE(keys);
        const Model model = random(
            fmt::format("{},causal=1,layers=2,d=16,ffn=24,tokens=12,vocab=40", keys), Type::f64);
        Input input;
        for (Index i = 0; i < 12; ++i) input.ids.push_back((7 * i + 3) % 40);
        for (const Index kept : {1, 4, 7, 11}) expect_no_look_ahead(model, input, kept);
    }
}

/// Performer's features are divided by their largest among all keys, before a constant is added, as
/// in the released code.
TEST(CausalAttention, SeesNoLaterToken) {
    for (const AttentionEntry* entry : attentions()) {
        if (!entry->facts.causal() || entry->name == "performer") continue;
        SCOPED_TRACE(entry->name);
        const Model model = random(
            fmt::format("pre-norm,causal=1,layers=1,d=16,heads=2,ffn=24,attention={}", entry->name),
            Type::f64);
        for (const Index kept : {1, 5, 8, 11}) expect_no_look_ahead(model, gaussian(12, 16), kept);
    }
}

/// All weights of a model but one.
class Lacking final : public Weights {
  public:
    Lacking(std::shared_ptr<const Weights> all, std::string name)
        : all_(std::move(all)), name_(std::move(name)) {}
    bool has(std::string_view name) const override { return name != name_ && all_->has(name); }
    Tensor get(std::string_view name) const override {
        if (name == name_) throw FormatError(name_ + " is missing");
        return all_->get(name);
    }
    std::vector<std::string> names() const override { return all_->names(); }

  private:
    std::shared_ptr<const Weights> all_;
    std::string name_;
};

TEST_P(EveryRandomModel, NeedsEachParameterOfItsLayers) {
    const RandomModel drawn = random_model(small(GetParam()) + every_step());
    const std::shared_ptr<const Weights> all = random_weights(drawn, Rng(5), cpu(), Type::f32);
    const Input input = input_of(drawn.spec, Type::f32);
    for (const Parameter& p : parameters(drawn.spec)) {
        if (!p.name.starts_with("layer.") && !p.name.starts_with("class.")) continue;
        if (p.name.find(".expert.") != p.name.npos) continue;  // read where a token chooses it
        const auto rest = std::make_shared<Lacking>(all, p.name);
        Recorder seen;
        EXPECT_THROW(Model(drawn.spec, rest, cpu(), Type::f32).run(std::span(&input, 1), seen),
                     FormatError)
            << p.name;
    }
}

/// Writes the model, reads it and compares what both do with one input.
void expect_read_back(const std::string& text, const std::string& folder,
                      const std::function<Input(const ModelSpec&)>& input_of) {
    const RandomModel drawn = random_model(text);
    const std::shared_ptr<const Weights> weights = random_weights(drawn, Rng(5), cpu(), Type::f32);
    const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / folder;
    std::filesystem::create_directories(dir);
    write_model(drawn.spec, *weights, dir);
    const Opened opened = Opened::from(dir);
    EXPECT_EQ(opened.architecture.spec.family, drawn.spec.family);
    EXPECT_TRUE(opened.architecture.spec.provenance.ignored.empty());
    EXPECT_EQ(parameters(opened.architecture.spec).size(), drawn.tensors.size());
    const Input input = input_of(drawn.spec);
    Recorder before, after;
    Model(drawn.spec, weights, cpu(), Type::f32).run(std::span(&input, 1), before);
    opened.model(Type::f32).run(std::span(&input, 1), after);
    EXPECT_EQ(before.order, after.order);
    EXPECT_EQ(before.states, after.states);
    EXPECT_EQ(before.a2, after.a2);
    std::filesystem::remove_all(dir);
}

TEST_P(EveryRandomModel, IsReadBackFromWhatIsWritten) {
    expect_read_back(small(GetParam()), "written-" + GetParam(),
                     [](const ModelSpec& s) { return input_of(s, Type::f32); });
}

TEST_P(EveryRandomModel, IsReadBackWithFurtherSteps) {
    expect_read_back(small(GetParam()) + every_step(), "stepped-" + GetParam(),
                     [](const ModelSpec& s) { return input_of(s, Type::f32); });
}

TEST_P(EveryRandomModel, IsReadBackWithoutAClassToken) {
    if (!small(GetParam()).ends_with("patch=4")) GTEST_SKIP() << "takes no images";
    if (GetParam().starts_with("xcit")) GTEST_SKIP() << "its class token joins behind the layers";
    if (GetParam().starts_with("swin")) GTEST_SKIP() << "it has no class token";
    const std::string text = small(GetParam()) + ",class_token=0";
    EXPECT_EQ(tokens_of(random_model(text).spec, input_of(random_model(text).spec, Type::f32)), 4);
    expect_read_back(text, "bare-" + GetParam(),
                     [](const ModelSpec& s) { return input_of(s, Type::f32); });
}

TEST_P(EveryRandomModel, IsReadBackWithALearnedScale) {
    for (const char* own :
         {"transnormer", "transformer-xl", "mpnet", "deberta", "gpt-oss", "flash", "gau"})
        if (GetParam().starts_with(own)) GTEST_SKIP() << "has attentions of its own";
    if (GetParam().find("relative-key") != std::string::npos)
        GTEST_SKIP() << "has attentions of its own";
    expect_read_back(small(GetParam()) + ",attention=polynomial,scale=learned,start=0.3",
                     "scaled-" + GetParam(),
                     [](const ModelSpec& s) { return input_of(s, Type::f32); });
}

/// In any block: its logits are not divided by sqrt(d), and it has a relative bias.
TEST(RandomModel, WithFlashHasUnscaledLogitsAndABias) {
    for (const std::string variant : {"flash", "flash_quad"}) {
        const RandomModel drawn = random_model(
            "bert-base,layers=2,d=16,heads=4,tokens=12,vocab=40,attention=1:" + variant +
            ";0:softmax");
        EXPECT_EQ(drawn.spec.blocks[0].attention.scale, 0.5);
        EXPECT_EQ(drawn.spec.blocks[1].attention.scale, 1);
        EXPECT_FALSE(drawn.spec.blocks[0].attention.own.size());
        ASSERT_EQ(drawn.spec.blocks[1].attention.own.size(), 1U);
        EXPECT_EQ(drawn.spec.blocks[1].attention.own[0].shape, (Shape{1, 32, 1}));
        expect_read_back(
            "bert-base,layers=2,d=16,heads=4,ffn=24,tokens=12,vocab=40,attention=" + variant,
            "with-" + variant, [](const ModelSpec&) {
                return of_ids({3, 7, 1, 39});
            });
    }
    EXPECT_THAT(thrown<UsageError>([] {
                    random_model("bert-base,layers=2,d=16,heads=4,attention=flash+softmax");
                }),
                HasSubstr("layers of their own"));
}

/// Of images the class token is one of the tokens, but none of N.
TEST(RandomModel, HasProjectionsForAClassToken) {
    for (const char* keys : {"", ",class_token=0"}) {
        const Model model = random(
            fmt::format("deit-tiny,layers=1,d=12,heads=3,ffn=8,image=32,attention=linformer{}",
                        keys),
            Type::f64);
        Input input;
        input.image = random_tensor(cpu(), {3, 32, 32}, Type::f64, Law::normal, Rng(3), 0, 1);
        Recorder seen;
        model.run(std::span(&input, 1), seen);
        EXPECT_EQ(seen.ended, 1) << keys;
    }
}

TEST(RandomModel, RefusesMatricesOfAttentionsThatShareALayer) {
    const std::string sizes = ",layers=2,d=16,heads=4,ffn=24,tokens=12,vocab=40,attention=";
    for (const char* pair : {"transformer_ls+softmax", "softmax+linformer", "linformer+linformer",
                             "softmax+transformer_ls", "flash+flash_quad"})
        EXPECT_THAT(thrown<UsageError>([&] { random_model("bert-base" + sizes + pair); }),
                    HasSubstr("learns a matrix"))
            << pair;
    EXPECT_THAT(
        thrown<UsageError>([&] {
            random_model("albert-base-v2" + sizes + "0:linformer:length=3;1:linformer:length=5");
        }),
        HasSubstr("layers that share their parameters"));
}

TEST(RandomModel, OfFlashIsWrittenWithTheGroupThatIsAutomatic) {
    const RandomModel drawn = random_model("flash,layers=1,d=16,ffn=24,tokens=12,group=auto");
    EXPECT_EQ(drawn.spec.blocks.front().attention.options.at("group"), "12");
}

/// E and F of the longest input, and W of the dynamic projection, belong to the model.
TEST(RandomModel, HasTheProjectionsThatItsAttentionLearns) {
    const std::string sizes =
        "bert-base,layers=2,d=16,heads=4,ffn=24,tokens=12,vocab=40,attention=";
    const auto own = [&](const std::string& attention) {
        std::vector<std::pair<std::string, Shape>> out;
        const RandomModel drawn = random_model(sizes + attention);
        for (const Parameter& p : drawn.spec.blocks[1].attention.own)
            out.emplace_back(p.name, p.shape);
        return out;
    };
    using Own = std::vector<std::pair<std::string, Shape>>;
    EXPECT_EQ(own("linformer"), (Own{{"proj_k", {1, 12, 3}}, {"proj_v", {1, 12, 3}}}));
    EXPECT_EQ(own("linformer,length=5,shared=1"), (Own{{"proj_k", {1, 12, 5}}}));
    EXPECT_EQ(own("linformer,per_head=1,shared=1"), (Own{{"proj_k", {1, 48, 3}}}));
    EXPECT_EQ(own("transformer_ls,rank=2"), (Own{{"projection", {1, 8, 16}}}));
    EXPECT_EQ(own("transformer_ls"), (Own{{"projection", {1, 128, 16}}}));
    EXPECT_TRUE(random_model("post-norm,attention=linformer").spec.blocks[0].attention.own.empty());
    EXPECT_THAT(thrown<UsageError>([&] { random_model(sizes + "linformer,length=13"); }),
                HasSubstr("length=13 is more than the 12 tokens"));
    const auto w = weights_of(
        "bert-base,layers=1,d=16,heads=4,tokens=60,vocab=40,attention=0:linformer:length=20");
    expect_variance(*w, "layer.0.attn.proj_k", 1.0 / 80);
    for (const char* attention :
         {"linformer", "linformer,per_head=1,shared=1", "transformer_ls,segment=2,rank=3"}) {
        std::string name = attention;
        std::ranges::replace(name, ',', '-');
        expect_read_back(sizes + attention, "with-" + name, [](const ModelSpec&) {
            return of_ids({3, 7, 1, 39, 5});
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Names, EveryRandomModel, testing::ValuesIn(all_names()),
                         [](const auto& info) {
                             std::string name = info.param;
                             for (char& c : name)
                                 if (c == '-' || c == '.') c = '_';
                             return name;
                         });

TEST(WriteModel, SplitsALargeModelIntoShards) {
    const RandomModel drawn = random_model("gpt2,layers=2,d=16,heads=2,vocab=40,tokens=8");
    const std::shared_ptr<const Weights> weights = random_weights(drawn, Rng(5), cpu(), Type::f32);
    const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "sharded";
    std::filesystem::create_directories(dir);
    write_model(drawn.spec, *weights, dir, /*shard_bytes=*/6000);
    EXPECT_TRUE(std::filesystem::exists(dir / "model.safetensors.index.json"));
    EXPECT_FALSE(std::filesystem::exists(dir / "model.safetensors"));
    const Opened opened = Opened::from(dir);
    const auto read = checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f32, false);
    for (const DrawnTensor& t : drawn.tensors)
        EXPECT_TENSOR_NEAR(read->get(t.name), weights->get(t.name), exactly) << t.name;
    std::filesystem::remove_all(dir);
}

TEST(WriteModel, RefusesAFamilyWithoutNamesOfItsOwn) {
    ModelSpec spec = random_model("gpt2,layers=1,d=8,heads=1").spec;
    spec.family = "timm_vit";
    const auto weights = weights_of("gpt2,layers=1,d=8,heads=1");
    EXPECT_THAT(thrown<NotAvailable>([&] { write_model(spec, *weights, "nowhere"); }),
                HasSubstr("timm_vit"));
}

}  // namespace
}  // namespace tsdiag::test
