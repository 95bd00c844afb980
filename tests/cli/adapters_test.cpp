#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "program.hpp"
#include "support/packers.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// Adapters of PEFT: the tables are those of a model that this test has merged itself, or the
/// adapter is refused in one sentence.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const fs::path golden_models = fs::path(test_data()) / "golden";

/// A tensor in float64.
struct Values {
    std::vector<std::int64_t> shape;
    std::vector<double> numbers;

    double& at(std::int64_t row, std::int64_t column) {
        return numbers[std::size_t(row * shape[1] + column)];
    }
    std::int64_t count() const { return std::int64_t(numbers.size()); }
};
using Tensors = std::map<std::string, Values>;

/// Multiples of 1/64 below 1/8: sums of products of such numbers, of the goldens' and of powers of
/// two are exact in float64 in any order, so that rounding them once gives one result.
Values drawn(std::vector<std::int64_t> shape, int seed) {
    Values out{std::move(shape), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : out.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
        out.numbers.push_back(double((i * 7 + i / 5 + seed * 3) % 17 - 8) / 64);
    return out;
}

Tensors tensors_of(const fs::path& file) {
    const auto opened = open_checkpoint(file);
    Tensors out;
    for (const std::string& name : opened->names()) {
        const RawTensor raw = opened->tensor(name);
        Values values{raw.shape, std::vector<double>(std::size_t(raw.count()))};
        widen<double>(raw, values.numbers);
        out[name] = std::move(values);
    }
    return out;
}

std::string written(const Tensors& tensors, bool doubles = false) {
    std::vector<Array> arrays;
    for (const auto& [name, of] : tensors)
        if (doubles)
            arrays.push_back({name, "F64", of.shape, bytes_of(of.numbers)});
        else
            arrays.push_back({name, "F32", of.shape,
                              bytes_of(std::vector<float>(of.numbers.begin(), of.numbers.end()))});
    return safetensors(arrays);
}

/// An adapter, and the model that it makes.
struct Adapted {
    std::string base;  ///< the golden
    Tensors adapter;   ///< under its own names, behind "base_model.model."
    Tensors merged;
    Json config;

    /// Of the model `name`, of rank 4 and scale 2.
    explicit Adapted(std::string name)
        : base(std::move(name)), merged(tensors_of(golden_models / base / "model.safetensors")) {
        config.set("peft_type", "LORA").set("r", 4).set("lora_alpha", 8);
        config.set("base_model_name_or_path", "../base").set("task_type", "CAUSAL_LM");
        config.set("target_modules", Json()).set("lora_dropout", 0.1).set("bias", "none");
        config.set("fan_in_fan_out", false).set("inference_mode", true);
        config.set("init_lora_weights", true).set("modules_to_save", Json());
        config.set("peft_version", "0.17.0").set("use_rslora", false).set("use_dora", false);
    }

    /// Adds LoRA to a matrix of the model; `module` is its name for the adapter.
    void add(const std::string& module, const std::string& weight, bool turned = false,
             std::int64_t rank = 4, double scale = 2) {
        Values& w = merged.at(weight);
        const std::int64_t inputs = w.shape[turned ? 0 : 1], outputs = w.shape[turned ? 1 : 0];
        const int seed = int(adapter.size());
        Values a = drawn({rank, inputs}, seed), b = drawn({outputs, rank}, seed + 1);
        for (std::int64_t o = 0; o < outputs; ++o)
            for (std::int64_t i = 0; i < inputs; ++i) {
                double sum = 0;
                for (std::int64_t k = 0; k < rank; ++k) sum += b.at(o, k) * a.at(k, i);
                (turned ? w.at(i, o) : w.at(o, i)) += scale * sum;
            }
        adapter[module + ".lora_A.weight"] = std::move(a);
        adapter[module + ".lora_B.weight"] = std::move(b);
    }
    /// To all matrices whose names end so, under the model's own names behind `prefix`.
    void add_all(const std::string& ending, bool turned = false, const std::string& prefix = {},
                 std::int64_t rank = 4, double scale = 2) {
        const Tensors before = merged;
        for (const auto& [name, of] : before)
            if (name.ends_with(ending + ".weight"))
                add(prefix + name.substr(0, name.size() - 7), name, turned, rank, scale);
    }
    /// DoRA's norms are not exact; lengths as an adapter has them.
    void add_lengths(const std::string& module, const std::string& weight, bool turned = false) {
        Values& w = merged.at(weight);
        const std::int64_t inputs = w.shape[turned ? 0 : 1], outputs = w.shape[turned ? 1 : 0];
        Values lengths = drawn({outputs}, 5);
        for (std::int64_t o = 0; o < outputs; ++o) {
            double& length = lengths.numbers[std::size_t(o)];
            length = std::abs(length) + 0.5;
            double squares = 0;
            const auto of = [&](std::int64_t i) -> double& {
                return turned ? w.at(i, o) : w.at(o, i);
            };
            for (std::int64_t i = 0; i < inputs; ++i) squares += of(i) * of(i);
            for (std::int64_t i = 0; i < inputs; ++i) of(i) *= length / std::sqrt(squares);
        }
        adapter[module + ".lora_magnitude_vector"] = std::move(lengths);
        config.set("use_dora", true);
    }
    /// Adds LoRA to an embedding, (words, width).
    void add_embedding(const std::string& module, const std::string& weight) {
        Values& w = merged.at(weight);
        const std::int64_t words = w.shape[0], width = w.shape[1];
        Values a = drawn({4, words}, 1), b = drawn({width, 4}, 2);
        for (std::int64_t v = 0; v < words; ++v)
            for (std::int64_t c = 0; c < width; ++c) {
                double sum = 0;
                for (std::int64_t k = 0; k < 4; ++k) sum += b.at(c, k) * a.at(k, v);
                w.at(v, c) += 2 * sum;
            }
        adapter[module + ".lora_embedding_A"] = a;
        adapter[module + ".lora_embedding_B"] = b;
    }
    /// A tensor that the adapter has in whole.
    void replace(const std::string& name, const std::string& there) {
        Values& of = merged.at(there);
        of = drawn(of.shape, 9);
        adapter[name] = of;
    }

    Tensors named() const {
        Tensors out;
        for (const auto& [name, of] : adapter) out["base_model.model." + name] = of;
        return out;
    }
};

Adapted bert() {
    Adapted out("bert");
    out.add_all("query");
    out.add_all("output.dense");
    return out;
}
Adapted gpt2() {  // the golden is saved without the prefix of its class
    Adapted out("gpt2");
    out.config.set("fan_in_fan_out", true);
    for (const char* module : {"attn.c_attn", "attn.c_proj", "mlp.c_fc"})
        out.add_all(module, true, "transformer.");
    return out;
}
Adapted llama(const char* golden_name = "llama") {
    Adapted out(golden_name);
    for (const char* module : {"q_proj", "v_proj", "down_proj"}) out.add_all(module);
    return out;
}

std::string numbers_in(const fs::path& table) {
    std::istringstream lines(read_file(table));
    std::string out;
    for (std::string line; std::getline(lines, line);) out += line.substr(line.find(',')) + "\n";
    return out;
}

class Adapters : public testing::Test {
  protected:
    const TemporaryDirectory folder;

    void write_model(const std::string& place, const std::string& from, const std::string& bytes) {
        fs::create_directories(folder / place);
        write_file(folder / (place + "/model.safetensors"), bytes);
        write_file(folder / (place + "/config.json"),
                   read_file(golden_models / from / "config.json"));
    }
    void write_adapter(const Adapted& of, const std::string& place = "adapter") {
        fs::create_directories(folder / place);
        write_file(folder / (place + "/adapter_model.safetensors"), written(of.named()));
        write_file(folder / (place + "/adapter_config.json"), of.config.dump());
    }
    /// base, adapter and merged.
    void write(const Adapted& of, bool doubles = false) {
        write_model("base", of.base, read_file(golden_models / of.base / "model.safetensors"));
        write_model("merged", of.base, written(of.merged, doubles));
        write_adapter(of);
    }
    Finished probe(const Words& model, const Words& more = {}) {
        return tsdiag(
            folder, with(with({"probe"}, model),
                         with({"--no-report", "--force", "-o", "out", "--probes", "core"}, more)));
    }
    /// The tables of a probe that succeeds.
    std::string tables(const Words& model, const Words& more = {}) {
        const Finished done = probe(model, more);
        EXPECT_EQ(done.code, 0) << done.err;
        if (done.code != 0) return {};
        said = read_file(folder / "out/run.json");
        return numbers_in(folder / "out/metrics.csv") + numbers_in(folder / "out/curves.csv");
    }
    /// The adapter makes the merged model, and not the one that it began from.
    void expect_merged(const Adapted& of, const Words& more = {}) {
        write(of, more == Words{"--dtype", "f64"});
        const std::string found = tables({"adapter"}, more);
        const std::string by_adapter = said;
        EXPECT_EQ(found, tables({"merged"}, more));
        EXPECT_NE(found, tables({"base"}, more));
        said = by_adapter;
    }
    /// What it says of an adapter that it refuses.
    std::string refused(const Words& model = {"adapter"}) {
        fs::remove_all(folder / "out");
        const Finished done = probe(model);
        EXPECT_EQ(done.code, 1) << done.out;
        expect_one_sentence(done.err);
        EXPECT_FALSE(fs::exists(folder / "out"));
        return done.err;
    }
    std::string refused_as(const Adapted& of) {
        write_adapter(of);
        return refused();
    }
    std::string said;  ///< run.json
};

TEST_F(Adapters, OfBert) {
    expect_merged(bert());
    EXPECT_THAT(said, AllOf(HasSubstr("LoRA of rank 4, alpha 8, scale 2, on 6 matrices (dense, "
                                      "query)"),
                            HasSubstr("model of the adapter: adapter/../base")));
}

TEST_F(Adapters, OfMatricesThatAreStoredTurned) {
    Adapted of = gpt2();
    expect_merged(of);
    of.config.set("fan_in_fan_out", false);  // PEFT looks at the module
    expect_merged(of);
    EXPECT_THAT(said, HasSubstr("fan_in_fan_out of the adapter is false"));
}

TEST_F(Adapters, OfLlamaInEveryType) {
    for (const char* base : {"llama", "llama-bf16", "llama-f16", "llama-f64"}) {
        SCOPED_TRACE(base);
        expect_merged(llama(base));
    }
    expect_merged(llama("llama-f64"), {"--dtype", "f64"});
    expect_merged(llama("llama-bf16"), {"--dtype", "f64"});
}

TEST_F(Adapters, RsLoraDividesByTheRoot) {
    Adapted of("llama");
    of.config.set("use_rslora", true);
    of.add_all("q_proj", false, {}, 4, 4);  // 8 / sqrt(4)
    expect_merged(of);
    EXPECT_THAT(said, HasSubstr("rsLoRA of rank 4, alpha 8, scale 4"));
}

TEST_F(Adapters, PatternsGiveRanksAndAlphas) {
    Adapted of("llama");
    of.config.set("rank_pattern", Json().set("layers.1.self_attn.q_proj", 2));
    of.config.set("alpha_pattern",
                  Json().set("v_proj", 16).set("^model.layers.0.self_attn.q_proj", 2));
    const auto add = [&](const std::string& module, std::int64_t rank, double scale) {
        of.add("model.layers." + module, "model.layers." + module + ".weight", false, rank, scale);
    };
    add("0.self_attn.q_proj", 4, 0.5);
    add("1.self_attn.q_proj", 2, 4);
    add("0.self_attn.v_proj", 4, 4);
    add("1.self_attn.v_proj", 4, 4);
    expect_merged(of);
    EXPECT_THAT(said, HasSubstr("rank 2 to 4, alpha 2 to 16, scale 0.5 to 4"));
}

TEST_F(Adapters, LayersToTransform) {
    Adapted of("llama");
    of.config.set("target_modules", Json::Array{"q_proj"}).set("layers_to_transform", 1);
    of.add("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.q_proj.weight");
    expect_merged(of);
    EXPECT_THAT(said, Not(HasSubstr("has no matrices for")));
    of.config.set("layers_to_transform", Json::Array{0});
    EXPECT_THAT(refused_as(of), HasSubstr("leaves the module out"));
    of.config.set("layers_to_transform", Json()).set("target_modules", Json::Array{"k_proj"});
    EXPECT_THAT(refused_as(of), HasSubstr("leaves the module out"));
    of.config.set("target_modules", "model.*q_proj");
    expect_merged(of);  // of both layers, and one has no matrices
    EXPECT_THAT(said, HasSubstr("has no matrices for 1 of the modules"));
}

TEST_F(Adapters, ModulesToSaveStandInThePlaceOfTheModels) {
    Adapted of = llama();
    of.config.set("modules_to_save", Json::Array{"embed_tokens", "score"});
    of.replace("model.embed_tokens.weight", "model.embed_tokens.weight");
    of.adapter["score.weight"] = drawn({3, 16}, 2);  // a head that the model does not have
    expect_merged(of);
    EXPECT_THAT(said, AllOf(HasSubstr("in place of the model's: model.embed_tokens.weight"),
                            HasSubstr("added: score.weight")));
}

/// PEFT saves the embedding and the head that is tied to it where it is asked for embeddings.
TEST_F(Adapters, AHeadMayBeSavedWithTheEmbeddingThatItIsTiedTo) {
    Adapted of = gpt2();
    of.replace("transformer.wte.weight", "wte.weight");
    of.adapter["lm_head.weight"] = of.adapter.at("transformer.wte.weight");
    expect_merged(of);
    EXPECT_THAT(said,
                AllOf(HasSubstr("in place of the model's: wte.weight"),
                      HasSubstr("added: lm_head.weight"), Not(HasSubstr("before the adapter"))));
    of.adapter.erase("transformer.wte.weight");
    EXPECT_THAT(refused_as(of), HasSubstr("has the tensor 'base_model.model.lm_head.weight'"));
}

TEST_F(Adapters, Biases) {
    Adapted of = bert();
    of.config.set("bias", "lora_only");
    const Tensors before = of.adapter;
    for (const auto& [name, values] : before)
        if (const std::size_t at = name.find(".lora_A"); at != name.npos)
            of.replace(name.substr(0, at) + ".base_layer.bias", name.substr(0, at) + ".bias");
    expect_merged(of);
    of.adapter.erase("bert.encoder.layer.1.attention.self.query.base_layer.bias");
    EXPECT_THAT(refused_as(of), HasSubstr("says that biases were trained (bias = lora_only)"));
    Adapted all = bert();
    all.config.set("bias", "all");
    for (const auto& [name, values] : all.merged)
        if (name.ends_with(".bias") && name.starts_with("bert.")) {
            const std::string stem = name.substr(0, name.size() - 5);
            const bool wrapped = all.adapter.contains(stem + ".lora_A.weight");
            all.replace(stem + (wrapped ? ".base_layer.bias" : ".bias"), name);
        }
    expect_merged(all);
    all.adapter.erase("bert.embeddings.LayerNorm.bias");
    EXPECT_THAT(refused_as(all), HasSubstr("bias = all"));
}

TEST_F(Adapters, PairsMayHaveABiasOfTheirOwn) {
    Adapted of = bert();
    of.config.set("lora_bias", true);
    const Tensors before = of.adapter;
    for (const auto& [name, values] : before)
        if (const std::size_t at = name.find(".lora_A"); at != name.npos) {
            std::vector<double>& bias = of.merged.at(name.substr(0, at) + ".bias").numbers;
            const Values added = drawn({std::int64_t(bias.size())}, 4);
            for (std::size_t o = 0; o < bias.size(); ++o) bias[o] += 2 * added.numbers[o];
            of.adapter[name.substr(0, at) + ".lora_B.bias"] = added;
        }
    expect_merged(of);
    Adapted less = of;
    less.adapter.erase("bert.encoder.layer.1.attention.self.query.lora_B.bias");
    EXPECT_THAT(refused_as(less), HasSubstr("has no lora_B.bias of 'bert.encoder.layer.1"));
    Adapted denied = of;
    denied.config.set("lora_bias", false);
    EXPECT_THAT(refused_as(denied), HasSubstr("does not say lora_bias"));
    denied.config.set("lora_bias", true).set("use_dora", true);
    EXPECT_THAT(refused_as(denied), HasSubstr("expected false beside use_dora"));
    Adapted unbiased("llama");
    unbiased.add_all("q_proj");
    unbiased.config.set("lora_bias", true);
    for (const char* layer : {"0", "1"})
        unbiased.adapter[std::string("model.layers.") + layer + ".self_attn.q_proj.lora_B.bias"] =
            drawn({16}, 1);
    write(unbiased);
    EXPECT_THAT(refused(), HasSubstr("that has no bias"));
}

/// PEFT copies a tied head that it trains, or adds to it alone: the embedding stays as it is.
TEST_F(Adapters, OfATiedHeadUntieIt) {
    const auto losses = [&](const std::string& model) {
        const Finished done = tsdiag(folder, {"probe", model, "--no-report", "--force", "-o", "out",
                                              "--tokens", "8", "--loss", "lm"});
        EXPECT_EQ(done.code, 0) << done.err;
        said = read_file(folder / "out/run.json");
        return numbers_in(folder / "out/metrics.csv");
    };
    const std::string tied = read_file(golden_models / "gpt2/config.json");
    Json separate = Json::parse(tied, "config.json");
    separate.set("tie_word_embeddings", false);
    for (const bool saved : {false, true}) {
        Adapted of = gpt2();  // tied where its config.json says nothing, and saved without a head
        of.merged["lm_head.weight"] =
            tensors_of(golden_models / "gpt2/model.safetensors").at("wte.weight");
        if (saved) {
            of.config.set("modules_to_save", Json::Array{"lm_head"});
            of.replace("lm_head.weight", "lm_head.weight");
        } else {
            of.add("lm_head", "lm_head.weight");
        }
        write(of);
        const std::string found = losses("adapter");
        EXPECT_THAT(said, Not(HasSubstr("is not used")));
        EXPECT_NE(found, losses("merged"));  // whose configuration ties it
        write_file(folder / "merged/config.json", separate.dump());
        EXPECT_EQ(found, losses("merged"));
    }
    Adapted of = gpt2();
    of.merged["lm_head.weight"] = of.merged.at("wte.weight");
    of.add("lm_head", "lm_head.weight");
    write(of);
    write_file(folder / "base/config.json", separate.dump());  // and where is its head?
    EXPECT_THAT(refused(), HasSubstr("is of a model with the tensor 'lm_head.weight'"));
}

TEST_F(Adapters, OfAnEmbedding) {
    Adapted of("llama");
    of.add_embedding("model.embed_tokens", "model.embed_tokens.weight");
    expect_merged(of);
    EXPECT_THAT(said, Not(HasSubstr("before the adapter")));  // the head is the model's own
}

/// An embedding that PEFT trains is a copy, or added to in its own module: the tied head stays.
TEST_F(Adapters, OfATiedEmbeddingUntieIt) {
    struct Tied {
        const char *model, *module, *weight, *head, *loss;
        bool saved;
    };
    for (const Tied& one :
         {Tied{"gpt2", "transformer.wte", "wte.weight", "lm_head.weight", "lm", false},
          Tied{"gpt2", "transformer.wte", "wte.weight", "lm_head.weight", "lm", true},
          Tied{"bert", "bert.embeddings.word_embeddings", "bert.embeddings.word_embeddings.weight",
               "cls.predictions.decoder.weight", "mlm", false}}) {
        const auto losses = [&](const std::string& model) {
            const Finished done = tsdiag(folder, {"probe", model, "--no-report", "--force", "-o",
                                                  "out", "--tokens", "8", "--loss", one.loss});
            EXPECT_EQ(done.code, 0) << done.err;
            said = read_file(folder / "out/run.json");
            return numbers_in(folder / "out/metrics.csv");
        };
        Adapted of = one.saved ? gpt2() : Adapted(one.model);
        const Values before = of.merged.at(one.weight);
        if (one.saved) {
            of.config.set("modules_to_save", Json::Array{"wte"});
            of.replace(std::string(one.module) + ".weight", one.weight);
        } else {
            of.add_embedding(one.module, one.weight);
        }
        write(of);
        const std::string found = losses("adapter");
        EXPECT_THAT(said, HasSubstr("the output head is the token embedding before the adapter"));
        EXPECT_NE(found, losses("merged"));  // where the head is the embedding
        of.merged[one.head] = before;
        write(of);
        Json separate =
            Json::parse(read_file(golden_models / one.model / "config.json"), "config.json");
        separate.set("tie_word_embeddings", false);
        write_file(folder / "merged/config.json", separate.dump());
        EXPECT_EQ(found, losses("merged")) << one.model;
    }
}

/// Lengths are quotients and roots, which are rounded: in float64 the tables agree to many digits.
TEST_F(Adapters, DoraHasTheLengthsOfItsOutputs) {
    for (const bool turned : {false, true}) {
        Adapted of = turned ? Adapted("gpt2") : Adapted("bert");
        const std::string module = turned ? "h.0.attn.c_attn" : "bert.encoder.layer.0.output.dense";
        of.add(module, module + ".weight", turned);
        of.add_lengths(module, module + ".weight", turned);
        write(of, true);
        const auto similarities = [&](const std::string& model) {
            EXPECT_EQ(probe({model}, {"--dtype", "f64"}).code, 0);
            std::vector<double> out;
            const std::string table = read_file(folder / "out/metrics.csv");
            for (const MetricRow& row : read_metrics_csv(table, "metrics.csv"))
                if (row.metric == "t_sim") out.push_back(row.value.value_or(std::nan("")));
            return out;
        };
        const std::vector<double> found = similarities("adapter"),
                                  expected = similarities("merged"), before = similarities("base");
        ASSERT_EQ(found.size(), expected.size());
        ASSERT_GT(found.size(), 2u);
        for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-10);
        EXPECT_NE(found, before);
        EXPECT_EQ(probe({"adapter"}).code, 0);
        EXPECT_THAT(read_file(folder / "out/run.json"), HasSubstr("DoRA of rank 4"));
        of.adapter.erase(module + ".lora_magnitude_vector");
        EXPECT_THAT(refused_as(of), HasSubstr("has no lora_magnitude_vector"));
        fs::remove_all(folder / "base");
    }
}

