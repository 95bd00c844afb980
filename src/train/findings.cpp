#include "findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tsdiag/intervals.hpp"

namespace tsdiag::training {
namespace {

using Level = Finding::Level;

constexpr Index most_parts = 20;     ///< of a run, to compare their mean losses
constexpr Index least_steps = 5;     ///< per part, to estimate the variance
constexpr double lost_again = 0.1;   ///< share of the decrease; a larger rise is reported
constexpr double near_guess = 0.97;  ///< of the loss of a guess; above, nothing is learned
constexpr double vanished = 1e-4;    ///< a layer's gradient over the largest of a layer

/// The mean loss of steps first to last.
struct Part {
    Index first = 0, last = 0;
    double mean = 0, error = 0;  ///< its standard error, steps assumed independent
    double freedom = 0;          ///< degrees of freedom of the error

    std::string steps() const {
        return first == last ? fmt::format("step {}", first)
                             : fmt::format("steps {} to {}", first, last);
    }
};

Part part_of(const std::vector<TrainStep>& steps, Index from, Index to) {
    Part out{.first = steps[std::size_t(from)].step, .last = steps[std::size_t(to - 1)].step};
    const double count = double(to - from);
    out.freedom = count - 1;
    for (Index i = from; i < to; ++i) out.mean += steps[std::size_t(i)].loss / count;
    double squares = 0;
    for (Index i = from; i < to; ++i) {
        const double off = steps[std::size_t(i)].loss - out.mean;
        squares += off / count * off;
    }
    if (to - from > 1) out.error = std::sqrt(squares / (count - 1));
    return out;
}

std::vector<Part> parts_of(const std::vector<TrainStep>& steps) {
    const Index count = std::ssize(steps);
    const Index pieces = std::clamp<Index>(count / least_steps, 1, most_parts);
    std::vector<Part> out;
    for (Index p = 0; p < pieces; ++p)
        out.push_back(part_of(steps, p * count / pieces, (p + 1) * count / pieces));
    return out;
}

/// Is a less than b, by Welch's t-test at 5 %, Bonferroni-corrected for the choice of a?
bool below(const Part& a, const Part& b, std::size_t parts) {
    const double off = b.mean - a.mean, error = std::hypot(a.error, b.error);
    if (!std::isfinite(off) || !std::isfinite(error)) return false;  // overflow: not comparable
    if (!(error > 0)) return off > 0;
    const double freedom = welch_freedom(a.error, a.freedom, b.error, b.freedom);
    return student_tail(off / error, freedom) <= 0.05 / double(parts);
}

/// `guess`: the loss of one by the frequencies of the targets; 0: not known, or there is one
/// target.
Finding loss(const std::vector<TrainStep>& steps, double guess) {
    const std::vector<Part> all = parts_of(steps);
    const Part &first = all.front(), &last = all.back();
    if (all.size() == 1)
        return {Level::note,
                fmt::format("The training loss is {:.4g} ({}); too few steps for a trend.",
                            first.mean, first.steps()),
                "learning"};
    const Part& least = *std::ranges::min_element(all, {}, &Part::mean);
    const std::string course = fmt::format("from {:.4g} ({}) to {:.4g} ({})", first.mean,
                                           first.steps(), last.mean, last.steps());
    const bool rose = below(least, last, all.size()) &&
                      last.mean - least.mean > lost_again * (first.mean - least.mean);
    if (rose)
        return {Level::warning,
                fmt::format("The training loss rises again: {}, with a minimum of {:.4g} ({}).",
                            course, least.mean, least.steps()),
                "learning"};
    if (guess > 0 && last.mean > near_guess * guess)
        return {Level::warning,
                fmt::format("The training loss ends {} that of guessing by frequency, {:.4g}: {}.",
                            last.mean > guess ? "above" : "hardly below", guess, course),
                "learning"};
    if (!below(last, first, 1))
        return {Level::warning, fmt::format("The training loss does not fall: {}.", course),
                "learning"};
    return {Level::good, fmt::format("The training loss falls {}.", course), "learning"};
}

Finding held_out(const std::vector<Evaluation>& all) {
    const Evaluation& end = all.back();
    const Evaluation& least = *std::ranges::min_element(all, {}, &Evaluation::loss);
    const Evaluation& most = *std::ranges::max_element(all, {}, &Evaluation::loss);
    const std::string last = fmt::format(
        "At step {}: held-out loss {:.4g}, top-1 accuracy {:.3g} % ({} held-out targets)", end.step,
        end.loss, 100 * end.accuracy, end.predictions);
    const bool rose = end.loss - least.loss > lost_again * (most.loss - least.loss);
    if (!rose) return {Level::note, last + ".", "learning"};
    return {Level::warning,
            fmt::format("{}. The held-out loss was {:.4g} at step {} and has risen since.", last,
                        least.loss, least.step),
            "learning"};
}

/// The layer whose gradient is least, over the last tenth of the steps, where that is next to none.
std::optional<Finding> vanishing(const std::vector<TrainStep>& steps) {
    const std::size_t layers = std::max<std::size_t>(steps.back().layer_norms.size(), 1) - 1;
    const std::size_t first = steps.size() - std::max<std::size_t>(steps.size() / 10, 1);
    std::vector<double> means(layers, 0.0);
    for (std::size_t i = first; i < steps.size(); ++i)
        for (std::size_t l = 0; l < std::min(layers, steps[i].layer_norms.size()); ++l)
            means[l] += steps[i].layer_norms[l] / double(steps.size() - first);
    if (layers < 2) return std::nullopt;
    const auto [least, most] = std::ranges::minmax_element(means);
    if (!(*least < vanished * *most)) return std::nullopt;
    return Finding{
        Level::warning,
        fmt::format(
            "The gradient vanishes: {:.3g} in layer {}, {:.3g} in layer {} (means of steps {} to "
            "{}).",
            *least, least - means.begin(), *most, most - means.begin(), steps[first].step,
            steps.back().step),
        "gradients"};
}

/// A step with zero gradient, or the largest jump of the gradient norm over those before it.
std::vector<Finding> jumps(const std::vector<TrainStep>& steps) {
    constexpr Index window = 50;
    constexpr double much = 10;
    const auto dead = std::ranges::find(steps, 0.0, &TrainStep::grad_norm);
    if (dead != steps.end())
        return {{Level::warning,
                 fmt::format("The gradient is 0 at step {}: nothing is learned there.", dead->step),
                 "gradients"}};
    if (std::optional<Finding> one = vanishing(steps)) return {std::move(*one)};
    if (std::ssize(steps) <= window) return {};
    double most = 0, before = 0;
    const TrainStep* at = nullptr;
    for (Index i = window; i < std::ssize(steps); ++i) {
        std::vector<double> norms;
        for (Index k = i - window; k < i; ++k) norms.push_back(steps[std::size_t(k)].grad_norm);
        std::ranges::nth_element(norms, norms.begin() + window / 2);
        const double median = norms[window / 2], ratio = steps[std::size_t(i)].grad_norm / median;
        if (ratio > most) most = ratio, before = median, at = &steps[std::size_t(i)];
    }
    if (most < much)
        return {
            {Level::good,
             fmt::format("No gradient spikes (over {:.0f} times the median of the last {} steps).",
                         much, window),
             "gradients"}};
    return {{Level::warning,
             fmt::format("The gradient norm spikes to {:.3g} at step {}, {:.3g} times the median "
                         "of the last {} steps ({:.3g}).",
                         at->grad_norm, at->step, most, window, before),
             "gradients"}};
}

/// The page of a training has no figure of each metric, as that of a series has: the one that holds
/// it.
std::string figure_here(const std::string& trajectory) {
    if (trajectory.empty()) return {};
    return trajectory.find(metric::grad_norm) != std::string::npos ? "gradients" : "similarity";
}

}  // namespace

std::vector<Finding> findings(const TrainResult& result) {
    const RunRecord run = result.run;
    std::vector<Finding> out = {loss(result.steps, run.guess.value_or(0))};
    bool of_tokens = false;  // the headline
    for (Finding& finding : series_verdict(result.table, run)) {
        if (finding.headline) {
            of_tokens = finding.level != Level::good && finding.level >= out.front().level;
            finding.headline = of_tokens;
        }
        finding.figure = figure_here(finding.figure);
        out.push_back(std::move(finding));
    }
    out.front().headline = !of_tokens;
    if (!result.evaluations.empty()) out.push_back(held_out(result.evaluations));
    for (Finding& finding : jumps(result.steps)) out.push_back(std::move(finding));
    for (const std::string& line : run.warnings) out.push_back({Level::warning, line + ".", ""});
    if (!result.finished)
        out.push_back({Level::warning,
                       fmt::format("The run was stopped after step {}; continue it with --resume.",
                                   result.steps.back().step),
                       ""});
    return by_severity(std::move(out));
}

}  // namespace tsdiag::training
