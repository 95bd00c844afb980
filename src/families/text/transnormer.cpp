#include "transnormer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tsdiag::families::transnormer {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embed_tokens.weight"},
    NamePair{"embed.position", "embed_positions.weight"},
    NamePair{"embed.norm", "layernorm_embedding"},
    NamePair{"layer.*.norm1", "layers.*.self_attn_layer_norm"},
    NamePair{"layer.*.attn.q", "layers.*.self_attn.q_proj"},
    NamePair{"layer.*.attn.k", "layers.*.self_attn.k_proj"},
    NamePair{"layer.*.attn.v", "layers.*.self_attn.v_proj"},
    NamePair{"layer.*.attn.lrpe.theta", "layers.*.self_attn.urpe.theta", Form::leading_one},
    NamePair{"layer.*.attn.lrpe.v", "layers.*.self_attn.urpe.v"},
    NamePair{"layer.*.attn.o", "layers.*.self_attn.out_proj"},
    NamePair{"layer.*.norm2", "layers.*.final_layer_norm"},
    NamePair{"layer.*.ffn.gate", "layers.*.glu.l1"},
    NamePair{"layer.*.ffn.up", "layers.*.glu.l2"},
    NamePair{"layer.*.ffn.down", "layers.*.glu.l3"},
    NamePair{"final_norm", "layer_norm"},
};
constexpr std::string_view anchor = "layers.0.self_attn.q_proj.weight";
constexpr std::array marks{"layers.0.self_attn.urpe.theta", "layers.0.self_attn.urpe.v",
                           "layers.0.glu.l2.weight"};

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"transnormer"})) return *declared;
    return prefix_of(file, anchor) && std::ranges::any_of(marks, [&](std::string_view mark) {
               return prefix_of(file, mark).has_value();
           });
}

/// fairseq saves training arguments in the file: `cfg.model`, formerly `args`.
void use_saved_arguments(Reader& r, const Json& metadata) {
    if (!r.config().is_null()) return;
    if (metadata["cfg"]["model"].is_object())
        return r.use_config(metadata["cfg"]["model"], "cfg", true);
    if (metadata["args"].is_object()) r.use_config(metadata["args"], "args", true);
}

bool has_word(const Json& value, std::string_view part) {
    return value.is_string() && value.string().find(part) != std::string::npos;
}

/// T1 and T2 have the same tensors: the architecture's name, or its defining keys, must be given.
void read_variant(Reader& r, Transnormer& kind) {
    const auto named = [&](std::string_view part) {
        return has_word(r.value({"arch"}), part) || has_word(r.value({"_name"}), part);
    };
    const bool one = named("_t1"), two = named("_t2");
    if (one && two)
        r.refuse(fmt::format("{} calls it both TransNormer T1 and T2", r.config_source()));
    if (!one && !two &&
        (!r.value({"use_softmax"}).is_bool() || !r.value({"linear_act_fun"}).is_string()))
        r.ask(
            "TransNormer T1 and T2 have the same tensors, and neither the file nor a configuration "
            "distinguishes them; put {\"arch\": \"transnormer_t1\"} (or _t2) into a config.json "
            "next to it, or pass --config FILE");
    kind.softmax = r.flag({"use_softmax"}, two);
    const std::string map = r.word({"linear_act_fun"}, two ? "1+elu" : "elu");
    if (map != "elu" && map != "1+elu" && map != "relu")
        r.refuse(fmt::format("linear_act_fun '{}' is not supported (elu, 1+elu, relu are)", map));
    kind.linear_map = map == "elu"     ? Unary::elu
                      : map == "1+elu" ? Unary::elu_plus_one
                                       : Unary::relu;
    if (const std::string act = r.word({"local_act_fun"}, "relu"); act != "relu")
        r.refuse(fmt::format("local_act_fun '{}' is not supported (relu is)", act));
}

/// The activation behind the word that the architectures use.
Unary glu_activation(Reader& r) {
    const std::string said = r.word({"glu_act"}, "swish");
    if (said == "identity" || said == "none" || said == "None") return Unary::copy;
    if (said == "swish")
        r.spec.provenance.warnings.emplace_back(
            "glu_act 'swish' is computed as SiLU, as in the paper; the repository's code since "
            "2022-10-28 treats it as identity (use \"glu_act\": \"identity\" for that)");
    if (const auto op = activation_named(said)) return *op;
    r.refuse(
        fmt::format("glu_act '{}' is not supported (swish, silu, identity, relu, gelu are)", said));
}

