#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "learned.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// "layer.12.attn.q.weight" as stem "layer.*.attn.q", layer 12 and suffix ".weight".
struct Canonical {
    std::string stem, suffix;
    Index layer = -1, expert = -1;
};

Canonical taken_apart(const std::string& name) {
    Canonical out{name, "", -1, -1};
    for (const std::string_view suffix : {".weight", ".bias"})
        if (name.ends_with(suffix)) {
            out.suffix = suffix;
            out.stem.resize(name.size() - suffix.size());
        }
    const auto take_number = [&](std::size_t at, Index& number) {
        const std::size_t dot = out.stem.find('.', at);
        if (dot == std::string::npos) return;
        number = std::stoll(out.stem.substr(at, dot - at));
        out.stem.replace(at, dot - at, "*");
    };
    for (const std::string_view layer : {"layer.", "class."})
        if (name.starts_with(layer)) take_number(layer.size(), out.layer);
    constexpr std::string_view expert = ".expert.";
    if (const std::size_t at = out.stem.find(expert); at != std::string::npos)
        take_number(at + expert.size(), out.expert);
    return out;
}

/// The first '*' of `pattern` replaced.
std::string with_number(std::string_view pattern, const std::string& number) {
    const std::size_t star = pattern.find('*');
    std::string out(pattern.substr(0, star));
    if (star == std::string_view::npos) return out;
    return out.append(number).append(pattern.substr(star + 1));
}

/// Selects the rows of part 0, 1 or 2 of a fused tensor; of q, k and v with shared keys the parts
/// are of unequal size.
void take_part(const NamePair& pair, const Parameter& p, const ModelSpec& spec, Index layer,
               TensorSource& out) {
    const Index rows = p.vector ? p.shape.cols : p.shape.rows;
    out.length = rows;
    out.first = pair.part * rows;
    out.total = pair.parts * rows;
    if (!p.name.starts_with("layer.")) return;
    const AttentionSpec& a = spec.blocks[std::size_t(layer)].attention;
    if (!pair.grouped && (pair.parts != 3 || a.kv_heads == a.heads)) return;
    const Index groups = pair.grouped ? a.kv_heads : 1;
    const Index queries = a.heads / groups * a.head_dim, keys = a.kv_heads / groups * a.head_dim;
    out.total = groups * (queries + 2 * keys);
    out.length = rows / groups;
    out.first = pair.part == 0 ? 0 : queries + (pair.part - 1) * keys;
    if (!pair.grouped) return;
    out.groups = groups;
    out.stride = queries + 2 * keys;
}

std::string_view last_word(std::string_view stem) { return stem.substr(stem.rfind('.') + 1); }

/// Whether the layer's attention learns it.
bool is_learned(const ModelSpec& spec, const Canonical& c) {
    if (!c.stem.starts_with("layer.*.attn.")) return false;
    const std::vector<LearnedParameter> known = learned_by(spec, c.layer, false);
    return std::ranges::find(known, last_word(c.stem), &LearnedParameter::name) != known.end();
}

}  // namespace

std::string beside_queries(std::string_view query, std::string_view name) {
    if (query.ends_with(".weight")) query.remove_suffix(std::string_view(".weight").size());
    const std::size_t dot = query.rfind('.');
    return std::string(query.substr(0, dot == std::string_view::npos ? 0 : dot + 1)).append(name);
}

std::optional<LayerParameter> of_further_step(const ModelSpec& spec, std::string_view parameter) {
    const Canonical c = taken_apart(std::string(parameter));
    if (c.layer < 0 || !c.stem.starts_with("layer.*.")) return std::nullopt;
    const std::string name = c.stem.substr(std::string_view("layer.*.").size()) + c.suffix;
    for (const StepSpec& step : spec.blocks[std::size_t(c.layer)].steps)
        if (name.starts_with(step.name + ".")) return LayerParameter{c.layer, name};
    return std::nullopt;
}

Names translate(const ModelSpec& spec, std::span<const NamePair> pairs, const LayerPath& path) {
    Names out;
    for (const Parameter& p : parameters(spec)) {
        const Canonical c = taken_apart(p.name);
        const auto named = [&](std::string_view stem) {
            return std::ranges::find(pairs, stem, &NamePair::canonical);
        };
        const auto pair = named(c.stem);
        const std::string layer = path ? path(c.layer) : std::to_string(c.layer);
        const auto query = named("layer.*.attn.q");
        if (pair == pairs.end() && query != pairs.end() && is_learned(spec, c)) {
            TensorSource source;
            source.file_name = beside_queries(with_number(query->file, layer), last_word(c.stem));
            out.emplace_back(p.name, std::move(source));
            continue;
        }
        if (const auto own = of_further_step(spec, p.name); pair == pairs.end() && own) {
            const auto shared = query == pairs.end() ? named("layer.*.attn.z") : query;
            check(shared != pairs.end(), "a family has queries, or what they are made of");
            TensorSource source;
            source.file_name = beside_queries(with_number(shared->file, layer), own->name);
            out.emplace_back(p.name, std::move(source));
            continue;
        }
        if (pair == pairs.end())
            throw NotAvailable(fmt::format("a model of family {} has no name for parameter '{}'",
                                           spec.family, p.name));
        TensorSource source;
        source.file_name = with_number(pair->file, layer);
        if (c.expert >= 0)
            source.file_name = with_number(source.file_name, std::to_string(c.expert));
        source.file_name += c.suffix;
        if (c.suffix == ".weight") source.plus = pair->plus;
        source.transposed = pair->form == Form::transposed && !p.vector;
        if (pair->form == Form::conv && !p.vector)
            source.shape = {p.shape.rows, spec.embedding.image.channels,
                            spec.embedding.image.patch_height, spec.embedding.image.patch_width};
        if (pair->form == Form::leading_one) source.shape = {1, p.shape.rows, p.shape.cols};
        if (pair->form == Form::depthwise) source.shape = {p.shape.rows, 1, p.shape.cols, 1};
        if (pair->form == Form::kernel3 && !p.vector)
            source.shape = {p.shape.rows, p.shape.cols / 9, 3, 3};
        if (pair->form == Form::kernel1 && !p.vector)
            source.shape = {p.shape.rows, p.shape.cols, 1, 1};
        if (pair->form == Form::of_heads) source.shape = {p.shape.cols, 1, 1};
        if (pair->form == Form::column) source.shape = {p.shape.cols, 1};
        if (pair->part >= 0) take_part(*pair, p, spec, c.layer, source);
        out.emplace_back(p.name, std::move(source));
    }
    return out;
}

