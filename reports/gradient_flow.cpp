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
    std::string text =
        fmt::format("by the parameters of layer {} it is {}, by those of layer {} {}", last.first,
                    number(last.second), first.first, number(first.second));
    if (stops()) return text + ": nothing learns where it is 0";
    const double change = first.second / last.second;
    return text + fmt::format(", a factor of {} a layer on its way back",
                              number(std::pow(change, 1 / double(last.first - first.first))));
}

}  // namespace tsdiag::reports
