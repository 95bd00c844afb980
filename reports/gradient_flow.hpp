#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "tsdiag/report.hpp"

/// What becomes of the gradient on its way back through the layers.
namespace tsdiag::reports {

/// The norms of the gradient by the parameters of the first and of the last layer that have one.
struct GradientFlow {
    std::pair<Index, double> first, last;

    bool stops() const { return first.second <= 0 || last.second <= 0; }
    bool explodes() const { return !stops() && first.second > steep * last.second; }
    bool vanishes() const { return !stops() && last.second > steep * first.second; }
    /// "The gradient vanishes".
    std::string course() const;
    /// "from 1 in layer 11 it shrinks to 1.5 % per layer, to 1e-20 in layer 0".
    std::string numbers() const;

    static constexpr double steep = 1e3;
};

/// Of norms by layer, in ascending order; nullopt of less than two.
std::optional<GradientFlow> gradient_flow(const std::vector<std::pair<Index, double>>& norms);

}  // namespace tsdiag::reports
