#pragma once
#include <array>

#include "engine/names.hpp"
#include "gguf_dialects.hpp"

/// Names of tensors and keys of llama.cpp, and those of the families.
namespace tsdiag::families::gguf {

using Pair = GgufPair;

// --- Tensors

inline constexpr std::array llama_attention{
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
};
inline constexpr std::array ffn_norm{Pair{"blk.*.ffn_norm", "layers.*.post_attention_layernorm"}};
inline constexpr std::array gate_up_down{
    Pair{"blk.*.ffn_gate", "layers.*.mlp.gate_proj"},
    Pair{"blk.*.ffn_up", "layers.*.mlp.up_proj"},
    Pair{"blk.*.ffn_down", "layers.*.mlp.down_proj"},
};
inline constexpr std::array gate_in_up{
    Pair{"blk.*.ffn_up", "layers.*.mlp.gate_up_proj"},
    Pair{"blk.*.ffn_down", "layers.*.mlp.down_proj"},
};
inline constexpr std::array norms_after{
    Pair{"blk.*.post_attention_norm", "layers.*.post_attention_layernorm"},
    Pair{"blk.*.post_ffw_norm", "layers.*.post_feedforward_layernorm"},
};
inline constexpr std::array norm_before_ffn{
    Pair{"blk.*.ffn_norm", "layers.*.pre_feedforward_layernorm"}};
inline constexpr std::array glm4_norms{
    Pair{"blk.*.post_attention_norm", "layers.*.post_self_attn_layernorm"},
    Pair{"blk.*.post_ffw_norm", "layers.*.post_mlp_layernorm"},
};
inline constexpr std::array mixtral_experts{
    Pair{"blk.*.ffn_gate_inp", "layers.*.block_sparse_moe.gate"},
    Pair{"blk.*.ffn_gate_exps", "layers.*.block_sparse_moe.experts.*.w1"},
    Pair{"blk.*.ffn_up_exps", "layers.*.block_sparse_moe.experts.*.w3"},
    Pair{"blk.*.ffn_down_exps", "layers.*.block_sparse_moe.experts.*.w2"},
};
inline constexpr std::array mlp_experts{
    Pair{"blk.*.ffn_gate_inp", "layers.*.mlp.gate"},
    Pair{"blk.*.ffn_gate_exps", "layers.*.mlp.experts.*.gate_proj"},
    Pair{"blk.*.ffn_up_exps", "layers.*.mlp.experts.*.up_proj"},
    Pair{"blk.*.ffn_down_exps", "layers.*.mlp.experts.*.down_proj"},
    Pair{"blk.*.ffn_gate_inp_shexp", "layers.*.mlp.shared_expert_gate"},
    Pair{"blk.*.ffn_gate_shexp", "layers.*.mlp.shared_expert.gate_proj"},
    Pair{"blk.*.ffn_up_shexp", "layers.*.mlp.shared_expert.up_proj"},
    Pair{"blk.*.ffn_down_shexp", "layers.*.mlp.shared_expert.down_proj"},
};
inline constexpr std::array gpt_oss_tensors = both(
    llama_attention, std::array{
                         Pair{"blk.*.attn_sinks.weight", "layers.*.self_attn.sinks"},
                         Pair{"blk.*.post_attention_norm", "layers.*.post_attention_layernorm"},
                         Pair{"blk.*.ffn_gate_inp", "layers.*.mlp.router"},
                         Pair{"blk.*.ffn_gate_exps", "layers.*.mlp.experts.*.gate_proj"},
                         Pair{"blk.*.ffn_up_exps", "layers.*.mlp.experts.*.up_proj"},
                         Pair{"blk.*.ffn_down_exps", "layers.*.mlp.experts.*.down_proj"},
                     });
inline constexpr std::array llama_tensors = both(both(llama_attention, ffn_norm), gate_up_down);
inline constexpr std::array mixtral_tensors =
    both(both(llama_attention, ffn_norm), mixtral_experts);
inline constexpr std::array mixture_tensors = both(both(llama_attention, ffn_norm), mlp_experts);
inline constexpr std::array olmo2_tensors = both(both(llama_attention, norms_after), gate_up_down);
inline constexpr std::array gemma2_tensors = both(olmo2_tensors, norm_before_ffn);
inline constexpr std::array glm4_tensors =
    both(both(both(llama_attention, ffn_norm), glm4_norms), gate_in_up);
inline constexpr std::array phi3_tensors =
    both(both(both(llama_attention, ffn_norm), gate_in_up),
         std::array{Pair{"blk.*.attn_qkv", "layers.*.self_attn.qkv_proj"}});
inline constexpr std::array phi2_tensors{
    Pair{"token_embd", "embed_tokens"},
    Pair{"output_norm", "final_layernorm"},
    Pair{"output", "lm_head"},
    Pair{"blk.*.attn_norm", "layers.*.input_layernorm"},
    Pair{"blk.*.attn_q", "layers.*.self_attn.q_proj"},
    Pair{"blk.*.attn_k", "layers.*.self_attn.k_proj"},
    Pair{"blk.*.attn_v", "layers.*.self_attn.v_proj"},
    Pair{"blk.*.attn_output", "layers.*.self_attn.dense"},
    Pair{"blk.*.ffn_up", "layers.*.mlp.fc1"},
    Pair{"blk.*.ffn_down", "layers.*.mlp.fc2"},
};
inline constexpr std::array gpt2_tensors{
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
inline constexpr std::array neox_tensors{
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
inline constexpr std::array bloom_layers{
    Pair{"token_embd", "word_embeddings"},
    Pair{"output_norm", "ln_f"},
    Pair{"output", "lm_head"},
    Pair{"blk.*.attn_qkv", "h.*.self_attention.query_key_value"},
    Pair{"blk.*.attn_output", "h.*.self_attention.dense"},
    Pair{"blk.*.ffn_up", "h.*.mlp.dense_h_to_4h"},
    Pair{"blk.*.ffn_down", "h.*.mlp.dense_4h_to_h"},
};
inline constexpr std::array bloom_tensors =
    both(bloom_layers, std::array{Pair{"token_embd_norm", "word_embeddings_layernorm"},
                                  Pair{"blk.*.attn_norm", "h.*.input_layernorm"},
                                  Pair{"blk.*.ffn_norm", "h.*.post_attention_layernorm"}});
/// The norm of the feed-forward is `attn_norm`, and that of the attention where it has its own
/// `attn_norm_2`.
inline constexpr std::array falcon_tensors =
    both(bloom_layers, std::array{Pair{"blk.*.attn_norm", "h.*.input_layernorm"}});
inline constexpr std::array falcon_two_norms = both(
    bloom_layers,
    std::array{Pair{"blk.*.attn_norm", "h.*.ln_mlp"}, Pair{"blk.*.attn_norm_2", "h.*.ln_attn"}});
inline constexpr std::array mpt_tensors{
    Pair{"token_embd", "wte"},
    Pair{"output_norm", "norm_f"},
    Pair{"output", "lm_head"},
    Pair{"blk.*.attn_norm", "blocks.*.norm_1"},
    Pair{"blk.*.attn_qkv", "blocks.*.attn.Wqkv"},
    Pair{"blk.*.attn_output", "blocks.*.attn.out_proj"},
    Pair{"blk.*.ffn_norm", "blocks.*.norm_2"},
    Pair{"blk.*.ffn_up", "blocks.*.ffn.up_proj"},
    Pair{"blk.*.ffn_down", "blocks.*.ffn.down_proj"},
};

inline constexpr std::array bert_tensors{
    Pair{"token_embd", "embeddings.word_embeddings"},
    Pair{"position_embd", "embeddings.position_embeddings"},
    Pair{"token_types", "embeddings.token_type_embeddings"},
    Pair{"token_embd_norm", "embeddings.LayerNorm"},
    Pair{"blk.*.attn_q", "encoder.layer.*.attention.self.query"},
    Pair{"blk.*.attn_k", "encoder.layer.*.attention.self.key"},
    Pair{"blk.*.attn_v", "encoder.layer.*.attention.self.value"},
    Pair{"blk.*.attn_output", "encoder.layer.*.attention.output.dense"},
    Pair{"blk.*.attn_output_norm", "encoder.layer.*.attention.output.LayerNorm"},
    Pair{"blk.*.ffn_up", "encoder.layer.*.intermediate.dense"},
    Pair{"blk.*.ffn_down", "encoder.layer.*.output.dense"},
    Pair{"blk.*.layer_output_norm", "encoder.layer.*.output.LayerNorm"},
};
inline constexpr std::array distilbert_tensors{
    Pair{"token_embd", "embeddings.word_embeddings"},
    Pair{"position_embd", "embeddings.position_embeddings"},
    Pair{"token_embd_norm", "embeddings.LayerNorm"},
    Pair{"blk.*.attn_q", "transformer.layer.*.attention.q_lin"},
    Pair{"blk.*.attn_k", "transformer.layer.*.attention.k_lin"},
    Pair{"blk.*.attn_v", "transformer.layer.*.attention.v_lin"},
    Pair{"blk.*.attn_output", "transformer.layer.*.attention.out_lin"},
    Pair{"blk.*.attn_output_norm", "transformer.layer.*.sa_layer_norm"},
    Pair{"blk.*.ffn_up", "transformer.layer.*.ffn.lin1"},
    Pair{"blk.*.ffn_down", "transformer.layer.*.ffn.lin2"},
    Pair{"blk.*.layer_output_norm", "transformer.layer.*.output_layer_norm"},
};

// --- Keys behind "ARCHITECTURE."

inline constexpr std::array sizes{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "num_hidden_layers"},
    Pair{"feed_forward_length", "intermediate_size"},
    Pair{"attention.head_count", "num_attention_heads"},
    Pair{"attention.head_count_kv", "num_key_value_heads"},
    Pair{"rope.freq_base", "rope_theta"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array head_dim{Pair{"attention.key_length", "head_dim"}};
inline constexpr std::array rms_eps{Pair{"attention.layer_norm_rms_epsilon", "rms_norm_eps"}};
inline constexpr std::array layer_eps{Pair{"attention.layer_norm_epsilon", "layer_norm_eps"}};
inline constexpr std::array short_llama_keys = both(sizes, rms_eps);
inline constexpr std::array llama_keys = both(short_llama_keys, head_dim);
inline constexpr std::array layer_norm_keys = both(sizes, layer_eps);
inline constexpr std::array cohere_keys =
    both(both(layer_norm_keys, head_dim), std::array{Pair{"logit_scale", "logit_scale"}});
inline constexpr std::array gemma2_keys =
    both(llama_keys, std::array{Pair{"attn_logit_softcapping", "attn_logit_softcapping"},
                                Pair{"final_logit_softcapping", "final_logit_softcapping"}});
inline constexpr std::array gemma3_keys =
    both(llama_keys, std::array{Pair{"final_logit_softcapping", "final_logit_softcapping"},
                                Pair{"rope.freq_base_swa", "rope_local_base_freq"}});
inline constexpr std::array granite_keys =
    both(short_llama_keys, std::array{Pair{"embedding_scale", "embedding_multiplier"},
                                      Pair{"residual_scale", "residual_multiplier"},
                                      Pair{"logit_scale", "logits_scaling"}});
inline constexpr std::array chosen{Pair{"expert_used_count", "num_experts_per_tok"}};
inline constexpr std::array mixtral_keys =
    both(both(llama_keys, chosen), std::array{Pair{"expert_count", "num_local_experts"}});
/// The width of an expert is in two keys, of which a file may have one.
inline constexpr std::array gpt_oss_keys =
    both(mixtral_keys, std::array{Pair{"expert_feed_forward_length", "intermediate_size"}});
inline constexpr std::array olmoe_keys =
    both(both(short_llama_keys, chosen), std::array{Pair{"expert_count", "num_experts"}});
inline constexpr std::array qwen3moe_keys =
    both(both(olmoe_keys, head_dim),
         std::array{Pair{"expert_feed_forward_length", "moe_intermediate_size"}});
inline constexpr std::array qwen2moe_keys =
    both(olmoe_keys,
         std::array{Pair{"expert_feed_forward_length", "moe_intermediate_size"},
                    Pair{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}});
inline constexpr std::array gpt2_keys{
    Pair{"context_length", "n_positions"},
    Pair{"embedding_length", "n_embd"},
    Pair{"block_count", "n_layer"},
    Pair{"feed_forward_length", "n_inner"},
    Pair{"attention.head_count", "n_head"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array neox_keys{
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
inline constexpr std::array falcon_keys{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "num_hidden_layers"},
    Pair{"feed_forward_length", "ffn_hidden_size"},
    Pair{"attention.head_count", "num_attention_heads"},
    Pair{"attention.head_count_kv", "num_kv_heads"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    Pair{"rope.freq_base", "rope_theta"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array bloom_keys{
    Pair{"context_length", "seq_length"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "n_layer"},
    Pair{"feed_forward_length", "n_inner"},
    Pair{"attention.head_count", "n_head"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array bert_keys{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "hidden_size"},
    Pair{"block_count", "num_hidden_layers"},
    Pair{"feed_forward_length", "intermediate_size"},
    Pair{"attention.head_count", "num_attention_heads"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_eps"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array distilbert_keys{
    Pair{"context_length", "max_position_embeddings"},
    Pair{"embedding_length", "dim"},
    Pair{"block_count", "n_layers"},
    Pair{"feed_forward_length", "hidden_dim"},
    Pair{"attention.head_count", "n_heads"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_eps"},
    Pair{"vocab_size", "vocab_size"},
};
inline constexpr std::array mpt_keys{
    Pair{"context_length", "max_seq_len"},
    Pair{"embedding_length", "d_model"},
    Pair{"block_count", "n_layers"},
    Pair{"attention.head_count", "n_heads"},
    Pair{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    Pair{"vocab_size", "vocab_size"},
};

}  // namespace tsdiag::families::gguf
