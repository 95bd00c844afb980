#include "trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "array_names.hpp"
#include "arrays.hpp"
#include "batches.hpp"
#include "placement.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr Index most_layers = 1'000'000;

/// A number without leading zeros.
std::optional<Index> number_of(std::string_view text) {
    Index number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool canonical = text.size() == 1 || !text.starts_with('0');
    if (error != std::errc() || end != text.data() + text.size() || number < 0 || !canonical)
        return std::nullopt;
    return number;
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
    const bool same_shape = std::ranges::all_of(
        names, [&](const std::string& name) { return file.tensor(name).shape == shape; });
    return (states || attentions) && same_shape ? std::optional(prefix) : std::nullopt;
}

/// Throws, naming the array, where its elements cannot be read.
void require_elements(const SavedTrace::Array& array) {
    const DType type = array.raw.dtype;
    if (type == DType::other || type == DType::c64 || type == DType::c128)
        require_real(array.raw, array.name);
}

/// What stands in place of an array, or of some of a list of arrays; empty: nothing that was one.
std::string no_array(const Json& value) {
    if (value.is_number()) return "a list of numbers";
    if (value["__class__"].is_string()) return "an object of " + value["__class__"].string();
    if (!value.is_array()) return {};
    for (const Json& item : value.array())
        if (std::string what = no_array(item); !what.empty()) return what;
    return {};
}

/// Refuses what is named as an array is, but is none: it must not vanish among the metadata.
void refuse_lists(const Checkpoint& file) {
    if (!file.metadata().is_object()) return;
    for (const auto& [key, value] : file.metadata().object()) {
        const ArrayName name = read_array_name(key);
        const bool whole =
            name.rest.empty() && (name.kind == "hidden_states" || name.kind == "attentions");
        if (name.kind.empty() || (!name.layer && !whole) || value.is_number()) continue;
        if (const std::string what = no_array(value); !what.empty())
            throw FormatError(
                fmt::format("{}: '{}' holds {}, expected an array; save it as a tensor.",
                            file.source(), key, what));
    }
}

/// Of maps, queries, keys or values.
Index heads_of(const SavedTrace::Array& array) {
    return array.raw.shape[array.raw.shape.size() - 3];
}

[[noreturn]] void misfit(const SavedTrace::Array& array, std::string_view expected) {
    throw ShapeError(
        fmt::format("{} is {}, expected {}.", array.name, shape_text(array.raw.shape), expected));
}

/// Of a name that begins as a known one: it must not vanish among what is ignored.
[[noreturn]] void refuse_unplaced(const std::string& source, const ArrayName& name,
                                  const std::string& usual) {
    if (!usual.empty())
        throw FormatError(fmt::format(
            "{}: has a name that is not read; name it {}, or leave it out.", source, usual));
    constexpr std::string_view digits = "0123456789";
    const std::size_t first = name.rest.find_first_of(digits);
    const std::size_t number_end = name.rest.find_first_not_of(digits, first);
    const bool several =
        name.rest.find_first_not_of("0123456789._-/[]") == std::string_view::npos &&
        number_end != std::string_view::npos &&
        name.rest.find_first_of(digits, number_end) != std::string_view::npos;
    throw FormatError(
        several
            ? fmt::format("{}: has two numbers, as what generate() returns: a step of each new "
                          "token, and a layer; save what one forward pass returns, as {}.L.",
                          source, name.kind)
            : fmt::format("{}: begins as {}.L does, but its layer cannot be told; name it so, or "
                          "leave it out.",
                          source, name.kind));
}

/// Has it `rank` axes or more, as far as they are known?
bool may_have(const RawTensor& raw, std::size_t rank) {
    return raw.shape.size() >= rank || (raw.dtype == DType::other && raw.shape.empty());
}

/// Are all values one of two, of which either may hide tokens: 0 and 1, or, as what is added to
/// logits, 0 and a large negative number?
bool may_hide(const std::vector<double>& values) {
    constexpr double least_added = -1000;
    const bool open = std::ranges::find(values, 0.0) != values.end();
    const auto others = [&](const auto& hides) {
        return std::ranges::any_of(values, hides) &&
               std::ranges::all_of(values, [&](double v) { return v == 0 || hides(v); });
    };
    return open && (others([](double v) { return v == 1; }) ||
                    others([](double v) { return v <= least_added; }));
}

