#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "checkpoint/zip_writer.hpp"
#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// Models that have two sources for one thing, or say something beside their tensors: what their
/// own library does, or a refusal that names both.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

struct Values {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/// A golden model whose configuration and tensors a test may change.
class ModelDoubts : public testing::Test {
  protected:
    Json config;
    std::vector<Values> tensors;

    void open(const std::string& name) {
        const fs::path model = fs::path(test_data()) / "golden" / name;
        config = Json::parse(read_file(model / "config.json"), "config.json");
        tensors.clear();
        const auto file = open_checkpoint(model / "model.safetensors");
        for (const std::string& tensor : file->names()) {
            const RawTensor raw = file->tensor(tensor);
            Values one{tensor, raw.shape, std::vector<float>(std::size_t(raw.count()), 0)};
            widen<float>(raw, one.values);
            tensors.push_back(std::move(one));
        }
    }
    Values& tensor(const std::string& name) {
        return *std::ranges::find(tensors, name, &Values::name);
    }
    void without(const std::string& key) {
        Json out;
        for (const auto& [name, value] : config.object())
            if (name != key) out.set(name, value);
        config = out;
    }
    void write() {
        fs::create_directories(fs::path(folder / "m"));
        write_file(folder / "m/config.json", config.dump());
        std::vector<NamedArray> named;
        for (const Values& one : tensors) named.push_back({one.name, one.shape, one.values, {}});
        write_safetensors(folder / "m/model.safetensors", named, {});
    }
    Finished probe(std::vector<std::string> more = {}) {
        write();
        std::vector<std::string> words = {"probe", "m", "--no-report", "--out", "out", "--force"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    /// What is said of the model, its lines one below the other.
    std::string description() {
        const Finished found = probe({"--tokens", "6"});
        EXPECT_EQ(found.code, 0) << found.err;
        const Json model = Json::parse(read_file(folder / "out/run.json"), "run.json")["model"];
        std::string lines;
        for (const char* key : {"recognised", "defaults", "warnings"})
            if (model[key].is_array())
                for (const Json& line : model[key].array()) lines += line.string() + "\n";
        return lines;
    }
    std::string refused() {
        const Finished found = probe();
        EXPECT_NE(found.code, 0) << found.out;
        expect_one_sentence(found.err);
        return found.err;
    }
    /// The gradient of a loss by the queries of layer 0, which depends on the head.
    double gradient() {
        const Finished found = probe({"--tokens", "6", "--loss", "lm", "--dtype", "f64"});
        EXPECT_EQ(found.code, 0) << found.err;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.metric == "grad_norm" && row.at.tensor == "attn.q.weight" && row.at.layer == 0)
                return row.value.value_or(0);
        ADD_FAILURE() << "no gradient";
        return 0;
    }

    TemporaryDirectory folder;
};

/// GPT-J's head has a bias, under the name that RoBERTa's has.
TEST_F(ModelDoubts, AHeadWithABiasIsItsOwn) {
    open("gptj");
    const Values token = tensor("transformer.wte.weight");
    Values head = token, bias{"lm_head.bias", {token.shape[0]}, {}};
    head.name = "lm_head.weight";
    std::erase_if(tensors, [](const Values& one) { return one.name.starts_with("lm_head"); });
    for (std::size_t i = 0; i < head.values.size(); ++i) head.values[i] = float(i % 7) / 8 - 0.4f;
    bias.values.assign(std::size_t(token.shape[0]), 0.0f);
    tensors.push_back(head);
    tensors.push_back(bias);
    config.set("tie_word_embeddings", false);
    const double own = gradient();
    tensors[tensors.size() - 2].values = token.values;
    const double tied = gradient();
    EXPECT_GT(std::abs(own - tied), 1e-6 * own);
    EXPECT_THAT(description(), Not(HasSubstr("no separate output head")));
}

/// Only a few rows of the head are not those of the embedding.
TEST_F(ModelDoubts, AHeadThatTheConfigurationSeparatesIsNotTied) {
    open("llama");
    const Values token = tensor("model.embed_tokens.weight");
    std::erase_if(tensors, [](const Values& one) { return one.name == "lm_head.weight"; });
    Values head = token;
    head.name = "lm_head.weight";
    tensors.push_back(head);
    config.set("tie_word_embeddings", false);
    const double equal = gradient();
    EXPECT_THAT(description(), HasSubstr("1 tensor of the output head, used by --loss lm and mlm "
                                         "alone (such as 'lm_head.weight')"));
    EXPECT_THAT(description(), Not(HasSubstr("not used (such as 'lm_head.weight')")));
    config.set("tie_word_embeddings", true);
    EXPECT_THAT(description(), HasSubstr("not used (such as 'lm_head.weight')"));
    config.set("tie_word_embeddings", false);
    for (std::size_t i = 1; i <= std::size_t(token.shape[1]); ++i)
        tensors.back().values[tensors.back().values.size() - i] = 9;
    EXPECT_GT(std::abs(gradient() - equal), 1e-3 * equal);
}

/// minGPT has GPT-2's tensors by nn.Linear, with a head of its own, and one configuration for the
/// training and the model.
TEST_F(ModelDoubts, MinGptHasTheNumbersOfGpt2) {
    open("gpt2");
    const auto values = [&](const std::vector<std::string>& heads) {
        const Finished found =
            tsdiag(folder, with({"probe", "m", "--tokens", "6", "--dtype", "f64", "--probes",
                                 "t_sim", "--no-report", "--out", "out", "--force"},
                                heads));
        EXPECT_EQ(found.code, 0) << found.err;
        std::vector<double> out;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            out.push_back(row.value.value_or(-1));
        return out;
    };
    write();
    const std::vector<double> right = values({});
    ASSERT_GT(right.size(), 10U);
    // Sums in another order, of numbers near 1.
    const auto expect_right = [&](const std::vector<double>& found) {
        ASSERT_EQ(found.size(), right.size());
        for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 1e-12) << i;
    };
    for (Values& one : tensors) {
        const bool matrix = one.name.find(".c_") != std::string::npos && one.shape.size() == 2;
        one.name = "transformer." + one.name;
        if (!matrix) continue;
        const auto in = std::size_t(one.shape[0]), out = std::size_t(one.shape[1]);
        const std::vector<float> before = one.values;
        for (std::size_t i = 0; i < in; ++i)
            for (std::size_t o = 0; o < out; ++o) one.values[o * in + i] = before[i * out + o];
        std::swap(one.shape[0], one.shape[1]);
    }
    Values head{"lm_head.weight", {24, 16}, {}};
    for (int i = 0; i < 24 * 16; ++i) head.values.push_back(float(i % 7) / 8 - 0.4f);
    tensors.push_back(head);
    const auto said = [](const std::string& model) {
        return Json::parse(R"({"system": {"seed": 3407}, "data": {"block_size": 12}, "model": {)" +
                               model + R"("vocab_size": null, "block_size": null, )" +
                               R"("embd_pdrop": 0.1}, "trainer": {"max_iters": null}})",
                           "config.json");
    };
    config = said(R"("model_type": null, "n_layer": 2, "n_head": 2, "n_embd": 16, )");
    write();
    expect_right(values({}));
    EXPECT_THAT(description(), HasSubstr("minGPT, whose GELU is by tanh"));
    fs::remove(fs::path(folder / "m/config.json"));
    expect_right(values({"--n-heads", "2"}));
    config = said(R"("model_type": "gpt-nano", "n_layer": null, "n_head": null, "n_embd": null, )");
    EXPECT_THAT(refused(), HasSubstr("model of m/config.json says n_embd = 48, but tensor "
                                     "'transformer.wte.weight' says 16"));
    tensors.clear();
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        std::size_t count = 1;
        for (const std::int64_t extent : shape) count *= std::size_t(extent);
        Values one{name, shape, {}};
        for (std::size_t i = 0; i < count; ++i)
            one.values.push_back(float((i * i + 3 * tensors.size()) % 13) / 16 - 0.4f);
        tensors.push_back(one);
    };
    const auto add_pair = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        add(name + ".weight", shape);
        add(name + ".bias", {shape[0]});
    };
    add("transformer.wte.weight", {24, 48});
    add("transformer.wpe.weight", {12, 48});
    for (const std::string layer : {"transformer.h.0.", "transformer.h.1.", "transformer.h.2."}) {
        add_pair(layer + "ln_1", {48});
        add_pair(layer + "attn.c_attn", {144, 48});
        add_pair(layer + "attn.c_proj", {48, 48});
        add(layer + "attn.bias", {1, 1, 12, 12});
        add_pair(layer + "ln_2", {48});
        add_pair(layer + "mlp.c_fc", {192, 48});
        add_pair(layer + "mlp.c_proj", {48, 192});
    }
    add_pair("transformer.ln_f", {48});
    add("lm_head.weight", {24, 48});
    const std::string lines = description();
    EXPECT_THAT(lines,
                HasSubstr("n_layer, n_embd and n_head are those that minGPT gives gpt-nano"));
    EXPECT_THAT(lines, HasSubstr("3 layers, width 48, 3 heads of 16"));
}

