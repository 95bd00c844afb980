#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reader.hpp"

/// FLASHTransformer of lucidrains/FLASH-pytorch, and a stack of its GAU (gated attention units).
namespace tsdiag::families::flash {
namespace {

constexpr std::string_view flash_anchor = "layers.0.qk_offset_scale.gamma";
constexpr std::string_view gau_anchor = "layers.0.offsetscale.gamma";

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

/// Common to both units: one head of queries and keys, values of another width.
void read_unit(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    ModelSpec& s = r.spec;
    const std::string keys = "layers.0.to_qk.0.weight", hidden = "layers.0.to_hidden.0.weight";
    s.width = s.embedding_width = r.agreed({"dim"}, r.extent(keys, 1), keys);
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
    s.vocabulary = r.agreed({"num_tokens"}, r.extent(token, 0), token);
    if (r.has("abs_pos_emb.scale") || r.has("abs_pos_emb.inv_freq")) {
        s.positions = Positions::sin_cos;
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
    const std::string bias = "layers.0.rel_pos_bias.relative_attention_bias.weight";
    a.own.push_back({"rel_pos_bias", {1, r.extent(bias, 0), 1}});
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
    r.took("no relative position bias: the file has none");
    std::ranges::fill(r.spec.blocks, b);
    read_embedding(r);
    Names names = translate(r.spec, pairs(true));
    if (r.spec.vocabulary > 0)
        return r.finish(std::move(names), {"to_logits.1.*", "abs_pos_emb.inv_freq"});
    // A unit gets its bias from the enclosing model.
    return r.finish(std::move(names), {}, {"layers.", "rel_pos_bias."});
}

}  // namespace

extern const ArchitectureEntry flash = {
    "flash", "FLASH (FLASH-pytorch)",
    "FLASHTransformer of FLASH-pytorch: gated attention units over groups of tokens", matches_flash,
    read_flash};
extern const ArchitectureEntry gau = {
    "gau", "GAU (FLASH-pytorch)",
    "a stack of GAU of FLASH-pytorch: gated attention units over all tokens", matches_gau,
    read_gau};

}  // namespace tsdiag::families::flash
