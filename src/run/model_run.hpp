#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "inputs.hpp"
#include "losses.hpp"
#include "recorder.hpp"
#include "run_context.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag {

/// All trials of one model: sequentially, or concurrently with a thread per trial.
class ModelRun {
  public:
    /// `concurrent_trials`: the number of concurrent trials, which share the memory equally.
    /// Throws `UsageError` for options that do not fit the model.
    ModelRun(RunContext& context, const Subject& subject, Index concurrent_trials);

    Index trials() const { return context_.options.trials; }
    const std::string& name() const { return context_.options.subject.model; }
    double seconds() const { return seconds_; }  ///< estimate for one trial on all threads
    Index concurrent_trials() const { return concurrent_trials_; }

    /// The results of one trial, or of some of its samples.
    struct Trial {
        std::shared_ptr<const Recorder> said;
        Totals totals = {};
        std::string bytes() const;  ///< as a record
        /// Throws `FormatError` for bytes that `bytes` cannot have made.
        static Trial read(std::string_view record);
    };
    /// Runs one trial on the calling thread.
    Trial trial(Index trial, Meter& meter) const;
    /// Adds the results of a trial to the table; to be called in the order of the trials.
    void add(const Trial& trial);
    /// Runs all trials in sequence, each on all threads.
    void in_turn();
    /// Parts of the samples of a single trial, each a unit.
    Index blocks() const;
    /// Layers of a part that are finished, from the first on; `keep` gets each further one.  A
    /// reverse sweep needs the states of all layers: then there are none.
    struct Layers {
        std::vector<Trial> known = {};
        std::function<void(Index number, const Trial& layer)> keep = {};
        bool in_progress = false;  ///< tells progress of the run within layers
    };
    /// Runs the samples of one part.  `tell` may be empty.
    Trial block(Index block, const Layers& layers, const std::function<void(double)>& tell) const;
    bool in_layers() const { return !losses_; }
    /// Lets a team run each part together, with the least memory of its members.
    void share(const Team& team);
    /// Adds the results of all parts, layer by layer, as one pass over all samples gives them.
    void add(std::span<const Trial> blocks);
    /// The output of the first layer for the first sample of the first trial, row by row.
    std::vector<double> first_layer() const;
    /// Writes model, input and settings to run.json.
    void describe();

  private:
    std::shared_ptr<const Weights> weights(Index trial) const;
    std::vector<Input> inputs(Index trial) const;
    void check_redraw() const;
    /// Runs the trial's model forward over its inputs, and backward where there is a loss.  `tell`:
    /// the phase, and how many of its layers are done.
    using Tell = std::function<void(std::string_view phase, Index done, Index total)>;
    struct Samples {
        Index first = 0, count = -1;  ///< -1: all
    };
    void measure(Index trial, Samples samples, Measurement& measurement, const Tell& tell) const;

    RunContext& context_;
    const Subject& subject_;
    Index concurrent_trials_;
    Type type_;
    InputSource source_;
    std::optional<LossSource> losses_;  ///< empty: no reverse sweep is needed
    RunSettings settings_;
    MeasurementSettings measured_;
    double seconds_ = 0;
    std::shared_ptr<const Weights> kept_;  ///< the same in all trials; null: drawn anew
    Totals whole_;                         ///< merged over the trials so far
};

}  // namespace tsdiag
