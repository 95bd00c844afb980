#include <fmt/format.h>

#include <array>
#include <cmath>

#include "bert_names.hpp"
#include "engine/reader.hpp"

/// Nystromformer as HF stores it (BERT's names and a convolution), and as lucidrains/
/// nystrom-attention does (a pre-norm stack without embedding).
namespace tsdiag::families::nystromformer {
namespace {

constexpr std::array hf_pairs =
    both(std::array{NamePair{"layer.*.attn.conv", "encoder.layer.*.attention.self.conv.weight",
                             Form::depthwise}},
         bert_pairs);
constexpr std::string_view hf_anchor = "encoder.layer.0.attention.self.query.weight";
constexpr std::string_view hf_mark = "encoder.layer.0.attention.self.conv.weight";

constexpr std::array attention_pairs{
    NamePair{"layer.*.norm1", "layers.*.0.norm"},
    NamePair{"layer.*.attn.q", "layers.*.0.fn.to_qkv", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "layers.*.0.fn.to_qkv", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "layers.*.0.fn.to_qkv", Form::matrix, 2},
    NamePair{"layer.*.attn.conv", "layers.*.0.fn.res_conv.weight", Form::depthwise},
    NamePair{"layer.*.attn.o", "layers.*.0.fn.to_out.0"},
    NamePair{"layer.*.norm2", "layers.*.1.norm"},
    NamePair{"layer.*.ffn.up", "layers.*.1.fn.net.0"},
    NamePair{"layer.*.ffn.down", "layers.*.1.fn.net.3"},
};
constexpr std::string_view attention_anchor = "layers.0.0.fn.to_qkv.weight";
constexpr std::string_view attention_mark = "layers.0.0.fn.res_conv.weight";

bool matches_hf(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"nystromformer"})) return *declared;
    return prefix_of(file, hf_mark).has_value();
}

/// Other stacks of the same author share these names, but not the convolution.
bool matches_attention(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"nystrom_attention"})) return *declared;
    return prefix_of(file, attention_mark).has_value();
}

/// The convolution over values, where the file has one.
void read_convolution(Reader& r, const std::string& tensor, Words keys, BlockSpec& b) {
    if (!r.has(tensor)) {
        if (const Json& said = r.value(keys); !said.is_null())
            r.refuse(fmt::format("{} says {} = {}, but tensor '{}' is missing", r.config_source(),
                                 *keys.begin(), said.dump(), r.prefix() + tensor));
        r.took("no convolution over the values: the file has none");
        return;
    }
    const Index width = r.agreed(keys, r.extent(tensor, 2), tensor);
    if (width % 2 == 0)
        r.refuse(
            fmt::format("its convolution over values has width {}, expected an odd width", width));
    b.attention.own.push_back({"conv", {1, b.attention.heads, width}});
    r.saw(fmt::format("a convolution of width {} over the values is added to P V", width));
}

void read_embeddings(Reader& r) {
    ModelSpec& s = r.spec;
    const std::string words = "embeddings.word_embeddings.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(words, 1), words);
    s.embedding.positions = Positions::learned;
    s.embedding.position_offset = 2;
    const std::string positions = "embeddings.position_embeddings.weight";
    s.embedding.max_tokens = r.extent(positions, 0) - s.embedding.position_offset;
    if (s.embedding.max_tokens < 1) r.refuse("its position table has no row beyond the first two");
    s.embedding.max_tokens =
        r.agreed({"max_position_embeddings"}, s.embedding.max_tokens, positions);
    const std::string types = "embeddings.token_type_embeddings.weight";
    s.embedding.token_types = true;
    s.embedding.type_rows = r.agreed({"type_vocab_size"}, r.extent(types, 0), types);
    s.embedding.norm = true;
}

/// Start of the iterated inverse: only where `inv_coeff_init_option` is true does the library read
/// `inv_init_coeff_option`, where anything but "original" means the exact one.
std::string read_start(Reader& r) {
    const Json& option = r.value({"inv_init_coeff_option"});
    const bool asked = r.switch_said({"inv_coeff_init_option"}).value_or(!option.is_null());
    return asked && !equal(option, "original") ? "exact" : "original";
}

