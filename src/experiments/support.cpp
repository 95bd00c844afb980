#include "support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag::experiment_list {
namespace {

constexpr std::string_view by_trial = "_by_trial";

/// `of` the values of a and b in each trial that has both.
ByTrial within_trials(const ByTrial& a, const ByTrial& b,
                      const std::function<double(double, double)>& of) {
    ByTrial out;
    for (const auto& [trial, value] : a)
        if (const auto other = b.find(trial); other != b.end())
            if (const double found = of(value, other->second); std::isfinite(found))
                out[trial] = found;
    return out;
}

}  // namespace

Number Numbers::at(std::string_view model, std::string_view metric, std::string_view stage,
                   Index layer) const {
    for (const MetricRow& row : metrics_)
        if (row.metric == metric && row.at.layer == layer && row.at.head < 0 &&
            row.at.stage == stage && row.at.tensor.empty() && row.model == model)
            return {row.value, row.standard_error, row.count, row.note};
    return {.note = "not in the table"};
}

std::map<double, Number> Numbers::depth(std::string_view model, std::string_view metric,
                                        std::string_view stage) const {
    std::map<double, Number> found;
    for (const MetricRow& row : metrics_)
        if (row.metric == metric && row.at.layer >= 0 && row.at.head < 0 && row.at.stage == stage &&
            row.at.tensor.empty() && row.model == model)
            found[double(row.at.layer)] = {row.value, row.standard_error, row.count, row.note};
    return found;
}

std::map<double, Number> Numbers::curve(std::string_view model, std::string_view curve) const {
    std::map<double, Number> found;
    for (const CurveRow& row : curves_)
        if (row.curve == curve && row.model == model && row.at.head < 0)
            found[row.x] = {row.y, row.standard_error, row.count,
                            row.y ? "" : "undefined in every trial"};
    return found;
}

ByTrial Numbers::trials(std::string_view model, std::string_view metric, std::string_view stage,
                        Index layer) const {
    ByTrial found;
    for (const CurveRow& row : curves_)
        if (row.curve.ends_with(by_trial) && row.y && row.at.layer == layer && row.at.head < 0 &&
            row.at.stage == stage && row.at.tensor.empty() && row.model == model &&
            std::string_view(row.curve).substr(0, row.curve.size() - by_trial.size()) == metric)
            found[row.x] = *row.y;
    return found;
}

void KeepByTrial::scalar(const Place& at, std::string_view metric, const Value& value) {
    out_.scalar(at, metric, value);
    out_.point(at, fmt::format("{}{}", metric, by_trial), double(trial_), value);
}

Number scaled(const Number& number, double factor, double offset) {
    Number out = number;
    if (out.value) out.value = factor * *out.value + offset;
    if (out.error) out.error = std::abs(factor) * *out.error;
    return out;
}

namespace {

/// The error of a sum or a difference, with its degrees of freedom.
void join_errors(Number& out, const Number& a, double error_a, const Number& b, double error_b) {
    out.error = std::hypot(error_a, error_b);
    if (*out.error > 0) out.degrees = welch_freedom(error_a, a.freedom(), error_b, b.freedom());
}

}  // namespace

Number mean_of(const ByTrial& values) {
    if (values.empty())
        return {.note =
                    "no trial has values of both (undefined, or by an earlier version, which "
                    "kept none by trial)"};
    Moments moments;
    for (const auto& [trial, value] : values) moments.add(value);
    Number out{.value = moments.mean(), .count = moments.count()};
    if (moments.count() > 1) out.error = moments.standard_error();
    return out;
}

ByTrial difference(const ByTrial& a, const ByTrial& b) {
    return within_trials(a, b, std::minus<>());
}
ByTrial distance(const ByTrial& a, const ByTrial& b) {
    return within_trials(a, b, [](double x, double y) { return std::abs(x - y); });
}
ByTrial ratio(const ByTrial& a, const ByTrial& b) { return within_trials(a, b, std::divides<>()); }