/// LLaVA under the names of Transformers before and since 4.52 and under those of its authors: the
/// numbers are those of its LLaMA alone.
TEST_F(ModelDoubts, LlavaIsItsLanguageModel) {
    open("llama");
    const auto metrics = [&](const std::vector<std::string>& more) {
        const Finished found =
            tsdiag(folder, with({"probe", "m", "--tokens", "6", "--probes", "t_sim", "--no-report",
                                 "--out", "out", "--force"},
                                more));
        EXPECT_EQ(found.code, 0) << found.err;
        return read_file(folder / "out/metrics.csv");
    };
    write();
    const std::string right = metrics({});
    const Json text = config;
    const std::vector<Values> language = tensors;
    const auto named = [&](const std::function<std::string(const std::string&)>& name,
                           const std::string& tower, const std::string& projector) {
        tensors = language;
        for (Values& one : tensors) one.name = name(one.name);
        const std::vector<float> values(16, 0.5f);
        for (const std::string& image :
             {tower + "vision_model.encoder.layers.0.self_attn.q_proj.weight",
              tower + "vision_model.encoder.layers.0.self_attn.k_proj.weight", projector})
            tensors.push_back({image, {4, 4}, values});
    };
    const auto before = [](const std::string& name) { return "language_model." + name; };
    const auto since = [](const std::string& name) {
        return name.starts_with("model.") ? "model.language_" + name : name;
    };
    const auto said = [&](Json own) {
        return Json::parse(
                   R"({"model_type": "llava", "image_token_index": 23, "ignore_index": -100,)"
                   R"("projector_hidden_act": "gelu", "vision_feature_layer": -2,)"
                   R"("vision_config": {"hidden_size": 4, "model_type": "clip_vision_model"}})",
                   "config.json")
            .set("text_config", std::move(own));
    };
    named(before, "vision_tower.", "multi_modal_projector.linear_1.weight");
    config = said(text);
    write();
    EXPECT_EQ(metrics({}), right);
    EXPECT_THAT(description(), HasSubstr("3 tensors of images are not read (such as '"));
    EXPECT_EQ(metrics({"--ignore", "vision_tower.*", "--ignore", "multi_modal_projector.*"}),
              right);
    config = text;  // of the language model alone
    write();
    EXPECT_EQ(metrics({}), right);
    config = text;
    without("num_attention_heads");
    const Json headless = config;
    config = said(headless);
    write();
    EXPECT_EQ(metrics({"--n-heads", "4"}), right);
    config = headless;
    without("model_type");
    config = said(Json(config).set("num_attention_heads", 4));
    EXPECT_THAT(description(), HasSubstr("model_type = llama: default of Transformers, where "
                                         "text_config leaves it out"));
    config = said(headless);
    write();
    EXPECT_THAT(tsdiag(folder, {"probe", "m", "--no-report"}).err,
                HasSubstr("num_attention_heads (text_config of m/config.json) = 32 heads cannot"));
    config = said(text);
    named(since, "model.vision_tower.", "model.multi_modal_projector.linear_1.weight");
    write();
    EXPECT_EQ(metrics({}), right);
    config = text;
    config.set("model_type", "llava_llama").set("mm_hidden_size", 4).set("use_mm_proj", true);
    config.set("sep_image_conv_front", false);  // of its first version
    named([](const std::string& name) { return name; }, "model.vision_tower.vision_tower.",
          "model.mm_projector.0.weight");
    write();
    EXPECT_EQ(metrics({}), right);
    // Another composition of the same parts, whose images may change what its text model does.
    config = said(text).set("model_type", "paligemma");
    EXPECT_THAT(refused(), HasSubstr("unknown model_type 'paligemma'"));
}

