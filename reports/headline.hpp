#pragma once
#include <optional>
#include <string>
#include <vector>

#include "rows.hpp"

/// The first sentence of the verdict.
namespace tsdiag::reports {

/// What becomes of the tokens, in one sentence with its number, and a remedy where they collapse;
/// empty where the run has no t_sim at the outputs of its layers.
std::vector<Finding> tokens_verdict(const TableView& rows, const std::string& model,
                                    const RunRecord& run);

/// What [TSE] offers against a collapse, with a command that shows its effect; empty where the
/// model has it, and where that is not known.
std::string remedy(const RunRecord& run);

/// What was assumed of the model and left out of it.
void add_doubts(const RunRecord::Model& model, std::vector<Finding>& findings);

/// Where a trained model was given random token ids.
std::optional<Finding> random_ids(const RunRecord& run);

}  // namespace tsdiag::reports