Number difference(const Number& a, const Number& b) {
    if (!a.value || !b.value) return {.note = a.value ? b.note : a.note};
    Number out{.value = *a.value - *b.value, .count = std::min(a.count, b.count)};
    if (a.error && b.error) join_errors(out, a, *a.error, b, *b.error);
    return out;
}

Number ratio(const Number& a, const Number& b) {
    if (!a.value || !b.value || *b.value == 0) return {.note = "not in the table"};
    const double value = *a.value / *b.value;
    Number out{.value = value, .count = std::min(a.count, b.count)};
    if (a.error && b.error && *a.value != 0)
        join_errors(out, a, std::abs(value * *a.error / *a.value), b,
                    std::abs(value * *b.error / *b.value));
    return out;
}

Number exponent(double x0, const Number& y0, double x1, const Number& y1) {
    if (!y0.value || !y1.value || x0 == x1) return {.note = "needs two numbers"};
    const double span = std::log(x1 / x0);
    Number found{.value = std::log(*y1.value / *y0.value) / span,
                 .count = std::min(y0.count, y1.count)};
    if (y0.error && y1.error)
        join_errors(found, y0, std::abs(*y0.error / *y0.value / span), y1,
                    std::abs(*y1.error / *y1.value / span));
    return found;
}

Series line(std::string name, const std::map<double, Number>& numbers, bool positive) {
    std::vector<MeanAt> means;
    for (const auto& [x, n] : numbers) means.push_back({x, n.value, n.error, n.freedom()});
    return line_of_means(std::move(name), means, positive);
}

Series law(std::string name, const std::vector<double>& x, const std::function<double(double)>& f) {
    Series s{.name = std::move(name), .x = x, .dashed = true};
    for (const double at : x) {
        const double y = f(at);
        s.y.push_back(std::isfinite(y) ? std::optional(y) : std::nullopt);
    }
    return s;
}

Series upright(std::string name, double x, double low, double high) {
    return {.name = std::move(name), .x = {x, x}, .y = {low, high}, .dashed = true};
}

Comparison compare(std::string what, std::string says, std::optional<double> expected,
                   const Number& measured, Comparison::Kind kind) {
    return {.what = std::move(what),
            .says = std::move(says),
            .expected = expected,
            .measured = measured.value,
            .error = measured.error,
            .count = measured.count,
            .unknown = measured.note,
            .kind = kind,
            .freedom = measured.degrees};
}

Comparison resolved(Comparison comparison, double resolution) {
    comparison.resolution = resolution;
    return comparison;
}

namespace {

constexpr std::string_view by_seed = ", seed by seed";

Comparison alike_within(const std::string& what, const std::string& first,
                        const std::string& second, const Number& apart, std::string says,
                        double margin) {
    return resolved(compare(fmt::format("{}: {} less {}", what, first, second), std::move(says),
                            0.0, apart, Comparison::Kind::comparable),
                    margin);
}

Comparison order_within(const std::string& what, const std::string& first,
                        const std::string& second, const Number& apart, std::string says,
                        double margin) {
    return compare(fmt::format("{}: {} over {}{}", what, first, second, less(margin)),
                   std::move(says), std::nullopt, scaled(apart, 1, -margin),
                   Comparison::Kind::order);
}

}  // namespace

Comparison alike(const std::string& what, const std::string& first, const std::string& second,
                 const Number& a, const Number& b, std::string says, double margin) {
    return alike_within(what, first, second, difference(a, b), std::move(says), margin);
}

Comparison alike(const std::string& what, const std::string& first, const std::string& second,
                 const ByTrial& a, const ByTrial& b, std::string says, double margin) {
    return alike_within(fmt::format("{}{}", what, by_seed), first, second,
                        mean_of(difference(a, b)), std::move(says), margin);
}

Comparison counted_up(Comparison comparison) {
    comparison.counted = true;
    return comparison;
}

std::string less(double margin) {
    if (margin == 0) return "";
    return fmt::format(", {} {:.2g}", margin > 0 ? "less" : "plus", std::abs(margin));
}