/// Throws `FormatError` for an array of tokens that may say which of them are hidden.
void refuse_hiding(const std::string& source, const RawTensor& array) {
    std::vector<std::int64_t> axes = array.shape;
    std::erase(axes, 1);  // (B, 1, 1, n), as in Transformers
    const bool of_pairs = axes.size() == 2 && axes[0] == axes[1];
    if (axes.empty() || axes.size() > 2 || of_pairs || array.dtype > DType::f64) return;
    std::vector<double> values(std::size_t(array.count()));
    widen<double>(array, values);
    if (!may_hide(values)) return;
    throw FormatError(
        fmt::format("{}: may say which tokens are hidden, or which are kept; name it "
                    "attention_mask, with 1 for "
                    "those that are kept and 0 for the others, or leave it out.",
                    source));
}

std::vector<double> numbers_at(const RawTensor& state, Index token) {
    const RawTensor row = element(state, token);
    std::vector<double> out(std::size_t(row.count()));
    widen<double>(row, out);
    return out;
}

/// Are the rows that are kept of two states the same numbers in every sample, and not all one
/// number?  Ends at the first row that differs.
bool are_one_state(const SavedTrace::Array& a, const SavedTrace::Array& b,
                   std::span<const SampleTokens> samples) {
    if (a.raw.shape != b.raw.shape) return false;
    std::optional<double> first;
    bool differ = false;
    for (const SampleTokens& sample : samples) {
        const RawTensor x = a.sample(sample.number), y = b.sample(sample.number);
        for (const Index token : sample.of(x.shape.front())) {
            const std::vector<double> own = numbers_at(x, token);
            if (own != numbers_at(y, token)) return false;
            if (!first && !own.empty()) first = own.front();
            differ = differ || std::ranges::any_of(own, [&](double v) { return v != *first; });
        }
    }
    return differ;
}

/// Are some rows of a sample whole numbers alone?  Looked at are those that need not be whole: 0
/// is, and in a format of p bits all from 2^(p - 1) on are.
bool holds_whole_numbers(const SavedTrace::Array& array, const SampleTokens& sample) {
    constexpr std::ptrdiff_t most_rows = 32;
    constexpr std::size_t fewest = 16;
    const double always = 0.5 / rounding_of(precision_of(array.raw));
    const RawTensor x = array.sample(sample.number);
    const std::span<const Index> tokens = sample.of(x.shape.front());
    std::vector<double> values;
    for (const Index token : tokens.first(std::size_t(std::min(most_rows, std::ssize(tokens))))) {
        const std::vector<double> row = numbers_at(x, token);
        std::ranges::copy_if(row, std::back_inserter(values),
                             [&](double v) { return v != 0 && std::abs(v) < always; });
    }
    return values.size() >= fewest &&
           std::ranges::all_of(values, [](double v) { return v == std::floor(v); }) &&
           std::ranges::any_of(values, [](double v) { return std::abs(v) > 1; });
}

/// Have two maps the same numbers, and a row with weights that differ?  Identities and uniform maps
/// may be equal by themselves.  Ends at the first row that differs.
bool are_one_map(const RawTensor& a, const RawTensor& b) {
    bool uneven = false;
    for (Index i = 0; i < a.shape[0]; ++i) {
        const std::vector<double> row = numbers_at(a, i);
        if (row != numbers_at(b, i)) return false;
        const double most = *std::ranges::max_element(row);
        uneven = uneven || std::ranges::any_of(row, [&](double v) { return v != 0 && v != most; });
    }
    return uneven;
}

/// Says of maps that are saved twice: those of the layer before, or one for all heads.
void add_equal_maps(const SavedTrace& trace, std::vector<std::string>& to) {
    const auto every = [&](const SavedTrace::Array& map, Index first_head, const auto& is_other) {
        for (Index s = 0; s < trace.summary().samples; ++s)
            for (Index h = first_head; h < heads_of(map); ++h)
                if (!is_other(element(map.sample(s), h), s, h)) return false;
        return true;
    };
    std::string layers, heads;
    for (const auto& [layer, map] : trace.attentions()) {
        const auto before = trace.attentions().find(layer - 1);
        const auto in_layer_before = [&](const RawTensor& own, Index s, Index h) {
            return are_one_map(own, element(before->second.sample(s), h));
        };
        if (layers.empty() && before != trace.attentions().end() &&
            before->second.raw.shape == map.raw.shape && every(map, 0, in_layer_before))
            layers = fmt::format(
                "attentions.{} has the numbers of attentions.{}, as where one module was hooked "
                "twice",
                layer, layer - 1);
        const auto in_first_head = [&](const RawTensor& own, Index s, Index) {
            return are_one_map(own, element(map.sample(s), 0));
        };
        if (heads.empty() && heads_of(map) > 1 && every(map, 1, in_first_head))
            heads = fmt::format(
                "attentions.{} has the same numbers in all heads, as where their mean was repeated",
                layer);
    }
    for (std::string* said : {&layers, &heads})
        if (!said->empty()) to.push_back(std::move(*said));
}

