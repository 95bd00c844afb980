#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tsdiag/report.hpp"

/// What figures and the verdict ask of a table.
namespace tsdiag::reports {

/// One number of a layer, with its standard error where there is one, over `count` samples.
struct Point {
    std::optional<double> value = {}, error = {};
    Index count = 0;
};
using Depth = std::map<Index, Point>;                    ///< by layer
using Heads = std::map<std::pair<Index, Index>, Point>;  ///< by (layer, head)

/// The metric rows of a table by metric; of each model those of its last step.
class Rows {
  public:
    explicit Rows(const Table& table);
    const std::vector<std::string>& models() const { return models_; }
    const std::vector<MetricRow>& all() const { return rows_; }
    /// Is there a row of the metric, defined or not?
    bool has(std::string_view metric) const;

    /// A metric of a stage (or of a parameter) by layer, without head; for a metric that exists per
    /// head only, the mean over the heads.  Empty where there is no row.
    Depth depth(const std::string& model, std::string_view metric, std::string_view stage,
                std::string_view tensor = {}) const;
    Heads heads(const std::string& model, std::string_view metric) const;
    /// The stage at which the attention's escalation is measured: `attn`, or `ffn` of parallel
    /// blocks.
    std::string attention_stage(const std::string& model) const;
    /// The reason of the metric's first undefined row of the model.
    std::string reason(const std::string& model, std::string_view metric) const;

  private:
    const std::vector<const MetricRow*>& of(std::string_view metric) const;
    std::vector<MetricRow> rows_;
    std::vector<std::string> models_;
    std::unordered_map<std::string, std::vector<const MetricRow*>> by_metric_;
};

constexpr double saturated = 0.99;  ///< t_sim above which the tokens of a state are called alike
constexpr double mostly = 0.9;      ///< and mostly alike

/// The name of the figure of `model` alone, where each model has one: that of the first model is
/// `name`.
std::string own_figure(const Rows& rows, const std::string& model, const std::string& name);

/// A short name of a model: the last part of a path.
std::string label(const std::string& model);

std::vector<MeanAt> means_of(const Depth& depth);
/// y over the layer, with bands as `line_of_means` draws them.
Series over_layers(std::string name, const Depth& depth, bool positive = false);
/// "NAME: 0.02 in layer 0, 0.99 in layer 11, between 0.02 and 0.99"; empty without a number.
std::string in_words(std::string_view name, const Series& series);
/// "t_sim: ...; t_cos: ...", for the alternative text of a figure.
std::string in_words(const std::vector<Plot>& panels);
bool any_value(const Series& series);
/// The greatest value is more than 20 times the least, and all are positive.
bool spans_decades(const std::vector<Series>& series);

}  // namespace tsdiag::reports
