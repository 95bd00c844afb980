#include "meta.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/names.hpp"
#include "engine/sources.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// A stem or a key in Meta's files, or in torchtune's, and in the family's.  '*' is the layer.
struct MetaPair {
    std::string_view here, there;
};

constexpr std::array meta_tensors{
    MetaPair{"tok_embeddings.weight", "embed_tokens.weight"},
    MetaPair{"norm.weight", "norm.weight"},
    MetaPair{"output.weight", "lm_head.weight"},
    MetaPair{"layers.*.attention_norm.weight", "layers.*.input_layernorm.weight"},
    MetaPair{"layers.*.attention.wq.weight", "layers.*.self_attn.q_proj.weight"},
    MetaPair{"layers.*.attention.wk.weight", "layers.*.self_attn.k_proj.weight"},
    MetaPair{"layers.*.attention.wv.weight", "layers.*.self_attn.v_proj.weight"},
    MetaPair{"layers.*.attention.wo.weight", "layers.*.self_attn.o_proj.weight"},
    MetaPair{"layers.*.ffn_norm.weight", "layers.*.post_attention_layernorm.weight"},
    MetaPair{"layers.*.feed_forward.w1.weight", "layers.*.mlp.gate_proj.weight"},
    MetaPair{"layers.*.feed_forward.w2.weight", "layers.*.mlp.down_proj.weight"},
    MetaPair{"layers.*.feed_forward.w3.weight", "layers.*.mlp.up_proj.weight"},
    MetaPair{"rope.freqs", "rotary_emb.inv_freq"},
    MetaPair{"layers.*.attention.inner_attention.rope.freqs",
             "layers.*.self_attn.rotary_emb.inv_freq"},
    // torchtune, whose rows of queries and keys have Meta's order.
    MetaPair{"norm.scale", "norm.weight"},
    MetaPair{"layers.*.sa_norm.scale", "layers.*.input_layernorm.weight"},
    MetaPair{"layers.*.attn.q_proj.weight", "layers.*.self_attn.q_proj.weight"},
    MetaPair{"layers.*.attn.k_proj.weight", "layers.*.self_attn.k_proj.weight"},
    MetaPair{"layers.*.attn.v_proj.weight", "layers.*.self_attn.v_proj.weight"},
    MetaPair{"layers.*.attn.output_proj.weight", "layers.*.self_attn.o_proj.weight"},
    MetaPair{"layers.*.mlp_norm.scale", "layers.*.post_attention_layernorm.weight"},
    MetaPair{"layers.*.mlp.w1.weight", "layers.*.mlp.gate_proj.weight"},
    MetaPair{"layers.*.mlp.w2.weight", "layers.*.mlp.down_proj.weight"},
    MetaPair{"layers.*.mlp.w3.weight", "layers.*.mlp.up_proj.weight"},
};

constexpr std::array meta_keys{
    MetaPair{"dim", "hidden_size"},
    MetaPair{"n_layers", "num_hidden_layers"},
    MetaPair{"n_heads", "num_attention_heads"},
    MetaPair{"n_kv_heads", "num_key_value_heads"},
    MetaPair{"head_dim", "head_dim"},
    MetaPair{"hidden_dim", "intermediate_size"},
    MetaPair{"norm_eps", "rms_norm_eps"},
    MetaPair{"rope_theta", "rope_theta"},
    MetaPair{"max_seq_len", "max_position_embeddings"},
    MetaPair{"sliding_window", "sliding_window"},
};

/// Of training and serving.
constexpr std::array<std::string_view, 2> meta_harmless{"dropout", "max_batch_size"};

std::string translated(std::string_view name) {
    constexpr std::string_view layers = "layers.";
    std::string pattern(name), layer;
    if (name.starts_with(layers)) {
        const std::size_t dot = name.find('.', layers.size());
        if (dot == name.npos) return "";
        layer = name.substr(layers.size(), dot - layers.size());
        pattern.replace(layers.size(), layer.size(), "*");
    }
    const auto found = std::ranges::find(meta_tensors, pattern, &MetaPair::here);
    if (found == meta_tensors.end()) return "";
    std::string out(found->there);
    if (const std::size_t star = out.find('*'); star != out.npos) out.replace(star, 1, layer);
    return out;
}

/// What another source says, by the family's keys.
Json by_own_keys(const Json& said) {
    Json out;
    for (const auto& [key, value] : said.object()) {
        const auto* pair = std::ranges::find(meta_keys, key, &MetaPair::here);
        if (key != "vocab_size" || !equal(value, -1))  // which is left to the tokenizer
            out.set(pair == meta_keys.end() ? key : std::string(pair->there), value);
    }
    return out;
}

/// The arguments of Meta's `ModelArgs` as a configuration of the family.
class Arguments {
  public:
    Arguments(const Checkpoint& file, const Json& said, const std::string& name)
        : file_(file), said_(said), name_(name) {}

