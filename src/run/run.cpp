#include "tsdiag/run.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "arrays.hpp"
#include "budget.hpp"
#include "describe.hpp"
#include "hand_out.hpp"
#include "model_run.hpp"
#include "settings.hpp"
#include "trace/replay.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag {
namespace {

constexpr double minute = 60;

/// Records the out-of-memory fallbacks of the device since the run began.
void note_shortages(RunContext& context) {
    const std::vector<std::string> found = shortages();
    if (found.empty()) return;
    context.run.shortages = found;
    context.run.warnings.insert(context.run.warnings.end(), found.begin(), found.end());
}

/// Opens a subject and refuses options that do not fit a model or a trace.
Subject open_model(const RunOptions& options) {
    Subject subject = open_subject(options.subject);
    if (options.trials > 1 && subject.kind != Subject::Kind::random)
        throw UsageError(
            fmt::format("--trials {}: draws new weights, but {} has fixed weights; use --samples "
                        "to draw new inputs.",
                        options.trials, options.subject.model));
    if (!subject.is_trace() && options.trace.given())
        throw UsageError(fmt::format(
            "--attention, --causal, --scale, --a2 and --placement describe a trace, but {} is a "
            "model.",
            options.subject.model));
    if (!subject.is_trace() && options.products != Products::exact && options.dtype == Type::f64)
        throw UsageError(
            "--fast: rounds the factors of float32 products, but --dtype f64 has none; omit one of "
            "them.");
    return subject;
}

void mark_phase(const RunOptions& options, std::string_view phase) {
    if (options.profile) options.profile->mark(Cost::phase, phase);
}

ModelRun::Trial unit(Units* units, Index i, const std::function<ModelRun::Trial()>& make) {
    return result_of_unit(units, i, ModelRun::Trial::read, make,
                          std::mem_fn(&ModelRun::Trial::bytes));
}

/// Runs the trials of all `runs` concurrently, a thread per trial, the longest first.
void side_by_side(std::span<ModelRun* const> runs, Units* units,
                  const std::function<void(double)>& tell) {
    std::vector<std::pair<ModelRun*, Index>> trials;
    double whole = 0;
    for (ModelRun* run : runs)
        for (Index t = 0; t < run->trials(); ++t) {
            trials.emplace_back(run, t);
            whole += run->seconds();
        }
    const Index count = std::ssize(trials);
    if (units) units->begin(count);
    if (units && units->hands_out()) {
        // In their own order: the estimates, and so the longest, differ between machines.
        Meter unused(whole, {});
        return hand_out(
            *units, count, runs.front()->concurrent_trials() > 1,
            [&](Index i) {
                const auto& [run, trial] = trials[std::size_t(i)];
                return run->trial(trial, unused).bytes();
            },
            tell);
    }
    std::vector<Index> order(trials.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(
        order, {}, [&](Index i) { return std::pair(-trials[std::size_t(i)].first->seconds(), i); });
    Meter meter(whole, tell);
    in_order(
        count,
        [&](Index i) {
            const auto& [run, trial] = trials[std::size_t(i)];
            return [run, done = unit(units, i, [&] { return run->trial(trial, meter); })] {
                run->add(done);
            };
        },
        order);
}

/// The layers of a part that an earlier run has finished: as `team`'s first member knows them.
std::vector<ModelRun::Trial> finished_layers(const ModelRun& run, const Units& units, Index part,
                                             const Team* team) {
    std::vector<ModelRun::Trial> layers;
    if (!run.in_layers()) return layers;
    RecordWriter records;
    if (!team || team->rank() == 0)
        for (Index i = 0; const auto record = units.find_part(part, i); ++i) records.text(*record);
    std::string bytes = records.take();
    if (team) bytes = team->gather(bytes).front();
    RecordReader in(bytes, kept_units);
    try {
        while (!in.done()) layers.push_back(ModelRun::Trial::read(in.view()));
    } catch (const FormatError&) {  // another build wrote it: that layer is computed again
    }
    return layers;
}

/// A part from its first layer on that is not known.
ModelRun::Trial made(const ModelRun& run, Units& units, Index part, const Team* team,
                     const std::function<void(double)>& tell) {
    ModelRun::Layers layers{.known = finished_layers(run, units, part, team)};
    layers.in_progress = !units.hands_out() && run.blocks() == 1;
    if (!team || team->rank() == 0)
        layers.keep = [&](Index number, const ModelRun::Trial& layer) {
            units.keep_part(part, number, layer.bytes());
        };
    return run.block(part, layers, tell);
}

/// Each unit by all members of a team, the first of which keeps it.
void together(ModelRun& run, Units& units, const Team& team,
              const std::function<void(double)>& tell) {
    run.share(team);
    const Index count = run.blocks();
    for (Index i = 0; i < count; ++i) {
        // Another machine may not yet see what the first does.
        if (team.gather(units.find(i) ? "known" : "").front() == "known") continue;
        const auto start = std::chrono::steady_clock::now();
        const std::string record = made(run, units, i, &team, [&](double done) {
                                       tell((double(i) + done) / double(count));
                                   }).bytes();
        const std::vector<std::string> digests = team.gather(sha256(record));
        for (std::size_t r = 1; r < digests.size(); ++r)
            if (digests[r] != digests[0])
                throw Error(fmt::format(
                    "{}: ranks 0 and {} have different results of the same work, expected the same "
                    "bytes; one of the machines computes wrongly, or has other libraries.",
                    run.name(), r));
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        if (team.rank() == 0) units.keep(i, record, taken.count());
    }
}

/// The samples of a single trial, in parts.
void in_blocks(ModelRun& run, Units& units, const std::function<void(double)>& tell) {
    const Index count = run.blocks();
    units.begin(count);
    if (const Team* team = units.team(); units.hands_out() && team && count < team->size())
        return together(run, units, *team, tell);
    const auto of = [&](Index i) { return made(run, units, i, nullptr, {}); };
    if (units.hands_out())
        return hand_out(
            units, count, false, [&](Index i) { return of(i).bytes(); }, tell);
    std::vector<ModelRun::Trial> blocks;
    for (Index i = 0; i < count; ++i) {
        blocks.push_back(unit(&units, i, [&] { return of(i); }));
        tell(double(i + 1) / double(count));
    }
    run.add(blocks);
}

/// |Y - Y'|_F / |Y|_F, Y the output of the first layer for the first sample with exact products, Y'
/// with those of `model`.
double first_layer_error(const RunOptions& options, const Subject& subject, const ModelRun& model) {
    RunContext exact = begin(options, open_backend(options.device));
    const std::vector<double> expected = ModelRun(exact, subject, 1).first_layer(),
                              found = model.first_layer();
    double difference = 0, whole = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        whole += expected[i] * expected[i];
    }
    return std::sqrt(difference / whole);
}

void measure_model(RunContext& context, const Subject& subject) {
    const RunOptions& options = context.options;
    context.phases.begin("inputs");
    say(options, {.phase = "inputs"});
    const Index threads = omp_get_max_threads();
    const bool concurrently = options.trials > 1 && (options.trials >= threads || options.units);
    if (options.profile && (concurrently || options.units))
        throw UsageError(fmt::format(
            "--profile: needs a run of its own, but {}; drop one of the two options.",
            concurrently ? fmt::format("--trials {} runs them side by side", options.trials)
                         : "its samples are units of several processes"));
    mark_phase(options, "open");
    ModelRun model(context, subject, concurrently ? std::min(options.trials, threads) : 1);

    mark_phase(options, "inputs");
    context.phases.begin("measure");
    Progress start{.phase = "measure"};
    if (const double seconds = model.seconds() * double(options.trials); seconds > minute)
        start.estimate = seconds;
    say(options, start);
    const auto tell = [&](double fraction) {
        say(options, {.phase = "measure", .fraction = fraction});
    };
    if (concurrently) {
        ModelRun* const only[] = {&model};
        side_by_side(only, options.units, tell);
    } else if (options.units && (options.units->begun() || model.blocks() == 1)) {
        in_blocks(model, *options.units, tell);
    } else if (options.derive) {
        Meter meter(model.seconds() * double(options.trials), tell);
        for (Index trial = 0; trial < options.trials; ++trial) model.add(model.trial(trial, meter));
    } else {
        model.in_turn();
    }
    context.phases.end();
    model.describe();
    mark_phase(options, "describe");
    const bool computes_units_only = options.units && options.units->hands_out();
    if (options.products == Products::exact || computes_units_only) return;
    const double error = first_layer_error(options, subject, model);
    const char* name = options.products == Products::tf32 ? "tf32" : "bf16";
    context.run.fast = Json().set("products", name).set("first_layer_error", error);
    context.run.warnings.push_back(
        fmt::format("--fast {}: the first layer's output for the first sample differs from float32 "
                    "by {:.1e} of its norm",
                    name, error));
}

void refuse_model_options(const RunOptions& options) {
    const auto refuse = [&](std::string_view option) {
        throw UsageError(
            fmt::format("{}: does not apply to a trace, whose arrays are its input.", option));
    };
    if (!options.input.empty()) refuse("--input");
    if (options.has_text()) refuse(options.text_option());
    if (!options.images.empty()) refuse("--images");
    if (options.tokens > 0) refuse("--tokens");
    if (options.batch > 0) refuse("--batch");
    if (!options.loss.empty()) refuse("--loss");
    if (options.products != Products::exact) refuse("--fast");
}

RunSizes sizes_of(const RunContext& context, const TraceSummary& summary,
                  const ReplaySettings& settings) {
    RunSizes sizes;
    sizes.tokens = summary.tokens;
    sizes.width = summary.width;
    sizes.layers = summary.layers;
    sizes.heads = std::max<Index>(summary.full_heads, 1);
    sizes.columns = summary.width;
    sizes.bytes = Index(bytes_of(settings.type));
    // P of a layer, its file, and normalised P; or states, queries and keys of the file
    const Index read = summary.has_maps ? 3 * sizes.heads * sizes.tokens : 4 * sizes.width;
    sizes.file_pages = read * sizes.tokens * sizes.bytes;
    sizes.metrics = context.metrics;
    sizes.dense = context.options.spectra == "dense";
    sizes.maps = kept_maps(context.options, sizes.layers, sizes.heads);
    return sizes;
}

void measure_trace(RunContext& context, const Subject& subject) {
    const RunOptions& options = context.options;
    refuse_model_options(options);
    if (options.units && options.units->hands_out()) return;  // it is not split
    const TraceSummary summary = summarise_trace(*subject.file);
    check_selection(options, summary.layers, std::max<Index>(summary.heads, 1));
    if (options.samples > summary.samples)
        throw UsageError(fmt::format("--samples {}: {} contains {}.", options.samples,
                                     subject.argument, summary.samples));
    ReplaySettings settings;
    settings.trace = options.trace;
    settings.type = options.dtype.value_or(summary.float64 ? Type::f64 : Type::f32);
    settings.samples = options.samples > 0 ? options.samples : summary.samples;
    settings.mask_source = options.mask.empty() ? "attention_mask" : options.mask;
    settings.masks = saved_masks(*subject.file, settings.samples);
    if (!options.mask.empty()) {
        auto given = read_masks(options.mask, settings.samples, summary.tokens);
        if (!settings.masks.empty() && settings.masks != given)
            throw UsageError(fmt::format(
                "--mask {}: hides other tokens than attention_mask in {}; expected one of both, or "
                "the same in both.",
                options.mask, subject.argument));
        settings.masks = std::move(given);
        const auto hides = [](const auto& one) {
            return std::ranges::find(one, false) != one.end();
        };
        if (std::ranges::none_of(settings.masks, hides)) settings.masks.clear();
    }
    settings.memory = row_budget(context, sizes_of(context, summary, settings), 1);
    settings.first_layer = options.first_layer;
    settings.last_layer = options.last_layer;
    settings.allow_nonfinite = options.allow_nonfinite;

    mark_phase(options, "open");
    context.phases.begin("measure");
    MeasurementSettings measured = measurement_settings(context, summary.layers, settings.samples);
    ProbeSettings& probes = measured.probes;
    probes.state_rounding = std::max(probes.state_rounding, summary.state_rounding);
    probes.map_rounding = std::max(probes.map_rounding, summary.map_rounding);
    probes.saved_maps = summary.has_maps && !summary.has_queries;
    Measurement measurement(std::move(measured), context.result.table);
    Replayed replayed = replay(*subject.file, context.backend, measurement, settings);
    RunRecord& run = context.run;
    std::ranges::move(replayed.notes, std::back_inserter(run.warnings));
    context.phases.end();

    run.dtype = settings.type == Type::f32 ? "float32" : "float64";
    // Only the samples that are measured are described.
    if (settings.masks.empty())
        settings.masks.assign(std::size_t(settings.samples),
                              std::vector<bool>(std::size_t(summary.tokens), true));
    run.model = describe_trace_model(subject, options.trace, settings.masks, measurement.totals());
    run.model.no_attention = replayed.no_attention;
    run.input = {
        .kind = "trace", .tokens = summary.tokens, .samples = settings.samples, .trials = 1};
    run.settings.all =
        describe_settings(options, {context.metrics, context.memory, summary.layers});
    run.schema = describe_metrics(context.metrics);
    run.solver = describe_solver(measurement.totals());
}

}  // namespace

