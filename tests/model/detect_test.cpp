#include <gmock/gmock.h>

#include <algorithm>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/places.hpp"

namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

DetectOptions with_heads(Index heads) {
    DetectOptions out;
    out.heads = heads;
    return out;
}

DetectOptions with_config(const char* text) {
    DetectOptions out;
    out.config = Json::parse(text, "config.json");
    return out;
}

std::shared_ptr<MemoryFile> tiny_llama() {
    auto file = std::make_shared<MemoryFile>();
    file->add("model.embed_tokens.weight", {11, 8});
    const std::string layer = "model.layers.0.";
    file->add(layer + "self_attn.q_proj.weight", {8, 8});
    file->add(layer + "self_attn.k_proj.weight", {4, 8});
    file->add(layer + "self_attn.v_proj.weight", {4, 8});
    file->add(layer + "self_attn.o_proj.weight", {8, 8});
    for (const char* name : {"mlp.gate_proj", "mlp.up_proj"})
        file->add(layer + name + ".weight", {12, 8});
    file->add(layer + "mlp.down_proj.weight", {8, 12});
    file->add(layer + "input_layernorm.weight", {8});
    file->add(layer + "post_attention_layernorm.weight", {8});
    file->add("model.norm.weight", {8});
    return file;
}

template <class E>
std::string detection_error(const Checkpoint& file, const DetectOptions& options) {
    return thrown<E>([&] { detect(file, options); });
}

TEST(Detect, TakesSizesFromShapesAndNotesItsDefaults) {
    const ModelSpec s = detect(*tiny_bert(), with_heads(2)).spec;
    EXPECT_EQ(s.family, "bert");
    EXPECT_EQ(s.name, "BERT, 2 layers, d = 8, 2 heads");
    EXPECT_EQ(s.embedding.vocabulary, 20);
    EXPECT_EQ(s.embedding.max_tokens, 6);
    EXPECT_EQ(s.blocks[1].ffn.width, 16);
    EXPECT_THAT(s.provenance.defaults,
                Contains(HasSubstr("layer_norm_eps = 1e-12: default of bert")));
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("hidden_act = gelu: default of bert")));
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("logits scaled by 0.5")));
}

TEST(Detect, AsksForHeadsByName) {
    EXPECT_THAT(detection_error<UsageError>(*tiny_bert(), {}), HasSubstr("pass --n-heads N"));
    EXPECT_THAT(detection_error<UsageError>(*tiny_bert(), with_heads(3)),
                HasSubstr("--n-heads = 3"));
}

TEST(Detect, AcceptsAPrefixAndListsWhatItLeavesOut) {
    const auto plain = tiny_bert();
    MemoryFile file;
    for (const std::string& name : plain->names()) {
        const RawTensor raw = plain->tensor(name);
        file.add("model.bert." + name, raw.shape);
    }
    file.add("model.cls.predictions.bias", {20});
    file.add("model.bert.pooler.dense.weight", {8, 8});
    file.add("model.classifier.weight", {4, 8});
    const ModelSpec s = detect(file, with_heads(2)).spec;
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("'model.bert.'")));
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("heads and buffers")));
    EXPECT_THAT(s.provenance.ignored, Contains("model.classifier.weight"));
}

TEST(Detect, RefusesPartsOfTheModelOutsideOfItsPrefix) {
    for (const char* part : {"encoder.layer.0.attention.self.query.lora_A.weight",
                             "base_model.encoder.layer.1.output.adapter.weight", "adapter.weight",
                             "model.adapter.weight", "prompt_encoder.embedding.weight",
                             "model.classifier.lora_A.weight"}) {
        const auto plain = tiny_bert();
        MemoryFile file;
        for (const std::string& name : plain->names())
            file.add("model.bert." + name, plain->tensor(name).shape);
        file.add(part, {4, 8});
        EXPECT_THAT(detection_error<FormatError>(file, with_heads(2)), HasSubstr(part));
        DetectOptions given = with_heads(2);
        given.ignore = {part};
        EXPECT_NO_THROW(detect(file, given)) << part;
    }
}

