#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tsdiag/error.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/training_log.hpp"

namespace tsdiag {
namespace {

constexpr std::size_t most_paired = 4;

/// File names, with the name of the series where a file has several.  Throws for a duplicate
/// series.
std::vector<std::string> models_of(const std::vector<LoggedSeries>& all) {
    std::map<std::string, int> of_source;
    for (const LoggedSeries& one : all) ++of_source[one.source];
    std::vector<std::string> models;
    std::set<std::string> seen;
    for (const LoggedSeries& one : all) {
        models.push_back(of_source[one.source] > 1 ? one.source + ": " + one.name : one.source);
        if (!seen.insert(models.back()).second)
            throw UsageError(fmt::format("{}: was given twice; pass each log once.", one.source));
    }
    return models;
}

std::vector<std::pair<std::size_t, std::size_t>> pairs_of(const std::vector<LoggedSeries>& all,
                                                          Paired paired) {
    std::map<std::string, int> of_source;
    for (const LoggedSeries& one : all) ++of_source[one.source];
    const auto are_paired = [&](const LoggedSeries& a, const LoggedSeries& b) {
        return paired == Paired::all ||
               (a.source != b.source &&
                (a.name == b.name || (of_source[a.source] == 1 && of_source[b.source] == 1)));
    };
    const bool few = (paired == Paired::all ? all.size() : of_source.size()) <= most_paired;
    const auto is_first = [&](std::size_t i) {
        return i == 0 || (paired == Paired::logs && all[i].source == all.front().source);
    };
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t a = 0; a < all.size(); ++a)
        for (std::size_t b = a + 1; b < all.size(); ++b)
            if ((few || is_first(a)) && are_paired(all[a], all[b])) pairs.emplace_back(a, b);
    return pairs;
}

/// Moving average over `width` neighbours around each element; narrower at the ends.  A window is
/// the end of one block of as many numbers and the beginning of the next, whose sums are of those
/// numbers alone: prefix sums would lose what follows a far greater number.
std::vector<double> moving_mean(const std::vector<double>& x, Index width) {
    const std::size_t half = std::size_t(width) / 2, block = 2 * half + 1, n = x.size();
    std::vector<double> begin(n), end(n), out(n);  // sums of a block up to i, and from i on
    double top = 0;
    for (const double v : x) top = std::max(top, std::abs(v));
    int exponent = 0;  // scaled, so that sums of very large numbers do not overflow
    std::frexp(top, &exponent);
    for (std::size_t i = 0; i < n; ++i) {
        begin[i] = end[i] = std::ldexp(x[i], -exponent);
        if (i % block > 0) begin[i] += begin[i - 1];
    }
    for (std::size_t i = n; i-- > 1;)
        if (i % block > 0) end[i - 1] += end[i];
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t from = i > half ? i - half : 0, last = std::min(n - 1, i + half);
        const bool two = from / block < last / block, begins = from % block == 0;
        const double sum = two ? end[from] + begin[last] : begins ? begin[last] : end[from];
        out[i] = std::ldexp(sum / double(last - from + 1), exponent);
    }
    return out;
}

MetricRow row_of(const std::string& model, const std::string& name, std::string_view metric,
                 const Value& value, Index count) {
    return {.model = model,
            .at = {.tensor = name},
            .metric = std::string(metric),
            .value = value.value,
            .low = value.low,
            .high = value.high,
            .count = value.value ? count : 0,
            .note = value.note};
}

}  // namespace

LogSummary summarise_logs(const std::vector<LoggedSeries>& all, const DispersionOptions& options,
                          Paired paired) {
    const std::vector<std::string> models = models_of(all);
    LogSummary out{Table(all.size() == 1 ? models.front() : ""), {}};
    std::vector<MetricRow> metrics;
    std::vector<CurveRow> curves;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const LoggedSeries& one = all[i];
        const Dispersion found = dispersion(one.values, options);
        MetricRow rsd = row_of(models[i], one.name, metric::grad_rsd, found.rsd, found.count);
        if (found.rsd.low) rsd.standard_error = found.standard_error;
        metrics.push_back(rsd);
        MetricRow mean =
            row_of(models[i], one.name, metric::grad_mean, Value(found.mean), found.count);
        if (found.mean_error > 0) mean.standard_error = found.mean_error;
        if (found.count > 1) metrics.push_back(mean);
        const Index width = std::max<Index>(5, found.count / 25);
        const std::vector<double> smooth = moving_mean(one.values, width);
        for (std::size_t t = 0; t < one.values.size(); ++t)
            curves.push_back({.model = models[i],
                              .curve = std::string(metric::grad_norm),
                              .x = double(one.steps[t]),
                              .y = one.values[t],
                              .count = 1});
        for (std::size_t t = 0; t < one.values.size(); ++t)
            curves.push_back({.model = models[i],
                              .curve = std::string(metric::grad_norm_mean),
                              .x = double(one.steps[t]),
                              .y = smooth[t],
                              .count = 1});
        RunRecord::Log& log = out.run.logs.emplace_back();
        log = {.model = models[i],
               .source = one.source,
               .series = one.name,
               .count = found.count,
               .order = found.order,
               .window = width,
               .drift = drift(one.values),
               .notes = one.notes};
        if (!one.steps.empty()) {
            log.first_step = one.steps.front();
            log.last_step = one.steps.back();
        }
    }
    const auto pairs = pairs_of(all, paired);
    DispersionOptions shared = options;
    if (!pairs.empty()) {
        shared.confidence = 1 - (1 - options.confidence) / double(pairs.size());
        shared.resamples = std::min<Index>(20000, options.resamples * Index(pairs.size()));
    }
    for (const auto& [a, b] : pairs) {
        const Value ratio = dispersion_ratio(all[a].values, all[b].values, shared);
        metrics.push_back(row_of(models[a], models[b], metric::grad_rsd_ratio, ratio,
                                 std::ssize(all[a].values) + std::ssize(all[b].values)));
    }
    out.table.append(metrics, curves);
    out.run.kind = RunRecord::Kind::gradients;
    out.run.seed = options.seed;
    out.run.confidence = options.confidence;
    out.run.resamples = options.resamples;
    out.run.comparisons = std::ssize(pairs);
    return out;
}

}  // namespace tsdiag
