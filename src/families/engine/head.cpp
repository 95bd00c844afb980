#include "head.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "names.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// Names of one library's head; the matrix may be missing where it is the token embedding.
struct HeadNames {
    std::string_view transform, norm;  ///< stems; empty: there is no transform
    std::string_view matrix;
    std::array<std::string_view, 2> biases;
};

constexpr std::array head_names{
    HeadNames{"cls.predictions.transform.dense",
              "cls.predictions.transform.LayerNorm",
              "cls.predictions.decoder.weight",
              {"cls.predictions.bias", "cls.predictions.decoder.bias"}},
    HeadNames{"lm_head.dense",
              "lm_head.layer_norm",
              "lm_head.decoder.weight",
              {"lm_head.bias", "lm_head.decoder.bias"}},
    HeadNames{"vocab_transform",
              "vocab_layer_norm",
              "vocab_projector.weight",
              {"vocab_projector.bias", ""}},
    HeadNames{"predictions.dense",
              "predictions.LayerNorm",
              "predictions.decoder.weight",
              {"predictions.bias", "predictions.decoder.bias"}},
    HeadNames{"generator_predictions.dense",
              "generator_predictions.LayerNorm",
              "generator_lm_head.weight",
              {"generator_lm_head.bias", ""}},
    HeadNames{"lm_predictions.lm_head.dense",
              "lm_predictions.lm_head.LayerNorm",
              "",
              {"lm_predictions.lm_head.bias", ""}},
    HeadNames{"head.dense", "head.norm", "decoder.weight", {"decoder.bias", ""}},
    HeadNames{"", "", "lm_head.weight", {"lm_head.bias", ""}},
    HeadNames{"", "", "embed_out.weight", {"", ""}},
    HeadNames{"", "", "output.weight", {"", ""}},
};

/// The full name in the file, with any prefix.
std::optional<std::string> full_name(const Checkpoint& file, std::string_view name) {
    if (name.empty()) return std::nullopt;
    const auto prefix = prefix_of(file, name);
    return prefix ? std::optional(*prefix + std::string(name)) : std::nullopt;
}

bool has_shape(const Checkpoint& file, const std::string& name, std::vector<Index> shape) {
    return file.tensor(name).shape == shape;
}

/// As `output_head`, by the names of one library.
Names parameters_of(const Checkpoint& file, const HeadNames& h, const std::string& embedding,
                    std::optional<bool> tied, std::string_view who,
                    const std::vector<std::string>& trained, ModelSpec& spec) {
    Names out;
    const auto take = [&](const std::string& canonical, const std::string& name) {
        TensorSource source;
        source.file_name = name;
        out.emplace_back(canonical, source);
    };
    const Index e = spec.embedding.width, v = spec.embedding.vocabulary;
    const auto there = [&](std::string_view name) { return full_name(file, name).has_value(); };
    const auto dense =
        h.transform.empty() ? std::nullopt : full_name(file, std::string(h.transform) + ".weight");
    if (!there(h.matrix) && !dense && !h.transform.empty()) return {};         // of another library
    if (!there(h.matrix) && std::ranges::none_of(h.biases, there)) return {};  // of a classifier
    if (dense && has_shape(file, *dense, {e, spec.width})) {
        const std::string prefix = dense->substr(0, dense->size() - h.transform.size() - 7);
        const std::string stem = prefix + std::string(h.transform),
                          norm = prefix + std::string(h.norm);
        const bool bias = file.has(stem + ".bias");
        if (!file.has(norm + ".weight") || file.has(norm + ".bias") != bias) return {};
        spec.head.transform = true;
        spec.head.transform_bias = bias;
        take("head.transform.weight", stem + ".weight");
        take("head.norm.weight", norm + ".weight");
        if (bias) {
            take("head.transform.bias", stem + ".bias");
            take("head.norm.bias", norm + ".bias");
        }
    }
    const auto matrix = full_name(file, h.matrix);
    const std::vector<Index> stored = matrix ? file.tensor(*matrix).shape : std::vector<Index>();
    // Of fewer rows it is that of a classifier; of more it is padded.
    const bool fits = stored.size() == 2 && stored[0] >= v && stored[1] == e;
    const bool own = matrix && std::ranges::find(trained, *matrix) != trained.end();
    const bool separate = own || (tied && !*tied);
    if (fits && (separate || !same_rows(file, *matrix, embedding))) {
        if (!own && tied.value_or(false)) {
            spec.provenance.warnings.push_back(
                fmt::format("The output head is the token embedding, as {}, though the file has "
                            "another '{}'; it is not used",
                            who, *matrix));
        } else {
            spec.head.matrix = true;
            take("head.weight", *matrix);
            if (stored[0] > v) {
                out.back().second.length = v;
                out.back().second.total = stored[0];
            }
        }
    }
    for (const std::string_view name : h.biases)
        if (const auto bias = full_name(file, name);
            bias && !spec.head.bias && has_shape(file, *bias, {v})) {
            spec.head.bias = true;
            take("head.bias", *bias);
        }
    return out;
}

