#include <fmt/format.h>

#include <array>
#include <cmath>

#include "bert_names.hpp"
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// MPNet: BERT without types, with positions that skip padding and biases of distances that all
/// layers share.  [MPNET]
namespace tsdiag::families::mpnet {
namespace {

constexpr std::array pairs =
    both(std::array{NamePair{"layer.*.attn.q", "encoder.layer.*.attention.attn.q"},
                    NamePair{"layer.*.attn.k", "encoder.layer.*.attention.attn.k"},
                    NamePair{"layer.*.attn.v", "encoder.layer.*.attention.attn.v"},
                    NamePair{"layer.*.attn.relative", "encoder.relative_attention_bias.weight"},
                    NamePair{"layer.*.attn.o", "encoder.layer.*.attention.attn.o"},
                    NamePair{"layer.*.norm1", "encoder.layer.*.attention.LayerNorm"}},
         bert_pairs);
constexpr std::string_view anchor = "encoder.layer.0.attention.attn.q.weight";
constexpr Index padding = 1;   // whatever the configuration says
constexpr Index buckets = 32;  // likewise

Names names(const ModelSpec& spec) { return translate(spec, pairs); }

bool matches(const Checkpoint& file, const Json& config) {
    return by_model_type(config, {"mpnet"}).value_or(prefix_of(file, anchor).has_value());
}

/// The first layer holds the biases of all.
void share_biases(ModelSpec& s) {
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        AttentionSpec& a = s.blocks[l].attention;
        if (l == 0)
            a.own = {{"relative", {1, buckets, a.heads}}};
        else
            a.own_of = 0;
    }
    s.embedding.positions = Positions::learned;
    s.embedding.padding_id = padding;
    s.embedding.position_offset = padding + 1;
    s.embedding.norm = true;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "mpnet");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    const std::string words = "embeddings.word_embeddings.weight",
                      positions = "embeddings.position_embeddings.weight",
                      biases = "encoder.relative_attention_bias.weight", query(anchor),
                      up = "encoder.layer.0.intermediate.dense.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(words, 1), words);
    s.embedding.max_tokens =
        r.agreed({"max_position_embeddings"}, r.extent(positions, 0), positions) - (padding + 1);
    if (s.embedding.max_tokens < 1)
        r.refuse("its position table is not longer than the padding id");
    if (r.agreed({"relative_attention_num_buckets"}, r.extent(biases, 0), biases) != buckets)
        r.refuse(fmt::format("tensor '{}{}' has {} rows, expected {} classes of distances",
                             r.prefix(), biases, r.extent(biases, 0), buckets));
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const Index inner = r.extent(query, 0);
    a.variant = "bucketed";
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-12);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    s.blocks.assign(std::size_t(layers), b);
    share_biases(s);
    return r.finish(names(s),
                    {"*position_ids", "pooler.*", "lm_head.*", "classifier*", "qa_outputs.*"});
}

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.eps = 1e-5;
    preset.vocab = 30527;
    preset.attention = "bucketed";
    const Sizes sizes = read_sizes(k, preset);
    k.finish();
    for (const LayerAttention& layer : sizes.attentions)
        if (layer.variant != "bucketed" || !layer.options.empty())
            k.refuse(fmt::format("unsupported attention {}, expected bucketed", layer.variant));
    ModelSpec s = token_model("mpnet", sizes, block(sizes));
    share_biases(s);
    return drawn(
        std::move(s),
        [](const Parameter& p) {
            Draw law = normal_law(p, 0.02, padding);
            if (p.name == "embed.position") law.zero_row = padding;
            return law;
        },
        "weights N(0, 0.02^2), biases 0, norms 1 and 0, padding rows 0");
}

std::vector<std::string_view> random_names() { return {"mpnet-base"}; }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"MPNetModel"}).set("model_type", "mpnet");
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("max_position_embeddings", s.embedding.position_rows())
        .set("vocab_size", s.embedding.vocabulary);
    out.set("relative_attention_num_buckets", buckets).set("pad_token_id", padding);
    return out.set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry mpnet = {
    "mpnet",      "MPNet", "MPNet: BERT with biases of distances that all layers share",
    matches,      read,    draw,
    random_names, names,   config};

}  // namespace tsdiag::families::mpnet
