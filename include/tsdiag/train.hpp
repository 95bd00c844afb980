#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"

/// train(): small training runs, bitwise reproducible, with probes on a schedule.
///
///     TrainOptions options;
///     options.subject.model = "random:gpt2,layers=2,d=64,heads=4";
///     options.data = "copy";
///     options.steps = 500;
///     TrainResult result = train(options);
namespace tsdiag {

/// The learning rate at step t = 1 .. steps.  A warm-up of w steps multiplies it by min(1, t / w).
struct Schedule {
    enum class Kind {
        constant,      ///< rate
        cosine,        ///< floor rate + (1 - floor) rate (1 + cos(pi (t - w) / (T - w))) / 2
        linear,        ///< floor rate + (1 - floor) rate (1 - (t - w) / (T - w))
        inverse_sqrt,  ///< rate sqrt(w / max(t, w)); w = 1 without a warm-up
        multistep      ///< rate factor^k, k the milestones below t
    };
    Kind kind = Kind::cosine;
    double rate = 1e-3;
    Index warmup = 0;
    double floor = 0;  ///< of cosine and linear: share of the rate at the end
    Index length = 0;  ///< T of cosine and linear, which may be beyond the run; 0: its steps
    std::vector<Index> milestones = {};  ///< steps
    double factor = 0.1;

    double at(Index step, Index steps) const;
};
/// "constant", "cosine", "linear", "inverse-sqrt", "multistep"; throws `UsageError` for another.
Schedule::Kind schedule_named(const std::string& name);
std::string_view name(Schedule::Kind kind);

/// AdamW [Loshchilov and Hutter, ICLR 2019]: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
/// w -= rate (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w).  Only matrices decay:
/// biases, norms and other vectors do not.
struct AdamW {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01;
};

struct TrainOptions {
    /// The model: `random:NAME[,key=value...]`, or a checkpoint to continue from.  A random model
    /// of text gets its vocabulary from the data where no vocab= is given.
    SubjectOptions subject;
    /// Parameters to begin with in place of the model's, by canonical name: those of an earlier
    /// training in memory (`TrainResult::parameters`).  A classifier is drawn anew where its shape
    /// differs.  Not part of a run's identity: with a directory `UsageError` is thrown.
    std::vector<std::pair<std::string, Tensor>> start = {};
    /// A kind of `data_kinds()` with its argument, "text:FILE", or a folder whose layout is known.
    std::string data;
    std::string loss;  ///< lm, mlm or classify; empty: classify for labelled data, else lm
    Index tokens = 0;  ///< a sample's; 0: the model's longest, at most 128
    Index batch = 8;   ///< samples a step
    Index steps = 1000;
    double epochs = 0;  ///< of a finite set of samples, in place of steps; 0: steps
    Schedule schedule;
    AdamW adam;
    double clip = 1;     ///< maximum global norm of the gradients; 0: none
    double dropout = 0;  ///< of the embedding and of each branch; rows of P are never dropped
    std::uint64_t seed = 0;
    Index eval_every = 0;                        ///< steps; 0: at the end only
    Index eval_samples = 64;                     ///< held out, the same each time
    Index probe_every = 0;                       ///< steps; 0: no probes
    Index probe_samples = 1;                     ///< held out, the same each time
    std::vector<std::string> probes = {"core"};  ///< with a loss: gradient metrics too
    std::string device = "auto";
    /// Where logs and checkpoints go; empty: nothing is written.
    std::filesystem::path directory = {};
    Index save_every = 0;  ///< steps; 0: where probes are due; always at the end
    bool resume = false;   ///< continue from the last checkpoint of `directory`
    /// Of a training that begins now, for its description; one that is resumed keeps its own.
    RunRecord::Measured measured = {};
    /// Stop after this step as if interrupted (for tests of resuming); 0: do not.
    Index stop_after = 0;
    /// Called after each step from the calling thread; false: save a checkpoint and stop.
    std::function<bool(const struct TrainStep&)> progress = {};
    /// Called at the end with the trained model and `probe_samples` held-out samples.
    std::function<void(const Model& model, std::span<const Input> held_out)> finished = {};
};

struct TrainStep {
    Index step = 0;        ///< from 1
    double loss = 0;       ///< mean over the batch, before the update
    double grad_norm = 0;  ///< of all parameters together, before clipping
    double rate = 0;
    /// |dL/dw| of all parameters of a layer; the last entry: those of no layer.
    std::vector<double> layer_norms = {};
};
struct Evaluation {
    Index step = 0;  ///< updates made so far
    double loss = 0;
    double accuracy = 0;    ///< share of the targets that have the greatest logit
    Index predictions = 0;  ///< behind the accuracy
    /// Of labelled samples, by label: how many there were, and how many of them were told right.
    std::vector<Index> of_class = {}, right_of_class = {};
};

struct TrainResult {
    std::vector<TrainStep> steps;
    std::vector<Evaluation> evaluations;
    Table table;  ///< results of the probes, by `step`
    Json run;     ///< the content of run.json, except `tsdiag` and `command`
    bool finished = false;
    std::vector<std::pair<std::string, Tensor>> parameters;  ///< by canonical name
};

/// What `train` wrote into `directory`, without parameters: for its page.
TrainResult recorded_training(const std::filesystem::path& directory, const Json& run);

/// The held-out samples, at the length of the training, of the run that `model` belongs to.
/// `model` is its directory, or an entry of the directory's `checkpoints`; for anything else
/// returns nullopt.  Throws `UsageError` where its data are missing or have changed.
std::optional<OwnInput> held_out_input(const std::filesystem::path& model);

/// A kind of data that a model can be trained on.
struct DataKind {
    std::string_view name;      ///< "listops"
    std::string_view argument;  ///< "FILE", "DIR", "[:SYMBOLS]", or both: "[:DIR]"
    std::string_view samples;   ///< what a sample is
    std::string_view held_out;  ///< what is not trained on
    std::string_view layout;    ///< files of its folder as published, with the source; may be empty
    bool labelled = false;      ///< learnt by classify; else by lm, or mlm
};
/// In the order in which a folder without a kind is tried.
std::vector<DataKind> data_kinds();
/// The table of docs/train.md.
std::string data_markdown();

/// Trains.  The same options give the same numbers, bit for bit, on the same machine with any
/// number of threads, interrupted and resumed or not.
///
/// Writes into `directory`: steps.csv (step,loss,grad_norm,rate), gradients.csv
/// (step,layer,grad_norm), evaluations.csv (step,loss,accuracy,predictions), metrics.csv and, for
/// each saved step, checkpoints/step-N with the model as `tsdiag probe` opens it and training
/// state. A checkpoint appears under its name only when it is complete; the last two training
/// states are kept.
///
/// Throws `UsageError` for options that do not fit together, `FormatError` for data that cannot be
/// read, `NonFiniteError` naming step, tensor and layer where a loss or a gradient is not finite:
/// the last checkpoint is left as it is.
TrainResult train(const TrainOptions& options);

/// The page of a run: loss, gradients and probe results, against the step.
PlainPage training_page(const TrainResult& result);

/// steps.csv, evaluations.csv and so on, as `train` writes them into a directory.
std::string steps_csv(const std::vector<TrainStep>& steps);
std::string gradients_csv(const std::vector<TrainStep>& steps);
std::string evaluations_csv(const std::vector<Evaluation>& evaluations);

}  // namespace tsdiag
