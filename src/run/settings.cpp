#include "settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "inputs.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/tokenizer.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using Options = RunOptions;
using Resolved = ResolvedSettings;
using Given = std::optional<Json>;
using Names = RunRecord::Settings;  // of those that readers of run.json take

template <class T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}
Json lines(const std::vector<std::string>& list) { return Json::Array(list.begin(), list.end()); }
Given unless_empty(const std::string& text) { return text.empty() ? Given() : Given(text); }
/// That of a trace, where one was given.
template <class T>
Given of_trace(const Options& o, const T& value) {
    return o.trace.given() ? Given(value) : Given();
}

/// The file that a setting names: "ids:FILE", or the file itself.
std::vector<fs::path> named(const std::string& setting) {
    const std::size_t colon = setting.find(':');
    std::vector<fs::path> out;
    for (const std::string& name :
         {setting, colon == std::string::npos ? std::string() : setting.substr(colon + 1)}) {
        std::error_code failed;
        if (!name.empty() && fs::is_regular_file(name, failed)) out.emplace_back(name);
    }
    return out;
}

/// A file, or `name` in a folder.
std::vector<fs::path> named_or_in(const std::string& setting, const char* name) {
    std::error_code failed;
    return named(fs::is_directory(setting, failed) ? (fs::path(setting) / name).string() : setting);
}

std::vector<fs::path> pictures_of(const Options& o) {
    if (o.images.empty()) return {};
    std::vector<fs::path> files = picture_files(o.images);
    const auto most = std::size_t(o.samples > 0 ? o.samples : usual_pictures);
    if (files.size() > most) files.resize(most);
    return files;
}

Json layers_of(const Options& o, const Resolved& resolved) {
    return fmt::format("{}:{}", o.first_layer,
                       o.last_layer < 0 ? resolved.layers - 1 : o.last_layer);
}

Json heads_of(const Options& o) {
    Json::Array out;
    for (const Index head : o.heads) out.emplace_back(head);
    return out;
}

Json maps_of(const Options& o) {
    Json::Array out;
    for (const auto& [layer, head] : o.maps)
        out.emplace_back(layer < 0 ? "all" : fmt::format("{}:{}", layer, head));
    return out;
}

// The entries' names are those of the options.
#define TSDIAG_VALUE(expression) \
    [](const Options& o, const Resolved&) -> Given { return expression; }
#define TSDIAG_FILES(expression) \
    [](const Options& o) -> std::vector<fs::path> { return expression; }

