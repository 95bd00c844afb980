#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>

#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/json.hpp"

/// Checkpoints that differ from what they seem: the program refuses them by name or states its
/// assumptions, and never runs another model silently.
namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const fs::path golden = fs::path(test_data()) / "golden";

/// A float32 or float8 tensor of ones to be put into a .safetensors file.
struct Extra {
    std::string name;
    std::vector<std::int64_t> shape;
    const char* dtype = "F32";
};

/// The golden file with more tensors, and without those of the names in `dropped`.
void write_edited(const fs::path& from, const fs::path& to, const std::vector<Extra>& more,
                  const std::vector<std::string>& dropped = {}, const std::string& prefix = {}) {
    const std::string whole = read_file(from);
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), 8);
    const Json header = Json::parse(whole.substr(8, length), from.string());
    const std::string data = whole.substr(8 + length);
    std::string bytes;
    Json edited = Json::Object();
    const auto put = [&](const std::string& name, const Json& dtype, const Json& shape,
                         std::string_view values) {
        const auto begin = std::int64_t(bytes.size());
        bytes += values;
        Json entry;
        entry.set("dtype", dtype).set("shape", shape);
        edited.set(name, entry.set("data_offsets", Json::Array{begin, std::int64_t(bytes.size())}));
    };
    for (const auto& [name, entry] : header.object()) {
        if (name == "__metadata__" || std::ranges::find(dropped, name) != dropped.end()) continue;
        const Json::Array& at = entry["data_offsets"].array();
        put(prefix + name, entry["dtype"], entry["shape"],
            std::string_view(data).substr(std::size_t(at[0].integer()),
                                          std::size_t(at[1].integer() - at[0].integer())));
    }
    for (const Extra& extra : more) {
        std::size_t count = 1;
        for (const std::int64_t extent : extra.shape) count *= std::size_t(extent);
        std::string values;
        const float one = 1;
        for (std::size_t i = 0; i < count; ++i)
            values += std::string_view(extra.dtype) == "F32"
                          ? std::string(reinterpret_cast<const char*>(&one), 4)
                          : std::string(1, '\x38');  // 1 in e4m3
        put(extra.name, extra.dtype, Json::Array(extra.shape.begin(), extra.shape.end()), values);
    }
    const std::string text = edited.dump();
    const std::uint64_t size = text.size();
    write_file(to, std::string(reinterpret_cast<const char*>(&size), 8) + text + bytes);
}

/// A golden directory of one file in `folder`/model, with more tensors and keys.
void copy_golden(const TemporaryDirectory& folder, const std::string& name,
                 const std::vector<Extra>& more, const Json& keys = {}) {
    fs::create_directories(folder / "model");
    write_edited(golden / name / "model.safetensors", folder / "model/model.safetensors", more);
    const fs::path config = golden / name / "config.json";
    if (!fs::exists(config) && keys.is_null()) return;
    Json all = fs::exists(config) ? Json::parse(read_file(config), name) : Json::Object();
    if (keys.is_object())
        for (const auto& [key, value] : keys.object()) all.set(key, value);
    write_file(folder / "model/config.json", all.dump());
}

Finished probe(const TemporaryDirectory& folder, const std::string& model,
               std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"probe", model, "--no-report", "--probes",
                                      "t_sim", "-o",  "out",         "--force"};
    words.insert(words.end(), more.begin(), more.end());
    return tsdiag(folder, words);
}

Json run_of(const TemporaryDirectory& folder) {
    return Json::parse(read_file(folder / "out/run.json"), "run.json");
}

void expect_refused(const Finished& found, const std::string& named) {
    EXPECT_EQ(found.code, 1) << found.err;
    EXPECT_THAT(found.err, HasSubstr(named));
    EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
}

struct Other {
    const char* what;
    const char* golden;
    std::vector<Extra> more;
    const char* keys;
    const char* named;
};
class EveryOtherModel : public testing::TestWithParam<Other> {};

TEST_P(EveryOtherModel, IsRefusedByName) {
    TemporaryDirectory folder;
    const Other& other = GetParam();
    copy_golden(folder, other.golden, other.more,
                other.keys ? Json::parse(other.keys, "k") : Json());
    expect_refused(probe(folder, "model"), other.named);
    EXPECT_FALSE(fs::exists(folder / "out"));
}

