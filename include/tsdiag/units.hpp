#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/table.hpp"
#include "tsdiag/team.hpp"

/// Units of work: what several processes can compute of one command, and what is kept of it.
///
/// A command passes through stages, the same in every process; a stage has `count` units, each a
/// pure function of the command and its number.  The record of a unit holds what its trial said;
/// records are replayed in the order of the units, so that the tables depend neither on the
/// processes nor on the order in which they finish.
namespace tsdiag {

/// The bytes of a record.  Integers are LEB128, doubles their eight bytes, lowest first.
class RecordWriter {
  public:
    void count(std::uint64_t n);
    void index(Index i) { count(std::uint64_t(i + 1)); }  ///< -1 or more
    void real(double x);
    void real(const std::optional<double>& x);
    void flag(bool b) { bytes_.push_back(b ? 1 : 0); }
    void text(std::string_view s);
    void reals(const std::vector<double>& all);
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

/// Reads what `RecordWriter` wrote.  Lengths are checked against the bytes that are left; throws
/// `FormatError` naming `source` for whatever no writer has written.
class RecordReader {
  public:
    RecordReader(std::string_view bytes, std::string_view source) : rest_(bytes), source_(source) {}
    std::uint64_t count();
    /// A number of elements that each take `least` bytes or more.
    std::size_t length(std::size_t least = 1);
    Index index();
    double real();
    std::optional<double> maybe_real();
    bool flag();
    std::string text() { return std::string(view()); }
    std::string_view view();  ///< a text, where it stands
    std::vector<double> reals();
    bool done() const { return rest_.empty(); }
    void end() const;  ///< throws where bytes are left
    [[noreturn]] void refuse(std::string_view what) const;

  private:
    std::string_view take(std::size_t count);
    std::string_view rest_;
    std::string source_;
};

/// How one process takes part in a job.  Thread-safe but for `begin`.
class Units {
  public:
    virtual ~Units() = default;
    /// Begins the next stage, of `count` units.
    virtual void begin(Index count) = 0;
    /// The record of a unit of this stage that is finished; valid while this lives.
    virtual std::optional<std::string_view> find(Index unit) const = 0;
    /// Keeps the record of a unit that took `seconds`.
    virtual void keep(Index unit, std::string_view record, double seconds) = 0;
    /// A unit that takes long has parts, 0, 1, ..., from which it goes on where it is not finished.
    /// They are kept while it is computed, and are no units themselves.
    virtual std::optional<std::string_view> find_part(Index unit, Index part) const = 0;
    virtual void keep_part(Index unit, Index part, std::string_view record) = 0;
    /// False: this process is alone, and none of its units is known.
    virtual bool begun() const = 0;
    /// True: this process computes the units that `next` gives it, nothing is replayed, and the
    /// result stays empty.  False: all units, and the result.
    virtual bool hands_out() const = 0;
    /// The next unit for this process, ascending; -1: none is left in this stage.
    virtual Index next() = 0;
    /// The processes that may compute a unit together, where there are fewer units than processes;
    /// null: none.
    virtual const Team* team() const { return nullptr; }
};

/// The result of a unit: `read` from its record where one is kept, else made by `make` and kept as
/// `write` puts it.  A record that `read` refuses with `FormatError` is not used.  `units` may be
/// null: then nothing is kept.
template <class Read, class Make, class Write>
auto result_of_unit(Units* units, Index unit, Read read, Make make, Write write) {
    if (const auto record = units ? units->find(unit) : std::nullopt) {
        try {
            return read(*record);
        } catch (const FormatError&) {  // the checksum was right: another build wrote it
        }
    }
    const auto start = std::chrono::steady_clock::now();
    auto made = make();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (units) units->keep(unit, write(made), taken.count());
    return made;
}

/// When the first process of a job began, and on which processor.
struct JobBegin {
    std::string date = {}, processor = {};
};

/// What determines the records of a job.
struct JobTitle {
    std::vector<std::string> words;  ///< of the command line, without those that split it
    std::string settings;            ///< a text or a digest of all that determines the records
    /// What decides the last bits: device, instruction set, libraries.
    std::string numerics;
    JobBegin begun = {};                  ///< decides nothing
    std::string digest() const;           ///< of version, settings and numerics; 32 hex digits
    std::string settings_digest() const;  ///< without the numerics
};

/// "avx512 kernels, float32 products by oneDNN 2.6.2, float64 by Eigen" of a device.
std::string numerics_of(const std::string& device);

/// Where the finished units of the result in `folder` are kept: ".NAME.tsdiag-units" beside it.
std::filesystem::path units_folder(const std::filesystem::path& folder);

/// The finished units of one job, as files of a folder that all its processes share.
///
/// Each process writes files of its own, by rename, each with the units that it has finished since
/// the last: one after a second, later ones after 1 % of the time so far, so that a killed process
/// loses no more than that.  Damaged and foreign files are skipped.
class UnitStore {
  public:
    /// Nothing is created before the first record is written.
    UnitStore(const std::filesystem::path& result, JobTitle title);
    ~UnitStore();
    UnitStore(const UnitStore&) = delete;
    UnitStore& operator=(const UnitStore&) = delete;