TEST_F(Adapters, NamesMayHoldThatOfTheAdapter) {
    Adapted of = llama();
    Tensors renamed;
    for (auto& [name, values] : of.adapter) {
        std::string longer = name;
        longer.insert(longer.find(".weight"), ".default");
        renamed[longer] = values;
    }
    of.adapter = renamed;
    expect_merged(of);
    const std::string first = of.adapter.begin()->first;
    std::string other = first;
    other.replace(other.find(".default"), 8, ".second");
    Adapted two = of;
    two.adapter[other] = two.adapter[first];
    EXPECT_THAT(refused_as(two), HasSubstr("both of one place"));
    two.adapter.erase(first);
    EXPECT_THAT(refused_as(two), HasSubstr("holds the adapters default, second"));
}

/// The ways to name a model and its adapter.
TEST_F(Adapters, AreFoundWithTheirModel) {
    Adapted of = llama();
    write(of);
    const std::string expected = tables({"merged"});
    EXPECT_EQ(tables({"base", "--adapter", "adapter"}), expected);
    EXPECT_EQ(Json::parse(said, "run.json")["settings"]["adapter"].string(), "adapter");
    EXPECT_EQ(tables({"adapter/adapter_model.safetensors"}), expected);
    of.config.set("base_model_name_or_path", (fs::path(folder.path()) / "base").string());
    write_adapter(of);
    EXPECT_EQ(tables({"adapter"}), expected);
    of.config.set("base_model_name_or_path", "base");  // from here
    write_adapter(of);
    EXPECT_EQ(tables({"adapter"}), expected);
    of.config.set("base_model_name_or_path", "someone/base-model");
    write_adapter(of);
    EXPECT_EQ(tables({"adapter", "--base", "base"}), expected);
    EXPECT_THAT(refused(), HasSubstr("is an adapter of the model 'someone/base-model'"));
    const std::string snapshot = "cache/models--someone--base-model/snapshots/0123abc";
    write_model(snapshot, of.base, read_file(golden_models / of.base / "model.safetensors"));
    fs::create_directories(folder / "cache/models--someone--base-model/refs");
    write_file(folder / "cache/models--someone--base-model/refs/main", "0123abc");
    const Finished cached = tsdiag(
        folder, {"probe", "adapter", "--no-report", "--force", "-o", "out", "--probes", "core"},
        {"HF_HUB_CACHE=" + folder.path().string() + "/cache"});
    EXPECT_EQ(cached.code, 0) << cached.err;
    EXPECT_EQ(numbers_in(folder / "out/metrics.csv") + numbers_in(folder / "out/curves.csv"),
              expected);
}

