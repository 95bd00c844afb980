#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "state.hpp"

namespace tsdiag::training {

/// The directory of a run, written by one process at a time: logs, DIR/checkpoints/step-N, and the
/// manifest that distinguishes them from files of the user.
class RunFolder {
  public:
    /// Nothing is written where `directory` is empty.  `measured`: of a run that begins now.
    explicit RunFolder(std::filesystem::path directory, RunRecord::Measured measured = {})
        : directory_(std::move(directory)), measured_(std::move(measured)) {}

    /// Starts a new run: the files of an earlier run are removed, others stay.  `words`:
    /// characters.json.  Throws `UsageError` where a file to be written is not the run's own.
    void begin(const Json& words);

    /// Resumes from the last checkpoint whose state and logs are complete; truncates the logs to
    /// it. Returns its step; `notes`: what is wrong with later ones.  Throws `UsageError` where
    /// there is none, or where the settings of the run differ from `identity`.
    Index resume(const RunRecord::Training& identity, Parameters& parameters, Optimiser& optimiser,
                 TrainResult& result, std::vector<std::string>& notes);

    template <class Row>
    void add(const Row& row) {
        if (!directory_.empty()) log_.add(row);
    }
    /// Writes DIR/checkpoints/step-N: the model, if its family can be written, and the state.  The
    /// logs are synced first, the folder appears atomically, and of the earlier states one is kept.
    /// Returns why there is no model, or nothing.
    std::string save(Index step, const ModelSpec& spec, const Parameters& parameters,
                     const Optimiser& optimiser, const RunRecord::Training& identity);
    /// Closes the logs, which are complete.
    void finish();

    /// The last step that has a state; -1: none.
    Index last_saved() const;
    /// When and where the run began; of one that an earlier version began it is not known.
    const RunRecord::Measured& measured() const { return measured_; }

  private:
    std::filesystem::path checkpoint(Index step) const;
    std::vector<Index> saved_steps() const;
    void set_marks(const LogMarks& marks, const std::string& file = {},
                   const std::string& digest = {}) const;
    void drop_old_states() const;

    std::filesystem::path directory_;
    RunRecord::Measured measured_;
    std::optional<FolderLock> lock_;
    Log log_;
};

}  // namespace tsdiag::training
