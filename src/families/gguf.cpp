#include "gguf.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "names.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// A stem or a key in GGUF and in the family's files.  '*' is the layer.
struct Pair {
    std::string_view here, there;
};

constexpr std::array llama_tensors{
    Pair{"token_embd", "embed_tokens"},
    Pair{"output_norm", "norm"},
    Pair{"output", "lm_head"},
    Pair{"blk.*.attn_norm", "layers.*.input_layernorm"},
    Pair{"blk.*.attn_q", "layers.*.self_attn.q_proj"},
    Pair{"blk.*.attn_k", "layers.*.self_attn.k_proj"},
    Pair{"blk.*.attn_v", "layers.*.self_attn.v_proj"},
    Pair{"blk.*.attn_q_norm", "layers.*.self_attn.q_norm"},
    Pair{"blk.*.attn_k_norm", "layers.*.self_attn.k_norm"},
    Pair{"blk.*.attn_output", "layers.*.self_attn.o_proj"},
    Pair{"blk.*.ffn_norm", "layers.*.post_attention_layernorm"},
    Pair{"blk.*.ffn_gate", "layers.*.mlp.gate_proj"},
    Pair{"blk.*.ffn_up", "layers.*.mlp.up_proj"},
    Pair{"blk.*.ffn_down", "layers.*.mlp.down_proj"},
};
constexpr std::array gpt2_tensors{
    Pair{"token_embd", "wte"},
    Pair{"position_embd", "wpe"},
    Pair{"output_norm", "ln_f"},
    Pair{"output", "lm_head"},
    Pair{"blk.*.attn_norm", "h.*.ln_1"},
    Pair{"blk.*.attn_qkv", "h.*.attn.c_attn"},
    Pair{"blk.*.attn_output", "h.*.attn.c_proj"},
    Pair{"blk.*.ffn_norm", "h.*.ln_2"},
    Pair{"blk.*.ffn_up", "h.*.mlp.c_fc"},
    Pair{"blk.*.ffn_down", "h.*.mlp.c_proj"},
};
constexpr std::array neox_tensors{
    Pair{"token_embd", "embed_in"},
    Pair{"output_norm", "final_layer_norm"},
    Pair{"output", "embed_out"},
    Pair{"blk.*.attn_norm", "layers.*.input_layernorm"},
    Pair{"blk.*.attn_qkv", "layers.*.attention.query_key_value"},
    Pair{"blk.*.attn_output", "layers.*.attention.dense"},
    Pair{"blk.*.ffn_norm", "layers.*.post_attention_layernorm"},
    Pair{"blk.*.ffn_up", "layers.*.mlp.dense_h_to_4h"},
    Pair{"blk.*.ffn_down", "layers.*.mlp.dense_4h_to_h"},
};

/// Keys behind "ARCHITECTURE.".
constexpr std::array llama_keys{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "num_hidden_layers"},
    Pair{"feed_forward_length", "intermediate_size"},
    Pair{"attention.head_count", "num_attention_heads"},
    Pair{"attention.head_count_kv", "num_key_value_heads"},
    Pair{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    Pair{"attention.key_length", "head_dim"},
    Pair{"rope.freq_base", "rope_theta"},
    Pair{"vocab_size", "vocab_size"},
};
constexpr std::array gpt2_keys{
    Pair{"context_length", "n_positions"},
    Pair{"embedding_length", "n_embd"},
    Pair{"block_count", "n_layer"},
    Pair{"feed_forward_length", "n_inner"},
    Pair{"attention.head_count", "n_head"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    Pair{"vocab_size", "vocab_size"},
};
constexpr std::array neox_keys{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "num_hidden_layers"},
    Pair{"feed_forward_length", "intermediate_size"},
    Pair{"attention.head_count", "num_attention_heads"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_eps"},
    Pair{"rope.freq_base", "rotary_emb_base"},
    Pair{"use_parallel_residual", "use_parallel_residual"},
    Pair{"vocab_size", "vocab_size"},
};

struct Dialect {
    std::string_view architecture, model_type;
    std::span<const Pair> tensors, keys;
    std::string_view epsilon;
    std::string_view activation_key, activation;
    bool rotary, paired, fused_in_parts;
};

constexpr std::string_view rms = "attention.layer_norm_rms_epsilon",
                           layer_norm = "attention.layer_norm_epsilon";
/// Activations are those of the original models: GGUF does not say them.
constexpr std::array dialects{
    Dialect{"llama", "llama", llama_tensors, llama_keys, rms, "hidden_act", "silu", true, true,
            false},
    Dialect{"qwen2", "qwen2", llama_tensors, llama_keys, rms, "hidden_act", "silu", true, false,
            false},
    Dialect{"qwen3", "qwen3", llama_tensors, llama_keys, rms, "hidden_act", "silu", true, false,
            false},
    Dialect{"gpt2", "gpt2", gpt2_tensors, gpt2_keys, layer_norm, "activation_function", "gelu_new",
            false, false, false},
    Dialect{"gptneox", "gpt_neox", neox_tensors, neox_keys, layer_norm, "hidden_act", "gelu", true,
            false, true},
};

constexpr std::string_view rotary_factors = "rope_freqs.weight";

/// Of the model as a whole, its tokens and its making.
constexpr std::array harmless{"general.*", "tokenizer.*", "split.*", "quantize.*"};
/// Behind "ARCHITECTURE.": with these values nothing changes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> neutral{{
    {"expert_count", "0"},
    {"expert_used_count", "0"},
    {"attention.causal", "true"},
    {"attention.sliding_window", "0"},
    {"rope.scaling.finetuned", "true"},
    {"rope.scaling.finetuned", "false"},
    {"rope.scaling.attn_factor", "1"},
    {"rope.scale_linear", "1"},
    {"tensor_data_layout", "\"Meta AI original pth\""},
}};

