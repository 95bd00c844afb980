#include "witness.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace tsdiag::claim {
namespace {

std::vector<double> plainer(double v) {
    std::vector<double> list{0, v < 0 ? -1.0 : 1.0, std::round(v), std::round(2 * v) / 2};
    for (int digits = 1; digits < 6; ++digits) list.push_back(rounded(v, digits));
    return list;
}

}  // namespace

double rounded(double value, int digits) {
    if (value == 0 || !std::isfinite(value)) return value;
    // Via text: the nearest double to the printed decimal number.
    char text[64];
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return std::strtod(text, nullptr);
}

std::optional<Variables> plain_witness(const Variables& found,
                                       const std::function<double(const Variables&)>& strength,
                                       double least) {
    Variables best = found;
    const auto keeps = [&](const std::vector<double>& flat) {
        Variables trial = best;
        trial.assign(flat);
        if (!(strength(trial) > least)) return false;
        best = std::move(trial);
        return true;
    };
    std::size_t first = 0;
    for (const NamedMatrix& m : found.named()) {
        std::vector<double> flat = best.flat();
        double most = 0;
        for (std::size_t i = 0; i < m.values.size(); ++i)
            most = std::max(most, std::abs(flat[first + i]));
        if (most > 0)
            for (std::size_t i = 0; i < m.values.size(); ++i) flat[first + i] /= most;
        keeps(flat);
        first += m.values.size();
    }
    std::vector<double> six = best.flat();
    for (double& v : six) v = rounded(v, 6);
    if (!keeps(six)) {
        best = found;
        six = best.flat();
        for (double& v : six) v = rounded(v, 6);
        if (!keeps(six)) return std::nullopt;
    }
    constexpr std::size_t by_hand = 60;  // most entries that can be checked by hand
    for (std::size_t i = 0; i < six.size() && six.size() <= by_hand; ++i)
        for (const double candidate : plainer(best.flat()[i])) {
            std::vector<double> flat = best.flat();
            if (flat[i] == candidate) break;
            flat[i] = candidate;
            if (keeps(flat)) break;
        }
    return best;
}

}  // namespace tsdiag::claim
