#include "tsdiag/run.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "arrays.hpp"
#include "budget.hpp"
#include "describe.hpp"
#include "inputs.hpp"
#include "losses.hpp"
#include "measurement.hpp"
#include "replay.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr double minute = 60;

void say(const RunOptions& options, const Progress& progress) {
    if (options.progress) options.progress(progress);
}

/// The words beside "core" and "all": they lift limits that the sets respect.
std::vector<std::string> named(const std::vector<std::string>& words) {
    std::vector<std::string> names;
    for (const std::string& word : words)
        if (word != "core" && word != "all") names.push_back(word);
    return names.empty() ? names : resolve_metrics(names);
}

/// The metrics that are wanted and can be had: those of gradients need a loss.
std::vector<std::string> wanted_metrics(const RunOptions& options) {
    std::vector<std::string> all = resolve_metrics(options.probes);
    if (!options.loss.empty()) return all;
    if (!options.labels.empty()) throw UsageError("--labels: belongs to --loss classify.");
    for (const std::string& metric : named(options.probes))
        if (needs_loss(metric))
            throw UsageError(fmt::format(
                "--probes: {} is made of a loss; pass --loss lm, mlm, classify, square or vjp.",
                metric));
    std::erase_if(all, needs_loss);
    return all;
}

void check_selection(const RunOptions& options, Index layers, Index heads) {
    if (options.first_layer >= layers || options.last_layer >= layers)
        throw UsageError(fmt::format("--layers: the model has the layers 0 to {}.", layers - 1));
    if (options.last_layer >= 0 && options.last_layer < options.first_layer)
        throw UsageError(fmt::format("--layers {}:{}: the first comes after the last.",
                                     options.first_layer, options.last_layer));
    for (const Index head : options.heads)
        if (head >= heads)
            throw UsageError(
                fmt::format("--heads {}: the model has the heads 0 to {}.", head, heads - 1));
    const Index last = options.last_layer < 0 ? layers - 1 : options.last_layer;
    for (const auto& [layer, head] : options.maps) {
        if (layer < options.first_layer || layer > last || head >= heads)
            throw UsageError(
                fmt::format("--maps {}:{}: expected a layer from {} to {} and a head from 0 to {}.",
                            layer, head, options.first_layer, last, heads - 1));
        if (!options.heads.empty() && std::ranges::find(options.heads, head) == options.heads.end())
            throw UsageError(
                fmt::format("--maps {}:{}: head {} is left out by --heads.", layer, head, head));
    }
}

/// What one run needs beside the subject, and what it collects.
struct Work {
    const RunOptions& options;
    const Backend& backend;
    std::vector<std::string> metrics;
    RunResult result;
    Phases phases;
    std::vector<std::string> warnings;
    Index memory = 0;  ///< of the whole run
};

/// `layers`: of the model; those behind the last measured one are not run.
MeasurementSettings measurement_settings(const Work& work, Index layers, Index samples) {
    const RunOptions& options = work.options;
    MeasurementSettings settings;
    settings.metrics = work.metrics;
    settings.by_name = named(options.probes);
    settings.own_probes = options.own_probes;
    settings.heads = options.heads;
    settings.maps = options.maps;
    settings.allow_nonfinite = options.allow_nonfinite;
    settings.layers = options.last_layer < 0 ? layers : options.last_layer + 1;
    settings.samples = samples;
    settings.trials = options.trials;
    if (options.progress)
        settings.progress = [&options](double fraction, Index layer) {
            say(options, {.phase = "measure", .fraction = fraction, .layer = layer});
        };
    return settings;
}

/// What is left of the budget for row blocks when `resident` bytes are held anyway.
Index row_budget(Work& work, Index resident) {
    constexpr Index least = Index(1) << 20;
    if (work.options.memory > 0 && resident > work.options.memory)
        work.warnings.push_back(
            fmt::format("--memory {}: one layer and the states take about {} bytes, row blocks are "
                        "as small as they can be",
                        work.options.memory, resident));
    return std::max(work.memory - resident, least);
}

