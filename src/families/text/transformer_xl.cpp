#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "engine/draw.hpp"
#include "engine/reader.hpp"
#include "tsdiag/attention.hpp"

/// Transformer-XL as Hugging Face's TransfoXL stores it, which took the names of the authors' code.
namespace tsdiag::families::transformer_xl {
namespace {

constexpr std::array layer_pairs{
    NamePair{"embed.token", "word_emb.emb_layers.0.weight"},
    NamePair{"layer.*.norm1", "layers.*.dec_attn.layer_norm"},
    NamePair{"layer.*.attn.q", "layers.*.dec_attn.qkv_net", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "layers.*.dec_attn.qkv_net", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "layers.*.dec_attn.qkv_net", Form::matrix, 2},
    NamePair{"layer.*.attn.o", "layers.*.dec_attn.o_net"},
    NamePair{"layer.*.attn.position", "layers.*.dec_attn.r_net.weight"},
    NamePair{"layer.*.deesc.tau", "layers.*.deesc.tau"},
    NamePair{"layer.*.norm2", "layers.*.pos_ff.layer_norm"},
    NamePair{"layer.*.ffn.up", "layers.*.pos_ff.CoreNet.0"},
    NamePair{"layer.*.ffn.down", "layers.*.pos_ff.CoreNet.3"},
};
constexpr std::string_view anchor = "layers.0.dec_attn.qkv_net.weight",
                           own_bias = "layers.0.dec_attn.r_w_bias";

/// `shared`: all layers have one u and one v.
Names file_names(const ModelSpec& spec, bool shared) {
    std::vector<NamePair> pairs(layer_pairs.begin(), layer_pairs.end());
    const auto biases =
        shared ? std::array{"r_w_bias", "r_r_bias"}
               : std::array{"layers.*.dec_attn.r_w_bias", "layers.*.dec_attn.r_r_bias"};
    pairs.push_back({"layer.*.attn.content_bias", biases[0]});
    pairs.push_back({"layer.*.attn.position_bias", biases[1]});
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < spec.embedding.clusters.ends.size(); ++i)
        for (const std::string& text :
             {fmt::format("embed.cluster.{}", i), fmt::format("word_emb.emb_layers.{}.weight", i),
              fmt::format("embed.cluster.{}.map", i), fmt::format("word_emb.emb_projs.{}", i)})
            texts.push_back(text);
    for (std::size_t i = 0; i < texts.size(); i += 2) pairs.push_back({texts[i], texts[i + 1]});
    return translate(spec, pairs);
}
Names names(const ModelSpec& spec) { return file_names(spec, false); }

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"transfo-xl", "transfo_xl", "transformer_xl"}))
        return *declared;
    return prefix_of(file, anchor).has_value();
}

void add_own_parameters(ModelSpec& spec) {
    for (BlockSpec& b : spec.blocks) {
        const AttentionSpec& a = b.attention;
        b.attention.own = {{"position", {1, a.heads * a.head_dim, spec.width}},
                           {"content_bias", {1, a.heads, a.head_dim}},
                           {"position_bias", {1, a.heads, a.head_dim}}};
    }
}

/// The ends of the vocabulary's clusters as the configuration has them, the last is the vocabulary.
std::vector<Index> declared_ends(const Reader& r, Index vocabulary) {
    std::vector<Index> out;
    if (const Json& said = r.value({"cutoffs"}); said.is_array())
        for (const Json& end : said.array()) {
            if (!end.is_integer() || end.integer() <= (out.empty() ? 0 : out.back()) ||
                end.integer() > vocabulary)
                r.refuse(
                    fmt::format("{} says cutoffs = {}, expected ascending values from 1 to the "
                                "vocabulary of {}",
                                r.config_source(), said.dump(), vocabulary));
            if (end.integer() < vocabulary) out.push_back(end.integer());
        }
    out.push_back(vocabulary);
    return out;
}

