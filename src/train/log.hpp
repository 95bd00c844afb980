#pragma once
#include <array>
#include <filesystem>

#include "tsdiag/output.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// The length and digest of each log when a checkpoint was saved, by file name, with `grows`.
using LogMarks = Manifest::Entries;

/// The append-only logs of a run: steps.csv, gradients.csv, evaluations.csv, metrics.csv and
/// curves.csv.
class Log {
  public:
    static const std::array<const char*, 5>& files();
    /// Writes the headers alone into a folder.
    static void write_empty(const std::filesystem::path& directory);
    /// The marks of logs with headers alone.
    static LogMarks empty_marks();

    Log() = default;
    ~Log() { close(); }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// Continues after `marks`; truncates the logs there.  `table` holds the contents of
    /// metrics.csv and curves.csv.
    void open(const std::filesystem::path& directory, const LogMarks& marks, const Table& table);
    void add(const TrainStep& step);
    void add(const Evaluation& evaluation);
    void add(const Table& table);  ///< appends the rows added since the last call
    /// Waits until everything added is on disk; returns the marks.
    LogMarks sync();
    void close();

  private:
    struct File {
        int descriptor = -1;
        std::uint64_t bytes = 0;
        Sha256 digest = {};
    };
    void append(std::size_t file, std::string_view text);
    std::filesystem::path directory_;
    std::array<File, 5> open_ = {};
    std::size_t rows_ = 0, points_ = 0;  ///< of the table, already written
};

/// Reads the logs of `directory` into `result`, whole or up to `marks`, whose digests must match.
/// Throws `FormatError` naming file and line.
void read_logs(const std::filesystem::path& directory, const LogMarks* marks, TrainResult& result);

}  // namespace tsdiag::training
