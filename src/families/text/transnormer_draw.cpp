#include <fmt/format.h>

#include <cmath>

#include "transnormer.hpp"
#include "tsdiag/attention.hpp"

/// TransNormer drawn at random as fairseq initialises it, and its configuration.
namespace tsdiag::families {

void set_transnormer_attention(BlockSpec& b, const Transnormer& kind, bool early) {
    AttentionSpec& a = b.attention;
    a.options.clear();
    if (early) {
        a.variant = "diag_attention";
        a.options["block"] = std::to_string(kind.block);
        a.options["activation"] = kind.softmax ? "softmax" : "rela";
        if (kind.softmax && !a.causal) a.options["padded"] = kind.padded ? "1" : "0";
        a.output_norm = kind.softmax ? OutputNorm::none : OutputNorm::simple_rms;
        return;
    }
    a.variant = "norm_attention";
    a.options["map"] = "identity";
    a.qk_activation = kind.linear_map;
    a.output_norm = OutputNorm::simple_rms;
}

namespace {

/// Sizes of the released scripts.
Sizes preset(bool language, std::string_view plan) {
    Sizes s;
    s.layers = language ? 6 : 12;
    s.d = language ? 512 : 768;
    s.heads = language ? 8 : 12;
    s.ffn = language ? 1365 : 2048;  // 8 d / 3
    s.vocab = 50265;
    s.act = Unary::silu;
    s.attention = plan;
    s.causal = language;
    return s;
}

std::string_view plan_of(const Transnormer& kind) {
    return kind.softmax ? "transnormer2" : "transnormer1";
}

ModelSpec spec_of(const Sizes& sizes, const Transnormer& kind) {
    BlockSpec b = block(sizes);
    AttentionSpec& a = b.attention;
    b.placement = kind.language ? NormPlacement::pre : NormPlacement::post;
    b.norm.kind = NormKind::simple_rms;
    b.ffn.gated = kind.gated;
    a.rotary.columns = a.head_dim / 2 * 2;
    a.rotary.interleaved = a.rotary.reflected = true;
    ModelSpec s = token_model("transnormer", sizes, b);
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        const LayerAttention& said = sizes.attentions[l];
        BlockSpec other = s.blocks[l];
        set_transnormer_attention(s.blocks[l], kind, said.variant == "diag_attention");
        for (const LayerAttention& second : said.second) {
            set_transnormer_attention(other, kind, second.variant == "diag_attention");
            const AttentionSpec& to = other.attention;
            s.blocks[l].attention.second = {to.variant, to.options, to.output_norm,
                                            to.qk_activation};
        }
    }
    s.embedding.positions = kind.language ? Positions::fairseq : Positions::learned;
    s.embedding.padding_id = 1;
    s.embedding.position_offset = 2;
    if (kind.language) s.embedding.scale = std::sqrt(double(s.width));
    s.embedding.norm = !kind.language;
    s.embedding.norm_kind = NormKind::simple_rms;
    s.final_norm = kind.language;
    return s;
}

/// Which layers have chunks may be chosen; their kind follows from the model's name.
void require_own_attentions(const KeyReader& k, const Sizes& sizes, const Transnormer& kind) {
    bool chunks = false;
    std::vector<LayerAttention> all = sizes.attentions;
    for (const LayerAttention& layer : sizes.attentions)
        all.insert(all.end(), layer.second.begin(), layer.second.end());
    for (const LayerAttention& layer : all) {
        chunks |= layer.variant == "diag_attention";
        if (layer.variant != "diag_attention" && layer.variant != "norm_attention")
            k.refuse(
                fmt::format("unsupported attention {}, expected diag_attention or norm_attention",
                            layer.variant));
    }
    if (attention_plan(sizes.attention) && sizes.attention != plan_of(kind))
        k.refuse(
            fmt::format("its attention is that of {}, not {}", plan_of(kind), sizes.attention));
    if (sizes.attention.find('=') != std::string::npos)
        k.refuse("the only option of its attentions is block=N");
    for (const char* key : {"activation", "map", "output_norm"})
        if (k.has(key)) k.refuse(fmt::format("unknown key '{}': the name determines it", key));
    if (k.has("block") && !chunks) k.refuse("unknown key 'block': no layer has chunks");
    if (k.has("padded") && (!chunks || !kind.softmax || sizes.causal))
        k.refuse("unknown key 'padded': only masked models with softmax in their chunks have it");
}

Draw uniform(double bound) { return {Draw::Law::uniform, bound, -1}; }

/// Xavier's bound of attentions, PyTorch's default of the feed-forward and of projections' biases.
Draw language_law(const Parameter& p, const Sizes& s) {
    const auto d = double(s.d);
    if (p.name == "embed.token") return {Draw::Law::normal, 1 / std::sqrt(d), 1};
    if (p.name.find("ffn.") != std::string::npos)
        return uniform(1 / std::sqrt(p.name.find("down") != std::string::npos ? double(s.ffn) : d));
    const bool output = p.name.find("attn.o") != std::string::npos;
    if (p.vector) return output ? Draw{} : uniform(1 / std::sqrt(d));
    // Queries, keys and values of two attentions side by side are matrices of their own.
    const double sides =
        double((output ? p.shape.rows : std::min(p.shape.rows, s.d)) + p.shape.cols);
    return uniform(std::sqrt((output ? 6 : 3) / sides));
}

}  // namespace

