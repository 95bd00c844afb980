#pragma once
#include <string>
#include <vector>

#include "training.hpp"

/// Shared by the trainings of [TSE], which compare networks of one depth.
namespace tsdiag::experiment_list {

/// `trained`, with a curve t_sim_last over the steps: t_sim behind the last of the setting's
/// layers.
RunResult trained_with_similarity(const ExperimentSetting& setting,
                                  const std::vector<Trained>& models);

/// Training loss, held-out loss, accuracy if it is wanted, and t_sim_last over the steps, a line
/// per network.
std::vector<Plot> course_of(const Table& table, const std::vector<std::string>& networks,
                            bool with_accuracy);

}  // namespace tsdiag::experiment_list