TEST(Detect, NamesBothSidesOfADisagreement) {
    EXPECT_THAT(detection_error<FormatError>(
                    *tiny_bert(), with_config(R"({"model_type": "bert", "hidden_size": 12,
                                                  "num_attention_heads": 2})")),
                AllOf(HasSubstr("hidden_size = 12"), HasSubstr("says 8")));
    EXPECT_THAT(detection_error<FormatError>(
                    *tiny_bert(), with_config(R"({"model_type": "bert", "num_hidden_layers": 3,
                                                  "num_attention_heads": 2})")),
                AllOf(HasSubstr("num_hidden_layers = 3"), HasSubstr("says 2")));
}

TEST(Detect, AcceptsThePrunedWidthThatItIsTold) {
    DetectOptions options =
        with_config(R"({"model_type": "bert", "hidden_size": 12, "num_attention_heads": 2})");
    options.width = 8;
    EXPECT_EQ(detect(*tiny_bert(), options).spec.width, 8);
}

TEST(Detect, SaysWhichTensorHasTheWrongShape) {
    auto file = tiny_bert();
    file->add("encoder.layer.1.output.dense.weight", {8, 12});
    EXPECT_THAT(detection_error<FormatError>(*file, with_heads(2)),
                AllOf(HasSubstr("'encoder.layer.1.output.dense.weight' is (8, 12)"),
                      HasSubstr("expected (8, 16)")));
}

TEST(Detect, SaysWhichTensorIsMissing) {
    auto file = tiny_bert();
    file->remove("encoder.layer.1.attention.self.key.bias");
    EXPECT_THAT(detection_error<FormatError>(*file, with_heads(2)),
                HasSubstr("'encoder.layer.1.attention.self.key.bias' is missing"));
}

/// One number of a layer, or one a head, beside the queries.
TEST(Detect, FindsTheLearnedScaleOfThePolynomialThatItsConfigurationNames) {
    const DetectOptions options = with_config(
        R"({"model_type": "bert", "num_attention_heads": 2, "tsdiag": {"layers": [
            {"attention": "softmax"},
            {"attention": "polynomial", "attention_options": {"p": "3", "scale": "learned"}}]}})");
    const std::string name = "encoder.layer.1.attention.self.scale";
    auto file = tiny_bert();
    EXPECT_THAT(detection_error<FormatError>(*file, options),
                HasSubstr("tensor '" + name + "' is missing"));
    for (const Index count : {1, 2}) {
        file->add(name, {count}, 0.25F);
        const Architecture found = detect(*file, options);
        EXPECT_TRUE(found.spec.blocks[0].attention.own.empty());
        ASSERT_EQ(found.spec.blocks[1].attention.own.size(), 1U);
        EXPECT_EQ(found.spec.blocks[1].attention.own[0].shape, (Shape{1, 1, count}));
        EXPECT_EQ(checkpoint_weights(file, found, cpu(), Type::f64, false)
                      ->get("layer.1.attn.scale")
                      .to_host<double>(),
                  std::vector<double>(std::size_t(count), 0.25));
    }
    file->add(name, {3});
    EXPECT_THAT(detection_error<FormatError>(*file, options),
                HasSubstr("'" + name + "' has 3 numbers, expected 1 or 2"));
    EXPECT_THAT(detection_error<FormatError>(*file, with_heads(2)), HasSubstr(name));
}