void refuse_others(const Reader& r) {
    for (const char* part : {"layer_norm", "norm", "gated_rms_norm", "gated_rms_norm.g"})
        for (const char* end : {".weight", ".scale", ".g", ""})
            if (const std::string name = fmt::format("layers.0.self_attn.{}{}", part, end);
                r.has(name))
                r.refuse(
                    fmt::format("tensor '{}{}' is the weight of a norm inside the attention, "
                                "which is not supported; simplermsnorm, without weights, is",
                                r.prefix(), name));
    if (r.has("layers.0.encoder_attn.q_proj.weight"))
        r.refuse("its layers also attend to an encoder; only self-attention is supported");
    for (const char* key : {"norm_type", "local_norm_type"})
        if (const Json& said = r.value({key}); said.is_string() && said.string() != "simplermsnorm")
            r.refuse(
                fmt::format("{} '{}' is not supported (simplermsnorm is)", key, said.string()));
}

/// From the vector of the reflection, else from the frequencies, two columns each.
Index head_width(Reader& r, Index inner, std::string_view heads) {
    const std::string mirror = "layers.0.self_attn.urpe.v", theta = "layers.0.self_attn.urpe.theta";
    if (r.has(mirror)) return r.extent(mirror, 0);
    if (r.has(theta)) return 2 * r.extent(theta, -1);
    return inner / r.heads({heads, "heads"}, inner, anchor);
}

void read_heads(Reader& r, BlockSpec& b, bool language) {
    AttentionSpec& a = b.attention;
    const Index inner = r.extent(std::string(anchor), 0);
    const std::string_view heads = language ? "decoder_attention_heads" : "encoder_attention_heads";
    a.head_dim = head_width(r, inner, heads);
    if (a.head_dim < 1 || inner % a.head_dim != 0)
        r.refuse(fmt::format("heads of {} columns do not match queries of {}", a.head_dim, inner));
    a.heads = a.kv_heads = r.agreed({heads, "heads"}, inner / a.head_dim, anchor);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string theta = "layers.0.self_attn.urpe.theta";
    a.rotary.reflected = r.has("layers.0.self_attn.urpe.v");
    a.rotary.learned = r.has(theta);
    if (!a.rotary.reflected && !a.rotary.learned) return;
    a.rotary.interleaved = true;
    a.rotary.columns = a.rotary.learned ? 2 * r.extent(theta, -1) : a.head_dim / 2 * 2;
    if (a.rotary.columns > a.head_dim)
        r.refuse(fmt::format("{} frequencies of LRPE rotate {} columns, but a head has {}",
                             a.rotary.columns / 2, a.rotary.columns, a.head_dim));
    if (!a.rotary.learned) r.assume("LRPE frequencies = 10000^(-2i/d)");
}

void read_embedding(Reader& r, bool language) {
    ModelSpec& s = r.spec;
    for (const char* key : {"no_token_positional_embeddings", "max_target_positions",
                            "layernorm_embedding", "no_decoder_final_norm", "padded_chunks"})
        r.value({key});  // ignored: implied by a tensor or the kind of model
    const std::string token = "embed_tokens.weight", position = "embed_positions.weight";
    s.embedding.vocabulary = r.extent(token, 0);
    s.width = s.embedding.width =
        r.agreed({language ? "decoder_embed_dim" : "encoder_embed_dim"}, r.extent(token, 1), token);
    const bool plain = r.flag({"no_scale_embedding"}, !language);
    s.embedding.scale = plain ? 1 : std::sqrt(double(s.width));
    s.embedding.padding_id = r.count({"padding_idx"}, 1);
    s.embedding.position_offset = s.embedding.padding_id + 1;
    if (r.has(position)) {
        s.embedding.positions = Positions::learned;
        s.embedding.max_tokens = r.extent(position, 0) - s.embedding.position_offset;
        if (s.embedding.max_tokens < 1)
            r.refuse("its position table is not longer than the padding id");
    } else if (!language && !equal(r.value({"no_token_positional_embeddings"}), true)) {
        r.extent(position, 0);  // the masked model has a table by default
    } else if (!r.flag({"no_token_positional_embeddings"}, false)) {
        s.embedding.positions = Positions::fairseq;
        if (r.value({"max_target_positions"}).is_number())
            s.embedding.max_tokens = r.count({"max_target_positions"}, 0);
    }
    const bool weights = r.has("layernorm_embedding.weight");
    s.embedding.norm = weights || r.flag({"layernorm_embedding"}, !language);
    s.embedding.norm_kind = weights ? NormKind::layer : NormKind::simple_rms;
}

