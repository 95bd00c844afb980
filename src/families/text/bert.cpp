#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bert_names.hpp"
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// BERT, RoBERTa, ELECTRA, ERNIE, BigBird, DistilBERT: post-norm encoders; Megatron-BERT, pre-norm.
namespace tsdiag::families::bert {
namespace {

constexpr std::array megatron_pairs =
    both(std::array{NamePair{"layer.*.norm1", "encoder.layer.*.attention.ln"},
                    NamePair{"layer.*.norm2", "encoder.layer.*.ln"},
                    NamePair{"final_norm", "encoder.ln"}},
         bert_pairs);

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

constexpr std::string_view bert_anchor = "encoder.layer.0.attention.self.query.weight";
constexpr std::string_view distance_table =
    "encoder.layer.0.attention.self.distance_embedding.weight";
constexpr std::string_view electra_map = "embeddings_project.weight";
constexpr std::string_view distilbert_anchor = "transformer.layer.0.attention.q_lin.weight";

/// Without a config: the family among those with BERT's names.  The map of the embedding, the norm
/// behind the layers, the table of tasks, one row of types, or the prefix indicates it.
std::string_view family_by_names(const Checkpoint& file) {
    const auto prefix = prefix_of(file, bert_anchor);
    if (!prefix) return "";
    const auto has = [&](std::string_view name) { return file.has(*prefix + std::string(name)); };
    if (has(electra_map) || prefix->ends_with("electra.")) return "electra";
    if (has("encoder.ln.weight")) return "megatron-bert";
    if (has("embeddings.task_type_embeddings.weight") || prefix->ends_with("ernie."))
        return "ernie";
    const std::string types = *prefix + "embeddings.token_type_embeddings.weight";
    const bool one_type =
        file.has(types) && file.tensor(types).shape.size() == 2 && file.tensor(types).shape[0] == 1;
    return one_type || prefix->ends_with("roberta.") ? "roberta" : "bert";
}

bool matches_roberta(const Checkpoint& file, const Json& config) {
    return by_model_type(config, {"roberta", "xlm-roberta", "camembert"})
        .value_or(family_by_names(file) == "roberta");
}
bool matches_distilbert(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"distilbert"})) return *declared;
    return prefix_of(file, distilbert_anchor).has_value();
}

/// Embeddings: [word + position (+ type)] and a norm; of ELECTRA also a map to the model's width,
/// where that is another.
void read_embeddings(Reader& r, Words width_keys) {
    ModelSpec& s = r.spec;
    const std::string words = "embeddings.word_embeddings.weight", map(electra_map);
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.width = s.embedding.width = r.extent(words, 1);
    std::string widened = words;
    if (s.family == "electra") {
        r.agreed({"embedding_size"}, s.embedding.width, words);
        s.embedding.map = r.has(map);
        if (s.embedding.map) {
            s.width = r.extent(map, 0);
            widened = map;
        }
    }
    r.agreed(width_keys, s.width, widened);
    s.embedding.positions = Positions::learned;
    const std::string positions = "embeddings.position_embeddings.weight";
    const std::string distances(distance_table);
    s.embedding.max_tokens =
        r.has(positions) || !r.has(distances)
            ? r.agreed({"max_position_embeddings"}, r.extent(positions, 0), positions)
            : r.agreed({"max_position_embeddings"}, (r.extent(distances, 0) + 1) / 2, distances);
    s.embedding.norm = true;
}

/// Positions by distances in place of a table that is added: the library creates that all the same.
/// [RELATIVE-BERT]
void read_distances(Reader& r, AttentionSpec& a) {
    constexpr std::string_view key = "position_embedding_type";
    const std::string table(distance_table);
    if (!r.has(table)) return r.only({key}, "absolute");
    const Json& said = r.value({key});
    if (said.is_null())
        r.ask(
            fmt::format("it has distances, '{}', but nothing tells whether they are compared "
                        "with keys too; write {{\"{}\": \"relative_key\"}} or "
                        "\"relative_key_query\" into a configuration and pass --config FILE",
                        table, key));
    const bool keys = equal(said, "relative_key_query");
    if (!keys && !equal(said, "relative_key"))
        r.refuse(fmt::format("{} says {} = {}, but tensor '{}{}' is there", r.config_source(), key,
                             said.dump(), r.prefix(), table));
    ModelSpec& s = r.spec;
    s.embedding.positions = Positions::none;
    const Index rows = 2 * s.embedding.max_tokens - 1;
    if (r.extent(table, 0) != rows)
        r.refuse(fmt::format("tensor '{}{}' has {} distances, expected {} of {} positions",
                             r.prefix(), table, r.extent(table, 0), rows, s.embedding.max_tokens));
    a.variant = "relative_key";
    a.options["keys"] = keys ? "1" : "0";
    a.own = {{"distance", {1, rows, a.head_dim}}};
}