TEST_F(Adapters, OfTwoModelsOfOneNameNoneIsTaken) {
    Adapted of = llama();
    of.config.set("base_model_name_or_path", "base");
    write(of);
    write_model("adapter/base", of.base, written(of.merged));
    EXPECT_THAT(refused(), AllOf(HasSubstr("which is both"), HasSubstr("--base DIR")));
}

TEST_F(Adapters, BesideAModelAreApplied) {
    const Adapted of = bert();
    write(of);
    write_adapter(of, "base");
    EXPECT_EQ(tables({"base"}), tables({"merged"}));
    tables({"base"});
    EXPECT_THAT(said, HasSubstr("the adapter beside the model is applied"));
    tables({"base/model.safetensors"});
    EXPECT_THAT(said, Not(HasSubstr("adapter")));
    EXPECT_THAT(refused(), HasSubstr("is a model that has an adapter itself"));
    // Named for another model, it is that one's.
    EXPECT_EQ(tables({"base/model.safetensors", "--adapter", "base"}), tables({"merged"}));
    tables({"base/model.safetensors", "--adapter", "base"});
    EXPECT_THAT(said, AllOf(HasSubstr("model of the adapter: base/model.safetensors"),
                            Not(HasSubstr("the adapter beside the model"))));
}

TEST_F(Adapters, ThatAreNotMergedInOneFile) {
    const Adapted of = bert();
    write(of);
    const std::string expected = tables({"merged"});
    Tensors whole;
    for (const auto& [name, values] : tensors_of(golden_models / of.base / "model.safetensors")) {
        std::string longer = name;
        const std::size_t dot = name.rfind('.');
        if (of.adapter.contains(name.substr(0, dot) + ".lora_A.weight"))
            longer.insert(dot, ".base_layer");
        whole[longer] = values;
    }
    for (const auto& [name, values] : of.adapter) {
        std::string longer = name;
        whole[longer.insert(longer.find(".weight"), ".default")] = values;
    }
    write_model("whole", of.base, written(whole));
    EXPECT_THAT(refused({"whole"}), HasSubstr("no adapter_config.json beside it"));
    write_file(folder / "whole/adapter_config.json", of.config.dump());
    EXPECT_EQ(tables({"whole"}), expected);
    EXPECT_EQ(tables({"whole/model.safetensors"}), expected);
    Tensors wrapped;
    for (const auto& [name, values] : whole) wrapped["base_model.model." + name] = values;
    write_model("whole", of.base, written(wrapped));
    EXPECT_EQ(tables({"whole"}), expected);
}

