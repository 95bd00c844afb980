#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// FLASHTransformer of lucidrains/FLASH-pytorch, and a stack of its GAU (gated attention units).
namespace tsdiag::families::flash {
namespace {

constexpr std::string_view flash_anchor = "layers.0.qk_offset_scale.gamma";
constexpr std::string_view gau_anchor = "layers.0.offsetscale.gamma";
constexpr std::string_view bias_table = "layers.0.rel_pos_bias.relative_attention_bias.weight";

bool matches_flash(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"flash"})) return *declared;
    return prefix_of(file, flash_anchor).has_value();
}
bool matches_gau(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"gau"})) return *declared;
    return prefix_of(file, gau_anchor).has_value();
}

std::vector<NamePair> pairs(bool quadratic) {
    return {
        {"embed.token", "token_emb.weight"},
        {"embed.position_scale", "abs_pos_emb.scale"},
        {"layer.*.norm1", "layers.*.norm"},
        {"layer.*.norm1.g", "layers.*.norm.g"},
        {"layer.*.attn.z", "layers.*.to_qk.0"},
        {"layer.*.attn.offset.gamma",
         quadratic ? "layers.*.offsetscale.gamma" : "layers.*.qk_offset_scale.gamma"},
        {"layer.*.attn.offset.beta",
         quadratic ? "layers.*.offsetscale.beta" : "layers.*.qk_offset_scale.beta"},
        {"layer.*.attn.v", "layers.*.to_hidden.0", Form::matrix, 0, false, 2},
        {"layer.*.attn.gate", "layers.*.to_hidden.0", Form::matrix, 1, false, 2},
        {"layer.*.attn.rel_pos_bias", "layers.*.rel_pos_bias.relative_attention_bias.weight"},
        {"layer.*.attn.o", quadratic ? "layers.*.to_out.0" : "layers.*.to_out"},
        {"final_norm", "to_logits.0"},
    };
}

/// The relative bias; `width`: that of the model, in its factor in GAU, 0 in FLASH.
void add_bias(AttentionSpec& a, Index buckets, Index width) {
    a.own.push_back({"rel_pos_bias", {1, buckets, 1}});
    if (width > 0) a.options["width"] = std::to_string(width);
}

/// Common to both units: one head of queries and keys, values of another width.
void read_unit(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    ModelSpec& s = r.spec;
    const std::string keys = "layers.0.to_qk.0.weight", hidden = "layers.0.to_hidden.0.weight";
    s.width = s.embedding.width = r.agreed({"dim"}, r.extent(keys, 1), keys);
    r.only({"laplace_attn_fn"}, false);
    r.only({"reduce_group_non_causal_attn"}, true);
    r.only({"add_residual"}, true);
    r.value({"expansion_factor"});  // known from the tensors
    a.gated_unit = true;
    b.placement = NormPlacement::pre;
    a.heads = a.kv_heads = 1;
    a.head_dim = r.agreed({"query_key_dim"}, r.extent(keys, 0), keys);
    if (r.extent(hidden, 0) % 2 != 0)
        r.refuse(fmt::format(
            "tensor '{}{}' has an odd number of rows, expected values and gates of equal width",
            r.prefix(), hidden));
    a.value_dim = r.extent(hidden, 0) / 2;
    b.ffn.width = 0;
    b.ffn.activation = Unary::silu;
    b.norm.kind = r.has("layers.0.norm.g") ? NormKind::scale : NormKind::layer;
    r.only({"norm_type"}, b.norm.kind == NormKind::scale ? "scalenorm" : "layernorm");
    b.norm.eps = r.number({"norm_eps"}, 1e-5);
    a.causal = r.flag({"causal"}, false);
    const Index layers = r.agreed({"depth"}, r.layers("layers."), "layers.*");
    s.blocks.assign(std::size_t(layers), b);
}

