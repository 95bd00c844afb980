#include "devil_training.hpp"

#include <fmt/format.h>

namespace tsdiag::experiment_list {

std::string_view family(const ExperimentSetting& setting) {
    return setting.text("loss") == "mlm" ? "bert-base" : "gpt2";
}

TrainOptions devil_options(const ExperimentSetting& setting, std::string_view family,
                           const std::string& more) {
    TrainOptions options = train_options(
        setting,
        fmt::format("random:{},layers={},d={},heads={},tokens={}{}", family, setting.text("layers"),
                    setting.text("d"), setting.text("heads"), setting.text("tokens"), more),
        "markov:8");
    options.loss = setting.text("loss");
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
