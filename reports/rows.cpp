#include "rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag {

Series line_of_means(std::string name, std::span<const MeanAt> means, bool positive) {
    constexpr double fewest = 2;
    Series s{.name = std::move(name)};
    bool band = false;
    for (const MeanAt& m : means) {
        const bool drawn = m.mean && (!positive || *m.mean > 0);
        const bool known = drawn && m.error && m.freedom >= fewest;
        const double half = known ? student_quantile(0.95, m.freedom) * *m.error : 0;
        band = band || known;
        s.x.push_back(m.x);
        s.y.push_back(drawn ? m.mean : std::nullopt);
        s.low.push_back(known ? std::optional(*m.mean - half) : std::nullopt);
        s.high.push_back(known ? std::optional(*m.mean + half) : std::nullopt);
        if (known && positive) s.low.back() = std::max(*s.low.back(), *m.mean / 10);
    }
    if (!band) s.low.clear(), s.high.clear();
    return s;
}

}  // namespace tsdiag

namespace tsdiag::reports {

Rows::Rows(const Table& table) : rows_(table.metrics()) {
    std::unordered_map<std::string, Index> last;
    for (const MetricRow& row : rows_) {
        const auto [found, fresh] = last.try_emplace(row.model, row.at.step);
        if (fresh) models_.push_back(row.model);
        found->second = std::max(found->second, row.at.step);
    }
    std::erase_if(rows_, [&](const MetricRow& row) { return row.at.step != last[row.model]; });
    for (const MetricRow& row : rows_) by_metric_[row.metric].push_back(&row);
}

const std::vector<const MetricRow*>& Rows::of(std::string_view metric) const {
    static const std::vector<const MetricRow*> none;
    const auto found = by_metric_.find(std::string(metric));
    return found == by_metric_.end() ? none : found->second;
}

bool Rows::has(std::string_view metric) const { return !of(metric).empty(); }

Depth Rows::depth(const std::string& model, std::string_view metric, std::string_view stage,
                  std::string_view tensor) const {
    Depth means;
    std::map<Index, std::pair<double, Index>> sums;
    for (const MetricRow* row : of(metric)) {
        const Place& at = row->at;
        if (row->model != model || at.stage != stage || at.layer < 0 || at.tensor != tensor)
            continue;
        if (at.head < 0) {
            means[at.layer] = {row->value, row->standard_error, row->count};
        } else {
            auto& [sum, count] = sums[at.layer];
            if (row->value) sum += *row->value, ++count;
        }
    }
    if (!means.empty()) return means;
    for (const auto& [layer, s] : sums) {
        Point& p = means[layer];
        if (s.second > 0) p.value = s.first / double(s.second);
    }
    return means;
}

Heads Rows::heads(const std::string& model, std::string_view metric) const {
    Heads found;
    for (const MetricRow* row : of(metric))
        if (row->model == model && row->at.layer >= 0 && row->at.head >= 0)
            found[{row->at.layer, row->at.head}] = {row->value, row->standard_error, row->count};
    return found;
}

std::string Rows::attention_stage(const std::string& model) const {
    for (std::string_view metric : {"xi_ratio", "r"})
        for (const char* stage : {"attn", "ffn"})
            if (!depth(model, metric, stage).empty()) return stage;
    return "attn";
}

std::string Rows::reason(const std::string& model, std::string_view metric) const {
    for (const MetricRow* row : of(metric))
        if (row->model == model && !row->value && !row->note.empty()) return row->note;
    return {};
}

std::string own_figure(const Rows& rows, const std::string& model, const std::string& name) {
    const auto at = std::ranges::find(rows.models(), model) - rows.models().begin();
    return at == 0 ? name : fmt::format("{}_{}", name, at + 1);
}

std::string label(const std::string& model) {
    const std::size_t end = model.find_last_not_of('/');
    const std::string trimmed = model.substr(0, end + 1);
    std::string name = trimmed.substr(trimmed.find_last_of('/') + 1);
    if (name.size() > 40) name = name.substr(0, 37) + "...";
    return name;
}

Series over_layers(std::string name, const Depth& depth, bool positive) {
    return line_of_means(std::move(name), means_of(depth), positive);
}

std::vector<MeanAt> means_of(const Depth& depth) {
    std::vector<MeanAt> means;
    for (const auto& [at, p] : depth)
        means.push_back({double(at), p.value, p.error, double(p.count - 1)});
    return means;
}

bool any_value(const Series& series) {
    return std::any_of(series.y.begin(), series.y.end(),
                       [](const auto& y) { return y.has_value(); });
}

std::string in_words(std::string_view name, const Series& series) {
    std::optional<std::size_t> first, last, least, most;
    for (std::size_t i = 0; i < series.y.size(); ++i) {
        if (!series.y[i]) continue;
        if (!first) first = least = most = i;
        last = i;
        if (*series.y[i] < *series.y[*least]) least = i;
        if (*series.y[i] > *series.y[*most]) most = i;
    }
    if (!first) return {};
    const auto at = [&](std::size_t i) {
        return fmt::format("{} in layer {}", number(*series.y[i]), series.x[i]);
    };
    if (*first == *last) return fmt::format("{}: {}", name, at(*first));
    std::string text = fmt::format("{}: {}, {}", name, at(*first), at(*last));
    if (*least != *first && *least != *last) text += fmt::format(", least {}", at(*least));
    if (*most != *first && *most != *last) text += fmt::format(", greatest {}", at(*most));
    return text;
}

std::string in_words(const std::vector<Plot>& panels) {
    constexpr std::size_t most = 3;  // lines of a panel; more would not be listened to
    std::string text;
    for (const Plot& plot : panels) {
        std::string part;
        std::size_t told = 0;
        for (const Series& s : plot.series) {
            if (told == most) break;
            const std::string words = in_words(s.name, s);
            if (words.empty()) continue;
            part += (part.empty() ? "" : "; ") + words;
            ++told;
        }
        if (part.empty()) continue;
        if (plot.series.size() > told)
            part += fmt::format("; and {}", counted(plot.series.size() - told, "more line"));
        text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", plot.y.title, part);
    }
    return text;
}

bool spans_decades(const std::vector<Series>& series) {
    double least = 0, most = 0;
    bool any = false;
    for (const Series& s : series)
        for (const auto& y : s.y)
            if (y) {
                least = any ? std::min(least, *y) : *y;
                most = any ? std::max(most, *y) : *y;
                any = true;
            }
    return any && least > 0 && most > 20 * least;
}

}  // namespace tsdiag::reports