/// Where landmarks and segment_means_seq_len are equal, the library uses the exact softmax.
void read_landmarks(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const Index landmarks = r.count({"num_landmarks"}, 64);
    const Index segments = r.count({"segment_means_seq_len"}, 64);
    const std::string start = read_start(r);
    a.variant = "nystrom";
    if (landmarks == segments) {
        a.options["landmarks"] = "n";
        r.saw(fmt::format("num_landmarks = segment_means_seq_len = {}: the exact softmax",
                          landmarks));
        return;
    }
    a.options["landmarks"] = std::to_string(landmarks);
    r.took(
        fmt::format("landmarks are means of n/{} tokens of a sample of n; the library accepts only "
                    "samples of segment_means_seq_len = {} tokens",
                    landmarks, segments));
    a.options["init"] = start;
}

Architecture read_hf(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "nystromformer");
    r.find_prefix(hf_anchor);
    r.only({"position_embedding_type"}, "absolute");
    r.only({"is_decoder"}, false);
    read_embeddings(r);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const std::string layer = "encoder.layer.0.", query(hf_anchor);
    const Index inner = r.extent(query, 0);
    const std::string conv(hf_mark);
    a.heads = a.kv_heads = r.has(conv) ? r.agreed({"num_attention_heads"}, r.extent(conv, 0), conv)
                                       : r.heads({"num_attention_heads"}, inner, query);
    if (inner % a.heads != 0)
        r.refuse(fmt::format("{} heads do not divide the {} rows of '{}'", a.heads, inner, query));
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = layer + "intermediate.dense.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu_new");
    read_landmarks(r, b);
    read_convolution(r, conv, {"conv_kernel_size"}, b);
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    r.spec.blocks.assign(std::size_t(layers), b);
    return r.finish(translate(r.spec, hf_pairs),
                    {"*position_ids", "embeddings.token_type_ids", "pooler.*", "cls.*",
                     "classifier*", "qa_outputs.*"});
}

Architecture read_attention(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "nystrom_attention");
    r.find_prefix(attention_anchor);
    ModelSpec& s = r.spec;
    const std::string qkv(attention_anchor), conv(attention_mark);
    s.width = s.embedding.width = r.agreed({"dim"}, r.extent(qkv, 1), qkv);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    const Index inner = r.extent(qkv, 0) / 3;
    a.heads = a.kv_heads =
        r.has(conv) ? r.agreed({"heads"}, r.extent(conv, 0), conv) : r.heads({"heads"}, inner, qkv);
    if (inner < 1 || inner % a.heads != 0)
        r.refuse(fmt::format("{} heads do not divide the {} rows of queries in '{}'", a.heads,
                             inner, qkv));
    a.head_dim = r.agreed({"dim_head"}, inner / a.heads, qkv);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    a.variant = "nystrom";
    a.options["landmarks"] = std::to_string(r.count({"num_landmarks"}, 256));
    a.options["whole"] = "inverse";
    if (const Index steps = r.count({"pinv_iterations"}, 6); steps != 6)
        r.refuse(fmt::format("pinv_iterations = {} is not supported (6 is)", steps));
    r.took(
        "the tokens of a sample must be a multiple of the landmarks; otherwise the library "
        "prepends zero tokens, which take part in the attention");
    r.only({"eps"}, 1e-8);  // of the division where tokens are masked
    if (r.has(conv)) r.only({"residual", "attn_values_residual"}, true);
    read_convolution(r, conv, {"residual_conv_kernel", "attn_values_residual_conv_kernel"}, b);
    a.qkv_bias = false;
    a.out_bias = r.has("layers.0.0.fn.to_out.0.bias");
    b.ffn.width = r.extent("layers.0.1.fn.net.0.weight", 0);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    const Index layers = r.agreed({"depth"}, r.layers("layers."), "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(translate(s, attention_pairs), {}, {"layers."});
}

}  // namespace

extern const ArchitectureEntry nystromformer = {
    "nystromformer", "Nystromformer",
    "Nystromformer of HF: BERT with landmarks and a convolution over values", matches_hf, read_hf};
extern const ArchitectureEntry nystrom_attention = {
    "nystrom_attention", "Nystromformer (nystrom-attention)",
    "Nystromformer of nystrom-attention: pre-norm, no embedding", matches_attention,
    read_attention};

}  // namespace tsdiag::families::nystromformer