/// Rows at one end of a sample that are one row.
struct EqualRows {
    Index count = 0;  ///< 0: there are none, or all are
    bool zeros = false, first = false;
};

/// The last rows of a sample, or else the first, that hold zeros, or are `fewest` or more and
/// nowhere else in it, where words of a small vocabulary would be.
EqualRows equal_rows(const SavedTrace::Array& array, const SampleTokens& sample, Index fewest) {
    const RawTensor x = array.sample(sample.number);
    const std::span<const Index> tokens = sample.of(x.shape.front());
    const Index size = std::ssize(tokens);
    for (const bool first : {false, true}) {
        if (size < 2) break;
        const auto row = [&](Index i) {
            return numbers_at(x, tokens[std::size_t(first ? i : size - 1 - i)]);
        };
        const std::vector<double> outermost = row(0);
        const bool zeros = std::ranges::all_of(outermost, [](double v) { return v == 0; });
        if (!zeros && fewest > size) continue;
        const auto is_outermost = [&](Index i) { return row(i) == outermost; };
        Index count = 1;
        while (count < size && is_outermost(count)) ++count;
        if (count == size || (!zeros && count < fewest)) continue;
        Index next = count;
        while (next < size && (zeros || !is_outermost(next))) ++next;
        if (next == size) return {count, zeros, first};
    }
    return {};
}

/// Says where rows look like padding that no mask hides: zeros in any state, several equal rows in
/// that before the first layer, where tokens cannot have become alike.
void add_padding(const SavedTrace& trace, std::span<const SampleTokens> samples,
                 std::vector<std::string>& to) {
    constexpr Index fewest = 3;  // fewer may be words
    for (const auto& [layer, array] : trace.states()) {
        EqualRows found;
        Index sample = 0, more = -1;
        for (const SampleTokens& one : samples) {
            const EqualRows own =
                equal_rows(array, one, layer == 0 ? fewest : std::numeric_limits<Index>::max());
            if (own.count > 0 && ++more == 0) found = own, sample = one.number;
        }
        if (found.count == 0) continue;
        const bool single = found.count == 1;
        to.push_back(fmt::format(
            "hidden_states.{}: the {} {}of sample {}{} {}, which looks like padding and is "
            "measured as tokens; --mask FILE, or attention_mask in the file, leaves it out",
            layer, found.first ? "first" : "last",
            single ? "row " : fmt::format("{} rows ", found.count), sample,
            more > 0 ? fmt::format(" (and some of {} more)", more) : "",
            !found.zeros ? "are equal"
            : single     ? "holds zeros alone"
                         : "hold zeros alone"));
        return;
    }
}

/// Says of states that seem to be something else than they are named: the numbers of the state
/// before, whole numbers alone, or padding, by the tokens that `masks` keep.
void add_strange_states(const SavedTrace& trace, const std::vector<std::vector<bool>>& masks,
                        std::vector<std::string>& to) {
    const std::vector<SampleTokens> samples = kept_tokens(trace, masks);
    Index equal = -1, count = 0;
    for (const auto& [layer, array] : trace.states()) {
        const auto before = trace.states().find(layer - 1);
        if (before != trace.states().end() && are_one_state(array, before->second, samples) &&
            ++count == 1)
            equal = layer;
    }
    const std::string more = count > 1 ? fmt::format(" (and {} more)", count - 1) : "";
    if (count > 0)
        to.push_back(
            fmt::format("hidden_states.{}{} has the numbers of the state before it, as where a "
                        "tensor that is changed in place was saved without a copy",
                        equal, more));
    const SampleTokens sample = sample_of(trace, masks);
    const auto whole = std::ranges::find_if(trace.states(), [&](const auto& state) {
        return holds_whole_numbers(state.second, sample);
    });
    if (whole != trace.states().end())
        to.push_back(fmt::format(
            "hidden_states.{} holds whole numbers alone, as ids or codes before they are scaled",
            whole->first));
    add_padding(trace, samples, to);
}

}  // namespace

