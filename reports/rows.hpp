#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/table_view.hpp"

/// Queries on a table for figures and the verdict.
namespace tsdiag::reports {

/// What a caption says of the bands of `line_of_means`.
constexpr std::string_view band_note =
    " Bands: 95 % intervals of the mean over samples (Student's t).";
/// Adds it to the caption of a figure that has bands.
void note_bands(Figure& figure);
/// Leaves it to the first figure of a page that has it.
void note_bands_once(std::vector<Figure>& figures);

constexpr double saturated = 0.99;  ///< t_sim above which the tokens of a state are called alike
constexpr double mostly = 0.9;      ///< and mostly alike

/// The name of the figure of `model` alone, where each model has one: that of the first model is
/// `name`.
std::string own_figure(const TableView& rows, const std::string& model, const std::string& name);

/// "entropy: entropy of a row, nats": a metric by its name, symbol and unit.
std::string title_of(std::string_view metric);

/// A metric for a tooltip: "|lambda_2(P)| [TSE] Cor. 2.7; >= 0; undefined where n < 2".
std::string in_words(const Metric& metric);

/// A short name of a model: the last part of a path.
std::string label(const std::string& model);

std::vector<MeanAt> means_of(const Depth& depth);
std::optional<double> value_at(const Depth& depth, Index layer);
/// The (layer, value) pairs of `depth` that have a value.
std::vector<std::pair<Index, double>> defined(const Depth& depth);
/// The first of them whose value exceeds `threshold`.
std::optional<std::pair<Index, double>> first_above(const Depth& depth, double threshold);
/// y over the layer, with bands as `line_of_means` draws them.
Series over_layers(std::string name, const Depth& depth, bool positive = false);
/// "NAME: 0.02 in layer 0, 0.99 in layer 11, between 0.02 and 0.99"; empty without a number.
std::string in_words(std::string_view name, const Series& series);
/// "t_sim: ...; t_cos: ...", for the alternative text of a figure.
std::string in_words(const std::vector<Plot>& panels);
bool any_value(const Series& series);
/// What a run of `model` says of the P that its numbers are of, where P is over channels: "P is
/// over 32 channels"; else empty.
std::string channels_of(const TableView& rows, const std::string& model);
/// A sentence for the caption of figures about P, where P of some model is over channels; else
/// empty.
std::string channels_in_caption(const TableView& rows);
/// Is the maximum more than 20 times the minimum, and all values positive?
bool spans_decades(const std::vector<Series>& series);

}  // namespace tsdiag::reports
