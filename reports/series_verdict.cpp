#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rows.hpp"
#include "text.hpp"

/// Findings on the course of a training, not on its last step alone.
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

Finding collapse(const std::vector<Peak>& peaks, const Peak& first, const std::string& unit) {
    const Peak& last = peaks.back();
    const std::string course =
        fmt::format("t_sim at the output of layer {} exceeds {} at {} {} ({})", first.layer,
                    saturated, unit, first.step, first.text());
    if (last.value > saturated)
        return {Level::warning,
                first.step == last.step
                    ? fmt::format("Token similarity saturates in this training: {}, the last that "
                                  "was measured.",
                                  course)
                    : fmt::format("Token similarity saturates in this training: {}, the first {} "
                                  "where one does, and at {} {}, the last that was measured, that "
                                  "of layer {} is {}.",
                                  course, unit, unit, last.step, last.layer, last.text()),
                ""};
    const Peak most = *std::ranges::max_element(peaks, {}, &Peak::value);
    return {
        Level::warning,
        fmt::format("Token similarity saturates for a time in this training: {}, and at {} {} "
                    "that of layer {} is {}; at {} {}, the last that was measured, none exceeds "
                    "{}: the greatest, of layer {}, is {}.",
                    course, unit, most.step, most.layer, most.text(), unit, last.step, saturated,
                    last.layer, last.text()),
        ""};
}

}  // namespace

std::vector<Finding> series_verdict(const Table& table, const std::string& unit) {
    const Similarity similarities(table);
    if (similarities.empty()) return {};
    const std::vector<Peak> peaks = similarities.peaks();
    if (const auto first = similarities.first_above(saturated))
        return {collapse(peaks, *first, unit)};
    const Peak most = *std::ranges::max_element(peaks, {}, &Peak::value);
    const bool near = most.value > mostly;
    return {{near ? Level::note : Level::good,
             fmt::format(
                 "Token similarity exceeds {} at none of the {} that were measured: the "
                 "greatest t_sim is {}, at the output of layer {} at {} {}, and at the last, "
                 "{} {}, it is {}, of layer {}.",
                 near ? saturated : mostly, counted(peaks.size(), unit), most.text(), most.layer,
                 unit, most.step, unit, peaks.back().step, peaks.back().text(), peaks.back().layer),
             ""}};
}

}  // namespace tsdiag
