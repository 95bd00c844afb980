#pragma once
#include <map>
#include <optional>
#include <string_view>

#include "rows.hpp"

namespace tsdiag::reports {

using Curve = std::map<double, Point>;  ///< x -> y

/// A curve per layer: the row without head, else the mean over the heads.
std::map<Index, Curve> curves_of(const std::vector<CurveRow>& rows, const std::string& model,
                                 std::string_view curve);

/// Local accumulation of several models in one panel, as [DEVIL] Fig. 2a; nullopt for fewer than
/// two models with curves.
std::optional<Figure> compared_accumulation(const std::vector<CurveRow>& rows,
                                            const std::vector<std::string>& models);

}  // namespace tsdiag::reports