TEST_F(Adapters, OfAnotherKindAreRefused) {
    Adapted of = llama();
    write(of);
    const auto with_key = [&](const char* key, const Json& value) {
        Adapted changed = of;
        changed.config.set(key, value);
        return refused_as(changed);
    };
    for (const char* kind : {"PROMPT_TUNING", "IA3", "ADALORA", "LOHA", "VERA"})
        EXPECT_THAT(with_key("peft_type", kind),
                    HasSubstr(std::string("is of an adapter of the kind \"") + kind));
    EXPECT_THAT(with_key("peft_type", Json()), HasSubstr("has no peft_type"));
    EXPECT_THAT(with_key("a_new_key", 2), HasSubstr("has the key a_new_key = 2"));
    EXPECT_THAT(with_key("a_new_key", false), HasSubstr("which is not known"));
    EXPECT_THAT(with_key("use_qalora", true), HasSubstr("it makes another model"));
    EXPECT_THAT(with_key("lora_bias", true), HasSubstr("has no lora_B.bias of"));
    for (const char* key : {"layer_replication", "target_parameters", "alora_invocation_tokens",
                            "trainable_token_indices"})
        EXPECT_THAT(with_key(key, Json::Array{1}), HasSubstr("it makes another model")) << key;
    EXPECT_THAT(with_key("init_lora_weights", "pissa_niter_4"), HasSubstr("init_lora_weights"));
    for (const char* key : {"r", "lora_alpha"})
        EXPECT_THAT(with_key(key, Json()), HasSubstr(std::string("says ") + key + " = null"));
    EXPECT_THAT(with_key("r", 8), HasSubstr("by the rank of"));
    EXPECT_THAT(with_key("r", std::int64_t{1} << 60), HasSubstr("a rank from 1 to 65536"));
    EXPECT_THAT(with_key("rank_pattern", Json().set("q_proj", 2)), HasSubstr("by the rank of"));
    EXPECT_THAT(with_key("rank_pattern", Json().set("(?i)Q", 2)), HasSubstr("not understood"));
    EXPECT_THAT(with_key("use_dora", true), HasSubstr("has no lora_magnitude_vector"));
    EXPECT_THAT(with_key("bias", "some"), HasSubstr("expected none, all or lora_only"));
    EXPECT_THAT(with_key("modules_to_save", Json::Array{"norm"}),
                HasSubstr("which modules_to_save"));
    EXPECT_THAT(with_key("base_model_name_or_path", Json()), HasSubstr("--base DIR"));
}