const Other others[] = {
    {"scaled_fp8",
     "llama",
     {{"model.layers.0.self_attn.q_proj.weight_scale_inv", {1, 1}}},
     nullptr,
     "belongs to quantised weights"},
    {"scaled_fp8_of_comfy",
     "llama",
     {{"model.layers.0.mlp.up_proj.scale_weight", {1}}},
     nullptr,
     "quantised"},
    {"awq", "llama", {{"model.layers.0.mlp.up_proj.qweight", {4, 4}}}, nullptr, "quantised"},
    {"nf4",
     "llama",
     {{"model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4", {4}}},
     nullptr,
     "quantised"},
    {"fp8_by_its_configuration",
     "llama",
     {},
     R"({"quantization_config": {"quant_method": "fp8"}})",
     "'quantization_config' (fp8)"},
    {"gemma2_norms_under_llama",
     "llama",
     {{"model.layers.0.pre_feedforward_layernorm.weight", {12}},
      {"model.layers.1.pre_feedforward_layernorm.weight", {12}}},
     nullptr,
     "'model.layers.0.pre_feedforward_layernorm.weight' and 1 more is unknown to family"},
    {"soft_cap", "llama", {}, R"({"attn_logit_softcapping": 50.0})", "attn_logit_softcapping"},
    {"attention_sinks", "llama", {{"model.layers.1.self_attn.sinks", {2}}}, nullptr, "sinks"},
    {"window_of_a_llama", "llama", {}, R"({"sliding_window": 4})", "sliding_window = 4"},
    {"rope_of_another_type",
     "llama",
     {},
     R"({"rope_scaling": {"rope_type": "ntk", "factor": 4.0}})",
     "'ntk'"},
    {"rope_sections",
     "llama",
     {},
     R"({"rope_scaling": {"type": "default", "mrope_section": [1, 1, 1]}})",
     "mrope_section"},
    {"other_frequencies",
     "llama",
     {{"model.layers.0.self_attn.rotary_emb.inv_freq", {3}}},
     nullptr,
     "differs from the frequencies of the rotary base"},
    {"lora",
     "bert",
     {{"bert.encoder.layer.0.attention.self.query.lora_A", {4, 12}}},
     nullptr,
     "--ignore 'bert.encoder.layer.*.attention.self.query.lora_A'"},
    {"adapter",
     "bert",
     {{"bert.encoder.layer.1.output.adapters.task.adapter_down.0.weight", {2, 12}}},
     nullptr,
     "adapter_down"},
    {"relative_positions",
     "bert",
     {},
     R"({"position_embedding_type": "relative_key"})",
     "position_embedding_type = \"relative_key\""},
    {"cross_attention",
     "gpt2",
     {{"h.0.crossattention.c_attn.weight", {16, 32}}, {"h.0.ln_cross_attn.weight", {16}}},
     nullptr,
     "h.0.crossattention.c_attn.weight"},
    {"beit_in_timm",
     "timm-vit",
     {{"blocks.0.attn.relative_position_bias_table", {732, 2}}},
     R"({"num_heads": 2})",
     "relative_position_bias_table"},
    {"laplace_of_flash", "flash", {}, R"({"laplace_attn_fn": true})", "laplace_attn_fn = true"},
    {"two_models",
     "bert",
     {{"teacher.encoder.layer.0.attention.self.query.weight", {12, 12}}},
     nullptr,
     "--ignore 'teacher.*'"},
};
INSTANTIATE_TEST_SUITE_P(Others, EveryOtherModel, testing::ValuesIn(others),
                         [](const auto& test) { return test.param.what; });

/// Tensors under foreign prefixes may belong to the model.
TEST(Prefixes, HideNoPartOfTheModel) {
    const struct {
        const char *family, *prefix;
        std::vector<std::string> parts;
    } families[] = {
        {"bert",
         "bert.",
         {"encoder.layer.0.attention.self.query.lora_A",
          "base_model.encoder.layer.1.adapter.weight", "adapters.0.down.weight"}},
        {"gpt2", "transformer.", {"h.0.attn.c_attn.lora_B", "prompt_encoder.embedding.weight"}},
        {"llama", "model.", {"layers.0.self_attn.q_proj.lora_A", "model2.layers.0.extra"}},
        {"vit", "vit.", {"encoder.layer.0.adapter.weight"}}};
    for (const auto& [family, prefix, parts] : families)
        for (const std::string& part : parts) {
            TemporaryDirectory folder;
            fs::create_directories(folder / "model");
            fs::copy_file(golden / family / "config.json", folder / "model/config.json");
            const auto write = [&](std::vector<Extra> more) {
                write_edited(golden / family / "model.safetensors",
                             folder / "model/model.safetensors", more, {}, prefix);
            };
            write({{part, {4, 4}}});
            const Finished refused = probe(folder, "model");
            EXPECT_EQ(refused.code, 1) << family << ": " << part;
            expect_one_sentence(refused.err);
            EXPECT_THAT(refused.err, HasSubstr(part));
            EXPECT_EQ(probe(folder, "model", {"--ignore", part}).code, 0) << family;
            write({{"classifier.weight", {4, 4}}});
            EXPECT_EQ(probe(folder, "model", {"--force"}).code, 0) << family << ": a head";
        }
}