Rng weights_rng(std::uint64_t seed, Index trial) {
    return Rng(seed).fork("weights").fork(std::uint64_t(trial));
}

RunResult run(const RunOptions& options) {
    restart_shortages();
    RunContext context = begin(options);
    context.result.table.keep_samples();
    context.phases.begin("open");
    say(options, {.phase = "open"});
    const Subject subject = open_model(options);

    context.run.threads = omp_get_max_threads();
    if (subject.is_trace())
        measure_trace(context, subject);
    else
        measure_model(context, subject);
    note_shortages(context);
    context.run.phases = context.phases.ended();
    context.result.run = context.run.json();
    return std::move(context.result);
}

void measure(const Model& model, std::span<const Input> inputs, std::span<const Loss> losses,
             const RunOptions& options, const Backend& backend, Type type, Sink& out) {
    RunOptions own = options;
    own.loss = losses.empty() ? "" : "given";
    own.labels.clear();
    RunContext context = begin(own, backend);
    const Index layers = Index(model.spec().blocks.size());
    Measurement measurement(measurement_settings(context, layers, Index(inputs.size())), out);
    Index tokens = 1;
    for (const Input& input : inputs) tokens = std::max(tokens, tokens_of(model.spec(), input));
    RunSizes sizes = sizes_of(model.spec(), type);
    sizes.tokens = tokens;
    sizes.samples = std::ssize(inputs);
    sizes.metrics = context.metrics;
    sizes.dense = context.options.spectra == "dense";
    const RunSettings settings = run_settings(context, sizes, 1);
    measurement.begin_trial(0);
    model.run(inputs, measurement, settings);
    if (!losses.empty() && measurement.wants_gradients())
        model.differentiate(inputs, losses, measurement, settings);
}