    Json read() const {
        Json config;
        const bool windows = said_["sliding_window"].is_number();
        config.set("model_type", windows ? "mistral" : "llama").set("hidden_act", "silu");
        for (const auto& [here, there] : meta_keys)
            if (const Json& value = said_[here]; !value.is_null())
                config.set(std::string(there), value);
        for (const char* key : {"dim", "n_layers", "n_heads"})
            if (said_[key].is_null()) refuse(fmt::format("lacks '{}'", key));
        if (said_["n_kv_heads"].is_null()) config.set("num_key_value_heads", said_["n_heads"]);
        if (said_["norm_eps"].is_null()) config.set("rms_norm_eps", 1e-5);
        if (said_["rope_theta"].is_null()) read_theta(config);
        // LLaMA 1 and 2 leave the size of the vocabulary to the tokenizer: -1.
        const Json& words = said_["vocab_size"];
        if (!(words.is_integer() && words.integer() == -1) && !words.is_null())
            config.set("vocab_size", words);
        read_inner(config);
        if (const Json& scaled = said_["use_scaled_rope"];
            !scaled.is_null() && !equal(scaled, false))
            refuse(
                "has use_scaled_rope, but not the factor (8 in LLaMA 3.1, 32 in 3.2). Pass the "
                "model's config.json with --config");
        pass_on_the_rest(config);
        return config;
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw FormatError(fmt::format("{}: {} {}.", file_.source(), name_, what));
    }

    /// Mistral's code takes 10^6 for models without windows, Meta's always 10^4.
    void read_theta(Json& config) const {
        if (!said_["hidden_dim"].is_null() && said_["sliding_window"].is_null() &&
            !said_["head_dim"].is_null())
            refuse(
                "lacks rope_theta, whose default differs between versions of Mistral's code. "
                "Add it");
        config.set("rope_theta", 10000.0);
    }

    /// Where it is not told, the feed-forward width is two thirds of 4 dim, times a multiplier,
    /// rounded up to a multiple.
    void read_inner(Json& config) const {
        const Json &dim = said_["dim"], &multiple = said_["multiple_of"],
                   &multiplier = said_["ffn_dim_multiplier"];
        constexpr std::int64_t most = 1 << 24;
        const auto sensible = [](const Json& n) {
            return n.is_integer() && n.integer() > 0 && n.integer() <= most;
        };
        if (!said_["hidden_dim"].is_null() || !sensible(dim) || !sensible(multiple)) return;
        std::int64_t inner = 8 * dim.integer() / 3;
        if (multiplier.is_number()) inner = std::int64_t(multiplier.number() * double(inner));
        const std::int64_t step = multiple.integer();
        config.set("intermediate_size", (inner + step - 1) / step * step);
    }

    /// Keys that nothing has read, so that the family refuses them by name.
    void pass_on_the_rest(Json& config) const {
        constexpr std::array<std::string_view, 4> read{"vocab_size", "multiple_of",
                                                       "ffn_dim_multiplier", "use_scaled_rope"};
        for (const auto& [key, value] : said_.object())
            if (std::ranges::find(meta_keys, key, &MetaPair::here) == meta_keys.end() &&
                std::ranges::find(meta_harmless, key) == meta_harmless.end() &&
                std::ranges::find(read, key) == read.end())
                config.set(key, value);
    }

    const Checkpoint& file_;
    const Json& said_;
    const std::string& name_;
};

}  // namespace

namespace {

bool is_torchtune(const Checkpoint& file) {
    return file.has("tok_embeddings.weight") && file.has("layers.0.attn.output_proj.weight") &&
           file.has("layers.0.sa_norm.scale");
}

}  // namespace

bool is_meta(const Checkpoint& file) {
    const bool own = file.has("tok_embeddings.weight") &&
                     file.has("layers.0.attention.wq.weight") &&
                     file.has("layers.0.feed_forward.w1.weight");
    return own || is_torchtune(file);
}

constexpr const char* its_arguments = "its model_args";

MetaModel::MetaModel(const Checkpoint& file, const DetectOptions& options)
    : renamed_(file), options_(options) {
    const Json& saved = file.metadata()["model_args"];  // of llama2.c
    if (options_.config.is_null() && saved.is_object()) {
        options_.config = saved;
        options_.config_name = its_arguments;
    }
    const Json& type = options_.config["model_type"];
    if (is_torchtune(file) && !equal(type, "llama") && !equal(type, "mistral"))
        throw FormatError(
            fmt::format("{}: its tensors have torchtune's names, which are read of LLaMA and "
                        "Mistral with the config.json of the original model beside them; save it "
                        "with torchtune's checkpointer for Hugging Face",
                        file.source()));
    if (!options_.config.is_object())
        throw UsageError(
            fmt::format("{}: its tensors have the names of Meta's LLaMA; put its params.json next "
                        "to it or pass --config FILE",
                        file.source()));
    if (type.is_null())
        options_.config = Arguments(file, Json(options_.config), options_.config_name).read();
    for (auto& [name, said] : options_.also_said) said = by_own_keys(said);
    const bool of_arguments = options_.config_name == its_arguments;
    for (const auto& [name, said] : said_in(file.metadata()))
        // llama2.c goes on from a checkpoint by its model_args, whatever `config`, the settings of
        // the training, says of the model.
        if (!of_arguments || name != "config")
            options_.also_said.emplace_back(name + " in the file", by_own_keys(*said));
    for (const std::string& name : file.names()) {
        std::string there = translated(name);
        if (there.empty())
            throw FormatError(
                fmt::format("{}: tensor '{}' is unknown to Meta's LLaMA and may change what the "
                            "model computes; if it does not, pass --ignore '{}'",
                            file.source(), name, name));
        if (renamed_.has(there))
            throw FormatError(
                fmt::format("{}: tensor '{}' is '{}' under another name, expected "
                            "names of one library",
                            file.source(), name, there));
        renamed_.add(std::move(there), {name});
    }
}

}  // namespace tsdiag::families
