#pragma once
#include "support.hpp"
#include "tsdiag/train.hpp"

/// Shared by the experiments that train.
namespace tsdiag::experiment_list {

/// A model to train, under its name in the table.
struct Trained {
    std::string name;
    TrainOptions options;
    /// Called at the end of a run with its model and `probe_samples` held-out samples, concurrently
    /// with those of other runs; what it records is `Outcome::seen`.
    std::function<void(const Model& model, std::span<const Input> held_out, Sink& seen)> inspect =
        {};
};
/// The results of a run, which may have ended early at a non-finite number.
struct Outcome {
    std::string model;
    Index trial = 0;
    std::vector<TrainStep> steps;  ///< all that were completed
    std::vector<Evaluation> evaluations;
    Table table;                                             ///< values of the probes
    Table seen;                                              ///< what `Trained::inspect` recorded
    std::vector<std::pair<std::string, Tensor>> parameters;  ///< at the end, by canonical name
    std::string diverged;  ///< why it ended early; empty: it did not
};

/// Trains each model `trials` times with different seeds, concurrently, a thread per run.  Models
/// with the same seed see the same samples.  `tell`: records what to keep of a run, in addition to
/// the common curves `train_loss` and `train_grad_norm` (means over at most 60 parts of the run),
/// `accuracy` and `test_loss` (of held-out samples) at evaluations; metrics `final_loss` (training,
/// mean of the last tenth of the steps), `final_test_loss`, `final_accuracy` and `diverged` (1 or
/// 0).  Every metric is also kept by trial (`KeepByTrial`).  A run may take place in another
/// process: what is needed of it must be recorded.
RunResult trained(const ExperimentSetting& setting, std::span<const Trained> models,
                  const std::function<void(const Outcome&, Sink&)>& tell = {});

/// The seed of a training: its weights, samples and dropout.
std::uint64_t seed_of(const ExperimentSetting& setting, Index trial);

/// Options that all of them share, without clipping; 128 held-out samples, fewer where the batch is
/// below 8.  Keys: steps, batch, rate.
TrainOptions train_options(const ExperimentSetting& setting, std::string model,
                           const std::string& data);

/// A note of the runs that diverged: they have no final numbers, so means are of the others alone.
void add_diverged(Findings& found, const Numbers& numbers, const std::string& model);

/// A curve by model and layer; layer -1: of the whole model.
std::map<double, Number> curve_of(const Table& table, const std::string& model,
                                  const std::string& curve, Index layer = -1);

}  // namespace tsdiag::experiment_list
