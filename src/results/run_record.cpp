#include "tsdiag/run_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tsdiag/fields.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {

void fields(auto& io, Is<RunRecord::Phase> auto& phase) {
    io.key("name", phase.name).key("seconds", phase.seconds).key("peak_memory", phase.peak_memory);
}

void fields(auto& io, Is<RunRecord::Measured> auto& measured) {
    io.some("date", measured.date).some("commit", measured.commit);
    io.some("processor", measured.processor);
}

void fields(auto& io, Is<RunRecord::Model> auto& model) {
    const bool trace = model.kind == "trace";  // which has the width before the placement
    io.key("argument", model.argument).key("kind", model.kind).key("trained", model.trained);
    io.some("deescalated", model.deescalated).some("format", model.format);
    io.some("digest", model.digest).key("family", model.family).key("name", model.name);
    io.key("layers", model.layers).some("heads", model.heads);
    const auto placement = [&] { io.some("placement", model.placement); };
    if (!trace) placement();
    io.key("width", model.width);
    if (trace) placement();
    io.some("spec", model.spec).key("recognised", model.recognised).key("ignored", model.ignored);
    io.key("defaults", model.defaults).some("warnings", model.warnings).some("a2", model.a2);
    io.some("no_attention", model.no_attention);
}

void fields(auto& io, Is<RunRecord::Text> auto& text) {
    io.key("sha256", text.sha256).key("bytes", text.bytes).key("tokens", text.tokens);
    io.key("tokenizer", text.tokenizer).key("tokenizer_files", text.tokenizer_files);
    io.key("ids", text.ids).key("pieces", text.pieces);
}

void fields(auto& io, Is<RunRecord::Input> auto& input) {
    io.key("kind", input.kind).key("tokens", input.tokens).key("samples", input.samples);
    io.some("least_tokens", input.least_tokens);
    io.key("trials", input.trials).some("digest", input.digest);
    io.key("defaults", input.defaults, input.kind != "trace");
    io.some("text", input.text).some("pictures", input.pictures);
}

void fields(auto& io, Is<RunRecord::Loss> auto& loss) {
    io.key("name", loss.name).some("classes", loss.classes).some("labels", loss.labels);
    io.some("mask_id", loss.mask_id).key("value", loss.value);
}

void fields(auto& io, Is<RunRecord::Settings> auto& settings) {
    using Settings = RunRecord::Settings;
    io.whole(settings.all).some(Settings::input_name, settings.input);
    io.some(Settings::mask_name, settings.mask).some(Settings::tolerance_name, settings.tolerance);
}

void fields(auto& io, Is<RunRecord::Training> auto& train) {
    io.key("model", train.model).key("config", train.config).key("n_heads", train.heads);
    io.key("width", train.width).key("ignore", train.ignore).some("map", train.map);
    io.some("adapter", train.adapter).some("base", train.base);
    io.some("architecture", train.architecture).key("data", train.data);
    io.key("contents", train.contents).key("loss", train.loss).key("tokens", train.tokens);
    io.key("batch", train.batch).key("steps", train.steps).key("schedule", train.schedule);
    io.key("rate", train.rate).key("warmup", train.warmup).key("floor", train.floor);
    io.some("length", train.length).key("milestones", train.milestones);
    io.key("factor", train.factor).key("beta1", train.beta1).key("beta2", train.beta2);
    io.key("eps", train.eps).key("decay", train.decay).key("clip", train.clip);
    io.key("dropout", train.dropout).key("seed", train.seed).some("draws", train.draws);
    io.key("eval_every", train.eval_every).key("eval_samples", train.eval_samples);
    io.key("probe_every", train.probe_every).key("probe_samples", train.probe_samples);
    io.key("probes", train.probes);
}

void fields(auto& io, Is<RunRecord::Compared> auto& result) {
    io.key("letter", result.letter).key("name", result.name).key("model", result.model);
    io.key("step", result.step).key("tables", result.tables);
}

void fields(auto& io, Is<RunRecord::Judgement> auto& one) {
    io.key("holds", one.holds).key("value", one.value).key("sentence", one.sentence);
}

void fields(auto& io, Is<RunRecord::Comparison> auto& found) {
    io.key("verdict", found.verdict).key("notes", found.notes).key("remarks", found.remarks);
    io.key("rate", found.rate).key("interval_confidence", found.interval_confidence);
    io.key("tested", found.tested)
        .key("paired", found.paired)
        .key("significant", found.significant);
    io.key("untested", found.untested).key("equal", found.equal);
    io.key("undefined", found.undefined).key("only_in_one", found.only_in_one);
    io.key("differences", found.differences);
}

void fields(auto& io, Is<RunRecord::Setting> auto& setting) {
    io.key("scale", setting.scale).some("model", setting.model).some("data", setting.data);
    io.key("keys", setting.keys);
}

void fields(auto& io, Is<RunRecord::Log> auto& log) {
    io.key("model", log.model).key("source", log.source).key("series", log.series);
    io.key("count", log.count).key("order", log.order).key("window", log.window);
    io.some("first_step", log.first_step).some("last_step", log.last_step).key("drift", log.drift);
    io.key("notes", log.notes);
}

void fields(auto& io, Is<RunRecord::Checkpoint> auto& checkpoint) {
    io.key("path", checkpoint.path).key("step", checkpoint.step).key("origin", checkpoint.origin);
    io.key("digest", checkpoint.digest).key("kept", checkpoint.kept);
    io.some("contradiction", checkpoint.contradiction);
}

