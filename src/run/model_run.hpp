#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "inputs.hpp"
#include "losses.hpp"
#include "recorder.hpp"
#include "work.hpp"

namespace tsdiag {

/// All trials of one model: one after the other, or side by side on threads of their own.
class ModelRun {
  public:
    /// `beside`: how many trials are in work at the same time; each has its share of the memory.
    /// Throws `UsageError` for options that do not fit the model.
    ModelRun(Work& work, const Subject& subject, Index beside);

    Index trials() const { return work_.options.trials; }
    double seconds() const { return seconds_; }  ///< of one trial on all threads, roughly
    Index beside() const { return beside_; }

    /// What one trial has recorded.
    struct Trial {
        std::shared_ptr<const Recorder> said;
        std::shared_ptr<Measurement> measurement;
    };
    /// One trial, alone on its thread.
    Trial trial(Index trial, Meter& meter) const;
    /// Adds one to the table, in the order of the trials.
    void add(const Trial& trial);
    /// All trials, each on all threads.
    void in_turn();
    /// What the first layer makes of the first sample of the first trial, row by row.
    std::vector<double> first_layer() const;
    /// Writes what run.json says of model, input and settings.
    void describe();

  private:
    std::shared_ptr<const Weights> weights(Index trial) const;
    std::vector<Input> inputs(Index trial) const;
    void check_redraw() const;
    /// The trial's model over its inputs, and back where there is a loss.  `tell`: the phase, and
    /// how many of its layers are done.
    using Layers = std::function<void(std::string_view phase, Index done, Index total)>;
    void measure(Index trial, Measurement& measurement, const Layers& tell) const;

    Work& work_;
    const Subject& subject_;
    Index beside_;
    Type type_;
    InputSource source_;
    std::optional<LossSource> losses_;  ///< empty: nothing is wanted of a reverse sweep
    RunSettings settings_;
    MeasurementSettings measured_;
    double seconds_ = 0;
    std::shared_ptr<const Weights> kept_;  ///< the same in all trials; null: drawn anew
    std::shared_ptr<Measurement> whole_;   ///< of the trials so far
};

}  // namespace tsdiag