/// A value of another type than its key has is not passed over.
TEST(Detect, RefusesKeysOfItsOwnOfAnotherType) {
    for (const char* own :
         {R"("causal": 12)", R"("window": 1.5)", R"("window": "4")", R"("attention": false)",
          R"("attention_options": [])", R"("attention_options": {"p": 3})", R"("placement": 1)",
          R"("deesc": "0.5")", R"("deesc_at": 2)", R"("deesc_mean": true)", R"("steps": ["x"])",
          R"("output_norm": 0)", R"("memory_tokens": "2")", R"("layers": {})", R"("draws": 3)"}) {
        const std::string key = std::string(own).substr(1, std::string(own).find('"', 1) - 1);
        const std::string config =
            R"({"model_type": "bert", "num_attention_heads": 2, "tsdiag": {)" + std::string(own) +
            "}}";
        EXPECT_THAT(detection_error<FormatError>(*tiny_bert(), with_config(config.c_str())),
                    AllOf(HasSubstr("'" + key + "'"), HasSubstr("expected ")))
            << own;
    }
    for (const char* own : {R"("bert")", R"({"layers": ["softmax", "linear"]})"}) {
        const std::string config =
            R"({"model_type": "bert", "num_attention_heads": 2, "tsdiag": )" + std::string(own) +
            "}";
        EXPECT_THAT(detection_error<FormatError>(*tiny_bert(), with_config(config.c_str())),
                    HasSubstr("expected an object"));
    }
    EXPECT_NO_THROW(detect(*tiny_bert(), with_config(R"({"model_type": "bert",
        "num_attention_heads": 2, "tsdiag": {"causal": true, "window": 2, "deesc": null}})")));
}

/// What a training saved in the file, in Meta's words, against what is beside it.
TEST(Detect, ComparesTheSourcesOfMetasFiles) {
    MemoryFile file;
    file.add("tok_embeddings.weight", {11, 8});
    const std::string layer = "layers.0.";
    file.add(layer + "attention.wq.weight", {8, 8});
    file.add(layer + "attention.wk.weight", {4, 8});
    file.add(layer + "attention.wv.weight", {4, 8});
    file.add(layer + "attention.wo.weight", {8, 8});
    for (const char* name : {"w1", "w3"})
        file.add(layer + "feed_forward." + name + ".weight", {12, 8});
    file.add(layer + "feed_forward.w2.weight", {8, 12});
    file.add(layer + "attention_norm.weight", {8});
    file.add(layer + "ffn_norm.weight", {8});
    file.add("norm.weight", {8});
    const char* const said = R"({"dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1,
        "norm_eps": 1e-5, "rope_theta": 500.0, "vocab_size": 11, "max_seq_len": 16})";
    const Json arguments = Json::parse(said, "arguments");
    DetectOptions options = with_config(said);
    options.config_name = "params.json";
    file.set_metadata(Json().set("model_args", Json(arguments).set("vocab_size", -1)));
    EXPECT_NO_THROW(detect(file, options));
    EXPECT_NO_THROW(detect(file, {}));
    const std::pair<const char*, Json> cases[] = {
        {"dim", 16},        {"n_layers", 2},    {"n_heads", 4},      {"n_kv_heads", 2},
        {"norm_eps", 0.1},  {"vocab_size", 12}, {"rope_theta", 1e4}, {"max_seq_len", 32},
        {"hidden_dim", 16}, {"head_dim", 8}};
    for (const auto& [key, value] : cases) {
        Json config = arguments;
        config.set("hidden_dim", 12).set("head_dim", 4);
        options.config = config;
        file.set_metadata(Json().set("model_args", Json(arguments).set(key, value)));
        EXPECT_THAT(detection_error<FormatError>(file, options),
                    AllOf(HasSubstr("params.json says"),
                          HasSubstr("but model_args in the file says"), HasSubstr(value.dump())))
            << key;
        options.config_given = true;
        EXPECT_THAT(detect(file, options).spec.provenance.recognised,
                    Contains(HasSubstr("--config precedes what the file itself says")))
            << key;
        options.config_given = false;
        file.set_metadata(Json());
        options.also_said = {{"other/params.json", Json(arguments).set(key, value)}};
        EXPECT_THAT(detection_error<FormatError>(file, options),
                    AllOf(HasSubstr("params.json says"), HasSubstr("but other/params.json says")))
            << key;
        options.also_said.clear();
    }
    file.set_metadata(Json().set("model_args", arguments).set("config", Json().set("n_heads", 4)));
    EXPECT_EQ(detect(file, {}).spec.blocks[0].attention.heads, 2);  // as llama2.c goes on
}

/// Transformers looks at the truth of a value, of which "false" has one; none is guessed.
TEST(Detect, RefusesSwitchesThatAreNeitherTrueNorFalse) {
    const std::string llama = R"({"model_type": "llama", "num_attention_heads": 2, )";
    for (const char* value : {"1", "0", "1.0", R"("true")", R"("false")", "[]"})
        EXPECT_THAT(detection_error<FormatError>(
                        *tiny_llama(),
                        with_config((llama + R"("tie_word_embeddings": )" + value + "}").c_str())),
                    HasSubstr("'tie_word_embeddings' that is not true or false"))
            << value;
    for (const char* value : {"true", "false", "null"})
        EXPECT_NO_THROW(
            detect(*tiny_llama(),
                   with_config((llama + R"("tie_word_embeddings": )" + value + "}").c_str())))
            << value;
    EXPECT_THAT(detection_error<FormatError>(*tiny_llama(), with_config(R"({"model_type": "mistral",
                        "num_attention_heads": 2, "use_sliding_window": "false"})")),
                HasSubstr("'use_sliding_window' that is not true or false"));
}

