#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"
#include "tsdiag/error.hpp"

/// The page of gradient-norm logs.
namespace tsdiag {
namespace {

using namespace reports;

constexpr std::size_t most_panels = 6, most_points = 600;

/// Short names of the logs: the distinguishing ends of their paths.
class ShortNames {
  public:
    explicit ShortNames(const RunRecord& run) {
        std::vector<std::string> models;
        for (const RunRecord::Log& log : run.logs) models.push_back(log.model);
        for (const std::string& model : models) names_[model] = short_of(model, models);
    }
    /// Throws `FormatError` where run.json has no such log.
    const std::string& at(const std::string& model) const {
        const auto found = names_.find(model);
        if (found == names_.end())
            throw FormatError(fmt::format(
                "metrics.csv: has a row of '{}', which is not among the logs of run.json.", model));
        return found->second;
    }

  private:
    static std::string short_of(const std::string& model, const std::vector<std::string>& all) {
        for (std::size_t end = model.find(": "), at = model.rfind('/', end);
             at != std::string::npos; at = at == 0 ? std::string::npos : model.rfind('/', at - 1)) {
            const std::string tail = model.substr(at + 1);
            const auto same = [&](const std::string& other) {
                return other == tail || other.ends_with("/" + tail);
            };
            if (std::ranges::count_if(all, same) <= 1) return tail;
        }
        return model;
    }
    std::map<std::string, std::string> names_;
};

/// At most `most_points` points: means of neighbours, with minimum and maximum as band.
Series thinned(std::string name, const std::vector<std::pair<double, double>>& points) {
    Series out{.name = std::move(name)};
    const std::size_t width = (points.size() + most_points - 1) / most_points;
    for (std::size_t i = 0; i < points.size(); i += width) {
        const std::size_t end = std::min(points.size(), i + width);
        double x = 0, y = 0, low = points[i].second, high = low;
        for (std::size_t j = i; j < end; ++j) {
            x += points[j].first / double(end - i);
            y += points[j].second / double(end - i);
            low = std::min(low, points[j].second);
            high = std::max(high, points[j].second);
        }
        out.x.push_back(x);
        out.y.emplace_back(y);
        if (width == 1) continue;
        out.low.emplace_back(low);
        out.high.emplace_back(high);
    }
    return out;
}

std::optional<Figure> series_figure(const Table& table, const RunRecord& run,
                                    const ShortNames& names) {
    std::map<std::pair<std::string, std::string>, std::vector<std::pair<double, double>>> points;
    for (const CurveRow& row : table.curves())
        if (row.y) points[{row.model, row.curve}].emplace_back(row.x, *row.y);
    Figure figure{.name = "gradient_series", .title = "Gradient norm by step"};
    for (const RunRecord::Log& log : run.logs) {
        if (figure.panels.size() == most_panels) break;
        const std::string& model = log.model;
        Plot plot{
            .title = names.at(model), .x = {.title = "step"}, .y = {.title = "gradient norm"}};
        plot.series.push_back(
            thinned("as logged", points[{model, std::string(metric::grad_norm)}]));
        plot.series.push_back(
            thinned("moving mean", points[{model, std::string(metric::grad_norm_mean)}]));
        plot.series.back().low.clear();
        plot.series.back().high.clear();
        if (spans_decades(plot.series)) plot.y.scale = Scale::log;
        figure.panels.push_back(std::move(plot));
    }
    if (figure.panels.empty()) return std::nullopt;
    const std::size_t all = run.logs.size();
    figure.caption =
        "The series as logged, and its moving mean over max(5, T/25) neighbours. With more than "
        "600 numbers, the line is the mean of neighbours and the band their range.";
    if (all > most_panels)
        figure.caption += fmt::format(" The first {} of {} series are drawn; `curves.csv` has all.",
                                      most_panels, all);
    figure.alt = "Gradient norms by step. " + in_words(figure.panels);
    return figure;
}

struct Estimate {
    std::string name;
    double value, low, high;
};

/// Stacked intervals: one line per name, the estimate in its middle.
std::optional<Figure> intervals_figure(Figure figure, const std::vector<Estimate>& all,
                                       const std::string& title, bool ratio) {
    if (all.empty()) return std::nullopt;
    Plot plot{.x = {.title = title},
              .y = {.title = "the first on top",
                    .low = 0.0,
                    .high = double(all.size()) + 1,
                    .whole = true}};
    double low = all.front().low, high = all.front().high;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double at = double(all.size() - i);
        const double value = all[i].value;
        constexpr double tick = 0.12;  // marks the estimate
        plot.series.push_back({.name = all[i].name,
                               .x = {all[i].low, value, value, value, value, all[i].high},
                               .y = {at, at, at + tick, at - tick, at, at}});
        low = std::min(low, all[i].low);
        high = std::max(high, all[i].high);
        figure.alt += fmt::format("{}: {}, {} to {}. ", all[i].name, number(all[i].value),
                                  number(all[i].low), number(all[i].high));
    }
    if (ratio)
        plot.series.push_back(
            {.name = "equal", .x = {1, 1}, .y = {0.0, double(all.size()) + 1}, .dashed = true});
    if (low > 0 && high > 20 * low) plot.x.scale = Scale::log;
    figure.panels.push_back(std::move(plot));
    return figure;
}

bool has_interval(const MetricRow& row) { return row.low && row.high; }

std::vector<Estimate> estimates(const Table& table, std::string_view metric,
                                const ShortNames& names) {
    std::vector<Estimate> all;
    for (const MetricRow& row : table.metrics()) {
        if (row.metric != metric || !row.value || !has_interval(row)) continue;
        std::string name = names.at(row.model);
        if (metric == metric::grad_rsd_ratio) name += " / " + names.at(row.at.tensor);
        all.push_back({std::move(name), *row.value, *row.low, *row.high});
    }
    return all;
}

/// "(95 % CI 0.2 to 0.4)"
std::string span_of(const MetricRow& row, double confidence) {
    return fmt::format("{} % CI {} to {}", number(100 * confidence), number(*row.low),
                       number(*row.high));
}

Finding finding_of(const MetricRow& row, const ShortNames& names, double confidence) {
    const std::string name = names.at(row.model);
    if (row.metric == metric::grad_rsd) {
        if (!row.value)
            return {Finding::Level::warning,
                    fmt::format("{}: grad_rsd is undefined: {}.", name, row.note), ""};
        if (!has_interval(row))
            return {Finding::Level::warning,
                    fmt::format("{}: grad_rsd is {} over {} numbers; {}.", name, number(*row.value),
                                row.count, row.note),
                    "gradient_series"};
        return {Finding::Level::note,
                fmt::format("{}: grad_rsd is {} ({}; {} numbers).", name, number(*row.value),
                            span_of(row, confidence), row.count),
                "gradient_rsd"};
    }
    const std::string other = names.at(row.at.tensor);
    if (!row.value || !has_interval(row))
        return {Finding::Level::note,
                fmt::format("{} and {} cannot be compared: {}.", name, other, row.note), ""};
    const std::string ratio = fmt::format("grad_rsd {} times as large ({})", number(*row.value),
                                          span_of(row, confidence));
    if (*row.low <= 1 && *row.high >= 1)
        return {Finding::Level::note,
                fmt::format("{} and {} do not differ significantly: {}.", name, other, ratio),
                "gradient_ratio"};
    return {Finding::Level::note,
            fmt::format("{} varies {} than {}: {}.", name, *row.low > 1 ? "more" : "less", other,
                        ratio),
            "gradient_ratio"};
}

void add_warnings(const RunRecord& run, const ShortNames& names, std::vector<Finding>& findings) {
    constexpr double most_drift = 3;
    for (const RunRecord::Log& log : run.logs) {
        const std::string& name = names.at(log.model);
        if (std::abs(log.drift.value_or(0)) > most_drift)
            findings.push_back(
                {Finding::Level::warning,
                 fmt::format("{}: the last half is {:.1f} standard errors {} the first, a trend "
                             "that the interval ignores. Choose steps with --from and --to.",
                             name, std::abs(*log.drift), *log.drift > 0 ? "above" : "below"),
                 "gradient_series"});
        for (const std::string& note : log.notes)
            findings.push_back(
                {Finding::Level::warning, fmt::format("{}: {}.", name, note), "gradient_series"});
    }
}

std::string numbers_html(const Table& table, const RunRecord& run, const ShortNames& names) {
    std::map<std::string, MetricRow> rsd, mean;
    for (const MetricRow& row : table.metrics()) {
        if (row.metric == metric::grad_rsd) rsd[row.model] = row;
        if (row.metric == metric::grad_mean) mean[row.model] = row;
    }
    std::string body;
    const auto cell = [](const std::optional<double>& v) {
        return fmt::format("<td>{}</td>", v ? number(*v) : "\u2013");
    };
    for (const RunRecord::Log& log : run.logs) {
        const std::string& model = log.model;
        const MetricRow& one = rsd[model];
        body += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td>",
                            html(names.at(model)), html(log.series));
        const std::string value = one.value ? with_error(*one.value, one.standard_error) : "\u2013";
        body += fmt::format("<td>{}</td>", value) + cell(one.low) + cell(one.high) +
                cell(mean[model].value);
        body += fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", log.count,
                            log.first_step.value_or(0), log.last_step.value_or(0), log.order);
    }
    return table_html(
        {.label = "Series",
         .caption = fmt::format("{} is the standard deviation over the mean, \u00b1 its standard "
                                "error; low and high bound it with a confidence "
                                "of {}; order is that of the autoregression used for the bounds.",
                                metric::grad_rsd, number(run.confidence.value_or(0))),
         .columns = {{"log"},
                     {"series"},
                     {std::string(metric::grad_rsd)},
                     {"low"},
                     {"high"},
                     {"mean"},
                     {"count"},
                     {"first step"},
                     {"last step"},
                     {"order"}},
         .rows = body,
         .wordy = true});
}

}  // namespace

