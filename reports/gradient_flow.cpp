#include "gradient_flow.hpp"

#include <fmt/format.h>

#include <cmath>

#include "text.hpp"

namespace tsdiag::reports {

std::optional<GradientFlow> gradient_flow(const std::vector<std::pair<Index, double>>& norms) {
    if (norms.size() < 2) return std::nullopt;
    return GradientFlow{norms.front(), norms.back()};
}

std::string GradientFlow::course() const {
    return stops()      ? "The gradient does not reach all layers"
           : explodes() ? "The gradient explodes"
           : vanishes() ? "The gradient vanishes"
                        : "The gradient reaches all layers";
}

std::string GradientFlow::numbers() const {
    const std::string from = fmt::format("from {} in layer {}", number(last.second), last.first),
                      to = fmt::format("to {} in layer {}", number(first.second), first.first);
    if (stops()) return fmt::format("{} {}; nothing learns where it is 0", from, to);
    const double rate = std::pow(first.second / last.second, 1 / double(last.first - first.first));
    return fmt::format("{} it {} per layer, {}", from,
                       rate < 1 ? fmt::format("shrinks to {} %", number(100 * rate))
                                : fmt::format("grows by a factor of {}", number(rate)),
                       to);
}

}  // namespace tsdiag::reports
