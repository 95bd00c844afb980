#include "describe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

Json gains(const Totals& totals) {
    Json::Array a2;
    for (const std::optional<double>& gain : totals.branch_gains()) a2.push_back(or_null(gain));
    return a2;
}

}  // namespace

Json lines(const std::vector<std::string>& list) {
    Json::Array all;
    for (const std::string& line : list) all.emplace_back(line);
    return all;
}

Json describe_model(const Subject& subject, const Totals& totals) {
    const ModelSpec& spec = subject.spec();
    Json model;
    model.set("argument", subject.argument)
        .set("kind", name(subject.kind))
        .set("trained", spec.trained);
    if (const std::string text = subject.deescalated(); !text.empty())
        model.set("deescalated", text);
    if (subject.file) {
        model.set("format", subject.file->format()).set("digest", header_digest(*subject.file));
    }
    model.set("family", spec.family)
        .set("name", spec.name)
        .set("layers", Index(spec.blocks.size()));
    if (!spec.blocks.empty())
        model.set("heads", spec.blocks.front().attention.heads)
            .set("placement", name(spec.blocks.front().placement));
    model.set("width", spec.width).set("spec", spec.json());
    std::vector<std::string> recognised = subject.notes;
    recognised.insert(recognised.end(), spec.recognised.begin(), spec.recognised.end());
    model.set("recognised", lines(recognised)).set("ignored", lines(spec.ignored));
    model.set("defaults", lines(spec.defaults));
    if (!spec.warnings.empty()) model.set("warnings", lines(spec.warnings));
    if (Json a2 = gains(totals); !a2.array().empty()) model.set("a2", std::move(a2));
    return model;
}

Json describe_trace_model(const Subject& subject, const TraceOptions& options,
                          const std::vector<std::vector<bool>>& masks, const Totals& totals) {
    const TraceSummary summary = summarise_trace(*subject.file);
    const TraceNotes notes = describe_trace(*subject.file, options, masks);
    Json model;
    model.set("argument", subject.argument).set("kind", name(subject.kind)).set("trained", true);
    model.set("format", subject.file->format()).set("digest", header_digest(*subject.file));
    model.set("family", "trace").set("name", "a saved trace").set("layers", summary.layers);
    model.set("heads", summary.heads).set("width", summary.width);
    model.set("placement", name(notes.placement));
    model.set("recognised", lines(notes.recognised)).set("ignored", lines(notes.ignored));
    model.set("defaults", lines(notes.defaults));
    if (!notes.warnings.empty()) model.set("warnings", lines(notes.warnings));
    if (Json a2 = gains(totals); !a2.array().empty()) model.set("a2", std::move(a2));
    return model;
}

Json describe_settings(const RunOptions& options, const std::vector<std::string>& metrics,
                       Index memory, Index layers) {
    Json::Array heads, maps;
    for (const Index head : options.heads) heads.emplace_back(head);
    for (const auto& [layer, head] : options.maps)
        maps.emplace_back(layer < 0 ? "all" : fmt::format("{}:{}", layer, head));
    const Index last = options.last_layer < 0 ? layers - 1 : options.last_layer;
    Json settings;
    settings.set("config", options.subject.config).set("n_heads", or_null(options.subject.heads));
    settings.set("width", or_null(options.subject.width));
    if (!options.subject.ignore.empty()) settings.set("ignore", lines(options.subject.ignore));
    if (!options.subject.map.empty()) settings.set("map", options.subject.map);
    settings.set("input", options.input);
    if (!options.text.empty()) settings.set("text", options.text);
    if (!options.text_file.empty()) settings.set("text_file", options.text_file);
    if (!options.tokenizer.empty()) settings.set("tokenizer", options.tokenizer);
    if (!options.images.empty()) settings.set("images", options.images);
    if (!options.preprocessor.empty()) settings.set("preprocessor", options.preprocessor);
    if (!options.has_input() && options.own_input)
        settings.set("own_input", options.own_input->origin);
    settings.set("tokens", options.tokens)
        .set("samples", options.samples)
        .set("trials", options.trials);
    if (!options.loss.empty()) settings.set("loss", options.loss).set("labels", options.labels);
    settings.set("mask", options.mask)
        .set("layers", fmt::format("{}:{}", options.first_layer, last));
    settings.set("heads", std::move(heads)).set("probes", lines(options.probes));
    settings.set("metrics", lines(metrics)).set("maps", std::move(maps)).set("memory", memory);
    settings.set("allow_nonfinite", options.allow_nonfinite).set("tolerance", options.tolerance);
    settings.set("spectra", options.spectra).set("cross_check", options.cross_check);
    if (!options.trace.given()) return settings;
    settings.set("attention", options.trace.attention).set("causal", options.trace.causal);
    if (options.trace.placement) settings.set("placement", name(*options.trace.placement));
    return settings.set("scale", or_null(options.trace.scale)).set("a2", or_null(options.trace.a2));
}

Json metric_schema(const Metric& metric) {
    static constexpr std::array<const char*, 7> subjects = {"state",    "step",  "layer", "head",
                                                            "gradient", "curve", "series"};
    Json out;
    out.set("name", metric.name).set("symbol", metric.symbol).set("definition", metric.definition);
    out.set("source", metric.source).set("range", metric.range).set("unit", metric.unit);
    out.set("undefined", metric.undefined).set("of", subjects.at(std::size_t(metric.of)));
    return out.set("stage", metric.stage).set("core", metric.core);
}

Json describe_metrics(const std::vector<std::string>& names) {
    Json::Array all;
    for (const std::string& name : names) all.push_back(metric_schema(*find_metric(name)));
    return all;
}

Json describe_solver(const Totals& totals) {
    Json::Array all;
    for (const Diagnostics::Entry& entry : totals.solver()) {
        const Estimate& found = entry.estimate;
        Json one;
        one.set("layer", entry.at.layer).set("head", entry.at.head).set("metric", entry.metric);
        one.set("method", found.method).set("residual", found.residual);
        one.set("iterations", found.iterations).set("converged", found.converged);
        if (found.low) one.set("low", *found.low);
        if (found.high) one.set("high", *found.high);
        if (found.on_host) one.set("on_host", true);
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace tsdiag