bool has_rows_of_shares(RawTensor array) {
    constexpr Index looked_at = 8;
    constexpr double allowed = 0.02;  // in half precision
    if (array.dtype <= DType::i64 || array.dtype > DType::f64) return false;
    while (array.shape.size() > 2 && array.shape.front() > 0) array = element(array, 0);
    if (array.shape.size() != 2 || array.shape[0] != array.shape[1] || array.shape[0] < 2)
        return false;
    array = head_of(array, 0, std::min(looked_at, Index(array.shape[0])));
    std::vector<double> values(std::size_t(array.count()));
    widen<double>(array, values);
    if (std::ranges::any_of(values, [](double x) { return !(x >= 0); })) return false;
    for (Index i = 0; i < array.shape[0]; ++i) {
        const auto row = values.begin() + i * array.shape[1];
        if (std::abs(std::accumulate(row, row + array.shape[1], 0.0) - 1) > allowed) return false;
    }
    return true;
}

RawTensor SavedTrace::Array::sample(Index s) const { return by_sample ? element(raw, s) : raw; }

bool is_trace(const Checkpoint& file) {
    if (dynamic_cast<const TraceBatches*>(&file)) return true;
    bool queries = false, keys = false;
    for (const std::string& name : file.names()) {
        const ArrayName read = read_array_name(name);
        const bool states = read.kind == "hidden_states";
        if (read.kind.empty() ||
            (!states && read.kind != "attentions" && read.kind != "queries" && read.kind != "keys"))
            continue;
        // An axis of layers stands before those of one layer.
        const bool whole = read.rest.empty() && !read.layer;
        const std::size_t rank = (states ? 2 : 3) + (whole ? 1 : 0);
        const bool numbers =
            read.rest.find_first_not_of("0123456789._-/") == std::string_view::npos;
        if ((!read.layer && !numbers) || !may_have(file.tensor(name), rank)) continue;
        if (states || read.kind == "attentions") return true;
        queries = queries || read.kind == "queries";
        keys = keys || read.kind == "keys";
    }
    return (queries && keys) || numbered(file);
}

TraceSummary summarise_trace(const Checkpoint& file) {
    const std::vector<SavedTrace> traces = saved_traces(file);
    TraceSummary out = traces.front().summary();
    out.samples = 0;
    for (const SavedTrace& trace : traces) {
        const TraceSummary& own = trace.summary();
        out.samples += own.samples;
        out.float64 = out.float64 || own.float64;
        out.state_rounding = std::max(out.state_rounding, own.state_rounding);
        out.map_rounding = std::max(out.map_rounding, own.map_rounding);
    }
    return out;
}

const SavedTrace::Array* SavedTrace::outer(std::string_view name, Index layer) const {
    const auto found = outer_.find(name);
    if (found == outer_.end()) return nullptr;
    const auto at = found->second.find(layer);
    return at == found->second.end() ? nullptr : &at->second;
}

const SavedTrace::Array* SavedTrace::output(Index layer) const {
    if (const Array* own = outer("out", layer)) return own;
    const auto next = states_.find(layer + 1);
    return next == states_.end() || merges_behind(layer) ? nullptr : &next->second;
}

const SavedTrace::Array* SavedTrace::merged(Index layer) const {
    if (const Array* own = outer("merge", layer)) return own;
    const auto next = states_.find(layer + 1);
    return next == states_.end() || !merges_behind(layer) ? nullptr : &next->second;
}

SavedTrace::SavedTrace(const Checkpoint& file) {
    sort(file);
    find_parts();
    // The first array of each kind sets the sizes; the most reliable about the tokens come first.
    check_states(states_);
    for (auto& [stage, layers] : stages_) check_states(layers);
    check_heads(attentions_);
    check_heads(queries_);
    check_heads(keys_);
    check_heads(values_);
    check_outer();
    check_pairs();
    refuse_misplaced();
    refuse_unread_maps(file);
    measure();
}

