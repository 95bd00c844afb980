#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Several processes of one command: what has started them, and how they speak to each other.
namespace tsdiag {

/// What has started this process as one of several, from the environment: "mpirun", "srun" ...
struct Launcher {
    std::string name;
    int rank = 0, size = 1;
};
/// None where a process runs alone, or as the only rank.
std::optional<Launcher> launcher();

/// The ranks of a command.  Collective functions are called by all of them, in the same order.
class Ranks {
  public:
    /// Opens libtsdiag_mpi.so and joins; collective.  Throws `NotAvailable` where there is no such
    /// library, or where it belongs to another MPI than the launcher.
    explicit Ranks(const Launcher& launcher);
    ~Ranks();
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    /// Adds to a counter that all ranks share and returns what it was.  By any thread.
    std::int64_t add(int counter, std::int64_t n) const;
    /// The text of each rank, in their order; collective.
    std::vector<std::string> gather(const std::string& text) const;
    /// Text r goes to rank r; returns what each has sent here; collective.
    std::vector<std::string> exchange(const std::vector<std::string>& texts) const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

/// Where `path` is seen as the same folder by all ranks; else the name of the first that does not.
/// Collective; rank 0 creates a file there and removes it.
std::optional<int> first_without(const Ranks& ranks, const std::string& folder);

/// What `tsdiag submit` asks of Slurm.
struct SubmitOptions {
    std::vector<std::string> words;  ///< of the command, without the program
    std::string program = "tsdiag", name = "tsdiag", time, partition, account, result;
    int nodes = 1, tasks_per_node = 1, cpus_per_task = 0;  ///< 0: as the partition says
    int parts = 0;  ///< an array of so many parts in place of MPI; 0: none
};
/// The batch script.  The command resumes by itself, so that the job may be requeued.  Throws
/// `UsageError` for a control character in any text, and in what stands on a line of #SBATCH for
/// all that Slurm reads otherwise there (white space, quotes, backslash, #).
std::string sbatch_script(const SubmitOptions& options);

}  // namespace tsdiag
