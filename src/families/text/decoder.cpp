#include "decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/rope.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// The file's name of a parameter of layer 0 and, in a mixture, of expert 0.
std::string first_name(const Decoder& d, std::string_view canonical) {
    const auto found = std::ranges::find(d.pairs, canonical, &NamePair::canonical);
    if (found == d.pairs.end()) return "";
    std::string out(found->file);
    for (std::size_t at = 0; (at = out.find('*', at)) != out.npos;) out.replace(at, 1, "0");
    return out;
}

const NamePair& pair_of(const Decoder& d, std::string_view canonical) {
    const auto found = std::ranges::find(d.pairs, canonical, &NamePair::canonical);
    check(found != d.pairs.end(), "a decoder has this name");
    return *found;
}

/// Heads and their columns, of separate projections; a norm's length is the width of a head.
void read_separate_heads(Reader& r, const Decoder& d, AttentionSpec& a) {
    const std::string query = first_name(d, "layer.*.attn.q") + ".weight",
                      key = first_name(d, "layer.*.attn.k") + ".weight",
                      norm = first_name(d, "layer.*.attn.q_norm") + ".weight";
    const Index inner = r.extent(query, 0);
    const Json& head_dim = r.value({d.keys.head_dim});
    a.qk_norm = d.head_norms && r.has(norm);
    if (a.qk_norm)
        a.head_dim = r.agreed({d.keys.head_dim}, r.extent(norm, 0), norm);
    else if (head_dim.is_number())
        a.head_dim = r.count({d.keys.head_dim}, 0);
    if (a.head_dim > 0 && inner % a.head_dim == 0)
        a.heads = r.agreed({d.keys.heads, d.keys.other_heads}, inner / a.head_dim, query);
    else if (a.head_dim > 0)
        r.refuse(fmt::format("heads of {} columns do not match queries of {}", a.head_dim, inner));
    else
        a.heads = r.heads({d.keys.heads, d.keys.other_heads}, inner, query);
    a.head_dim = inner / a.heads;
    const Index columns = r.extent(key, 0);
    if (columns % a.head_dim != 0 || a.heads % (columns / a.head_dim) != 0)
        r.refuse(fmt::format("keys of width {} cannot be shared by {} query heads of {} columns",
                             columns, a.heads, a.head_dim));
    a.kv_heads = r.agreed({d.keys.kv_heads}, columns / a.head_dim, key);
}

/// Heads and their columns, where q, k and v are one tensor: its rows are those of heads + 2
/// kv_heads.
void read_fused_heads(Reader& r, const Decoder& d, AttentionSpec& a) {
    const std::string fused = first_name(d, "layer.*.attn.q") + ".weight";
    const Json& head_dim = r.value({d.keys.head_dim});
    if (head_dim.is_number()) {
        a.head_dim = r.count({d.keys.head_dim}, 0);
        a.heads = r.count({d.keys.heads, d.keys.other_heads}, 0);
        if (a.head_dim < 1 || a.heads < 1 || a.heads > r.extent(fused, 0) / a.head_dim)
            r.refuse(fmt::format("tensor '{}' has {} rows, too few for {} heads of {} columns",
                                 r.prefix() + fused, r.extent(fused, 0), a.heads, a.head_dim));
    } else {
        a.heads = r.heads({d.keys.heads, d.keys.other_heads}, r.spec.width, fused);
        a.head_dim = r.spec.width / a.heads;
    }
    const Index rows = r.extent(fused, 0), of_kv = rows - a.heads * a.head_dim;
    a.kv_heads = of_kv / (2 * a.head_dim);
    if (a.kv_heads < 1 || of_kv % (2 * a.head_dim) != 0 || a.heads % a.kv_heads != 0)
        r.refuse(
            fmt::format("tensor '{}' has {} rows, which are not those of queries, keys and values "
                        "of {} heads of {} columns",
                        r.prefix() + fused, rows, a.heads, a.head_dim));
    if (!d.keys.kv_heads.empty()) r.agreed({d.keys.kv_heads}, a.kv_heads, fused);
}