const Setting settings_of_runs[] = {
    {.name = "config",
     .value = TSDIAG_VALUE(o.subject.config),
     .files = TSDIAG_FILES(named_or_in(o.subject.config, "config.json"))},
    {.name = "n_heads", .value = TSDIAG_VALUE(or_null(o.subject.heads))},
    {.name = "width", .value = TSDIAG_VALUE(or_null(o.subject.width))},
    {.name = "memory_tokens",
     .value = TSDIAG_VALUE(o.subject.memory_tokens > 0 ? Given(o.subject.memory_tokens) : Given())},
    {.name = "ignore",
     .value = TSDIAG_VALUE(o.subject.ignore.empty() ? Given() : Given(lines(o.subject.ignore)))},
    {.name = "map",
     .value = TSDIAG_VALUE(unless_empty(o.subject.map)),
     .files = TSDIAG_FILES(named(o.subject.map))},
    {.name = "adapter",
     .value = TSDIAG_VALUE(unless_empty(o.subject.adapter)),
     .files = TSDIAG_FILES(files_of_model(o.subject.adapter))},
    {.name = "base",
     .value = TSDIAG_VALUE(unless_empty(o.subject.base)),
     .files = TSDIAG_FILES(files_of_model(o.subject.base))},
    {.name = Names::input_name,
     .value = TSDIAG_VALUE(o.input),
     .files = TSDIAG_FILES(named(o.input))},
    {.name = "text", .value = TSDIAG_VALUE(unless_empty(o.text))},
    {.name = "text_file",
     .value = TSDIAG_VALUE(unless_empty(o.text_file)),
     .files = TSDIAG_FILES(named(o.text_file))},
    {.name = "text_lines",
     .value = TSDIAG_VALUE(unless_empty(o.text_lines)),
     .files = TSDIAG_FILES(named(o.text_lines))},
    // Tokenizer and preprocessor of the model are among its contents.
    {.name = "tokenizer",
     .value = TSDIAG_VALUE(unless_empty(o.tokenizer)),
     .files = TSDIAG_FILES(o.tokenizer.empty() ? std::vector<fs::path>()
                                               : tokenizer_files(o.tokenizer))},
    {.name = "images", .value = TSDIAG_VALUE(unless_empty(o.images)), .files = pictures_of},
    {.name = "preprocessor",
     .value = TSDIAG_VALUE(unless_empty(o.preprocessor)),
     .files = TSDIAG_FILES(named_or_in(o.preprocessor, "preprocessor_config.json"))},
    {.name = "own_input",
     .value = TSDIAG_VALUE(!o.has_input() && o.own_input ? Given(o.own_input->origin) : Given()),
     .decides = false},  // a path among others; the digest of its contents decides
    {.name = "own_input_digest",
     .value = TSDIAG_VALUE(!o.has_input() && o.own_input ? Given(o.own_input->digest) : Given()),
     .shown = false},
    {.name = "tokens", .value = TSDIAG_VALUE(o.tokens)},
    {.name = "samples", .value = TSDIAG_VALUE(o.samples)},
    {.name = "trials", .value = TSDIAG_VALUE(o.trials)},
    {.name = "redraw", .value = TSDIAG_VALUE(unless_empty(o.redraw))},
    {.name = "loss", .value = TSDIAG_VALUE(unless_empty(o.loss))},
    {.name = "labels",
     .value = TSDIAG_VALUE(o.loss.empty() ? Given() : Given(o.labels)),
     .files = TSDIAG_FILES(named(o.labels))},
    {.name = Names::mask_name, .value = TSDIAG_VALUE(o.mask), .files = TSDIAG_FILES(named(o.mask))},
    {.name = "layers",
     .value = [](const Options& o, const Resolved& r) -> Given { return layers_of(o, r); }},
    {.name = "heads", .value = TSDIAG_VALUE(heads_of(o))},
    {.name = "probes", .value = TSDIAG_VALUE(lines(o.probes))},
    {.name = "metrics",
     .value = [](const Options&, const Resolved& r) -> Given { return lines(r.metrics); },
     .decides = false},
    {.name = "maps", .value = TSDIAG_VALUE(maps_of(o))},
    // What does not fit is made by rows, by the same sums.
    {.name = "memory",
     .value = [](const Options&, const Resolved& r) -> Given { return r.memory; },
     .decides = false},
    {.name = "batch",
     .value = [](const Options&,
                 const Resolved& r) -> Given { return r.batch > 0 ? Given(r.batch) : Given(); },
     .decides = false},
    {.name = "allow_nonfinite", .value = TSDIAG_VALUE(o.allow_nonfinite)},
    {.name = Names::tolerance_name, .value = TSDIAG_VALUE(o.tolerance)},
    {.name = "spectra", .value = TSDIAG_VALUE(o.spectra)},
    {.name = "cross_check", .value = TSDIAG_VALUE(o.cross_check)},
    {.name = "attention", .value = TSDIAG_VALUE(of_trace(o, o.trace.attention))},
    {.name = "causal", .value = TSDIAG_VALUE(of_trace(o, o.trace.causal))},
    {.name = "placement",
     .value = TSDIAG_VALUE(o.trace.placement ? Given(name(*o.trace.placement)) : Given())},
    {.name = "scale", .value = TSDIAG_VALUE(of_trace(o, or_null(o.trace.scale)))},
    {.name = "a2", .value = TSDIAG_VALUE(of_trace(o, or_null(o.trace.a2)))},
    {.name = "seed", .value = TSDIAG_VALUE(fmt::format("{}", o.seed)), .shown = false},
    {.name = "dtype",
     .value = TSDIAG_VALUE(o.dtype ? Json(int(*o.dtype)) : Json()),
     .shown = false},
    {.name = "device", .value = TSDIAG_VALUE(o.device), .shown = false},
    {.name = "products", .value = TSDIAG_VALUE(int(o.products)), .shown = false},
};

#undef TSDIAG_VALUE
#undef TSDIAG_FILES

}  // namespace

std::span<const Setting> settings() { return settings_of_runs; }

std::optional<bool> decides_numbers(std::string_view option) {
    std::string name(option == "fast" ? "products" : option);
    std::ranges::replace(name, '-', '_');
    const auto found = std::ranges::find(settings(), name, &Setting::name);
    return found == settings().end() ? std::nullopt : std::optional(found->decides);
}

Json describe_settings(const RunOptions& options, const ResolvedSettings& resolved) {
    Json out;
    for (const Setting& setting : settings())
        if (setting.shown)
            if (const Given value = setting.value(options, resolved))
                out.set(std::string(setting.name), *value);
    return out;
}

}  // namespace tsdiag