void SavedTrace::add(Layers& layers, Index layer, Array array) {
    require_elements(array);
    require_real(array.raw, array.name);
    summary_.float64 = summary_.float64 || array.raw.dtype == DType::f64;
    const bool of_p = &layers == &attentions_ || &layers == &queries_ || &layers == &keys_;
    double& coarsest = of_p ? summary_.map_rounding : summary_.state_rounding;
    coarsest = std::max(coarsest, rounding_of(precision_of(array.raw)));
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
    if (const std::vector<std::int64_t> shape = file.tensor(names.front()).shape;
        shape.size() == 3 && shape[1] == shape[2])
        throw FormatError(
            fmt::format("{}: has {} arrays without names, each {}: states of {} samples, or maps "
                        "of {} heads? Name "
                        "them hidden_states.L or attentions.L.",
                        file.source(), names.size(), shape_text(shape), shape[0], shape[0]));
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
    refuse_lists(file);
    std::map<std::string_view, Layers*> of_kind{{"hidden_states", &states_},
                                                {"attention_inputs", &stages_["norm1"]},
                                                {"attentions", &attentions_},
                                                {"queries", &queries_},
                                                {"keys", &keys_},
                                                {"values", &values_}};
    for (const std::string_view stage : saved_stages()) of_kind.emplace(stage, &stages_[stage]);
    for (const std::string_view stage : outer_stages()) of_kind.emplace(stage, &outer_[stage]);
    const auto by_letter = [](const std::string& name, const ArrayName& read) {
        return !read.kind.empty() && name.size() - read.rest.size() == 1;
    };
    const bool words = std::ranges::any_of(file.names(), [&](const std::string& name) {
        const ArrayName read = read_array_name(name);
        return (read.kind == "queries" || read.kind == "keys") && !by_letter(name, read);
    });
    for (const std::string& name : file.names()) {
        const ArrayName read = read_array_name(name);
        if (words && by_letter(name, read)) {  // as of projections, beside those of heads
            others_.push_back(name);
            continue;
        }
        const std::string source = fmt::format("{}: array '{}'", file.source(), name);
        if (is_mask_of_tokens(name)) {
            mask_ = Array{source, file.tensor(name)};
            continue;
        }
        if (is_other_mask(name)) refuse_hiding(source, file.tensor(name));
        if (const auto inner = inner_array(name))
            throw FormatError(fmt::format(
                "{}: is one of '{}' inside '{}'; name it {}.L, one forward pass a file.", source,
                inner->second, inner->first, inner->second));
        const bool of_layers = read.kind == "hidden_states" || read.kind == "attentions";
        const bool unread = of_layers && !read.layer && !read.rest.empty() &&
                            file.tensor(name).shape.size() >= (read.kind == "attentions" ? 3u : 2u);
        if (is_unplaced(read) || unread) refuse_unplaced(source, read, usual_name(name));
        if (read.kind.empty() || (!read.layer && !read.rest.empty())) {
            others_.push_back(name);
            continue;
        }
        Layers& layers = *of_kind.at(read.kind);
        inputs_named_ = inputs_named_ || read.kind == "attention_inputs";
        const RawTensor raw = file.tensor(name);
        if (read.layer) {
            add(layers, *read.layer, {source, raw});
            continue;
        }
        require_elements({source, raw});
        if (raw.shape.empty()) throw ShapeError(source + " has no axes, expected layers first.");
        if (raw.shape.front() > most_layers)
            throw ShapeError(fmt::format("{} has {} layers, expected at most {}.", source,
                                         raw.shape.front(), most_layers));
        for (Index i = 0; i < raw.shape.front(); ++i)
            add(layers, i, {fmt::format("{}[{}]", source, i), element(raw, i)});
        assumed_.push_back(fmt::format("{}: its first axis counts layers", name));
    }
    std::erase_if(stages_, [](const auto& stage) { return stage.second.empty(); });
    if (states_.empty()) return;
    for (const auto& [layer, array] : outer_["merge"]) states_.emplace(layer + 1, array);
}

/// Finds behind which layers tokens merge: where `merge.L` says so, or a quarter of them is left.
void SavedTrace::find_parts() {
    std::map<Index, const Array*> first;  // of each layer, what is most reliable about its tokens
    const auto look_at = [&](const Layers& layers, Index ahead = 0) {
        for (const auto& [layer, array] : layers)
            if (array.raw.shape.size() > 1) first.emplace(layer + ahead, &array);
    };
    look_at(states_);
    look_at(outer_["merge"], 1);
    for (const auto& [stage, layers] : stages_) look_at(layers);
    look_at(attentions_);
    look_at(queries_);
    parts_[0] = {};
    Index before = 0;
    for (const auto& [layer, array] : first) {
        const Index tokens = array->raw.shape[array->raw.shape.size() - 2];
        const bool named = outer("merge", layer - 1) != nullptr;
        const bool merges = tokens > 0 && (named ? tokens < before : 4 * tokens == before);
        if (merges) parts_[layer] = {};
        if (merges && !named)
            assumed_.push_back(
                fmt::format("{}: a quarter of the tokens, merged behind layer {} "
                            "(merge.{})",
                            array->name, layer - 1, layer - 1));
        if (merges || before == 0) before = tokens;
    }
}

