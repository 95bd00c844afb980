#include <fmt/format.h>

#include <array>
#include <cmath>

#include "draw.hpp"
#include "reader.hpp"

/// BERT, RoBERTa, BigBird, DistilBERT: post-norm encoders with learned positions.
namespace tsdiag::families::bert {
namespace {

constexpr std::array bert_pairs{
    NamePair{"embed.token", "embeddings.word_embeddings.weight"},
    NamePair{"embed.position", "embeddings.position_embeddings.weight"},
    NamePair{"embed.type", "embeddings.token_type_embeddings.weight"},
    NamePair{"embed.norm", "embeddings.LayerNorm"},
    NamePair{"layer.*.attn.q", "encoder.layer.*.attention.self.query"},
    NamePair{"layer.*.attn.k", "encoder.layer.*.attention.self.key"},
    NamePair{"layer.*.attn.v", "encoder.layer.*.attention.self.value"},
    NamePair{"layer.*.attn.o", "encoder.layer.*.attention.output.dense"},
    NamePair{"layer.*.norm1", "encoder.layer.*.attention.output.LayerNorm"},
    NamePair{"layer.*.ffn.up", "encoder.layer.*.intermediate.dense"},
    NamePair{"layer.*.ffn.down", "encoder.layer.*.output.dense"},
    NamePair{"layer.*.norm2", "encoder.layer.*.output.LayerNorm"},
};

constexpr std::array distilbert_pairs{
    NamePair{"embed.token", "embeddings.word_embeddings.weight"},
    NamePair{"embed.position", "embeddings.position_embeddings.weight"},
    NamePair{"embed.norm", "embeddings.LayerNorm"},
    NamePair{"layer.*.attn.q", "transformer.layer.*.attention.q_lin"},
    NamePair{"layer.*.attn.k", "transformer.layer.*.attention.k_lin"},
    NamePair{"layer.*.attn.v", "transformer.layer.*.attention.v_lin"},
    NamePair{"layer.*.attn.o", "transformer.layer.*.attention.out_lin"},
    NamePair{"layer.*.norm1", "transformer.layer.*.sa_layer_norm"},
    NamePair{"layer.*.ffn.up", "transformer.layer.*.ffn.lin1"},
    NamePair{"layer.*.ffn.down", "transformer.layer.*.ffn.lin2"},
    NamePair{"layer.*.norm2", "transformer.layer.*.output_layer_norm"},
};

Names bert_names(const ModelSpec& spec) { return translate(spec, bert_pairs); }
Names distilbert_names(const ModelSpec& spec) { return translate(spec, distilbert_pairs); }

constexpr std::string_view bert_anchor = "encoder.layer.0.attention.self.query.weight";
constexpr std::string_view distilbert_anchor = "transformer.layer.0.attention.q_lin.weight";

/// Without a config: one row of types, or its prefix, indicates RoBERTa.
bool looks_like_roberta(const Checkpoint& file) {
    const auto prefix = prefix_of(file, bert_anchor);
    if (!prefix) return false;
    if (prefix->ends_with("roberta.")) return true;
    const std::string types = *prefix + "embeddings.token_type_embeddings.weight";
    return file.has(types) && file.tensor(types).shape.size() == 2 &&
           file.tensor(types).shape[0] == 1;
}

bool matches_bert(const Checkpoint& file, const Json& config) {
    if (const auto told = by_model_type(config, {"bert"})) return *told;
    return prefix_of(file, bert_anchor) && !looks_like_roberta(file);
}
bool matches_roberta(const Checkpoint& file, const Json& config) {
    if (const auto told = by_model_type(config, {"roberta", "xlm-roberta", "camembert"}))
        return *told;
    return looks_like_roberta(file);
}
/// Its tensors have BERT's names: only a configuration identifies it.
bool matches_big_bird(const Checkpoint&, const Json& config) {
    return by_model_type(config, {"big_bird"}).value_or(false);
}
bool matches_distilbert(const Checkpoint& file, const Json& config) {
    if (const auto told = by_model_type(config, {"distilbert"})) return *told;
    return prefix_of(file, distilbert_anchor).has_value();
}

/// Embeddings: [word + position (+ type)] and a norm.
void read_embeddings(Reader& r, Words width_keys) {
    ModelSpec& s = r.spec;
    s.vocabulary = r.agreed({"vocab_size"}, r.extent("embeddings.word_embeddings.weight", 0),
                            "embeddings.word_embeddings.weight");
    s.width = s.embedding_width =
        r.agreed(width_keys, r.extent("embeddings.word_embeddings.weight", 1),
                 "embeddings.word_embeddings.weight");
    s.positions = Positions::learned;
    const std::string positions = "embeddings.position_embeddings.weight";
    s.max_tokens = r.agreed({"max_position_embeddings"}, r.extent(positions, 0), positions);
    s.embedding_norm = true;
}

/// As the library runs in evaluation mode: no random blocks; the first block is repeated.
void read_blocks(Reader& r, AttentionSpec& a) {
    const Json& type = r.value({"attention_type"});
    const Index block = r.count({"block_size"}, 64), random = r.count({"num_random_blocks"}, 3);
    a.qkv_bias = r.flag({"use_bias"}, true);
    if (r.flag({"rescale_embeddings"}, false))
        r.spec.embedding_scale = std::sqrt(double(r.spec.width));
    if (equal(type, "original_full")) return;
    r.only({"attention_type"}, "block_sparse");
    r.only({"is_decoder"}, false);
    constexpr Index most = 1'000'000;
    if (block > most || random > most)
        r.refuse(fmt::format("blocks of {} tokens, {} of them random: more than {}", block, random,
                             most));
    const Index full = (5 + 2 * random) * block;
    a.variant = "bigbird";
    a.options = {{"block", std::to_string(block)},
                 {"random", std::to_string(random)},
                 {"choice", "first"},
                 {"full", std::to_string(full)}};
    r.saw(fmt::format(
        "blocks of {} tokens, the first counted {} times instead of random ones, as the library "
        "does outside training; full attention for samples of up to {} tokens",
        block, random + 1, full));
}

Architecture read_bert_like(const Checkpoint& file, const DetectOptions& options,
                            std::string_view family) {
    const bool roberta = family == "roberta", big_bird = family == "big_bird";
    Reader r(file, options, family);
    r.find_prefix(bert_anchor);
    r.only({"position_embedding_type"}, "absolute");
    read_embeddings(r, {"hidden_size"});
    ModelSpec& s = r.spec;
    const std::string types = "embeddings.token_type_embeddings.weight";
    s.token_types = true;
    s.type_rows = r.agreed({"type_vocab_size"}, r.extent(types, 0), types);
    if (roberta) {
        s.padding_id = r.count({"pad_token_id"}, 1);
        s.position_offset = s.padding_id + 1;
        s.max_tokens -= s.position_offset;
        if (s.max_tokens < 1) r.refuse("its position table is not longer than the padding id");
    }
    const std::string layer = "encoder.layer.0.";
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const std::string query = layer + "attention.self.query.weight";
    const Index inner = r.extent(query, 0);
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = layer + "intermediate.dense.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, roberta ? 1e-5 : 1e-12);
    b.ffn.activation = r.activation({"hidden_act"}, big_bird ? "gelu_new" : "gelu");
    a.causal = r.flag({"is_decoder"}, false);
    if (big_bird) read_blocks(r, a);
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    s.blocks.assign(std::size_t(layers), b);
    Names names = bert_names(s);
    r.accept_gamma_beta(names);
    return r.finish(std::move(names),
                    {"*position_ids", "embeddings.token_type_ids", "pooler.*", "cls.*",
                     "classifier*", "qa_outputs.*", "qa_classifier.*", "lm_head.*"});
}

Architecture read_bert(const Checkpoint& file, const DetectOptions& options) {
    return read_bert_like(file, options, "bert");
}
Architecture read_roberta(const Checkpoint& file, const DetectOptions& options) {
    return read_bert_like(file, options, "roberta");
}
Architecture read_big_bird(const Checkpoint& file, const DetectOptions& options) {
    return read_bert_like(file, options, "big_bird");
}

Architecture read_distilbert(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "distilbert");
    r.find_prefix(distilbert_anchor);
    r.only({"is_decoder"}, false);
    read_embeddings(r, {"dim"});
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const std::string query = "transformer.layer.0.attention.q_lin.weight";
    const Index inner = r.extent(query, 0);
    a.heads = a.kv_heads = r.heads({"n_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = "transformer.layer.0.ffn.lin1.weight";
    b.ffn.width = r.agreed({"hidden_dim"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-12);
    b.ffn.activation = r.activation({"activation"}, "gelu");
    const Index layers = r.layers("transformer.layer.");
    r.agreed({"n_layers"}, layers, "transformer.layer.*");
    r.spec.blocks.assign(std::size_t(layers), b);
    return r.finish(distilbert_names(r.spec),
                    {"*position_ids", "vocab_*", "classifier*", "pre_classifier*", "qa_outputs.*"});
}

RandomModel draw_bert(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    const bool roberta = name.starts_with("roberta"), distilled = name.starts_with("distilbert");
    Sizes preset;
    preset.eps = roberta ? 1e-5 : 1e-12;
    if (roberta) preset.vocab = 50265;
    if (distilled) preset.layers = 6;
    if (name.ends_with("large")) {
        preset.layers = 24;
        preset.d = 1024;
        preset.heads = 16;
        preset.ffn = 4096;
    }
    const Sizes sizes = read_sizes(k, preset);
    k.finish();
    ModelSpec s = token_model(distilled ? "distilbert"
                              : roberta ? "roberta"
                                        : "bert",
                              sizes, block(sizes));
    s.positions = Positions::learned;
    s.embedding_norm = true;
    s.token_types = !distilled;
    s.type_rows = roberta ? 1 : 2;
    const Index padding = roberta ? 1 : 0;
    if (roberta) {
        s.padding_id = padding;
        s.position_offset = padding + 1;
    }
    return drawn(
        std::move(s),
        [&](const Parameter& p) {
            Draw law = normal_law(p, 0.02, padding);
            if (roberta && p.name == "embed.position") law.zero_row = padding;
            return law;
        },
        "weights N(0, 0.02^2), biases 0, norms 1 and 0, padding rows 0");
}

std::vector<std::string_view> bert_random() { return {"bert-base", "bert-large"}; }
std::vector<std::string_view> roberta_random() { return {"roberta-base", "roberta-large"}; }
std::vector<std::string_view> distilbert_random() { return {"distilbert-base"}; }

Json bert_config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const bool roberta = s.family == "roberta";
    Json out;
    out.set("architectures", Json::Array{roberta ? "RobertaModel" : "BertModel"});
    out.set("model_type", s.family).set("hidden_size", s.width);
    out.set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("max_position_embeddings", s.position_rows()).set("vocab_size", s.vocabulary);
    out.set("type_vocab_size", s.type_rows).set("pad_token_id", roberta ? s.padding_id : 0);
    if (b.attention.causal) out.set("is_decoder", true);
    return out.set("position_embedding_type", "absolute").set("initializer_range", 0.02);
}

Json distilbert_config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"DistilBertModel"}).set("model_type", s.family);
    out.set("dim", s.width).set("n_layers", Index(s.blocks.size()));
    out.set("n_heads", b.attention.heads).set("hidden_dim", b.ffn.width);
    out.set("activation", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("sinusoidal_pos_embds", false);
    out.set("max_position_embeddings", s.position_rows()).set("vocab_size", s.vocabulary);
    return out.set("pad_token_id", 0).set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry bert = {
    "bert",       "BERT",     "BERT: post-norm encoder, learned positions",
    matches_bert, read_bert,  draw_bert,
    bert_random,  bert_names, bert_config};
extern const ArchitectureEntry roberta = {
    "roberta",       "RoBERTa",    "RoBERTa: BERT with positions that skip padding",
    matches_roberta, read_roberta, draw_bert,
    roberta_random,  bert_names,   bert_config};
extern const ArchitectureEntry big_bird = {"big_bird", "BigBird",
                                           "BigBird: BERT with block-sparse attention",
                                           matches_big_bird, read_big_bird};
extern const ArchitectureEntry distilbert = {
    "distilbert",       "DistilBERT",     "DistilBERT: BERT without token types",
    matches_distilbert, read_distilbert,  draw_bert,
    distilbert_random,  distilbert_names, distilbert_config};

}  // namespace tsdiag::families::bert
