#include "training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
    for (const Evaluation& e : run.evaluations)
        out.point({}, "accuracy", double(e.step), e.accuracy);
    out.scalar({}, "diverged", run.diverged.empty() ? 0.0 : 1.0);
    const Value none = undefined("training diverged");
    double last = 0;
    const Index count = std::ssize(run.steps), tail = std::max<Index>(count / 10, 1);
    for (Index i = count - tail; i < count && count > 0; ++i)
        last += run.steps[std::size_t(i)].loss / double(tail);
    const bool whole = run.diverged.empty();
    out.scalar({}, "final_loss", whole ? Value(last) : none);
    out.scalar({}, "final_accuracy",
               whole && !run.evaluations.empty() ? Value(run.evaluations.back().accuracy) : none);
}

Outcome outcome_of(TrainOptions options) {
    Outcome out;
    options.progress = [&](const TrainStep& step) {
        out.steps.push_back(step);
        return true;
    };
    try {
        TrainResult result = train(options);
        out.evaluations = std::move(result.evaluations);
        out.table = std::move(result.table);
    } catch (const NonFiniteError& error) {
        out.diverged = error.what();
    }
    return out;
}

}  // namespace

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
    options.eval_samples = 128;
    return options;
}

RunResult trained(const ExperimentSetting& setting, std::span<const Trained> models,
                  const std::function<void(const Outcome&, Sink&)>& tell) {
    RunResult result;
    const Index trials = setting.count("trials");
    for (std::size_t m = 0; m < models.size(); ++m) {
        Table table(models[m].name);
        const auto done = [&](double fraction) {
            if (setting.progress())
                setting.progress()({.phase = "measure",
                                    .fraction = (double(m) + fraction) / double(models.size())});
        };
        each_trial(
            trials, table,
            [&](Index trial, Sink& out) {
                TrainOptions options = models[m].options;
                options.seed = setting.seed() * 1000003 + std::uint64_t(trial);
                const Outcome run = outcome_of(std::move(options));
                tell_all(run, out);
                if (tell) tell(run, out);
            },
            done);
        result.table.append(table);
    }
    return result;
}

std::map<double, Number> curve_of(const Table& table, const std::string& model,
                                  const std::string& curve, Index layer) {
    std::map<double, Number> out;
    for (const CurveRow& row : table.curves())
        if (row.model == model && row.curve == curve && row.at.layer == layer)
            out[row.x] = {row.y, row.standard_error, row.count, ""};
    return out;
}

Comparison order_of(const std::string& what, const std::string& first, const std::string& second,
                    const Number& a, const Number& b, bool expected) {
    Comparison out{
        .what = fmt::format("{}: {} over {}", what, first, second),
        .says = expected ? fmt::format("{} has the greater", first) : "nothing of the two"};
    out.count = std::min(a.count, b.count);
    if (!a.value || !b.value) {
        out.unknown = a.value ? b.note : a.note;
        return out;
    }
    const double difference = *a.value - *b.value;
    out.measured = difference;
    if (!a.error || !b.error) return out;
    out.error = std::hypot(*a.error, *b.error);
    const double z = *out.error > 0 ? difference / *out.error : 0;
    out.says += z > 2    ? "; found"
                : z < -2 ? "; the other way round is found"
                         : "; not decided by these runs";
    return out;
}

}  // namespace tsdiag::experiment_list