/// Under its authors' model_type llava are language models of several kinds.
TEST_F(ModelDoubts, TheClassOfALlavaTellsItsLanguageModel) {
    const Values projector{"model.mm_projector.0.weight", {4, 4}, std::vector<float>(16, 0.5f)};
    const auto said = [&](const char* type, const char* named) {
        config.set("model_type", type).set("architectures", Json::Array{named});
        return description();
    };
    open("qwen2");
    config.set("mm_hidden_size", 4).set("image_token_index", 23).set("vision_tower_pretrained", "");
    config.set("use_pos_skipping", false).set("pos_skipping_range", 4096);
    config.set("add_faster_video", false).set("add_time_instruction", true);
    config.set("faster_token_stride", 10).set("force_sample", true);
    tensors.push_back(projector);
    const char* qwen2 = "family qwen2: model_type 'qwen2'";
    EXPECT_THAT(said("llava", "LlavaQwenForCausalLM"), HasSubstr(qwen2));
    EXPECT_THAT(said("llava_qwen", "LlavaQwenForCausalLM"), HasSubstr(qwen2));
    open("llama");
    config.set("mm_hidden_size", 4);
    tensors.push_back(projector);
    EXPECT_THAT(said("llava", "LlavaLlamaForCausalLM"), HasSubstr("family llama: model_type"));
    EXPECT_THAT(said("llava", "LlavaMistralForCausalLM"), HasSubstr("family mistral: model_type"));
    EXPECT_THAT(said("llava", "FSDPLlavaMistralForCausalLM"), HasSubstr("family mistral"));
    config.set("architectures", Json::Array{"LlavaGemmaForCausalLM"});
    EXPECT_THAT(refused(), HasSubstr("unknown model_type 'llava'"));
}