void read_embedding(Reader& r) {
    ModelSpec& s = r.spec;
    const std::string token = "token_emb.weight";
    if (!r.has(token)) return;
    s.embedding.vocabulary = r.agreed({"num_tokens"}, r.extent(token, 0), token);
    if (r.has("abs_pos_emb.scale") || r.has("abs_pos_emb.inv_freq")) {
        s.embedding.positions = Positions::sin_cos;
        if (s.width % 2 != 0 || s.width < 4)
            r.refuse(fmt::format(
                "sines and cosines in two halves need an even width of at least 4, not {}",
                s.width));
    }
    s.final_norm = r.has("to_logits.0.weight");
    s.final_norm_kind = NormKind::layer;
}

/// Two columns rotate per stored frequency; else the first 32, or all where there are fewer.
void read_rotation(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const std::string stored = "layers.0.rotary_pos_emb.freqs";
    a.rotary.interleaved = true;
    a.rotary.columns = r.has(stored) ? r.agreed({"rotary_dim"}, 2 * r.extent(stored, 0), stored)
                                     : std::min<Index>(r.count({"rotary_dim"}, 32), a.head_dim);
    if (a.rotary.columns > a.head_dim)
        r.refuse(
            fmt::format("{} columns rotate, but queries have {}", a.rotary.columns, a.head_dim));
    if (a.rotary.columns % 2 != 0)
        r.refuse(
            fmt::format("{} columns cannot rotate, expected an even number", a.rotary.columns));
}

Architecture read_flash(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "flash");
    r.find_prefix(flash_anchor);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    read_unit(r, b);
    a.variant = "flash";
    const Index group = r.count({"group_size"}, 256);
    a.options["group"] = std::to_string(group);
    a.token_shift = r.flag({"shift_tokens"}, true);
    read_rotation(r, b);
    add_bias(a, r.extent(std::string(bias_table), 0), 0);
    std::ranges::fill(r.spec.blocks, b);
    read_embedding(r);
    return r.finish(translate(r.spec, pairs(false)),
                    {"to_logits.1.*", "abs_pos_emb.inv_freq", "layers.*.rotary_pos_emb.freqs"});
}

Architecture read_gau(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "gau");
    r.find_prefix(gau_anchor);
    BlockSpec b;
    read_unit(r, b);
    b.attention.variant = "flash_quad";
    if (r.has(std::string(bias_table)))
        add_bias(b.attention, r.extent(std::string(bias_table), 0), r.spec.width);
    else
        r.took("no relative position bias: the file has none");
    std::ranges::fill(r.spec.blocks, b);
    read_embedding(r);
    Names names = translate(r.spec, pairs(true));
    if (r.spec.embedding.vocabulary > 0)
        return r.finish(std::move(names), {"to_logits.1.*", "abs_pos_emb.inv_freq"});
    // A unit gets its bias from the enclosing model.
    return r.finish(std::move(names), {}, {"layers.", "rel_pos_bias."});
}

/// Sizes of the example of FLASH-pytorch: values of 2 d columns, d from `ffn`.
Sizes read_unit_sizes(KeyReader& k, std::string_view name) {
    Sizes preset;
    preset.d = 512;
    preset.heads = 1;
    preset.head_dim = std::min<Index>(128, k.count("d", preset.d));
    preset.ffn = 2 * preset.d;
    preset.vocab = 20000;
    preset.act = Unary::silu;
    preset.attention = name == "flash" ? "flash" : "flash_quad";
    Sizes s = read_sizes(k, preset);
    if (!k.has("head_dim")) s.head_dim = preset.head_dim;
    if (s.heads != 1 || s.kv_heads != 1) k.refuse("a gated attention unit has one head");
    if (s.act != Unary::silu) k.refuse("the activation of a gated attention unit is silu");
    if (s.d % 2 != 0 || s.d < 4)
        k.refuse("sines and cosines in two halves need an even width of at least 4");
    for (const LayerAttention& layer : s.attentions)
        if (layer.variant != preset.attention || !layer.second.empty() ||
            layer.output_norm != OutputNorm::none)
            k.refuse(fmt::format("unsupported attention, expected {}", preset.attention));
    return s;
}

