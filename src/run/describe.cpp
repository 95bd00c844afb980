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
        .set("trained", spec.provenance.trained);
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
    recognised.insert(recognised.end(), spec.provenance.recognised.begin(),
                      spec.provenance.recognised.end());
    model.set("recognised", lines(recognised)).set("ignored", lines(spec.provenance.ignored));
    model.set("defaults", lines(spec.provenance.defaults));
    if (!spec.provenance.warnings.empty()) model.set("warnings", lines(spec.provenance.warnings));
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
