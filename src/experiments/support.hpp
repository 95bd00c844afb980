#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "keys.hpp"

/// Shared by the experiments: models, runs, and reading numbers back from a table.
namespace tsdiag::experiment_list {

/// A mean with its standard error, as a table holds it.
struct Number {
    std::optional<double> value = {}, error = {};
    Index count = 0;
    std::string note = {};
    double degrees = 0;  ///< degrees of freedom of the error; 0: count - 1

    double freedom() const { return degrees > 0 ? degrees : double(count - 1); }
};

/// The values of a metric in each trial that has one.
using ByTrial = std::map<double, double>;

/// Passes on what a trial says, and keeps the value of each metric as a point of a curve
/// METRIC_by_trial.  Models of one trial have the same seed and see the same samples: their
/// difference within it has no share in what differs between seeds.
class KeepByTrial final : public Sink {
  public:
    KeepByTrial(Sink& out, Index trial) : out_(out), trial_(trial) {}
    void scalar(const Place& at, std::string_view metric, const Value& value) override;
    void point(const Place& at, std::string_view curve, double x, const Value& y) override {
        out_.point(at, curve, x, y);
    }
    void matrix(Map map) override { out_.matrix(std::move(map)); }

  private:
    Sink& out_;
    Index trial_;
};

/// The numbers of a table by model.
class Numbers {
  public:
    explicit Numbers(const Table& table) : metrics_(table.metrics()), curves_(table.curves()) {}
    /// A metric of a stage, without head and tensor; layer -1: the whole model.
    Number at(std::string_view model, std::string_view metric, std::string_view stage = "",
              Index layer = -1) const;
    std::map<double, Number> depth(std::string_view model, std::string_view metric,
                                   std::string_view stage) const;
    std::map<double, Number> curve(std::string_view model, std::string_view curve) const;
    /// As `at`, of what `KeepByTrial` has kept.
    ByTrial trials(std::string_view model, std::string_view metric, std::string_view stage = "",
                   Index layer = -1) const;

  private:
    std::vector<MetricRow> metrics_;
    std::vector<CurveRow> curves_;
};

/// factor x + offset, with its error.
Number scaled(const Number& number, double factor, double offset = 0);

/// The mean of these values with its standard error.
Number mean_of(const ByTrial& values);

/// a - b, assumed independent.
Number difference(const Number& a, const Number& b);
/// a - b within each trial that has both.
ByTrial difference(const ByTrial& a, const ByTrial& b);
/// |a - b| within each trial that has both.
ByTrial distance(const ByTrial& a, const ByTrial& b);

/// a / b, assumed independent, its error to first order; undefined where b is 0.
Number ratio(const Number& a, const Number& b);
/// a / b within each trial that has both; none where b is 0.
ByTrial ratio(const ByTrial& a, const ByTrial& b);

/// Slope of log y over log x between two points, its error to first order; y0 and y1 assumed
/// independent.
Number exponent(double x0, const Number& y0, double x1, const Number& y1);

/// Means with their 95 % intervals, which `study` tells below the figure; `positive`: for a
/// logarithmic axis.
Series line(std::string name, const std::map<double, Number>& numbers, bool positive = false);
/// A prediction: y = f(x).
Series law(std::string name, const std::vector<double>& x, const std::function<double(double)>& f);
/// A vertical line.
Series upright(std::string name, double x, double low, double high);
/// A comparison with a statement; without `expected` it is not judged.
Comparison compare(std::string what, std::string says, std::optional<double> expected,
                   const Number& measured, Comparison::Kind kind = Comparison::Kind::equal);
/// `comparison` where differences up to `resolution` are ignored.
Comparison resolved(Comparison comparison, double resolution);
/// "what: first less second" is at most `margin` on either side.  `says` names where the margin
/// comes from.
Comparison alike(const std::string& what, const std::string& first, const std::string& second,
                 const Number& a, const Number& b, std::string says, double margin);
/// The same, seed by seed.
Comparison alike(const std::string& what, const std::string& first, const std::string& second,
                 const ByTrial& a, const ByTrial& b, std::string says, double margin);
/// `comparison` of a number that was counted, not sampled.
Comparison counted_up(Comparison comparison);
/// ", less 0.5", of a number of which a margin was taken; ", plus 0.5" where it is negative.
std::string less(double margin);
/// "what: first over second": whether one number exceeds the other, by more than `margin`.
Comparison order_of(const std::string& what, const std::string& first, const std::string& second,
                    const Number& a, const Number& b, std::string says, double margin = 0);
/// The same, seed by seed.
Comparison order_of(const std::string& what, const std::string& first, const std::string& second,
                    const ByTrial& a, const ByTrial& b, std::string says, double margin = 0);
/// One of several orders: of independent numbers, or seed by seed.
struct Order {
    Order(std::string more, std::string less, const Number& a, const Number& b)
        : first(std::move(more)), second(std::move(less)), apart(difference(a, b)) {}
    Order(std::string more, std::string less, const ByTrial& a, const ByTrial& b)
        : first(std::move(more)),
          second(std::move(less)),
          apart(mean_of(difference(a, b))),
          within_seeds(true) {}
    std::string first, second;
    Number apart;
    bool within_seeds = false;
};
/// Whether all of them hold, each by more than `margin`: judged by the least certain one.  That is
/// the one with the smallest p-value against the claim, or else with the greatest in favour; one
/// that has fewer than three trials stands between.
Comparison all_orders(const std::string& what, const std::vector<Order>& orders, std::string says,
                      double margin = 0);
/// A model's numbers in each trial, and the paper's number of it.
struct Placed {
    ByTrial here;
    double paper;
};
/// Whether the order of models is the paper's: Kendall's tau of the means over the trials that all
/// of them have with the paper's numbers, with the exact p-value of an order that has nothing to do
/// with it.  Models without a number are left out.  `says`: where the paper's numbers are.
Comparison same_order(const std::string& what, std::vector<Placed> models, std::string says);
/// "t_sim: 0.02 at 0, 0.99 at 12; ..." for the alternative text of a figure.
std::string in_words(const std::vector<Plot>& panels);

/// What run.json says of each of them, as `runs`; `numbers`: also how its numbers were found.
Json described_runs(std::span<const RunResult> results, bool numbers = true);
/// Runs all of them; concatenates their tables and what run.json says of each in `runs`.
/// `curves_only`: for runs that differ in more than the names of their models.
RunResult together(const ExperimentSetting& setting, std::span<const RunOptions> runs,
                   bool curves_only = false);

/// random:KIND with the sizes of the setting; `more`: ",key=value...".
std::string encoder(const ExperimentSetting& setting, std::string_view kind,
                    const std::string& more = "");
/// Options of a run of `model`: tokens, trials and seed of the setting.
RunOptions options_of(const ExperimentSetting& setting, std::string model,
                      std::vector<std::string> probes);
/// a2 = alpha^2 d Var(W_V) of an encoder, with an output projection a third of it.
double branch_gain(std::string_view var_v, double d, double heads, bool out_proj);

/// Blocks until t_sim / t_div reaches 99, by interpolation of its logarithm: metric `depth_99` of
/// the model, from t_sim and t_div at `in` of the first layer and `out` of all.
Value saturation_depth(const Table& trial, Index layers);

}  // namespace tsdiag::experiment_list
