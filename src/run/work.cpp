#include "work.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tsdiag/error.hpp"

namespace tsdiag {

namespace {

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

}  // namespace

Work begin(const RunOptions& options) {
    Work work = begin(options, open_backend(options.device, options.products));
    if (std::string line = passed_over_devices(options.device); !line.empty())
        work.warnings.push_back(std::move(line));
    return work;
}

Work begin(const RunOptions& options, const Backend& backend) {
    return {.options = options,
            .backend = backend,
            .metrics = wanted_metrics(options),
            .result = {Table(options.subject.model), {}},
            .memory = options.memory > 0 ? options.memory : Index(backend.memory() / 2)};
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

MeasurementSettings measurement_settings(const Work& work, Index layers, Index samples) {
    const RunOptions& options = work.options;
    MeasurementSettings settings;
    settings.metrics = work.metrics;
    settings.by_name = named(options.probes);
    settings.own_probes = options.own_probes;
    settings.heads = options.heads;
    settings.maps = options.maps;
    settings.allow_nonfinite = options.allow_nonfinite;
    settings.accuracy = options.tolerance;
    settings.layers = options.last_layer < 0 ? layers : options.last_layer + 1;
    settings.samples = samples;
    settings.trials = options.trials;
    if (options.progress)
        settings.progress = [&options](double fraction, Index layer) {
            say(options, {.phase = "measure", .fraction = fraction, .layer = layer});
        };
    return settings;
}

Index row_budget(Work& work, Index memory, Index resident) {
    constexpr Index least = Index(1) << 20;
    if (work.options.memory > 0 && resident > memory)
        work.warnings.push_back(
            fmt::format("--memory {}: one layer and the states take about {} bytes, row blocks are "
                        "as small as they can be",
                        work.options.memory, resident));
    return std::max(memory - resident, least);
}

}  // namespace tsdiag
