#pragma once
#include <filesystem>

#include "optimiser.hpp"

/// Checkpoints of a training run: DIR/checkpoints/step-N.
namespace tsdiag::training {

/// Writes the model, where its family can be written, and parameters and moments with `described`
/// beside it.  The folder appears under its name when it is whole; the training states of all but
/// the last two are removed.  Returns why there is no model, or nothing.
std::string save_state(const std::filesystem::path& directory, Index step, const ModelSpec& spec,
                       const Parameters& parameters, const Optimiser& optimiser,
                       const Json& described);

/// Removes all of them: a run begins anew.
void remove_saved(const std::filesystem::path& directory);

/// The last step that can be gone on from; -1: none.
Index last_saved(const std::filesystem::path& directory);

/// Reads parameters and moments back.  Throws `FormatError` for a state that is damaged or of
/// another model.
void load_state(const std::filesystem::path& directory, Index step, Parameters& parameters,
                Optimiser& optimiser);
/// What `save_state` was told.
Json described_state(const std::filesystem::path& directory, Index step);

}  // namespace tsdiag::training
