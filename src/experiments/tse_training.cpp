#include "tse_training.hpp"

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

std::vector<Plot> course_of(const Table& table, const std::vector<std::string>& networks,
                            bool with_accuracy) {
    std::vector<Plot> out;
    const auto add = [&](const char* title, const char* curve, Axis y) {
        Plot plot{.title = title, .x = {.title = "step"}, .y = std::move(y)};
        for (const std::string& network : networks)
            plot.series.push_back(line(network, curve_of(table, network, curve)));
        out.push_back(std::move(plot));
    };
    add("training loss", "train_loss", {.title = "L, nats"});
    add("held-out loss", "test_loss", {.title = "L, nats"});
    if (with_accuracy)
        add("held-out accuracy", "accuracy", {.title = "share", .low = 0, .high = 1});
    add("t_sim after the last block", "t_sim_last", {.title = "t_sim", .low = 0, .high = 1.02});
    return out;
}

}  // namespace tsdiag::experiment_list
