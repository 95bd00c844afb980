#include <fmt/format.h>

#include <array>
#include <cmath>

#include "bert_names.hpp"
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// DeBERTa 1, 2 and 3: BERT with disentangled attention, whose table of distances all layers share.
/// [DEBERTA], [DEBERTA-V3]
namespace tsdiag::families::deberta {
namespace {

constexpr std::array common =
    both(std::array{NamePair{"layer.*.attn.distances", "encoder.rel_embeddings.weight"},
                    NamePair{"layer.*.attn.distances_norm", "encoder.LayerNorm"}},
         bert_pairs);
constexpr std::array first_pairs = both(
    std::array{
        NamePair{"layer.*.attn.q", "encoder.layer.*.attention.self.in_proj", Form::matrix, 0, true},
        NamePair{"layer.*.attn.k", "encoder.layer.*.attention.self.in_proj", Form::matrix, 1, true},
        NamePair{"layer.*.attn.v", "encoder.layer.*.attention.self.in_proj", Form::matrix, 2, true},
        NamePair{"layer.*.attn.position_key", "encoder.layer.*.attention.self.pos_proj"},
        NamePair{"layer.*.attn.position_query", "encoder.layer.*.attention.self.pos_q_proj"}},
    common);
constexpr std::array second_pairs = both(
    std::array{
        NamePair{"layer.*.attn.q", "encoder.layer.*.attention.self.query_proj"},
        NamePair{"layer.*.attn.k", "encoder.layer.*.attention.self.key_proj"},
        NamePair{"layer.*.attn.v", "encoder.layer.*.attention.self.value_proj"},
        NamePair{"layer.*.attn.position_key", "encoder.layer.*.attention.self.pos_key_proj"},
        NamePair{"layer.*.attn.position_query", "encoder.layer.*.attention.self.pos_query_proj"}},
    common);
constexpr std::string_view first_anchor = "encoder.layer.0.attention.self.in_proj.weight",
                           second_anchor = "encoder.layer.0.attention.self.query_proj.weight",
                           table = "encoder.rel_embeddings.weight";

Names second_names(const ModelSpec& spec) { return translate(spec, second_pairs); }
/// The biases of queries and values are vectors of their own.
Names first_names(const ModelSpec& spec) {
    Names out = translate(spec, first_pairs);
    for (auto& [canonical, source] : out)
        for (const char* part : {"q", "v"})
            if (canonical.ends_with(fmt::format("attn.{}.bias", part))) {
                TensorSource own;
                own.file_name =
                    beside_queries(source.file_name.substr(0, source.file_name.rfind('.')),
                                   fmt::format("{}_bias", part));
                source = own;
            }
    return out;
}

bool matches_first(const Checkpoint& file, const Json& config) {
    return by_model_type(config, {"deberta"}).value_or(prefix_of(file, first_anchor).has_value());
}
bool matches_second(const Checkpoint& file, const Json& config) {
    return by_model_type(config, {"deberta-v2"})
        .value_or(prefix_of(file, second_anchor).has_value());
}

/// What is compared with distances.
struct Terms {
    bool keys = false;     ///< c2p: queries with keys of distances
    bool queries = false;  ///< p2c: keys with queries of distances
    const char* word() const { return keys && queries ? "both" : keys ? "c2p" : "p2c"; }
};

Terms read_terms(Reader& r) {
    const Json& said = r.value({"pos_att_type"});
    std::vector<std::string> words;
    if (said.is_string()) {
        std::string text = said.string();
        for (std::size_t bar = 0; (bar = text.find('|')) != text.npos; text.erase(0, bar + 1))
            words.push_back(text.substr(0, bar));
        words.push_back(text);
    } else if (said.is_array()) {
        for (const Json& word : said.array())
            words.push_back(word.is_string() ? word.string() : "");
    }
    Terms out;
    for (const std::string& word : words) {
        if (word != "c2p" && word != "p2c")
            r.refuse(fmt::format("{} says pos_att_type = {}, expected c2p and p2c",
                                 r.config_source(), said.dump()));
        (word == "c2p" ? out.keys : out.queries) = true;
    }
    if (!out.keys && !out.queries)
        r.ask(
            "which terms of its attention there are is not in the file; write "
            "{\"relative_attention\": true, \"pos_att_type\": \"c2p|p2c\"} and the other keys of "
            "its config.json into a configuration and pass --config FILE");
    return out;
}

struct Distances {
    Terms terms;
    Index longest = 512, buckets = 0;
    bool shared = false, normed = false;
    double eps = 1e-7;
};

/// The options and parameters of the attention.  The first layer holds the table of all.
void set_attention(ModelSpec& s, const Distances& d) {
    const Index width = s.width, rows = 2 * (d.buckets > 0 ? d.buckets : d.longest);
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        AttentionSpec& a = s.blocks[l].attention;
        const Index inner = a.heads * a.head_dim;
        a.variant = "disentangled";
        a.options = {{"terms", d.terms.word()}, {"longest", std::to_string(d.longest)}};
        if (d.buckets > 0) a.options["buckets"] = std::to_string(d.buckets);
        if (d.shared) a.options["shared"] = "1";
        if (d.normed) a.options["eps"] = fmt::format("{}", d.eps);
        a.scale = 1 / std::sqrt(double(a.head_dim * (1 + d.terms.keys + d.terms.queries)));
        if (!d.shared && d.terms.keys) {
            a.own.push_back({"position_key.weight", {1, inner, width}});
            if (a.k_bias) a.own.push_back({"position_key.bias", {1, 1, inner}, true});
        }
        if (!d.shared && d.terms.queries) {
            a.own.push_back({"position_query.weight", {1, inner, width}});
            a.own.push_back({"position_query.bias", {1, 1, inner}, true});
        }
        if (l > 0) {
            a.own_of = 0;
            continue;
        }
        a.own.push_back({"distances", {1, rows, width}});
        if (!d.normed) continue;
        a.own.push_back({"distances_norm.weight", {1, 1, width}, true});
        a.own.push_back({"distances_norm.bias", {1, 1, width}, true});
    }
}

Distances read_distances(Reader& r, bool second, double eps) {
    const std::string distances(table);
    if (!r.part({"relative_attention"}, distances) || r.value({"relative_attention"}).is_null())
        r.ask(
            fmt::format("expected a tensor '{}{}', and relative_attention = true in a "
                        "configuration (--config FILE)",
                        r.prefix(), distances));
    Distances out;
    out.eps = eps;
    out.terms = read_terms(r);
    const double most = r.number({"max_relative_positions"}, -1);
    const Index positions = r.count({"max_position_embeddings"}, 512);
    out.longest = most < 1 ? positions : Index(most);
    if (second) {
        const double buckets = r.number({"position_buckets"}, -1);
        out.buckets = buckets < 1 ? 0 : Index(buckets);
        out.shared = r.flag({"share_att_key"}, false);
        const std::string norm = r.word({"norm_rel_ebd"}, "none");
        if (norm != "none" && norm != "layer_norm")
            r.refuse(fmt::format("norm_rel_ebd = {}, expected none or layer_norm", norm));
        out.normed = norm == "layer_norm";
    }
    const Index span = out.buckets > 0 ? out.buckets : out.longest;
    if (r.extent(distances, 0) != 2 * span)
        r.refuse(
            fmt::format("tensor '{}{}' has {} rows, expected 2 x {} by max_relative_positions, "
                        "max_position_embeddings and position_buckets",
                        r.prefix(), distances, r.extent(distances, 0), span));
    return out;
}

Architecture read(const Checkpoint& file, const DetectOptions& options, bool second) {
    Reader r(file, options, second ? "deberta-v2" : "deberta");
    const std::string query(second ? second_anchor : first_anchor);
    r.find_prefix(query);
    ModelSpec& s = r.spec;
    r.only({"talking_head"}, false);
    r.only({"conv_kernel_size"}, 0);
    for (const char* other : {"padding_idx", "legacy", "conv_act", "conv_groups"}) r.value({other});
    const std::string words = "embeddings.word_embeddings.weight",
                      positions = "embeddings.position_embeddings.weight",
                      types = "embeddings.token_type_embeddings.weight",
                      up = "encoder.layer.0.intermediate.dense.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(words, 1), words);
    r.agreed({"embedding_size"}, s.width, words);
    s.embedding.norm = true;
    s.embedding.max_tokens = r.count({"max_position_embeddings"}, 512);
    if (r.flag({"position_biased_input"}, true)) {
        s.embedding.positions = Positions::learned;
        r.agreed({"max_position_embeddings"}, r.extent(positions, 0), positions);
    }
    s.embedding.type_rows =
        r.agreed({"type_vocab_size"}, r.has(types) ? r.extent(types, 0) : 0, types);
    s.embedding.token_types = s.embedding.type_rows > 0;
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const Index inner = second ? r.extent(query, 0) : r.extent(query, 0) / 3;
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = r.agreed({"attention_head_size"}, inner / a.heads, query);
    a.k_bias = second;
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-7);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    const Distances distances = read_distances(r, second, b.norm.eps);
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    s.blocks.assign(std::size_t(layers), b);
    set_attention(s, distances);
    // Older libraries store the table of positions that these models do not add.
    const char* const unused = s.embedding.positions == Positions::none
                                   ? "embeddings.position_embeddings.*"
                                   : "*position_ids";
    return r.finish(second ? second_names(s) : first_names(s),
                    {"*position_ids", unused, "pooler.*", "cls.*", "classifier*", "qa_outputs.*",
                     "lm_predictions.*", "mask_predictions.*"});
}
Architecture read_first(const Checkpoint& file, const DetectOptions& options) {
    return read(file, options, false);
}
Architecture read_second(const Checkpoint& file, const DetectOptions& options) {
    return read(file, options, true);
}

