#include "run_context.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "inputs.hpp"
#include "losses.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/memory.hpp"

namespace tsdiag {

namespace {

/// The metrics named apart from "core" and "all": size limits of those sets do not apply to them.
std::vector<std::string> named(const std::vector<std::string>& words) {
    std::vector<std::string> names;
    for (const std::string& word : words)
        if (word != "core" && word != "all") names.push_back(word);
    return names.empty() ? names : resolve_metrics(names);
}

/// The requested metrics that are available: gradient metrics need a loss.
std::vector<std::string> wanted_metrics(const RunOptions& options) {
    std::vector<std::string> words = options.probes;
    if (options.cross_check > 0) words.emplace_back(metric::lambda2_check);
    std::vector<std::string> all = resolve_metrics(words);
    if (!options.loss.empty()) return all;
    if (!options.labels.empty()) throw UsageError("--labels: requires --loss classify.");
    for (const std::string& metric : named(options.probes))
        if (needs_loss(metric))
            throw UsageError(fmt::format(
                "--probes: {} requires a loss; pass --loss lm, mlm, classify, square or vjp.",
                metric));
    std::erase_if(all, needs_loss);
    return all;
}

}  // namespace

void require_well_formed(const RunOptions& options) {
    wanted_metrics(options);
    parse_input(options);
    if (!options.loss.empty() && parse_loss(options.loss).name != "classify" &&
        !options.labels.empty())
        throw UsageError("--labels: requires --loss classify.");
    if (!options.trace.attention.empty()) attention(options.trace.attention);
    if (!options.tokenizer.empty() && !options.has_text())
        throw UsageError("--tokenizer: has no effect without --text, --text-file or --text-lines.");
    if (!options.preprocessor.empty() && options.images.empty())
        throw UsageError("--preprocessor: has no effect without --images.");
}

RunContext begin(const RunOptions& options) {
    require_well_formed(options);
    RunContext context = begin(options, open_backend(options.device, options.products));
    if (std::string line = passed_over_devices(options.device); !line.empty())
        context.run.warnings.push_back(std::move(line));
    return context;
}

RunContext begin(const RunOptions& options, const Backend& backend) {
    if (options.memory > 0) return_freed_memory();
    RunContext context{.options = options,
                       .backend = backend,
                       .metrics = wanted_metrics(options),
                       .result = {Table(options.subject.model), {}},
                       .memory = options.memory > 0 ? options.memory : Index(backend.memory() / 2)};
    context.run.seed = options.seed;
    context.run.device = backend.name();
    context.run.device_name = backend.device_name();
    return context;
}

void check_selection(const RunOptions& options, Index layers, Index heads) {
    if (options.first_layer >= layers || options.last_layer >= layers)
        throw UsageError(fmt::format("--layers: the model has the layers 0 to {}.", layers - 1));
    if (options.last_layer >= 0 && options.last_layer < options.first_layer)
        throw UsageError(fmt::format("--layers {}:{}: the first layer is after the last.",
                                     options.first_layer, options.last_layer));
    for (const Index head : options.heads)
        if (head >= heads)
            throw UsageError(
                fmt::format("--heads {}: the model has the heads 0 to {}.", head, heads - 1));
    const Index last = options.last_layer < 0 ? layers - 1 : options.last_layer;
    for (const auto& [layer, head] : options.maps) {
        if (std::pair(layer, head) == every_map) continue;
        if (layer < options.first_layer || layer > last || head >= heads)
            throw UsageError(
                fmt::format("--maps {}:{}: expected a layer from {} to {} and a head from 0 to {}.",
                            layer, head, options.first_layer, last, heads - 1));
        if (!options.heads.empty() && std::ranges::find(options.heads, head) == options.heads.end())
            throw UsageError(
                fmt::format("--maps {}:{}: head {} is excluded by --heads.", layer, head, head));
    }
}

Index kept_maps(const RunOptions& options, Index layers, Index heads) {
    const bool all = std::ranges::find(options.maps, every_map) != options.maps.end();
    return all ? layers * heads : std::ssize(options.maps);
}

MeasurementSettings measurement_settings(const RunContext& context, Index layers, Index samples) {
    const RunOptions& options = context.options;
    MeasurementSettings settings;
    settings.metrics = context.metrics;
    static_cast<ProbeChoices&>(settings.probes) = options;
    settings.probes.by_name = named(options.probes);
    settings.own_probes = options.own_probes;
    settings.allow_nonfinite = options.allow_nonfinite;
    if (options.products != Products::exact)
        settings.probes.state_rounding = settings.probes.map_rounding =
            options.products == Products::tf32 ? 0x1p-11 : 0x1p-8;
    settings.layers = options.last_layer < 0 ? layers : options.last_layer + 1;
    settings.samples = samples;
    settings.trials = options.trials;
    settings.profile = options.profile;
    if (options.progress)
        settings.progress = [&options](double fraction, Index layer) {
            say(options, {.phase = "measure", .fraction = fraction, .layer = layer});
        };
    return settings;
}

namespace {

std::string size(double bytes) {
    return bytes < 1024 * mib ? fmt::format("{:.0f}M", std::ceil(bytes / mib))
                              : fmt::format("{:.1f}G", std::ceil(bytes / mib / 102.4) / 10);
}

/// The largest of the parts, in words.
std::string largest_part(const MemoryNeeds& needs) {
    const std::pair<double, const char*> parts[] = {
        {needs.weights, "the weights or the saved P of a layer"},
        {needs.states, "the states and buffers of the samples"},
        {needs.metrics, "the metrics"},
        {needs.blocks, "blocks of rows of P"}};
    const auto& [bytes, what] = *std::ranges::max_element(parts);
    return fmt::format("{} for {}", size(bytes), what);
}

}  // namespace

Index row_budget(const RunContext& context, const RunSizes& sizes, Index concurrent_trials) {
    const MemoryNeeds needs = needs_of(sizes);
    const bool given = context.options.memory > 0, host = context.backend.host_memory();
    // The estimate may be twice the actual use: without --memory it must not refuse a run that
    // fits.
    const double most = given ? double(context.memory) : 2 * double(context.backend.memory());
    const double program = host ? program_bytes() : 0,
                 least = program + double(concurrent_trials) * needs.total();
    if (least > most) {
        // A margin: the program's own share varies slightly between runs.
        const std::string enough = size(least + mib);
        const std::string why = fmt::format("this run needs at least {} ({} for the program, {})",
                                            enough, size(program), largest_part(needs));
        throw UsageError(
            given
                ? fmt::format("--memory {}: {}; pass --memory {}, or reduce --tokens, --samples or "
                              "--probes.",
                              size(most), why, enough)
                : fmt::format(
                      "{}: {}, but the {} has {}{}; reduce --tokens, --samples or --probes.",
                      context.options.subject.model, why, host ? "machine" : "device",
                      size(double(context.backend.memory())), host ? of_each_process() : ""));
    }
    const double share =
        std::max((double(context.memory) - program) / double(concurrent_trials), needs.total());
    const Index threads = concurrent_trials > 1 ? 1 : omp_get_max_threads();
    return Index(left_for_rows(sizes, needs, share, threads, context.backend));
}

RunSettings run_settings(const RunContext& context, const RunSizes& sizes,
                         Index concurrent_trials) {
    const RunOptions& options = context.options;
    RunSettings settings;
    const Draws draws = options.draws.value_or(Draws{.seed = options.seed});
    settings.rng = weights_rng(draws.seed, 0);
    settings.update = draws.last();
    settings.memory = row_budget(context, sizes, concurrent_trials);
    settings.first_layer = options.first_layer;
    settings.last_layer = options.last_layer;
    settings.allow_nonfinite = options.allow_nonfinite;
    if (concurrent_trials > 1) return settings;
    const BatchPlan plan =
        batch_plan(sizes, options.batch, double(settings.memory), !context.backend.host_memory());
    settings.batch = plan.samples;
    settings.memory = Index(plan.memory);
    return settings;
}

}  // namespace tsdiag