/// As the library runs in evaluation mode: no random blocks; the first block is repeated.
void read_blocks(Reader& r, AttentionSpec& a) {
    const Json& type = r.value({"attention_type"});
    const Index block = r.count({"block_size"}, 64), random = r.count({"num_random_blocks"}, 3);
    a.qkv_bias = r.flag({"use_bias"}, true);
    if (r.flag({"rescale_embeddings"}, false))
        r.spec.embedding.scale = std::sqrt(double(r.spec.width));
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
    const bool megatron = family == "megatron-bert";
    Reader r(file, options, family);
    r.find_prefix(bert_anchor);
    read_embeddings(r, {"hidden_size"});
    ModelSpec& s = r.spec;
    const std::string types = "embeddings.token_type_embeddings.weight";
    s.embedding.token_types = true;
    s.embedding.type_rows = r.agreed({"type_vocab_size"}, r.extent(types, 0), types);
    if (family == "ernie") {
        const std::string tasks = "embeddings.task_type_embeddings.weight";
        if (r.part({"use_task_id"}, tasks))
            s.embedding.task_rows = r.agreed({"task_type_vocab_size"}, r.extent(tasks, 0), tasks);
        else
            r.value({"task_type_vocab_size"});
    }
    s.embedding.norm = !megatron;
    s.final_norm = megatron;
    const std::string layer = "encoder.layer.0.";
    BlockSpec b;
    if (megatron) b.placement = NormPlacement::pre;
    AttentionSpec& a = b.attention;
    const std::string query = layer + "attention.self.query.weight";
    const Index inner = r.extent(query, 0);
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    read_distances(r, a);
    if (roberta && s.embedding.positions == Positions::learned) {
        s.embedding.padding_id = r.count({"pad_token_id"}, 1);
        s.embedding.position_offset = s.embedding.padding_id + 1;
        s.embedding.max_tokens -= s.embedding.position_offset;
        if (s.embedding.max_tokens < 1)
            r.refuse("its position table is not longer than the padding id");
    }
    const std::string up = layer + "intermediate.dense.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, roberta ? 1e-5 : 1e-12);
    b.ffn.activation = r.activation({"hidden_act"}, big_bird ? "gelu_new" : "gelu");
    a.causal = r.flag({"is_decoder"}, false);
    if (big_bird) read_blocks(r, a);
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    s.blocks.assign(std::size_t(layers), b);
    Names names = translate(s, megatron ? std::span<const NamePair>(megatron_pairs) : bert_pairs);
    r.accept_gamma_beta(names);
    return r.finish(
        std::move(names),
        {"*position_ids",
         s.embedding.positions == Positions::none ? "embeddings.position_embeddings.weight"
                                                  : "*position_ids",
         "embeddings.token_type_ids", "pooler.*", "cls.*", "classifier*", "qa_outputs.*",
         "qa_classifier.*", "lm_head.*", "discriminator_predictions.*", "generator_predictions.*",
         "generator_lm_head.*"});
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
    return r.finish(translate(r.spec, distilbert_pairs),
                    {"*position_ids", "vocab_*", "classifier*", "pre_classifier*", "qa_outputs.*"});
}

struct Preset {
    std::string_view name;
    Sizes sizes;
    Index embedding = 0;         ///< columns of the embedding, where they may differ from d
    std::string_view keys = {};  ///< distances: "0", or "1" where keys are compared with them too
};
Sizes sizes(Index layers, Index d, Index heads, Index vocab, double eps) {
    Sizes out;
    out.layers = layers;
    out.d = d;
    out.heads = heads;
    out.ffn = 4 * d;
    out.vocab = vocab;
    out.eps = eps;
    return out;
}

