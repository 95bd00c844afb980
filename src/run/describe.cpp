#include "describe.hpp"

#include "tsdiag/error.hpp"

namespace tsdiag {

RunRecord::Model describe_model(const Subject& subject, const Totals& totals) {
    const ModelSpec& spec = subject.spec();
    RunRecord::Model model{.described = true,
                           .argument = subject.argument,
                           .kind = std::string(name(subject.kind)),
                           .family = spec.family,
                           .name = spec.name,
                           .trained = spec.provenance.trained,
                           .layers = Index(spec.blocks.size()),
                           .width = spec.width,
                           .recognised = subject.notes,
                           .ignored = spec.provenance.ignored,
                           .defaults = spec.provenance.defaults,
                           .warnings = spec.provenance.warnings,
                           .a2 = totals.branch_gains(),
                           .deescalated = subject.deescalated(),
                           .spec = spec.json()};
    if (subject.file) {
        model.format = subject.file->format();
        model.digest = header_digest(*subject.file);
    }
    if (!spec.blocks.empty()) {
        model.heads = spec.blocks.front().attention.heads;
        model.placement = name(spec.blocks.front().placement);
    }
    model.recognised.insert(model.recognised.end(), spec.provenance.recognised.begin(),
                            spec.provenance.recognised.end());
    return model;
}

std::vector<LayerSizes> layer_sizes(const ModelSpec& spec) {
    std::optional<Index> tokens;
    if (const Index patches = spec.embedding.image.patches(); patches > 0)
        tokens = patches + spec.embedding.prefix_tokens;
    std::vector<LayerSizes> out;
    for (const BlockSpec& block : spec.blocks) {
        const Index layer = std::ssize(out);
        out.push_back({.layer = layer,
                       .tokens = tokens,
                       .width = spec.width_of(layer),
                       .heads = block.attention.heads,
                       .kv_heads = block.attention.kv_heads});
        if (tokens) tokens = block.merge.tokens_behind(*tokens);
    }
    return out;
}

RunRecord::Model describe_trace_model(const Subject& subject, const TraceOptions& options,
                                      const std::vector<std::vector<bool>>& masks,
                                      const Totals& totals) {
    const TraceSummary summary = summarise_trace(*subject.file);
    TraceNotes notes = describe_trace(*subject.file, options, masks);
    return {.described = true,
            .argument = subject.argument,
            .kind = std::string(name(subject.kind)),
            .family = "trace",
            .name = "a saved trace",
            .format = std::string(subject.file->format()),
            .digest = header_digest(*subject.file),
            .placement = std::string(name(notes.placement)),
            .trained = true,
            .layers = summary.layers,
            .heads = summary.heads,
            .width = summary.width,
            .recognised = std::move(notes.recognised),
            .ignored = std::move(notes.ignored),
            .defaults = std::move(notes.defaults),
            .warnings = std::move(notes.warnings),
            .a2 = totals.branch_gains()};
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
