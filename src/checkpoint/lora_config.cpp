#include "lora_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "bytes.hpp"
#include "module_pattern.hpp"
#include "said.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::checkpoint {
namespace {

/// Read here.
constexpr std::array<std::string_view, 16> read_keys = {
    "peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "lora_bias", "rank_pattern", "bias",
    "alpha_pattern", "fan_in_fan_out", "init_lora_weights",
    // Which modules.
    "modules_to_save", "target_modules", "layers_pattern", "exclude_modules",
    "layers_to_transform"};
/// Of no effect on a model that is not trained on: where it is from, how it began, how it was run.
constexpr std::array<std::string_view, 14> harmless_keys = {
    "base_model_name_or_path", "revision", "auto_mapping", "peft_version", "task_type",
    "inference_mode", "lora_dropout", "runtime_config",
    // How it began.
    "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    // How it was run.
    "megatron_core", "qalora_group_size"};
/// Another model than W + s B A, unless they are absent, null, false or empty.
constexpr std::array<std::string_view, 14> other_models = {
    "use_qalora",     "use_bdlora",           "trainable_token_indices", "layer_replication",
    "arrow_config",   "kasa_config",          "alora_invocation_tokens", "target_parameters",
    "velora_config",  "megatron_config",      "monteclora_config",       "ensure_weight_tying",
    "modules_to_tie", "target_modules_to_tie"};

constexpr std::string_view merge_first =
    "Merge it with its model in PEFT (merge_and_unload) and save the result.";

template <std::size_t n>
bool is_among(const std::array<std::string_view, n>& keys, std::string_view key) {
    return std::ranges::find(keys, key) != keys.end();
}

bool says_nothing(const Json& value) {
    return is_false(value) || (value.is_array() && value.array().empty()) || is_empty(value) ||
           (value.is_string() && value.string().empty());
}

/// The whole names or their ends behind a dot.
bool ends_in(std::string_view module, std::string_view key) {
    return module == key || (module.size() > key.size() && module.ends_with(key) &&
                             module[module.size() - key.size() - 1] == '.');
}

/// PEFT: re.match(rf".*\.{list}\.(\d+)\.", module), of no list r".*\.[^.]*\.(\d+)\.": the last that
/// fits.
std::optional<std::int64_t> layer_behind(const std::string& list, const std::string& module) {
    const std::string before = list.empty() ? "." : "." + list + ".";
    for (std::size_t end = module.size(), at; end > 0; end = at) {
        at = module.rfind(before, end - 1);
        if (at == module.npos || (list.empty() && module.find('.') == at)) break;
        const std::size_t begin = at + before.size(), dot = module.find('.', begin);
        const std::string number = module.substr(begin, dot - begin);
        if (dot != module.npos && !number.empty() && number.size() < 10 &&
            number.find_first_not_of("0123456789") == number.npos)
            return std::stoll(number);
    }
    return std::nullopt;
}

bool are_texts(const Json& list) {
    return list.is_array() &&
           std::ranges::all_of(list.array(), [](const Json& one) { return one.is_string(); });
}

/// 0: it is no rank.  What an adapter is read with is of its size.
std::int64_t rank_in(const Json& value) {
    constexpr std::int64_t most = 1 << 16;
    return positive(value) <= most ? positive(value) : 0;
}

std::string as_short(const Json& value) { return shortened(value.dump(), 60); }

}  // namespace

void LoraConfig::refuse_key(std::string_view key, const Json& value,
                            std::string_view expected) const {
    refuse(where_, fmt::format("says {} = {}, expected {}. {}", key, as_short(value), expected,
                               merge_first));
}

LoraConfig::LoraConfig(const Json& config, std::string where) : where_(std::move(where)) {
    const Json& type = config["peft_type"];
    if (!type.is_string())
        refuse(where_,
               "has no peft_type, expected the adapter_config.json of a LoRA adapter. "
               "Download it again.");
    if (type.string() != "LORA")
        refuse(where_, fmt::format("is of an adapter of the kind {}, expected LORA (LoRA, rsLoRA, "
                                   "DoRA). {}",
                                   as_short(type), merge_first));
    require_known(config);
    rank_ = rank_in(config["r"]);
    if (rank_ == 0) refuse_key("r", config["r"], "a rank from 1 to 65536");
    if (!config["lora_alpha"].is_number())
        refuse_key("lora_alpha", config["lora_alpha"], "a number");
    alpha_ = config["lora_alpha"].number();
    const auto flag = [&](std::string_view key) {
        if (!is_false(config[key]) && !is_true(config[key]))
            refuse_key(key, config[key], "true or false");
        return is_true(config[key]);
    };
    rank_stabilised_ = flag("use_rslora");
    dora_ = flag("use_dora");
    lora_bias_ = flag("lora_bias");
    if (lora_bias_ && dora_)
        refuse_key("lora_bias", config["lora_bias"], "false beside use_dora, as in PEFT");
    fan_in_fan_out_ = flag("fan_in_fan_out");
    if (!is_one_of(config["bias"], {"none", "all", "lora_only"}))
        refuse_key("bias", config["bias"], "none, all or lora_only");
    if (config["bias"].is_string()) bias_ = config["bias"].string();
    read_patterns(config);
}

