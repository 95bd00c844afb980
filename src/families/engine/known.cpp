#include "known.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "names.hpp"

namespace tsdiag::families {
namespace {

/// '*' stands for any characters.
constexpr std::array indices{"*position_ids", "*token_type_ids", "*num_batches_tracked"};
/// Triangles of ones, (1, 1, n, n), and the value of masked logits.
constexpr std::array masks{"*attn.bias", "*attention.bias"};
constexpr std::array masked_values{"*attn.masked_bias", "*attention.masked_bias"};

/// Modules after the last hidden state, under the names of libraries and users.
constexpr std::array head_modules{
    "cls",         "*classifier*", "*head",    "*heads",      "head_*",    "score",
    "scorer",      "qa_outputs",   "pooler*",  "predictions", "vocab_*",   "fc",
    "fc_*",        "fc1",          "fc2",      "linear",      "dense",     "out",
    "output",      "regressor",    "logits*",  "to_logits",   "embed_out", "*projection",
    "*criterion*", "*loss*",       "*metric*", "logit_scale"};

/// Keys that no forward pass in evaluation mode reads.
constexpr std::array harmless{
    // Origin of the model, names of its heads and tokens.
    "model_type", "architectures", "_name_or_path", "name_or_path", "_commit_hash",
    "transformers_version", "transformers.js_config", "unsloth_*", "custom_pipelines", "license",
    "library_name", "language", "tags", "finetuning_task", "task_specific_params", "id2label",
    "label2id", "num_labels", "_num_labels", "num_classes", "problem_type", "prefix",
    "is_llama_config", "*_token_id", "*_token_ids", "bos_token", "eos_token", "pad_token",
    "unk_token", "sep_token", "cls_token", "mask_token", "tokenizer_*", "predict_special_tokens",
    // Storage and execution: hidden states do not depend on them.
    "torch_dtype", "dtype", "torchscript", "use_bfloat16", "bf16", "fp16", "fp32", "tf_legacy_loss",
    "xla_device", "return_dict", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "use_cache", "cache_implementation",
    "keys_to_ignore_at_inference", "_attn_implementation*", "attn_implementation",
    "_flash_attn_2_enabled", "use_flash_attn*", "use_flash_attention*", "flash_attn*",
    "use_memory_efficient_attention", "gradient_checkpointing*", "use_gradient_checkpointing",
    "chunk_size_feed_forward", "pretraining_tp", "reorder_and_upcast_attn", "onnx_safe",
    "batch_first",
    // Training: dropout of all kinds, initialisation and weight tying.
    "*dropout*", "*_pdrop", "drop_path*", "initializer_*", "init_std", "_fast_init", "tie_weights_",
    "tie_word_embeddings", "tie_encoder_decoder", "sinusoidal_pos_embds", "label_smoothing*",
    "feature_redraw_interval", "auto_check_redraw", "generator_size",
    // Modules after the last hidden state: poolers, classifiers, summaries.
    "pooler_*", "pool", "summary_*", "classifier_*", "use_mean_pooling", "use_mask_token",
    // Images: preprocessing before the model.
    "encoder_stride", "pretrained_cfg", "label_names", "label_descriptions", "global_pool",
    "feature_extractor_type", "image_processor_type",
    // Generation.
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "remove_invalid_values", "suppress_tokens",
    "begin_suppress_tokens", "exponential_decay_length_penalty",
    // BERT's first files: the only value that ever existed.
    "directionality"};

/// Keys that change the computation, with the values at which they do not.
constexpr std::array<std::pair<std::string_view, std::string_view>, 25> neutral{{
    {"pruned_heads", "{}"},
    {"layers_to_keep", "[]"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"use_mrope", "false"},
    {"rope_interleaved", "false"},
    {"rope_interleave", "false"},
    {"alibi", "false"},
    {"qk_layernorm", "false"},
    {"use_qk_norm", "false"},
    {"use_relative_position_bias", "false"},
    {"use_shared_relative_position_bias", "false"},
    {"use_absolute_position_embeddings", "true"},
    {"num_memory_blocks", "0"},
    {"layer_scale_init_value", "0"},
    {"net_structure_type", "0"},
    {"gap_size", "0"},
    {"down_scale_factor", "1"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"logits_scaling", "1"},
    {"attention_sink", "false"},
    {"use_sinks", "false"},
    {"use_bidirectional_attention", "false"},
    {"num_nextn_predict_layers", "0"},
}};

/// Custom code that only preprocesses text and pixels.
bool is_preprocessing(const Json& map) {
    return map.is_object() && std::ranges::all_of(map.object(), [](const auto& member) {
               const std::string& name = member.first;
               return name == "AutoTokenizer" || name == "AutoProcessor" ||
                      name == "AutoImageProcessor" || name == "AutoFeatureExtractor";
           });
}

template <std::size_t n>
bool any(const std::array<const char*, n>& patterns, std::string_view name) {
    return std::ranges::any_of(patterns, [&](const char* p) { return glob(p, name); });
}

}  // namespace

bool is_buffer(std::string_view name, const RawTensor& tensor) {
    const std::size_t rank = tensor.shape.size();
    return any(indices, name) || (any(masks, name) && rank == 4) ||
           (any(masked_values, name) && tensor.count() == 1);
}

bool is_head(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('.'));
    return any(head_modules, first) && name.find("lora") == name.npos &&
           name.find("adapter") == name.npos;
}

bool is_frequencies(std::string_view name) { return glob("*rotary_emb.inv_freq", name); }

bool is_harmless(std::string_view key, const Json& value) {
    if (value.is_null()) return true;  // as if the key were absent
    if (any(harmless, key)) return true;
    if (key == "auto_map") return is_preprocessing(value);
    const auto found = std::ranges::find(neutral, key, &decltype(neutral)::value_type::first);
    return found != neutral.end() && equal(value, Json::parse(found->second, "a list"));
}

}  // namespace tsdiag::families

namespace tsdiag {

bool changes_no_state(std::string_view key, const Json& value) {
    return families::is_harmless(key, value);
}

}  // namespace tsdiag
