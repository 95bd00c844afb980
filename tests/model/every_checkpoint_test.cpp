#include <gmock/gmock.h>

#include "edited.hpp"
#include "recorder.hpp"

/// The law of reading: a checkpoint that is changed in one tensor or in one key of its
/// configuration gives the same states or is refused; it never silently gives others.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;

/// The result of reading a changed checkpoint.
struct Outcome {
    std::string refusal;  ///< why it is refused; empty: accepted
    std::map<std::string, std::vector<double>> states;
    std::map<Index, std::vector<double>> attention;
    std::vector<std::string> notes;  ///< defaults and warnings

    bool refused() const { return !refusal.empty(); }
    bool same(const Outcome& other) const {
        return states == other.states && attention == other.attention;
    }
    bool notes_contain(const std::string& word) const {
        return std::ranges::any_of(
            notes, [&](const std::string& line) { return line.find(word) != std::string::npos; });
    }
};

class EveryCheckpoint : public testing::TestWithParam<GoldenCheckpoint> {
  protected:
    void SetUp() override {
        options_ = GetParam().options;
        if (const Json config = config_in(golden / GetParam().path); !config.is_null())
            options_.config = config;
        std::vector<std::string> notes;
        file_ = apply_packing(unwrap(open_checkpoint(golden / GetParam().path), nullptr),
                              options_.config, notes);
        file_ = apply_layout(file_, options_.config, notes);
        whole_ = outcome(file_, options_);
        ASSERT_EQ(whole_.refusal, "");
        ASSERT_FALSE(whole_.states.empty());
    }

    /// The same sample for all: as many tokens as the unchanged model and its variants allow.
    static Input sample(const ModelSpec& spec) {
        Input input;
        if (spec.embedding.image.channels > 0) {
            const bool any_size = spec.embedding.positions == Positions::fourier;
            const Shape shape{
                spec.embedding.image.channels,
                any_size ? 2 * spec.embedding.image.patch_height : spec.embedding.image.height,
                any_size ? 3 * spec.embedding.image.patch_width : spec.embedding.image.width};
            std::vector<double> pixels(std::size_t(shape.count()));
            Rng(3).fill_normal(std::span<double>(pixels), 0, 1);
            input.image =
                Tensor::from_host(cpu(), shape, std::span<const double>(pixels), Type::f32);
            return input;
        }
        const Index n = fitting_tokens(spec, 12);
        if (spec.embedding.vocabulary == 0) return gaussian(n, spec.width, Type::f32);
        for (Index i = 0; i < n; ++i) input.ids.push_back((5 * i + 2) % spec.embedding.vocabulary);
        return input;
    }

    static Outcome outcome(const std::shared_ptr<const Checkpoint>& file,
                           const DetectOptions& options) {
        Outcome out;
        try {
            const Architecture a = detect(*file, options);
            const Input input = sample(a.spec);
            Recorder seen;
            Model(a.spec, checkpoint_weights(file, a, cpu(), Type::f32, false), cpu(), Type::f32)
                .run(std::span(&input, 1), seen);
            out.states = seen.states;
            out.attention = seen.matrix;
            out.notes = a.spec.provenance.defaults;
            out.notes.insert(out.notes.end(), a.spec.provenance.warnings.begin(),
                             a.spec.provenance.warnings.end());
        } catch (const Error& e) {
            out.refusal = e.what();
        }
        return out;
    }

    void expect_lawful(const std::shared_ptr<const Checkpoint>& edited, const std::string& what) {
        const Outcome found = outcome(edited, options_);
        EXPECT_TRUE(found.refused() || found.same(whole_)) << what;
        refused_ += found.refused();
    }
    Outcome with_config(const Json& config) const {
        DetectOptions options = options_;
        options.config = config;
        return outcome(file_, options);
    }

    std::shared_ptr<const Checkpoint> file_;
    DetectOptions options_;
    Outcome whole_;
    Index refused_ = 0;
};