/// One table, or one for each cluster with a map to the model's width.
void read_embedding(Reader& r) {
    ModelSpec& s = r.spec;
    const auto table = [](std::size_t i) {
        return fmt::format("word_emb.emb_layers.{}.weight", i);
    };
    std::vector<Index> ends;
    for (std::size_t i = 0; r.has(table(i)); ++i)
        ends.push_back((i == 0 ? 0 : ends.back()) + r.extent(table(i), 0));
    if (ends.empty()) r.refuse(fmt::format("tensor '{}{}' is missing", r.prefix(), table(0)));
    s.embedding.vocabulary = r.agreed({"vocab_size", "n_token"}, ends.back(), table(0));
    s.embedding.scale = std::sqrt(double(s.width));
    s.embedding.width = s.width;
    const Index columns = r.agreed({"d_embed"}, r.extent(table(0), 1), table(0));
    const std::vector<Index> declared = declared_ends(r, s.embedding.vocabulary);
    const bool mapped = r.has("word_emb.emb_projs.0");
    if (!mapped && (ends.size() > 1 || columns != s.width))
        r.refuse(
            fmt::format("tensor '{}word_emb.emb_projs.0' is missing, expected a map from {} "
                        "embedding columns to {}",
                        r.prefix(), columns, s.width));
    Index divisor = 1;
    if (ends.size() > 1) divisor = columns / r.extent(table(1), 1);
    r.agreed({"div_val"}, divisor, ends.size() > 1 ? table(1) : table(0));
    if (ends.size() > 1 && !r.value({"cutoffs"}).is_null() && declared != ends)
        r.refuse(fmt::format("{} says cutoffs = {}, but its tables end at {}", r.config_source(),
                             r.value({"cutoffs"}).dump(), fmt::join(ends, ", ")));
    s.head.cluster_ends = ends.size() > 1 ? ends : declared;
    if (mapped) s.embedding.clusters = {.ends = ends, .width = columns, .divisor = divisor};
}

BlockSpec read_block(Reader& r) {
    BlockSpec b;
    AttentionSpec& a = b.attention;
    a.variant = "transformer_xl";
    a.causal = true;
    a.qkv_bias = a.out_bias = false;
    const std::string bias(r.has(std::string(own_bias)) ? own_bias : "r_w_bias");
    a.heads = a.kv_heads = r.agreed({"n_head"}, r.extent(bias, 0), bias);
    a.head_dim = r.agreed({"d_head"}, r.extent(bias, 1), bias);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const bool pre = r.flag({"pre_lnorm"}, false);
    b.placement = pre ? NormPlacement::pre : NormPlacement::post;
    b.norm.eps = r.number({"layer_norm_epsilon"}, 1e-5);
    const std::string up = "layers.0.pos_ff.CoreNet.0.weight";
    b.ffn.width = r.agreed({"d_inner"}, r.extent(up, 0), up);
    b.ffn.activation = Unary::relu;
    const double clamp = r.number({"clamp_len"}, 1000);
    if (clamp != std::floor(clamp) || clamp > 1e8)
        r.refuse(fmt::format("clamp_len {} is not a number of tokens", clamp));
    if (clamp > 0) a.options["clamp"] = fmt::format("{}", Index(clamp));
    if (r.flag({"same_length"}, true)) {
        a.window = r.count({"mem_len"}, 1600);
        if (a.window == 0)
            r.refuse("same_length limits each token to mem_len keys, but mem_len is 0");
        r.saw(
            fmt::format("a token attends to the last {} keys: same_length and mem_len", a.window));
    }
    b.deesc.learned = r.has("layers.0.deesc.tau");
    return b;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "transformer_xl");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    r.only({"attn_type"}, 0);
    r.only({"adaptive"}, true);
    r.only({"ext_len"}, 0);
    // Of training, of the memory that a run is given (mem_len without same_length), of sharing.
    for (const char* key :
         {"mem_len", "tgt_len", "dropatt", "sample_softmax", "untie_r", "init", "init_range",
          "proj_init_std", "tie_weight", "tie_projs", "proj_share_all_but_first"})
        r.value({key});
    const std::string fused(anchor), out = "layers.0.dec_attn.o_net.weight";
    s.width = r.agreed({"d_model"}, r.extent(fused, 1), fused);
    read_embedding(r);
    const BlockSpec b = read_block(r);
    const Index layers = r.layers("layers.");
    r.agreed({"n_layer"}, layers, "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    add_own_parameters(s);
    r.saw(
        "the first segment has no memory, as in the paper (Hugging Face's code starts with a zero "
        "memory)");
    return r.finish(file_names(s, !r.has(std::string(own_bias))),
                    {"pos_emb.inv_freq", "r_w_bias", "r_r_bias", "*crit.*"});
}