    /// The units are for this process alone: where they cannot be written, as on a full disk, none
    /// is kept, nor of a run that fails before it has written any, in less than a second.
    void set_best_effort() { best_effort_ = true; }
    /// Reads the finished units; returns their number.  Throws `Error` naming both hosts where two
    /// processes have different records of one unit.
    Index read();
    /// `part` -1: the whole unit.
    std::optional<std::string_view> find(Index stage, Index unit, Index part = -1) const;
    void keep(Index stage, Index unit, std::string_view record, double seconds);
    /// Written when it is due, and only while the unit is not kept.
    void keep_part(Index stage, Index unit, Index part, std::string_view record);
    /// Notes the size of a stage, for `job_status`.
    void stage(Index stage, Index count);
    /// Writes what is not yet written.  `state`: "running", "done", or "failed", of which nothing
    /// is said where nothing was kept.
    void flush(std::string_view state = "running");
    void remove();  ///< the job is complete: its files are no longer needed
    Index known() const { return known_; }
    bool empty() const { return records_.empty(); }  ///< neither units nor parts are known
    Index computed() const { return computed_; }
    /// The numerics of other jobs with the same settings that have units here.
    std::vector<std::string> other_numerics() const;
    const std::filesystem::path& folder() const { return folder_; }
    /// `begun`: of the process that began first, where it has kept units.
    const JobTitle& title() const { return title_; }

  private:
    struct Key {
        Index stage = 0, unit = 0, part = -1;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            return (std::size_t(key.unit) * 0x9E3779B97F4A7C15u + std::size_t(key.part)) *
                       0x9E3779B97F4A7C15u +
                   std::size_t(key.stage);
        }
    };
    using Clock = std::chrono::steady_clock;
    void read_file(const std::filesystem::path& file);
    void write_where_due();
    void unless_given_up(const std::function<void()>& write);
    void write_pending();
    void write_worker(std::string_view state);
    void make_folder();
    void learn_begin();

    std::filesystem::path folder_;
    JobTitle title_;
    std::string digest_, worker_;
    struct Known {
        std::string_view record;
        std::size_t file = 0;
    };
    std::unordered_map<Key, Known, KeyHash> records_;
    struct Read {
        std::string host, bytes;
    };
    std::vector<std::unique_ptr<Read>> files_;
    mutable std::mutex mutex_;
    std::string pending_;
    std::vector<std::pair<Key, std::string>> pending_parts_;
    Index pending_count_ = 0, sequence_ = 0, computed_ = 0, known_ = 0;
    double busy_ = 0;
    std::map<Index, Index> stages_;
    Clock::time_point start_, written_;
    bool made_ = false, best_effort_ = false, gave_up_ = false;
};

/// Units of a job that other processes have not finished.
class MissingUnits : public Error {
    using Error::Error;
};

/// The part of one process in a job.
class JobUnits final : public Units {
  public:
    /// Tickets of a stage: 0, 1, 2, ..., each given to one process; at `count` and beyond there is
    /// none.
    using Tickets = std::function<Index(Index stage, Index count)>;
    /// All units, and the result.  `complete`: what is missing is an error, not computed.
    explicit JobUnits(UnitStore& store, bool complete = false)
        : store_(store), complete_(complete) {}
    JobUnits(UnitStore& store, Tickets tickets) : store_(store), tickets_(std::move(tickets)) {}

    /// Skips to a stage: `begin` begins this one next.
    void go_to(Index stage) { stage_ = stage - 1; }
    /// Units of the stages so far that this process has not computed.
    Index reused() const { return all_ - store_.computed(); }
    /// Parts of those that it has computed which an earlier run had finished.
    Index reused_parts() const { return reused_parts_; }
    Index all() const { return all_; }  ///< units of the stages so far

    void begin(Index count) override;
    std::optional<std::string_view> find(Index unit) const override;
    void keep(Index unit, std::string_view record, double seconds) override;
    std::optional<std::string_view> find_part(Index unit, Index part) const override;
    void keep_part(Index unit, Index part, std::string_view record) override;
    bool begun() const override { return hands_out() || complete_ || !store_.empty(); }
    bool hands_out() const override { return bool(tickets_); }
    const Team* team() const override { return team_; }
    void set_team(const Team* team) { team_ = team; }
    Index next() override;

  private:
    UnitStore& store_;
    Tickets tickets_;
    bool complete_ = false;
    const Team* team_ = nullptr;
    Index stage_ = -1, count_ = 0, all_ = 0;
    mutable std::atomic<Index> reused_parts_ = 0;
};

/// The tickets of part `part` (from 1) of `parts`, fixed beforehand.
JobUnits::Tickets tickets_of_part(Index part, Index parts);

/// What one process has said of its work.
struct WorkerStatus {
    std::string host, state;
    Index pid = 0, units = 0, threads = 1;
    double busy = 0;  ///< seconds of all its threads
    double age = 0;   ///< seconds since it said so
};
struct JobStatus {
    std::string digest;
    std::vector<std::string> words;
    std::string directory, numerics, result;  ///< where the command was given; its folder
    Index done = 0, known = 0;                ///< finished units; units of the stages begun so far
    double unit_seconds = 0;                  ///< mean
    std::vector<WorkerStatus> workers;
};
/// The unfinished jobs of the result in `folder`, and of those in it.
std::vector<JobStatus> job_status(const std::filesystem::path& folder);

}  // namespace tsdiag
