#pragma once
#include <string_view>

#include "tsdiag/table.hpp"

/// What the declaration of its metric says of a number; empty for an unknown metric.
namespace tsdiag {

/// "state", "head", ...: what it is of.  A metric of heads without a head is "mean over heads".
std::string_view described_by(const MetricRow& row);
std::string_view unit_of(const MetricRow& row);

}  // namespace tsdiag