const Dialect& dialect_of(const Checkpoint& file) {
    const Json& said = file.metadata()["general.architecture"];
    const auto found =
        said.is_string()
            ? std::ranges::find(dialects, std::string_view(said.string()), &Dialect::architecture)
            : dialects.end();
    if (found != dialects.end()) return *found;
    std::string known;
    for (const Dialect& d : dialects)
        known += (known.empty() ? "" : ", ") + std::string(d.architecture);
    throw FormatError(
        fmt::format("{}: its general.architecture is {}, which is not supported in GGUF ({} are)",
                    file.source(), said.is_null() ? "missing" : said.dump(), known));
}

/// The family's name of a tensor; empty: it has none.
std::string translated(std::string_view name, std::span<const Pair> pairs) {
    std::string_view suffix;
    for (const std::string_view known : {".weight", ".bias"})
        if (name.ends_with(known)) suffix = known;
    std::string_view stem = name.substr(0, name.size() - suffix.size()), layer;
    constexpr std::string_view block = "blk.";
    std::string pattern(stem);
    if (stem.starts_with(block)) {
        const std::size_t dot = stem.find('.', block.size());
        if (dot == stem.npos) return "";
        layer = stem.substr(block.size(), dot - block.size());
        pattern.replace(block.size(), layer.size(), "*");
    }
    const auto found = std::ranges::find(pairs, pattern, &Pair::here);
    if (found == pairs.end() || suffix.empty()) return "";
    std::string out(found->there);
    if (const std::size_t star = out.find('*'); star != out.npos) out.replace(star, 1, layer);
    return out.append(suffix);
}

/// The metadata as a configuration of the family.
class Configuration {
  public:
    Configuration(const Checkpoint& file, const Dialect& dialect)
        : file_(file), metadata_(file.metadata()), dialect_(dialect) {}

    Json read() {
        config_.set("model_type", dialect_.model_type);
        config_.set(std::string(dialect_.activation_key), dialect_.activation);
        if (const Json& type = metadata_["general.type"];
            type.is_string() && type.string() != "model")
            refuse(fmt::format("its general.type is {}, expected \"model\"", type.dump()));
        if (dialect_.paired && file_.has("blk.0.attn_q_norm.weight"))
            refuse("it has norms of queries, which are not supported in GGUF for " +
                   std::string(dialect_.architecture));
        for (const std::string_view key :
             {std::string_view("attention.head_count"), std::string_view("embedding_length"),
              std::string_view("block_count"), std::string_view("context_length"),
              dialect_.epsilon})
            if (said(key).is_null())
                refuse(fmt::format("its metadata lack '{}.{}'", dialect_.architecture, key));
        for (const auto& [here, there] : dialect_.keys)
            if (const Json& value = said(here); !value.is_null())
                config_.set(std::string(there), value);
        read_heads();
        if (dialect_.rotary) read_rotary();
        pass_on_the_rest();
        return std::move(config_);
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw FormatError(fmt::format("{}: {}", file_.source(), what));
    }

    /// The value of "ARCHITECTURE.key".
    const Json& said(std::string_view key) {
        const std::string full = fmt::format("{}.{}", dialect_.architecture, key);
        used_.push_back(full);
        return metadata_[full];
    }
    double number(std::string_view key) {
        const Json& value = said(key);
        if (!value.is_number() || !(value.number() > 0) || !std::isfinite(value.number()))
            refuse(fmt::format("'{}.{}' of its metadata is {}, expected a positive number",
                               dialect_.architecture, key, value.dump()));
        return value.number();
    }
    void require_equal(std::string_view a, std::string_view b) {
        const Json &x = said(a), &y = said(b);
        if (!x.is_null() && !y.is_null() && !equal(x, y))
            refuse(
                fmt::format("its metadata say {0}.{1} = {2} and {0}.{3} = {4}, which is not "
                            "supported (equal ones are)",
                            dialect_.architecture, a, x.dump(), b, y.dump()));
    }