/// CLIP's tower of images, inside a LLaVA whose language model --ignore leaves out, and alone.  The
/// numbers are those of PyTorch in float64.
TEST_F(ModelDoubts, TheTowerOfImagesOfALlavaIsRun) {
    const auto value = [](std::int64_t i, std::int64_t k) {
        return double((3 * i * i + 5 * i + 7 * k) % 13 - 6);
    };
    const std::string vision = "vision_model.", tower = "vision_tower.";
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        const bool norm = name.find("norm") != std::string::npos && name.ends_with("weight");
        Values one{tower + vision + name, shape, {}};
        for (std::int64_t i = 0; i < count; ++i)
            one.values.push_back(
                float(value(i, std::int64_t(tensors.size())) / 16 + (norm ? 1 : 0)));
        tensors.push_back(one);
    };
    const auto add_pair = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        add(name + ".weight", shape);
        add(name + ".bias", {shape[0]});
    };
    add("embeddings.class_embedding", {8});
    add("embeddings.patch_embedding.weight", {8, 3, 4, 4});
    add("embeddings.position_embedding.weight", {5, 8});
    add_pair("pre_layrnorm", {8});
    add_pair("post_layernorm", {8});
    for (const std::string layer : {"encoder.layers.0.", "encoder.layers.1."}) {
        for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
            add_pair(layer + "self_attn." + part, {8, 8});
        add_pair(layer + "mlp.fc1", {16, 8});
        add_pair(layer + "mlp.fc2", {8, 16});
        add_pair(layer + "layer_norm1", {8});
        add_pair(layer + "layer_norm2", {8});
    }
    const std::vector<Values> alone = tensors;
    const std::vector<float> others(32, 0.5f);
    tensors.push_back({"language_model.model.embed_tokens.weight", {4, 8}, others});
    tensors.push_back({"multi_modal_projector.linear_1.weight", {4, 8}, others});
    config = Json::parse(R"({"model_type": "llava", "text_config": {"model_type": "llama"},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 8, "is_decoder": false,
        "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16, "patch_size": 4,
        "image_size": 8, "projection_dim": 6, "vocab_size": 32000}})",
                         "config.json");
    std::vector<double> image;
    for (std::int64_t i = 0; i < 3 * 8 * 8; ++i) image.push_back(value(i, 0) / 8);
    write_npy<double>(folder / "image.npy", "<f8", {3, 8, 8}, image);
    const auto expect_right = [&](const std::vector<std::string>& more) {
        const Finished found = probe(
            with({"--input", "image:image.npy", "--dtype", "f64", "--probes", "t_sim"}, more));
        ASSERT_EQ(found.code, 0) << found.err;
        std::vector<double> states;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.at.stage == "out" || row.at.stage == "final_norm")
                states.push_back(row.value.value_or(-1));
        const std::vector<double> right = {0.3891096876466117, 0.5430120969314197,
                                           0.6428889111657536};
        ASSERT_EQ(states.size(), right.size());
        // A few hundred roundings of 1e-16.
        for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(states[i], right[i], 1e-10) << i;
    };
    expect_right({"--ignore", "language_model.*"});
    EXPECT_THAT(read_file(folder / "out/run.json"),
                HasSubstr("the tower of images alone, without"));
    const Json whole = config;
    config.set("vision_config", Json(whole["vision_config"]).set("a_key", 2));
    EXPECT_THAT(probe({"--ignore", "language_model.*"}).err, HasSubstr("pass --ignore a_key"));
    expect_right({"--ignore", "language_model.*", "--ignore", "a_key"});
    config = Json(whole).set("vision_config", Json::parse(R"({"image_size": 8})", "config.json"));
    expect_right({"--ignore", "language_model.*", "--n-heads", "2"});
    EXPECT_THAT(
        probe({"--ignore", "language_model.*"}).err,
        HasSubstr("num_attention_heads (vision_config of m/config.json) = 12 heads cannot"));
    config = whole;
    tensors = alone;
    for (Values& one : tensors) one.name = one.name.substr(tower.size());
    const Json own = config["vision_config"];
    config = own;
    config.set("architectures", Json::Array{"CLIPVisionModelWithProjection"});
    expect_right({});
    EXPECT_THAT(read_file(folder / "out/run.json"), Not(HasSubstr("architectures names")));
    // Beside the tower of text of a CLIP.
    tensors.push_back({"text_model.encoder.layers.0.self_attn.q_proj.weight", {4, 8}, others});
    tensors.push_back({"visual_projection.weight", {6, 8}, std::vector<float>(48, 0.5f)});
    tensors.push_back({"text_projection.weight", {4, 8}, others});
    tensors.push_back({"logit_scale", {1}, {2.5f}});
    config =
        Json::parse(R"({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}})",
                    "config.json")
            .set("vision_config", own);
    expect_right({"--ignore", "text_model.*"});
    EXPECT_THAT(refused(), HasSubstr("pass --ignore 'text_model.*' for that of images"));
    without("vision_config");
    expect_right({"--ignore", "text_model.*", "--n-heads", "2"});
}

/// No configuration and no map makes one of these a family's; a trace measures them.
TEST_F(ModelDoubts, ANetworkOfAnotherKindIsToldByName) {
    using Shape = std::vector<std::int64_t>;
    const std::vector<std::tuple<const char*, std::string, Shape>> cases = {
        {"an encoder-decoder", "decoder.block.0.layer.1.EncDecAttention.q.weight", {8, 8}},
        {"an encoder-decoder", "model.decoder.layers.0.encoder_attn.q_proj.weight", {8, 8}},
        {"an encoder-decoder", "decoder.blocks.0.cross_attn.query.weight", {8, 8}},
        {"the two towers of CLIP", "text_model.encoder.layers.0.self_attn.q_proj.weight", {8, 8}},
        {"the two towers of CLIP", "transformer.resblocks.0.attn.in_proj_weight", {24, 8}},
        {"T5 or the encoder of one", "encoder.block.0.layer.0.SelfAttention.q.weight", {8, 8}},
        {"wav2vec 2.0", "wav2vec2.feature_extractor.conv_layers.0.conv.weight", {8, 1, 10}},
        {"the U-Net", "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight", {8, 8}},
        {"the U-Net",
         "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight",
         {8, 8}},
        {"a model of Megatron-LM",
         "language_model.encoder.layers.0.self_attention.query_key_value.weight",
         {24, 8}},
        {"a model of Megatron-LM", "decoder.layers.0.self_attention.linear_qkv.weight", {24, 8}},
        {"a state-space model", "backbone.layers.0.mixer.A_log", {8, 4}},
        {"a recurrent network", "blocks.0.att.time_mix_k", {1, 1, 8}},
        {"a recurrent network", "weight_hh_l0", {16, 4}},
        {"a recurrent network", "blocks.0.att.time_decay", {1, 1, 8}},
        {"a recurrent network", "blocks.0.att.x_r", {1, 1, 8}},
        {"FT-Transformer", "feature_tokenizer.num_tokenizer.weight", {5, 8}},
        {"FT-Transformer", "backbone.blocks.0.attention.W_out.weight", {8, 8}},
        {"an MLP-Mixer", "blocks.0.mlp_tokens.fc1.weight", {8, 4}},
        {"ESM, a model of proteins", "esm.encoder.emb_layer_norm_after.weight", {8}},
        {"ESM, a model of proteins",
         "encoder.layer.0.attention.self.rotary_embeddings.inv_freq",
         {2}},
        {"ESM, a model of proteins", "layers.0.self_attn.rot_emb.inv_freq", {2}},
        {"the Annotated Transformer", "decoder.layers.0.src_attn.linears.0.weight", {8, 8}},
        {"BEiT or EVA in timm", "blocks.0.attn.q_bias", {8}},
        {"BEiT",
         "encoder.layer.0.attention.attention.relative_position_bias.relative_position_bias_table",
         {9, 2}},
        {"version 2 of Swin", "layers.0.blocks.0.attn.cpb_mlp.0.weight", {16, 2}},
        {"Segment Anything", "mask_decoder.iou_token.weight", {1, 8}},
        {"a diffusion transformer (DiT)", "blocks.0.adaLN_modulation.1.weight", {48, 8}},
        {"a diffusion transformer of two streams (Flux)",
         "double_blocks.0.img_attn.qkv.weight",
         {24, 8}},
        {"a diffusion transformer of two streams (Stable Diffusion 3, Flux)",
         "transformer_blocks.0.attn.add_q_proj.weight",
         {8, 8}},
        {"the tower of images of SigLIP",
         "vision_model.encoder.layers.0.self_attn.q_proj.weight",
         {8, 8}},
        {"Perceiver", "perceiver.embeddings.latents", {4, 8}},
        {"a model of x-transformers", "attn_layers.layers.0.1.to_q.weight", {8, 8}},
        {"a GPT whose heads are modules", "blocks.0.sa.heads.0.key.weight", {4, 8}},
        {"Longformer", "encoder.layer.0.attention.self.query_global.weight", {8, 8}},
        {"LayoutLM", "layoutlm.embeddings.x_position_embeddings.weight", {9, 8}},
        {"RoFormer", "roformer.encoder.embed_positions.weight", {9, 4}},
        {"XLNet", "transformer.layer.0.rel_attn.q", {8, 2, 4}},
        {"XLM or FlauBERT", "attentions.0.q_lin.weight", {8, 8}},
        {"the first GPT", "tokens_embed.weight", {11, 8}},
        {"a convolutional network", "layer1.0.conv1.weight", {8, 8, 3, 3}}};
    for (const auto& [kind, name, shape] : cases) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        const std::vector<float> values(std::size_t(count), 0.5f), row(8, 0.5f);
        const std::vector<NamedArray> named = {{name, shape, values, {}}, {"a.bias", {8}, row, {}}};
        write_safetensors(folder / "other.safetensors", named, {});
        const Finished found = tsdiag(folder, {"probe", "other.safetensors", "--no-report"});
        EXPECT_EQ(found.code, 1) << name;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr("looks like " + std::string(kind))) << name;
        EXPECT_THAT(found.err, HasSubstr("hidden_states.L")) << name;
        EXPECT_THAT(found.err, Not(HasSubstr("--map"))) << name;
    }
}

