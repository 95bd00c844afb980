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

bool shows_bands(const Figure& figure) {
    const auto has_band = [](const Series& s) {
        for (std::size_t i = 1; i < s.low.size(); ++i)
            if (s.low[i - 1] && s.low[i]) return true;
        return false;
    };
    return std::ranges::any_of(figure.panels, [&](const Plot& plot) {
        return std::ranges::any_of(plot.series, has_band);
    });
}

}  // namespace tsdiag

namespace tsdiag::reports {

void note_bands(Figure& figure) {
    if (shows_bands(figure)) figure.caption += band_note;
}

void note_bands_once(std::vector<Figure>& figures) {
    bool said = false;
    for (Figure& figure : figures) {
        const std::size_t at = figure.caption.find(band_note);
        if (at == std::string::npos) continue;
        if (said) figure.caption.erase(at, band_note.size());
        said = true;
    }
}

std::string own_figure(const TableView& rows, const std::string& model, const std::string& name) {
    const auto at = std::ranges::find(rows.models(), model) - rows.models().begin();
    return at == 0 ? name : fmt::format("{}_{}", name, at + 1);
}

std::string title_of(std::string_view metric) {
    const Metric* found = find_metric(metric);
    if (!found || found->symbol == metric) return std::string(metric);
    return fmt::format("{}: {}{}{}", metric, found->symbol, found->unit.empty() ? "" : ", ",
                       found->unit);
}

std::string in_words(const Metric& metric) {
    std::string text(metric.definition);
    if (!metric.source.empty()) text += fmt::format(" {}", metric.source);
    text += fmt::format("; {}", metric.range);
    if (!metric.unit.empty()) text += fmt::format(", {}", metric.unit);
    if (metric.undefined != "never") text += fmt::format("; undefined where {}", metric.undefined);
    return text;
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
    if (*least != *first && *least != *last) text += fmt::format(", minimum {}", at(*least));
    if (*most != *first && *most != *last) text += fmt::format(", maximum {}", at(*most));
    return text;
}

std::string in_words(const std::vector<Plot>& panels) {
    constexpr std::size_t most = 3;  // lines per panel, to keep the text short
    std::string text;
    for (const Plot& plot : panels) {
        std::string part;
        std::size_t described = 0;
        for (const Series& s : plot.series) {
            if (described == most) break;
            const std::string words = in_words(s.name, s);
            if (words.empty()) continue;
            part += (part.empty() ? "" : "; ") + words;
            ++described;
        }
        if (part.empty()) continue;
        if (plot.series.size() > described)
            part += fmt::format("; and {}", counted(plot.series.size() - described, "more line"));
        text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", plot.y.title, part);
    }
    return text;
}

std::optional<double> value_at(const Depth& depth, Index layer) {
    const auto found = depth.find(layer);
    return found == depth.end() ? std::nullopt : found->second.value;
}

std::vector<std::pair<Index, double>> defined(const Depth& depth) {
    std::vector<std::pair<Index, double>> found;
    for (const auto& [layer, p] : depth)
        if (p.value) found.emplace_back(layer, *p.value);
    return found;
}

std::optional<std::pair<Index, double>> first_above(const Depth& depth, double threshold) {
    for (const auto& [layer, p] : depth)
        if (p.value && *p.value > threshold) return std::pair(layer, *p.value);
    return std::nullopt;
}

std::string channels_of(const TableView& rows, const std::string& model) {
    for (const MetricRow* row : rows.all()) {
        const Metric* metric = find_metric(row->metric);
        if (row->model == model && row->value && metric && metric->of == Of::head &&
            row->note.starts_with("P is over "))
            return row->note.substr(0, row->note.find(';'));
    }
    return {};
}

std::string channels_in_caption(const TableView& rows) {
    for (const std::string& model : rows.models())
        if (!channels_of(rows, model).empty())
            return fmt::format(
                " {}over channels: n is the number of channels, and a row is a channel.",
                rows.models().size() > 1 ? label(model) + " attends " : std::string("P here is "));
    return {};
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
