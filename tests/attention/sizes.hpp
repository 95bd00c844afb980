#pragma once
#include "tsdiag/tensor.hpp"

namespace tsdiag::test {

/// Of the queries that are drawn.
constexpr Index heads = 4, width = 6;

}  // namespace tsdiag::test