std::vector<Preset> bert_presets() {
    return {{"bert-base", sizes(12, 768, 12, 30522, 1e-12)},
            {"bert-large", sizes(24, 1024, 16, 30522, 1e-12)},
            {"bert-base-relative-key", sizes(12, 768, 12, 30522, 1e-12), 0, "0"},
            {"bert-base-relative-key-query", sizes(12, 768, 12, 30522, 1e-12), 0, "1"}};
}
std::vector<Preset> roberta_presets() {
    return {{"roberta-base", sizes(12, 768, 12, 50265, 1e-5)},
            {"roberta-large", sizes(24, 1024, 16, 50265, 1e-5)},
            {"xlm-roberta-base", sizes(12, 768, 12, 250002, 1e-5)},
            {"xlm-roberta-large", sizes(24, 1024, 16, 250002, 1e-5)},
            {"camembert-base", sizes(12, 768, 12, 32005, 1e-5)}};
}
std::vector<Preset> electra_presets() {
    return {{"electra-small", sizes(12, 256, 4, 30522, 1e-12), 128},
            {"electra-base", sizes(12, 768, 12, 30522, 1e-12), 768},
            {"electra-large", sizes(24, 1024, 16, 30522, 1e-12), 1024}};
}
std::vector<Preset> ernie_presets() {
    Sizes base = sizes(12, 768, 12, 40000, 1e-5);
    base.tokens = 2048;
    return {{"ernie-3.0-base", base}};
}
std::vector<Preset> megatron_presets() {
    return {{"megatron-bert-345m", sizes(24, 1024, 16, 29056, 1e-12)}};
}
std::vector<Preset> distilbert_presets() {
    return {{"distilbert-base", sizes(6, 768, 12, 30522, 1e-12)}};
}