constexpr NamedSizes first_named[] = {{"deberta-base", 12, 768, 12},
                                      {"deberta-large", 24, 1024, 16}};
constexpr NamedSizes second_named[] = {{"deberta-v3-xsmall", 12, 384, 6},
                                       {"deberta-v3-small", 6, 768, 12},
                                       {"deberta-v3-base", 12, 768, 12},
                                       {"deberta-v3-large", 24, 1024, 16}};

RandomModel draw(std::string_view name, const Keys& keys, bool second) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.eps = 1e-7;
    preset.vocab = second ? 128100 : 50265;
    preset.attention = "disentangled";
    preset = second ? sizes_of(name, second_named, preset) : sizes_of(name, first_named, preset);
    const Sizes sizes = read_sizes(k, preset);
    k.finish();
    constexpr Index fewest = 8;
    if (second && sizes.tokens < fewest)
        k.refuse(fmt::format("tokens={} are too few for classes of distances, expected {} or more",
                             sizes.tokens, fewest));
    for (const LayerAttention& layer : sizes.attentions)
        if (layer.variant != "disentangled" || !layer.options.empty())
            k.refuse(fmt::format("unsupported attention {}, expected disentangled", layer.variant));
    BlockSpec b = block(sizes);
    b.attention.k_bias = second;
    ModelSpec s = token_model(second ? "deberta-v2" : "deberta", sizes, b);
    s.embedding.norm = true;
    Distances distances;
    distances.terms = {true, true};
    distances.longest = s.embedding.max_tokens;
    distances.buckets = second ? s.embedding.max_tokens / 4 * 2 : 0;  // 256 of 512 tokens
    distances.shared = distances.normed = second;
    distances.eps = sizes.eps;
    set_attention(s, distances);
    return drawn(
        std::move(s), [](const Parameter& p) { return normal_law(p, 0.02, 0); },
        "weights N(0, 0.02^2), biases 0, norms 1 and 0, padding row 0");
}
RandomModel draw_first(std::string_view name, const Keys& keys) { return draw(name, keys, false); }
RandomModel draw_second(std::string_view name, const Keys& keys) { return draw(name, keys, true); }