/// What torch.nn.utils computes of its convolution of positions is not what keeps it from being
/// run.
TEST_F(ModelDoubts, AModelOfSoundIsToldBeforeItsParametrizations) {
    const std::vector<float> row(8, 0.5f);
    const std::vector<NamedArray> named = {
        {"encoder.pos_conv_embed.conv.weight_g", {8}, row, {}},
        {"feature_extractor.conv_layers.0.conv.weight", {8, 1, 1}, row, {}}};
    write_safetensors(folder / "sound.safetensors", named, {});
    const Finished found = tsdiag(folder, {"probe", "sound.safetensors", "--no-report"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("looks like wav2vec 2.0"));
}

/// Under the names of Transformers and of its authors, with and without those of the whole model.
TEST_F(ModelDoubts, AnEncoderOfWhisperIsToldByName) {
    const std::vector<float> kernel(192, 0.5f), matrix(64, 0.5f);
    for (const std::string before : {"", "encoder.", "model.encoder."})
        for (const char* query :
             {"layers.0.self_attn.q_proj.weight", "blocks.0.attn.query.weight"}) {
            const std::vector<NamedArray> named = {{before + "conv1.weight", {8, 8, 3}, kernel, {}},
                                                   {before + "conv2.weight", {8, 8, 3}, kernel, {}},
                                                   {before + query, {8, 8}, matrix, {}}};
            write_safetensors(folder / "sound.safetensors", named, {});
            const Finished found = tsdiag(folder, {"probe", "sound.safetensors", "--no-report"});
            EXPECT_EQ(found.code, 1);
            expect_one_sentence(found.err);
            EXPECT_THAT(found.err, HasSubstr("looks like the encoder of Whisper, whose input is "
                                             "sound, which no family takes"))
                << before << query;
            EXPECT_THAT(found.err, HasSubstr("hidden_states.L"));
        }
}

/// Each with the one thing to do.
TEST_F(ModelDoubts, WeightsInAnotherStateAreToldByName) {
    using Names = std::vector<std::string>;
    Names numbers, without_dots;
    for (int i = 0; i < 8; ++i) {
        numbers.push_back(std::to_string(i));
        without_dots.push_back("transformerh" + std::to_string(i) + "attnc_projweight");
    }
    for (const auto& [names, said] :
         {std::pair<Names, const char*>{{"shadow_params.0", "shadow_params.1"}, "ema.copy_to"},
          {{"linear._packed_params.dtype", "linear.scale"}, "save the model before it was"},
          {{"decoder_blocks.0.attn.qkv.weight", "mask_token"}, "--ignore 'decoder_*'"},
          {numbers, "a list of tensors without names; save the state_dict"},
          {without_dots, "has names without dots"}}) {
        // Of different lengths: states of one shape would be taken for those of layers.
        const std::vector<float> row(16, 0.5f);
        std::vector<NamedArray> named;
        for (const std::string& name : names) {
            const std::size_t length = named.size() + 1;
            named.push_back({name, {std::int64_t(length)}, std::span(row).first(length), {}});
        }
        write_safetensors(folder / "other.safetensors", named, {});
        const Finished found = tsdiag(folder, {"probe", "other.safetensors", "--no-report"});
        EXPECT_EQ(found.code, 1) << said;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr(said));
    }
}