TEST_F(Adapters, OfAnotherModelAreRefused) {
    write(llama());
    EXPECT_THAT(refused({"adapter", "--base", golden_models / "llama-bf16"}),
                HasSubstr("which give no change of"));
    EXPECT_THAT(refused({"adapter", "--base", golden_models / "bert"}), HasSubstr("does not have"));
    EXPECT_THAT(refused({"adapter", "--base", "nowhere"}), HasSubstr("no such file"));
    EXPECT_THAT(refused({"base", "--adapter", "merged"}), HasSubstr("has no adapter_config.json"));
    for (const Words& words :
         {Words{"adapter", "--adapter", "adapter", "--base", "base"},
          Words{"base", "--base", "base"}, Words{"random:gpt2,layers=1", "--adapter", "adapter"}})
        EXPECT_EQ(probe(words).code, 2) << words.front();
    write_file(folder / "adapter/adapter_config.json", "{\"peft_type\": ");
    refused();
    fs::remove(folder / "adapter/adapter_config.json");
    EXPECT_THAT(refused(), HasSubstr("is a LoRA adapter without its model"));
}

TEST_F(Adapters, OfATraceAreRefused) {
    Adapted of = llama();
    write(of);
    write_file(
        folder / "trace.safetensors",
        safetensors(
            {{"attentions.0", "F32", {1, 2, 2}, bytes_of(std::vector<float>{1, 0, 0.5, 0.5})}}));
    ASSERT_EQ(probe({"trace.safetensors"}).code, 0);
    of.config.set("base_model_name_or_path", "../trace.safetensors");
    write_adapter(of);
    const Finished done = probe({"adapter"});
    EXPECT_EQ(done.code, 2);
    EXPECT_THAT(done.err, HasSubstr("trace.safetensors: is a trace"));
}