/// A reverse sweep through the trial's model.
void run_gradients(const Work& work, const Model& model, std::vector<Input> inputs, Index trial,
                   const LossSource& losses, Measurement& measurement, RunSettings settings) {
    const RunOptions& options = work.options;
    const std::vector<Loss> of_samples = losses.losses(trial, inputs);
    settings.progress = [&](Index done, Index total) {
        say(options,
            {.phase = "gradients",
             .fraction = (double(trial) + double(done) / double(total)) / double(options.trials),
             .layer = total - done});
    };
    model.differentiate(inputs, of_samples, measurement, settings);
}

/// Every trial's weights and samples through the model, and back where there is a loss.
void run_trials(const Work& work, const Subject& subject, Type type, const InputSource& source,
                const LossSource* losses, Measurement& measurement, RunSettings settings) {
    const RunOptions& options = work.options;
    std::shared_ptr<const Weights> weights;
    if (subject.file)
        weights = checkpoint_weights(subject.file, subject.architecture, work.backend, type,
                                     options.allow_nonfinite);
    for (Index trial = 0; trial < options.trials; ++trial) {
        if (!subject.file)
            weights = random_weights(subject.random, weights_rng(options.seed, trial), work.backend,
                                     type);
        settings.progress = [&](Index done, Index total) {
            const double part = double(done) / double(std::max<Index>(total, 1));
            say(options, {.phase = "measure",
                          .fraction = (double(trial) + part) / double(options.trials),
                          .layer = std::min(done, total - 1)});
        };
        measurement.begin_trial(trial);
        const Model model(subject.spec(), weights, work.backend, type);
        const std::vector<Input> inputs = source.samples(trial);
        model.run(inputs, measurement, settings);
        if (losses) run_gradients(work, model, inputs, trial, *losses, measurement, settings);
    }
}

void measure_model(Work& work, const Subject& subject, Type type) {
    const RunOptions& options = work.options;
    const ModelSpec& spec = subject.spec();
    const Index layers = Index(spec.blocks.size());
    if (layers == 0)
        throw FormatError(
            fmt::format("{}: has no layers, expected a transformer.", subject.argument));
    Index heads = 1;
    for (const BlockSpec& block : spec.blocks) heads = std::max(heads, block.heads);
    check_selection(options, layers, heads);

    work.phases.begin("inputs");
    say(options, {.phase = "inputs"});
    const InputSource source(options, spec, work.backend, type);
    std::optional<LossSource> losses;
    if (!options.loss.empty()) losses.emplace(options, spec, source, work.backend, type);
    Measurement measurement(measurement_settings(work, layers, source.count()), work.result.table);
    const bool sweep = losses && measurement.wants_gradients();
    Extras extras = extras_of(work.metrics, measurement.wants_rows(0), source.tokens());
    extras.gradients = sweep;
    const double seconds = estimate_seconds(spec, source.tokens(), source.count() * options.trials,
                                            work.backend, type, extras);

    work.phases.begin("measure");
    Progress start{.phase = "measure"};
    if (seconds > minute) start.estimate = seconds;
    say(options, start);
    RunSettings settings;
    settings.memory = row_budget(work, resident_bytes(spec, source.tokens(), source.count(), type));
    settings.first_layer = options.first_layer;
    settings.last_layer = options.last_layer;
    settings.allow_nonfinite = options.allow_nonfinite;
    run_trials(work, subject, type, source, sweep ? &*losses : nullptr, measurement, settings);
    work.phases.end();

    Json input;
    input.set("kind", source.kind()).set("tokens", source.tokens()).set("samples", source.count());
    input.set("trials", options.trials).set("defaults", lines(source.defaults()));
    Json& run = work.result.run;
    run.set("dtype", type == Type::f32 ? "float32" : "float64");
    run.set("model", describe_model(subject, measurement)).set("input", std::move(input));
    if (sweep) run.set("loss", losses->json().set("value", *measurement.loss()));
    run.set("settings", describe_settings(options, work.metrics, work.memory, layers));
    run.set("solver", describe_solver(measurement));
}