/// An adaptive softmax over the clusters of `spec.head`, under the names of Transformer-XL.  Its
/// tables are those of the embedding; where they are not, there is no head.
Names adaptive_head(const Checkpoint& file, const Names& names, ModelSpec& spec) {
    const std::vector<Index> ends = std::exchange(spec.head.cluster_ends, {});
    const auto first = full_name(file, "crit.out_layers.0.bias");
    if (ends.empty() || !first) return {};
    const std::string crit =
        first->substr(0, first->size() - std::string_view("out_layers.0.bias").size());
    const auto source_of = [&](const std::string& canonical) {
        const auto found =
            std::ranges::find_if(names, [&](const auto& n) { return n.first == canonical; });
        return found == names.end() ? std::string() : found->second.file_name;
    };
    const auto tied = [&](const std::string& name, const std::string& canonical) {
        return !file.has(name) || same_rows(file, name, source_of(canonical));
    };
    Names out;
    const auto take = [&](const std::string& canonical, const std::string& name, Index row = 0,
                          Index rows = 0, Index total = 0) {
        TensorSource source;
        source.file_name = name;
        source.first = row;
        source.length = rows;
        source.total = total;
        out.emplace_back(canonical, source);
    };
    const bool tables = spec.embedding.clusters.there();
    const auto count = std::ssize(ends);
    if (tables && spec.embedding.clusters.ends != ends) return {};
    if (count > 1) {
        const Index columns = tables ? spec.embedding.clusters.width : spec.embedding.width;
        for (const auto& [part, shape] : {std::pair{"weight", std::vector{count - 1, columns}},
                                          std::pair{"bias", std::vector{count - 1}}}) {
            const std::string name = crit + "cluster_" + part;
            if (!file.has(name) || !has_shape(file, name, shape)) return {};
            take(std::string("head.cluster.") + part, name);
        }
    }
    bool own_map = false;
    for (Index i = 0; i < count; ++i) {
        const Index start = i == 0 ? 0 : ends[std::size_t(i) - 1],
                    size = ends[std::size_t(i)] - start;
        const std::string canonical = fmt::format("head.bias.{}", i),
                          table = fmt::format("{}out_layers.{}.", crit, tables ? i : 0);
        const Index all = tables ? size : spec.embedding.vocabulary;
        if (!file.has(table + "bias") || !has_shape(file, table + "bias", {all}) ||
            !tied(table + "weight", tables ? fmt::format("embed.cluster.{}", i) : "embed.token"))
            return {};
        tables ? take(canonical, table + "bias")
               : take(canonical, table + "bias", start, size, all);
        const std::string map = fmt::format("{}out_projs.{}", crit, i);
        if (!tables || tied(map, fmt::format("embed.cluster.{}.map", i))) continue;
        if (i > 0) return {};
        own_map = true;
        take("head.map", map);
    }
    spec.head.first_map = own_map;
    spec.head.cluster_ends = ends;
    return out;
}

}  // namespace

bool same_rows(const Checkpoint& file, const std::string& a, const std::string& b) {
    RawTensor x = file.tensor(a), y = file.tensor(b);
    if (x.shape.size() != 2 || y.shape.size() != 2 || x.shape[1] != y.shape[1]) return false;
    if (x.dtype == DType::other || y.dtype == DType::other) return false;
    const double allowed =
        x.dtype == y.dtype ? 0 : std::max(rounding_of(x.dtype), rounding_of(y.dtype));
    constexpr Index looked_at = 16;
    const Index rows = std::min(x.shape[0], y.shape[0]);
    std::vector<double> u(std::size_t(x.shape[1])), v(u.size());
    for (Index i = 0; i < std::min(rows, looked_at); ++i) {
        const Index row = i * rows / std::min(rows, looked_at);
        const auto read = [&](RawTensor raw, std::vector<double>& out) {
            raw.offset += row * raw.strides[0];
            raw.shape[0] = 1;
            widen(raw, std::span<double>(out));
        };
        read(x, u);
        read(y, v);
        for (std::size_t j = 0; j < u.size(); ++j)
            if (!(std::abs(u[j] - v[j]) <= allowed * std::abs(u[j]))) return false;
    }
    return true;
}

bool ties_by_default(std::string_view family) {
    // Those whose configuration class has `tie_word_embeddings`, or a default for it, of their own
    // are left out unless that is true.
    constexpr std::array<std::string_view, 21> tied{
        "albert",  "bert",        "big_bird",   "gpt_bigcode", "bloom", "cohere", "cohere2",
        "deberta", "deberta-v2",  "distilbert", "electra",     "ernie", "falcon", "gemma",
        "gemma2",  "gemma3_text", "gpt2",       "gpt_neo",     "mpnet", "opt",    "roberta"};
    return std::ranges::find(tied, family) != tied.end();
}

Names output_head(const Checkpoint& file, const Names& names, std::optional<bool> tied,
                  std::string_view who, const std::vector<std::string>& trained, ModelSpec& spec) {
    if (!spec.head.cluster_ends.empty()) return adaptive_head(file, names, spec);
    const auto embedding =
        std::ranges::find_if(names, [](const auto& n) { return n.first == "embed.token"; });
    if (embedding == names.end()) return {};
    TensorSource table = embedding->second;
    const std::string before = table.file_name + std::string(before_adapter);
    const bool adapted = file.has(before);
    if (adapted) table.file_name = before;
    Names out;
    for (const HeadNames& h : head_names) {
        out = parameters_of(file, h, table.file_name, tied, who, trained, spec);
        if (!out.empty()) break;
    }
    if (adapted && !spec.head.matrix && tied.value_or(true)) {
        spec.head.matrix = true;
        out.emplace_back("head.weight", std::move(table));
    }
    return out;
}

}  // namespace tsdiag::families