void fields(auto& io, Is<RunRecord::Change> auto& change) {
    io.key("metric", change.metric).key("stage", change.stage).key("layer", change.layer);
    io.key("from", change.from).key("to", change.to).key("first", change.first);
    io.key("last", change.last).key("error", change.error).key("certain", change.certain);
    io.key("steepest_from", change.steepest_from).key("steepest_to", change.steepest_to);
    io.key("steepest", change.steepest);
}

void fields(auto& io, Is<RunRecord::Alarm> auto& alarm) {
    io.key("kind", alarm.kind).key("number", alarm.number).key("step", alarm.step);
    io.key("sentence", alarm.sentence);
}

void fields(auto& io, Is<RunRecord::Watch> auto& watch) {
    io.key("alarms", watch.alarms).key("false_alarms", watch.false_alarms);
    io.key("refresh", watch.refresh);
}

void fields(auto& io, Is<RunRecord::Found> auto& found) {
    io.key("level", found.level).key("text", found.text).key("figure", found.figure);
    io.key("headline", found.headline);
}

void fields(auto& io, Is<RunRecord> auto& run) {
    const bool figure = !run.experiment.empty();  // which has the device behind the phases
    // What measures says that there are no warnings.
    const bool measured = figure || !run.logs.empty() || !run.solver.is_null();
    io.some("tsdiag", run.version).key("command", run.command, !run.version.empty());
    io.key("measured", run.measured, !run.measured.date.empty());
    io.some("compared", run.compared).key("assertions", run.assertions, !run.compared.empty());
    io.inlined("verdict", run.comparison);
    io.some("logs", run.logs).some("experiment", run.experiment).some("seed", run.seed);
    const auto device = [&] { io.some("device", run.device).some("device_name", run.device_name); };
    if (!figure) device();
    io.some("threads", run.threads).some("dtype", run.dtype);
    io.key("model", run.model.argument, !run.model.described && !run.model.argument.empty());
    io.key("model", run.model, run.model.described);
    io.some("parameters", run.parameters);
    io.key("deescalated", run.model.deescalated,
           !run.model.described && !run.model.deescalated.empty());
    io.some("samples", run.samples).some("train", run.train).some("guess", run.guess);
    io.key("input", run.input, !run.input.kind.empty());
    io.key("loss", run.loss, !run.loss.name.empty()).some("confidence", run.confidence);
    io.some("distribution", run.distribution).some("resamples", run.resamples);
    io.some("comparisons", run.comparisons);
    io.key("settings", run.settings, !run.settings.all.is_null()).some("schema", run.schema);
    io.some("solver", run.solver).some("fast", run.fast).some("setting", run.setting);
    io.some("shortages", run.shortages).some("phases", run.phases);
    if (figure) device();
    io.some("runs", run.runs).key("warnings", run.warnings, measured || !run.warnings.empty());
    io.some("findings", run.findings).some("digest", run.digest).some("series", run.series);
    io.key("unit", run.unit, run.checkpoints.has_value()).some("checkpoints", run.checkpoints);
    io.key("changes", run.changes, run.checkpoints.has_value()).some("watch", run.watch);
    io.some("claims", run.claims).some("tables", run.tables);
}

namespace {

RunRecord::Kind kind_of(const RunRecord& run) {
    using enum RunRecord::Kind;
    if (!run.logs.empty()) return gradients;
    if (!run.experiment.empty()) return figure;
    if (!run.compared.empty()) return compare;
    if (run.train) return train;
    return run.has_table("metrics.csv") ? probe : check;
}

}  // namespace

Json RunRecord::Measured::json() const { return fields_json(*this); }

RunRecord::Measured RunRecord::Measured::of(const Json& json, std::string_view source) {
    return read_fields<Measured>(json, source);
}

Json RunRecord::Setting::json() const { return fields_json(*this); }

Json RunRecord::Training::json() const { return fields_json(*this); }

RunRecord::Training RunRecord::Training::of(const Json& json, std::string_view source) {
    return read_fields<Training>(json, source);
}

Json RunRecord::Alarm::json() const { return fields_json(*this); }

RunRecord::Alarm RunRecord::Alarm::of(const Json& json, std::string_view source) {
    return read_fields<Alarm>(json, source);
}

Json RunRecord::json() const { return fields_json(*this); }

RunRecord::RunRecord(const Json& json) {
    FieldReader run(json);
    fields(run, *this);
    model.described = json["model"].is_object();
    kind = kind_of(*this);
    if (const Json& blocks = model.spec["blocks"]; blocks.is_array())
        model.deescalates = std::ranges::any_of(blocks.array(), [](const Json& block) {
            const Json& tau = block["deesc"];  // learned ones have no number
            return !tau.is_number() || tau.number() != 0;
        });
    if (schema.is_array())
        for (const Json& metric : schema.array())
            if (metric["name"].is_string() && metric["definition"].is_string())
                definitions[metric["name"].string()] = metric["definition"].string();
}

bool RunRecord::has_table(std::string_view file) const {
    return tables && std::ranges::any_of(*tables, [&](auto& one) { return one.first == file; });
}

std::string RunRecord::Input::tokens_in_words() const {
    if (!tokens) return {};
    return (least_tokens ? fmt::format("{} to ", *least_tokens) : "") +
           counted(std::size_t(*tokens), "token");
}

std::string_view name(RunRecord::Kind kind) {
    constexpr std::array<std::string_view, 6> names{"probe",     "train",   "figure",
                                                    "gradients", "compare", "check"};
    return names[std::size_t(kind)];
}

}  // namespace tsdiag
