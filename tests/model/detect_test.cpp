#include <gmock/gmock.h>

#include "memory_file.hpp"
#include "recorder.hpp"

namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

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

template <class E>
std::string detection_error(const Checkpoint& file, const DetectOptions& options) {
    return thrown<E>([&] { detect(file, options); });
}

TEST(Detect, TakesSizesFromShapesAndNotesItsDefaults) {
    const ModelSpec s = detect(*tiny_bert(), with_heads(2)).spec;
    EXPECT_EQ(s.family, "bert");
    EXPECT_EQ(s.name, "BERT, 2 layers, d = 8, 2 heads");
    EXPECT_EQ(s.vocabulary, 20);
    EXPECT_EQ(s.max_tokens, 6);
    EXPECT_EQ(s.blocks[1].ffn, 16);
    EXPECT_THAT(s.defaults, Contains(HasSubstr("layer_norm_eps = 1e-12: default of bert")));
    EXPECT_THAT(s.defaults, Contains(HasSubstr("hidden_act = gelu: default of bert")));
    EXPECT_THAT(s.recognised, Contains(HasSubstr("logits scaled by 0.5")));
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
    file.add("model.adapter.weight", {4});
    const ModelSpec s = detect(file, with_heads(2)).spec;
    EXPECT_THAT(s.recognised, Contains(HasSubstr("'model.bert.'")));
    EXPECT_THAT(s.recognised, Contains(HasSubstr("heads and buffers")));
    EXPECT_THAT(s.ignored, Contains("model.adapter.weight"));
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
                AllOf(HasSubstr("conv1.weight"), HasSubstr("gpt2"), HasSubstr("--config")));
    EXPECT_THAT(detection_error<FormatError>(MemoryFile(), {}), HasSubstr("no tensor"));
    EXPECT_THAT(detection_error<FormatError>(*tiny_bert(), with_config(R"({"model_type": "t5"})")),
                HasSubstr("model_type 't5'"));
}

TEST(Detect, RefusesAConfigOfAnotherFamily) {
    EXPECT_THAT(
        detection_error<FormatError>(*tiny_bert(), with_config(R"({"model_type": "gpt2"})")),
        HasSubstr("h.0.attn.c_attn.weight"));
}

TEST(Detect, RefusesByNameWhatItCannotRun) {
    EXPECT_THAT(detection_error<NotAvailable>(
                    *tiny_bert(), with_config(R"({"model_type": "bert", "num_attention_heads": 2,
                                       "position_embedding_type": "relative_key"})")),
                HasSubstr("relative_key"));
    EXPECT_THAT(detection_error<NotAvailable>(
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

TEST(Detect, FindsGroupedQueriesFromShapes) {
    const ModelSpec s = detect(*tiny_llama(), with_heads(2)).spec;
    EXPECT_EQ(s.family, "llama");
    EXPECT_EQ(s.blocks[0].kv_heads, 1);
    EXPECT_EQ(s.blocks[0].rotary.columns, 4);
    EXPECT_FALSE(s.blocks[0].qkv_bias);
}

TEST(Detect, RefusesRotaryScalingsByName) {
    for (const char* kind : {"yarn", "longrope"}) {
        const std::string text = std::string(R"({"model_type": "llama", "num_attention_heads": 2,
            "rope_scaling": {"rope_type": ")") +
                                 kind + R"(", "factor": 4}})";
        EXPECT_THAT(detection_error<NotAvailable>(*tiny_llama(), with_config(text.c_str())),
                    HasSubstr(kind));
    }
    EXPECT_THROW(
        detect(*tiny_llama(), with_config(R"({"model_type": "llama", "num_attention_heads": 2,
                                       "rope_scaling": {"rope_type": "linear", "factor": 0}})")),
        FormatError);
}

TEST(Detect, ReadsRotaryParametersOfNewerConfigs) {
    const ModelSpec s =
        detect(*tiny_llama(), with_config(R"({"model_type": "llama", "num_attention_heads": 2,
            "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500}})"))
            .spec;
    EXPECT_EQ(s.blocks[0].rotary.theta, 500);
    EXPECT_EQ(s.blocks[0].rotary.scaling, "linear");
}

TEST(Detect, TellsMistralsWindowFromItsAbsence) {
    const auto window = [](const char* more) {
        const std::string text =
            std::string(R"({"model_type": "mistral", "num_attention_heads": 2)") + more + "}";
        return detect(*tiny_llama(), with_config(text.c_str())).spec.blocks[0].window;
    };
    EXPECT_EQ(window(""), 4096);
    EXPECT_EQ(window(R"(, "sliding_window": null)"), 0);
    EXPECT_EQ(window(R"(, "sliding_window": 7)"), 7);
}

TEST(Detect, ReadsTheTrainedFilesOfOtherProjects) {
    const std::filesystem::path shared = std::filesystem::path(TSDIAG_SHARED_DATA) / "torch";
    if (!std::filesystem::exists(shared)) GTEST_SKIP() << "the files are not here";
    const Opened nano = Opened::from(shared / "nanogpt-style-ckpt.pt");
    EXPECT_EQ(nano.architecture.spec.family, "nanogpt");
    EXPECT_EQ(nano.architecture.spec.blocks[0].heads, 2);
    Input ids;
    ids.ids = {1, 5, 31, 0, 2, 2, 7, 9};
    Recorder seen;
    nano.model(Type::f32).run(std::span(&ids, 1), seen);
    EXPECT_TRUE(seen.states.contains("final_norm"));

    const Opened reverse = Opened::from(shared / "lightning-legacy-ReverseTask.ckpt");
    EXPECT_EQ(reverse.architecture.spec.family, "lightning_encoder");
    EXPECT_EQ(reverse.architecture.spec.embedding_width, 10);
    Input input = gaussian(16, 32, Type::f32);
    reverse.model(Type::f32).run(std::span(&input, 1), seen);
    input = {};
    input.embeddings = gaussian(16, 10, Type::f32).hidden;
    reverse.model(Type::f32).run(std::span(&input, 1), seen);
}

}  // namespace
}  // namespace tsdiag::test