Rotary read_rotation(Reader& r, const Decoder& d, Index head_dim) {
    const double share = read_share(r, {d.rotary.share_key}, d.rotary.share);
    const auto columns = Index(double(head_dim) * share);
    if (columns % 2 != 0)
        r.refuse(fmt::format("{} columns of a head cannot rotate in pairs", columns));
    Rotary out = read_rotary(r, columns, {"rope_theta"}, d.rotary.theta);
    out.interleaved = d.rotary.interleaved;
    return out;
}

void read_sizes_of(Reader& r, const Decoder& d) {
    ModelSpec& s = r.spec;
    const std::string tokens(pair_of(d, "embed.token").file);
    s.embedding.vocabulary = r.agreed({d.keys.vocabulary}, r.extent(tokens, 0), tokens);
    s.width = s.embedding.width =
        r.agreed({d.keys.width, d.keys.other_width}, r.extent(tokens, 1), tokens);
    const Json& older = r.value({d.keys.older_tokens});
    if (!d.keys.tokens.empty())
        s.embedding.max_tokens =
            r.count({d.keys.tokens}, older.is_integer() ? older.integer() : d.tokens);
    s.final_norm = true;
}

/// Whether the experts of a layer are stacked in the file.
bool stacks(const Reader& r, const Decoder& d) {
    return d.stack && !r.has(first_name(d, "layer.*.ffn.expert.*.up") + ".weight");
}

BlockSpec read_block(Reader& r, const Decoder& d) {
    BlockSpec b;
    AttentionSpec& a = b.attention;
    pair_of(d, "layer.*.attn.q").part < 0 ? read_separate_heads(r, d, a)
                                          : read_fused_heads(r, d, a);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    std::string up = first_name(d, "layer.*.ffn.up");
    const bool experts = up.empty();
    if (experts) up = first_name(d, "layer.*.ffn.expert.*.up");
    const NamePair& pair = pair_of(d, experts ? "layer.*.ffn.expert.*.up" : "layer.*.ffn.up");
    const bool stacked = stacks(r, d);
    up = stacked ? std::string(d.stacked) : up + ".weight";
    const Index rows = r.extent(up, stacked ? -1 : 0), parts = stacked         ? 2
                                                               : pair.part < 0 ? 1
                                                                               : pair.parts;
    if (rows % parts != 0)
        r.refuse(fmt::format("tensor '{}' has {} {}, expected an even number", r.prefix() + up,
                             rows, stacked ? "columns" : "rows"));
    b.ffn.width = rows / parts;
    if (!d.keys.ffn.empty()) r.agreed({d.keys.ffn}, b.ffn.width, up);
    b.norm.eps = d.keys.eps.empty() ? d.eps : r.number({d.keys.eps}, d.eps);
    a.qk_eps = b.norm.eps;
    b.ffn.activation = d.keys.activation.empty() ? activation_named(d.activation).value()
                                                 : r.activation({d.keys.activation}, d.activation);
    if (d.rotary.share > 0) a.rotary = read_rotation(r, d, a.head_dim);
    return b;
}

/// Biases are where the file has them.
void read_biases(Reader& r, const Decoder& d) {
    const auto there = [&](std::string_view canonical) {
        const std::string name = first_name(d, canonical);
        return !name.empty() && r.has(name + ".bias");
    };
    const bool qkv = there("layer.*.attn.q"), out = there("layer.*.attn.o"),
               ffn = there("layer.*.ffn.up");
    for (BlockSpec& b : r.spec.blocks) {
        b.attention.qkv_bias = qkv;
        b.attention.out_bias = out;
        b.ffn.bias = ffn;
    }
}

void fix(const Decoder& d, ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.placement = NormPlacement::pre;
        b.norm.kind = NormKind::rms;
        b.norm.bias = false;
        b.ffn.gated = b.attention.causal = true;
        if (!d.attention.empty()) b.attention.variant = d.attention;
    }
    if (d.fix) d.fix(s);
}

Names one_by_one(const Decoder& d, const ModelSpec& spec) {
    return translate(spec, d.table ? d.table(spec) : d.pairs);
}

}  // namespace

