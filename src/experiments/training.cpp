#include "training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag::experiment_list {
namespace {

constexpr Index most_parts = 60;

/// Means over equal parts of the run.
void tell_curve(Sink& out, std::string_view name, const std::vector<TrainStep>& steps,
                double TrainStep::*number) {
    const Index count = std::ssize(steps), parts = std::min(count, most_parts);
    for (Index p = 0; p < parts; ++p) {
        const Index first = p * count / parts, last = (p + 1) * count / parts;
        double sum = 0;
        for (Index i = first; i < last; ++i) sum += steps[std::size_t(i)].*number;
        out.point({}, name, double(steps[std::size_t(last - 1)].step), sum / double(last - first));
    }
}

void tell_all(const Outcome& run, Sink& out) {
    tell_curve(out, "train_loss", run.steps, &TrainStep::loss);
    tell_curve(out, "train_grad_norm", run.steps, &TrainStep::grad_norm);
    for (const Evaluation& e : run.evaluations) {
        out.point({}, "accuracy", double(e.step), e.accuracy);
        out.point({}, "test_loss", double(e.step), e.loss);
    }
    out.scalar({}, "diverged", run.diverged.empty() ? 0.0 : 1.0);
    const Value none = undefined("training diverged");
    double last = 0;
    const Index count = std::ssize(run.steps), tail = std::max<Index>(count / 10, 1);
    for (Index i = count - tail; i < count && count > 0; ++i)
        last += run.steps[std::size_t(i)].loss / double(tail);
    const bool whole = run.diverged.empty(), judged = whole && !run.evaluations.empty();
    out.scalar({}, "final_loss", whole ? Value(last) : none);
    out.scalar({}, "final_test_loss", judged ? Value(run.evaluations.back().loss) : none);
    out.scalar({}, "final_accuracy", judged ? Value(run.evaluations.back().accuracy) : none);
}

/// How much of some trainings is done, told by their steps from any thread, and never backwards.
class StepsDone {
  public:
    StepsDone(const std::function<void(const Progress&)>& tell, std::size_t trainings)
        : tell_(tell), shares_(trainings) {}
    /// `share` of a training is done.
    void of_training(std::size_t i, double share) {
        const std::lock_guard lock(mutex_);
        sum_ += share - std::exchange(shares_[i], share);
        tell(sum_ / double(shares_.size()));
    }
    /// Of all of them, also of those that an earlier run has kept.
    void at_least(double fraction) {
        const std::lock_guard lock(mutex_);
        tell(fraction);
    }

  private:
    void tell(double fraction) {
        if (!tell_ || fraction <= told_) return;
        told_ = std::min(fraction, 1.0);
        tell_({.phase = "measure", .fraction = told_});
    }
    const std::function<void(const Progress&)>& tell_;
    std::mutex mutex_;
    std::vector<double> shares_;
    double sum_ = 0, told_ = 0;
};

/// `at`: told the share of its steps that is done.
Outcome outcome_of(const Trained& model, Index trial, TrainOptions options,
                   const std::function<void(double)>& at) {
    Outcome out;
    out.model = model.name;
    out.trial = trial;
    const double count = double(std::max<Index>(options.steps, 1));
    options.progress = [&](const TrainStep& step) {
        out.steps.push_back(step);
        at(double(step.step) / count);
        return true;
    };
    if (model.inspect)
        options.finished = [&](const Model& trained, std::span<const Input> held_out) {
            model.inspect(trained, held_out, out.seen);
        };
    try {
        TrainResult result = train(options);
        out.evaluations = std::move(result.evaluations);
        out.table = std::move(result.table);
        out.parameters = std::move(result.parameters);
    } catch (const NonFiniteError& error) {
        out.diverged = error.what();
    }
    return out;
}

}  // namespace

std::uint64_t seed_of(const ExperimentSetting& setting, Index trial) {
    return setting.seed() * 1000003 + std::uint64_t(trial);
}

TrainOptions train_options(const ExperimentSetting& setting, std::string model,
                           const std::string& data) {
    TrainOptions options;
    options.subject.model = std::move(model);
    options.device = setting.device();
    options.data = setting.data().empty() ? data : setting.data();
    options.steps = setting.count("steps");
    options.batch = setting.count("batch");
    options.schedule.rate = setting.number("rate");
    options.schedule.warmup = options.steps / 10;
    options.clip = 0;  // the papers mention no clipping
    options.eval_samples = std::min<Index>(128, 16 * options.batch);
    return options;
}

RunResult trained(const ExperimentSetting& setting, std::span<const Trained> models,
                  const std::function<void(const Outcome&, Sink&)>& tell) {
    RunResult result;
    const Index trials = setting.count("trials");
    StepsDone steps(setting.progress(), models.size() * std::size_t(trials));
    for (std::size_t m = 0; m < models.size(); ++m) {
        Table table(models[m].name);
        const auto done = [&](double fraction) {
            steps.at_least((double(m) + fraction) / double(models.size()));
        };
        each_trial(
            trials, table,
            [&](Index trial, Sink& out) {
                TrainOptions options = models[m].options;
                options.seed = seed_of(setting, trial);
                const std::size_t training = m * std::size_t(trials) + std::size_t(trial);
                const Outcome run =
                    outcome_of(models[m], trial, std::move(options),
                               [&](double share) { steps.of_training(training, share); });
                KeepByTrial kept(out, trial);
                tell_all(run, kept);
                if (tell) tell(run, kept);
            },
            done, setting.units());
        result.table.append(table);
    }
    return result;
}

void add_diverged(Findings& found, const Numbers& numbers, const std::string& model) {
    const Number share = numbers.at(model, "diverged");
    if (!share.value || *share.value == 0) return;
    const Index runs = std::llround(*share.value * double(share.count));
    found.notes.push_back(
        fmt::format("{}: training diverged in {} of {} runs{}.", model, runs, share.count,
                    runs < share.count ? "; its final numbers are means of the other runs" : ""));
}

std::map<double, Number> curve_of(const Table& table, const std::string& model,
                                  const std::string& curve, Index layer) {
    std::map<double, Number> out;
    for (const CurveRow& row : table.curves())
        if (row.model == model && row.curve == curve && row.at.layer == layer)
            out[row.x] = {row.y, row.standard_error, row.count, ""};
    return out;
}

}  // namespace tsdiag::experiment_list