TEST_F(ModelDoubts, FoldersOfOtherLibrariesAreToldByName) {
    const auto refused_folder = [&](const std::string& name) {
        const Finished found = tsdiag(folder, {"probe", name, "--no-report"});
        EXPECT_EQ(found.code, 1) << name;
        expect_one_sentence(found.err);
        return found.err;
    };
    std::filesystem::create_directories(folder / "onnx");
    write_file(folder / "onnx/config.json", "{}");
    write_file(folder / "onnx/model.onnx", std::string("\x08\x08\x12\x07pytorch\x1a\x05", 12));
    EXPECT_THAT(refused_folder("onnx"), HasSubstr("holds an ONNX model (model.onnx)"));
    std::filesystem::create_directories(folder / "pipeline/unet");
    write_file(folder / "pipeline/model_index.json", "{}");
    EXPECT_THAT(refused_folder("pipeline"), HasSubstr("is a pipeline of diffusers"));
}

/// Versions of Transformers read the one or the other; gelu is the name of the first files.
TEST_F(ModelDoubts, TwoActivationsOfAGemmaThatDifferAreRefused) {
    open("gemma");
    EXPECT_THAT(description(), Not(HasSubstr("hidden_act =")));
    config.set("hidden_act", "gelu_pytorch_tanh");
    EXPECT_THAT(description(), Not(HasSubstr("hidden_act =")));
    config.set("hidden_act", "gelu");
    EXPECT_THAT(description(), HasSubstr("hidden_act = gelu is gelu_pytorch_tanh"));
    config.set("hidden_act", "relu");
    EXPECT_THAT(refused(),
                HasSubstr("hidden_act = \"relu\" and hidden_activation = \"gelu_pytorch"));
    config.set("hidden_activation", nullptr);
    EXPECT_THAT(refused(), HasSubstr("hidden_act = \"relu\" and no hidden_activation"));
    config.set("hidden_act", "gelu");
    EXPECT_THAT(description(), HasSubstr("hidden_act = gelu is gelu_pytorch_tanh"));
    config.set("hidden_act", "relu").set("hidden_activation", "relu");
    EXPECT_THAT(description(), HasSubstr("activation relu"));
}

/// A list of layers and a rule for them.
TEST_F(ModelDoubts, LayerTypesThatContradictAPatternAreRefused) {
    const Json::Array windows{"sliding_attention", "full_attention", "sliding_attention"};
    open("gemma3");  // a pattern of 3: full attention in the last of its 3 layers
    config.set("layer_types",
               Json::Array{"sliding_attention", "sliding_attention", "full_attention"});
    EXPECT_THAT(description(), HasSubstr("a sliding window in 2 layers"));
    config.set("layer_types", windows);
    EXPECT_THAT(refused(), HasSubstr("layer_types says that layer 1 has full attention, but "
                                     "sliding_window_pattern = 3 disagrees"));
    without("sliding_window_pattern");
    EXPECT_THAT(description(), HasSubstr("a sliding window in 2 layers"));
    config.set("_sliding_window_pattern",
               3);  // Transformers writes it beside the list, and obeys that
    EXPECT_THAT(description(), HasSubstr("a sliding window in 2 layers"));
    open("cohere2");
    config.set("layer_types", Json::Array{"full_attention", "sliding_attention"});
    EXPECT_THAT(refused(), HasSubstr("sliding_window_pattern = 2 disagrees"));
    open("qwen2");
    config.set("use_sliding_window", true).set("sliding_window", 3).set("max_window_layers", 1);
    config.set("layer_types", Json::Array{"sliding_attention", "full_attention"});
    EXPECT_THAT(description(), HasSubstr("a sliding window in 1 layer\n"));
    config.set("layer_types", Json::Array{"full_attention", "sliding_attention"});
    EXPECT_THAT(description(), HasSubstr("a sliding window in 1 layer\n"));
}

/// Versions of Transformers disagree in which layers of Qwen's mixtures slide.
TEST_F(ModelDoubts, WindowsOfAMixtureOfQwenNeedTheListOfTheirLayers) {
    for (const auto& [name, others] : {std::pair("qwen2-moe", "below it with even numbers"),
                                       {"qwen3-moe", "from max_window_layers = 1 on, or in all"}}) {
        open(name);
        without("layer_types");
        config.set("sliding_window", 3).set("max_window_layers", 1);
        config.set("use_sliding_window", false);
        EXPECT_THAT(description(), Not(HasSubstr("a sliding window in"))) << name;
        config.set("use_sliding_window", true);
        EXPECT_THAT(refused(), HasSubstr("layers from max_window_layers = 1 on")) << name;
        EXPECT_THAT(refused(), HasSubstr(others)) << name;
        EXPECT_THAT(refused(), HasSubstr("list layer_types")) << name;
        Json::Array types;
        for (Index l = 0; l < config["num_hidden_layers"].integer(); ++l)
            types.emplace_back(l == 0 ? "sliding_attention" : "full_attention");
        config.set("layer_types", types);
        EXPECT_THAT(description(), HasSubstr("a sliding window in 1 layer\n")) << name;
    }
}

/// The library's DeepSeek V2 has no such key.
TEST_F(ModelDoubts, AnInterleavingThatTheLibraryDoesNotReadHasNoEffect) {
    open("deepseek-v2");
    const std::string before = description();
    config.set("rope_interleave", false);
    const std::string after = description();
    EXPECT_THAT(before, Not(HasSubstr("rope_interleave")));
    EXPECT_THAT(after, HasSubstr("rope_interleave is not read, as in Transformers"));
    const double read = gradient();
    without("rope_interleave");
    EXPECT_DOUBLE_EQ(gradient(), read);
}