RandomModel draw_transnormer(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Transnormer kind;
    kind.language = !name.ends_with("-mlm");
    kind.softmax = name.starts_with("transnormer2");
    kind.linear_map = kind.softmax ? Unary::elu_plus_one : Unary::elu;
    kind.gated = k.flag("glu", true);
    Sizes usual = preset(kind.language, plan_of(kind));
    if (!kind.gated) usual.ffn = 4 * usual.d;
    const Sizes sizes = read_sizes(k, usual);
    require_own_attentions(k, sizes, kind);
    kind.block = k.count("block", 64);
    if (kind.softmax && !sizes.causal) kind.padded = k.flag("padded", true);
    k.finish();
    ModelSpec s = spec_of(sizes, kind);
    const auto law = [&](const Parameter& p) -> Draw {
        if (p.name.ends_with("lrpe.v")) return {Draw::Law::unit, 0, -1};
        if (kind.language) return language_law(p, sizes);
        Draw normal = normal_law(p, 0.02, 1);
        if (p.name == "embed.position") normal.zero_row = 1;
        return normal;
    };
    return drawn(std::move(s), law,
                 kind.language
                     ? "attention U(-b, b), b^2 = 3/(in + out) of q, k, v and 6/(in + out) of the "
                       "output; feed-forward and biases U(-1/sqrt(in), 1/sqrt(in)); embedding "
                       "N(0, 1/d); the reflection of LRPE of length 1"
                     : "weights N(0, 0.02^2), biases 0, the reflection of LRPE of length 1");
}

std::vector<std::string_view> transnormer_random_names() {
    return {"transnormer1", "transnormer1-lm", "transnormer1-mlm",
            "transnormer2", "transnormer2-lm", "transnormer2-mlm"};
}

Json transnormer_config(const ModelSpec& s) {
    const BlockSpec& first = s.blocks.front();
    const bool language = s.embedding.positions == Positions::fairseq;
    const std::string side = language ? "decoder_" : "encoder_";
    Json out;
    out.set("model_type", "transnormer");
    Json::Array kinds;
    const AttentionSpec *chunks = nullptr, *linear = nullptr;
    for (const BlockSpec& b : s.blocks) {
        const bool chunk = b.attention.variant == "diag_attention";
        (chunk ? chunks : linear) = &b.attention;
        kinds.emplace_back(chunk ? 2 : 1);
    }
    out.set(side + "attention_types", std::move(kinds));
    out.set("use_softmax", chunks && chunks->options.at("activation") == "softmax");
    const Unary map = linear ? linear->qk_activation.value_or(Unary::elu) : Unary::elu;
    out.set("linear_act_fun", map == Unary::elu ? "elu" : map == Unary::relu ? "relu" : "1+elu");
    if (chunks) out.set("chunk_size", Index{std::stol(chunks->options.at("block"))});
    if (chunks && chunks->options.contains("padded"))
        out.set("padded_chunks", chunks->options.at("padded") == "1");
    if (!first.ffn.gated) out.set("glu", false);
    out.set("glu_act",
            first.ffn.activation == Unary::copy ? "identity" : tsdiag::name(first.ffn.activation));
    out.set(side + "normalize_before", first.placement == NormPlacement::pre);
    out.set(side + "embed_dim", s.width).set(side + "attention_heads", first.attention.heads);
    out.set(side + "layers", Index(s.blocks.size()));
    if (language) out.set("max_target_positions", s.embedding.max_tokens);
    out.set("no_scale_embedding", s.embedding.scale == 1);
    return out.set("layernorm_embedding", s.embedding.norm);
}

}  // namespace tsdiag::families