void read_norms(Reader& r, BlockSpec& b, bool language) {
    b.norm.kind =
        r.has("layers.0.self_attn_layer_norm.weight") ? NormKind::layer : NormKind::simple_rms;
    if (b.norm.kind == NormKind::simple_rms) r.assume("norms without weights = simplermsnorm");
    const bool before =
        r.flag({language ? "decoder_normalize_before" : "encoder_normalize_before"}, language);
    b.placement = before ? NormPlacement::pre : NormPlacement::post;
    const bool weights = r.has("layer_norm.weight");
    r.spec.final_norm = weights || (before && !r.flag({"no_decoder_final_norm"}, false));
    r.spec.final_norm_kind = weights ? NormKind::layer : NormKind::simple_rms;
}

/// 2: chunks, 1: NormAttention; by default the first half of the layers has chunks.
std::vector<bool> early_layers(Reader& r, Index layers, bool language) {
    std::vector<bool> out;
    const Json& said = r.value({language ? "decoder_attention_types" : "encoder_attention_types"});
    if (!said.is_array()) {
        for (Index l = 0; l < layers; ++l) out.push_back(l < layers / 2);
        r.assume(
            fmt::format("attention in chunks in the first {} of {} layers, NormAttention after "
                        "them (the halves of [DEVIL])",
                        layers / 2, layers));
        return out;
    }
    for (const Json& type : said.array()) {
        if (!type.is_number() || (type.number() != 1 && type.number() != 2))
            r.refuse(
                fmt::format("unknown attention type {}, expected 1 (NormAttention) or 2 (chunks)",
                            type.dump()));
        out.push_back(type.number() == 2);
    }
    if (std::ssize(out) != layers)
        r.refuse(fmt::format("its configuration has the attention of {} layers, but it has {}",
                             out.size(), layers));
    return out;
}

/// The file may store the vector of the reflection as (1, w, 1).
void accept_older_shape(const Reader& r, Names& names) {
    if (!r.has("layers.0.self_attn.urpe.v") || r.rank("layers.0.self_attn.urpe.v") == 1) return;
    for (auto& [canonical, source] : names)
        if (canonical.ends_with("lrpe.v"))
            source.shape = {1, r.spec.blocks.front().attention.head_dim, 1};
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "transnormer");
    use_saved_arguments(r, file.metadata());
    r.find_prefix(anchor);
    refuse_others(r);
    Transnormer kind;
    kind.language = !r.prefix().ends_with("sentence_encoder.");
    read_variant(r, kind);
    read_embedding(r, kind.language);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    a.causal = kind.language;
    read_heads(r, b, kind.language);
    read_norms(r, b, kind.language);
    const std::string_view chunk = kind.language ? "decoder_chunk_size" : "encoder_chunk_size";
    kind.block = r.count({chunk, "chunk_size"}, 64);
    if (kind.block < 1) r.refuse("a chunk of 0 positions");
    if (!kind.language && kind.softmax) kind.padded = r.flag({"padded_chunks"}, true);
    a.qkv_bias = r.has("layers.0.self_attn.q_proj.bias");
    a.out_bias = r.has("layers.0.self_attn.out_proj.bias");
    b.ffn.width = r.extent("layers.0.glu.l2.weight", 0);
    b.ffn.bias = r.has("layers.0.glu.l2.bias");
    b.ffn.gated = r.part({"glu"}, "layers.0.glu.l1.weight");
    b.ffn.activation = glu_activation(r);
    const Index layers = r.layers("layers.");
    r.agreed({kind.language ? "decoder_layers" : "encoder_layers"}, layers, "layers.*");
    for (const bool early : early_layers(r, layers, kind.language)) {
        r.spec.blocks.push_back(b);
        set_transnormer_attention(r.spec.blocks.back(), kind, early);
    }
    Names names = translate(r.spec, pairs);
    accept_older_shape(r, names);
    return r.finish(std::move(names), {"*lm_head.*", "output_projection.*", "*.version", "version",
                                       "embed_positions._float_tensor", "*classification_heads.*",
                                       "*sentence_projection_layer.*"});
}

Names names(const ModelSpec& spec) {
    Names out = translate(spec, pairs);
    const char* prefix =
        spec.embedding.positions == Positions::fairseq ? "decoder." : "encoder.sentence_encoder.";
    for (auto& [canonical, source] : out) source.file_name = prefix + source.file_name;
    return out;
}

}  // namespace

extern const ArchitectureEntry transnormer = {
    "transnormer",
    "TransNormer",
    "TransNormer: chunks, then NormAttention; LRPE, gated feed-forward",
    matches,
    read,
    draw_transnormer,
    transnormer_random_names,
    names,
    transnormer_config};

}  // namespace tsdiag::families::transnormer
