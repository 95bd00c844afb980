#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "recorder.hpp"
#include "support/files.hpp"
#include "support/gguf_writer.hpp"

/// Models of GGUF files: the hidden states are those of the safetensors that were converted.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct GgufModel {
    const char* name;
    const char* random;        ///< drawn and written as safetensors
    const char* architecture;  ///< of GGUF
    friend void PrintTo(const GgufModel& m, std::ostream* out) { *out << m.name; }
};
// Rows of 32, so that the small quantised types fit.
const GgufModel models[] = {
    {"llama", "llama-3.2-1b,layers=2,d=64,heads=4,kv_heads=2,ffn=96,vocab=40,tokens=64", "llama"},
    {"mistral", "llama-7b,layers=2,d=64,heads=4,ffn=96,vocab=40,tokens=64", "llama"},
    {"qwen2", "qwen2-0.5b,layers=2,d=64,heads=4,kv_heads=2,ffn=96,vocab=40,tokens=64", "qwen2"},
    {"qwen3", "qwen3-0.6b,layers=2,d=64,heads=4,kv_heads=2,ffn=96,vocab=40,tokens=64", "qwen3"},
    {"gpt2", "gpt2,layers=2,d=64,heads=4,vocab=40,tokens=64", "gpt2"},
    {"gptneox", "pythia-70m,layers=2,d=64,heads=4,vocab=40,tokens=64", "gptneox"},
};

std::string here(std::string name) {
    const std::pair<const char*, const char*> words[] = {
        {"model.", ""},
        {"transformer.", ""},
        {"gpt_neox.", ""},
        {"embed_tokens", "token_embd"},
        {"embed_in", "token_embd"},
        {"wte", "token_embd"},
        {"wpe", "position_embd"},
        {"final_layer_norm", "output_norm"},
        {"ln_f", "output_norm"},
        {"layers.", "blk."},
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"attention.query_key_value", "attn_qkv"},
        {"attention.dense", "attn_output"},
        {"mlp.dense_h_to_4h", "ffn_up"},
        {"mlp.dense_4h_to_h", "ffn_down"},
        {"ln_1", "attn_norm"},
        {"ln_2", "ffn_norm"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.c_proj", "attn_output"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
    };
    if (name.starts_with("h.")) name.replace(0, 2, "blk.");
    if (name.starts_with("norm.")) name.replace(0, 4, "output_norm");
    for (const auto& [there, word] : words)
        if (const std::size_t at = name.find(there); at != name.npos)
            name.replace(at, std::string_view(there).size(), word);
    return name;
}

/// Row r of the result is row `from(r)` of the matrix or vector.
std::vector<float> reordered(const std::vector<float>& x, Index rows,
                             const std::function<Index(Index)>& from) {
    std::vector<float> out(x.size());
    const Index columns = Index(x.size()) / rows;
    for (Index r = 0; r < rows; ++r)
        for (Index c = 0; c < columns; ++c)
            out[std::size_t(r * columns + c)] = x[std::size_t(from(r) * columns + c)];
    return out;
}

/// How matrices are stored: rounded, and what is left of them.
struct Stored {
    std::uint32_t type = 0;
    std::string bytes;
    std::vector<float> values;
};
Stored as_floats(const std::vector<float>& x) {
    const auto bytes = std::as_bytes(std::span(x));
    return {0, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, x};
}
/// Q8_0 with scales that are powers of two, which halves hold.
Stored as_q8_0(const std::vector<float>& x) {
    Stored out;
    out.type = 8;
    for (std::size_t first = 0; first < x.size(); first += 32) {
        float largest = 0;
        for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[first + i]));
        int exponent = -14;
        while (std::ldexp(127.0, exponent) < double(largest)) ++exponent;
        out.bytes += little(std::uint16_t((exponent + 15) << 10));
        for (std::size_t i = 0; i < 32; ++i) {
            const auto q = std::int8_t(std::lround(std::ldexp(double(x[first + i]), -exponent)));
            out.bytes += char(q);
            out.values.push_back(float(std::ldexp(double(q), exponent)));
        }
    }
    return out;
}