/// What `init` and `train` add to a configuration: draws of the model, not of a layer.
TEST(Detect, ReadsWhatAttentionsDrew) {
    const auto with_own = [](const std::string& own) {
        const std::string config =
            R"({"model_type": "bert", "num_attention_heads": 2, "tsdiag": )" + own + "}";
        return with_config(config.c_str());
    };
    const Architecture found = detect(
        *tiny_bert(), with_own(R"({"draws": {"seed": "18446744073709551615", "updates": 12}})"));
    EXPECT_EQ(found.spec.provenance.draws->seed, ~std::uint64_t{0});
    EXPECT_EQ(found.spec.provenance.draws->last(), 11);
    EXPECT_EQ(Draws{}.last(), 0);
    for (const char* said :
         {R"({"seed": 3, "updates": 1})", R"({"seed": "3"})", R"({"seed": "3x", "updates": 1})",
          R"({"seed": "", "updates": 1})", R"({"seed": "3", "updates": -1})", R"("3")",
          R"({"seed": "18446744073709551616", "updates": 1})"})
        EXPECT_THAT(detection_error<FormatError>(
                        *tiny_bert(), with_own(std::string(R"({"draws": )") + said + "}")),
                    HasSubstr("'draws' of its configuration"))
            << said;
    EXPECT_THAT(detection_error<FormatError>(*tiny_bert(), with_own(R"({"layers": [{}, {"draws":
                    {"seed": "3", "updates": 1}}]})")),
                HasSubstr("the unknown key 'draws'"));
}

TEST(Detect, SaysWhichLayerIsMissing) {
    auto file = tiny_bert();
    file->add("encoder.layer.3.output.LayerNorm.bias", {8});
    EXPECT_THAT(detection_error<FormatError>(*file, with_heads(2)),
                HasSubstr("layer 'encoder.layer.2' is missing"));
}

TEST(Detect, ShowsTheNamesOfAnUnknownLayout) {
    MemoryFile file;
    file.add("conv1.weight", {2, 3});
    EXPECT_THAT(detection_error<FormatError>(file, {}),
                AllOf(HasSubstr("conv1.weight"), HasSubstr("--map"), HasSubstr("--config")));
    EXPECT_THAT(detection_error<FormatError>(MemoryFile(), {}), HasSubstr("no tensor"));
    EXPECT_THAT(detection_error<FormatError>(*tiny_bert(), with_config(R"({"model_type": "t5"})")),
                HasSubstr("model_type 't5'"));
}

TEST(Families, HaveATitleForPeople) {
    for (const ArchitectureEntry* entry : architectures()) {
        EXPECT_FALSE(entry->title.empty()) << entry->name;
        EXPECT_EQ(entry->other_name.empty(), entry->other_title.empty()) << entry->name;
    }
}

/// Every family listed in the message for an unknown model_type can be given.
TEST(Detect, TakesEveryFamilyThatItListsAsModelType) {
    for (const ArchitectureEntry* entry : architectures()) {
        const std::string config = R"({"model_type": ")" + std::string(entry->name) + R"("})";
        const std::string refusal =
            detection_error<FormatError>(*tiny_bert(), with_config(config.c_str()));
        EXPECT_THAT(refusal, Not(HasSubstr("unknown model_type"))) << entry->name;
    }
    EXPECT_THAT(
        detection_error<FormatError>(*tiny_bert(), with_config(R"({"model_type": "roc_bert"})")),
        AllOf(HasSubstr("unknown model_type 'roc_bert' in the configuration"),
              HasSubstr("tsdiag list architectures"), HasSubstr("have the names of bert")));
}