    /// Without a number of its own, every query head has its keys, and a head its share of the
    /// width.
    void read_heads() {
        const bool shared = std::ranges::find(dialect_.keys, "attention.head_count_kv",
                                              &Pair::here) != dialect_.keys.end();
        if (!shared)
            require_equal("attention.head_count", "attention.head_count_kv");
        else if (said("attention.head_count_kv").is_null())
            config_.set("num_key_value_heads", said("attention.head_count"));
        if (!said("attention.value_length").is_null()) {
            const double columns = head_columns();
            if (number("attention.value_length") != columns)
                refuse(
                    fmt::format("its heads have values of {} columns and keys of {}, which is "
                                "not supported",
                                number("attention.value_length"), columns));
        }
        if (!shared && !said("attention.key_length").is_null() &&
            number("attention.key_length") * number("attention.head_count") !=
                number("embedding_length"))
            refuse("its heads do not share the width, which is not supported");
    }
    double head_columns() {
        return said("attention.key_length").is_null()
                   ? number("embedding_length") / number("attention.head_count")
                   : number("attention.key_length");
    }

    void read_rotary() {
        const double columns = head_columns();
        const double turned =
            said("rope.dimension_count").is_null() ? columns : number("rope.dimension_count");
        if (dialect_.paired && turned != columns)
            refuse(
                fmt::format("{} of {} columns of a head are rotated, which is not supported in "
                            "GGUF for {}",
                            turned, columns, dialect_.architecture));
        const bool neox = dialect_.fused_in_parts;
        // Half a column more, which is cut off: the share times the columns gives them back.
        if (turned != columns || neox)
            config_.set(neox ? "rotary_pct" : "partial_rotary_factor",
                        turned == columns ? 1 : (turned + 0.5) / columns);
        const Json& type = said("rope.scaling.type");
        said("rope.scaling.original_context_length");  // of no effect on a linear scaling
        const Json& factor = said("rope.scaling.factor");
        const bool none = type.is_null() || equal(type, Json("none"));
        if (none && !factor.is_null() && !equal(factor, Json(1)) && !equal(factor, Json(0)))
            refuse(fmt::format("its metadata have {}.rope.scaling.factor = {} without a type",
                               dialect_.architecture, factor.dump()));
        if (!none) {
            if (!equal(type, Json("linear")))
                refuse(
                    fmt::format("its rotary scaling is {}, which is not supported in GGUF "
                                "(\"none\" and \"linear\" are)",
                                type.dump()));
            config_.set(
                "rope_scaling",
                Json().set("rope_type", "linear").set("factor", number("rope.scaling.factor")));
        }
        if (file_.has(rotary_factors)) read_factors(columns, !none);
    }

    /// Llama 3's scaling is stored as the divisors of the frequencies.  They tell its factor; the
    /// other numbers are those of all released models, and the divisors must follow from them.
    void read_factors(double columns, bool scaled) {
        const RawTensor raw = file_.tensor(rotary_factors);
        constexpr double most_columns = 1 << 16, rounding = 1e-5;
        if (scaled || raw.shape.size() != 1 || columns > most_columns ||
            double(raw.count()) != columns / 2 || raw.dtype != DType::f32)
            refuse(
                fmt::format("tensor '{}' is {} {}, expected {} divisors of the rotary "
                            "frequencies in F32, and no other scaling",
                            rotary_factors, raw.dtype_name, text(raw.shape), columns / 2));
        std::vector<double> stored(std::size_t(raw.count()));
        widen(raw, std::span(stored));
        Rotary plain;
        plain.columns = Index(columns);
        if (!said("rope.freq_base").is_null()) plain.theta = number("rope.freq_base");
        Rotary llama3 = plain;
        llama3.scaling = "llama3";
        llama3.factor = *std::ranges::max_element(stored);
        llama3.low_freq_factor = 1;
        llama3.high_freq_factor = 4;
        llama3.original_length = 8192;
        const std::vector<double> before = plain.frequencies(1), after = llama3.frequencies(1);
        for (std::size_t i = 0; i < stored.size(); ++i)
            if (!(std::abs(before[i] / after[i] - stored[i]) <= rounding * stored[i]))
                refuse(fmt::format(
                    "tensor '{}' divides the rotary frequencies otherwise than the scaling of "
                    "llama3 (from {} to {} of {} tokens), the only one that is supported",
                    rotary_factors, llama3.low_freq_factor, llama3.high_freq_factor,
                    llama3.original_length));
        config_.set("rope_scaling",
                    Json()
                        .set("rope_type", "llama3")
                        .set("factor", llama3.factor)
                        .set("low_freq_factor", llama3.low_freq_factor)
                        .set("high_freq_factor", llama3.high_freq_factor)
                        .set("original_max_position_embeddings", llama3.original_length));
    }

