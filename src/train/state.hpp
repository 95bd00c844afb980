#pragma once
#include <filesystem>

#include "log.hpp"
#include "optimiser.hpp"
#include "tsdiag/run_record.hpp"

/// The training state of a checkpoint: training.safetensors beside the model.
namespace tsdiag::training {

constexpr const char* state_file = "training.safetensors";

/// The contents of a state besides parameters and moments.
struct StateNotes {
    RunRecord::Training identity;  ///< must be equal for the run to be resumed
    LogMarks logs;
    RunRecord::Measured measured = {};  ///< when and where the training began
};

/// Writes parameters, moments and notes, with a digest of everything.
void write_state(const std::filesystem::path& file, const Parameters& parameters,
                 const Optimiser& optimiser, const StateNotes& notes);

/// A state whose digest was verified on reading.  Throws `FormatError` naming the tensor where it
/// differs.
class State {
  public:
    explicit State(const std::filesystem::path& file);
    const StateNotes& notes() const { return notes_; }
    /// Throws `FormatError` for the state of another model.
    void restore(Parameters& parameters, Optimiser& optimiser) const;

  private:
    std::filesystem::path file_;
    std::unique_ptr<Checkpoint> state_;
    StateNotes notes_;
};

}  // namespace tsdiag::training
