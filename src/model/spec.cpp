#include "tsdiag/spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "steps/step.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {

std::string_view name(Unary op) {
    if (op == Unary::copy) return "identity";
    switch (op) {
#define TSDIAG_NAME(name, formula) \
    case Unary::name:              \
        return #name;
        TSDIAG_UNARY_FORMULAS(TSDIAG_NAME)
#undef TSDIAG_NAME
    }
    return "unknown";
}

std::string_view name(NormPlacement placement) {
    constexpr std::array<std::string_view, 4> names{"post", "pre", "parallel", "branch"};
    return names[std::size_t(placement)];
}

NormPlacement placement_named(std::string_view text) {
    for (const NormPlacement placement :
         {NormPlacement::post, NormPlacement::pre, NormPlacement::parallel, NormPlacement::branch})
        if (name(placement) == text) return placement;
    throw UsageError("placement=" + std::string(text) +
                     " is unknown; expected post, pre, parallel or branch");
}

std::string_view name(NormKind kind) {
    constexpr std::array<std::string_view, 6> names{"layer",      "rms",   "none",
                                                    "simple_rms", "scale", "plain_layer"};
    return names[std::size_t(kind)];
}

std::string_view name(Positions positions) {
    constexpr std::array<std::string_view, 7> names{"none",    "learned", "sinusoidal", "sincos_2d",
                                                    "sin_cos", "fourier", "fairseq"};
    return names[std::size_t(positions)];
}

std::string_view name(OutputNorm norm) {
    constexpr std::array<std::string_view, 4> names{"none", "rms", "simple_rms", "layer"};
    return names[std::size_t(norm)];
}

OutputNorm output_norm_named(std::string_view text) {
    for (const OutputNorm norm :
         {OutputNorm::none, OutputNorm::rms, OutputNorm::simple_rms, OutputNorm::layer})
        if (name(norm) == text) return norm;
    throw UsageError("output_norm=" + std::string(text) +
                     " is unknown; expected none, rms, simple_rms or layer");
}

namespace {

/// One inverse frequency under the rule `llama3`: long wavelengths are stretched by `factor`, short
/// ones kept, those between blended.
double llama3(double f, const Rotary& r) {
    const auto length = double(r.original_length);
    const double wave = 2 * std::numbers::pi / f;
    if (wave < length / r.high_freq_factor) return f;
    if (wave > length / r.low_freq_factor) return f / r.factor;
    const double s = (length / wave - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
    return (1 - s) * f / r.factor + s * f;
}

/// Pair i of the rule `yarn`, [YARN] 3.2: `f`, f / factor, or between them in a ramp over the
/// pairs.
double yarn(double f, double i, const Rotary& r) {
    const auto w = double(r.columns), length = double(r.original_length);
    const auto pair_of = [&](double turns) {  // theta^(-2 i / w) length = 2 pi turns
        return w * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(r.theta));
    };
    double low = pair_of(r.beta_fast), high = pair_of(r.beta_slow);
    if (r.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, w - 1);
    constexpr double least = 0.001;  // as the published code has it
    const double ramp = std::clamp((i - low) / (low == high ? least : high - low), 0.0, 1.0);
    return ramp * f / r.factor + (1 - ramp) * f;
}

}  // namespace

std::vector<double> Rotary::frequencies(Index n) const {
    const auto w = double(columns);
    double base = theta;
    if (scaling == "dynamic" && n > original_length) {
        const double stretch = factor * double(n) / double(original_length) - (factor - 1);
        base = theta * std::pow(stretch, w / (w - 2));
    }
    std::vector<double> out(std::size_t(columns / 2));
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = std::pow(base, -2.0 * double(i) / w);
        if (scaling == "linear") out[i] /= factor;
        if (scaling == "llama3") out[i] = llama3(out[i], *this);
        if (scaling == "yarn") out[i] = yarn(out[i], double(i), *this);
        if (scaling == "longrope")
            out[i] /= (n > original_length ? long_factors : short_factors)[i];
    }
    return out;
}

double QueryGrowth::at(double position) const {
    return 1 + scale * std::log1p(std::floor((position + 1) / double(length)));
}

Index ModelSpec::width_of(Index layer) const {
    Index out = width;
    for (Index l = 0; l < layer; ++l) out = blocks[std::size_t(l)].merge.width_behind(out);
    return out;
}

Index ImageSpec::patches() const {
    if (channels == 0) return 0;
    return (height / patch_height) * (width / patch_width);
}

Index EmbeddingSpec::position_rows() const {
    if (image.channels > 0) return image.patches() + (prefix_has_position ? prefix_tokens : 0);
    return max_tokens + position_offset;
}

Index EmbeddingSpec::hard_limit() const { return positions == Positions::learned ? max_tokens : 0; }

NormKind ModelSpec::last_norm() const {
    return final_norm_kind.value_or(blocks.empty() ? NormKind::layer : blocks.back().norm.kind);
}

