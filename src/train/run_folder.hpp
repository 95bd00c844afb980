#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "state.hpp"

namespace tsdiag::training {

/// The directory of a run, which one process at a time writes: logs, DIR/checkpoints/step-N, and
/// the manifest that tells them from what its user has there.
class RunFolder {
  public:
    /// Nothing is written where `directory` is empty.
    explicit RunFolder(std::filesystem::path directory) : directory_(std::move(directory)) {}

    /// Begins anew: an earlier run's files are removed, others stay.  `words`: characters.json.
    /// Throws `UsageError` where a file that the run will write is not its own.
    void begin(const Json& words);

    /// Goes on from the last state that is whole and whose logs are, and cuts the logs to it.
    /// Returns its step; `notes`: what is wrong with later ones.  Throws `UsageError` where there
    /// is none, or where the run had other settings than `identity`.
    Index resume(const Json& identity, Parameters& parameters, Optimiser& optimiser,
                 TrainResult& result, std::vector<std::string>& notes);

    template <class Row>
    void add(const Row& row) {
        if (!directory_.empty()) log_.add(row);
    }
    /// Writes DIR/checkpoints/step-N: the model, where its family can be written, and the state.
    /// The logs are on the disk before it, it appears when it is whole, and of the states before it
    /// one stays.  Returns why there is no model, or nothing.
    std::string save(Index step, const ModelSpec& spec, const Parameters& parameters,
                     const Optimiser& optimiser, const Json& identity);
    /// The logs are whole, and no longer written on.
    void finish();

    /// The last step that has a state; -1: none.
    Index last_saved() const;

  private:
    std::filesystem::path checkpoint(Index step) const;
    std::vector<Index> saved_steps() const;
    void set_marks(const LogMarks& marks, const std::string& file = {},
                   const std::string& digest = {}) const;
    void drop_old_states() const;

    std::filesystem::path directory_;
    std::optional<FolderLock> lock_;
    Log log_;
};

}  // namespace tsdiag::training