TEST(Detect, WarnsOfWhatNothingTells) {
    const ModelSpec bare = detect(*tiny_bert(), with_heads(2)).spec;
    ASSERT_EQ(bare.provenance.warnings.size(), 1U);
    EXPECT_THAT(bare.provenance.warnings[0],
                AllOf(HasSubstr("hidden_act = gelu"), HasSubstr("layer_norm_eps = 1e-12")));
    const ModelSpec given =
        detect(*tiny_bert(), with_config(R"({"model_type": "bert", "num_attention_heads": 2})"))
            .spec;
    EXPECT_TRUE(given.provenance.warnings.empty())
        << given.provenance.warnings[0];  // the family's own defaults
    EXPECT_THAT(given.provenance.defaults, Contains(HasSubstr("hidden_act = gelu")));
}

TEST(Detect, RefusesTwoWordsForOneThing) {
    EXPECT_THAT(detection_error<UsageError>(
                    *tiny_bert(),
                    [] {
                        DetectOptions o =
                            with_config(R"({"model_type": "bert", "num_attention_heads": 2})");
                        o.heads = 4;
                        return o;
                    }()),
                HasSubstr("num_attention_heads = 2"));
    EXPECT_THAT(detection_error<FormatError>(
                    *tiny_llama(), with_config(R"({"model_type": "llama", "num_attention_heads": 2,
                        "rope_theta": 500, "rope_parameters": {"rope_theta": 1000}})")),
                HasSubstr("rope_theta"));
}

/// The rule of keys: null is a missing key; harmless keys may have any value; keys that change the
/// mathematics may only have their neutral value; all others are refused.
TEST(Detect, KnowsAKeyOrRefusesIt) {
    const auto refused = [](const std::string& key) {
        const std::string text = R"({"model_type": "bert", "num_attention_heads": 2, )" + key + "}";
        try {
            detect(*tiny_bert(), with_config(text.c_str()));
            return false;
        } catch (const FormatError&) {
            return true;
        }
    };
    for (const char* key : {R"("unheard_of": null)", R"("use_cache": false)", R"("alibi": false)",
                            R"("hidden_dropout_prob": 0.5)", R"("embedding_multiplier": 1)",
                            R"("auto_map": {"AutoTokenizer": ["a.B", null]})"})
        EXPECT_FALSE(refused(key)) << key;
    for (const char* key : {R"("unheard_of": false)", R"("unheard_of": 0)", R"("unheard_of": 1)",
                            R"("unheard_of": "")", R"("unheard_of": {})", R"("alibi": true)",
                            R"("embedding_multiplier": 2)", R"("is_decoderr": true)",
                            R"("auto_map": {"AutoModel": "a.B"})"})
        EXPECT_TRUE(refused(key)) << key;
}

TEST(Detect, RefusesAConfigOfAnotherFamily) {
    EXPECT_THAT(
        detection_error<FormatError>(*tiny_bert(), with_config(R"({"model_type": "gpt2"})")),
        HasSubstr("h.0.attn.c_attn.weight"));
}

TEST(Detect, RefusesByNameWhatItCannotRun) {
    EXPECT_THAT(detection_error<FormatError>(
                    *tiny_bert(), with_config(R"({"model_type": "bert", "num_attention_heads": 2,
                                       "position_embedding_type": "relative_key"})")),
                HasSubstr("relative_key"));
    EXPECT_THAT(detection_error<FormatError>(
                    *tiny_bert(), with_config(R"({"model_type": "bert", "num_attention_heads": 2,
                                       "hidden_act": "mish"})")),
                HasSubstr("'mish'"));
}

TEST(Detect, SurvivesHostileConfigs) {
    for (const char* text :
         {R"({"model_type": "bert", "num_attention_heads": "two"})",
          R"({"model_type": "bert", "num_attention_heads": -2})",
          R"({"model_type": "bert", "num_attention_heads": 1e300})",
          R"({"model_type": "bert", "num_attention_heads": 0})",
          R"({"model_type": "bert", "num_attention_heads": 2, "layer_norm_eps": "x"})",
          R"({"model_type": "bert", "num_attention_heads": 2, "hidden_act": {}})",
          R"({"model_type": "bert", "num_attention_heads": 2, "vocab_size": 1e308})"})
        EXPECT_THROW(detect(*tiny_bert(), with_config(text)), Error) << text;
}

