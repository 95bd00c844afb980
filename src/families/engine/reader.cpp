#include "reader.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::families {

Reader::Reader(const Checkpoint& file, const DetectOptions& options, std::string_view family)
    : file_(file),
      options_(options),
      config_(options.config),
      config_source_(options.config_name),
      has_model_type_(options.config["model_type"].is_string()),
      script_(options.config_of_script) {
    spec.family = family;
    saw(has_model_type_ ? fmt::format("family {}: model_type '{}' in the configuration", family,
                                      config_["model_type"].string())
                        : fmt::format("family {}: by the names and shapes of the tensors", family));
}

void Reader::find_prefix(std::string_view anchor) {
    const std::vector<std::string> found = prefixes_of(file_, anchor);
    if (found.empty())
        throw FormatError(
            fmt::format("{}: a {} model needs a tensor '{}', but there is none under any prefix. "
                        "Does the configuration belong to another model?",
                        file_.source(), spec.family, anchor));
    if (found.size() > 1)
        refuse(
            fmt::format("it contains {} {} models, with the tensors '{}*' and '{}*'; pass --ignore "
                        "'{}*' to skip one",
                        found.size(), spec.family, found[0], found[1], found[1]));
    prefix_ = found.front();
    if (!prefix_.empty()) saw(fmt::format("prefix '{}' of all names", prefix_));
}

bool Reader::has(const std::string& name) const { return file_.has(prefix_ + name); }

std::size_t Reader::rank(const std::string& name) const {
    return file_.tensor(prefix_ + name).shape.size();
}

bool Reader::empty(const std::string& name) const {
    return file_.tensor(prefix_ + name).count() == 0;
}

Index Reader::extent(const std::string& name, int axis) const {
    const std::string full = prefix_ + name;
    if (!file_.has(full))
        throw FormatError(fmt::format("{}: tensor '{}' is missing, but every {} model has it",
                                      file_.source(), full, spec.family));
    const RawTensor raw = file_.tensor(full);
    const int rank = int(raw.shape.size());
    const int at = axis < 0 ? rank + axis : axis;
    if (raw.count() == 0)
        throw FormatError(
            fmt::format("{}: tensor '{}' is empty, as ZeRO-3 leaves parameters on each process; "
                        "gather the model when it is saved "
                        "(stage3_gather_16bit_weights_on_model_save)",
                        file_.source(), full));
    if (at < 0 || at >= rank || raw.shape[std::size_t(at)] < 1)
        throw FormatError(fmt::format("{}: tensor '{}' is {}, expected {} dimensions of at least 1",
                                      file_.source(), full, text(raw.shape),
                                      axis < 0 ? -axis : axis + 1));
    return raw.shape[std::size_t(at)];
}

Index Reader::layers(const std::string& before) const {
    const std::string start = prefix_ + before;
    std::set<Index> found;
    for (const std::string& name : file_.names()) {
        if (!name.starts_with(start)) continue;
        Index layer = 0;
        const char* first = name.data() + start.size();
        const char* last = name.data() + name.size();
        const auto [end, error] = std::from_chars(first, last, layer);
        if (error == std::errc{} && end != last && *end == '.' && layer >= 0) found.insert(layer);
    }
    const auto count = Index(found.size());
    Index missing = 0;
    while (found.contains(missing)) ++missing;
    if (count == 0)
        throw FormatError(fmt::format("{}: no layer '{}0.*' was found", file_.source(), start));
    if (missing < count)
        throw FormatError(
            fmt::format("{}: layer '{}{}' is missing, but the file has '{}{}'. Is a shard missing?",
                        file_.source(), start, missing, start, *found.rbegin()));
    return count;
}

void Reader::use_config(Json config, std::string source, bool script) {
    config_ = std::move(config);
    config_source_ = std::move(source);
    script_ = script;
}

void Reader::also_said(Json config, std::string source) {
    other_sources_.emplace_back(std::move(source), std::move(config));
}

const Json& Reader::value(Words keys) const {
    static const Json none;
    questions_.try_emplace({keys.begin(), keys.end()}, false);
    const Json* found = &none;
    std::string_view first;
    for (const std::string_view key : keys) {
        asked_.emplace(key);
        const Json& v = config_[key];
        if (v.is_null()) continue;
        if (found->is_null()) {
            found = &v;
            first = key;
        } else if (!equal(*found, v)) {
            throw FormatError(
                fmt::format("{}: {} says {} = {} and {} = {}, which are names for the same value",
                            file_.source(), config_source_, first, found->dump(), key, v.dump()));
        }
    }
    return *found;
}

void Reader::only(Words keys, const Json& expected) const {
    const Json& said = value(keys);
    if (!said.is_null() && !equal(said, expected))
        refuse(fmt::format("{} says {} = {}, which is not supported ({} is)", config_source_,
                           *keys.begin(), said.dump(), expected.dump()));
}