/// A model drawn at random, as safetensors and as GGUF.
class Pair {
  public:
    using Store = std::function<Stored(const std::vector<float>&)>;
    /// `change` adds to the GGUF file.
    explicit Pair(const GgufModel& model, const Store& store = as_floats,
                  const std::function<void(GgufWriter&)>& change = {}) {
        const RandomModel random = random_model(model.random);
        const auto weights = random_weights(random, Rng(1), cpu(), Type::f32);
        fs::create_directory(original());
        write_model(random.spec, *weights, original());
        const Json config = read_json(original() / "config.json");
        describe(model.architecture, config, random.spec);
        convert(model.architecture, random.spec, store);
        if (change) change(gguf_);
        write_file(folder_ / "m.gguf", gguf_.bytes());
    }

    fs::path original() const { return folder_.path() / "original"; }
    fs::path gguf() const { return folder_.path() / "m.gguf"; }

  private:
    void describe(const std::string& a, const Json& config, const ModelSpec& spec) {
        const BlockSpec& b = spec.blocks.front();
        const auto number = [&](const char* key, Index value) {
            gguf_.number(a + "." + key, std::uint32_t(value));
        };
        gguf_.word("general.architecture", a);
        gguf_.word("general.name", "a test");
        number("context_length", spec.embedding.max_tokens);
        number("embedding_length", spec.width);
        number("block_count", std::ssize(spec.blocks));
        number("feed_forward_length", b.ffn.width);
        number("attention.head_count", b.attention.heads);
        gguf_.real(a + (b.norm.kind == NormKind::rms ? ".attention.layer_norm_rms_epsilon"
                                                     : ".attention.layer_norm_epsilon"),
                   float(b.norm.eps));
        gguf_.texts("tokenizer.ggml.tokens", std::uint64_t(spec.embedding.vocabulary));
        if (b.attention.rotary.columns == 0) return;
        gguf_.real(a + ".rope.freq_base", float(b.attention.rotary.theta));
        number("rope.dimension_count", b.attention.rotary.columns);
        if (a == "gptneox")
            return gguf_.flag(a + ".use_parallel_residual",
                              config["use_parallel_residual"].boolean());
        number("attention.head_count_kv", b.attention.kv_heads);
        number("attention.key_length", b.attention.head_dim);
        number("attention.value_length", b.attention.head_dim);
        if (b.attention.rotary.scaling.empty()) return;
        Rotary plain = b.attention.rotary;
        plain.scaling.clear();
        const std::vector<double> before = plain.frequencies(1),
                                  after = b.attention.rotary.frequencies(1);
        std::vector<float> divisors;
        for (std::size_t i = 0; i < before.size(); ++i)
            divisors.push_back(float(before[i] / after[i]));
        gguf_.floats("rope_freqs.weight", {std::ssize(divisors)}, divisors);
    }

    /// What a conversion does to the tensors; the rounding is done to the original too.
    void convert(const std::string& a, const ModelSpec& spec, const Store& store) {
        const auto file = open_checkpoint(original());
        const Index head = spec.blocks.front().attention.head_dim,
                    heads = spec.blocks.front().attention.heads;
        std::vector<NamedArray> rounded;
        std::vector<std::vector<float>> kept(file->names().size());
        std::size_t at = 0;
        for (const std::string& name : file->names()) {
            const RawTensor raw = file->tensor(name);
            std::vector<float> x(std::size_t(raw.count()));
            widen(raw, std::span<float>(x));
            std::vector<Index> shape = raw.shape;
            const bool conv1d = a == "gpt2" && shape.size() == 2 && name.find("h.") != name.npos;
            if (conv1d) {
                x = transposed(x, shape);
                std::swap(shape[0], shape[1]);
            }
            const bool matrix = shape.size() == 2;
            Stored stored = matrix ? store(x) : as_floats(x);
            kept[at] = stored.values;
            if (conv1d) kept[at] = transposed(kept[at], shape);
            rounded.push_back({name, raw.shape, kept[at++], {}});

            std::function<Index(Index)> from;
            const bool query = name.find("q_proj") != name.npos,
                       key = name.find("k_proj") != name.npos;
            if (a == "llama" && (query || key))
                from = [&](Index r) { return r / head * head + r % head / 2 + r % 2 * (head / 2); };
            if (name.find("query_key_value") != name.npos)
                from = [&](Index r) {
                    const Index part = r / (heads * head), in = r % (heads * head);
                    return in / head * 3 * head + part * head + in % head;
                };
            if (from) stored = store_rows(stored, shape, from, matrix ? store : as_floats);
            gguf_.tensor(here(name), shape, stored.type, stored.bytes);
        }
        Json metadata = file->metadata();
        write_safetensors(original() / "model.safetensors", rounded, metadata);
    }

