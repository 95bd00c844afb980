#include "trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "arrays.hpp"
#include "batches.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr Index most_layers = 1'000'000;

/// A number without leading zeros.
std::optional<Index> number_of(std::string_view text) {
    Index number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool canonical = text.size() == 1 || !text.starts_with('0');
    if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
        number > most_layers || !canonical)
        return std::nullopt;
    return number;
}

/// L of `kind`.L, `kind`_L or `kind`/L; nullopt where `name` is none of them.
std::optional<Index> layer_of(std::string_view name, std::string_view kind) {
    if (!name.starts_with(kind) || name.size() == kind.size()) return std::nullopt;
    if (std::string_view("._/").find(name[kind.size()]) == std::string_view::npos)
        return std::nullopt;
    return number_of(name.substr(kind.size() + 1));
}

/// Has `file` an array `kind` with an axis of layers before those of one layer?
bool stacked(const Checkpoint& file, std::string_view kind, std::size_t rank) {
    return std::ranges::find(file.names(), kind) != file.names().end() &&
           file.tensor(kind).shape.size() > rank;
}

/// The prefix of arrays that have only numbers, from 0 on: those of numpy.savez without names, or
/// of a list that PyTorch saved; nullopt where `file` holds other names, or arrays that are no
/// states or attentions of equal shapes.
std::optional<std::string_view> numbered(const Checkpoint& file) {
    const std::vector<std::string> names = file.names();
    if (names.size() < 2) return std::nullopt;
    const std::string_view prefix = names.front().starts_with("arr_") ? "arr_" : "";
    std::set<Index> numbers;
    for (const std::string& name : names) {
        if (!name.starts_with(prefix)) return std::nullopt;
        const std::optional<Index> number = number_of(name.substr(prefix.size()));
        if (!number || *number >= std::ssize(names)) return std::nullopt;
        numbers.insert(*number);
    }
    if (numbers.size() != names.size()) return std::nullopt;
    const std::vector<std::int64_t> shape = file.tensor(names.front()).shape;
    const bool states = shape.size() == 2 || shape.size() == 3;
    const bool attentions = shape.size() == 4 && shape[2] == shape[3];
    const bool alike = std::ranges::all_of(
        names, [&](const std::string& name) { return file.tensor(name).shape == shape; });
    return (states || attentions) && alike ? std::optional(prefix) : std::nullopt;
}

[[noreturn]] void misfit(const SavedTrace::Array& array, std::string_view expected) {
    throw ShapeError(
        fmt::format("{} is {}, expected {}.", array.name, shape_text(array.raw.shape), expected));
}

}  // namespace

RawTensor SavedTrace::Array::sample(Index s) const { return by_sample ? element(raw, s) : raw; }

bool is_trace(const Checkpoint& file) {
    if (dynamic_cast<const TraceBatches*>(&file)) return true;
    bool queries = false, keys = false;
    for (const std::string& name : file.names()) {
        if (layer_of(name, "hidden_states") || layer_of(name, "attentions")) return true;
        queries = queries || layer_of(name, "queries");
        keys = keys || layer_of(name, "keys");
    }
    return (queries && keys) || stacked(file, "hidden_states", 2) ||
           stacked(file, "attentions", 3) ||
           (stacked(file, "queries", 3) && stacked(file, "keys", 3)) || numbered(file);
}

TraceSummary summarise_trace(const Checkpoint& file) {
    const std::vector<SavedTrace> traces = saved_traces(file);
    TraceSummary out = traces.front().summary();
    out.samples = 0;
    for (const SavedTrace& trace : traces) {
        out.samples += trace.summary().samples;
        out.float64 = out.float64 || trace.summary().float64;
    }
    return out;
}

SavedTrace::SavedTrace(const Checkpoint& file) {
    sort(file);
    // The first array of each kind sets the sizes; the most reliable about the tokens come first.
    check_states(states_);
    for (auto& [stage, layers] : stages_) check_states(layers);
    check_heads(attentions_);
    check_heads(queries_);
    check_heads(keys_);
    check_heads(values_);
    check_pairs();
    measure();
}

void SavedTrace::add(Layers& layers, Index layer, Array array) {
    summary_.float64 = summary_.float64 || array.raw.dtype == DType::f64;
    const std::string name = array.name;
    const auto [at, added] = layers.emplace(layer, std::move(array));
    if (!added)
        throw FormatError(
            fmt::format("{} and {} are of the same layer, expected one.", name, at->second.name));
}

/// Arrays without names: states or attentions by their number of axes.
bool SavedTrace::sort_unnamed(const Checkpoint& file) {
    const std::optional<std::string_view> prefix = numbered(file);
    if (!prefix) return false;
    const std::vector<std::string> names = file.names();
    for (const std::string& name : names) {
        const RawTensor raw = file.tensor(name);
        add(raw.shape.size() == 4 ? attentions_ : states_, *number_of(name.substr(prefix->size())),
            {fmt::format("{}: array '{}'", file.source(), name), raw});
    }
    const std::string_view kind = attentions_.empty() ? "hidden_states" : "attentions";
    assumed_.push_back(fmt::format("{}0 to {}{}: {} by their order (names {}.L)", *prefix, *prefix,
                                   names.size() - 1, kind, kind));
    return true;
}

