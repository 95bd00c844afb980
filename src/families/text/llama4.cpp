#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "decoder.hpp"
#include "engine/known.hpp"
#include "engine/rope.hpp"

/// Llama 4, the text model: chunks and rotation in three of four layers, queries that grow with
/// their position in the others, experts that act on weighted inputs beside a shared one.  [LLAMA4]
namespace tsdiag::families::llama4 {
namespace {

constexpr std::array pairs = both(
    std::array{
        NamePair{"layer.*.ffn.gate", "layers.*.feed_forward.gate_proj"},
        NamePair{"layer.*.ffn.up", "layers.*.feed_forward.up_proj"},
        NamePair{"layer.*.ffn.down", "layers.*.feed_forward.down_proj"},
        NamePair{"layer.*.ffn.router", "layers.*.feed_forward.router"},
        NamePair{"layer.*.ffn.expert.*.gate", "layers.*.feed_forward.experts.*.gate_proj"},
        NamePair{"layer.*.ffn.expert.*.up", "layers.*.feed_forward.experts.*.up_proj"},
        NamePair{"layer.*.ffn.expert.*.down", "layers.*.feed_forward.experts.*.down_proj"},
        NamePair{"layer.*.ffn.shared.gate", "layers.*.feed_forward.shared_expert.gate_proj"},
        NamePair{"layer.*.ffn.shared.up", "layers.*.feed_forward.shared_expert.up_proj"},
        NamePair{"layer.*.ffn.shared.down", "layers.*.feed_forward.shared_expert.down_proj"}},
    llama_attention_pairs);

constexpr Index interval = 4;  ///< every fourth layer has no positions

bool has_experts(const BlockSpec& b) { return b.ffn.experts.count > 0; }

/// The library's parameters of a layer: gate_up_proj (experts, d, 2 width), the gates before the
/// ups, and down_proj (experts, width, d).
Names names(const ModelSpec& spec) {
    Names out = translate(spec, pairs);
    const auto layer = std::ranges::find_if(spec.blocks, has_experts);
    const Index width = layer == spec.blocks.end() ? 0 : layer->ffn.width;
    constexpr std::string_view before = ".feed_forward.experts.";
    for (auto& [canonical, source] : out) {
        const std::size_t found = source.file_name.find(before);
        if (found == std::string::npos) continue;
        const std::size_t number = found + before.size(), dot = source.file_name.find('.', number);
        source.slice = std::stoll(source.file_name.substr(number, dot - number));
        source.file_name.resize(number);
        source.transposed = true;
        if (canonical.find(".down.") != std::string::npos) {
            source.file_name += "down_proj";
            continue;
        }
        source.file_name += "gate_up_proj";
        source.first = canonical.find(".up.") != std::string::npos ? width : 0;
        source.length = width;
        source.total = 2 * width;
    }
    return out;
}

/// The configuration of the text model.  Beside it stand those of the vision tower, which is left
/// out, and keys that no forward pass reads; any other is refused, since the library would not read
/// it there.
void use_text_config(Reader& r) {
    const Json& inner = r.config()["text_config"];
    if (!inner.is_object()) return;
    constexpr std::array outer_keys{"text_config", "vision_config", "boi_token_index",
                                    "eoi_token_index", "image_token_index"};
    Json all = inner;
    for (const auto& [key, said] : r.config().object()) {
        if (std::ranges::find(outer_keys, key) != outer_keys.end()) continue;
        if (!is_harmless(key, said))
            r.refuse(
                fmt::format("{} has the key '{}' beside text_config, which is unknown to "
                            "family llama4 there; if it changes nothing, pass --ignore {}",
                            r.config_source(), key, key));
        if (!inner.contains(key)) all.set(key, said);
    }
    r.saw("the vision tower and its projector are not read: the text model is run");
    const std::string source = fmt::format("text_config of {}", r.config_source());
    r.use_config(std::move(all), source, false);
}

/// Numbers of layers, by a list of them all or of some.
std::vector<bool> layers_of(Reader& r, std::string_view key, std::size_t layers, bool numbers) {
    std::vector<bool> out(layers, false);
    const Json& list = r.value({key});
    const auto wrong = [&] {
        r.refuse(fmt::format("{} is {}, which does not fit {} layers", key, list.dump(), layers));
    };
    if (!list.is_array() || (!numbers && list.array().size() < layers)) wrong();
    for (std::size_t i = 0; i < list.array().size(); ++i) {
        const Json& one = list.array()[i];
        if (!one.is_integer() || one.integer() < 0) wrong();
        if (!numbers && i < layers) out[i] = one.integer() != 0;
        if (!numbers) continue;
        if (one.integer() >= Index(layers)) wrong();
        out[std::size_t(one.integer())] = true;
    }
    return out;
}
/// Whether a list says anything: the library takes an empty one for none.
bool listed(Reader& r, std::string_view key, bool empty_counts) {
    const Json& list = r.value({key});
    return !list.is_null() && (empty_counts || !list.is_array() || !list.array().empty());
}

std::vector<bool> every(std::size_t layers, Index step) {
    std::vector<bool> out(layers, false);
    for (std::size_t l = 0; l < layers; ++l) out[l] = (Index(l) + 1) % step == 0;
    return out;
}

/// A switch that the first configurations have as a number.
bool switched_on(const Reader& r, std::string_view key, bool fallback) {
    const Json& said = r.value({key});
    if (said.is_null()) return fallback;
    if (!said.is_bool() && !said.is_number())
        r.refuse(fmt::format("{} is {}, expected true or false", key, said.dump()));
    return said.is_bool() ? said.boolean() : said.number() != 0;
}

void read_heads(Reader& r, AttentionSpec& a) {
    const std::string at = "layers.0.self_attn.", query = at + "q_proj.weight",
                      key = at + "k_proj.weight";
    const Index inner = r.extent(query, 0);
    a.heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = r.agreed({"head_dim"}, inner / a.heads, query);
    const Index columns = r.extent(key, 0);
    if (a.head_dim % 2 != 0 || columns % a.head_dim != 0 || a.heads % (columns / a.head_dim) != 0)
        r.refuse(
            fmt::format("keys of width {} cannot be shared by {} query heads of {} columns, "
                        "an even number",
                        columns, a.heads, a.head_dim));
    a.kv_heads = r.agreed({"num_key_value_heads"}, columns / a.head_dim, key);
    a.causal = true;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    a.qkv_bias = a.out_bias = r.part({"attention_bias"}, at + "q_proj.bias", true);
}

/// Layers that rotate attend in chunks and have normalised queries and keys; in the others queries
/// grow.  The norm has no weights, so that it is the same before the rotation as behind it, where
/// the library has it.
void read_positions(Reader& r) {
    auto& blocks = r.spec.blocks;
    AttentionSpec turning = blocks.front().attention, still = turning;
    turning.rotary = read_rotary(r, turning.head_dim, {"rope_theta"}, 500000);
    turning.rotary.interleaved = true;
    turning.qk_norm = r.flag({"use_qk_norm"}, true);
    turning.qk_norm_weight = false;
    if (turning.qk_norm && turning.rotary.magnitude != 1)
        r.refuse(
            fmt::format("rotary scaling '{}' stretches queries and keys, whose norm behind "
                        "it (use_qk_norm) would undo that; this is not supported",
                        turning.rotary.scaling));
    const bool grows = switched_on(r, "attn_temperature_tuning", true);
    const double scale = r.number({"attn_scale"}, 0.1);
    const Index length = r.count({"floor_scale"}, 8192);
    if (grows && (length < 1 || scale < 0))
        r.refuse(
            fmt::format("floor_scale {} and attn_scale {} give no temperature", length, scale));
    if (grows) still.growth = {scale, length};
    const std::vector<bool> rotates = [&] {
        const Index step = r.count({"no_rope_layer_interval"}, interval);
        if (listed(r, "no_rope_layers", false))
            return layers_of(r, "no_rope_layers", blocks.size(), false);
        if (step < 1) r.refuse("no_rope_layer_interval is 0, expected 1 or more");
        std::vector<bool> out = every(blocks.size(), step);
        out.flip();
        return out;
    }();
    std::vector<bool> chunked = rotates;
    if (const Json& types = r.value({"layer_types"}); !types.is_null()) {
        if (!types.is_array() || types.array().size() != blocks.size())
            r.refuse(fmt::format("layer_types is {}, expected one for each of {} layers",
                                 types.dump(), blocks.size()));
        for (std::size_t l = 0; l < blocks.size(); ++l) {
            const Json& type = types.array()[l];
            const std::string word = type.is_string() ? type.string() : type.dump();
            if (word != "chunked_attention" && word != "full_attention")
                r.refuse(
                    fmt::format("layer_types has '{}', which is not supported (chunked_attention "
                                "and full_attention are)",
                                word));
            chunked[l] = word == "chunked_attention";
        }
    }
    const Json& chunk = r.value({"attention_chunk_size"});
    const bool none = chunk.is_null() && r.config().contains("attention_chunk_size");
    const Index size = none ? 0 : r.count({"attention_chunk_size"}, 8192);
    for (std::size_t l = 0; l < blocks.size(); ++l) {
        AttentionSpec& a = blocks[l].attention = rotates[l] ? turning : still;
        if (!chunked[l]) continue;
        if (size < 1)
            r.refuse(fmt::format("layer {} attends in chunks, but attention_chunk_size is {}", l,
                                 chunk.dump()));
        a.options["chunk"] = std::to_string(size);
    }
}

void read_feed_forward(Reader& r) {
    auto& blocks = r.spec.blocks;
    const auto at = [](std::size_t layer) { return fmt::format("layers.{}.feed_forward.", layer); };
    const Index step = r.count({"interleave_moe_layer_step"}, 1);
    std::vector<bool> mixed;
    if (listed(r, "moe_layers", true)) {
        mixed = layers_of(r, "moe_layers", blocks.size(), true);
    } else {
        if (step < 1) r.refuse("interleave_moe_layer_step is 0, expected 1 or more");
        mixed = every(blocks.size(), step);
    }
    const Unary activation = r.activation({"hidden_act"}, "silu");
    for (const char* training : {"output_router_logits", "router_aux_loss_coef",
                                 "router_jitter_noise", "for_llm_compressor"})
        r.value({training});
    r.value({"intermediate_size"});
    r.value({"intermediate_size_mlp"});
    r.value({"num_local_experts"});
    const Index chosen = r.count({"num_experts_per_tok"}, 1);
    for (std::size_t l = 0; l < blocks.size(); ++l) {
        FeedForwardSpec& f = blocks[l].ffn;
        f.gated = true;
        f.bias = false;
        f.activation = activation;
        const std::string router = at(l) + "router.weight";
        if (mixed[l] != r.has(router))
            r.refuse(
                fmt::format("layer {} {} experts by moe_layers and interleave_moe_layer_step, "
                            "but tensor '{}{}' is {}",
                            l, mixed[l] ? "has" : "has no", r.prefix(), router,
                            mixed[l] ? "missing" : "there"));
        if (!mixed[l]) {
            const std::string up = at(l) + "up_proj.weight";
            f.width = r.agreed({"intermediate_size_mlp"}, r.extent(up, 0), up);
            continue;
        }
        const std::string shared = at(l) + "shared_expert.up_proj.weight";
        f.width = r.agreed({"intermediate_size"}, r.extent(shared, 0), shared);
        ExpertsSpec& e = f.experts;
        e.count = r.agreed({"num_local_experts"}, r.extent(router, 0), router);
        e.chosen = chosen;
        if (chosen < 1 || chosen > e.count)
            r.refuse(fmt::format("num_experts_per_tok is {}, but there are {} experts", chosen,
                                 e.count));
        e.sigmoid = e.of_input = true;
        e.shared = f.width;
    }
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "llama4");
    use_text_config(r);
    const std::string tokens = "embed_tokens.weight";
    r.find_prefix(tokens);  // the vision tower has layers of the same names
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    ModelSpec& s = r.spec;
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(tokens, 0), tokens);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(tokens, 1), tokens);
    s.embedding.max_tokens = r.count({"max_position_embeddings"}, 131072);
    s.final_norm = true;
    BlockSpec b;
    b.placement = NormPlacement::pre;
    b.norm.kind = NormKind::rms;
    b.norm.bias = false;
    b.norm.eps = b.attention.qk_eps = r.number({"rms_norm_eps"}, 1e-5);
    read_heads(r, b.attention);
    const Index layers = r.layers("layers.");
    r.agreed({"num_hidden_layers"}, layers, "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    read_positions(r);
    read_feed_forward(r);
    const auto mixture = std::ranges::find_if(s.blocks, has_experts);
    const std::string one =
        fmt::format("layers.{}.feed_forward.experts.0.up_proj.weight", mixture - s.blocks.begin());
    const bool apart = mixture != s.blocks.end() && r.has(one);
    return r.finish(apart ? translate(s, pairs) : names(s),
                    {"*lm_head.*", "score.*", "*vision_model.*", "*multi_modal_projector.*"});
}