/// Transformers ties GPT-2's unless its configuration says that it does not.
TEST_F(ModelDoubts, AHeadIsTiedByDefaultWhereTheLibraryTiesIt) {
    open("gpt2");
    without("tie_word_embeddings");
    std::erase_if(tensors, [](const Values& one) { return one.name == "lm_head.weight"; });
    const double tied = gradient();
    const auto token = std::ranges::find_if(
        tensors, [](const Values& one) { return one.name.ends_with("wte.weight"); });
    Values head = *token;
    head.name = "lm_head.weight";
    for (float& v : head.values) v *= 1.5f;
    tensors.push_back(head);
    EXPECT_DOUBLE_EQ(gradient(), tied);
    EXPECT_THAT(description(),
                HasSubstr("The output head is the token embedding, as Transformers has it"));
    config.set("tie_word_embeddings", false);
    EXPECT_GT(std::abs(gradient() - tied), 1e-6 * tied);
}

TEST_F(ModelDoubts, BiasesThatNothingAnnouncesAreRefused) {
    open("llama");
    without("attention_bias");
    const std::int64_t width = config["hidden_size"].integer();
    for (Index layer = 0; layer < config["num_hidden_layers"].integer(); ++layer)
        for (const char* part : {"q", "o"})
            tensors.push_back(
                {"model.layers." + std::to_string(layer) + ".self_attn." + part + "_proj.bias",
                 {width},
                 std::vector<float>(std::size_t(width), 1.0f)});
    EXPECT_THAT(refused(),
                HasSubstr("has no 'attention_bias', without which Transformers leaves it out"));
}

/// A class of one's own may see what is behind a token, or norm in another place.
TEST_F(ModelDoubts, AClassOfAnotherTypeThanTheModelIsTold) {
    for (const auto& [model, own, other] : {std::tuple("llama", "LLaMAForCausalLM", "LlamaBiModel"),
                                            {"roberta", "RobertaModel", "RobertaPreLayerNormModel"},
                                            {"gpt2", "GPT2DoubleHeadsModel", "GPTNeoModel"},
                                            {"bert", "BertAdapterModel", "HF_ColBERT"},
                                            {"qwen2", "FSDPQwen2ForCausalLM", "FSDPQwen3Model"},
                                            {"stablelm", "StableLMEpochForCausalLM", "LMEpoch"},
                                            {"gemma3", "Gemma3ForCausalLM", "Gemma2Model"}}) {
        open(model);
        config.set("architectures", Json::Array{own});
        EXPECT_THAT(description(), Not(HasSubstr("architectures names"))) << own;
        config.set("architectures", Json::Array{other});
        EXPECT_THAT(description(),
                    HasSubstr(std::string("architectures names ") + other +
                              ", which is no class of model_type " + config["model_type"].string() +
                              ": the latter is run"));
    }
    open("falcon");  // as its authors named it, before Transformers did
    config.set("model_type", "RefinedWebModel").set("architectures", Json::Array{"RWForCausalLM"});
    EXPECT_THAT(description(), Not(HasSubstr("architectures names")));
}

TEST_F(ModelDoubts, RotaryScalingsThatContradictThemselvesAreRefused) {
    open("llama");
    Json scaling;
    config.set("rope_scaling",
               scaling.set("type", "linear").set("rope_type", "default").set("factor", 2.0));
    EXPECT_THAT(refused(), HasSubstr("says rope_type = \"default\" and type = \"linear\""));
    config.set("rope_scaling", Json().set("factor", 2.0));
    EXPECT_THAT(refused(), HasSubstr("factor = 2.0, but neither rope_type nor type"));
}

TEST_F(ModelDoubts, ANegativeEpsIsRefused) {
    open("llama");
    config.set("rms_norm_eps", -1.0);
    EXPECT_THAT(refused(), HasSubstr("the eps of its norms is -1, expected 0 or more"));
}

TEST_F(ModelDoubts, MistralHasNoBiasesWhateverItsKeySays) {
    open("llama");
    config.set("model_type", "mistral").set("attention_bias", true);
    EXPECT_THAT(refused(), HasSubstr("attention_bias = true, which is not supported"));
}

TEST_F(ModelDoubts, AnAdapterBesideAModelIsNotLeftOut) {
    open("llama");
    write();
    write_file(folder / "m/adapter_config.json", "{\"peft_type\": \"LORA\"}");
    EXPECT_THAT(refused(), HasSubstr("has no adapter_model.safetensors"));
    EXPECT_EQ(tsdiag(folder, {"probe", "m/model.safetensors", "--no-report", "--out", "out"}).code,
              0);
}

TEST_F(ModelDoubts, WrappersInsideNamesAreRemoved) {
    open("llama");
    const double plain = gradient();
    for (Values& one : tensors) {
        const std::size_t at = one.name.find("layers.");
        if (at != std::string::npos)
            one.name.insert(at + std::string("layers.0.").size(), "_checkpoint_wrapped_module.");
        one.name = "_fsdp_wrapped_module." + one.name;
    }
    EXPECT_DOUBLE_EQ(gradient(), plain);
    EXPECT_THAT(description(), HasSubstr("removed '_checkpoint_wrapped_module.' from inside"));
}

/// A file of PyTorch that says things beside its tensors: keys and pickled values.
class SaidInAFile : public ModelDoubts {
  protected:
    std::string said;

