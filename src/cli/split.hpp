#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "options.hpp"
#include "tsdiag/cluster.hpp"
#include "tsdiag/run_record.hpp"
#include "tsdiag/units.hpp"

/// Commands whose units several processes compute.
namespace tsdiag::cli {

/// How this process takes part in a job that several compute, apart from --part.
struct Participation {
    /// Of several ranks: hands their units out, and hears what the others are about.
    const Ranks* ranks = nullptr;
    bool merges = false;     ///< what is missing is an error, not computed
    bool after_all = false;  ///< the ranks have computed the units, this one makes the result
    Index counters = 1;      ///< used so far; the first tells of a failure
    /// Of each job whose result is still to be made.
    struct Computed {
        std::vector<Index> by_rank;  ///< units
        bool together = false;       ///< each by all ranks
    };
    std::deque<Computed> computed;
};
Participation& participation();

/// The units of one result.
class SplitJob {
  public:
    /// `result`: its folder.  `settings`: all that determines the records.
    SplitJob(const SplitOptions& options, const std::string& result, const std::string& settings,
             const std::string& device);
    ~SplitJob();

    JobUnits& units() { return *units_; }
    /// Lets ranks compute a unit together, where there are fewer units than ranks.
    void share_units();
    UnitStore& store() { return *store_; }
    /// Of the process that began the job.
    RunRecord::Measured measured() const;
    /// Whether this process computes units and no result.
    bool computes_units_only() const { return units_->hands_out(); }
    /// Whether units of an earlier run, or of other processes, are there or required.
    bool begun() const { return units_->begun(); }
    /// After the units of a process without result: writes them; says what was done.
    void finish(const std::string& result, bool quiet);
    /// After the result is in place: removes the units; says how many were reused.
    void finish_result(bool quiet);

  private:
    void agree(const std::string& result);
    void say_parts() const;
    Index count_ticket(Index stage, Index count);
    SplitOptions options_;
    std::unique_ptr<UnitStore> store_;
    std::unique_ptr<const Team> team_;
    std::unique_ptr<JobUnits> units_;
    Index known_ = 0, first_counter_ = 0;
    std::atomic<Index> counters_ = 0;
    bool finished_ = false;
};

/// Whether this process writes a result, or units for that of another.  The first of several ranks
/// does both, and refuses what is in the way of the result before any work.
bool makes_result(const SplitOptions& options);

/// A digest of the files that an argument names, also behind a colon ("ids:F"); of a folder of data
/// the names and sizes of its files.  Others: the argument.
std::string model_digest(const std::string& argument);
std::string data_digest(const std::string& argument);

}  // namespace tsdiag::cli