std::vector<std::string> SavedTrace::gaps(const std::vector<std::vector<bool>>& masks) const {
    std::vector<std::string> out;
    const auto holes = [&](std::string_view kind, const Layers& layers) {
        if (layers.empty()) return;
        Index next = layers.begin()->first;
        for (const auto& [layer, array] : layers) {
            if (layer == next + 1)
                out.push_back(fmt::format("{}.{} is missing between others", kind, next));
            else if (layer > next)
                out.push_back(
                    fmt::format("{}.{} to .{} are missing between others", kind, next, layer - 1));
            next = layer + 1;
        }
    };
    add_strange_states(*this, masks, out);
    add_equal_maps(*this, out);
    holes("hidden_states", states_);
    holes("attentions", attentions_);
    holes("queries", queries_);
    for (const auto& [stage, layers] : stages_) holes(stage, layers);
    Index last = -1;  // layer
    for (const Layers* layers : {&attentions_, &queries_})
        if (!layers->empty()) last = std::max(last, layers->rbegin()->first);
    for (const auto& [stage, layers] : stages_) last = std::max(last, layers.rbegin()->first);
    const auto begins_at_1 = [](const auto& kind) {
        return kind.empty() || kind.begin()->first >= 1;
    };
    if (!states_.empty() && states_.begin()->first == 1 && begins_at_1(attentions_) &&
        begins_at_1(queries_) && !outer("embed", 0) &&
        std::ranges::all_of(stages_, [&](const auto& one) { return begins_at_1(one.second); }))
        out.push_back(
            "hidden_states.1 is taken for what layer 0 returns, of which nothing else is there; "
            "where it is the input of the first layer, count layers and states from 0");
    if (states_.empty() || last < 0) return out;
    const Index state = states_.rbegin()->first;
    if (state <= last && !outer("out", last))
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

/// An array of `layer` has `rank` axes, or one more in front that counts samples, and rows for its
/// tokens and for a class token besides, where it has one.
void SavedTrace::check_samples(Array& array, std::size_t rank, Index layer, bool class_token) {
    const std::vector<std::int64_t>& shape = array.raw.shape;
    if (rank == 2 && shape.size() == 4)
        misfit(array,
               "(samples, tokens, width); save x.flatten(2).transpose(1, 2) of a grid whose "
               "channels come first, x.flatten(1, 2) of one whose channels come last");
    if (shape.size() != rank && shape.size() != rank + 1)
        misfit(array, rank == 2 ? "(tokens, width) or (samples, tokens, width)"
                                : "(heads, tokens, columns) or (samples, heads, tokens, columns)");
    if (std::ranges::find(shape, 0) != shape.end()) misfit(array, "no empty axis");
    array.by_sample = shape.size() == rank + 1;
    const Index samples = array.by_sample ? shape[0] : 1;
    const Index tokens = shape[shape.size() - 2] - (class_token ? 1 : 0);
    if (samples_from_.empty()) {
        samples_from_ = array.name;
        summary_.samples = samples;
    }
    Part& part = part_of(layer);
    if (part.tokens_from.empty()) {
        part.tokens_from = array.name;
        part.tokens = tokens;
    }
    if (rank == 3 && tokens < part.tokens && samples * tokens == summary_.samples * part.tokens)
        misfit(array, fmt::format("one matrix of the {} tokens as in {}; put the windows of a "
                                  "sample into it, in the order of the tokens, and 0 elsewhere",
                                  part.tokens, part.tokens_from));
    if (samples != summary_.samples) {
        const std::string expected =
            fmt::format("{} samples as in {}", summary_.samples, samples_from_);
        if (rank == 3 && tokens == summary_.samples && samples == part.tokens)
            misfit(array, expected +
                              "; where that one is (tokens, samples, width), save its "
                              "x.transpose(0, 1)");
        if (rank == 3 && !array.by_sample && shape[0] % summary_.samples == 0)
            misfit(array, fmt::format("{} in an axis before that of heads; save "
                                      "x.unflatten(0, ({}, -1))",
                                      expected, summary_.samples));
        misfit(array, expected);
    }
    if (tokens == part.tokens) return;
    if (class_token)
        misfit(array,
               fmt::format("one row more than the {} tokens of {}", part.tokens, part.tokens_from));
    const auto state = states_.find(layer);
    const bool is_state = state != states_.end() && &state->second == &array && layer > 0;
    if (is_state && outer("merge", layer - 1))
        misfit(array, fmt::format("fewer than the {} tokens of {}, as they merge behind layer {}",
                                  part.tokens, part.tokens_from, layer - 1));
    misfit(array, fmt::format("{} tokens as in {}{}", part.tokens, part.tokens_from,
                              is_state && tokens < part.tokens
                                  ? fmt::format("; where tokens merge behind layer {}, save what "
                                                "comes out as merge.{}",
                                                layer - 1, layer - 1)
                                  : ""));
}

/// Of arrays of `ahead` layers further on.
void SavedTrace::check_states(Layers& layers, Index ahead, bool class_token) {
    if (!layers.empty() && has_rows_of_shares(layers.begin()->second.raw))
        throw FormatError(
            fmt::format("{}: its rows are nonnegative and sum to 1, as those of maps; name maps "
                        "attentions.L.",
                        layers.begin()->second.name));
    for (auto& [layer, array] : layers) {
        check_samples(array, 2, layer + ahead, class_token);
        const Index width = array.raw.shape.back();
        Part& part = part_of(layer + ahead);
        if (part.width_from.empty()) {
            part.width_from = array.name;
            part.width = width;
        }
        if (width != part.width)
            misfit(array, fmt::format("width {} as in {}", part.width, part.width_from));
    }
}

/// Throws `ShapeError` for queries, keys or values as a projection returns them, without heads, and
/// for those with tokens before heads.
void SavedTrace::check_axes(const Array& array, Index layer, bool queries) {
    const std::vector<std::int64_t>& shape = array.raw.shape;
    const auto state = states_.find(layer), map = attentions_.find(layer);
    // Keys of one head are usual beside several queries, and maps of one head say that it is one.
    const bool one_head = map != attentions_.end() && heads_of(map->second) == 1;
    if (queries && !one_head && state != states_.end() && state->second.by_sample &&
        shape.size() == 3 && shape[0] == summary_.samples && shape[1] == part_of(layer).tokens)
        misfit(array,
               "(samples, heads, tokens, columns), as the states have samples; save "
               "x.unflatten(-1, (heads, -1)).transpose(1, 2)");
    const Index tokens = part_of(layer).tokens;
    if (tokens > 0 && shape.size() >= 3 && shape[shape.size() - 3] == tokens &&
        shape[shape.size() - 2] != tokens)
        misfit(array,
               "heads before tokens, (heads, tokens, columns) or (samples, heads, tokens, "
               "columns); save x.transpose(-3, -2)");
}

void SavedTrace::check_heads(Layers& layers) {
    for (auto& [layer, array] : layers) {
        if (&layers == &attentions_ && array.raw.shape.size() == 2)
            misfit(array,
                   "an axis of heads before the two of tokens, (heads, tokens, tokens); save "
                   "P[None] of a single head");
        if (&layers != &attentions_) check_axes(array, layer, &layers == &queries_);
        check_samples(array, 3, layer);
        const std::vector<std::int64_t>& shape = array.raw.shape;
        if (const Part& part = part_of(layer);
            &layers == &attentions_ && shape.back() != part.tokens)
            misfit(array, fmt::format("square matrices of {} tokens as in {}", part.tokens,
                                      part.tokens_from));
        if (&layers == &attentions_ || &layers == &queries_)
            summary_.heads = std::max(summary_.heads, heads_of(array));
    }
}

void SavedTrace::check_outer() {
    check_states(outer_["embed"]);
    check_states(outer_["out"]);
    check_states(outer_["merge"], 1);
    check_states(outer_["class"], 1, true);
    check_states(outer_["final_norm"], 1, !outer_["class"].empty());
    for (const auto& [layer, array] : outer_["merge"])
        if (!merges_behind(layer))
            misfit(array, fmt::format("fewer than the {} tokens of {}", part_of(layer).tokens,
                                      part_of(layer).tokens_from));
    std::erase_if(outer_, [](const auto& stage) { return stage.second.empty(); });
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
        const Index heads = heads_of(query), kv_heads = heads_of(found->second);
        if (heads % kv_heads != 0)
            misfit(found->second, fmt::format("heads that divide the {} of {}", heads, query.name));
    }
    for (const auto& [layer, map] : attentions_) {
        const auto query = queries_.find(layer);
        if (query == queries_.end()) continue;
        if (heads_of(map) != heads_of(query->second))
            misfit(map, fmt::format("the {} heads of {}; save the maps of all heads, or leave one "
                                    "of both out",
                                    heads_of(query->second), query->second.name));
    }
    for (const auto& [layer, key] : keys_)
        if (!queries_.contains(layer))
            throw FormatError(fmt::format("{} has no counterpart, expected an array 'queries.{}'.",
                                          key.name, layer));
}

