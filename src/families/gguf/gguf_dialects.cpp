#include "gguf_dialects.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/names.hpp"
#include "gguf_tables.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families::gguf {
namespace {

// --- Keys of one family

/// The window, and the layers that have it: all but every `period`-th, or as listed.
void read_windows(GgufKeys& k, Index period) {
    const Json& pattern = k.said("attention.sliding_window_pattern");
    const Json& window = k.said("attention.sliding_window");
    if (!window.is_null()) k.config.set("sliding_window", window);
    const double layers = k.number("block_count");
    constexpr double most_layers = 1 << 16;
    if (layers > most_layers) k.refuse(fmt::format("its block_count is {}", layers));
    if (pattern.is_integer()) period = pattern.integer();
    const bool listed = pattern.is_array();
    if (period < 1 || (!pattern.is_null() && !pattern.is_integer() && !listed) ||
        (listed && double(pattern.array().size()) != layers))
        k.refuse(
            fmt::format("its attention.sliding_window_pattern is {}, expected a period or a "
                        "list of {} layers",
                        pattern.dump(), layers));
    const bool none = equal(window, Json(0));
    Json::Array types;
    for (Index l = 0; l < Index(layers); ++l) {
        bool slides = (l + 1) % period != 0;
        if (listed) {
            const Json& one = pattern.array()[std::size_t(l)];
            slides = equal(one, Json(true)) || equal(one, Json(1));
        }
        types.emplace_back(slides && !none ? "sliding_attention" : "full_attention");
    }
    k.config.set("layer_types", std::move(types));
}

/// The scale of queries is in no key: by the number of layers, as llama.cpp has it, that of the
/// largest model is the share of a head in the width, others the columns of a head.
void read_gemma_scale(GgufKeys& k, double layers_of_largest) {
    const bool largest = k.number("block_count") == layers_of_largest;
    k.config.set("query_pre_attn_scalar", largest ? std::floor(k.number("embedding_length") /
                                                               k.number("attention.head_count"))
                                                  : double(k.head_columns()));
}
void read_gemma2(GgufKeys& k) {
    read_gemma_scale(k, 46);
    read_windows(k, 2);
}
void read_gemma3(GgufKeys& k) {
    read_gemma_scale(k, 62);
    const bool slides = !k.said("attention.sliding_window").is_null();
    read_windows(k, slides ? 6 : 1);
    if (!slides) k.config.set("sliding_window", 0);
}
void read_cohere2(GgufKeys& k) { read_windows(k, 4); }
/// 0 is Phi-4's, of no window; files without the key were written before it was known.
void read_phi3(GgufKeys& k) {
    const Json& window = k.said("attention.sliding_window");
    if (window.is_null()) k.refuse("its metadata lack 'phi3.attention.sliding_window'");
    k.config.set("sliding_window", equal(window, Json(0)) ? Json() : window);
}
/// `finetuned` false means no rotation at all.
void read_granite(GgufKeys& k) {
    k.number("logit_scale");
    k.only("rope.scaling.finetuned", true);
    k.config.set("attention_multiplier", k.number("attention.scale"));
}
/// The multipliers as the family has them, of the model's own sizes.
void read_minicpm(GgufKeys& k) {
    k.config.set("scale_emb", k.number("embedding_scale"))
        .set("scale_depth", k.number("residual_scale") * std::sqrt(k.number("block_count")))
        .set("dim_model_base", k.number("embedding_length") / k.number("logit_scale"));
}
/// The tensors tell whether feed-forward and attention are in parallel; the key is true in files
/// where they are not.
void read_stablelm(GgufKeys& k) {
    k.said("use_parallel_residual");
    k.config.set("use_parallel_residual", !k.file().has("blk.0.ffn_norm.weight"));
}
void read_olmo(GgufKeys& k) { k.only("attention.layer_norm_epsilon", 1e-5); }
void read_mixtral(GgufKeys& k) {
    k.only("expert_weights_norm", true);
    k.config.set("sliding_window", Json());
}
/// Whether the weights of the chosen experts are renormalised is the architecture's.
void read_unnormed(GgufKeys& k) {
    k.only("expert_weights_norm", false);
    k.config.set("norm_topk_prob", false);
}
void read_normed(GgufKeys& k) {
    k.only("expert_weights_norm", true);
    k.config.set("norm_topk_prob", true);
}
/// The converter writes no `truncate`; that of the models is false.
void read_gpt_oss(GgufKeys& k) {
    read_windows(k, 2);
    k.only("expert_weights_norm", true);
    k.only("expert_gating_func", 3);  // softmax of the chosen
    if (const Json& width = k.said("feed_forward_length"); !width.is_null())
        k.only("expert_feed_forward_length", width);
    k.only("rope.freq_base_swa", k.said("rope.freq_base"));
    if (Json scaling = k.config["rope_scaling"]; scaling.is_object())
        k.config.set("rope_scaling", scaling.set("truncate", false));
}
void read_starcoder(GgufKeys& k) { k.config.set("multi_query", true); }
void read_falcon(GgufKeys& k) {
    k.only("tensor_data_layout", "jploski");
    const bool two = k.file().has("blk.0.attn_norm_2.weight");
    const double kv = k.number("attention.head_count_kv");
    k.config.set("new_decoder_architecture", two || kv > 1);
    k.config.set("multi_query", kv == 1).set("num_ln_in_parallel_attn", two ? 2 : 1);
}
void read_mpt(GgufKeys& k) {
    k.said("feed_forward_length");  // the tensors say it
    const Json& bias = k.said("attention.max_alibi_bias");
    const bool alibi = bias.is_number() && bias.number() > 0;
    Json attention;
    attention.set("alibi", alibi);
    if (alibi) attention.set("alibi_bias_max", bias);
    k.config.set("attn_config", std::move(attention)).set("no_bias", true);
}
void read_bloom(GgufKeys& k) { k.only("attention.max_alibi_bias", 8); }
void read_bert(GgufKeys& k) {
    k.only("attention.causal", false);
    k.said("pooling_type");  // of what is done with the last states
}

bool has_experts(const Checkpoint& file) { return file.has("blk.0.ffn_gate_inp.weight"); }
/// DistilBERT has no types, of which its converter counts one.
bool has_types(const Checkpoint& file) {
    return file.has("token_types.weight") ||
           !equal(file.metadata()["tokenizer.ggml.token_type_count"], Json(1));
}
bool has_two_norms(const Checkpoint& file) { return file.has("blk.0.attn_norm_2.weight"); }

constexpr std::string_view rms = "attention.layer_norm_rms_epsilon",
                           layer_norm = "attention.layer_norm_epsilon";
constexpr std::string_view act = "hidden_act", gelu = "gelu_pytorch_tanh";
constexpr GgufRotation none = GgufRotation::none, stored = GgufRotation::as_stored,
                       paired = GgufRotation::paired;

constexpr GgufDialect falcon(std::span<const GgufPair> tensors, bool (*owns)(const Checkpoint&)) {
    return {.architecture = "falcon",
            .model_type = "falcon",
            .tensors = tensors,
            .keys = falcon_keys,
            .epsilon = layer_norm,
            .activation_key = "activation",
            .activation = "gelu",
            .rotation = stored,
            .more = read_falcon,
            .owns = owns,
            .fused_in_parts = true,
            .share_key = ""};
}

/// Activations are those of the original models: GGUF does not say them.
constexpr std::array dialects{
    GgufDialect{"llama", "mixtral", mixtral_tensors, mixtral_keys, rms, act, "silu", paired,
                read_mixtral, has_experts},
    GgufDialect{"llama", "llama", llama_tensors, llama_keys, rms, act, "silu", paired},
    GgufDialect{"smollm3", "smollm3", llama_tensors, llama_keys, rms, act, "silu", paired},
    GgufDialect{"minicpm", "minicpm", llama_tensors, short_llama_keys, rms, act, "silu", paired,
                read_minicpm},
    GgufDialect{"internlm2", "llama", llama_tensors, llama_keys, rms, act, "silu", paired},
    GgufDialect{"qwen2", "qwen2", llama_tensors, llama_keys, rms, act, "silu"},
    GgufDialect{"qwen3", "qwen3", llama_tensors, llama_keys, rms, act, "silu"},
    GgufDialect{"qwen2moe", "qwen2_moe", mixture_tensors, qwen2moe_keys, rms, act, "silu", stored,
                read_unnormed},
    GgufDialect{"qwen3moe", "qwen3_moe", mixture_tensors, qwen3moe_keys, rms, act, "silu", stored,
                read_normed},
    GgufDialect{"olmoe", "olmoe", mixture_tensors, olmoe_keys, rms, act, "silu", stored,
                read_unnormed},
    GgufDialect{"gpt-oss", "gpt_oss", gpt_oss_tensors, gpt_oss_keys, rms, act, "silu", stored,
                read_gpt_oss},
    GgufDialect{"olmo", "olmo", llama_tensors, sizes, layer_norm, act, "silu", paired, read_olmo},
    GgufDialect{"olmo2", "olmo2", olmo2_tensors, short_llama_keys, rms, act, "silu"},
    GgufDialect{.architecture = "gemma",
                .model_type = "gemma",
                .tensors = llama_tensors,
                .keys = llama_keys,
                .epsilon = rms,
                .plus_one = true},
    GgufDialect{.architecture = "gemma2",
                .model_type = "gemma2",
                .tensors = gemma2_tensors,
                .keys = gemma2_keys,
                .epsilon = rms,
                .more = read_gemma2,
                .plus_one = true},
    GgufDialect{.architecture = "gemma3",
                .model_type = "gemma3_text",
                .tensors = gemma2_tensors,
                .keys = gemma3_keys,
                .epsilon = rms,
                .more = read_gemma3,
                .plus_one = true},
    GgufDialect{"phi2", "phi", phi2_tensors, layer_norm_keys, layer_norm, act, "gelu_new"},
    GgufDialect{"phi3", "phi3", phi3_tensors, short_llama_keys, rms, act, "silu", stored,
                read_phi3},
    GgufDialect{"granite", "granite", llama_tensors, granite_keys, rms, act, "silu", paired,
                read_granite},
    GgufDialect{"stablelm", "stablelm", llama_tensors, layer_norm_keys, layer_norm, act, "silu",
                stored, read_stablelm},
    GgufDialect{"command-r", "cohere", llama_tensors, cohere_keys, layer_norm, act, "silu"},
    GgufDialect{"cohere2", "cohere2", llama_tensors, cohere_keys, layer_norm, act, "silu", stored,
                read_cohere2},
    GgufDialect{"glm4", "glm4", glm4_tensors, llama_keys, rms, act, "silu"},
    GgufDialect{"gpt2", "gpt2", gpt2_tensors, gpt2_keys, layer_norm, "activation_function",
                "gelu_new", none},
    GgufDialect{.architecture = "starcoder",
                .model_type = "gpt_bigcode",
                .tensors = gpt2_tensors,
                .keys = gpt2_keys,
                .epsilon = layer_norm,
                .activation_key = "activation_function",
                .activation = gelu,
                .rotation = none,
                .more = read_starcoder,
                .key_heads = 1},
    GgufDialect{.architecture = "gptneox",
                .model_type = "gpt_neox",
                .tensors = neox_tensors,
                .keys = neox_keys,
                .epsilon = layer_norm,
                .activation_key = act,
                .activation = "gelu",
                .rotation = stored,
                .fused_in_parts = true,
                .share_key = "rotary_pct"},
    falcon(falcon_two_norms, has_two_norms),
    falcon(falcon_tensors, nullptr),
    GgufDialect{.architecture = "bloom",
                .model_type = "bloom",
                .tensors = bloom_tensors,
                .keys = bloom_keys,
                .epsilon = layer_norm,
                .activation_key = "",
                .activation = "gelu_pytorch_tanh",
                .rotation = none,
                .more = read_bloom,
                .fused_in_parts = true},
    GgufDialect{"mpt", "mpt", mpt_tensors, mpt_keys, layer_norm, "", "gelu", none, read_mpt},
    GgufDialect{"bert", "bert", bert_tensors, bert_keys, layer_norm, act, "gelu", none, read_bert,
                has_types},
    GgufDialect{"bert", "distilbert", distilbert_tensors, distilbert_keys, layer_norm, "activation",
                "gelu", none, read_bert},
};

}  // namespace

}  // namespace tsdiag::families::gguf

namespace tsdiag::families {
std::span<const GgufDialect> gguf_dialects() { return gguf::dialects; }
}  // namespace tsdiag::families