bool matches(const Decoder& d, const Checkpoint& file, const Json& config) {
    if (d.matches) return d.matches(file, config);
    const std::string_view other = d.other_type.empty() ? d.name : d.other_type;
    return by_model_type(config, {d.name, other}).value_or(false);
}

Names names(const Decoder& d, const ModelSpec& spec) {
    Names out = one_by_one(d, spec);
    if (d.stack) d.stack(spec, out);
    return out;
}

Architecture read(const Decoder& d, const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, d.name);
    r.find_prefix(first_name(d, "layer.*.attn.q") + ".weight");
    if (d.begin) d.begin(r);
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    read_sizes_of(r, d);
    const BlockSpec b = read_block(r, d);
    const Index layers = r.layers(std::string(d.layers));
    r.agreed({d.keys.layers, d.keys.other_layers}, layers, std::string(d.layers) + "*");
    r.spec.blocks.assign(std::size_t(layers), b);
    fix(d, r.spec);
    read_biases(r, d);
    if (d.read) d.read(r);
    return r.finish(stacks(r, d) ? names(d, r.spec) : one_by_one(d, r.spec),
                    {"*lm_head.*", "score.*"});
}

RandomModel draw(const Decoder& d, std::string_view name, const Keys& keys) {
    const std::vector<DecoderPreset> all = d.presets();
    const auto preset = std::ranges::find(all, name, &DecoderPreset::name);
    check(preset != all.end(), "a name of the family");
    KeyReader k(name, keys);
    Sizes preset_sizes = preset->sizes;
    if (!d.attention.empty()) preset_sizes.attention = d.attention;
    const Sizes sizes = read_sizes(k, preset_sizes);
    for (const LayerAttention& layer : sizes.attentions)
        if (!d.attention.empty() && (layer.variant != d.attention || !layer.options.empty()))
            k.refuse(
                fmt::format("unsupported attention {}, expected {}", layer.variant, d.attention));
    k.finish();
    BlockSpec b = block(sizes);
    AttentionSpec& a = b.attention;
    a.qk_eps = b.norm.eps;
    a.qkv_bias = a.out_bias = b.ffn.bias = false;
    if (d.rotary.share == 1 && a.head_dim % 2 != 0)
        k.refuse(fmt::format("a head of {} columns cannot rotate in pairs", a.head_dim));
    a.rotary.columns = Index(double(a.head_dim) * d.rotary.share) / 2 * 2;
    a.rotary.theta = d.rotary.theta;
    a.rotary.interleaved = d.rotary.interleaved;
    ModelSpec s = token_model(d.name, sizes, b);
    s.final_norm = true;
    fix(d, s);
    if (preset->change) preset->change(s);
    if (d.law) return drawn(std::move(s), d.law, d.law_in_words);
    return drawn_normal(std::move(s));
}

Json config(const Decoder& d, const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    Json out;
    const auto set = [&](std::string_view key, const Json& value) {
        if (!key.empty()) out.set(std::string(key), value);
    };
    out.set("architectures", Json::Array{std::string(d.model_class)}).set("model_type", d.name);
    set(d.keys.width, s.width);
    set(d.keys.layers, Index(s.blocks.size()));
    set(d.keys.heads, a.heads);
    set(d.keys.kv_heads, a.kv_heads);
    set(d.keys.head_dim, a.head_dim);
    set(d.keys.ffn, b.ffn.width);
    set(d.keys.activation, hf_activation(b.ffn.activation));
    set(d.keys.eps, b.norm.eps);
    set(d.keys.tokens, s.embedding.max_tokens);
    set(d.keys.vocabulary, s.embedding.vocabulary);
    if (d.rotary.share > 0) {
        out.set("rope_theta", a.rotary.theta);
        write_rope_scaling(a.rotary, out);
        const bool some = a.rotary.columns > 0 && a.rotary.columns < a.head_dim;
        if (d.rotary.share < 1 || some)
            set(d.rotary.share_key, share_of(a.rotary.columns, a.head_dim));
    }
    out.set("initializer_range", 0.02).set("tie_word_embeddings", true);
    if (d.write) d.write(s, out);
    return out;
}