void LoraConfig::require_known(const Json& config) const {
    for (const auto& [key, value] : config.object()) {
        if (is_among(read_keys, key) || is_among(harmless_keys, key)) continue;
        if (says_nothing(value) && is_among(other_models, key)) continue;
        if (is_among(other_models, key)) refuse_key(key, value, "none: it makes another model");
        if (!value.is_null())
            refuse(where_, fmt::format("has the key {} = {}, which is not known and may change "
                                       "numbers. {}",
                                       key, as_short(value), merge_first));
    }
    // These begin by changing the weights of the model, which are not the ones that it is saved as.
    const Json& begun = config["init_lora_weights"];
    const bool plain =
        begun.is_null() || begun.is_bool() || is_one_of(begun, {"gaussian", "eva", "orthogonal"});
    if (!plain)
        refuse_key("init_lora_weights", begun,
                   "a beginning that leaves the weights of the model as they are");
}

void LoraConfig::read_patterns(const Json& config) {
    const auto each = [&](std::string_view key, auto take) {
        const Json& patterns = config[key];
        if (patterns.is_null()) return;
        if (!patterns.is_object()) refuse_key(key, patterns, "an object of modules");
        for (const auto& [pattern, value] : patterns.object()) take(pattern, value);
    };
    each("rank_pattern", [&](const std::string& pattern, const Json& value) {
        if (rank_in(value) == 0) refuse_key("rank_pattern", value, "ranks from 1 to 65536");
        ranks_.emplace_back(pattern, rank_in(value));
    });
    each("alpha_pattern", [&](const std::string& pattern, const Json& value) {
        if (!value.is_number()) refuse_key("alpha_pattern", value, "numbers");
        alphas_.emplace_back(pattern, value.number());
    });
    const Json& saved = config["modules_to_save"];
    if (!saved.is_null() && !are_texts(saved))
        refuse_key("modules_to_save", saved, "a list of modules");
    if (saved.is_array())
        for (const Json& module : saved.array()) saved_.push_back(module.string());
    targets_ = config["target_modules"];
    excluded_ = config["exclude_modules"];
    for (const char* key : {"target_modules", "exclude_modules", "layers_pattern"})
        if (const Json& value = config[key];
            !value.is_null() && !value.is_string() && !are_texts(value))
            refuse_key(key, value, "a list of modules, or an expression");
    layers_ = config["layers_to_transform"];
    const auto is_layer = [](const Json& value) { return value.is_integer(); };
    if (!layers_.is_null() && !is_layer(layers_) &&
        !(layers_.is_array() && std::ranges::all_of(layers_.array(), is_layer)))
        refuse_key("layers_to_transform", layers_, "layers");
    layer_names_ = config["layers_pattern"];
}

template <class T>
T LoraConfig::of_pattern(const std::vector<std::pair<std::string, T>>& patterns,
                         const std::string& module, T usual, std::string_view key) const {
    for (const auto& [pattern, value] : patterns) {
        const auto fits = matches_whole(fmt::format("(.*\\.)?({})$", pattern), module);
        if (!fits)
            refuse(where_,
                   fmt::format("has '{}' in {}, an expression that is not understood. Write "
                               "the names of its modules in its place.",
                               pattern, key));
        if (*fits) return value;
    }
    return usual;
}

std::int64_t LoraConfig::rank_of(const std::string& module) const {
    return of_pattern(ranks_, module, rank_, "rank_pattern");
}

double LoraConfig::alpha_of(const std::string& module) const {
    return of_pattern(alphas_, module, alpha_, "alpha_pattern");
}

double LoraConfig::scale_of(const std::string& module) const {
    const auto rank = double(rank_of(module));
    return alpha_of(module) / (rank_stabilised_ ? std::sqrt(rank) : rank);
}

std::string LoraConfig::kind() const {
    return fmt::format("{}{}", rank_stabilised_ ? "rs" : "", dora_ ? "DoRA" : "LoRA");
}

std::optional<bool> LoraConfig::in_layers(const std::string& module) const {
    if (layers_.is_null() || (layers_.is_array() && layers_.array().empty())) return true;
    std::vector<std::string> lists_of_layers;
    if (layer_names_.is_array())
        for (const Json& one : layer_names_.array()) lists_of_layers.push_back(one.string());
    if (layer_names_.is_string()) lists_of_layers.push_back(layer_names_.string());
    if (lists_of_layers.empty()) lists_of_layers.emplace_back();
    for (const std::string& list : lists_of_layers) {
        const bool is_name = std::ranges::all_of(
            list, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
        if (!is_name) return std::nullopt;
        const auto layer = layer_behind(list, module);
        if (!layer) continue;
        const auto is_it = [&](const Json& one) { return one.integer() == *layer; };
        return layers_.is_array() ? std::ranges::any_of(layers_.array(), is_it) : is_it(layers_);
    }
    return false;
}

std::optional<bool> LoraConfig::targets(const std::string& module) const {
    const auto any_ends = [&](const Json& list) {
        return std::ranges::any_of(list.array(),
                                   [&](const Json& one) { return ends_in(module, one.string()); });
    };
    if (excluded_.is_string() && !excluded_.string().empty()) {
        const auto excluded = matches_whole(excluded_.string(), module);
        if (!excluded) return std::nullopt;
        if (*excluded) return false;
    } else if (excluded_.is_array() && any_ends(excluded_)) {
        return false;
    }
    if (targets_.is_null()) return std::nullopt;
    if (targets_.is_array()) {
        const auto is_it = [&](const Json& one) { return one.string() == module; };
        if (std::ranges::any_of(targets_.array(), is_it)) return true;  // of any layer
        return any_ends(targets_) ? in_layers(module) : false;
    }
    if (targets_.string() == "all-linear") return std::nullopt;
    return matches_whole(targets_.string(), module);
}

std::string LoraConfig::saved_module(std::string_view name) const {
    for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
        for (const std::string& saved : saved_)
            if (!saved.empty() && name.substr(0, dot).ends_with(saved))
                return std::string(name.substr(0, dot));
    return {};
}

}  // namespace tsdiag::checkpoint
