#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tsdiag/metric.hpp"
#include "tsdiag/table.hpp"

/// Views of a table by layer, by head and by step.
namespace tsdiag {

/// `value` to `digits` significant digits, or as many more as it takes to tell it from -1, 0 and 1:
/// 0.99997 with four digits is "0.99997", not "1".  Nearer to 1 than 1e-6 its distance is told:
/// "1 - 3e-15".
std::string readable(double value, int digits = 4);

/// "0.5132 \u00b1 0.0041": two digits of the standard error, and the value to the same place, both
/// in one notation: "(1.234 \u00b1 0.012)e-08" where the larger is below 1e-4 or from 1e6 on.
/// Without an error, or with one of at most the rounding of the value (|value| 2^-52), `readable`.
std::string with_error(double value, const std::optional<double>& error);

/// One number, with its standard error where there is one, over `count` samples.
struct Point {
    std::optional<double> value = {}, error = {};
    Index count = 0;
};
using Depth = std::map<Index, Point>;                    ///< by layer
using Heads = std::map<std::pair<Index, Index>, Point>;  ///< by (layer, head)
using Course = std::map<Index, Depth>;                   ///< by layer, then by step

/// The metric rows of a table by metric: of each model's last step, except for `course`.  Cost: one
/// pass over the rows when it is made, then over those of one metric.
class TableView {
  public:
    explicit TableView(const Table& table);
    TableView(const TableView&) = delete;  // holds addresses of its own rows
    TableView& operator=(const TableView&) = delete;
    const std::vector<std::string>& models() const { return models_; }
    const std::vector<const MetricRow*>& all() const { return last_; }
    /// Whether there is a row of the metric, defined or not.
    bool has(std::string_view metric) const;

    /// A metric of a stage (or of a parameter) by layer, without head; for a metric that exists per
    /// head only, the mean over the heads.  Empty where there is no row.
    Depth depth(const std::string& model, std::string_view metric, std::string_view stage,
                std::string_view tensor = {}) const;
    /// The stages at which the model has the metric, in the order of its rows, which is that of
    /// computation.
    std::vector<std::string> stages(const std::string& model, std::string_view metric) const;
    Heads heads(const std::string& model, std::string_view metric) const;
    /// A metric of a stage over the steps of a training, as `depth` has it; of all models.
    Course course(std::string_view metric, std::string_view stage) const;
    /// The stage at which the attention's escalation is measured: `attn`, or `ffn` of parallel
    /// blocks.
    std::string attention_stage(const std::string& model) const;
    /// The stage at which summaries read the metric.
    std::string stage_of(const std::string& model, const Metric& metric) const;

  private:
    using ByMetric = std::unordered_map<std::string, std::vector<const MetricRow*>>;
    static const std::vector<const MetricRow*>& of(const ByMetric& rows, std::string_view metric);

    std::vector<std::string> models_;
    std::vector<MetricRow> rows_;
    std::vector<const MetricRow*> last_;  ///< of the last step
    ByMetric by_step_, by_metric_;        ///< of all steps; of the last
};

}  // namespace tsdiag
