#include "gguf.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "engine/names.hpp"
#include "engine/rope.hpp"
#include "gguf_dialects.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

constexpr std::string_view rotary_factors = "rope_freqs.weight",
                           short_factors = "rope_factors_short.weight",
                           long_factors = "rope_factors_long.weight";

/// Of the model as a whole, its tokens and its making.
constexpr std::array gguf_harmless{"general.*", "tokenizer.*", "split.*", "quantize.*"};
/// Behind "ARCHITECTURE.": with these values nothing changes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> gguf_neutral{{
    {"expert_count", "0"},
    {"expert_used_count", "0"},
    {"expert_group_count", "0"},
    {"expert_group_used_count", "0"},
    {"expert_shared_count", "0"},
    {"expert_weights_scale", "0"},
    {"expert_weights_scale", "1"},
    {"expert_gating_func", "1"},  // softmax
    {"nextn_predict_layers", "0"},
    {"attention.clamp_kqv", "0"},
    {"attention.causal", "true"},
    {"attention.sliding_window", "0"},
    {"rope.scaling.finetuned", "true"},
    {"rope.scaling.finetuned", "false"},
    {"rope.scaling.attn_factor", "1"},
    {"rope.scale_linear", "1"},
    {"tensor_data_layout", "\"Meta AI original pth\""},
}};

const GgufDialect& dialect_of(const Checkpoint& file) {
    if (file.names().empty())
        throw FormatError(fmt::format(
            "{}: it has no weights, only metadata; where these hold a vocabulary, --tokenizer "
            "reads it",
            file.source()));
    const Json& said = file.metadata()["general.architecture"];
    std::string known;
    for (const GgufDialect& d : gguf_dialects()) {
        const bool its = said.is_string() && said.string() == d.architecture;
        if (its && (!d.owns || d.owns(file))) return d;
        if (!known.ends_with(d.architecture))
            known += (known.empty() ? "" : ", ") + std::string(d.architecture);
    }
    throw FormatError(
        fmt::format("{}: its general.architecture is {}, which is not supported in GGUF ({} are)",
                    file.source(), said.is_null() ? "missing" : said.dump(), known));
}

/// "blk.*.attn_q" of "blk.3.attn_q", and "3".
std::pair<std::string, std::string_view> of_a_layer(std::string_view name) {
    constexpr std::string_view block = "blk.";
    std::string pattern(name);
    const std::size_t dot =
        name.starts_with(block) ? name.find('.', block.size()) : std::string_view::npos;
    if (dot == name.npos) return {std::move(pattern), ""};
    const std::string_view layer = name.substr(block.size(), dot - block.size());
    pattern.replace(block.size(), layer.size(), "*");
    return {std::move(pattern), layer};
}

/// The family's name of a tensor; empty: it has none.  Pairs have what stands before `.weight` and
/// `.bias`, or the whole names where these end otherwise in the family.
std::string translated(std::string_view name, std::span<const GgufPair> pairs) {
    for (const std::string_view suffix : {".weight", ".bias"}) {
        if (!name.ends_with(suffix)) continue;
        for (const std::string_view rest : {suffix, std::string_view()}) {
            const auto [pattern, layer] = of_a_layer(name.substr(0, name.size() - rest.size()));
            const auto found = std::ranges::find(pairs, pattern, &GgufPair::here);
            if (found == pairs.end()) continue;
            std::string out(found->there);
            if (const std::size_t star = out.find('*'); star != out.npos)
                out.replace(star, 1, layer);
            return out.append(rest);
        }
    }
    return "";
}

/// The metadata as a configuration of the family.
class Configuration {
  public:
    Configuration(const Checkpoint& file, const GgufDialect& dialect)
        : keys_(file, dialect), file_(file), dialect_(dialect) {}