/// Gemma's tensors have the same names, but its norms are 1 + w.
TEST(Detect, AsksForTheFamilyOfLlamasNames) {
    EXPECT_THAT(detection_error<UsageError>(*tiny_llama(), with_heads(2)), HasSubstr("Gemma"));
    DetectOptions options = with_config(R"({"num_attention_heads": 2})");
    EXPECT_THAT(detection_error<UsageError>(*tiny_llama(), options), HasSubstr("model_type"));
}

TEST(Detect, FindsGroupedQueriesFromShapes) {
    DetectOptions options = with_config(R"({"model_type": "llama"})");
    options.heads = 2;
    const ModelSpec s = detect(*tiny_llama(), options).spec;
    EXPECT_EQ(s.family, "llama");
    EXPECT_EQ(s.blocks[0].attention.kv_heads, 1);
    EXPECT_EQ(s.blocks[0].attention.rotary.columns, 4);
    EXPECT_FALSE(s.blocks[0].attention.qkv_bias);
}

std::string with_scaling(const std::string& scaling, const std::string& more = "") {
    return R"({"model_type": "llama", "num_attention_heads": 2, "rope_scaling": )" + scaling +
           more + "}";
}
std::string scaling_error(const std::string& scaling, const std::string& more = "") {
    return detection_error<FormatError>(*tiny_llama(),
                                        with_config(with_scaling(scaling, more).c_str()));
}
ModelSpec scaled(const std::string& scaling, const std::string& more = "") {
    return detect(*tiny_llama(), with_config(with_scaling(scaling, more).c_str())).spec;
}

TEST(Detect, RefusesRotaryScalingsByName) {
    const std::string longest = R"(, "max_position_embeddings": 64)";
    const std::string lists = R"("short_factor": [1, 2], "long_factor": [1, 4])";
    EXPECT_THAT(scaling_error(R"({"rope_type": "ntk", "factor": 4})"), HasSubstr("'ntk'"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "linear", "factor": 0})"), HasSubstr("'factor'"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "linear", "factor": 2, "beta_fast": 8})"),
                HasSubstr("beta_fast"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "yarn", "factor": 4})"),
                HasSubstr("max_position_embeddings"));
    EXPECT_THAT(
        scaling_error(R"({"rope_type": "yarn", "factor": 4, "short_mscale": 1.1})", longest),
        HasSubstr("short_mscale"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "yarn", "factor": 4, "beta_slow": 50})", longest),
                HasSubstr("beta_fast 32 is less than beta_slow 50"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "yarn", "factor": 4, "truncate": 1})", longest),
                HasSubstr("truncate"));
    EXPECT_THAT(
        scaling_error(R"({"rope_type": "yarn", "factor": 4})", longest + R"(, "rope_theta": 1)"),
        HasSubstr("base"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope", "factor": 4})", longest),
                HasSubstr("short_factor"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope", "short_factor": [1, 2],
                                  "long_factor": [1, 4, 9]})",
                              longest),
                HasSubstr("long_factor of rotary scaling 'longrope' is not a list of 2"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope", "short_factor": [1, 0],
                                  "long_factor": [1, 4]})",
                              longest),
                HasSubstr("short_factor"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope", )" + lists + "}", longest),
                HasSubstr("original_max_position_embeddings"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope",
                                  "original_max_position_embeddings": 32, )" +
                              lists + "}"),
                HasSubstr("needs max_position_embeddings"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope", "factor": 3,
                                  "original_max_position_embeddings": 32, )" +
                                  lists + "}",
                              longest),
                HasSubstr("factor 3"));
    EXPECT_THAT(scaling_error(R"({"rope_type": "longrope",
                                  "original_max_position_embeddings": 32, )" +
                                  lists + "}",
                              longest + R"(, "original_max_position_embeddings": 16)"),
                HasSubstr("original_max_position_embeddings = 16"));
}

