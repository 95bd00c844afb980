#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// ALBERT: layers share the parameters of their group, embeddings are narrower than the model.
/// A group holds `inner_group_num` sub-layers, each of which counts as a layer here.
namespace tsdiag::families::albert {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embeddings.word_embeddings.weight"},
    NamePair{"embed.position", "embeddings.position_embeddings.weight"},
    NamePair{"embed.type", "embeddings.token_type_embeddings.weight"},
    NamePair{"embed.norm", "embeddings.LayerNorm"},
    NamePair{"embed.map", "encoder.embedding_hidden_mapping_in"},
    NamePair{"layer.*.attn.q", "encoder.albert_layer_groups.*.attention.query"},
    NamePair{"layer.*.attn.k", "encoder.albert_layer_groups.*.attention.key"},
    NamePair{"layer.*.attn.v", "encoder.albert_layer_groups.*.attention.value"},
    NamePair{"layer.*.attn.o", "encoder.albert_layer_groups.*.attention.dense"},
    NamePair{"layer.*.norm1", "encoder.albert_layer_groups.*.attention.LayerNorm"},
    NamePair{"layer.*.ffn.up", "encoder.albert_layer_groups.*.ffn"},
    NamePair{"layer.*.ffn.down", "encoder.albert_layer_groups.*.ffn_output"},
    NamePair{"layer.*.norm2", "encoder.albert_layer_groups.*.full_layer_layer_norm"},
};
constexpr std::string_view anchor =
    "encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight";

/// Layers, groups and sub-layers of a group.
struct Sharing {
    Index hidden = 12, groups = 1, inner = 1;
};

/// hidden x inner layers: hidden layer i runs group int(i / (hidden / groups)).  The first layer
/// that runs a group's sub-layer owns its parameters.
std::vector<BlockSpec> shared_blocks(const BlockSpec& b, const Sharing& sharing) {
    std::vector<BlockSpec> out;
    std::vector<Index> owner(std::size_t(sharing.groups * sharing.inner), -1);
    const double layers_a_group = double(sharing.hidden) / double(sharing.groups);
    for (Index i = 0; i < sharing.hidden; ++i) {
        const auto group = Index(double(i) / layers_a_group);
        for (Index j = 0; j < sharing.inner; ++j) {
            Index& own = owner[std::size_t(group * sharing.inner + j)];
            const auto here = Index(out.size());
            out.push_back(b);
            out.back().shares = own;
            if (own < 0) own = here;
        }
    }
    return out;
}

/// Layers that own parameters correspond to groups and their sub-layers in order.
Names albert_names(const ModelSpec& spec, Index inner) {
    std::vector<Index> order(spec.blocks.size(), 0);
    Index owned = 0;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l)
        if (spec.blocks[l].shares < 0) order[l] = owned++;
    return translate(spec, pairs, [order, inner](Index layer) {
        if (layer < 0) return std::string();
        const Index at = order[std::size_t(layer)];
        return fmt::format("{}.albert_layers.{}", at / inner, at % inner);
    });
}
Names one_group_names(const ModelSpec& spec) { return albert_names(spec, 1); }

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"albert"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

void read_embeddings(Reader& r) {
    ModelSpec& s = r.spec;
    const std::string words = "embeddings.word_embeddings.weight";
    const std::string positions = "embeddings.position_embeddings.weight";
    const std::string types = "embeddings.token_type_embeddings.weight";
    const std::string map = "encoder.embedding_hidden_mapping_in.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.embedding.width = r.agreed({"embedding_size"}, r.extent(words, 1), words);
    s.width = r.agreed({"hidden_size"}, r.extent(map, 0), map);
    s.embedding.map = s.embedding.norm = true;
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens =
        r.agreed({"max_position_embeddings"}, r.extent(positions, 0), positions);
    s.embedding.token_types = true;
    s.embedding.type_rows = r.agreed({"type_vocab_size"}, r.extent(types, 0), types);
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "albert");
    r.find_prefix(anchor);
    r.only({"position_embedding_type"}, "absolute");
    r.only({"is_decoder"}, false);
    read_embeddings(r);
    const std::string groups = "encoder.albert_layer_groups.";
    const std::string layer = groups + "0.albert_layers.0.";
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const std::string query = layer + "attention.query.weight";
    const Index inner = r.extent(query, 0);
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    b.ffn.width =
        r.agreed({"intermediate_size"}, r.extent(layer + "ffn.weight", 0), layer + "ffn.weight");
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-12);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu_new");
    Sharing sharing;
    sharing.groups = r.layers(groups);
    r.agreed({"num_hidden_groups"}, sharing.groups, groups + "*");
    sharing.inner = r.layers(groups + "0.albert_layers.");
    r.agreed({"inner_group_num"}, sharing.inner, groups + "0.albert_layers.*");
    if (!r.has_model_type() && r.value({"num_hidden_layers"}).is_null())
        r.ask(
            "the number of layers is not in the file, because ALBERT's layers share parameters; "
            "write {\"num_hidden_layers\": N} into a configuration and pass --config FILE");
    sharing.hidden = r.count({"num_hidden_layers"}, 12);
    constexpr Index most = 100'000;
    if (sharing.hidden < sharing.groups || sharing.hidden > most)
        r.refuse(fmt::format("num_hidden_layers = {} is not a multiple of {} groups of layers",
                             sharing.hidden, sharing.groups));
    r.spec.blocks = shared_blocks(b, sharing);
    r.saw(fmt::format("{} layers share the parameters of {} groups of {}", sharing.hidden,
                      sharing.groups, sharing.inner));
    return r.finish(albert_names(r.spec, sharing.inner),
                    {"*position_ids", "pooler.*", "predictions.*", "sop_classifier.*",
                     "classifier*", "qa_outputs.*"});
}

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;  // base-v2
    preset.eps = 1e-12;
    preset.act = Unary::gelu_tanh;
    preset.vocab = 30000;
    if (name == "albert-xxlarge-v2") {
        preset.d = 4096;
        preset.heads = 64;
        preset.ffn = 16384;
    }
    const Sizes sizes = read_sizes(k, preset);
    const Index embedding = k.count("embedding", 128);
    k.finish();
    ModelSpec s = token_model("albert", sizes, block(sizes));
    s.embedding.width = embedding;
    s.embedding.map = s.embedding.norm = s.embedding.token_types = true;
    s.embedding.positions = Positions::learned;
    for (std::size_t l = 1; l < s.blocks.size(); ++l) s.blocks[l].shares = 0;
    return drawn(
        std::move(s), [](const Parameter& p) { return normal_law(p, 0.02, 0); },
        "weights N(0, 0.02^2), biases 0, norms 1 and 0, padding row 0");
}

std::vector<std::string_view> random_names() { return {"albert-base-v2", "albert-xxlarge-v2"}; }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"AlbertModel"}).set("model_type", "albert");
    out.set("embedding_size", s.embedding.width).set("hidden_size", s.width);
    out.set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_hidden_groups", 1).set("inner_group_num", 1);
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("max_position_embeddings", s.embedding.position_rows())
        .set("vocab_size", s.embedding.vocabulary);
    out.set("type_vocab_size", s.embedding.type_rows).set("pad_token_id", 0);
    out.set("hidden_dropout_prob", 0).set("attention_probs_dropout_prob", 0);
    return out.set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry albert = {"albert",
                                         "ALBERT",
                                         "ALBERT: BERT whose layers share parameters",
                                         matches,
                                         read,
                                         draw,
                                         random_names,
                                         one_group_names,
                                         config};

}  // namespace tsdiag::families::albert