struct Preset {
    std::string_view name;
    Sizes sizes;
    Index experts = 0, step = 1;
    bool normed = false, scaled = false;
};
const std::vector<Preset>& presets() {
    const auto sizes = [](Index tokens) {
        return decoder_sizes(48, 5120, 40, 8, 8192, tokens, 202048, 1e-5, 128);
    };
    static const std::vector<Preset> all{{"llama4-scout", sizes(262144), 16, 1, true, true},
                                         {"llama4-maverick", sizes(1048576), 128, 2}};
    return all;
}

RandomModel draw(std::string_view name, const Keys& keys) {
    const Preset& preset = *std::ranges::find(presets(), name, &Preset::name);
    KeyReader k(name, keys);
    const Sizes sizes = read_sizes(k, preset.sizes);
    k.finish();
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    b.norm.kind = NormKind::rms;
    b.norm.bias = b.ffn.bias = false;
    b.ffn.gated = true;
    AttentionSpec& of_all = b.attention;
    of_all.causal = true;
    of_all.qkv_bias = of_all.out_bias = of_all.qk_norm_weight = false;
    of_all.qk_eps = b.norm.eps;
    if (of_all.head_dim % 2 != 0)
        k.refuse(fmt::format("a head of {} columns cannot rotate in pairs", of_all.head_dim));
    ModelSpec s = token_model("llama4", sizes, b);
    s.final_norm = true;
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        AttentionSpec& a = s.blocks[l].attention;
        if ((Index(l) + 1) % interval == 0) {
            a.growth = {.scale = 0.1, .length = 8192};
        } else {
            if (a.variant == "softmax") a.options.emplace("chunk", "8192");
            a.qk_norm = preset.normed;
            a.rotary.columns = a.head_dim;
            a.rotary.theta = 500000;
            a.rotary.interleaved = true;
            if (preset.scaled) {
                a.rotary.scaling = "llama3";
                a.rotary.factor = 8;
                a.rotary.original_length = 8192;
            }
        }
        FeedForwardSpec& f = s.blocks[l].ffn;
        if ((Index(l) + 1) % preset.step != 0) {
            f.width = 2 * sizes.ffn;
            continue;
        }
        f.experts = {.count = preset.experts,
                     .chosen = 1,
                     .sigmoid = true,
                     .of_input = true,
                     .shared = sizes.ffn};
    }
    return drawn_normal(std::move(s), "weights N(0, 0.02^2), norms 1");
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    Json out;
    out.set("architectures", Json::Array{"Llama4TextModel"}).set("model_type", "llama4_text");
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", a.heads).set("num_key_value_heads", a.kv_heads);
    out.set("head_dim", a.head_dim).set("attention_bias", a.qkv_bias);
    out.set("rms_norm_eps", b.norm.eps).set("max_position_embeddings", s.embedding.max_tokens);
    out.set("vocab_size", s.embedding.vocabulary)
        .set("hidden_act", hf_activation(b.ffn.activation));
    Json::Array rotates, mixed, types;
    Index chunk = 8192;
    QueryGrowth growth;
    bool normed = false;
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        const AttentionSpec& own = s.blocks[l].attention;
        const FeedForwardSpec& f = s.blocks[l].ffn;
        rotates.emplace_back(Index(own.rotary.columns > 0));
        const auto said = own.options.find("chunk");
        types.emplace_back(said == own.options.end() ? "full_attention" : "chunked_attention");
        if (said != own.options.end()) chunk = std::stoll(said->second);
        if (own.rotary.columns > 0) {
            normed = own.qk_norm;
            out.set("rope_theta", own.rotary.theta);
            write_rope_scaling(own.rotary, out);
        } else {
            growth = own.growth;
        }
        out.set(has_experts(s.blocks[l]) ? "intermediate_size" : "intermediate_size_mlp", f.width);
        if (!has_experts(s.blocks[l])) continue;
        mixed.emplace_back(Index(l));
        out.set("num_local_experts", f.experts.count).set("num_experts_per_tok", f.experts.chosen);
    }
    out.set("no_rope_layers", std::move(rotates)).set("layer_types", std::move(types));
    out.set("moe_layers", std::move(mixed)).set("attention_chunk_size", chunk);
    out.set("use_qk_norm", normed).set("attn_temperature_tuning", growth.scale != 0);
    out.set("attn_scale", growth.scale).set("floor_scale", growth.length);
    return out.set("initializer_range", 0.02).set("tie_word_embeddings", true);
}

}  // namespace

extern const ArchitectureEntry llama4 = {
    "llama4",
    "Llama 4",
    "text model of Llama 4: chunks and rotation in three of four layers, growing queries in the "
    "others, experts on weighted inputs",
    [](const Checkpoint&, const Json& c) {
        return by_model_type(c, {"llama4", "llama4_text"}).value_or(false);
    },
    read,
    draw,
    [] { return names_of(presets()); },
    names,
    config};

}  // namespace tsdiag::families::llama4