/// A stack may be part of a larger model, whose other tensors are ignored, except the bias of a
/// gated unit.
TEST(Prefixes, HideNoPartOfAStack) {
    const struct {
        const char* family;
        std::vector<std::string> parts;
    } stacks[] = {{"gau",
                   {"mine.layers.1.rel_pos_bias.relative_attention_bias.weight",
                    "mine.rel_pos_bias.relative_attention_bias.weight",
                    "rel_pos_bias.relative_attention_bias.weight", "mine.layers.1.norm.extra"}},
                  {"nystrom-attention",
                   {"mine.layers.0.0.fn.extra", "mine.layers.1.2.fn.weight",
                    "mine.layers.0.1.fn.net.0.lora_A"}}};
    for (const auto& [family, parts] : stacks) {
        TemporaryDirectory folder;
        fs::create_directories(folder / "model");
        const fs::path config = golden / family / "config.json";
        if (fs::exists(config)) fs::copy_file(config, folder / "model/config.json");
        const auto probed = [&](const std::string& extra, std::vector<std::string> words = {}) {
            write_edited(golden / family / "model.safetensors", folder / "model/model.safetensors",
                         {{extra, {4, 1}}}, {}, "mine.");
            words.insert(words.end(), {"--tokens", "8"});
            return probe(folder, "model", words);
        };
        for (const std::string& part : parts) {
            expect_refused(probed(part), part);
            EXPECT_EQ(probed(part, {"--ignore", part}).code, 0) << family << ": " << part;
        }
        const Finished surrounded = probed("classifier.weight");
        EXPECT_EQ(surrounded.code, 0) << family << ": " << surrounded.err;
    }
}

TEST(Ignore, ReadsTheFileWithoutAndSaysSo) {
    TemporaryDirectory folder;
    copy_golden(folder, "bert", {{"encoder.layer.0.attention.self.query.lora_A", {4, 12}}},
                Json::Object{{"alibi", true}});
    const Finished found = probe(folder, "model", {"--ignore", "*.lora_A", "--ignore", "alibi"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out,
                AllOf(HasSubstr("! Ignored tensor"), HasSubstr("lora_A"), HasSubstr("'alibi'")));
    const Json run = run_of(folder);
    EXPECT_THAT(run["model"]["warnings"].array()[0].string(), HasSubstr("lora_A"));
    EXPECT_EQ(run["settings"]["ignore"].dump(), R"(["*.lora_A", "alibi"])");
    const std::string with = read_file(folder / "out/metrics.csv");
    ASSERT_EQ(tsdiag(folder, {"probe", (golden / "bert").string(), "--no-report", "--probes",
                              "t_sim", "-o", "plain"})
                  .code,
              0);
    const auto numbers = [](std::string text) {  // without the model's name
        std::string out;
        for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
            end = std::min(text.find('\n', at), text.size());
            out += text.substr(text.find(',', at), end - text.find(',', at)) + "\n";
        }
        return out;
    };
    EXPECT_EQ(numbers(with), numbers(read_file(folder / "plain/metrics.csv")));
}

TEST(Ignore, HasToNameSomething) {
    TemporaryDirectory folder;
    const Finished found = probe(folder, (golden / "bert").string(), {"--ignore", "rope_scalings"});
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.err, HasSubstr("--ignore rope_scalings: matches no tensor"));
    EXPECT_EQ(probe(folder, "random:gpt2,layers=1,d=8,heads=2,vocab=9", {"--ignore", "x"}).code, 2);
}

