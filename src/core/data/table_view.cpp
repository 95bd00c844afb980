#include "tsdiag/table_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tsdiag {
namespace {

/// Value of a layer: the row without a head, else the mean over the heads.
class Layer {
  public:
    void add(const MetricRow& row) {
        if (row.at.head < 0) {
            whole_ = {row.value, row.standard_error, row.count};
        } else if (row.value) {
            sum_ += *row.value;
            ++count_;
        }
        has_whole_ = has_whole_ || row.at.head < 0;
    }
    Point point() const {
        if (has_whole_ || count_ == 0) return whole_;
        return {.value = sum_ / double(count_)};
    }

  private:
    Point whole_;
    bool has_whole_ = false;
    double sum_ = 0;
    Index count_ = 0;
};

/// The power of ten of the first of two significant digits.
int decimal_exponent(double value) {
    const std::string text = fmt::format("{:.1e}", value);
    return std::stoi(text.substr(text.find('e') + 1));
}

}  // namespace

std::string readable(double value, int digits) {
    std::string text = fmt::format("{:.{}g}", value, digits);
    if (std::abs(value) == 1 || (text != "1" && text != "-1")) return text;
    constexpr double shown = 1e-6;  // below, nines or zeros would have to be counted
    const double beyond = std::abs(value) - 1;
    if (std::abs(beyond) < shown) {
        const bool outwards = (beyond > 0) == (value > 0);
        return fmt::format("{} {} {:.2g}", text, outwards ? '+' : '-', std::abs(beyond));
    }
    for (int more = digits + 1; text == "1" || text == "-1"; ++more)
        text = fmt::format("{:.{}g}", value, more);
    return text;
}

std::string with_error(double value, const std::optional<double>& error) {
    constexpr double rounding = std::numeric_limits<double>::epsilon();
    if (!error || !std::isfinite(*error) || !std::isfinite(value) ||
        !(*error > rounding * std::abs(value)))
        return readable(value);
    const int place = decimal_exponent(*error) - 1;               // of the last digit
    if (std::abs(value) < std::pow(10.0L, place) / 2) value = 0;  // not "-0.000"
    const double larger = std::max(std::abs(value), *error);
    constexpr double least_plain = 1e-4, most_plain = 1e6;
    if (larger < least_plain || larger >= most_plain) {
        const int power = decimal_exponent(larger);
        // A long double, for 10^power may be below the least double.
        const auto part = [unit = std::pow(10.0L, power)](double v) { return double(v / unit); };
        return fmt::format("({:.{}f} \u00b1 {:.{}f})e{:+03d}", part(value), power - place,
                           part(*error), power - place, power);
    }
    if (place <= 0) return fmt::format("{:.{}f} \u00b1 {:.{}f}", value, -place, *error, -place);
    const double unit = std::pow(10.0, place);
    return fmt::format("{:.0f} \u00b1 {:.0f}", std::round(value / unit) * unit,
                       std::round(*error / unit) * unit);
}

TableView::TableView(const Table& table) : rows_(table.metrics()) {
    std::unordered_map<std::string, Index> last;
    for (const MetricRow& row : rows_) {
        const auto [found, fresh] = last.try_emplace(row.model, row.at.step);
        if (fresh) models_.push_back(row.model);
        found->second = std::max(found->second, row.at.step);
        by_step_[row.metric].push_back(&row);
    }
    for (const MetricRow& row : rows_)
        if (row.at.step == last[row.model]) {
            last_.push_back(&row);
            by_metric_[row.metric].push_back(&row);
        }
}

const std::vector<const MetricRow*>& TableView::of(const ByMetric& rows, std::string_view metric) {
    static const std::vector<const MetricRow*> none;
    const auto found = rows.find(std::string(metric));
    return found == rows.end() ? none : found->second;
}

bool TableView::has(std::string_view metric) const { return !of(by_metric_, metric).empty(); }

Depth TableView::depth(const std::string& model, std::string_view metric, std::string_view stage,
                       std::string_view tensor) const {
    std::map<Index, Layer> layers;
    for (const MetricRow* row : of(by_metric_, metric)) {
        const Place& at = row->at;
        if (row->model == model && at.stage == stage && at.layer >= 0 && at.tensor == tensor)
            layers[at.layer].add(*row);
    }
    Depth found;
    for (const auto& [layer, numbers] : layers) found[layer] = numbers.point();
    return found;
}

std::vector<std::string> TableView::stages(const std::string& model,
                                           std::string_view metric) const {
    std::vector<std::string> found;
    for (const MetricRow* row : of(by_metric_, metric))
        if (const std::string& stage = row->at.stage;
            row->model == model && row->at.layer >= 0 && !stage.empty() &&
            std::ranges::find(found, stage) == found.end())
            found.push_back(stage);
    return found;
}

Heads TableView::heads(const std::string& model, std::string_view metric) const {
    Heads found;
    for (const MetricRow* row : of(by_metric_, metric))
        if (row->model == model && row->at.layer >= 0 && row->at.head >= 0)
            found[{row->at.layer, row->at.head}] = {row->value, row->standard_error, row->count};
    return found;
}

Course TableView::course(std::string_view metric, std::string_view stage) const {
    std::map<Index, std::map<Index, Layer>> layers;
    for (const MetricRow* row : of(by_step_, metric)) {
        const Place& at = row->at;
        if (at.stage == stage && at.layer >= 0 && at.step >= 0 && at.tensor.empty())
            layers[at.layer][at.step].add(*row);
    }
    Course found;
    for (const auto& [layer, steps] : layers)
        for (const auto& [step, numbers] : steps) found[layer][step] = numbers.point();
    return found;
}

std::string TableView::attention_stage(const std::string& model) const {
    for (const std::string_view metric : {metric::xi_ratio, metric::r})
        for (const char* stage : {"attn", "ffn"})
            if (!depth(model, metric, stage).empty()) return stage;
    return "attn";
}

std::string TableView::stage_of(const std::string& model, const Metric& metric) const {
    return metric.of == Of::step ? attention_stage(model) : std::string(metric.stage);
}

}  // namespace tsdiag