    static std::vector<float> transposed(const std::vector<float>& x,
                                         const std::vector<Index>& shape) {
        std::vector<float> out(x.size());
        for (Index r = 0; r < shape[0]; ++r)
            for (Index c = 0; c < shape[1]; ++c)
                out[std::size_t(c * shape[0] + r)] = x[std::size_t(r * shape[1] + c)];
        return out;
    }
    /// Rows are whole blocks, so that rounding and order commute.
    static Stored store_rows(const Stored& x, const std::vector<Index>& shape,
                             const std::function<Index(Index)>& from, const Store& store) {
        return store(reordered(x.values, shape[0], from));
    }

    TemporaryDirectory folder_;
    GgufWriter gguf_;
};

Recorder run(const fs::path& path, Type type) {
    const Opened opened = Opened::from(path);
    Input input;
    for (Index i = 0; i < 20; ++i) input.ids.push_back(i * 7 % 40);
    Recorder seen;
    opened.model(type).run(std::span(&input, 1), seen);
    return seen;
}

class EveryGgufModel : public testing::TestWithParam<GgufModel> {
  protected:
    static void expect_same(const Pair& pair, Type type) {
        const Recorder a = run(pair.original(), type), b = run(pair.gguf(), type);
        ASSERT_FALSE(a.states.empty());
        EXPECT_EQ(a.states, b.states);
        EXPECT_EQ(a.matrix, b.matrix);
    }
};

TEST_P(EveryGgufModel, GivesTheStatesOfItsSafetensors) {
    const Pair pair(GetParam());
    for (const Type type : {Type::f32, Type::f64}) expect_same(pair, type);
}

TEST_P(EveryGgufModel, GivesTheStatesOfTheDequantisedWeights) {
    const Pair pair(GetParam(), as_q8_0);
    for (const Type type : {Type::f32, Type::f64}) expect_same(pair, type);
}

/// A key or a tensor that nobody explains is refused by its name.
TEST_P(EveryGgufModel, RefusesWhatItDoesNotKnow) {
    const std::string a = GetParam().architecture;
    const float one = 1;
    const auto refusal = [&](const std::function<void(GgufWriter&)>& change) {
        const Pair pair(GetParam(), as_floats, change);
        try {
            run(pair.gguf(), Type::f32);
        } catch (const FormatError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.real(a + ".attention.logit_cap", 30); }),
                HasSubstr(a + ".attention.logit_cap"));
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.number(a + ".attention.sliding_window", 16); }),
                HasSubstr("sliding_window"));
    EXPECT_EQ(refusal([&](GgufWriter& f) { f.number(a + ".attention.sliding_window", 0); }),
              "accepted");
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.number("other.key", 1); }), HasSubstr("other.key"));
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.word("general.type", "adapter"); }),
                HasSubstr("general.type"));
    EXPECT_THAT(refusal([&](GgufWriter& f) {
                    f.floats("blk.0.attn_sinks.weight", {1}, std::span(&one, 1));
                }),
                HasSubstr("tensor 'blk.0.attn_sinks.weight' is unknown"));
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.word(a + ".rope.scaling.type", "longrope"); }),
                HasSubstr("longrope"));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryGgufModel, testing::ValuesIn(models),
                         [](const auto& info) { return std::string(info.param.name); });