/// The sizes of the released scripts for WikiText-103.
constexpr NamedSizes named[] = {{"transformer-xl", 16, 410, 10},
                                {"transformer-xl-large", 18, 1024, 16}};

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.tokens = 150;
    preset.vocab = 267735;
    preset.act = Unary::relu;
    preset.causal = true;
    preset.attention = "transformer_xl";
    preset = sizes_of(name, named, preset);
    if (name == "transformer-xl") preset.ffn = 2100;
    const Sizes sizes = read_sizes(k, preset);
    BlockSpec b = block(sizes);
    b.placement = placement_named(k.text("placement").value_or("post"));
    if (b.placement != NormPlacement::post && b.placement != NormPlacement::pre)
        k.refuse(fmt::format("placement={}: expected post or pre", tsdiag::name(b.placement)));
    b.deesc = read_deescalation(k);
    const Index memory = k.text("memory") ? k.count("memory", 1) : 0;
    k.finish();
    for (const LayerAttention& layer : sizes.attentions)
        if (layer.variant != "transformer_xl")
            k.refuse(
                fmt::format("unsupported attention {}, expected transformer_xl", layer.variant));
    if (!sizes.causal)
        k.refuse("causal=0: not supported, because the model predicts the next token");
    if (sizes.kv_heads != sizes.heads) k.refuse("kv_heads must be equal to heads");
    b.attention.qkv_bias = b.attention.out_bias = false;
    ModelSpec s = token_model("transformer_xl", sizes, b);
    s.embedding.scale = std::sqrt(double(s.width));
    s.memory_tokens = memory;
    s.embedding.max_tokens = sizes.tokens + memory;
    add_own_parameters(s);
    return drawn_normal(std::move(s),
                        "weights N(0, 0.02^2), u and v of each layer too, biases 0, norms 1 and 0");
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    Json out;
    out.set("architectures", Json::Array{"TransfoXLModel"}).set("model_type", "transfo-xl");
    out.set("vocab_size", s.embedding.vocabulary)
        .set("cutoffs", Json::Array{})
        .set("div_val", Index{1});
    out.set("d_model", s.width).set("d_embed", s.width).set("n_layer", std::ssize(s.blocks));
    out.set("n_head", a.heads).set("d_head", a.head_dim).set("d_inner", b.ffn.width);
    out.set("pre_lnorm", b.placement == NormPlacement::pre);
    const auto clamp = a.options.find("clamp");
    const bool clamped = clamp != a.options.end() && clamp->second != "none";
    out.set("clamp_len", clamped ? Index{std::stoll(clamp->second)} : Index{-1});
    out.set("mem_len", s.memory_tokens).set("same_length", false).set("untie_r", true);
    return out.set("attn_type", Index{0}).set("layer_norm_epsilon", b.norm.eps);
}

}  // namespace

extern const ArchitectureEntry transformer_xl = {
    "transformer_xl",
    "Transformer-XL",
    "TransfoXL of Hugging Face: relative positions, embeddings and softmax in clusters, memory",
    matches,
    read,
    draw,
    [] { return names_of(named); },
    names,
    config};

}  // namespace tsdiag::families::transformer_xl