RandomModel draw_like(std::string_view family, const std::vector<Preset>& presets,
                      std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Preset preset = *std::ranges::find(presets, name, &Preset::name);
    const bool distances = !preset.keys.empty();
    if (distances) preset.sizes.attention = "relative_key";
    const Sizes sizes = read_sizes(k, preset.sizes);
    for (const LayerAttention& layer : sizes.attentions)
        if (distances && layer.variant != "relative_key")
            k.refuse(fmt::format("unsupported attention {}, expected relative_key", layer.variant));
    const Index embedding = preset.embedding > 0 ? k.count("embedding", preset.embedding) : sizes.d;
    k.finish();
    const bool roberta = family == "roberta", ernie = family == "ernie";
    BlockSpec b = block(sizes);
    if (family == "megatron-bert") b.placement = NormPlacement::pre;
    ModelSpec s = token_model(family, sizes, b);
    s.embedding.width = embedding;
    s.embedding.map = embedding != s.width;
    s.embedding.positions = distances ? Positions::none : Positions::learned;
    s.final_norm = family == "megatron-bert";
    s.embedding.norm = !s.final_norm;
    s.embedding.token_types = family != "distilbert";
    s.embedding.type_rows = roberta ? 1 : ernie ? 4 : 2;
    s.embedding.task_rows = ernie ? 3 : 0;
    if (distances)
        for (BlockSpec& layer : s.blocks) {
            AttentionSpec& a = layer.attention;
            a.options["keys"] = std::string(preset.keys);
            a.own = {{"distance", {1, 2 * s.embedding.max_tokens - 1, a.head_dim}}};
        }
    const Index padding = roberta ? 1 : 0;
    if (roberta) {
        s.embedding.padding_id = padding;
        s.embedding.position_offset = padding + 1;
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

/// A family with BERT's layers.
struct Family {
    std::string_view name, title, description, model_class;
    std::vector<Preset> (*presets)();
    std::span<const NamePair> pairs = bert_pairs;
};
constexpr Family bert_family = {"bert", "BERT", "BERT: post-norm encoder, learned positions",
                                "BertModel", bert_presets};
constexpr Family roberta_family = {
    "roberta", "RoBERTa", "RoBERTa, XLM-RoBERTa, CamemBERT: BERT with positions that skip padding",
    "RobertaModel", roberta_presets};
constexpr Family electra_family = {"electra", "ELECTRA",
                                   "ELECTRA: BERT whose embedding may be narrower than the model",
                                   "ElectraModel", electra_presets};
constexpr Family ernie_family = {"ernie", "ERNIE", "ERNIE 1, 2, 3: BERT with an embedding of tasks",
                                 "ErnieModel", ernie_presets};
constexpr Family megatron_family = {
    "megatron-bert",     "Megatron-BERT",  "Megatron-BERT: BERT with the norms before the branches",
    "MegatronBertModel", megatron_presets, megatron_pairs};
constexpr Family distilbert_family = {
    "distilbert",      "DistilBERT",       "DistilBERT: BERT without token types",
    "DistilBertModel", distilbert_presets, distilbert_pairs};

bool has_distances(const AttentionSpec& a) {
    return std::ranges::find(a.own, "distance", &Parameter::name) != a.own.end();
}

Json bert_config(const ModelSpec& s, std::string_view model_class) {
    const BlockSpec& b = s.blocks.front();
    const bool roberta = s.family == "roberta", distances = has_distances(b.attention);
    Json out;
    out.set("architectures", Json::Array{model_class});
    out.set("model_type", s.family).set("hidden_size", s.width);
    if (s.family == "electra") out.set("embedding_size", s.embedding.width);
    if (s.family == "ernie") out.set("use_task_id", s.embedding.task_rows > 0);
    if (s.embedding.task_rows > 0) out.set("task_type_vocab_size", s.embedding.task_rows);
    out.set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("max_position_embeddings", s.embedding.position_rows())
        .set("vocab_size", s.embedding.vocabulary);
    out.set("type_vocab_size", s.embedding.type_rows)
        .set("pad_token_id", roberta ? s.embedding.padding_id : 0);
    if (b.attention.causal) out.set("is_decoder", true);
    const bool keys = distances && b.attention.options.at("keys") == "1";
    out.set("position_embedding_type", keys        ? "relative_key_query"
                                       : distances ? "relative_key"
                                                   : "absolute");
    return out.set("initializer_range", 0.02);
}

Json distilbert_config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{distilbert_family.model_class})
        .set("model_type", s.family);
    out.set("dim", s.width).set("n_layers", Index(s.blocks.size()));
    out.set("n_heads", b.attention.heads).set("hidden_dim", b.ffn.width);
    out.set("activation", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("sinusoidal_pos_embds", false);
    out.set("max_position_embeddings", s.embedding.position_rows())
        .set("vocab_size", s.embedding.vocabulary);
    return out.set("pad_token_id", 0).set("initializer_range", 0.02);
}

template <const Family& family>
constexpr ArchitectureEntry entry_of() {
    return {family.name,
            family.title,
            family.description,
            [](const Checkpoint& file, const Json& config) {
                return by_model_type(config, {family.name})
                    .value_or(family_by_names(file) == family.name);
            },
            [](const Checkpoint& file, const DetectOptions& options) {
                return read_bert_like(file, options, family.name);
            },
            [](std::string_view name, const Keys& keys) {
                return draw_like(family.name, family.presets(), name, keys);
            },
            [] { return names_of(family.presets()); },
            [](const ModelSpec& spec) { return translate(spec, family.pairs); },
            [](const ModelSpec& spec) { return bert_config(spec, family.model_class); }};
}

}  // namespace

extern const ArchitectureEntry bert = entry_of<bert_family>();
extern const ArchitectureEntry roberta = [] {
    ArchitectureEntry entry = entry_of<roberta_family>();
    entry.matches = matches_roberta;
    return entry;
}();
extern const ArchitectureEntry electra = entry_of<electra_family>();
extern const ArchitectureEntry ernie = entry_of<ernie_family>();
extern const ArchitectureEntry megatron = entry_of<megatron_family>();
/// Its tensors have BERT's names: only a configuration identifies it.
extern const ArchitectureEntry big_bird = {
    "big_bird", "BigBird", "BigBird: BERT with block-sparse attention",
    [](const Checkpoint&, const Json& config) {
        return by_model_type(config, {"big_bird"}).value_or(false);
    },
    [](const Checkpoint& file, const DetectOptions& options) {
        return read_bert_like(file, options, "big_bird");
    }};
extern const ArchitectureEntry distilbert = [] {
    ArchitectureEntry entry = entry_of<distilbert_family>();
    entry.matches = matches_distilbert;
    entry.read = read_distilbert;
    entry.config = distilbert_config;
    return entry;
}();

}  // namespace tsdiag::families::bert