/// Throws `FormatError` for maps that are counted from 1 beside states that are counted from 0.
void SavedTrace::refuse_misplaced() const {
    if (attentions_.empty() || states_.empty() || states_.begin()->first != 0) return;
    const Index states = states_.rbegin()->first;
    if (attentions_.begin()->first == 1 && attentions_.rbegin()->first == states)
        throw FormatError(fmt::format(
            "{}: is of a layer behind the last state, hidden_states.{}; count layers from 0.",
            attentions_.rbegin()->second.name, states));
}

/// Throws `FormatError` for maps under a name that is not read: they must not vanish among what is
/// ignored.
void SavedTrace::refuse_unread_maps(const Checkpoint& file) const {
    for (const std::string& name : others_) {
        const RawTensor raw = file.tensor(name);
        if (raw.shape.size() < 2 ||
            std::ranges::none_of(
                parts_, [&](const auto& part) { return raw.shape.back() == part.second.tokens; }) ||
            !has_rows_of_shares(raw))
            continue;
        const std::string layer = only_number(name);
        throw FormatError(fmt::format(
            "{}: array '{}': its rows are nonnegative and sum to 1, as those of maps, but its name "
            "is not read; name it attentions.{}, (heads, tokens, tokens), or leave it out.",
            file.source(), name, layer.empty() ? "L" : layer));
    }
}