void SavedTrace::sort(const Checkpoint& file) {
    if (sort_unnamed(file)) return;
    std::vector<std::pair<std::string_view, Layers*>> kinds{{"hidden_states", &states_},
                                                            {"attention_inputs", &stages_["norm1"]},
                                                            {"attentions", &attentions_},
                                                            {"queries", &queries_},
                                                            {"keys", &keys_},
                                                            {"values", &values_}};
    for (const std::string_view stage : stage_names) kinds.emplace_back(stage, &stages_[stage]);
    for (const std::string& name : file.names()) {
        bool known = false;
        for (const auto& [kind, layers] : kinds) {
            const std::optional<Index> layer = layer_of(name, kind);
            if (!layer && name != kind) continue;
            known = true;
            inputs_named_ = inputs_named_ || kind == "attention_inputs";
            const RawTensor raw = file.tensor(name);
            const std::string source = fmt::format("{}: array '{}'", file.source(), name);
            if (layer) {
                add(*layers, *layer, {source, raw});
                continue;
            }
            if (raw.shape.empty())
                throw ShapeError(source + " has no axes, expected layers first.");
            if (raw.shape.front() > most_layers)
                throw ShapeError(fmt::format("{} has {} layers, expected at most {}.", source,
                                             raw.shape.front(), most_layers));
            for (Index i = 0; i < raw.shape.front(); ++i)
                add(*layers, i, {fmt::format("{}[{}]", source, i), element(raw, i)});
            assumed_.push_back(fmt::format("{}: its first axis counts layers", kind));
        }
        if (!known) others_.push_back(name);
    }
    std::erase_if(stages_, [](const auto& stage) { return stage.second.empty(); });
}

std::vector<std::string> SavedTrace::gaps() const {
    std::vector<std::string> out;
    const auto holes = [&](std::string_view kind, const Layers& layers) {
        if (layers.empty()) return;
        for (Index l = layers.begin()->first; l < layers.rbegin()->first; ++l)
            if (!layers.contains(l))
                out.push_back(fmt::format("{}.{} is missing between others", kind, l));
    };
    holes("hidden_states", states_);
    holes("attentions", attentions_);
    holes("queries", queries_);
    for (const auto& [stage, layers] : stages_) holes(stage, layers);
    Index last = -1;  // layer
    for (const Layers* layers : {&attentions_, &queries_})
        if (!layers->empty()) last = std::max(last, layers->rbegin()->first);
    for (const auto& [stage, layers] : stages_) last = std::max(last, layers.rbegin()->first);
    if (states_.empty() || last < 0) return out;
    const Index state = states_.rbegin()->first;
    if (state <= last)
        out.push_back(fmt::format(
            "the output of layer {} is missing: {} layers have {} states, hidden_states.0 to .{}",
            last, last + 1, last + 2, last + 1));
    if (state > last + 1)
        out.push_back(
            fmt::format("hidden_states go to {}, which {} layers do not have: their last output is "
                        "hidden_states.{}",
                        state, last + 1, last + 1));
    return out;
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
            throw FormatError(fmt::format("{} has no counterpart, expected an array 'keys.{}'.",
                                          query.name, layer));
        const std::vector<std::int64_t>&q = query.raw.shape, &k = found->second.raw.shape;
        if (q.back() != k.back())
            misfit(found->second,
                   fmt::format("{} columns per head as in {}", q.back(), query.name));
        const Index heads = q[q.size() - 3], kv_heads = k[k.size() - 3];
        if (heads % kv_heads != 0)
            misfit(found->second, fmt::format("heads that divide the {} of {}", heads, query.name));
    }
    for (const auto& [layer, key] : keys_)
        if (!queries_.contains(layer))
            throw FormatError(fmt::format("{} has no counterpart, expected an array 'queries.{}'.",
                                          key.name, layer));
}

void SavedTrace::measure() {
    const auto end_of = [](const Layers& layers) {
        return layers.empty() ? 0 : layers.rbegin()->first + 1;
    };
    // The last state is only the output of the last layer.
    Index layers = std::max<Index>(end_of(states_) - 1, states_.empty() ? 0 : 1);
    for (const Layers* kind : {&attentions_, &queries_}) layers = std::max(layers, end_of(*kind));
    for (const auto& [stage, kind] : stages_) layers = std::max(layers, end_of(kind));
    summary_.layers = layers;
    summary_.has_states = !states_.empty();
    summary_.has_maps = !attentions_.empty();
    summary_.has_attention = summary_.has_maps || !queries_.empty();
}

}  // namespace tsdiag