TEST(Assumptions, AreWarningsBeforeTheNumbersSpeak) {
    TemporaryDirectory folder;
    fs::copy(golden / "bert/model.safetensors", folder / "bare.safetensors");
    const Finished found = probe(folder, "bare.safetensors", {"--n-heads", "3"});
    ASSERT_EQ(found.code, 0) << found.err;
    const std::size_t warning = found.out.find("! Assumed"), first = found.out.find("\n- ");
    ASSERT_NE(warning, std::string::npos) << found.out;
    EXPECT_LT(warning, first);
    EXPECT_THAT(found.out, HasSubstr("hidden_act = gelu"));
    const Json run = run_of(folder);
    EXPECT_THAT(run["model"]["warnings"].dump(), HasSubstr("hidden_act = gelu"));
    // Given by a configuration: nothing is assumed.
    const Finished from_golden = probe(folder, (golden / "bert").string());
    EXPECT_THAT(from_golden.out, Not(HasSubstr("Assumed")));
}

TEST(Assumptions, AreNotMadeOfWhatHasNoDefault) {
    TemporaryDirectory folder;
    for (const char* name : {"llama", "albert"})
        fs::copy(golden / name / "model.safetensors",
                 folder / (std::string(name) + "-bare.safetensors"));
    const Finished llama = probe(folder, "llama-bare.safetensors", {"--n-heads", "2"});
    EXPECT_EQ(llama.code, 2);
    EXPECT_THAT(llama.err, HasSubstr("LLaMA, Mistral, Gemma"));
    const Finished albert = probe(folder, "albert-bare.safetensors", {"--n-heads", "2"});
    EXPECT_EQ(albert.code, 2);
    EXPECT_THAT(albert.err, HasSubstr("num_hidden_layers"));
}

TEST(Configuration, BesideAFileOfAnyNameIsRead) {
    TemporaryDirectory folder;
    fs::copy(golden / "llama/model.safetensors", folder / "mine.safetensors");
    write_file(folder / "config.json", "{\"learning_rate\": 0.1}");  // not of a model
    const Finished other = probe(folder, "mine.safetensors", {"--n-heads", "2"});
    EXPECT_EQ(other.code, 2);
    fs::copy(golden / "llama/config.json", folder / "config.json",
             fs::copy_options::overwrite_existing);
    const Finished found = probe(folder, "mine.safetensors");
    EXPECT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(run_of(folder)["model"]["recognised"].dump(), HasSubstr("configuration: "));
}

TEST(Missing, SuggestsOnlyWhatThereIs) {
    TemporaryDirectory folder;
    const Finished found = probe(folder, "bert-base-uncased");
    expect_refused(found, "no such file or directory");
    EXPECT_THAT(found.err, HasSubstr("random:bert-base for"));
    EXPECT_EQ(probe(folder, "random:bert-base,layers=1,d=8,heads=2,vocab=9,tokens=8").code, 0);
}

TEST(Tokens, OfRotaryModelsGoBeyondWhatTheyWereMadeFor) {
    TemporaryDirectory folder;
    const std::string model = (golden / "llama-rope-dynamic").string();
    ASSERT_EQ(probe(folder, model, {"--tokens", "6"}).code, 0);
    EXPECT_EQ(run_of(folder)["warnings"].array().size(), 0U);
    const std::int64_t longest = run_of(folder)["model"]["spec"]["max_tokens"].integer();
    const Finished found =
        probe(folder, model, {"--tokens", std::to_string(longest + 8), "--input", "ids:random"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(run_of(folder)["warnings"].dump(), HasSubstr("dynamic NTK"));
    const Finished table =
        probe(folder, (golden / "gpt2").string(), {"--tokens", "1000", "--input", "ids:random"});
    EXPECT_EQ(table.code, 2);  // its table of positions ends
}

TEST(Tokens, OfANystromformerFitItsLandmarks) {
    TemporaryDirectory folder;
    const Finished found = probe(folder, (golden / "nystromformer").string());
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(run_of(folder)["input"]["tokens"].integer(), 12);  // of 14, by 4 landmarks
    const Finished odd = probe(folder, (golden / "nystromformer").string(), {"--tokens", "10"});
    EXPECT_EQ(odd.code, 2);
    EXPECT_THAT(odd.err, AllOf(HasSubstr("a multiple of 4 tokens"), Not(HasSubstr("landmarks=K"))));
}

}  // namespace
}  // namespace tsdiag::test
