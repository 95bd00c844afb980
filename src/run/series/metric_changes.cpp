#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag {
namespace {

struct At {
    Index step = 0;
    double value = 0;
    std::optional<double> error = {};
    Index count = 0;
};
using Key = std::tuple<std::string, std::string, Index>;  // metric, stage, layer

}  // namespace

std::vector<RunRecord::Change> metric_changes(const Table& table, double confidence) {
    std::map<Key, std::vector<At>> all;
    for (const MetricRow& row : table.metrics())
        if (row.value && row.at.step >= 0 && row.at.layer >= 0 && row.at.head < 0 &&
            row.at.tensor.empty())
            all[{row.metric, row.at.stage, row.at.layer}].push_back(
                {row.at.step, *row.value, row.standard_error, row.count});
    std::erase_if(all, [](const auto& one) { return one.second.size() < 2; });
    const double shared = 1 - (1 - confidence) / double(std::max<std::size_t>(all.size(), 1));
    std::vector<RunRecord::Change> out;
    for (auto& [key, points] : all) {
        std::ranges::sort(points, {}, &At::step);
        const At &first = points.front(), &last = points.back();
        RunRecord::Change change{.metric = std::get<0>(key), .stage = std::get<1>(key)};
        change.layer = std::get<2>(key);
        change.from = first.step;
        change.to = last.step;
        change.first = first.value;
        change.last = last.value;
        for (std::size_t i = 1; i < points.size(); ++i)
            if (const double step = points[i].value - points[i - 1].value;
                std::abs(step) > std::abs(change.steepest)) {
                change.steepest = step;
                change.steepest_from = points[i - 1].step;
                change.steepest_to = points[i].step;
            }
        const Index fewest = std::min(first.count, last.count);
        if (first.error && last.error && fewest > 1) {
            const double error = *first.error + *last.error;
            const double t = student_quantile(shared, double(fewest - 1));
            change.certain = std::abs(last.value - first.value) > t * error;
            if (error > 0) change.error = error;
        }
        out.push_back(std::move(change));
    }
    return out;
}

}  // namespace tsdiag