std::vector<std::string_view> first_random() { return names_of(first_named); }
std::vector<std::string_view> second_random() { return names_of(second_named); }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionOptions& o = b.attention.options;
    const bool second = s.family == "deberta-v2";
    Json out;
    out.set("architectures", Json::Array{second ? "DebertaV2Model" : "DebertaModel"});
    out.set("model_type", s.family).set("hidden_size", s.width);
    out.set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("max_position_embeddings", s.embedding.max_tokens)
        .set("vocab_size", s.embedding.vocabulary);
    out.set("type_vocab_size", Index{0}).set("position_biased_input", false);
    out.set("relative_attention", true).set("max_relative_positions", Index{-1});
    out.set("pos_att_type", "c2p|p2c").set("pad_token_id", Index{0});
    if (second) {
        out.set("attention_head_size", b.attention.head_dim);
        out.set("position_buckets", Index(std::stoll(o.at("buckets"))));
        out.set("share_att_key", true).set("norm_rel_ebd", "layer_norm");
    }
    return out.set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry deberta = {
    "deberta",     "DeBERTa",   "DeBERTa: BERT with disentangled attention",
    matches_first, read_first,  draw_first,
    first_random,  first_names, config};
extern const ArchitectureEntry deberta_v2 = {
    "deberta-v2",
    "DeBERTa-v2",
    "DeBERTa 2 and 3: distances in classes by logarithms, by the maps of queries and keys",
    matches_second,
    read_second,
    draw_second,
    second_random,
    second_names,
    config};

}  // namespace tsdiag::families::deberta