    Json read() {
        keys_.config.set("model_type", dialect_.model_type);
        if (!dialect_.activation_key.empty())
            keys_.config.set(std::string(dialect_.activation_key), dialect_.activation);
        if (const Json& type = file_.metadata()["general.type"];
            type.is_string() && type.string() != "model")
            keys_.refuse(fmt::format("its general.type is {}, expected \"model\"", type.dump()));
        if (dialect_.rotation == GgufRotation::paired && file_.has("blk.0.attn_q_norm.weight"))
            keys_.refuse("it has norms of queries, which are not supported in GGUF for " +
                         std::string(dialect_.architecture));
        for (const std::string_view key :
             {std::string_view("attention.head_count"), std::string_view("embedding_length"),
              std::string_view("block_count"), std::string_view("context_length"),
              dialect_.epsilon})
            if (keys_.said(key).is_null())
                keys_.refuse(fmt::format("its metadata lack '{}.{}'", dialect_.architecture, key));
        for (const auto& [here, there] : dialect_.keys)
            if (const Json& value = keys_.said(here); !value.is_null())
                keys_.config.set(std::string(there), value);
        read_heads();
        if (dialect_.rotation != GgufRotation::none) read_rotary();
        if (dialect_.more) dialect_.more(keys_);
        pass_on_the_rest();
        return std::move(keys_.config);
    }

  private:
    bool translates(std::string_view key) const {
        return std::ranges::find(dialect_.keys, key, &GgufPair::here) != dialect_.keys.end();
    }

    /// Without a number of its own, every query head has its keys, and a head its share of the
    /// width.
    void read_heads() {
        if (!translates("attention.head_count_kv"))
            keys_.only("attention.head_count_kv", dialect_.key_heads > 0
                                                      ? Json(dialect_.key_heads)
                                                      : keys_.said("attention.head_count"));
        else if (keys_.said("attention.head_count_kv").is_null())
            keys_.config.set("num_key_value_heads", keys_.said("attention.head_count"));
        const Index columns = keys_.head_columns();
        if (!keys_.said("attention.value_length").is_null() &&
            keys_.number("attention.value_length") != double(columns))
            keys_.refuse(
                fmt::format("its heads have values of {} columns and keys of {}, which is not "
                            "supported",
                            keys_.number("attention.value_length"), columns));
        if (!translates("attention.key_length") &&
            double(columns) * keys_.number("attention.head_count") !=
                keys_.number("embedding_length"))
            keys_.refuse("its heads do not share the width, which is not supported");
    }

    void read_rotary() {
        const Index columns = keys_.head_columns();
        const double turned = keys_.said("rope.dimension_count").is_null()
                                  ? double(columns)
                                  : keys_.number("rope.dimension_count");
        const bool whole = dialect_.rotation == GgufRotation::paired || dialect_.share_key.empty();
        if (turned > double(columns) || turned != std::floor(turned) ||
            (whole && turned != double(columns)))
            keys_.refuse(
                fmt::format("{} of {} columns of a head are rotated, which is not supported in "
                            "GGUF for {}",
                            turned, columns, dialect_.architecture));
        if (!whole)
            keys_.config.set(std::string(dialect_.share_key), share_of(Index(turned), columns));
        const bool scaled = read_scaling();
        if (file_.has(rotary_factors)) read_factors(Index(turned), scaled);
    }