Sizes decoder_sizes(Index layers, Index d, Index heads, Index kv, Index ffn, Index tokens,
                    Index vocab, double eps, Index head_dim, Unary act) {
    Sizes s;
    s.layers = layers;
    s.d = d;
    s.heads = heads;
    s.kv_heads = kv;
    s.head_dim = head_dim;
    s.ffn = ffn;
    s.tokens = tokens;
    s.vocab = vocab;
    s.eps = eps;
    s.act = act;
    s.causal = true;
    return s;
}

std::optional<std::vector<bool>> listed_windows(Reader& r) {
    const Json& types = r.value({"layer_types"});
    if (types.is_null()) return std::nullopt;
    std::vector<bool> out;
    for (const Json& type : types.array()) {
        if (type.string() != "sliding_attention" && type.string() != "full_attention")
            r.refuse(
                fmt::format("layer_types has '{}', which is not supported (full_attention and "
                            "sliding_attention are)",
                            type.string()));
        out.push_back(type.string() == "sliding_attention");
    }
    if (out.size() != r.spec.blocks.size())
        r.refuse(fmt::format("layer_types has {} layers, but the file has {}", out.size(),
                             r.spec.blocks.size()));
    return out;
}

void read_experts(Reader& r, std::string_view count_key, const std::string& router,
                  Index default_chosen) {
    ExpertsSpec e;
    e.count = r.agreed({count_key}, r.extent(router, 0), router);
    e.chosen = r.count({"num_experts_per_tok"}, default_chosen);
    if (e.chosen < 1 || e.chosen > e.count)
        r.refuse(
            fmt::format("num_experts_per_tok is {}, but there are {} experts", e.chosen, e.count));
    for (const char* training :
         {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"})
        r.value({training});
    for (BlockSpec& b : r.spec.blocks) b.ffn.experts = e;
}

void read_attention_bias(Reader& r, bool left_out) {
    const bool there = r.part({"attention_bias"}, "layers.0.self_attn.q_proj.bias", left_out);
    for (BlockSpec& b : r.spec.blocks) b.attention.out_bias = there;
}

void set_windows(Reader& r, Index window, const std::function<bool(Index)>& slides, bool obeys,
                 Words by) {
    const auto listed = listed_windows(r);
    const bool told = window > 0 && by.size() > 0 && !r.value(by).is_null();
    auto& blocks = r.spec.blocks;
    for (std::size_t l = 0; l < blocks.size(); ++l) {
        const bool on = window > 0 && (obeys && !told && listed ? (*listed)[l] : slides(Index(l)));
        if (listed && (*listed)[l] != on)
            r.refuse(fmt::format("layer_types says that layer {} {}, but {} disagrees{}", l,
                                 (*listed)[l] ? "has a sliding window" : "has full attention",
                                 told ? fmt::format("{} = {}", *by.begin(), r.value(by).dump())
                                      : "sliding_window or the family",
                                 told ? "; leave one of the two out" : ""));
        if (on) blocks[l].attention.window = window;
    }
    if (window > 0) r.saw(fmt::format("sliding window of {} tokens", window));
}

void write_layer_types(const ModelSpec& s, Json& config) {
    Json::Array types;
    for (const BlockSpec& b : s.blocks)
        types.emplace_back(b.attention.window > 0 ? "sliding_attention" : "full_attention");
    config.set("layer_types", std::move(types));
}

void accept_code(Reader& r, std::string_view name) {
    const Json& map = r.value({"auto_map"});
    if (map.is_null()) return;
    const std::string known = fmt::format("_{}.", name);
    for (const auto& [part, code] : map.object())
        if (!code.is_string() || code.string().find(known) == std::string::npos)
            r.refuse(
                fmt::format("auto_map says that {} is run by '{}', which is not supported "
                            "(modeling_{} is)",
                            part, code.dump(), name));
}

}  // namespace tsdiag::families