    /// Keys that nothing has read, so that the family refuses them by name.
    void pass_on_the_rest() {
        const std::string prefix = std::string(dialect_.architecture) + ".";
        for (const auto& [key, value] : metadata_.object()) {
            const bool known = std::ranges::find(used_, key) != used_.end() ||
                               std::ranges::any_of(harmless, [&](const char* pattern) {
                                   return glob(pattern, key);
                               });
            const bool changes_nothing = std::ranges::any_of(neutral, [&](const auto& n) {
                return key == prefix + std::string(n.first) &&
                       equal(value, Json::parse(n.second, "a list"));
            });
            if (!known && !changes_nothing) config_.set(key, value);
        }
    }

    const Checkpoint& file_;
    const Json& metadata_;
    const Dialect& dialect_;
    Json config_;
    std::vector<std::string> used_;
};

}  // namespace

bool is_gguf(const Checkpoint& file) { return file.format().starts_with("gguf"); }

class GgufModel::Renamed final : public Checkpoint {
  public:
    /// `explained`: a tensor that the configuration holds already.
    Renamed(const Checkpoint& file, const Dialect& dialect, std::string_view explained)
        : file_(file) {
        for (const std::string& name : file.names()) {
            if (name == explained) continue;
            const std::string there = translated(name, dialect.tensors);
            if (there.empty())
                throw FormatError(fmt::format(
                    "{}: tensor '{}' is unknown to architecture {} of GGUF and may change what the "
                    "model computes; if it does not, pass --ignore '{}'",
                    file.source(), name, dialect.architecture, name));
            names_.push_back(there);
            original_.emplace(there, name);
        }
    }

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return original_.contains(name); }
    RawTensor tensor(std::string_view name) const override { return file_.tensor(original(name)); }
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return file_.format(); }
    std::string source() const override { return file_.source(); }

    std::string original(std::string_view name) const {
        const auto found = original_.find(name);
        return found == original_.end() ? std::string(name) : found->second;
    }

  private:
    const Checkpoint& file_;
    Json metadata_ = Json::Object();  ///< that of the file is in the configuration
    std::vector<std::string> names_;
    std::map<std::string, std::string, std::less<>> original_;
};

GgufModel::GgufModel(const Checkpoint& file, const DetectOptions& options) : options_(options) {
    const Dialect& dialect = dialect_of(file);
    const bool own = options.config.is_null();
    if (own) {
        options_.config = Configuration(file, dialect).read();
        options_.config_name = "its GGUF metadata";
    }
    renamed_ = std::make_unique<Renamed>(file, dialect, own ? rotary_factors : "");
    paired_ = dialect.paired;
    if (own && dialect.activation != "silu") assumed_activation_ = dialect.activation;
    fused_in_parts_ = dialect.fused_in_parts;
}

GgufModel::~GgufModel() = default;

const Checkpoint& GgufModel::file() const { return *renamed_; }

Architecture GgufModel::restored(Architecture found) const {
    const AttentionSpec& attention = found.spec.blocks.front().attention;
    const Index head = attention.head_dim;
    if (paired_ && attention.rotary.columns != head)
        throw FormatError(fmt::format(
            "{}: {} of {} columns of a head are rotated, which is not supported in GGUF.",
            renamed_->source(), attention.rotary.columns, head));
    if (!assumed_activation_.empty())
        found.spec.warnings.push_back(
            fmt::format("The activation is taken for {}, that of the first models of its kind: "
                        "GGUF does not say it.",
                        assumed_activation_));
    for (auto& [canonical, source] : found.tensors) {
        source.file_name = renamed_->original(source.file_name);
        for (std::string& more : source.concat) more = renamed_->original(more);
        for (const char* part :
             {"*.attn.q.weight", "*.attn.q.bias", "*.attn.k.weight", "*.attn.k.bias"})
            if (paired_ && glob(part, canonical)) source.paired_head = head;
        if (fused_in_parts_ && source.stride > 0) {  // all queries, all keys, all values
            const Index part = source.first / source.length;
            source.length *= source.groups;
            source.first = part * source.length;
            source.groups = 1;
            source.stride = 0;
        }
    }
    for (std::string& name : found.spec.ignored) name = renamed_->original(name);
    if (paired_)
        found.spec.recognised.push_back(
            "rows of queries and keys are stored in pairs that rotate together; undone");
    return found;
}

}  // namespace tsdiag::families
