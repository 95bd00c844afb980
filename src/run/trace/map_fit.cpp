#include "map_fit.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "arrays.hpp"
#include "placement.hpp"

namespace tsdiag {
namespace {

/// The rows of a matrix at `tokens`, in float64.
std::vector<std::vector<double>> rows_at(const RawTensor& matrix, std::span<const Index> tokens) {
    std::vector<std::vector<double>> rows;
    for (const Index token : tokens) {
        const RawTensor row = element(matrix, token);
        rows.emplace_back(std::size_t(row.count()));
        widen<double>(row, std::span(rows.back()));
    }
    return rows;
}

/// The largest |p_j - softmax(logits)_j|; p is compared with 0 behind the last logit.
double apart_from_softmax(const std::vector<double>& p, std::span<const double> logits) {
    const double top = *std::ranges::max_element(logits);
    double sum = 0, apart = 0;
    for (const double v : logits) sum += std::exp(v - top);
    for (std::size_t j = 0; j < p.size(); ++j) {
        const double expected = j < logits.size() ? std::exp(logits[j] - top) / sum : 0;
        apart = std::max(apart, std::abs(p[j] - expected));
    }
    return apart;
}

bool all_finite(const std::vector<double>& values) {
    return std::ranges::all_of(values, [](double v) { return std::isfinite(v); });
}

/// The larger of what whole and causal rows are apart in one sample, and the largest logit.
struct SampleFit {
    double apart = 0, largest = 0;
};

/// That of a layer with this scale; nothing where no row is finite.
std::optional<SampleFit> fit_of(const SavedTrace& trace, Index layer, double scale,
                                const SampleTokens& sample) {
    constexpr Index most_heads = 4, most_rows = 8;
    const RawTensor p = trace.attentions().at(layer).sample(sample.number),
                    q = trace.queries().at(layer).sample(sample.number),
                    k = trace.keys().at(layer).sample(sample.number);
    const std::span<const Index> tokens = sample.of(q.shape[1]);
    const Index heads = q.shape[0], sharing = heads / k.shape[0], n = std::ssize(tokens);
    double whole = 0, causal = 0, largest = 0;
    bool compared = false;
    for (Index head = 0; head < heads; head += (heads - 1) / most_heads + 1) {
        const auto keys = rows_at(element(k, head / sharing), tokens);
        for (Index i = 0; i < n; i += (n - 1) / most_rows + 1) {
            const std::span<const Index> token = tokens.subspan(std::size_t(i), 1);
            const std::vector<double> query = rows_at(element(q, head), token).front(),
                                      full = rows_at(element(p, head), token).front();
            std::vector<double> kept, logits;
            for (const Index j : tokens) kept.push_back(full[std::size_t(j)]);
            for (const std::vector<double>& key : keys)
                logits.push_back(scale *
                                 std::inner_product(query.begin(), query.end(), key.begin(), 0.0));
            if (!all_finite(kept) || !all_finite(logits)) continue;
            compared = true;
            for (const double v : logits) largest = std::max(largest, std::abs(v));
            whole = std::max(whole, apart_from_softmax(kept, logits));
            causal = std::max(causal,
                              apart_from_softmax(
                                  kept, std::span<const double>(logits).first(std::size_t(i + 1))));
        }
    }
    if (!compared) return std::nullopt;
    return SampleFit{std::min(whole, causal), largest};
}

/// The sample of a layer that goes farthest beyond what is allowed, with this scale.
std::optional<MapFit> fit_of(Index layer, double scale, const std::vector<BatchSample>& samples) {
    std::optional<MapFit> worst;
    for (const auto& [batch, sample, number] : samples) {
        // Batches may store different arrays of a layer.
        if (!batch->attentions().contains(layer) || !batch->queries().contains(layer)) continue;
        const std::optional<SampleFit> fit = fit_of(*batch, layer, scale, sample);
        if (!fit) continue;
        // Logits are rounded relative to their size, and P moves by no more than twice as much.  At
        // least a thousandth: arrays may come from two passes.
        const double allowed =
            std::max(1e-3, 4 * batch->summary().map_rounding * (1 + fit->largest));
        if (!worst || fit->apart - allowed > worst->apart - worst->allowed)
            worst = MapFit{layer, number, fit->apart, allowed, scale};
    }
    return worst;
}

}  // namespace

std::vector<MapFit> map_fits(std::span<const SavedTrace> batches, std::optional<double> scale,
                             const std::vector<std::vector<bool>>& masks) {
    std::vector<MapFit> out;
    const SavedTrace& trace = batches.front();
    if (trace.attentions().empty() || trace.queries().empty()) return out;
    const std::vector<BatchSample> samples = measured_samples(batches, masks);
    for (const auto& [layer, query] : trace.queries()) {
        if (!trace.attentions().contains(layer)) continue;
        const double usual = 1 / std::sqrt(double(query.raw.shape.back()));
        std::optional<MapFit> fit = fit_of(layer, scale.value_or(usual), samples);
        if (fit && !fit->fits() && !scale)
            if (const auto scaled = fit_of(layer, 1, samples);
                scaled && scaled->apart < fit->apart && scaled->fits())
                fit = scaled;
        if (fit) out.push_back(*fit);
    }
    return out;
}

}  // namespace tsdiag
