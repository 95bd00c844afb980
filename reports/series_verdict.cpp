#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "gradient_flow.hpp"
#include "headline.hpp"
#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"

/// The verdict over the course of a training, not over its last step alone.
namespace tsdiag {
namespace {

using namespace reports;
using Level = Finding::Level;

struct Peak {
    Index step = -1, layer = -1;
    double value = -1;
    std::optional<double> diversity;  ///< t_div there

    std::string text() const { return similarity_text(value, diversity); }
};

/// t_sim at the outputs of the layers, by step.
class Similarity {
  public:
    explicit Similarity(const Table& table) {
        for (const MetricRow& row : table.metrics())
            if (row.at.step >= 0 && row.at.layer >= 0 && row.at.stage == "out" && row.value) {
                if (row.metric == metric::t_sim) sim_[row.at.step][row.at.layer] = *row.value;
                if (row.metric == metric::t_div) div_[{row.at.step, row.at.layer}] = *row.value;
            }
    }
    bool empty() const { return sim_.empty(); }
    std::size_t steps() const { return sim_.size(); }
    Index last_step() const { return sim_.rbegin()->first; }
    /// The maximum of each step.
    std::vector<Peak> peaks() const {
        std::vector<Peak> out;
        for (const auto& [step, layers] : sim_) {
            const auto most =
                std::ranges::max_element(layers, {}, [](auto& l) { return l.second; });
            out.push_back(at(step, most->first));
        }
        return out;
    }
    /// The first layer above `threshold` at the first step that has one.
    std::optional<Peak> first_above(double threshold) const {
        for (const auto& [step, layers] : sim_)
            for (const auto& [layer, value] : layers)
                if (value > threshold) return at(step, layer);
        return std::nullopt;
    }

  private:
    Peak at(Index step, Index layer) const {
        const auto div = div_.find({step, layer});
        return {step, layer, sim_.at(step).at(layer),
                div == div_.end() ? std::nullopt : std::optional(div->second)};
    }
    std::map<Index, std::map<Index, double>> sim_;
    std::map<std::pair<Index, Index>, double> div_;
};

/// "0.9990 at step 200 (layer 1)".
std::string where(const Peak& peak, const std::string& unit) {
    return fmt::format("{} at {} {} (layer {})", peak.text(), unit, peak.step, peak.layer);
}

/// Of tokens that are alike at the first step: nothing says that they became so.
std::string alike_from_the_start(const std::vector<Peak>& peaks, double threshold,
                                 std::string_view alike, const std::string& unit) {
    const Peak &begin = peaks.front(), &end = peaks.back();
    if (peaks.size() == 1)
        return fmt::format("Tokens are {}: t_sim is {}.", alike, where(end, unit));
    const bool always =
        std::ranges::all_of(peaks, [&](const Peak& peak) { return peak.value > threshold; });
    return fmt::format("Tokens are {} at {}: t_sim is {} and {}, the last.", alike,
                       always ? "every " + unit
                              : fmt::format("the first {} and {}at the last", unit,
                                            end.value > threshold ? "" : "not "),
                       where(begin, unit), where(end, unit));
}

/// What becomes of the tokens over the series: t_sim of the layer where it is greatest.
Finding headline(const Similarity& similarities, const std::string& unit) {
    const std::vector<Peak> peaks = similarities.peaks();
    const Peak &begin = peaks.front(), &end = peaks.back();
    const Peak most = *std::ranges::max_element(peaks, {}, &Peak::value);
    const std::string last = where(end, unit) + ", the last";
    const auto passing = [&](double threshold, const Peak& at) {
        return fmt::format("t_sim passes {} at {} {} and is {}.", threshold, unit, at.step, last);
    };
    const Level level = end.value > saturated ? Level::warning : Level::note;
    if (begin.value > saturated)
        return {level, alike_from_the_start(peaks, saturated, "collapsed", unit)};
    const auto above = similarities.first_above(saturated), near = similarities.first_above(mostly);
    const bool ends = most.step == end.step;
    const std::string course = fmt::format("t_sim reaches {} and is {}.", where(most, unit), last);
    if (above)
        return {level, level == Level::warning
                           ? "Tokens collapse in this training: " + passing(saturated, *above)
                           : "Tokens collapse for a time in this training: " + course};
    if (begin.value > mostly)
        return {level, alike_from_the_start(peaks, mostly,
                                            fmt::format("{:g} % alike", 100 * mostly), unit)};
    if (near)
        return {level, fmt::format("Tokens become alike {}in this training: {}",
                                   end.value > mostly ? "" : "for a time ",
                                   ends ? passing(mostly, *near) : course)};
    return {Level::good, fmt::format("Tokens stay distinct at {} {}: t_sim is at most {}{}.",
                                     peaks.size() == 1 ? "the only" : "every", unit,
                                     ends ? last : where(most, unit), ends ? "" : " and " + last)};
}

/// Of the gradient that does not come through the layers, at the last step where it does not.
std::optional<Finding> lost_gradient(const Table& table, const std::string& unit) {
    std::map<Index, std::map<Index, double>> norms;  // by step and layer, of all parameters
    for (const MetricRow& row : table.metrics())
        if (row.metric == metric::grad_norm && row.value && row.at.step >= 0 && row.at.layer >= 0 &&
            row.at.head < 0 && row.at.stage.empty() && row.at.tensor.empty())
            norms[row.at.step][row.at.layer] = *row.value;
    std::map<std::string, std::size_t> lost;  // by course
    std::string course, numbers;
    Index at = -1;
    for (const auto& [step, layers] : norms) {
        const auto flow = gradient_flow({layers.begin(), layers.end()});
        if (!flow || (!flow->stops() && !flow->explodes() && !flow->vanishes())) continue;
        course = flow->course();
        numbers = flow->numbers();
        at = step;
        ++lost[course];
    }
    if (lost.empty()) return std::nullopt;
    return Finding{Level::warning,
                   fmt::format("{} at {} of {}: at {} {} {}.", course, lost[course],
                               counted(norms.size(), unit), unit, at, numbers),
                   trajectory_name(metric::grad_norm, "")};
}

/// What `tsdiag watch` has told: the last first.
void add_alarms(const RunRecord& run, std::vector<Finding>& out) {
    if (!run.watch) return;
    for (const RunRecord::Alarm& alarm : run.watch->alarms | std::views::reverse)
        out.push_back({Level::warning, fmt::format("Alarm: {}", alarm.sentence)});
}

}  // namespace

std::vector<Finding> series_verdict(const Table& table, const RunRecord& run) {
    std::vector<Finding> out;
    add_doubts(run.model, out);
    if (std::optional<Finding> input = random_ids(run)) out.push_back(std::move(*input));
    if (const Similarity similarities(table); !similarities.empty()) {
        const std::string figure = trajectory_name(metric::t_sim, "out");
        Finding course = headline(similarities, run.unit);
        const bool warns = course.level == Level::warning;
        course.figure = figure;
        course.headline = true;
        out.push_back(std::move(course));
        if (std::string text = warns ? remedy(run) : std::string(); !text.empty())
            out.push_back({Level::note, std::move(text), figure});
    }
    if (std::optional<Finding> lost = lost_gradient(table, run.unit))
        out.push_back(std::move(*lost));
    add_alarms(run, out);
    for (Finding& change : changes_verdict(run)) out.push_back(std::move(change));
    return by_severity(std::move(out));
}

}  // namespace tsdiag