std::vector<RunResult> run_together(std::span<const RunOptions> runs,
                                    const std::function<void(const Progress&)>& progress,
                                    Units* units) {
    restart_shortages();
    const Index threads = omp_get_max_threads();
    std::vector<std::unique_ptr<RunContext>> contexts;
    std::vector<Subject> subjects;
    subjects.reserve(runs.size());
    std::vector<std::unique_ptr<ModelRun>> models;
    std::vector<ModelRun*> all;
    double seconds = 0;
    for (const RunOptions& options : runs) {
        contexts.push_back(std::make_unique<RunContext>(begin(options)));
        subjects.push_back(open_model(options));
        if (subjects.back().is_trace())
            throw UsageError(
                fmt::format("{}: is a trace, expected a model.", options.subject.model));
        models.push_back(std::make_unique<ModelRun>(*contexts.back(), subjects.back(), threads));
        all.push_back(models.back().get());
        seconds += models.back()->seconds() * double(options.trials);
    }
    Progress at{.phase = "measure"};
    if (seconds > minute) at.estimate = seconds;
    const auto tell = [&](double fraction) {
        at.fraction = fraction;
        if (progress) progress(at);
    };
    tell(0);
    side_by_side(all, units, tell);
    tell(1);
    std::vector<RunResult> results;
    for (std::size_t i = 0; i < contexts.size(); ++i) {
        models[i]->describe();
        note_shortages(*contexts[i]);  // includes those of the other runs, which share the device
        contexts[i]->result.run = contexts[i]->run.json();
        results.push_back(std::move(contexts[i]->result));
    }
    return results;
}

}  // namespace tsdiag
