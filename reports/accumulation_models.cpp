#include <fmt/format.h>

#include "accumulation.hpp"
#include "text.hpp"

/// Which model attends more locally: one curve a model.
namespace tsdiag::reports {
namespace {

/// A layer's curve divided by its last value, which is 1 where rows sum to 1; empty where that is
/// not positive.
Curve normalised(const Curve& curve) {
    Curve out;
    if (curve.empty()) return out;
    const std::optional<double> last = curve.rbegin()->second.value;
    if (!last || !(*last > 0)) return out;
    for (const auto& [x, p] : curve)
        if (p.value) out[x] = {*p.value / *last, {}};
    return out;
}

/// Mean over the layers that have a value at x.
Series mean_over_layers(const std::map<Index, Curve>& layers, bool divide, std::string name) {
    std::map<double, std::pair<double, Index>> sums;
    for (const auto& [layer, curve] : layers)
        for (const auto& [x, p] : divide ? normalised(curve) : curve) {
            if (!p.value) continue;
            auto& [sum, count] = sums[x];
            sum += *p.value;
            ++count;
        }
    Series s{.name = std::move(name)};
    for (const auto& [x, sum] : sums) {
        s.x.push_back(x);
        s.y.emplace_back(sum.first / double(sum.second));
    }
    return s;
}

std::vector<Series> all_models(const std::vector<CurveRow>& rows,
                               const std::vector<std::string>& models, std::string_view curve,
                               bool divide) {
    std::vector<Series> out;
    for (const std::string& model : models) {
        Series s = mean_over_layers(curves_of(rows, model, curve), divide, label(model));
        if (!s.x.empty()) out.push_back(std::move(s));
    }
    return out;
}

/// "NAME 0.4 of the attention within a quarter of the tokens".
std::string quarter_in_words(const Series& s) {
    for (std::size_t i = 0; i < s.x.size(); ++i)
        if (s.x[i] >= 0.25)
            return fmt::format(" {}: {} of the attention within {} of the tokens.", s.name,
                               number(*s.y[i]), number(s.x[i]));
    return {};
}

}  // namespace

std::optional<Figure> compared_accumulation(const std::vector<CurveRow>& rows,
                                            const std::vector<std::string>& models) {
    Figure f{.name = "accumulation_models",
             .title = "Locally accumulated attention, all models",
             .caption =
                 "C(L)/C(n), C(L) the attention within L tokens around the row's own, mean over "
                 "the layers [DEVIL Fig. 2a]. C(n) is 1 if rows sum to 1; layers with C(n) <= 0 "
                 "are omitted.",
             .alt = "One curve per model."};
    std::vector<Series> series = all_models(rows, models, metric::local_acc, true);
    if (series.size() < 2) return std::nullopt;
    for (const Series& s : series) f.alt += quarter_in_words(s);
    series.push_back({.name = "uniform", .x = {0, 1}, .y = {0.0, 1.0}, .dashed = true});
    f.panels.push_back({.title = "local_acc: attention within the window",
                        .x = {.title = "window, fraction of tokens", .low = 0, .high = 1},
                        .y = {.title = "C(L) / C(n)"},
                        .series = std::move(series)});
    series = all_models(rows, models, metric::local_acc_appendix, false);
    if (!series.empty())
        f.panels.push_back({.title = "local_acc_appendix: the window that the paper's code reports",
                            .x = {.title = "attention to be collected", .low = 0, .high = 1},
                            .y = {.title = "window, fraction of tokens", .low = 0, .high = 1.02},
                            .series = std::move(series)});
    return f;
}

}  // namespace tsdiag::reports
