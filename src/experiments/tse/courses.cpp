#include "courses.hpp"

#include <fmt/format.h>

namespace tsdiag::experiment_list {

RunResult trained_with_similarity(const ExperimentSetting& setting,
                                  const std::vector<Trained>& models) {
    const Index last = setting.count("layers") - 1;
    return trained(setting, models, [last](const Outcome& run, Sink& out) {
        for (const MetricRow& row : run.table.metrics())
            if (row.metric == "t_sim" && row.at.layer == last && row.at.stage == "out" && row.value)
                out.point({}, "t_sim_last", double(row.at.step), *row.value);
    });
}

Findings course_findings(const Table& table, Figure figure,
                         const std::vector<std::string>& networks, bool with_accuracy) {
    const auto add = [&](const char* title, const char* curve, Axis y) {
        Plot plot{.title = title, .x = {.title = "step"}, .y = std::move(y)};
        for (const std::string& network : networks)
            plot.series.push_back(line(network, curve_of(table, network, curve)));
        figure.panels.push_back(std::move(plot));
    };
    add("training loss", "train_loss", {.title = "L, nats"});
    add("held-out loss", "test_loss", {.title = "L, nats"});
    if (with_accuracy)
        add("held-out accuracy", "accuracy", {.title = "share", .low = 0, .high = 1});
    add("t_sim after the last block", "t_sim_last", {.title = "t_sim", .low = 0, .high = 1.02});
    figure.alt = in_words(figure.panels);
    Findings found{.figures = {std::move(figure)}};
    const Numbers numbers(table);
    std::vector<std::pair<const char*, const char*>> finals = {
        {"final_loss", "final training loss"}, {"final_test_loss", "final held-out loss"}};
    if (with_accuracy) finals.emplace_back("final_accuracy", "final accuracy");
    for (const std::string& network : networks) {
        for (const auto& [metric, what] : finals)
            found.comparisons.push_back(compare(fmt::format("{}, {}", what, network), "no number",
                                                std::nullopt, numbers.at(network, metric, "", -1)));
        add_diverged(found, numbers, network);
    }
    return found;
}

}  // namespace tsdiag::experiment_list