    /// Whether there is one.
    bool read_scaling() {
        const Json& type = keys_.said("rope.scaling.type");
        const Json& factor = keys_.said("rope.scaling.factor");
        const Json& before = keys_.said("rope.scaling.original_context_length");
        const auto is = [&](const char* name) { return equal(type, Json(name)); };
        if (file_.has(short_factors) || file_.has(long_factors)) {
            if (!type.is_null() && !is("longrope"))
                keys_.refuse(fmt::format("its rotary scaling is {}, but it has tensor '{}'",
                                         type.dump(), long_factors));
            read_longrope();
            return true;
        }
        const bool none = type.is_null() || is("none");
        if (none && !factor.is_null() && !equal(factor, Json(1)) && !equal(factor, Json(0)))
            keys_.refuse(fmt::format("its metadata have {}.rope.scaling.factor = {} without a type",
                                     dialect_.architecture, factor.dump()));
        if (none) return false;
        if (!is("linear") && !is("yarn"))
            keys_.refuse(
                fmt::format("its rotary scaling is {}, which is not supported in GGUF without "
                            "factors (\"none\", \"linear\" and \"yarn\" are)",
                            type.dump()));
        Json scaling;
        scaling.set("rope_type", type).set("factor", keys_.number("rope.scaling.factor"));
        if (is("yarn")) {
            if (!before.is_null()) scaling.set("original_max_position_embeddings", before);
            for (const auto& [here, there] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                              {"rope.scaling.yarn_beta_slow", "beta_slow"}})
                if (const Json& value = keys_.said(here); !value.is_null())
                    scaling.set(there, value);
            keys_.only("rope.scaling.yarn_ext_factor", 1);
        }
        keys_.config.set("rope_scaling", std::move(scaling));
        return true;
    }

    std::vector<double> vector_of(std::string_view name, Index length) const {
        const RawTensor raw = file_.tensor(name);
        if (raw.shape.size() != 1 || raw.count() != length || raw.dtype != DType::f32)
            keys_.refuse(
                fmt::format("tensor '{}' is {} {}, expected {} factors of the rotary "
                            "frequencies in F32",
                            name, raw.dtype_name, text(raw.shape), length));
        std::vector<double> out(std::size_t(raw.count()));
        widen(raw, std::span(out));
        return out;
    }

    /// [LONGROPE]: the decimals that round to what is stored, as configurations have them.
    void read_longrope() {
        const Index turned = Index(keys_.said("rope.dimension_count").is_null()
                                       ? double(keys_.head_columns())
                                       : keys_.number("rope.dimension_count"));
        Json scaling;
        scaling.set("rope_type", "longrope");
        for (const auto& [here, there] :
             {std::pair{short_factors, "short_factor"}, {long_factors, "long_factor"}}) {
            if (!file_.has(here)) keys_.refuse(fmt::format("it lacks tensor '{}'", here));
            Json::Array list;
            for (const double factor : vector_of(here, turned / 2))
                list.emplace_back(std::stod(fmt::format("{}", float(factor))));
            scaling.set(there, std::move(list));
        }
        const double original = keys_.number("rope.scaling.original_context_length"),
                     declared = keys_.number("rope.scaling.attn_factor"),
                     ratio = keys_.number("context_length") / original;
        // In float32 there; where it is the formula's, the family computes it.
        constexpr double rounding = 1e-6;
        const double usual = ratio > 1 ? std::sqrt(1 + std::log(ratio) / std::log(original)) : 1;
        if (!(std::abs(declared - usual) <= rounding * usual))
            scaling.set("attention_factor", declared);
        scaling.set("original_max_position_embeddings", original);
        keys_.config.set("rope_scaling", std::move(scaling));
    }

    /// Llama 3's scaling is stored as the divisors of the frequencies.  They tell its factor; the
    /// other numbers are those of all released models, and the divisors must follow from them.
    void read_factors(Index columns, bool scaled) {
        constexpr double rounding = 1e-5;
        if (scaled)
            keys_.refuse(
                fmt::format("it has tensor '{}' beside another rotary scaling", rotary_factors));
        const std::vector<double> stored = vector_of(rotary_factors, columns / 2);
        if (stored.empty()) keys_.refuse("no column of its heads rotates");
        Rotary plain;
        plain.columns = columns;
        if (!keys_.said("rope.freq_base").is_null()) plain.theta = keys_.number("rope.freq_base");
        Rotary llama3 = plain;
        llama3.scaling = "llama3";
        llama3.factor = *std::ranges::max_element(stored);
        llama3.low_freq_factor = 1;
        llama3.high_freq_factor = 4;
        llama3.original_length = 8192;
        const std::vector<double> before = plain.frequencies(1), after = llama3.frequencies(1);
        for (std::size_t i = 0; i < stored.size(); ++i)
            if (!(std::abs(before[i] / after[i] - stored[i]) <= rounding * stored[i]))
                keys_.refuse(fmt::format(
                    "tensor '{}' divides the rotary frequencies otherwise than the scaling of "
                    "llama3 (from {} to {} of {} tokens), the only one that is supported",
                    rotary_factors, llama3.low_freq_factor, llama3.high_freq_factor,
                    llama3.original_length));
        keys_.config.set("rope_scaling",
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
        for (const auto& [key, value] : file_.metadata().object()) {
            const bool known =
                keys_.was_read(key) || std::ranges::any_of(gguf_harmless, [&](const char* pattern) {
                    return glob(pattern, key);
                });
            const bool changes_nothing = std::ranges::any_of(gguf_neutral, [&](const auto& n) {
                return key == prefix + std::string(n.first) &&
                       equal(value, Json::parse(n.second, "a list"));
            });
            if (!known && !changes_nothing) keys_.config.set(key, value);
        }
    }

    GgufKeys keys_;
    const Checkpoint& file_;
    const GgufDialect& dialect_;
};