/// Numbers of the papers, by hand: [YARN] (22) for a factor of 4, and Phi's magnitude.
TEST(Detect, ReadsScalingsThatStretchTheRotation) {
    const std::string longest = R"(, "max_position_embeddings": 64)";
    const ModelSpec yarn = scaled(
        R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})", longest);
    EXPECT_CLOSE(yarn.blocks[0].attention.rotary.magnitude, 1.1386294361119891, exactly);
    EXPECT_THAT(yarn.provenance.warnings, testing::IsEmpty());
    const ModelSpec other = scaled(
        R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 16})", longest);
    EXPECT_THAT(other.provenance.warnings, testing::ElementsAre(HasSubstr("has factor 8")));
    const Rotary given =
        scaled(R"({"rope_type": "yarn", "factor": 4, "attention_factor": 1.25})", longest)
            .blocks[0]
            .attention.rotary;
    EXPECT_EQ(given.magnitude, 1.25);
    EXPECT_EQ(given.original_length, 64);

    const Rotary far = scaled(R"({"type": "su", "short_factor": [1, 2], "long_factor": [1, 4]})",
                              longest + R"(, "original_max_position_embeddings": 16)")
                           .blocks[0]
                           .attention.rotary;
    EXPECT_CLOSE(far.magnitude, std::sqrt(1.5), exactly);  // ln 4 / ln 16 = 1/2
    EXPECT_EQ(far.frequencies(16), (std::vector{1.0, 0.005}));
    EXPECT_EQ(far.frequencies(17), (std::vector{1.0, 0.0025}));
}

TEST(Detect, ReadsAScalingBackFromTheConfigItWrites) {
    for (const char* name : {"llama-rope-yarn", "qwen3-rope-yarn", "phi3-longrope"}) {
        const Opened opened = Opened::from(golden / name);
        const ModelSpec& spec = opened.architecture.spec;
        const auto entry = std::ranges::find(architectures(), std::string_view(spec.family),
                                             &ArchitectureEntry::name);
        DetectOptions options;
        options.config = (*entry)->config(spec);
        const Rotary found = detect(*opened.file, options).spec.blocks[0].attention.rotary;
        const Rotary& written = spec.blocks[0].attention.rotary;
        EXPECT_EQ(found.scaling, written.scaling);
        EXPECT_EQ(found.magnitude, written.magnitude);
        for (const Index n : {5, 500}) EXPECT_EQ(found.frequencies(n), written.frequencies(n));
    }
}

TEST(Detect, DividesTheLogitsOfMiniCpmByItsWidth) {
    const ModelSpec spec = Opened::from(golden / "minicpm").architecture.spec;
    EXPECT_EQ(spec.head.scale, 4.0 / 16);  // dim_model_base / hidden_size
    EXPECT_THAT(spec.provenance.warnings, testing::IsEmpty());
}

TEST(Detect, ReadsRotaryParametersOfNewerConfigs) {
    const ModelSpec s =
        detect(*tiny_llama(), with_config(R"({"model_type": "llama", "num_attention_heads": 2,
            "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500}})"))
            .spec;
    EXPECT_EQ(s.blocks[0].attention.rotary.theta, 500);
    EXPECT_EQ(s.blocks[0].attention.rotary.scaling, "linear");
}

TEST(Detect, TellsMistralsWindowFromItsAbsence) {
    const auto window = [](const char* more) {
        const std::string text =
            std::string(R"({"model_type": "mistral", "num_attention_heads": 2)") + more + "}";
        return detect(*tiny_llama(), with_config(text.c_str())).spec.blocks[0].attention.window;
    };
    EXPECT_EQ(window(""), 4096);
    EXPECT_EQ(window(R"(, "sliding_window": null)"), 0);
    EXPECT_EQ(window(R"(, "sliding_window": 7)"), 7);
}

const std::filesystem::path shared = std::filesystem::path(shared_data()) / "torch";

TEST(Detect, ReadsATrainedNanoGpt) {
    if (!std::filesystem::exists(shared)) GTEST_SKIP() << "the file is not here";
    const Opened opened = Opened::from(shared / "nanogpt-style-ckpt.pt");
    EXPECT_EQ(opened.architecture.spec.family, "nanogpt");
    EXPECT_EQ(opened.architecture.spec.blocks[0].attention.heads, 2);
    Input ids;
    ids.ids = {1, 5, 31, 0, 2, 2, 7, 9};
    Recorder seen;
    opened.model(Type::f32).run(std::span(&ids, 1), seen);
    EXPECT_TRUE(seen.states.contains("final_norm"));
}