/// As PyTorch and FLASH-pytorch initialise them; but the embedding, which is the output head too,
/// is divided by sqrt(d), and so are the positions that are added to it.
Draw unit_law(const Parameter& p, const Sizes& s) {
    const double deviation = 1 / std::sqrt(double(s.d));
    if (p.name == "embed.token") return {Draw::Law::normal, deviation, -1};
    if (p.name == "embed.position_scale") return {Draw::Law::constant, deviation, -1};
    if (p.name.ends_with("offset.gamma")) return {Draw::Law::normal, 0.02, -1};
    if (p.name.ends_with("offset.beta")) return {Draw::Law::zero, 0, -1};
    if (p.name.find(".attn.") == p.name.npos) return normal_law(p, 0);
    const Index in = p.name.find(".attn.o.") != p.name.npos ? s.ffn : s.d;
    return {Draw::Law::uniform, 1 / std::sqrt(double(in)), -1};
}

RandomModel draw_unit(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    const bool grouped = name == "flash";
    const Sizes sizes = read_unit_sizes(k, name);
    BlockSpec b = block(sizes);
    AttentionSpec& a = b.attention;
    a.gated_unit = true;
    a.value_dim = sizes.ffn;
    b.placement = NormPlacement::pre;
    b.norm.kind = grouped ? NormKind::scale : NormKind::layer;
    b.ffn.width = 0;
    if (grouped) {
        a.token_shift = k.flag("shift", true);
        a.rotary.columns = std::min<Index>(32, a.head_dim) / 2 * 2;
        a.rotary.interleaved = true;
    }
    k.finish();
    ModelSpec s = token_model(name, sizes, b);
    s.embedding.max_tokens = 0;  // positions are computed
    for (BlockSpec& layer : s.blocks) {
        AttentionOptions& options = layer.attention.options;
        if (grouped && (!options.contains("group") || options.at("group") == "auto"))
            options["group"] = std::to_string(std::min<Index>(256, sizes.tokens));
        if (!grouped) options.emplace("width", std::to_string(s.width));
    }
    s.embedding.positions = Positions::sin_cos;
    s.final_norm = true;
    s.final_norm_kind = NormKind::layer;
    return drawn(
        std::move(s), [&](const Parameter& p) { return unit_law(p, sizes); },
        "maps and their biases U(-1/sqrt(in), 1/sqrt(in)), gamma N(0, 0.02^2), beta 0, embedding "
        "N(0, 1/d) and scale of the positions 1/sqrt(d), norms 1 and 0");
}

std::vector<std::string_view> flash_random() { return {"flash"}; }
std::vector<std::string_view> gau_random() { return {"gau"}; }

Names flash_names(const ModelSpec& s) { return translate(s, pairs(false)); }
Names gau_names(const ModelSpec& s) { return translate(s, pairs(true)); }

Json unit_config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    Json out;
    out.set("model_type", s.family).set("dim", s.width).set("num_tokens", s.embedding.vocabulary);
    out.set("depth", std::ssize(s.blocks)).set("query_key_dim", a.head_dim);
    out.set("expansion_factor", double(a.value_dim) / double(s.width)).set("causal", a.causal);
    out.set("norm_type", b.norm.kind == NormKind::scale ? "scalenorm" : "layernorm");
    out.set("norm_eps", b.norm.eps);
    if (a.variant != "flash") return out;
    out.set("group_size", Index{std::stoll(a.options.at("group"))});
    return out.set("shift_tokens", a.token_shift).set("rotary_dim", a.rotary.columns);
}

}  // namespace

extern const ArchitectureEntry flash = {
    "flash",
    "FLASH (FLASH-pytorch)",
    "FLASHTransformer of FLASH-pytorch: gated attention units over groups of tokens",
    matches_flash,
    read_flash,
    draw_unit,
    flash_random,
    flash_names,
    unit_config};
extern const ArchitectureEntry gau = {
    "gau",
    "GAU (FLASH-pytorch)",
    "a stack of GAU of FLASH-pytorch: gated attention units over all tokens",
    matches_gau,
    read_gau,
    draw_unit,
    gau_random,
    gau_names,
    unit_config};

}  // namespace tsdiag::families::flash