void SavedTrace::refuse_unread_lengths(const Checkpoint& file) const {
    if (mask_) return;
    const auto tokens = double(parts_.begin()->second.tokens);
    for (const std::string& name : others_) {
        const RawTensor raw = file.tensor(name);
        const bool as_many = raw.count() == summary_.samples && raw.shape.size() <= 2;
        if (!as_many || raw.dtype > DType::f64 || !names_lengths(name)) continue;
        std::vector<double> values(std::size_t(raw.count()));
        widen<double>(raw, values);
        const bool counts = std::ranges::all_of(
            values, [&](double v) { return v == std::floor(v) && v >= 1 && v <= tokens; });
        if (!counts || std::ranges::none_of(values, [&](double v) { return v < tokens; })) continue;
        throw FormatError(fmt::format(
            "{}: array '{}': may say how many of the {:g} tokens of a sample are no padding; save "
            "attention_mask, (samples, tokens), with 1 for these and 0 for the others, or leave it "
            "out.",
            file.source(), name, tokens));
    }
}

void SavedTrace::measure() {
    const auto end_of = [](const Layers& layers) {
        return layers.empty() ? 0 : layers.rbegin()->first + 1;
    };
    // The last state is only the output of the last layer.
    Index layers = std::max<Index>(end_of(states_) - 1, states_.empty() ? 0 : 1);
    for (const Layers* kind : {&attentions_, &queries_}) layers = std::max(layers, end_of(*kind));
    for (const auto& [stage, kind] : stages_) layers = std::max(layers, end_of(kind));
    for (const auto& [stage, kind] : outer_)
        if (stage == "out" || stage == "merge") layers = std::max(layers, end_of(kind));
    for (const auto& [stage, kind] : outer_) {
        const Index expected = stage == "embed" ? 0 : layers - 1;
        for (const auto& [layer, array] : kind)
            if (stage != "out" && stage != "merge" && layer != expected)
                throw FormatError(fmt::format("{}: is of layer {}, expected layer {}, the {}.",
                                              array.name, layer, expected,
                                              stage == "embed" ? "first" : "last"));
    }
    summary_.layers = layers;
    summary_.tokens = parts_.begin()->second.tokens;
    measure_layers();
    summary_.last_tokens = parts_.rbegin()->second.tokens;
    summary_.last_width = parts_.rbegin()->second.width;
    for (const Layers* kind : {&attentions_, &queries_})
        for (const auto& [layer, array] : *kind) {
            const double share = double(part_of(layer).tokens) / double(summary_.tokens);
            const double heads = double(heads_of(array)) * share * share;
            summary_.full_heads = std::max(summary_.full_heads, Index(std::ceil(heads)));
        }
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
        if (part->second.width > 0) summary_.width = part->second.width;  // the first that is known
    summary_.has_states = !states_.empty();
    summary_.has_maps = !attentions_.empty();
    summary_.has_queries = !queries_.empty();
    summary_.has_attention = summary_.has_maps || !queries_.empty();
}

void SavedTrace::measure_layers() {
    std::map<Index, LayerSizes> sizes;  // a damaged name may be of layer 10^9
    for (const auto& [layer, array] : states_)
        if (layer < summary_.layers) sizes[layer];
    for (const Layers* kind : {&attentions_, &queries_})
        for (const auto& [layer, array] : *kind) sizes[layer].heads = heads_of(array);
    for (const auto& [layer, array] : keys_) sizes[layer].kv_heads = heads_of(array);
    for (auto& [layer, one] : sizes) {
        const Part& part = part_of(layer);
        one.layer = layer;
        one.tokens = part.tokens;
        if (part.width > 0) one.width = part.width;
        summary_.sizes.push_back(one);
    }
}

}  // namespace tsdiag
