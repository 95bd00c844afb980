#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tsdiag::cli {

/// Throws `UsageError` for a word that means nothing to the command `own` and something to another,
/// which it names: "'tse.thm2.6' is a statement of a paper: tsdiag check tse.thm2.6."
void refuse_names_of_others(std::string_view own, const std::vector<std::string>& words);

}  // namespace tsdiag::cli