/// "a.b." of "a.b.weight".
std::string folder(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

TEST_P(EveryCheckpoint, WithoutATensorIsRefusedOrTheSame) {
    for (const std::string& name : file_->names()) {
        const auto edited = std::make_shared<Edited>(file_);
        edited->drop(name);
        expect_lawful(edited, "dropped " + name);
    }
    EXPECT_GT(refused_, 0);
}

TEST_P(EveryCheckpoint, WithARenamedTensorIsRefusedOrTheSame) {
    for (const std::string& name : file_->names()) {
        const std::string end = name.substr(folder(name).size());
        for (const std::string& to :
             {name + "_x", folder(name) + "inner." + end, "other." + name, folder(name) + "x"}) {
            const auto edited = std::make_shared<Edited>(file_);
            edited->rename(name, to);
            expect_lawful(edited, "renamed " + name + " to " + to);
        }
    }
    EXPECT_GT(refused_, 0);
}

TEST_P(EveryCheckpoint, WithADoubledTensorIsRefusedOrTheSame) {
    for (const std::string& name : file_->names()) {
        const std::string end = name.substr(folder(name).size());
        for (const std::string& to : {name + "_copy", folder(name) + "lora_A." + end,
                                      "second." + name, folder(name) + "bias_table"}) {
            const auto edited = std::make_shared<Edited>(file_);
            edited->add(to, name);
            expect_lawful(edited, "doubled " + name + " as " + to);
        }
    }
    EXPECT_GT(refused_, 0);
}

/// Unknown tensors beside a known one in a layer are refused.
TEST_P(EveryCheckpoint, RefusesWhatIsAddedToALayerByItsName) {
    std::set<std::string> inside;
    const Architecture a = detect(*file_, options_);
    std::string first;
    for (const auto& [canonical, source] : a.tensors) {
        if (!canonical.starts_with("layer.0.")) continue;
        inside.insert(folder(source.file_name));
        first = source.file_name;
    }
    ASSERT_FALSE(inside.empty());
    for (const std::string& at : inside) {
        const auto edited = std::make_shared<Edited>(file_);
        edited->add(at + "other_bias_table", first);
        const Outcome found = outcome(edited, options_);
        EXPECT_THAT(found.refusal, HasSubstr(at + "other_bias_table"));
        EXPECT_THAT(found.refusal, HasSubstr("--ignore"));
        DetectOptions options = options_;
        options.ignore = {"*.other_bias_table"};
        const Outcome without = outcome(edited, options);
        EXPECT_EQ(without.refusal, "");
        EXPECT_TRUE(without.same(whole_)) << at;
        EXPECT_TRUE(without.notes_contain("other_bias_table"));
    }
}

class EveryConfiguration : public EveryCheckpoint {};

TEST_P(EveryConfiguration, WithoutAKeyIsRefusedOrTheSameOrSaysWhatItTook) {
    for (const auto& [dropped, value] : options_.config.object()) {
        Json::Object rest = options_.config.object();
        std::erase_if(rest, [&](const auto& member) { return member.first == dropped; });
        const Outcome found = with_config(rest);
        EXPECT_TRUE(found.refused() || found.same(whole_) || found.notes_contain(dropped))
            << "without " << dropped;
    }
}

/// A renamed key is unknown; null is equivalent to a missing key.
TEST_P(EveryConfiguration, WithARenamedKeyIsRefusedOrTheSame) {
    for (const auto& [renamed, value] : options_.config.object()) {
        if (value.is_null()) continue;
        Json::Object changed = options_.config.object();
        for (auto& member : changed)
            if (member.first == renamed) member.first = renamed + "_x";
        const Outcome found = with_config(changed);
        EXPECT_TRUE(found.refused() || found.same(whole_)) << renamed;
    }
}

TEST_P(EveryConfiguration, RefusesKeysThatChangeTheMathematics) {
    for (const char* added : {R"({"attn_logit_softcapping": 50.0})",
                              R"({"final_logit_softcapping": 30.0})",
                              R"({"query_pre_attn_scalar": 256})",
                              R"({"residual_multiplier": 0.22})",
                              R"({"embedding_multiplier": 12})",
                              R"({"logits_scaling": 8})",
                              R"({"alibi": true})",
                              R"({"attention_sinks": true})",
                              R"({"laplace_attn_fn": true})",
                              R"({"qk_layernorm": true})",
                              R"({"add_cross_attention": true})",
                              R"({"is_encoder_decoder": true})",
                              R"({"quantization_config": {"quant_method": "fp8"}})",
                              R"({"quantization": {"bits": 4}})",
                              R"({"auto_map": {"AutoModel": "modeling_own.OwnModel"}})",
                              R"({"pruned_heads": {"0": [1]}})",
                              R"({"use_relative_position_bias": true})",
                              R"({"layer_scale_init_value": 0.1})",
                              R"({"no_rope_layers": [1, 0]})",
                              R"({"num_experts": 8})",
                              R"({"norm_topk_prob": true})"}) {
        const Json more = Json::parse(added, "a key");
        const std::string& name = more.object().front().first;
        if (options_.config.contains(name)) continue;  // the family has it
        Json config = options_.config;
        config.set(name, more[name]);
        EXPECT_THAT(with_config(config).refusal, HasSubstr(name));
        DetectOptions options = options_;
        options.config = config;
        options.ignore = {name};
        EXPECT_TRUE(outcome(file_, options).same(whole_)) << name;
    }
}

TEST_P(EveryConfiguration, AllowsKeysThatDoNotMatter) {
    Json config = options_.config;
    config.set("use_cache", true).set("transformers_version", "4.57.1").set("pooler_fc_size", 768);
    config.set("attention_dropout", 0.1).set("id2label", Json::Object{{"0", "LABEL_0"}});
    config.set("some_future_key", nullptr);
    if (!config.contains("residual_multiplier")) config.set("residual_multiplier", 1.0);
    const Outcome found = with_config(config);
    EXPECT_EQ(found.refusal, "");
    EXPECT_TRUE(found.same(whole_));
}

std::vector<GoldenCheckpoint> configured() {
    std::vector<GoldenCheckpoint> out;
    for (const GoldenCheckpoint& c : golden_checkpoints())
        if (!config_in(golden / c.path).is_null()) out.push_back(c);
    return out;
}

std::string label(const testing::TestParamInfo<GoldenCheckpoint>& info) {
    std::string name = info.param.path;
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(std::uint8_t(c)); }, '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Golden, EveryCheckpoint, testing::ValuesIn(golden_checkpoints()), label);
INSTANTIATE_TEST_SUITE_P(Golden, EveryConfiguration, testing::ValuesIn(configured()), label);

}  // namespace
}  // namespace tsdiag::test