std::string refusal_of(const GgufWriter& file) {
    const TemporaryDirectory folder;
    write_file(folder / "m.gguf", file.bytes());
    try {
        detect(*open_checkpoint(folder / "m.gguf"), {});
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(GgufModel, RefusesAnUnknownOrMissingArchitecture) {
    GgufWriter none, other;
    const float one = 1;
    for (GgufWriter* file : {&none, &other})
        file->floats("token_embd.weight", {1, 1}, std::span(&one, 1));
    other.word("general.architecture", "mamba");
    EXPECT_THAT(refusal_of(none), HasSubstr("general.architecture is missing"));
    EXPECT_THAT(refusal_of(other), HasSubstr("\"mamba\", which is not supported"));
    other = {};
    other.floats("token_embd.weight", {1, 1}, std::span(&one, 1));
    other.word("general.architecture", "llama");
    EXPECT_THAT(refusal_of(other), HasSubstr("lack 'llama.attention.head_count'"));
}

TEST(GgufModel, RefusesRotaryDivisorsOfAnotherScaling) {
    const auto with = [&](float first) {
        const Pair pair(models[1], as_floats, [&](GgufWriter& f) {
            std::vector<float> divisors(8, 1.0F);
            divisors[0] = first;
            f.floats("rope_freqs.weight", {8}, divisors);
        });
        return detect(*open_checkpoint(pair.gguf()), {});
    };
    EXPECT_EQ(with(1).spec.blocks.front().attention.rotary.factor, 1.0);
    EXPECT_THROW(with(2), FormatError);
}

/// The positions divided by a factor, as rope_scaling of a configuration has it.
TEST(GgufModel, HasALinearRotaryScaling) {
    const Pair pair(models[1], as_floats, [](GgufWriter& f) {
        f.word("llama.rope.scaling.type", "linear");
        f.real("llama.rope.scaling.factor", 4);
    });
    const Recorder plain = run(pair.original(), Type::f64);
    Json config = read_json(pair.original() / "config.json");
    config.set("rope_scaling", Json().set("rope_type", "linear").set("factor", 4));
    write_file(pair.original() / "config.json", config.dump());
    const Recorder scaled = run(pair.original(), Type::f64), found = run(pair.gguf(), Type::f64);
    EXPECT_NE(plain.states, found.states);
    EXPECT_EQ(scaled.states, found.states);
    EXPECT_EQ(scaled.matrix, found.matrix);
}

/// What would turn, scale or share other columns than the family does.
TEST(GgufModel, RefusesSizesOfHeadsThatItsFamilyLacks) {
    const auto refusal = [](const std::function<void(GgufWriter&)>& change) {
        const Pair pair(models[1], as_floats, change);
        try {
            detect(*open_checkpoint(pair.gguf()), {});
        } catch (const FormatError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refusal([](GgufWriter& f) { f.real("llama.rope.scaling.factor", 2); }),
                HasSubstr("rope.scaling.factor = 2.0 without a type"));
    EXPECT_EQ(refusal([](GgufWriter& f) { f.real("llama.rope.scaling.factor", 1); }), "accepted");
    EXPECT_THAT(refusal([](GgufWriter& f) { f.word("llama.rope.scaling.type", "linear"); }),
                HasSubstr("'llama.rope.scaling.factor' of its metadata is null"));
    EXPECT_THAT(refusal([](GgufWriter& f) {
                    f.word("llama.rope.scaling.type", "linear");
                    f.real("llama.rope.scaling.factor", -4);
                }),
                HasSubstr("is -4.0, expected a positive number"));
    const std::vector<float> ones(16, 1.0F);
    EXPECT_THAT(refusal([&](GgufWriter& f) { f.floats("blk.0.attn_q_norm.weight", {16}, ones); }),
                HasSubstr("norms of queries, which are not supported in GGUF for llama"));
}

/// A key that --ignore names is read as if it were not there.
TEST(GgufModel, IgnoresAKeyThatIsNamed) {
    const Pair pair(models[0], as_floats,
                    [](GgufWriter& f) { f.real("llama.attention.logit_cap", 30); });
    DetectOptions options;
    options.ignore = {"llama.attention.logit_cap"};
    EXPECT_EQ(detect(*open_checkpoint(pair.gguf()), options).spec.provenance.warnings.size(), 1U);
}

}  // namespace
}  // namespace tsdiag::test
