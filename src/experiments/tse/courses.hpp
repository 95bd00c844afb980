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

/// What they show in common: `figure` with training loss, held-out loss, accuracy if it is wanted,
/// and t_sim_last over the steps, a line per network; the final values of each network, and a note
/// on runs that diverged.
Findings course_findings(const Table& table, Figure figure,
                         const std::vector<std::string>& networks, bool with_accuracy);

}  // namespace tsdiag::experiment_list
