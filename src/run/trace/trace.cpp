#include "trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "arrays.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr Index most_layers = 1'000'000;

/// L of `prefix` + "L"; nullopt where `name` is not of that form.
std::optional<Index> layer_of(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return std::nullopt;
    name.remove_prefix(prefix.size());
    Index layer = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const bool canonical = name.size() == 1 || !name.starts_with('0');
    if (error != std::errc() || end != name.data() + name.size() || layer < 0 ||
        layer > most_layers || !canonical)
        return std::nullopt;
    return layer;
}

[[noreturn]] void misfit(const SavedTrace::Array& array, std::string_view expected) {
    throw ShapeError(
        fmt::format("{} is {}, expected {}.", array.name, shape_text(array.raw.shape), expected));
}

}  // namespace

RawTensor SavedTrace::Array::sample(Index s) const { return by_sample ? element(raw, s) : raw; }

bool is_trace(const Checkpoint& file) {
    bool queries = false, keys = false;
    for (const std::string& name : file.names()) {
        if (layer_of(name, "hidden_states.") || layer_of(name, "attentions.")) return true;
        queries = queries || layer_of(name, "queries.").has_value();
        keys = keys || layer_of(name, "keys.").has_value();
    }
    return queries && keys;
}

TraceSummary summarise_trace(const Checkpoint& file) { return SavedTrace(file).summary(); }

SavedTrace::SavedTrace(const Checkpoint& file) {
    sort(file);
    // The first array of each kind sets the sizes; the most reliable about the tokens come first.
    check_states(states_);
    check_states(inputs_);
    check_heads(attentions_);
    check_heads(queries_);
    check_heads(keys_);
    check_heads(values_);
    check_pairs();
    measure();
}

void SavedTrace::sort(const Checkpoint& file) {
    const std::array<std::pair<std::string_view, Layers*>, 6> kinds{
        {{"hidden_states.", &states_},
         {"attention_inputs.", &inputs_},
         {"attentions.", &attentions_},
         {"queries.", &queries_},
         {"keys.", &keys_},
         {"values.", &values_}}};
    for (const std::string& name : file.names()) {
        bool known = false;
        for (const auto& [prefix, layers] : kinds) {
            const std::optional<Index> layer = layer_of(name, prefix);
            if (!layer) continue;
            known = true;
            const RawTensor raw = file.tensor(name);
            summary_.float64 = summary_.float64 || raw.dtype == DType::f64;
            (*layers)[*layer] = {fmt::format("{}: array '{}'", file.source(), name), raw, false};
        }
        if (!known) others_.push_back(name);
    }
}

/// An array has `rank` axes, or one more in front that counts samples.
void SavedTrace::check_samples(Array& array, std::size_t rank) {
    const std::vector<std::int64_t>& shape = array.raw.shape;
    if (shape.size() != rank && shape.size() != rank + 1)
        misfit(array, rank == 2 ? "(tokens, width) or (samples, tokens, width)"
                                : "(heads, tokens, columns) or (samples, heads, tokens, columns)");
    if (std::ranges::find(shape, 0) != shape.end()) misfit(array, "no empty axis");
    array.by_sample = shape.size() == rank + 1;
    const Index samples = array.by_sample ? shape[0] : 1;
    if (samples_from_.empty()) {
        samples_from_ = array.name;
        summary_.samples = samples;
    }
    if (samples != summary_.samples)
        misfit(array, fmt::format("{} samples as in {}", summary_.samples, samples_from_));
    const Index tokens = shape[shape.size() - 2];
    if (tokens_from_.empty()) {
        tokens_from_ = array.name;
        summary_.tokens = tokens;
    }
    if (tokens != summary_.tokens)
        misfit(array, fmt::format("{} tokens as in {}", summary_.tokens, tokens_from_));
}

void SavedTrace::check_states(Layers& layers) {
    for (auto& [layer, array] : layers) {
        check_samples(array, 2);
        const Index width = array.raw.shape.back();
        if (width_from_.empty()) {
            width_from_ = array.name;
            summary_.width = width;
        }
        if (width != summary_.width)
            misfit(array, fmt::format("width {} as in {}", summary_.width, width_from_));
    }
}

void SavedTrace::check_heads(Layers& layers) {
    for (auto& [layer, array] : layers) {
        check_samples(array, 3);
        const std::vector<std::int64_t>& shape = array.raw.shape;
        if (&layers == &attentions_ && shape.back() != summary_.tokens)
            misfit(array, fmt::format("square matrices of {} tokens as in {}", summary_.tokens,
                                      tokens_from_));
        if (&layers == &attentions_ || &layers == &queries_)
            summary_.heads = std::max(summary_.heads, Index(shape[shape.size() - 3]));
    }
}

void SavedTrace::check_pairs() const {
    for (const auto& [layer, query] : queries_) {
        const auto found = keys_.find(layer);
        if (found == keys_.end())
            throw FormatError(fmt::format(
                "{} has no partner, expected an array 'keys.{}' beside it.", query.name, layer));
        const std::vector<std::int64_t>&q = query.raw.shape, &k = found->second.raw.shape;
        if (q.back() != k.back())
            misfit(found->second, fmt::format("{} columns a head as in {}", q.back(), query.name));
        const Index heads = q[q.size() - 3], kv_heads = k[k.size() - 3];
        if (heads % kv_heads != 0)
            misfit(found->second, fmt::format("heads that divide the {} of {}", heads, query.name));
    }
    for (const auto& [layer, key] : keys_)
        if (!queries_.contains(layer))
            throw FormatError(fmt::format(
                "{} has no partner, expected an array 'queries.{}' beside it.", key.name, layer));
}

void SavedTrace::measure() {
    const auto end_of = [](const Layers& layers) {
        return layers.empty() ? 0 : layers.rbegin()->first + 1;
    };
    // The last state is only the output of the last layer.
    Index layers = std::max<Index>(end_of(states_) - 1, states_.empty() ? 0 : 1);
    for (const Layers* kind : {&inputs_, &attentions_, &queries_})
        layers = std::max(layers, end_of(*kind));
    summary_.layers = layers;
    summary_.has_states = !states_.empty();
    summary_.has_attention = !attentions_.empty() || !queries_.empty();
}

}  // namespace tsdiag
