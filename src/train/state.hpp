#pragma once
#include <filesystem>

#include "log.hpp"
#include "optimiser.hpp"

/// The training state of a checkpoint: training.safetensors beside the model.
namespace tsdiag::training {

constexpr const char* state_file = "training.safetensors";

/// What stands in a state beside parameters and moments.
struct StateNotes {
    Json identity;  ///< what must be the same for the run to be gone on with
    LogMarks logs;
};

/// Writes parameters, moments and notes, with a digest of all.
void write_state(const std::filesystem::path& file, const Parameters& parameters,
                 const Optimiser& optimiser, const StateNotes& notes);

/// A state that was read whole: its digest holds.  Throws `FormatError` where it does not, naming
/// the tensor.
class State {
  public:
    explicit State(const std::filesystem::path& file);
    const StateNotes& notes() const { return notes_; }
    /// Throws `FormatError` where it is of another model.
    void restore(Parameters& parameters, Optimiser& optimiser) const;

  private:
    std::filesystem::path file_;
    std::unique_ptr<Checkpoint> state_;
    StateNotes notes_;
};

}  // namespace tsdiag::training
