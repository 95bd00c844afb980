#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/reader.hpp"

/// PerformerLM of lucidrains/performer-pytorch.
namespace tsdiag::families::performer {
namespace {

constexpr std::string_view anchor = "performer.net.layers.0.0.fn.to_q.weight";
/// The name of a tensor of the first layer's attention.
std::string in_attention(const char* name) {
    return std::string("performer.net.layers.0.0.fn.") + name;
}

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"performer"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

/// `pos_emb.emb`: computed by the library and stored; the others: learned, the last one in its
/// oldest versions.
constexpr std::array position_tables{"pos_emb.emb", "pos_emb.emb.weight", "pos_emb.weight"};

std::vector<NamePair> pairs(std::string_view positions, bool gated) {
    std::vector<NamePair> out{
        {"embed.token", "token_emb.weight"},
        {"embed.position", positions},
        {"layer.*.norm1", "performer.net.layers.*.0.norm"},
        {"layer.*.attn.q", "performer.net.layers.*.0.fn.to_q"},
        {"layer.*.attn.k", "performer.net.layers.*.0.fn.to_k"},
        {"layer.*.attn.v", "performer.net.layers.*.0.fn.to_v"},
        {"layer.*.attn.projection_matrix",
         "performer.net.layers.*.0.fn.fast_attention.projection_matrix"},
        {"layer.*.attn.o", "performer.net.layers.*.0.fn.to_out"},
        {"layer.*.norm2", "performer.net.layers.*.1.norm"},
        {"layer.*.ffn.down", "performer.net.layers.*.1.fn.fn.w2"},
        {"final_norm", "norm"},
    };
    const std::string_view up = "performer.net.layers.*.1.fn.fn.w1";
    if (gated) {  // act(first half) * second half
        out.push_back({"layer.*.ffn.gate", up, Form::matrix, 0, false, 2});
        out.push_back({"layer.*.ffn.up", up, Form::matrix, 1, false, 2});
    } else {
        out.push_back({"layer.*.ffn.up", up});
    }
    return out;
}

/// Parts that change the model and are not supported are refused by name.
void refuse_others(const Reader& r) {
    if (r.has("performer.net.layers.0.0.g"))
        r.refuse(
            "its layers are scaled by 'g' (ReZero or ScaleNorm), which is not supported; "
            "LayerNorm is");
    if (r.has(in_attention("local_attn.rel_pos.inv_freq")) ||
        r.has(in_attention("local_attn.rel_pos.weights")))
        r.refuse("some of its heads use local attention, which is not supported");
    if (r.has("pos_emb.weights.0") || r.has("pos_emb.weights_0"))
        r.refuse("its positions are axial, which is not supported");
    for (const char* key : {"reversible", "use_scalenorm", "use_rezero", "cross_attend",
                            "no_projection", "shift_tokens", "axial_position_emb"})
        r.only({key}, false);
    r.only({"local_attn_heads"}, 0);
}

void read_positions(Reader& r, BlockSpec& b, const std::string& table) {
    AttentionSpec& a = b.attention;
    ModelSpec& s = r.spec;
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens = r.agreed({"max_seq_len"}, r.extent(table, 0), table);
    // Computed positions come with rotary angles, learned ones without.
    if (table != position_tables.front()) return;
    if (a.head_dim % 2 != 0)
        r.refuse(
            fmt::format("heads of {} columns cannot rotate, expected an even number", a.head_dim));
    a.rotary.columns =
        r.agreed({"dim_head"}, r.extent("layer_pos_emb.emb", 1), "layer_pos_emb.emb");
    if (a.rotary.columns != a.head_dim)
        r.refuse(fmt::format("its heads have {} columns, but 'layer_pos_emb.emb' has {}",
                             a.head_dim, a.rotary.columns));
    a.rotary.interleaved = true;
    r.took("rotary angles are computed, position * 10000^(-2i/d), not read from 'layer_pos_emb'");
}

void read_attention(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const std::string projection = in_attention("fast_attention.projection_matrix");
    if (!r.has(projection))
        r.refuse(fmt::format(
            "tensor '{}{}' is missing; a Performer without random features is not supported",
            r.prefix(), projection));
    const std::string query(anchor);
    const Index inner = r.extent(query, 0);
    const Index features = r.agreed({"nb_features"}, r.extent(projection, 0), projection);
    a.head_dim = r.extent(projection, 1);
    if (inner % a.head_dim != 0)
        r.refuse(fmt::format("random features of {} columns do not match queries of {}", a.head_dim,
                             inner));
    a.heads = a.kv_heads = r.agreed({"heads"}, inner / a.head_dim, projection);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    a.variant = "performer";
    a.options["features"] = std::to_string(features);
    const bool generalized = r.flag({"generalized_attention"}, false);
    a.options["kernel"] = generalized ? "relu" : "softmax";
    a.causal = r.flag({"causal"}, false);
    if (a.causal) {
        a.options["floor"] = "1e-6";
        r.saw(
            "1e-6 is added to each sum of key features, as the library does for causal attention");
    }
    a.own.push_back({"projection_matrix", {1, features, a.head_dim}});
    a.qkv_bias = r.part({"qkv_bias"}, in_attention("to_q.bias"));
    a.out_bias = r.part({"attn_out_bias"}, in_attention("to_out.bias"));
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "performer");
    r.find_prefix(anchor);
    refuse_others(r);
    ModelSpec& s = r.spec;
    const std::string token = "token_emb.weight";
    s.embedding.vocabulary = r.agreed({"num_tokens"}, r.extent(token, 0), token);
    s.width = s.embedding.width = r.agreed({"dim"}, r.extent(token, 1), token);
    BlockSpec b;
    b.placement = NormPlacement::pre;
    read_attention(r, b);
    const auto* table =
        std::ranges::find_if(position_tables, [&](auto name) { return r.has(name); });
    if (table == position_tables.end()) r.refuse("it has no position table 'pos_emb'");
    read_positions(r, b, *table);
    const std::string up = "performer.net.layers.0.1.fn.fn.w1.weight",
                      down = "performer.net.layers.0.1.fn.fn.w2.weight";
    b.ffn.width = r.extent(down, 1);
    b.ffn.gated = r.extent(up, 0) == 2 * b.ffn.width;
    r.only({"ff_glu"}, b.ffn.gated);
    r.only({"rotary_position_emb"}, table == position_tables.begin());
    r.value({"local_window_size"}), r.value({"ff_mult"}), r.value({"tie_embed"});
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    s.final_norm = r.has("norm.weight");
    const Index layers = r.layers("performer.net.layers.");
    r.agreed({"depth"}, layers, "performer.net.layers.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(
        translate(s, pairs(*table, b.ffn.gated)),
        {"to_out.*", "layer_pos_emb.emb", "performer.proj_updater.*", "*calls_since_last_redraw"});
}

}  // namespace

extern const ArchitectureEntry performer = {
    "performer", "Performer (performer-pytorch)",
    "PerformerLM of performer-pytorch: pre-norm, stored random features", matches, read};

}  // namespace tsdiag::families::performer
