#include "mix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::families {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
    throw UsageError(fmt::format("attention={}: {}", text, what));
}

/// NAME:OPTION=VALUE:OPTION=VALUE
LayerAttention variant(std::string_view text) {
    const std::vector<std::string> parts = split(text, ':');
    if (attention_plan(parts.front()))
        refuse(text, fmt::format("{} is a plan for all layers and accepts no range and no options",
                                 parts.front()));
    const AttentionEntry& entry = attention(parts.front());
    LayerAttention out{.variant = std::string(entry.name),
                       .options = {},
                       .output_norm = output_norm_named(entry.output_norm)};
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const std::size_t sign = parts[i].find('=');
        if (sign == std::string_view::npos)
            refuse(text, fmt::format("'{}' is not OPTION=VALUE", parts[i]));
        const std::string key(parts[i].substr(0, sign));
        if (!out.options.emplace(key, parts[i].substr(sign + 1)).second)
            refuse(text, fmt::format("option '{}' was given twice", key));
    }
    return out;
}

/// One attention, or two side by side, NAME+NAME.
LayerAttention variants(std::string_view text) {
    const std::vector<std::string> parts = split(text, '+');
    if (parts.size() > 2)
        refuse(text, fmt::format("{} attentions side by side, expected at most 2", parts.size()));
    LayerAttention out = variant(parts.front());
    if (parts.size() == 2) out.second.push_back(variant(parts.back()));
    return out;
}

std::vector<LayerAttention> halves(const AttentionPlan& plan, Index layers) {
    std::vector<LayerAttention> out;
    for (Index l = 0; l < layers; ++l) {
        const AttentionPlan::Half& half = l < layers / 2 ? plan.early : plan.late;
        out.push_back({std::string(half.attention),
                       {},
                       half.options,
                       output_norm_named(half.output_norm),
                       {}});
    }
    return out;
}

/// "3" or "0-5".
struct Range {
    Index first = 0, last = 0;
};
std::optional<Range> range(std::string_view text) {
    Range out;
    const char* end = text.data() + text.size();
    const auto [dash, wrong] = std::from_chars(text.data(), end, out.first);
    if (wrong != std::errc{}) return std::nullopt;
    out.last = out.first;
    if (dash == end) return out;
    const auto [last, also] = std::from_chars(dash + 1, end, out.last);
    if (*dash != '-' || also != std::errc{} || last != end) return std::nullopt;
    return out;
}

std::vector<LayerAttention> ranges(std::string_view text, Index layers) {
    auto found = std::vector<std::optional<LayerAttention>>(std::size_t(layers));
    for (const std::string& part : split(text, ';')) {
        const std::size_t colon = std::min(part.find(':'), part.size());
        const std::optional<Range> r = range(part.substr(0, colon));
        if (!r || colon == part.size())
            refuse(text, fmt::format("'{}' is not FIRST-LAST:NAME", part));
        if (r->first > r->last || r->last >= layers)
            refuse(text,
                   fmt::format(
                       "'{}' names layers that the model does not have; expected layers 0 to {}",
                       part.substr(0, colon), layers - 1));
        const LayerAttention one = variants(part.substr(colon + 1));
        for (Index l = r->first; l <= r->last; ++l) {
            if (found[std::size_t(l)]) refuse(text, fmt::format("layer {} is given twice", l));
            found[std::size_t(l)] = one;
        }
    }
    std::vector<LayerAttention> out;
    for (Index l = 0; l < layers; ++l) {
        if (!found[std::size_t(l)])
            refuse(text, fmt::format("layer {} is missing; expected 0 to {}", l, layers - 1));
        out.push_back(*std::move(found[std::size_t(l)]));
    }
    return out;
}

}  // namespace

std::vector<LayerAttention> layer_attentions(std::string_view text, Index layers) {
    if (const AttentionPlan* plan = attention_plan(text)) return halves(*plan, layers);
    if (!text.empty() && text.front() >= '0' && text.front() <= '9') return ranges(text, layers);
    return std::vector(std::size_t(layers), variants(text));
}

}  // namespace tsdiag::families