bool ModelSpec::draws_at_random() const {
    return std::ranges::any_of(blocks, [](const BlockSpec& block) {
        return std::ranges::any_of(attention(block.attention.variant).options,
                                   [](const NamedOption& one) { return one.name == "seed"; });
    });
}

namespace {

Json json(const BlockSpec& b) {
    Json out;
    out.set("placement", name(b.placement)).set("norm", name(b.norm.kind)).set("eps", b.norm.eps);
    out.set("norm_bias", b.norm.bias).set("layer_scale", b.layer_scale);
    if (b.branch_norms) out.set("branch_norms", true);
    if (b.one_norm) out.set("one_norm", true);
    if (b.shares >= 0) out.set("shares", b.shares);
    const model::LayerSteps steps(b);
    for (const auto& step : steps.all()) step->describe(out);
    if (!b.steps.empty()) out.set("steps", steps_text(b));
    return out;
}

Json json(const ClassSpec& c) {
    Json out;
    out.set("layers", c.layers).set("heads", c.heads).set("ffn", c.ffn).set("eps", c.eps);
    return out.set("activation", name(c.activation)).set("all_normed", c.all_normed);
}

Json list(const std::vector<Index>& numbers) {
    Json::Array out;
    for (const Index number : numbers) out.emplace_back(number);
    return out;
}

Json lines(const std::vector<std::string>& text) {
    Json::Array out;
    for (const std::string& line : text) out.emplace_back(line);
    return out;
}

void image_json(const EmbeddingSpec& e, Json& out) {
    const ImageSpec& image = e.image;
    out.set("channels", image.channels);
    out.set("image_height", image.height).set("image_width", image.width);
    out.set("patch_height", image.patch_height).set("patch_width", image.patch_width);
    out.set("patch_channels_last", image.channels_last).set("patch_norms", image.norms);
    if (image.convolutions > 0)
        out.set("patch_convolutions", image.convolutions).set("patch_norm_eps", image.norm_eps);
    out.set("patch_bias", image.bias).set("prefix_tokens", e.prefix_tokens);
    out.set("prefix_has_position", e.prefix_has_position);
}

void embedding_json(const EmbeddingSpec& e, Json& out) {
    out.set("embedding_width", e.width).set("vocabulary", e.vocabulary);
    out.set("max_tokens", e.max_tokens).set("positions", name(e.positions));
    out.set("position_offset", e.position_offset).set("padding_id", e.padding_id);
    out.set("token_types", e.token_types).set("type_rows", e.type_rows);
    if (e.task_rows > 0) out.set("task_rows", e.task_rows);
    out.set("embedding_map", e.map).set("embedding_norm", e.norm);
    out.set("embedding_scale", e.scale);
    if (e.norm) out.set("embedding_norm_kind", name(e.norm_kind));
}

void clusters_json(const Clusters& c, Json& out) {
    out.set("cluster_ends", list(c.ends)).set("cluster_width", c.width);
    out.set("cluster_divisor", c.divisor);
}

Json json(const OutputHead& head) {
    Json out;
    out.set("matrix", head.matrix).set("bias", head.bias).set("transform", head.transform);
    if (!head.cluster_ends.empty()) out.set("cluster_ends", list(head.cluster_ends));
    if (!head.transform_bias) out.set("transform_bias", false);
    if (head.scale != 1) out.set("scale", head.scale);
    if (head.cap > 0) out.set("cap", head.cap);
    return out;
}

}  // namespace

Json ModelSpec::computation() const {
    Json out;
    out.set("family", family).set("layers", Index(blocks.size())).set("width", width);
    embedding_json(embedding, out);
    if (final_norm) out.set("final_norm_kind", tsdiag::name(last_norm()));
    if (embedding.clusters.there()) clusters_json(embedding.clusters, out);
    if (memory_tokens > 0) out.set("memory_tokens", memory_tokens);
    if (embedding.image.channels > 0) image_json(embedding, out);
    out.set("norm_before_layers", embedding.norm_before_layers).set("final_norm", final_norm);
    if (class_attention.layers > 0) out.set("class_attention", tsdiag::json(class_attention));
    out.set("head", tsdiag::json(head));
    Json::Array all;
    for (const BlockSpec& b : blocks) all.push_back(tsdiag::json(b));
    return out.set("blocks", all);
}

Json ModelSpec::json() const {
    Json out;
    out.set("family", family).set("name", name).set("trained", provenance.trained);
    const Json computed = computation();
    for (const auto& [key, value] : computed.object())
        if (key != "family") out.set(key, value);
    out.set("recognised", lines(provenance.recognised)).set("ignored", lines(provenance.ignored));
    return out.set("defaults", lines(provenance.defaults))
        .set("warnings", lines(provenance.warnings));
}

}  // namespace tsdiag
