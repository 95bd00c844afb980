#pragma once
#include <vector>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// The tokens of the text of the run on the axes of maps over that many tokens: of up to 64 each
/// is a cell that tells its tokens; larger maps keep their numbers.
void name_tokens(std::vector<Figure>& figures, const RunRecord& run);

}  // namespace tsdiag::reports
