#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>

#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/text.hpp"

/// The list of experiments, in the order in which they are run.
namespace tsdiag {

// clang-format off
#define TSDIAG_EXPERIMENTS(X)           \
    X(tse_fig1, tse_fig1)               \
    X(tse_rates, tse_fig2)              \
    X(tse_rates, tse_fig3)              \
    X(tse_fig4, tse_fig4)               \
    X(tse_deescalation, tse_fig5)       \
    X(tse_fig8, tse_fig8)               \
    X(devil_attention, devil_fig2a)     \
    X(devil_attention, devil_fig2b)     \
    X(devil_sec3, devil_sec3)           \
    X(devil_fig1, devil_fig1)           \
    X(devil_table1, devil_table1)       \
    X(devil_table2, devil_table2)       \
    X(devil_mixes, devil_mixes)         \
    X(devil_table4, devil_table4)       \
    X(devil_table5, devil_table5)       \
    X(devil_table6, devil_table6)       \
    X(devil_table7, devil_table7)       \
    X(poly_frobenius, poly_frobenius)   \
    X(poly_fig1, poly_fig1)             \
    X(poly_fig2, poly_fig2)             \
    X(poly_tables, poly_table2)         \
    X(poly_tables, poly_table5)         \
    X(poly_fig4, poly_fig4)             \
    X(poly_table4, poly_table4)         \
    X(poly_table6, poly_table6)         \
    X(tse_courses, tse_fig6)            \
    X(tse_courses, tse_fig7)            \
    X(law_lambda2, law_lambda2)         \
    X(law_saturation, law_saturation)   \
    X(tse_deescalation, law_phase)
// clang-format on

namespace experiment_list {
#define TSDIAG_DECLARE(source, name)   \
    namespace source {                 \
    extern const ExperimentEntry name; \
    }
TSDIAG_EXPERIMENTS(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace experiment_list

std::span<const ExperimentEntry* const> experiments() {
#define TSDIAG_ADDRESS(source, name) &experiment_list::source::name,
    static constexpr std::array list = {TSDIAG_EXPERIMENTS(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return list;
}

const ExperimentEntry& experiment(std::string_view name) {
    std::vector<std::string_view> known;
    for (const ExperimentEntry* entry : experiments()) {
        if (entry->name == name) return *entry;
        known.push_back(entry->name);
    }
    const std::string near = nearest(std::string(name), known);
    throw UsageError(fmt::format(
        "'{}' is no figure; {}", name,
        near.empty() ? "see tsdiag figure --list." : fmt::format("did you mean {}?", near)));
}

std::vector<const ExperimentEntry*> resolve_experiments(std::span<const std::string> words) {
    const auto listed = experiments();
    if (words.empty()) return {listed.begin(), listed.end()};
    std::vector<std::string_view> names;
    for (const ExperimentEntry* entry : listed) names.push_back(entry->name);
    std::vector<const ExperimentEntry*> out;
    for (const std::string& word : words) {
        const std::vector<std::size_t> found = named_by(word, names);
        if (found.empty()) experiment(word);  // throws
        for (const std::size_t i : found)
            if (std::ranges::find(out, listed[i]) == out.end()) out.push_back(listed[i]);
    }
    return out;
}

RunResult perform(const ExperimentEntry& entry, const ExperimentOptions& options) {
    const ExperimentSetting setting(entry, options);
    if (!options.model.empty() && !entry.takes_model)
        throw UsageError(fmt::format("--model {}: {} draws its models at random and takes none.",
                                     options.model, entry.name));
    if (!options.data.empty() && !entry.takes_data)
        throw UsageError(
            fmt::format("--data {}: {} trains nothing and takes none.", options.data, entry.name));
    Phases phases;
    phases.begin("measure");
    RunResult result = entry.measure(setting);
    phases.end();
    RunRecord run = result.run;
    run.experiment = entry.name;
    run.seed = options.seed;
    run.threads = omp_get_max_threads();
    run.setting = setting.described();
    run.phases = phases.ended();
    const Backend& backend = open_backend(entry.on_host ? "cpu" : options.device);
    if (entry.timed || !backend.host_memory()) run.device = backend.name();
    run.device_name = backend.device_name();
    result.run = run.json();
    return result;
}

ExperimentOptions recorded_options(const RunRecord& run) {
    if (!run.setting || !run.seed)
        throw FormatError("run.json: has no setting or no seed of its experiment; run it again.");
    const std::string& scale = run.setting->scale;
    return {.scale = scale == "paper"   ? ExperimentScale::paper
                     : scale == "quick" ? ExperimentScale::quick
                                        : ExperimentScale::tiny,
            .readings = {run.setting->keys.begin(), run.setting->keys.end()},
            .seed = *run.seed,
            .model = run.setting->model,
            .data = run.setting->data};
}

Study study(const ExperimentEntry& entry, const RunResult& result,
            const ExperimentOptions& options) {
    Findings found = entry.find(result.table, ExperimentSetting(entry, options));
    judge(found.comparisons);
    for (Figure& figure : found.figures)
        if (shows_bands(figure))
            figure.caption +=
                " Bands: 95 % intervals of each mean (Student's t), from three trials on.";
    return {.name = std::string(entry.name),
            .title = std::string(entry.title),
            .source = std::string(entry.source),
            .claim = std::string(entry.claim),
            .method = std::string(entry.method),
            .outcome = outcome_of(found.comparisons),
            .notes = std::move(found.notes),
            .comparisons = std::move(found.comparisons),
            .figures = std::move(found.figures)};
}

}  // namespace tsdiag
