#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "layouts.hpp"
#include "tsdiag/error.hpp"

/// OpenAI's own files of gpt-oss (`original/` of the published models): names of their code, q, k
/// and v one below the other, maps of experts (experts, out, in).
namespace tsdiag::families {
namespace {

constexpr std::string_view own_queries = "block.0.attn.qkv.weight",
                           own_sinks = "block.0.attn.sinks", own_block = "block.";

bool is_own_gpt_oss(const Checkpoint& file) { return file.has(own_queries) && file.has(own_sinks); }

/// A stem in OpenAI's files and in those of the family; '*' is the layer.
struct OwnPair {
    std::string_view here, there;
};
constexpr std::array own_pairs{
    OwnPair{"embedding.weight", "embed_tokens.weight"},
    OwnPair{"norm.scale", "norm.weight"},
    OwnPair{"unembedding.weight", "lm_head.weight"},
    OwnPair{"block.*.attn.norm.scale", "layers.*.input_layernorm.weight"},
    OwnPair{"block.*.attn.out.weight", "layers.*.self_attn.o_proj.weight"},
    OwnPair{"block.*.attn.out.bias", "layers.*.self_attn.o_proj.bias"},
    OwnPair{"block.*.attn.sinks", "layers.*.self_attn.sinks"},
    OwnPair{"block.*.mlp.norm.scale", "layers.*.post_attention_layernorm.weight"},
    OwnPair{"block.*.mlp.gate.weight", "layers.*.mlp.router.weight"},
    OwnPair{"block.*.mlp.gate.bias", "layers.*.mlp.router.bias"},
    OwnPair{"block.*.mlp.mlp1_weight", "layers.*.mlp.experts.gate_up_proj"},
    OwnPair{"block.*.mlp.mlp1_bias", "layers.*.mlp.experts.gate_up_proj_bias"},
    OwnPair{"block.*.mlp.mlp2_weight", "layers.*.mlp.experts.down_proj"},
    OwnPair{"block.*.mlp.mlp2_bias", "layers.*.mlp.experts.down_proj_bias"},
};

/// `name` with '*' for its layer, which `layer` receives.
std::string without_layer(std::string name, std::string& layer) {
    if (!name.starts_with(own_block)) return name;
    const std::size_t dot = name.find('.', own_block.size());
    if (dot == name.npos) return name;
    layer = name.substr(own_block.size(), dot - own_block.size());
    return name.replace(own_block.size(), layer.size(), "*");
}

/// The rows of queries, keys and values.
std::array<Index, 3> rows_of_heads(const Checkpoint& file, const Json& config) {
    const auto count = [&](const char* key) {
        if (!config[key].is_integer() || config[key].integer() < 1)
            throw FormatError(
                fmt::format("{}: OpenAI's files of gpt-oss need {} in the config.json beside them",
                            file.source(), key));
        return config[key].integer();
    };
    const Index columns = count("head_dim"), keys = merged(count("num_key_value_heads"), columns);
    return {merged(count("num_attention_heads"), columns), keys, keys};
}

/// The keys of OpenAI's configuration under those of the family.
void rename_keys(const Checkpoint& file, Json& config) {
    if (!config.is_object()) config = Json::Object();
    const auto take = [&](const char* key) {
        const Json said = config[key];
        Json::Object kept = config.object();
        std::erase_if(kept, [&](const auto& member) { return member.first == key; });
        config = std::move(kept);
        return said;
    };
    if (config["model_type"].is_null()) config.set("model_type", "gpt_oss");
    if (!config["num_experts"].is_null()) config.set("num_local_experts", take("num_experts"));
    if (!config["experts_per_token"].is_null() && config["num_experts_per_tok"].is_null())
        config.set("num_experts_per_tok", take("experts_per_token"));
    if (config["rope_scaling_factor"].is_null()) return;
    const Json factor = take("rope_scaling_factor"), fast = take("rope_ntk_beta"),
               slow = take("rope_ntk_alpha"), before = config["initial_context_length"];
    for (const Json* number : {&factor, &fast, &slow, &before})
        if (!number->is_number())
            throw FormatError(fmt::format(
                "{}: OpenAI's files of gpt-oss need the numbers rope_scaling_factor, "
                "rope_ntk_alpha, "
                "rope_ntk_beta and initial_context_length in the config.json beside them",
                file.source()));
    Json rope;
    if (factor.number() > 1) {
        rope.set("rope_type", "yarn").set("factor", factor).set("truncate", false);
        rope.set("beta_fast", fast).set("beta_slow", slow);
        rope.set("original_max_position_embeddings", before);
        if (config["max_position_embeddings"].is_null())
            config.set("max_position_embeddings", Index(factor.number() * before.number()));
    } else {
        rope.set("rope_type", "default");
    }
    config.set("rope_scaling", std::move(rope));
}

std::string rename_own_gpt_oss(const Checkpoint& file, Relabelled& out, Json& config) {
    rename_keys(file, config);
    const std::array<Index, 3> rows = rows_of_heads(file, config);
    constexpr std::array parts{"q_proj", "k_proj", "v_proj"};
    for (const std::string& name : file.names()) {
        std::string layer;
        const std::string pattern = without_layer(name, layer);
        const bool weight = pattern == "block.*.attn.qkv.weight";
        if (weight || pattern == "block.*.attn.qkv.bias") {
            Index first = 0;
            for (std::size_t i = 0; i < parts.size(); ++i) {
                out.add(fmt::format("layers.{}.self_attn.{}.{}", layer, parts[i],
                                    weight ? "weight" : "bias"),
                        name, {.first = first, .length = rows[i]});
                first += rows[i];
            }
            if (const RawTensor raw = file.tensor(name);
                raw.shape.empty() || raw.shape.front() != first)
                throw FormatError(
                    fmt::format("{}: tensor '{}' is {}, expected {} rows of queries, keys and "
                                "values",
                                file.source(), name, text(raw.shape), first));
            continue;
        }
        const auto known = std::ranges::find(own_pairs, pattern, &OwnPair::here);
        if (known == own_pairs.end()) {
            out.add(name, name);  // refused by the family
            continue;
        }
        std::string there(known->there);
        if (const std::size_t star = there.find('*'); star != there.npos)
            there.replace(star, 1, layer);
        const bool map = pattern.ends_with("mlp1_weight") || pattern.ends_with("mlp2_weight");
        out.add(std::move(there), name, map ? View{.axes = {0, 2, 1}} : View{});
    }
    return "names and layouts of OpenAI's own files of gpt-oss, read as those of Hugging Face";
}

}  // namespace

const Layout gpt_oss_names = {"OpenAI's own gpt-oss", is_own_gpt_oss, rename_own_gpt_oss};

}  // namespace tsdiag::families