TEST_F(Adapters, OfQuantisedModelsAreRefused) {
    const Adapted of = llama();
    write(of);
    Json config = Json::parse(read_file(golden_models / "llama/config.json"), "config.json");
    config.set("quantization_config", Json().set("quant_method", "fp8"));
    write_file(folder / "base/config.json", config.dump());
    std::vector<Array> arrays;
    for (const auto& [name, values] : tensors_of(golden_models / "llama/model.safetensors")) {
        if (!name.ends_with("_proj.weight")) {
            arrays.push_back(
                {name, "F32", values.shape,
                 bytes_of(std::vector<float>(values.numbers.begin(), values.numbers.end()))});
            continue;
        }
        arrays.push_back(
            {name, "F8_E4M3", values.shape, std::string(std::size_t(values.count()), '\x38')});
        arrays.push_back({name + "_scale_inv", "F32", {1, 1}, bytes_of(std::vector<float>{0.01f})});
    }
    write_file(folder / "base/model.safetensors", safetensors(arrays));
    ASSERT_EQ(probe({"base"}).code, 0);
    EXPECT_THAT(refused(), HasSubstr("is added to unquantised weights only"));
}

/// One tensor is dropped, renamed, doubled or of another shape: the tables are the same, or it is
/// refused; never is another model measured without a word.
TEST_F(Adapters, ThatAreDamagedAreNotAnotherModel) {
    Adapted of = bert();
    of.config.set("bias", "lora_only").set("modules_to_save", Json::Array{"LayerNorm"});
    const Tensors pairs = of.adapter, model = of.merged;
    for (const auto& [name, values] : pairs)
        if (const std::size_t at = name.find(".lora_A"); at != name.npos)
            of.replace(name.substr(0, at) + ".base_layer.bias", name.substr(0, at) + ".bias");
    for (const auto& [name, values] : model)
        if (name.find("LayerNorm") != name.npos) of.replace(name, name);
    write(of);
    const std::string expected = tables({"merged"});
    ASSERT_EQ(tables({"adapter"}), expected);
    std::set<std::string> silent;
    const auto try_it = [&](const Tensors& changed, const std::string& what) {
        Adapted damaged = of;
        damaged.adapter = changed;
        fs::remove_all(folder / "out");
        write_adapter(damaged);
        const Finished done = probe({"adapter"});
        if (done.code != 0) return expect_one_sentence(done.err);
        if (numbers_in(folder / "out/metrics.csv") + numbers_in(folder / "out/curves.csv") !=
            expected)
            silent.insert(what);
    };
    const auto renamed = [](std::string name, const std::string& part, const std::string& other) {
        if (const std::size_t at = name.find(part); at != name.npos)
            name.replace(at, part.size(), other);
        return name;
    };
    for (const auto& [name, values] : of.adapter) {
        // The second layer is as the first, and takes as long.
        if (name.find("layer.1") != name.npos || name.starts_with("cls")) continue;
        Tensors changed = of.adapter;
        changed.erase(name);
        try_it(changed, "without " + name);
        for (const auto& [part, other] : {std::pair("layer.0", "layer.1"),
                                          {"query", "key"},
                                          {"lora_A", "lora_B"},
                                          {"lora_A", "lora_C"},
                                          {".weight", ".default.weight"},
                                          {"LayerNorm", "Norm"},
                                          {"bias", "biases"},
                                          {"bert.", ""},
                                          {"base_layer.", ""}}) {
            const std::string longer = renamed(name, part, other);
            if (of.adapter.contains(longer)) continue;
            Tensors moved = changed, doubled = of.adapter;
            moved[longer] = values;
            doubled[longer] = values;
            try_it(moved, name + " as " + longer);
            try_it(doubled, name + " and " + longer);
        }
        changed[name] = {{values.count()}, values.numbers};
        if (values.shape.size() > 1) try_it(changed, "flat " + name);
        changed[name] = values;
        std::ranges::reverse(changed[name].shape);
        if (values.shape.size() > 1) try_it(changed, "turned " + name);
        changed[name].shape = {1, values.count()};
        try_it(changed, "a row " + name);
        changed[name] = {{values.count() - 1}, {values.numbers.begin(), values.numbers.end() - 1}};
        try_it(changed, "shortened " + name);
    }
    EXPECT_THAT(silent, testing::IsEmpty());
}