std::vector<Finding> log_verdict(const Table& table, const RunRecord& run) {
    const ShortNames names(run);
    std::vector<Finding> findings;
    for (const MetricRow& row : table.metrics())
        if (row.metric == metric::grad_rsd || row.metric == metric::grad_rsd_ratio)
            findings.push_back(finding_of(row, names, run.confidence.value_or(0)));
    add_warnings(run, names, findings);
    return by_severity(std::move(findings));
}

std::vector<Figure> log_figures(const Table& table, const RunRecord& run) {
    const ShortNames names(run);
    std::vector<Figure> all;
    const std::string level = number(100 * run.confidence.value_or(0));
    const Figure rsd{.name = "gradient_rsd",
                     .title = "Relative standard deviation",
                     .caption = fmt::format(
                         "grad_rsd = std(g)/mean(g) of each series [DEVIL] Table 2, and its {} % "
                         "interval: its logarithm, studentised, against series drawn from an "
                         "autoregression.",
                         level)};
    const Figure ratio{
        .name = "gradient_ratio",
        .title = "Ratios of relative standard deviations",
        .caption = fmt::format(
            "grad_rsd of one series over that of another. The intervals hold jointly with a "
            "confidence of {} %; if one contains 1, the two do not differ significantly.",
            level)};
    const auto add = [&](std::optional<Figure> figure) {
        if (figure) all.push_back(std::move(*figure));
    };
    add(series_figure(table, run, names));
    add(intervals_figure(rsd, estimates(table, metric::grad_rsd, names),
                         std::string(metric::grad_rsd), false));
    add(intervals_figure(ratio, estimates(table, metric::grad_rsd_ratio, names),
                         "ratio of grad_rsd", true));
    return all;
}

std::vector<std::string> write_log_report(const Table& table, const RunRecord& run,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look) {
    const ShortNames names(run);
    return write_page({.title = "Gradient norms over training",
                       .findings = log_verdict(table, run),
                       .no_findings_text = "No series has a number.",
                       .list = numbers_html(table, run, names),
                       .figures = log_figures(table, run),
                       .folds = {{"facts", "Run", facts_html(run)}},
                       .files = files_of(table)},
                      directory, look);
}

}  // namespace tsdiag
