#include <fmt/format.h>

#include <cmath>

#include "engine/reader.hpp"

/// LinformerLM and Linformer of lucidrains/linformer.
namespace tsdiag::families::linformer {
namespace {

constexpr std::string_view anchor = "net.layers.0.0.fn.proj_k";
constexpr std::string_view language_anchor = "linformer.net.layers.0.0.fn.proj_k";

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"linformer"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

/// `shared`: keys are also the values.
std::vector<NamePair> pairs(bool shared) {
    const std::string_view value =
        shared ? "linformer.net.layers.*.0.fn.to_k" : "linformer.net.layers.*.0.fn.to_v";
    return {{"embed.token", "token_emb.weight"},
            {"embed.position", "pos_emb.weight"},
            {"layer.*.norm1", "linformer.net.layers.*.0.norm"},
            {"layer.*.attn.q", "linformer.net.layers.*.0.fn.to_q"},
            {"layer.*.attn.k", "linformer.net.layers.*.0.fn.to_k"},
            {"layer.*.attn.v", value},
            {"layer.*.attn.proj_k", "linformer.net.layers.*.0.fn.proj_k"},
            {"layer.*.attn.proj_v", "linformer.net.layers.*.0.fn.proj_v"},
            {"layer.*.attn.o", "linformer.net.layers.*.0.fn.to_out"},
            {"layer.*.norm2", "linformer.net.layers.*.1.norm"},
            {"layer.*.ffn.up", "linformer.net.layers.*.1.fn.w1"},
            {"layer.*.ffn.down", "linformer.net.layers.*.1.fn.w2"}};
}

/// Keys of one head (one_kv_head) are narrower than queries, which gives a head's width.
void read_heads(Reader& r, const std::string& attention, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const std::string query = attention + "to_q.weight", key = attention + "to_k.weight";
    const Index inner = r.extent(query, 0), columns = r.extent(key, 0);
    if (columns < inner) {
        if (inner % columns != 0)
            r.refuse(fmt::format("keys of {} columns do not match queries of {}", columns, inner));
        a.heads = r.agreed({"heads"}, inner / columns, key);
        a.kv_heads = 1;
    } else {
        a.heads = a.kv_heads = r.heads({"heads"}, inner, query);
    }
    a.head_dim = r.agreed({"dim_head"}, inner / a.heads, query);
    r.only({"one_kv_head"}, a.kv_heads < a.heads);
    a.scale = 1 / std::sqrt(double(a.head_dim));
}

/// The projections of keys and values along the token axis.
void read_projections(Reader& r, const std::string& attention, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const std::string projection = attention + "proj_k";
    const Index tokens = r.agreed({"seq_len"}, r.extent(projection, 0), projection);
    const Index length = r.agreed({"k"}, r.extent(projection, 1), projection);
    const bool shared = !r.has(attention + "to_v.weight");
    r.only({"share_kv"}, shared);
    a.variant = "linformer";
    a.options["length"] = std::to_string(length);
    a.options["shared"] = shared ? "1" : "0";
    a.own.push_back({"proj_k", {1, tokens, length}});
    if (shared)
        r.saw("keys and values are the same, and so is their projection (share_kv)");
    else
        a.own.push_back({"proj_v", {1, tokens, length}});
    r.spec.embedding.max_tokens = tokens;
    r.took(
        fmt::format("a sample of fewer than {} tokens uses the first rows of the projections; the "
                    "library requires exactly {}",
                    tokens, tokens));
}

void read_embeddings(Reader& r) {
    ModelSpec& s = r.spec;
    const std::string token = "token_emb.weight", position = "pos_emb.weight";
    s.embedding.vocabulary = r.agreed({"num_tokens"}, r.extent(token, 0), token);
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens = r.agreed({"seq_len"}, r.extent(position, 0), position);
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "linformer");
    const bool language = prefix_of(file, language_anchor).has_value();
    r.find_prefix(language ? language_anchor : anchor);
    const std::string inside = language ? "linformer." : "";
    const std::string attention = inside + "net.layers.0.0.fn.";
    ModelSpec& s = r.spec;
    const std::string query = attention + "to_q.weight";
    s.width = s.embedding.width = r.agreed({"dim"}, r.extent(query, 1), query);
    r.only({"reversible"}, false);
    BlockSpec b;
    b.placement = NormPlacement::pre;
    read_heads(r, attention, b);
    read_projections(r, attention, b);
    b.attention.qkv_bias = false;
    b.ffn.width = r.extent(inside + "net.layers.0.1.fn.w1.weight", 0);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    const std::string layers = inside + "net.layers.";
    s.blocks.assign(std::size_t(r.agreed({"depth"}, r.layers(layers), layers + "*")), b);
    if (language) read_embeddings(r);
    Names names = translate(s, pairs(b.attention.options.at("shared") == "1"));
    if (!language)
        for (auto& [canonical, source] : names)
            source.file_name.erase(0, std::string_view("linformer.").size());
    return language ? r.finish(std::move(names), {"to_logits.*"})
                    : r.finish(std::move(names), {}, {"net."});
}

}  // namespace

extern const ArchitectureEntry linformer = {
    "linformer", "Linformer (lucidrains)",
    "Linformer and LinformerLM of lucidrains: pre-norm, stored projections", matches, read};

}  // namespace tsdiag::families::linformer
