#include "devil_training.hpp"

#include <fmt/format.h>

namespace tsdiag::experiment_list {

std::string_view family(const ExperimentSetting& setting) {
    return setting.text("loss") == "mlm" ? "bert-base" : "gpt2";
}

TrainOptions devil_options(const ExperimentSetting& setting, std::string_view family,
                           const std::string& more) {
    TrainOptions options = devil_recipe(setting, family, more);
    options.loss = setting.text("loss");
    return options;
}

TrainOptions devil_recipe(const ExperimentSetting& setting, std::string_view family,
                          const std::string& more) {
    TrainOptions options = train_options(
        setting,
        fmt::format("random:{},layers={},d={},heads={},tokens={}{}", family, setting.text("layers"),
                    setting.text("d"), setting.text("heads"), setting.text("tokens"), more),
        "markov:8");
    options.tokens = setting.count("tokens");
    options.dropout = setting.number("dropout");
    options.schedule.kind = Schedule::Kind::linear;
    options.schedule.warmup = setting.count("warmup");
    options.adam = {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-6, .decay = 0.01};
    return options;
}

Comparison over_base(const Numbers& numbers, const std::string& model, const std::string& base,
                     double sign, std::string says) {
    return compare(fmt::format("final_test_loss, seed by seed: {} over {}", sign > 0 ? model : base,
                               sign > 0 ? base : model),
                   std::move(says), std::nullopt,
                   scaled(numbers.at(model, "test_loss_excess", "", -1), sign),
                   Comparison::Kind::order);
}

Plot table_plot(std::string title, std::vector<std::string> rows, std::vector<std::string> columns,
                std::string value_title,
                const std::function<std::optional<double>(std::size_t, std::size_t)>& value) {
    Grid grid{.rows = std::ssize(rows),
              .cols = std::ssize(columns),
              .row_title = "model",
              .col_title = "task",
              .value_title = std::move(value_title)};
    for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t j = 0; j < columns.size(); ++j) grid.values.push_back(value(i, j));
    grid.row_labels = std::move(rows);
    grid.col_labels = std::move(columns);
    return {.title = std::move(title), .grid = std::move(grid)};
}

void add_loss(Findings& found, const Numbers& numbers, const std::string& model, int table,
              double perplexity) {
    found.comparisons.push_back(compare(
        fmt::format("final_test_loss, {}", model),
        fmt::format("[DEVIL] Table {}, RoBERTa's pre-training on WikiText-103, perplexity {:.2f}",
                    table, perplexity),
        std::nullopt, numbers.at(model, "final_test_loss", "", -1)));
    add_diverged(found, numbers, model);
}

}  // namespace tsdiag::experiment_list