bool Reader::part(Words keys, const std::string& tensor, bool left_out) const {
    const bool there = has(tensor);
    const Json& said = value(keys);
    const std::vector<std::string> parts = split(tensor, '.');  // layers, 0, module, ..., bias
    const std::string module = parts.size() > 4 ? "." + parts[2] : std::string();
    if (said.is_null() && there && left_out && has_model_type_ && config_source_.ends_with(".json"))
        throw FormatError(
            fmt::format("{}: has the tensor '{}', but {} has no '{}', without which Transformers "
                        "leaves it out; write "
                        "\"{}\": true there if the model has it, else pass --ignore '*{}.bias'",
                        file_.source(), prefix_ + tensor, config_source_, *keys.begin(),
                        *keys.begin(), module.empty() ? "norm" : module + ".*"));
    const std::optional<bool> on = switch_said(keys);
    if (on && *on != there)
        throw FormatError(fmt::format("{}: {} says {} = {}, but tensor '{}' is {}", file_.source(),
                                      config_source_, *keys.begin(), said.dump(), prefix_ + tensor,
                                      there ? "there" : "missing"));
    return there;
}

void Reader::assume(std::string line) {
    if (!has_model_type_) assumed_.push_back(line);
    took(fmt::format("{}: default of {}", line, spec.family));
}

void Reader::wrong(std::string_view key, std::string_view expected) const {
    throw FormatError(fmt::format("{}: {} has a '{}' that is not {}", file_.source(),
                                  config_source_, key, expected));
}

Index Reader::agreed(Words keys, Index in_file, std::string_view tensor) const {
    const Json& said = value(keys);
    if (said.is_null() || (options_.width && *options_.width == in_file)) return in_file;
    if (!said.is_number()) wrong(*keys.begin(), "a number");
    if (said.number() != double(in_file))
        throw FormatError(
            fmt::format("{}: {} says {} = {}, but tensor '{}' says {}. Does the configuration "
                        "belong to another model, or is the checkpoint pruned (pass --width)?",
                        file_.source(), config_source_, *keys.begin(), said.dump(),
                        prefix_ + std::string(tensor), in_file));
    return in_file;
}

template <class T>
T Reader::assumed(Words keys, T fallback) {
    questions_[{keys.begin(), keys.end()}] = true;
    assume(fmt::format("{} = {}", *keys.begin(), fallback));
    return fallback;
}

Index Reader::count(Words keys, Index fallback) {
    const Json& said = value(keys);
    if (said.is_null()) return assumed(keys, fallback);
    if (!said.is_number() || said.number() != std::floor(said.number()) || said.number() < 0 ||
        said.number() > 1e15)
        wrong(*keys.begin(), "a count");
    return said.integer();
}

double Reader::number(Words keys, double fallback) {
    const Json& said = value(keys);
    if (said.is_null()) return assumed(keys, fallback);
    if (!said.is_number() || !std::isfinite(said.number())) wrong(*keys.begin(), "a number");
    return said.number();
}

std::optional<bool> Reader::switch_said(Words keys) const {
    const Json& said = value(keys);
    if (said.is_null()) return std::nullopt;
    if (!said.is_bool()) wrong(*keys.begin(), "true or false");
    return said.boolean();
}

bool Reader::flag(Words keys, bool fallback) {
    if (const std::optional<bool> said = switch_said(keys)) return *said;
    return assumed(keys, fallback);
}

std::string Reader::word(Words keys, std::string_view fallback) {
    const Json& said = value(keys);
    if (said.is_null()) return std::string(assumed(keys, fallback));
    if (!said.is_string()) wrong(*keys.begin(), "text");
    return said.string();
}

Unary Reader::activation(Words keys, std::string_view fallback) {
    const std::string said = word(keys, fallback);
    if (const auto op = activation_named(said)) return *op;
    refuse(
        fmt::format("unknown activation '{}', expected gelu, gelu_new, quick_gelu, relu, silu, "
                    "tanh, sigmoid or linear",
                    said));
}

Index Reader::heads(Words keys, Index inner, std::string_view tensor) {
    if (inner < 1)
        throw FormatError(
            fmt::format("{}: tensor '{}' has too few rows for queries, keys and values",
                        file_.source(), prefix_ + std::string(tensor)));
    Index h = 0;
    std::string who;
    const bool said = !value(keys).is_null();
    if (options_.heads) {
        h = *options_.heads;
        who = "--n-heads";
    } else if (said) {
        h = count(keys, 0);
        who = fmt::format("{} ({})", *keys.begin(), config_source_);
    } else {
        throw UsageError(
            fmt::format("{}: the number of attention heads is not in the file and does not follow "
                        "from the shapes (queries have width {}); pass --n-heads N",
                        file_.source(), inner));
    }
    if (h < 1 || inner % h != 0)
        throw UsageError(fmt::format("{}: {} = {} heads cannot divide the {} rows of tensor '{}'",
                                     file_.source(), who, h, inner, prefix_ + std::string(tensor)));
    if (options_.heads && said && !equal(value(keys), h))
        ask(fmt::format("--n-heads {}: {} says {} = {}", h, config_source_, *keys.begin(),
                        value(keys).dump()));
    if (options_.heads) took(fmt::format("{} heads: from --n-heads", h));
    return h;
}

void Reader::refuse(const std::string& what) const {
    throw FormatError(fmt::format("{}: {}", file_.source(), what));
}

void Reader::ask(const std::string& what) const {
    throw UsageError(fmt::format("{}: {}", file_.source(), what));
}

}  // namespace tsdiag::families