TEST_F(Adapters, OfATrainingAreASeries) {
    const Adapted of = llama();
    write(of);
    Adapted later = of;
    for (auto& [name, values] : later.adapter)
        for (double& number : values.numbers) number *= 2;
    write_adapter(of, "run/checkpoint-10");
    write_adapter(later, "run/checkpoint-20");
    const Words words = {"probe", "run",    "--no-report", "--base", "base",
                         "-o",    "series", "--probes",    "core"};
    const Finished done = tsdiag(folder, words);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(tsdiag(folder, words).out, HasSubstr("2 reused from an earlier run"));
    later.config.set("lora_alpha", 16);
    write_adapter(later, "run/checkpoint-20");
    EXPECT_THAT(tsdiag(folder, words).out, HasSubstr("1 reused from an earlier run"));
}

/// What a training has saved at its end in the folder of its checkpoints is none of them.
TEST_F(Adapters, OfOneFolderWithoutStepsAreNotTakenForATraining) {
    const Adapted of = llama();
    write(of);
    for (const char* name : {"several/first", "several/second"}) write_adapter(of, name);
    const Finished done = probe({"several"});
    EXPECT_EQ(done.code, 2);
    expect_one_sentence(done.err);
    EXPECT_THAT(done.err, HasSubstr("is one of several adapters"));
}