void refuse_model_options(const RunOptions& options) {
    const auto refuse = [&](std::string_view option) {
        throw UsageError(
            fmt::format("{}: does not apply to a trace, whose arrays are its input.", option));
    };
    if (!options.input.empty()) refuse("--input");
    if (options.tokens > 0) refuse("--tokens");
    if (!options.loss.empty()) refuse("--loss");
}

void measure_trace(Work& work, const Subject& subject) {
    const RunOptions& options = work.options;
    refuse_model_options(options);
    const TraceSummary summary = summarise_trace(*subject.file);
    check_selection(options, summary.layers, std::max<Index>(summary.heads, 1));
    if (options.samples > summary.samples)
        throw UsageError(fmt::format("--samples {}: {} holds {}.", options.samples,
                                     subject.argument, summary.samples));
    ReplaySettings settings;
    settings.trace = options.trace;
    settings.type = options.dtype.value_or(summary.float64 ? Type::f64 : Type::f32);
    settings.samples = options.samples > 0 ? options.samples : summary.samples;
    settings.mask_source = options.mask;
    if (!options.mask.empty())
        settings.masks = read_masks(options.mask, settings.samples, summary.tokens);
    const Index states = 4 * summary.tokens * summary.width * Index(bytes_of(settings.type));
    settings.memory = row_budget(work, states);
    settings.first_layer = options.first_layer;
    settings.last_layer = options.last_layer;
    settings.allow_nonfinite = options.allow_nonfinite;

    work.phases.begin("measure");
    Measurement measurement(measurement_settings(work, summary.layers, settings.samples),
                            work.result.table);
    replay(*subject.file, work.backend, measurement, settings);
    work.phases.end();

    Json input;
    input.set("kind", "trace").set("tokens", summary.tokens).set("samples", settings.samples);
    Json& run = work.result.run;
    run.set("dtype", settings.type == Type::f32 ? "float32" : "float64");
    run.set("model", describe_trace_model(subject, options.trace));
    run.set("input", input.set("trials", Index(1)));
    run.set("settings", describe_settings(options, work.metrics, work.memory, summary.layers));
    run.set("solver", describe_solver(measurement));
}

}  // namespace

Rng weights_rng(std::uint64_t seed, Index trial) {
    return Rng(seed).fork("weights").fork(std::uint64_t(trial));
}

RunResult run(const RunOptions& options) {
    Work work{.options = options,
              .backend = open_backend(options.device),
              .metrics = wanted_metrics(options),
              .result = {Table(options.subject.model), {}},
              .phases = {},
              .warnings = {},
              .memory = options.memory > 0 ? options.memory : machine_memory() / 2};
    work.phases.begin("open");
    say(options, {.phase = "open"});
    const Subject subject = open_subject(options.subject);
    if (options.trials > 1 && subject.kind != Subject::Kind::random)
        throw UsageError(fmt::format(
            "--trials {}: draws new weights, and {} has its own; --samples draws new inputs.",
            options.trials, options.subject.model));
    if (!subject.is_trace() && options.trace.given())
        throw UsageError(fmt::format(
            "--attention, --causal, --scale and --a2 describe a trace, and {} is a model.",
            options.subject.model));

    Json& run = work.result.run;
    run.set("seed", Json(options.seed)).set("device", work.backend.name());
    run.set("threads", Index(omp_get_max_threads()));
    if (subject.is_trace())
        measure_trace(work, subject);
    else
        measure_model(work, subject, options.dtype.value_or(Type::f32));
    run.set("phases", work.phases.json()).set("warnings", lines(work.warnings));
    return std::move(work.result);
}

}  // namespace tsdiag
