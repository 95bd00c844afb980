#include "devil_training.hpp"

#include <fmt/format.h>

namespace tsdiag::experiment_list {

bool masked(const ExperimentSetting& setting) { return setting.text("loss") == "mlm"; }

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

}  // namespace tsdiag::experiment_list