    static std::string entries(const std::string& items) { return "}(" + items + "u"; }
    static std::string entry(const char* key, const std::string& value) {
        return samples::text(key) + value;
    }
    void write_torch() {
        fs::create_directories(fs::path(folder / "t"));
        std::vector<std::string> storages;
        std::string items;
        for (const Values& one : tensors) {
            std::vector<std::int64_t> strides(one.shape.size(), 1);
            for (std::size_t i = strides.size(); i-- > 1;)
                strides[i - 1] = strides[i] * one.shape[i];
            items += samples::text(one.name) + samples::tensor(std::to_string(storages.size()),
                                                               std::ssize(one.values), 0, one.shape,
                                                               strides);
            storages.emplace_back(reinterpret_cast<const char*>(one.values.data()),
                                  one.values.size() * sizeof(float));
        }
        write_file(folder / "t/a.ckpt",
                   samples::torch_zip_of(samples::dict(entry("state_dict", entries(items)) + said),
                                         storages));
    }
    /// What is printed before the tensors, each in one line.
    std::string read(const std::vector<std::string>& more = {}) {
        write_torch();
        std::string out = tsdiag(folder, with({"inspect", "t/a.ckpt"}, more)).out;
        out.resize(std::min(out.find("\ntensor"), out.size()));
        for (std::size_t at = 0; (at = out.find("\n           ", at)) != std::string::npos;)
            out.replace(at, 12, " ");
        return out;
    }
};

/// One bit of any tensor's bytes: weights that are transposed are widened on all threads.
TEST_F(SaidInAFile, ABitThatFlippedIsOneSentence) {
    open("gpt2");
    config.set("model_type", "gpt2");
    write_torch();
    write_file(folder / "t/config.json", config.dump());
    const std::string whole = read_file(folder / "t/a.ckpt");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::string bytes(reinterpret_cast<const char*>(tensors[i].values.data()),
                                tensors[i].values.size() * sizeof(float));
        std::string text = whole;
        const std::size_t at = text.find(bytes);
        if (at == std::string::npos || text.find(bytes, at + 1) != std::string::npos) continue;
        text[at + bytes.size() / 2] = char(text[at + bytes.size() / 2] ^ 1);
        write_file(folder / "t/a.ckpt", text);
        const Finished found = tsdiag(
            folder, {"probe", "t/a.ckpt", "--tokens", "4", "--no-report", "-q", "-o", "out"});
        if (found.code == 0) continue;  // a head, which nothing uses
        EXPECT_EQ(found.code, 1) << tensors[i].name;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr("does not match its checksum")) << tensors[i].name;
        EXPECT_FALSE(fs::exists(fs::path(folder / "out")));
    }
}

TEST_F(SaidInAFile, TwoSourcesThatContradictEachOtherAreRefused) {
    open("gpt2");
    const auto heads = [](int n) { return entries(entry("n_head", samples::integer(n))); };
    const std::int64_t right = config["n_head"].integer();
    const std::string two = heads(int(right)), one = heads(1);
    using testing::AllOf;
    said = entry("model_args", two) + entry("hyper_parameters", one);
    EXPECT_THAT(read(), AllOf(HasSubstr("model_args says n_head = 2"),
                              HasSubstr("hyper_parameters in the file")));
    said = entry("model_args", two) + entry("hyper_parameters", entries(entry("config", one)));
    EXPECT_THAT(read(), HasSubstr("hyper_parameters.config in the file says n_head = 1"));
    said = entry("hyper_parameters", one);
    config.set("model_type", "gpt2");
    fs::create_directories(fs::path(folder / "t"));
    write_file(folder / "t/config.json", config.dump());
    EXPECT_THAT(read(), AllOf(HasSubstr("t/config.json says n_head = 2"),
                              HasSubstr("hyper_parameters in the file says n_head = 1")));
    const std::string given = read({"--config", "t/config.json"});
    EXPECT_THAT(given, HasSubstr("--config precedes what the file itself says: n_head = 1"));
    EXPECT_THAT(given, HasSubstr("2 heads"));
    said = entry("hyper_parameters", two);
    EXPECT_THAT(read(), Not(HasSubstr("precedes")));
    EXPECT_THAT(read(), HasSubstr("2 heads"));
    said = entry("hyper_parameters",
                 entries(entry("layer_norm_epsilon",
                               "G" + std::string("\x3f\xb9\x99\x99\x99\x99\x99\x9a"))));
    without("layer_norm_epsilon");
    write_file(folder / "t/config.json", config.dump());
    EXPECT_THAT(read(), HasSubstr("layer_norm_epsilon = 0.1 of hyper_parameters"));
}

/// A constant that outweighs the tokens in each sum before a norm leaves them no gradient.
TEST_F(ModelDoubts, AGradientThatVanishesOverASeriesIsSaid) {
    open("bert");
    for (Values& one : tensors)
        if (one.name.ends_with("output.dense.bias"))
            for (std::size_t i = 0; i < one.values.size(); ++i) one.values[i] = 1e3f * float(i % 5);
    write();
    fs::create_directory(folder / "run");
    for (const char* to : {"run/checkpoint-1", "run/checkpoint-2"})
        fs::copy(folder / "m", folder / to);
    const Finished done =
        tsdiag(folder, {"probe", "run", "--tokens", "6", "--loss", "mlm", "--no-report", "--json"});
    ASSERT_EQ(done.code, 0) << done.err;
    bool said = false;
    const Json findings = Json::parse(done.out, "out")["findings"];
    for (const Json& one : findings.array())
        if (one["text"].string().starts_with(
                "The gradient vanishes at 2 of 2 steps: at step 2 from")) {
            said = true;
            EXPECT_EQ(one["level"].string(), "warning");
            EXPECT_THAT(one["text"].string(), HasSubstr("per layer, to "));
        }
    EXPECT_TRUE(said) << done.out;
}

TEST_F(ModelDoubts, AnUnsupportedQuantisationOfPlainWeightsMayBeLeftOver) {
    open("llama");
    config.set("quantization_config", Json().set("quant_method", "unheard_of"));
    EXPECT_THAT(refused(), HasSubstr("--ignore quantization_config"));
    EXPECT_EQ(probe({"--ignore", "quantization_config"}).code, 0);
}

}  // namespace
}  // namespace tsdiag::test