Comparison order_of(const std::string& what, const std::string& first, const std::string& second,
                    const Number& a, const Number& b, std::string says, double margin) {
    return order_within(what, first, second, difference(a, b), std::move(says), margin);
}

Comparison order_of(const std::string& what, const std::string& first, const std::string& second,
                    const ByTrial& a, const ByTrial& b, std::string says, double margin) {
    return order_within(fmt::format("{}{}", what, by_seed), first, second,
                        mean_of(difference(a, b)), std::move(says), margin);
}

Comparison all_orders(const std::string& what, const std::vector<Order>& orders, std::string says,
                      double margin) {
    constexpr Index fewest = 3;  // trials, as in judge
    const auto certainty = [&](const Order& order) {
        const Number apart = scaled(order.apart, 1, -margin);
        if (!apart.value || *apart.value == 0 || !apart.error || apart.count < fewest) return 0.0;
        const double size = std::abs(*apart.value);
        // Trials of equal value have no error, and as in judge what is left is their sign.
        const double tail = *apart.error <= 1e-9 * size
                                ? std::pow(0.5, double(apart.count))
                                : student_tail(size / *apart.error, apart.freedom());
        return std::copysign(-std::log2(2 * tail), *apart.value);
    };
    const Order& least = *std::ranges::min_element(orders, {}, certainty);
    const auto in_favour = std::ranges::count_if(
        orders, [&](const Order& order) { return order.apart.value.value_or(margin) > margin; });
    Comparison out = order_within(
        fmt::format("{}{}{}", what, least.within_seeds ? by_seed : "",
                    orders.size() > 1 ? fmt::format(", least certain of {} orders, {} in favour",
                                                    orders.size(), in_favour)
                                      : ""),
        least.first, least.second, least.apart, std::move(says), margin);
    out.chosen_from = std::ssize(orders);
    return out;
}

namespace {

/// The means of the models over the trials that all of them have, as whole numbers of 1e-12 of the
/// greatest: means that differ by rounding are tied.
std::vector<double> common_means(std::span<const Placed> models, Index& trials) {
    std::vector<double> means(models.size(), 0.0);
    for (const auto& [trial, value] : models.front().here) {
        const auto has = [at = trial](const Placed& model) { return model.here.contains(at); };
        if (!std::ranges::all_of(models, has)) continue;
        ++trials;
        for (std::size_t i = 0; i < models.size(); ++i) means[i] += models[i].here.at(trial);
    }
    double greatest = 0;
    for (const double mean : means) greatest = std::max(greatest, std::abs(mean));
    for (double& mean : means) mean = greatest > 0 ? std::round(mean / greatest * 1e12) : 0;
    return means;
}

/// How many values are equal, of each value.
std::vector<Index> ties_of(std::vector<double> values) {
    std::ranges::sort(values);
    std::vector<Index> groups;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i == 0 || values[i] != values[i - 1]) groups.push_back(0);
        ++groups.back();
    }
    return groups;
}

}  // namespace

Comparison same_order(const std::string& what, std::vector<Placed> models, std::string says) {
    std::erase_if(models, [](const Placed& model) { return model.here.empty(); });
    Comparison out{.what = fmt::format("{}: order of {} models, Kendall's tau with the paper's",
                                       what, models.size()),
                   .says = std::move(says),
                   .kind = Comparison::Kind::order};
    std::vector<double> means;
    if (!models.empty()) means = common_means(models, out.count);
    if (models.size() < 2 || out.count == 0) {
        out.unknown = "no trial has values of two models";
        return out;
    }
    // Of equal numbers of the paper the first listed is less: where its order has nothing to do
    // with ours, any is as likely.
    Index s = 0, pairs = 0;
    for (std::size_t j = 0; j < means.size(); ++j)
        for (std::size_t i = 0; i < j; ++i, ++pairs) {
            const Index here = Index(means[i] < means[j]) - Index(means[i] > means[j]);
            s += models[i].paper <= models[j].paper ? here : -here;
        }
    out.measured = double(s) / double(pairs);
    out.probability = kendall_probability(s, ties_of(means));
    return out;
}