/// Names a tensor as the family does, and each of the experts that it stacks.
void add_tensor(Renamed& renamed, const Checkpoint& file, const std::string& name,
                const std::string& there) {
    const std::size_t star = there.find('*');
    if (star == there.npos) {
        const bool gate = there.ends_with("shared_expert_gate.weight");
        return renamed.add(there, {.name = name, .as_row = gate});
    }
    const RawTensor raw = file.tensor(name);
    constexpr Index most_experts = 1 << 14;
    const bool bias = name.ends_with(".bias");
    if (raw.shape.size() != (bias ? 2 : 3) || raw.shape.front() < 1 ||
        raw.shape.front() > most_experts)
        throw FormatError(fmt::format("{}: tensor '{}' is {}, expected a stack of experts' {}",
                                      file.source(), name, text(raw.shape),
                                      bias ? "biases" : "matrices"));
    for (Index expert = 0; expert < raw.shape.front(); ++expert) {
        std::string one = there;
        one.replace(star, 1, std::to_string(expert));
        renamed.add(std::move(one), {.name = name, .slice = expert});
    }
}

}  // namespace

bool is_gguf(const Checkpoint& file) { return file.format().starts_with("gguf"); }

GgufModel::GgufModel(const Checkpoint& file, const DetectOptions& options)
    : dialect_(dialect_of(file)), options_(options) {
    const bool own = options.config.is_null();
    if (own) {
        options_.config = Configuration(file, dialect_).read();
        options_.config_name = "its GGUF metadata";
    }
    renamed_ = std::make_unique<Renamed>(file);
    for (const std::string& name : file.names()) {
        const bool factors =
            name == rotary_factors || name == short_factors || name == long_factors;
        if (own && factors && dialect_.rotation != GgufRotation::none)
            continue;  // the configuration holds it already
        const std::string there = translated(name, dialect_.tensors);
        if (there.empty())
            throw FormatError(fmt::format(
                "{}: tensor '{}' is unknown to architecture {} of GGUF and may change what the "
                "model computes; if it does not, pass --ignore '{}'",
                file.source(), name, dialect_.architecture, name));
        add_tensor(*renamed_, file, name, there);
    }
    if (own && !dialect_.activation_key.empty() && dialect_.activation != "silu")
        assumed_activation_ = dialect_.activation;
}

const Checkpoint& GgufModel::file() const { return *renamed_; }

Architecture GgufModel::restored(Architecture found) const {
    if (!assumed_activation_.empty())
        found.spec.provenance.warnings.push_back(
            fmt::format("The activation is taken for {}, that of the first models of its kind: "
                        "GGUF does not say it",
                        assumed_activation_));
    renamed_->restore(found, dialect_.rotation == GgufRotation::paired);
    for (auto& [canonical, source] : found.tensors) {
        if (dialect_.plus_one) source.plus = 0;
        if (!dialect_.fused_in_parts || source.stride == 0) continue;
        source.first *= source.groups;
        source.length *= source.groups;
        source.groups = 1;
        source.stride = 0;
    }
    return found;
}

}  // namespace tsdiag::families
