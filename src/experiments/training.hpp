#pragma once
#include "support.hpp"
#include "tsdiag/train.hpp"

/// What the experiments that train share.
namespace tsdiag::experiment_list {

/// A model in training, under the name that it has in the table.
struct Trained {
    std::string name;
    TrainOptions options;
    /// One that stands before it in the list, and that it is compared with seed by seed: models of
    /// one seed see the same samples.  Empty: none.
    std::string base = {};
};
/// What a run that may have been stopped by a number that is not finite leaves.
struct Outcome {
    std::string model;
    Index trial = 0;
    std::vector<TrainStep> steps;  ///< all that were made
    std::vector<Evaluation> evaluations;
    Table table;           ///< what the probes said
    std::string diverged;  ///< why it ended early; empty: it did not
};

/// Each model `trials` times with seeds of their own, side by side, a thread a run.  `tell`: what
/// of a run the table keeps, beside what all experiments keep: curves `train_loss` and
/// `train_grad_norm` (means over at most 60 parts of the run), `accuracy` and `test_loss` (of
/// held-out samples) at evaluations; metrics `final_loss` (training, mean of the last tenth of the
/// steps), `final_test_loss`, `final_accuracy`, `diverged` (1 or 0), and of a model that has a base
/// `test_loss_excess`, its final_test_loss less that of the base.
RunResult trained(const ExperimentSetting& setting, std::span<const Trained> models,
                  const std::function<void(const Outcome&, Sink&)>& tell = {});

/// Options that all of them share, without clipping; 128 held-out samples, fewer where the batch is
/// below 8.  Keys: steps, batch, rate.
TrainOptions train_options(const ExperimentSetting& setting, std::string model,
                           const std::string& data);

/// A note of the runs that diverged: they have no final numbers, so means are of the others alone.
void add_diverged(Findings& found, const Numbers& numbers, const std::string& model);

/// A curve by model and layer; layer -1: of the whole model.
std::map<double, Number> curve_of(const Table& table, const std::string& model,
                                  const std::string& curve, Index layer = -1);

constexpr ExperimentKey key_steps(std::string_view quick, std::string_view paper) {
    return {.name = "steps",
            .tiny = "30",
            .quick = quick,
            .paper = paper,
            .description = "updates",
            .least = 30,
            .most = 1e7};
}
constexpr ExperimentKey key_batch(std::string_view quick, std::string_view paper) {
    return {"batch", "2", quick, paper, "samples an update"};
}
constexpr ExperimentKey key_rate(
    std::string_view quick, std::string_view paper,
    std::string_view description = "greatest learning rate: warm-up over a tenth, then a cosine",
    std::string_view name = "rate") {
    return {.name = name,
            .tiny = quick,
            .quick = quick,
            .paper = paper,
            .description = description,
            .whole = false,
            .least = 1e-8,
            .most = 1};
}

}  // namespace tsdiag::experiment_list