std::string in_words(const std::vector<Plot>& panels) {
    constexpr std::size_t most = 4;  // lines per panel, to keep the text short
    std::string text;
    for (const Plot& plot : panels) {
        std::string part;
        std::size_t described = 0;
        for (const Series& s : plot.series) {
            if (s.x.empty() || described == most) continue;
            std::size_t first = 0, last = s.y.size() - 1;
            while (first < last && !s.y[first]) ++first;
            while (last > first && !s.y[last]) --last;
            if (!s.y[first] || !s.y[last]) continue;
            part +=
                fmt::format("{}{}: {:.4g} at {:.4g}, {:.4g} at {:.4g}", described > 0 ? "; " : "",
                            s.name, *s.y[first], s.x[first], *s.y[last], s.x[last]);
            ++described;
        }
        if (part.empty()) continue;
        text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", plot.title, part);
    }
    return text;
}

Json described_runs(std::span<const RunResult> results, bool numbers) {
    RunRecord all;
    Json::Array runs;
    for (const RunResult& result : results) {
        RunRecord whole = result.run, run;
        run.model = std::move(whole.model);
        run.input = std::move(whole.input);
        run.settings = std::move(whole.settings);
        if (numbers) {
            run.solver = std::move(whole.solver);
            run.warnings = std::move(whole.warnings);
        }
        runs.push_back(run.json());
    }
    all.runs = std::move(runs);
    return all.json();
}

RunResult together(const ExperimentSetting& setting, std::span<const RunOptions> runs,
                   bool curves_only) {
    const std::vector<RunResult> results = run_together(runs, setting.progress(), setting.units());
    RunResult all;
    all.run = described_runs(results);
    for (const RunResult& result : results) {
        if (curves_only)
            all.table.append({}, result.table.curves());
        else
            all.table.append(result.table);
    }
    return all;
}

std::string encoder(const ExperimentSetting& setting, std::string_view kind,
                    const std::string& more) {
    const Index d = setting.count("d"), heads = setting.count("heads");
    if (d % heads != 0)
        throw UsageError(
            fmt::format("{}: heads={} is not a divisor of d={}.", setting.entry().name, heads, d));
    return fmt::format("random:{},d={},heads={},layers={},ffn={}{}", kind, d, heads,
                       setting.count("layers"), setting.count("ffn"), more);
}

RunOptions options_of(const ExperimentSetting& setting, std::string model,
                      std::vector<std::string> probes) {
    RunOptions options;
    options.subject.model = std::move(model);
    options.tokens = setting.count("tokens");
    options.trials = setting.count("trials");
    options.seed = setting.seed();
    options.probes = std::move(probes);
    options.device = setting.device();
    return options;
}

double branch_gain(std::string_view var_v, double d, double heads, bool out_proj) {
    const double variance = var_v == "1/d"      ? 1 / d
                            : var_v == "h/d"    ? heads / d
                            : var_v == "xavier" ? 2 / (d + d / heads)
                            : var_v == "torch"  ? 1 / (3 * d)
                                                : std::stod(std::string(var_v));
    return d * variance * (out_proj ? 1.0 / 3 : 1.0);
}

Value saturation_depth(const Table& trial, Index layers) {
    const double target = std::log(99.0);
    std::optional<double> before;
    for (Index blocks = 0; blocks <= layers; ++blocks) {
        const Place at = blocks == 0 ? Place{.layer = 0, .stage = "in"}
                                     : Place{.layer = blocks - 1, .stage = "out"};
        const auto sim = trial.find(at, "t_sim"), div = trial.find(at, "t_div");
        if (!sim || !div || !sim->value || !div->value)
            return undefined("t_sim or t_div is undefined");
        if (*div->value == 0) return undefined("t_div = 0");
        const double odds = std::log(*sim->value / *div->value);
        if (odds >= target)
            return before ? double(blocks - 1) + (target - *before) / (odds - *before) : 0.0;
        before = odds;
    }
    return undefined(fmt::format("t_sim stays below 0.99 in {} blocks", layers));
}

}  // namespace tsdiag::experiment_list