/// The file was trained to reverse a sequence of digits: token i must look at token n - 1 - i.  The
/// numbers are those of PyTorch in float64.
TEST(Detect, ReadsATrainedReversalWhoseAttentionReverses) {
    if (!std::filesystem::exists(shared)) GTEST_SKIP() << "the file is not here";
    const Opened opened = Opened::from(shared / "lightning-legacy-ReverseTask.ckpt");
    EXPECT_EQ(opened.architecture.spec.family, "lightning_encoder");
    EXPECT_EQ(opened.architecture.spec.embedding.width, 10);
    const std::vector<std::size_t> digits{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    std::vector<double> one_hot(160, 0.0);
    for (std::size_t i = 0; i < digits.size(); ++i) one_hot[i * 10 + digits[i]] = 1;
    Input input;
    input.embeddings =
        Tensor::from_host(cpu(), {1, 16, 10}, std::span<const double>(one_hot), Type::f64);
    Recorder seen;
    opened.model(Type::f64).run(std::span(&input, 1), seen);
    const std::vector<double>& p = seen.matrix.at(0);
    for (std::size_t i = 0; i < 16; ++i) {
        const auto row = p.begin() + std::ptrdiff_t(16 * i);
        EXPECT_EQ(std::max_element(row, row + 16) - row, std::ptrdiff_t(15 - i));
    }
    const std::vector<double>& y = seen.states.at("layer.0.out");
    const std::vector<double> expected{-1.0736427427951265, 0.41209246041818703,
                                       -0.03164362583864721, 1.387356026200131};
    EXPECT_ALL_CLOSE(std::span(y).first(4), expected, rounding(1024));
}

/// The weights of one model under two families' names give the same states.
TEST(Detect, ReadsTorchsEncoderAsTheSameModel) {
    const RandomModel drawn = random_model("pre-norm,out_proj=1,layers=2,d=16,heads=4,ffn=24");
    const std::shared_ptr<const Weights> weights = random_weights(drawn, Rng(1), cpu(), Type::f32);
    auto file = std::make_shared<MemoryFile>();
    const auto put = [&](const std::string& name, std::vector<std::string> parts) {
        std::vector<float> all;
        Shape shape;
        for (const std::string& part : parts) {
            const Tensor t = weights->get(part);
            const std::vector<float> more = t.to_host<float>();
            all.insert(all.end(), more.begin(), more.end());
            shape = t.shape();
        }
        const auto count = std::ssize(all);
        file->add(name, shape.rows == 1
                            ? std::vector<std::int64_t>{count}
                            : std::vector<std::int64_t>{count / shape.cols, shape.cols});
        file->values(name) = all;
    };
    for (const std::string l : {"0", "1"}) {
        const std::string to = "net.layers." + l + ".", from = "layer." + l + ".";
        put(to + "self_attn.in_proj_weight",
            {from + "attn.q.weight", from + "attn.k.weight", from + "attn.v.weight"});
        put(to + "self_attn.out_proj.weight", {from + "attn.o.weight"});
        for (const std::string end : {".weight", ".bias"}) {
            put(to + "linear1" + end, {from + "ffn.up" + end});
            put(to + "linear2" + end, {from + "ffn.down" + end});
            put(to + "norm1" + end, {from + "norm1" + end});
            put(to + "norm2" + end, {from + "norm2" + end});
        }
        file->add(to + "self_attn.in_proj_bias", {48}, 0.F);
        file->add(to + "self_attn.out_proj.bias", {16}, 0.F);
    }
    DetectOptions options;
    options.config = Json::parse(R"({"nhead": 4, "norm_first": true})", "config.json");
    const Architecture a = detect(*file, options);
    EXPECT_EQ(a.spec.family, "torch_encoder");
    EXPECT_TRUE(a.spec.provenance.ignored.empty());
    const Input input = gaussian(5, 16, Type::f32);
    Recorder one, other;
    Model(drawn.spec, weights, cpu(), Type::f32).run(std::span(&input, 1), one);
    Model(a.spec, checkpoint_weights(file, a, cpu(), Type::f32, false), cpu(), Type::f32)
        .run(std::span(&input, 1), other);
    EXPECT_EQ(one.states, other.states);
}

}  // namespace
}  // namespace tsdiag::test