TEST_F(Adapters, OfATrainingAreWatched) {
    const Adapted of = llama();
    write(of);
    for (const char* place : {"run", "run/checkpoint-10"}) write_adapter(of, place);
    const Finished done = tsdiag(folder, {"watch", "run", "--once", "--settle", "0", "--base",
                                          "base", "--probes", "core", "-o", "watched"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out + done.err,
                AllOf(HasSubstr("checkpoint-10"), Not(HasSubstr("gives a training step"))));
}

/// Files are named, and what lies beside them changes.
TEST_F(Adapters, WhatIsReadWithAFileIsReadAnew) {
    Adapted of = llama();
    write(of);
    fs::create_directories(folder / "run");
    for (const char* step : {"run/checkpoint-10", "run/checkpoint-20"}) write_adapter(of, step);
    const auto reused = [&](const Words& options) {
        const Finished done =
            tsdiag(folder, with({"probe", "--no-report", "--probes", "core"}, options));
        EXPECT_EQ(done.code, 0) << done.err;
        return done.out.find("2 reused from an earlier run") != std::string::npos;
    };
    const Words of_a_file = {"run", "--base", "base/model.safetensors", "-o", "by-base"};
    EXPECT_FALSE(reused(of_a_file));
    EXPECT_TRUE(reused(of_a_file));
    Json config = Json::parse(read_file(folder / "base/config.json"), "config.json");
    write_file(folder / "base/config.json", config.set("rms_norm_eps", 0.125).dump());
    EXPECT_FALSE(reused(of_a_file));
    EXPECT_TRUE(reused(of_a_file));
    for (const char* step : {"run/checkpoint-10", "run/checkpoint-20"}) {
        fs::remove_all(folder / step);
        write_model(step, of.base, read_file(golden_models / of.base / "model.safetensors"));
    }
    const Words by_a_file = {"run", "--adapter", "adapter/adapter_model.safetensors", "-o",
                             "by-adapter"};
    EXPECT_FALSE(reused(by_a_file));
    EXPECT_TRUE(reused(by_a_file));
    of.config.set("lora_alpha", 16);
    write_adapter(of);
    EXPECT_FALSE(reused(by_a_file));
}

/// Equal tensors of another alpha make another model, and are no copy of one step.
TEST_F(Adapters, OfOneStepAndAnotherScaleAreNoCopies) {
    Adapted of = llama();
    write(of);
    write_adapter(of, "one/checkpoint-10");
    write_adapter(of, "two/checkpoint-10");
    write_adapter(of, "two/checkpoint-20");
    const Words words = {"probe",
                         "one/checkpoint-10",
                         "two/checkpoint-10",
                         "two/checkpoint-20",
                         "--no-report",
                         "--base",
                         "base",
                         "--probes",
                         "core",
                         "-o",
                         "series"};
    const Finished copies = tsdiag(folder, words);
    EXPECT_EQ(copies.code, 0) << copies.err;
    of.config.set("lora_alpha", 16);
    write_adapter(of, "two/checkpoint-10");
    const Finished done = tsdiag(folder, words);
    EXPECT_NE(done.code, 0);
    EXPECT_THAT(done.err, HasSubstr("the tensors of the two differ"));
}

TEST_F(Adapters, AreInspected) {
    write(bert());
    const Finished done = tsdiag(folder, {"inspect", "adapter"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, AllOf(HasSubstr("adapter: "), HasSubstr("lora_A.weight")));
}

}  // namespace
}  // namespace tsdiag::test