Names torch_fused(Names names) {
    constexpr std::string_view fused = ".in_proj.";
    for (auto& [canonical, source] : names)
        if (const std::size_t at = source.file_name.find(fused); at != std::string::npos)
            source.file_name[at + fused.size() - 1] = '_';
    return names;
}

std::vector<Index> file_shape(const Parameter& p, const TensorSource& source) {
    if (!source.shape.empty()) return source.shape;
    const Index out = p.vector ? p.shape.cols : p.shape.rows;
    const Index rows = source.total > 0 ? source.total : out;
    if (p.vector) return {rows};
    if (source.transposed) return {p.shape.cols, rows};
    return {rows, p.shape.cols};
}

std::vector<Index> whole_shape(const ModelSpec& spec, const Parameter& p,
                               const TensorSource& source) {
    std::vector<Index> shape = file_shape(p, source);
    Index experts = 0;  // as many in each layer that has some
    for (const BlockSpec& b : spec.blocks) experts = std::max(experts, b.ffn.experts.count);
    if (source.slice >= 0) shape.insert(shape.begin(), experts);
    return shape;
}

RawTensor slice_of(RawTensor raw, Index slice) {
    if (slice < 0) return raw;
    if (raw.shape.size() < 2 || slice >= raw.shape.front())
        throw FormatError(
            fmt::format("tensor {} of a stack of shape {} was requested", slice, text(raw.shape)));
    raw.offset += slice * raw.strides.front();
    raw.shape.erase(raw.shape.begin());
    raw.strides.erase(raw.strides.begin());
    return raw;
}

std::string text(std::span<const Index> shape) {
    return shape.size() == 1 ? fmt::format("({},)", shape[0])
                             : fmt::format("({})", fmt::join(shape, ", "));
}

bool glob(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            mark = t;
        } else if (p < pattern.size() && pattern[p] == text[t]) {
            ++p, ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

std::vector<std::string> prefixes_of(const Checkpoint& file, std::string_view anchor) {
    std::vector<std::string> found;
    for (const std::string& name : file.names()) {
        if (!name.ends_with(anchor)) continue;
        const std::size_t length = name.size() - anchor.size();
        if (length == 0 || name[length - 1] == '.') found.push_back(name.substr(0, length));
    }
    std::ranges::sort(found, {}, [](const std::string& prefix) {  // the shortest first
        return std::pair<std::size_t, std::string_view>(prefix.size(), prefix);
    });
    return found;
}

std::optional<std::string> prefix_of(const Checkpoint& file, std::string_view anchor) {
    const std::vector<std::string> found = prefixes_of(file, anchor);
    return found.empty() ? std::nullopt : std::optional(found.front());
}

bool equal(const Json& a, const Json& b) {
    if (a.is_number() && b.is_number()) return a.number() == b.number();
    return a.dump() == b.dump();
}

std::optional<bool> by_model_type(const Json& config,
                                  std::initializer_list<std::string_view> types) {
    const Json& type = config["model_type"];
    if (!type.is_string()) return std::nullopt;
    // deberta_v2, as its module is called, and deberta-v2 are one.
    const auto same_character = [](char a, char b) {
        return (a == '_' ? '-' : a) == (b == '_' ? '-' : b);
    };
    return std::ranges::any_of(types, [&](std::string_view one) {
        return std::ranges::equal(one, type.string(), same_character);
    });
}

namespace {
constexpr std::array<std::pair<std::string_view, Unary>, 14> activations{{
    {"gelu", Unary::gelu},
    {"gelu_new", Unary::gelu_tanh},
    {"gelu_python", Unary::gelu},
    {"gelu_fast", Unary::gelu_tanh},
    {"gelu_tanh", Unary::gelu_tanh},
    {"gelu_pytorch_tanh", Unary::gelu_tanh},
    {"quick_gelu", Unary::gelu_quick},
    {"gelu_quick", Unary::gelu_quick},
    {"relu", Unary::relu},
    {"silu", Unary::silu},
    {"swish", Unary::silu},
    {"tanh", Unary::tanh},
    {"sigmoid", Unary::sigmoid},
    {"linear", Unary::copy},
}};
}  // namespace

std::optional<Unary> activation_named(std::string_view word) {
    for (const auto& [known, op] : activations)
        if (known == word) return op;
    return std::nullopt;
}

std::string_view hf_activation(Unary op) {
    for (const auto& [known, known_op] : activations)
        if (known_op == op) return known;
    return name(op);
}

}  // namespace tsdiag::families
